"""One writer per folder: a locked file that says who writes.

The operating system holds the lock, so it is gone with the process that took it, however that
ended: a file left behind by a dead process stops nobody.
"""

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from icgi.errors import IcgiError
from icgi.wording import shown

NAME = "writer.lock"


@contextmanager
def writing(folder: Path, name: str = NAME) -> Iterator[None]:
    """Be the only writer of a folder; refuse at once where there is another, saying who.

    With another name, only of what it stands for in the folder.
    """
    path = folder / name
    file = _acquire(path)
    try:
        _sign(file)
        yield
    finally:
        _release(file, path)


def holder(folder: Path, name: str = NAME) -> str:
    """Who wrote the lock file last, in words."""
    try:
        with (folder / name).open("rb") as file:
            found = json.loads(file.read(4096))
        who = f"process {int(found['pid'])} on {found['host']!s}"
        return shown(f"{who}, since {found['since']!s} ({found['command']!s})")
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _acquire(path: Path) -> int:
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise IcgiError(
                f"{path.parent} cannot be written to ({error.strerror}); copy the set to a folder "
                "of your own"
            ) from error
        try:
            _lock(file)
            if _is_named(file, path):
                return file
        except OSError as error:
            os.close(file)
            if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise IcgiError(
                    f"{path} cannot be locked ({error.strerror}); two writers at once would damage "
                    "the set, so copy it to a disk whose files can be locked"
                ) from error
            who = holder(path.parent, path.name)
            raise IcgiError(
                f"{path.parent} is being written by {who}; wait until that is done, or stop it, "
                "and run again"
            ) from error
        os.close(file)


def _is_named(file: int, path: Path) -> bool:
    """Whether the locked file is still the one of that name: its last holder removed it."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _sign(file: int) -> None:
    text = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": " ".join(["icgi", *sys.argv[1:]])[:200] if _by_hand() else "from Python",
    }
    try:
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, json.dumps(text).encode())
    except OSError:
        return  # a full disk: locked all the same, only nameless


def _by_hand() -> bool:
    """Whether this process is the command `icgi`."""
    program = Path(sys.argv[0])
    return program.stem == "icgi" or (program.name, program.parent.name) == ("__main__.py", "icgi")


def _release(file: int, path: Path) -> None:
    with suppress(OSError):  # Windows does not remove open files; one that stays does no harm
        path.unlink()
    os.close(file)


def _lock(file: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(file, 2**20, os.SEEK_SET)  # beyond the text, which others want to read
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
