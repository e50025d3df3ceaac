"""Compressed files (gzip, xz, zstd), uncompressed files and standard input as byte streams."""

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

COMPRESSED_SUFFIXES = (".gz", ".xz", ".zst")
STREAM_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error)  # what reading a corrupt or truncated stream raises


@contextmanager
def decompressed(path: Path | None) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """A file, or standard input if `path` is None, as a stream of decompressed bytes, and a function that returns the
    position in the compressed file."""
    if path is None:
        if sys.stdin is None:
            raise NotFound("standard input is closed", code="no-stdin")
        yield sys.stdin.buffer, lambda: 0
        return
    if not path.is_file():
        raise NotFound("a device or a pipe, not a regular file", place=str(path), code="not-a-file")
    with path.open("rb") as raw:
        suffix = path.suffix.lower()
        if suffix == ".zst":
            try:
                zstd = import_module("zstandard")
            except ImportError:
                remedy = "pip install 'bertworks[data]'"
                cause = "reading zstd needs the package zstandard"
                raise Unsupported(cause, place=str(path), remedy=remedy, code="missing-extra") from None
            try:
                yield BufferedReader(_ZstdReader(raw, zstd)), raw.tell
            except zstd.ZstdError as error:
                raise OSError(str(error)) from None
        elif suffix == ".xz":
            with lzma.LZMAFile(raw) as xz_file:
                yield BufferedReader(xz_file), raw.tell
        elif suffix == ".gz":
            with gzip.GzipFile(fileobj=raw) as gzip_file:
                yield BufferedReader(gzip_file), raw.tell
        else:
            yield raw, raw.tell


class _ZstdReader(RawIOBase):
    """A zstd stream that raises EOFError if it is truncated; the library's own reader takes that for the end."""

    def __init__(self, raw: IO[bytes], zstd: Any) -> None:
        self.raw = raw
        self.zstd = zstd
        self.frame: Any = None  # the decompressor of an unfinished frame
        self.unread = b""  # decompressed bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.unread:
            compressed = self.raw.read(2**16)
            if not compressed:
                if self.frame is not None:
                    raise EOFError("truncated: the file ends in the middle of a zstd frame")
                return 0
            self.unread = self._decompress(compressed)
        size = min(len(buffer), len(self.unread))
        buffer[:size] = self.unread[:size]
        self.unread = self.unread[size:]
        return size

    def _decompress(self, compressed: bytes) -> bytes:
        decompressed = []
        while compressed:
            frame = self.frame or self.zstd.ZstdDecompressor().decompressobj()
            decompressed.append(frame.decompress(compressed))
            if frame.eof:
                self.frame = None
                compressed = frame.unused_data
            else:
                self.frame = frame
                compressed = b""
        return b"".join(decompressed)
