"""Compiled kernels: the one decorator, and a cache on disk that cannot go stale.

numba's own cache looks at the file of a function only, although the functions and constants of
other files are compiled into it. Here a kernel's place in the cache is a hash of its file and of
all files of the package that this one imports, directly or not; of numba's version; and of the
processor. Where no folder can be written, kernels are kept in memory.

A kernel is plain Python, too. Where it was never compiled and there is little to do (`brief`), it
is interpreted: that takes milliseconds where compiling would take seconds.
"""

import contextlib
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from numba.core import caching, event, types
from numba.core.registry import CPUDispatcher

from icgi import clock

PACKAGE = Path(__file__).parent
MOST_STEPS = 1e6  # of an interpreted kernel's innermost loop: some tenths of a second
MOST_SECONDS = 2.0  # of interpreted kernels in one process; then compiling is cheaper
UNUSED_DAYS = 30  # after which the compiled code of other versions is removed

_IMPORT = re.compile(
    rb"^(?:from|import)\s+(icgi(?:\.\w+)+)(?:\s+import\s+([\w, ]+|\([^)]*\)))?", re.M
)


def kernel(
    function: Callable[..., Any] | None = None,
    /,
    python: Callable[..., Any] | None = None,
    **options: Any,
) -> Any:
    """Compile a function when it is first called, without holding the interpreter's lock.

    Options are those of `numba.njit`; `python` does the same where the function itself consists of
    machine instructions and cannot be interpreted.
    """
    if function is None:
        return lambda made: kernel(made, python=python, **options)
    # no wrapper for calls from C: nobody makes them
    compiled = numba.njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    if not isinstance(compiled, CPUDispatcher):  # numba is switched off
        return python or function
    compiled._cache = _stored(function)
    compiled.__class__ = _Kernel
    compiled.python = python or function
    return compiled


class brief:
    """Within it kernels that were never compiled are interpreted, if they have little to do.

    Parameters
    ----------
    steps
        How often their innermost loops will run, about.
    """

    __slots__ = ("_steps", "_token")  # a small answer enters a dozen of these

    def __init__(self, steps: float) -> None:
        self._steps = steps
        self._token: Token[int] | None = None

    def __enter__(self) -> None:
        if self._steps <= MOST_STEPS and _interpreting.allowed:
            self._token = _in_brief.set(max(_in_brief.get(), _YES))

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _in_brief.reset(self._token)


def never_interpret() -> None:
    """Compile every kernel from now on, however little there is to do."""
    _interpreting.allowed = False


class _Interpreting:
    """How long kernels have been interpreted in this process, and whether they may be."""

    allowed = os.environ.get("ICGI_INTERPRET", "1") != "0"
    seconds = 0.0


_interpreting = _Interpreting()
_NOT, _YES, _INSIDE = range(3)  # an interpreted kernel
_in_brief: ContextVar[int] = ContextVar("brief", default=_NOT)


class _Compiled(CPUDispatcher):  # type: ignore[misc]
    """A kernel; where another one gives it a constant, no form of its own is compiled for that."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(tuple(map(_general, args)), kws)


def _general(kind: Any) -> Any:
    """Type of an argument without the value of a whole number, or of yes and no."""
    constant = isinstance(kind, types.IntegerLiteral | types.BooleanLiteral)
    return kind.literal_type if constant else kind


class _Kernel(_Compiled):
    """A kernel that has not been asked for yet; from its first compiled call a plain one."""

    def __call__(self, *arguments: Any) -> Any:
        where = _in_brief.get()
        if where == _INSIDE:  # all of it: compiled code would return other kinds of numbers
            return self.python(*arguments)
        if where == _NOT or not _interpreting.allowed or self.overloads or _on_disk(self):
            self.__class__ = _Compiled
            return self(*arguments)
        began = time.perf_counter()
        token = _in_brief.set(_INSIDE)
        try:
            with np.errstate(all="ignore"):  # words wrap around, as they do when compiled
                return _plain(self.python(*arguments))
        finally:
            _in_brief.reset(token)
            _interpreting.seconds += time.perf_counter() - began
            if _interpreting.seconds > MOST_SECONDS:
                _interpreting.allowed = False


def _plain(found: Any) -> Any:
    """Result with Python's own numbers, as compiled code returns them."""
    if isinstance(found, tuple):
        return tuple([_plain(each) for each in found])
    return found.item() if isinstance(found, np.generic) else found


