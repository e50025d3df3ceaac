"""SentencePiece `.model` files, read without the library.

Such a file is a protocol buffer. Of it we need the pieces with their scores, the kind of model, and the table of
characters that are replaced before anything else; the wire format of these is a few lines.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from bertworks.errors import BadConfig, Unsupported

UNIGRAM = 1


class PieceType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class SentencePieces:
    pieces: list[tuple[str, float]]
    types: list[PieceType]
    charsmap: bytes  # the compiled table of character replacements, empty if there is none


def read_sentencepiece(content: bytes, path: Path) -> SentencePieces:
    pieces: list[tuple[str, float]] = []
    types: list[PieceType] = []
    charsmap, model_type = b"", UNIGRAM
    try:
        for field, value in _fields(content):
            if field == 1 and isinstance(value, bytes):
                piece, score, kind = _piece(value)
                pieces.append((piece, score))
                types.append(PieceType(kind))
            elif field == 2 and isinstance(value, bytes):
                model_type = next(
                    (entry for key, entry in _fields(value) if key == 3 and isinstance(entry, int)), model_type
                )
            elif field == 3 and isinstance(value, bytes):
                charsmap = next(
                    (entry for key, entry in _fields(value) if key == 2 and isinstance(entry, bytes)), charsmap
                )
    except (IndexError, ValueError, struct.error) as error:
        raise BadConfig(f"not a SentencePiece model: {str(error)[:100]}", place=str(path)) from None
    if not pieces:
        raise BadConfig("not a SentencePiece model: no pieces in it", place=str(path))
    if model_type != UNIGRAM:
        remedy = "save the tokenizer with transformers, which writes a tokenizer.json"
        raise Unsupported("a SentencePiece model that is not a unigram model", place=str(path), remedy=remedy)
    return SentencePieces(pieces, types, charsmap)


def _piece(message: bytes) -> tuple[str, float, int]:
    text, score, kind = "", 0.0, int(PieceType.NORMAL)
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            text = value.decode("utf-8")
        elif field == 2 and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif field == 3 and isinstance(value, int):
            kind = value
    return text, score, kind


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: numbers as int, everything else as bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > len(message):
            raise ValueError(f"cut off at byte {at}")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError(f"a number without end at byte {at}")
