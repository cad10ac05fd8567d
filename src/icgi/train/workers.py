"""Processes that make training models, one pool for all sets of a run."""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context


@contextmanager
def workers(count: int) -> Iterator[Executor | None]:
    """Pool of so many processes; none for one, and the caller does the work itself."""
    if count <= 1:
        yield None
        return
    # spawned, not forked: the parent may hold a CUDA context already
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        yield pool
