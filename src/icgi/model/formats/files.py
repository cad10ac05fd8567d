"""Files of models and evidence: packed with gzip or not, in one place for all formats."""

import errno
import gzip
import os
import zlib
from pathlib import Path
from typing import TypeAlias

from icgi.errors import IcgiError, ModelFormatError
from icgi.model.unpack import Bounded
from icgi.wording import is_plain

AnyPath: TypeAlias = str | os.PathLike[str]


def read_bytes(path: AnyPath, error: type[IcgiError]) -> bytes:
    """Contents of a file, unpacked where gzip has packed it; `error` is raised where it fails."""
    try:
        with open(path, "rb") as file:
            if file.peek(2)[:2] != b"\x1f\x8b":
                return file.read()
            return Bounded(file, str(path)).read()
    except FileNotFoundError as missing:
        packed_name = f"{path}.gz"
        advice = f"there is {packed_name}" if Path(packed_name).exists() else "check the name"
        raise error(
            f"{path}: no such file in {Path(path).absolute().parent}; {advice}"
        ) from missing
    except IsADirectoryError as folder:
        raise error(f"{path} is a folder{_contents(Path(path))}; give a file") from folder
    except (EOFError, zlib.error, gzip.BadGzipFile) as broken:
        raise error(f"{path}: damaged gzip file ({broken}); fetch or pack it again") from broken
    except (OSError, ValueError) as unreadable:
        raise error(f"{path}: cannot be read ({unreadable}); give a readable file") from unreadable
    except ModelFormatError as large:
        raise error(str(large)) from large


def _contents(folder: Path) -> str:
    """Some files of a folder that may have been meant."""
    try:
        names = sorted(p.name for p in folder.iterdir() if ".uai" in p.name and is_plain(p.name))
    except OSError:
        return ""
    return f" that holds {', '.join(names[:3])}{' and others' * (len(names) > 3)}" if names else ""


def write_text(path: AnyPath, text: str) -> None:
    """Write a text, packed where the name ends in `.gz`; the same text gives the same bytes."""
    data = text.encode()
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        advice = "make room" if error.errno == errno.ENOSPC else "choose a folder that exists"
        raise ModelFormatError(
            f"{path}: cannot be written ({error.strerror}); {advice}, or write elsewhere"
        ) from error
