"""Packed files as streams of their bytes: gzip, xz and zstd, or as they are."""

from __future__ import annotations

import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any

from bertworks.errors import NotFound, Unsupported

COMPRESSED = (".gz", ".xz", ".zst")
CORRUPT = (OSError, EOFError, lzma.LZMAError, zlib.error)  # what reading such a stream may raise


@contextmanager
def decompressed(path: Path | None) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """A file, or standard input, as a stream of unpacked bytes, and how far it is read on the disk."""
    if path is None:
        if sys.stdin is None:
            raise NotFound("standard input is closed", code="no-stdin")
        yield sys.stdin.buffer, lambda: 0
        return
    if not path.is_file():
        raise NotFound("this is a device or a pipe, not a file", place=str(path), code="not-a-file")
    with path.open("rb") as raw:
        suffix = path.suffix.lower()
        if suffix == ".zst":
            try:
                zstd = import_module("zstandard")
            except ImportError:
                remedy = "pip install 'bertworks[data]'"
                raise Unsupported(
                    "zstd needs zstandard", place=str(path), remedy=remedy, code="missing-extra"
                ) from None
            try:
                yield BufferedReader(_Zstd(raw, zstd)), raw.tell
            except zstd.ZstdError as error:
                raise OSError(str(error)) from None
        elif suffix == ".xz":
            with lzma.LZMAFile(raw) as unpacked:
                yield BufferedReader(unpacked), raw.tell
        elif suffix == ".gz":
            with gzip.GzipFile(fileobj=raw) as unzipped:
                yield BufferedReader(unzipped), raw.tell
        else:
            yield raw, raw.tell


class _Zstd(RawIOBase):
    """A zstd stream that knows when it was cut off; the library's own reader takes that for the end."""

    def __init__(self, raw: IO[bytes], zstd: Any) -> None:
        self.raw, self.zstd, self.frame, self.waiting = raw, zstd, None, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.waiting:
            packed = self.raw.read(2**16)
            if not packed:
                if self.frame is not None:
                    raise EOFError("the file ends in the middle of the packed text")
                return 0
            self.waiting = self._unpack(packed)
        size = min(len(buffer), len(self.waiting))
        buffer[:size], self.waiting = self.waiting[:size], self.waiting[size:]
        return size

    def _unpack(self, packed: bytes) -> bytes:
        parts = []
        while packed:
            frame = self.frame or self.zstd.ZstdDecompressor().decompressobj()
            parts.append(frame.decompress(packed))
            packed, self.frame = (frame.unused_data, None) if frame.eof else (b"", frame)
        return b"".join(parts)
