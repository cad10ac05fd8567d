"""The manifest: a file of JSON lines that only grows, one line per finished job.

A line counts when it is whole. What a kill or a full disk left of one is skipped when reading, and
ended before the next line is written.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icgi.data.lock import writing
from icgi.errors import IcgiError, ModelFormatError

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file of finished jobs."""

    path: Path

    def lines(self) -> list[Line]:
        """Every whole line, in the order written."""
        return list(_parsed(self._bytes()))

    def finished(self) -> dict[str, Line]:
        """Lines by key; of a key that was done again, the last."""
        return {line["key"]: line for line in self.lines() if "key" in line}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be its only writer; refuse at once where there is another."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise IcgiError(
                f"{self.path.parent} cannot be made ({error.strerror}); choose another folder"
            ) from error
        with writing(self.path.parent, f"{self.path.name}.lock"):
            yield

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines; they are on the disk after this call, or the file is as it was before."""
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        if not text:
            return
        try:
            append_lines(self.path, text)
        except OSError as error:
            raise IcgiError(
                f"{self.path} could not be written to ({error.strerror}); all earlier lines are "
                "kept: make room and run again"
            ) from error

    def _bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise ModelFormatError(f"{self.path} cannot be read ({error.strerror})") from error


def append_lines(path: Path, text: bytes) -> None:
    """Add lines behind whole ones; they are on the disk after this, or the file is as it was."""
    with path.open("ab", buffering=0) as file:  # closing a buffer would try once more
        before = file.seek(0, os.SEEK_END)
        try:
            if before and not _ends(path):
                text = b"\n" + text
            while text:
                text = text[file.write(text) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.ftruncate(file.fileno(), before)
            raise


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a name to write to; flushed to the disk, the file then gets its own name at once."""
    draft = path.with_name(f".partial-{os.getpid()}-{path.name}")
    try:
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise IcgiError(f"cannot write {path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _parsed(data: bytes) -> Iterator[Line]:
    for text in data.split(b"\n"):
        with suppress(ValueError, RecursionError):
            line = json.loads(text)
            if isinstance(line, dict):
                yield line


def _ends(path: Path) -> bool:
    """Whether the last line has its end."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
