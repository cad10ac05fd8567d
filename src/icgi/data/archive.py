"""Members of a `.tar` or `.tar.gz` archive, read in one stream within stated bounds.

Nothing is written to the disk. Links, devices and folders are passed over.
"""

import gzip
import tarfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import IO

from icgi.errors import ModelFormatError
from icgi.model.unpack import LARGEST, Bounded

KEPT = 4  # archives in memory: instances of a collection come archive by archive


@lru_cache(KEPT)
def members(archive: Path) -> dict[str, bytes]:
    """Every plain file of an archive by its name."""
    try:
        with archive.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return _read(Bounded(file, str(archive)) if packed else file, archive)
    except FileNotFoundError as error:
        raise ModelFormatError(
            f"{archive}: no such archive; fetch it, or check the manifest"
        ) from (error)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ModelFormatError(f"{archive}: damaged archive ({error}); fetch it again") from error
    except (OSError, ValueError) as error:
        raise ModelFormatError(f"{archive}: cannot be read ({error}); fetch it again") from error


def _read(stream: IO[bytes] | Bounded, archive: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    total = 0
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            if not member.isfile():
                continue
            total += member.size
            if total > LARGEST or member.issparse():  # sparse: large without a byte of its own
                raise ModelFormatError(
                    f"{archive}: {member.name!r} announces more than an archive may hold "
                    f"({LARGEST} bytes in all); unpack it yourself and give the folder"
                )
            file = tar.extractfile(member)
            data = file.read() if file is not None else b""
            if len(data) != member.size:
                raise ModelFormatError(
                    f"{archive}: {member.name!r} has {len(data)} of {member.size} bytes; the "
                    "archive was cut off, fetch it again"
                )
            found[member.name] = data
    return found