def _on_disk(compiled: Any) -> bool:
    """Whether any form of a kernel lies compiled on the disk."""
    file = getattr(compiled._cache, "_cache_file", None)
    return file is not None and Path(file._index_path).exists()


def cache_folder() -> Path:
    """Folder that holds the compiled code: ICGI_CACHE, or the one that the system suggests."""
    if given := os.environ.get("ICGI_CACHE"):
        return Path(given) / "kernels"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "icgi" / "kernels"


def when_compiling(say: Callable[[], None] | None) -> None:
    """Call `say` whenever a kernel begins to be compiled; None for nobody."""
    _LISTENER.say = say


@cache
def source_key(path: Path) -> str:
    """Hash of all that decides what the kernels of a file do."""
    found, waiting = {path}, [path]
    while waiting:
        for other in _imported(waiting.pop()) - found:
            found.add(other)
            waiting.append(other)
    key = hashlib.blake2b(digest_size=12)
    cpu = llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten()
    key.update(repr((numba.__version__, sys.version_info[:2], cpu)).encode())
    for file in sorted(found):
        key.update(os.path.relpath(file, PACKAGE).encode() + b"\0" + _source(file) + b"\0")
    return key.hexdigest()


@cache
def remove_unused(folder: Path) -> None:
    """Remove the compiled code of files that nobody has loaded for a month, once a process."""
    oldest = time.time() - UNUSED_DAYS * 86400
    for each in folder.iterdir():
        if each.is_dir() and each.stat().st_mtime < oldest:
            shutil.rmtree(each, ignore_errors=True)


@cache
def _source(path: Path) -> bytes:
    return path.read_bytes()


@cache
def _imported(path: Path) -> frozenset[Path]:
    """Files of the package that a file imports when it is loaded."""
    names = set()
    for module, wanted in _IMPORT.findall(_source(path)):
        names.add(module.decode())
        # `from icgi.sampling import spins` imports a module by what looks like a name in one
        names |= {f"{module.decode()}.{name}" for name in re.findall(r"\w+", wanted.decode())}
    files = (PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py") for name in names)
    return frozenset(file for file in files if file.is_file())


class _Locator(caching._CacheLocator):  # type: ignore[misc]
    """Where the compiled forms of a function lie: one folder for each `source_key`."""

    def __init__(self, function: Callable[..., Any], path: Path) -> None:
        self._line = function.__code__.co_firstlineno
        self._key = source_key(path)
        self._folder = cache_folder() / f"{path.parent.name}-{path.stem}-{self._key}"

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._key

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_Locator | None":
        try:
            made = cls(py_func, Path(py_file))
            made.ensure_cache_path()
            os.utime(made.get_cache_path())  # still in use
        except (OSError, RuntimeError):  # RuntimeError: no home directory
            return None
        return made


class _Implementation(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_Locator]  # noqa: RUF012


class _Stored(caching.FunctionCache):  # type: ignore[misc]
    """numba's cache of a function; a problem with the disk costs the cache, never the answer."""

    _impl_class = _Implementation

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever a truncated or foreign file may raise when it is unpickled
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
            remove_unused(Path(self.cache_path).parent)
        except OSError:  # full, read-only, removed meanwhile
            self.disable()


def _stored(function: Callable[..., Any]) -> Any:
    try:
        return _Stored(function)
    except (RuntimeError, OSError):  # numba's «no locator available»
        return caching.NullCache()


class _Listener(event.Listener):  # type: ignore[misc]
    """Stops the clock while numba compiles."""

    say: Callable[[], None] | None = None

    def on_start(self, event: Any) -> None:
        clock.pause()
        if self.say is not None:
            self.say()

    def on_end(self, event: Any) -> None:
        clock.resume()


_LISTENER = _Listener()
event.register("numba:compile", _LISTENER)
