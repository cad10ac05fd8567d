"""Packed files, unpacked within stated bounds: a few bytes can promise gigabytes."""

import gzip
import io
from typing import IO

from icgi.errors import ModelFormatError

LARGEST = 2**30  # bytes out of one packed file
FREE = 2**26  # bytes that any packed file may unpack to, however small it is
RATIO = 100  # beyond that, bytes per packed byte; published models have up to 53


class Bounded(io.RawIOBase):
    """The unpacked bytes of a gzip file; ends with a refusal where there are too many of them."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        packed = LARGEST
        if file.seekable():  # a pipe does not say how long it is
            packed = file.seek(0, io.SEEK_END)
            file.seek(0)
        self._allowed = min(LARGEST, FREE + RATIO * packed)
        self._where, self._packed, self._read = where, packed, 0
        self._stream = gzip.GzipFile(fileobj=file)  # compares announced and real sizes at the end

    def readable(self) -> bool:
        """Return true: this is for reading."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes, or all that is left."""
        if size >= 0:
            chunk = self._stream.read(size)
            self._count(len(chunk))
            return chunk
        chunks = []
        while chunk := self.read(2**22):
            chunks.append(chunk)
        return b"".join(chunks)

    def _count(self, size: int) -> None:
        self._read += size
        if self._read > self._allowed:
            raise ModelFormatError(
                f"{self._where}: {self._packed} bytes unpack to more than {self._allowed}; if that "
                "is meant, unpack it yourself and give the plain file"
            )
