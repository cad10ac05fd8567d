"""Faster start of short commands: no garbage collection while modules load."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """No garbage collection meanwhile; what is there at the end is never looked through again.

    Modules and compiled kernels are some 200,000 objects, all of which stay. Looking for garbage
    among them, again and again while they come and twice more when the process ends, was seen to
    take a quarter of a second.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
