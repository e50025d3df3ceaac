"""A reader of SentencePiece `.model` files that does not need the library.

Such a file is a protocol buffer. We need the pieces with their scores, the type of the model, and the table of
character replacements of the normaliser; parsing the wire format of these takes a few lines.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from bertworks.errors import BadConfig, Unsupported

UNIGRAM = 1  # value of model_type


class PieceType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class SentencePieces:
    """The content of a SentencePiece model."""

    pieces: list[tuple[str, float]]  # with their scores
    types: list[PieceType]
    charsmap: bytes  # the compiled table of character replacements, empty if there is none


def read_sentencepiece(content: bytes, path: Path) -> SentencePieces:
    pieces: list[tuple[str, float]] = []
    types: list[PieceType] = []
    charsmap = b""
    model_type = UNIGRAM
    try:
        for field, value in _fields(content):
            if field == 1 and isinstance(value, bytes):
                piece, score, piece_type = _piece(value)
                pieces.append((piece, score))
                types.append(PieceType(piece_type))
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
        raise Unsupported("a SentencePiece model of another type than unigram", place=str(path), remedy=remedy)
    return SentencePieces(pieces, types, charsmap)


def _piece(message: bytes) -> tuple[str, float, int]:
    """Text, score and type of a piece."""
    text = ""
    score = 0.0
    piece_type = int(PieceType.NORMAL)
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            text = value.decode("utf-8")
        elif field == 2 and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif field == 3 and isinstance(value, int):
            piece_type = value
    return text, score, piece_type


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer with their numbers: varints as int, everything else as bytes."""
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        wire_type = key & 7
        if wire_type == 0:
            value, offset = _varint(message, offset)
            yield key >> 3, value
            continue
        if wire_type == 2:
            size, offset = _varint(message, offset)
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
        else:
            raise ValueError(f"wire type {wire_type} at byte {offset}")
        if offset + size > len(message):
            raise ValueError(f"truncated at byte {offset}")
        yield key >> 3, message[offset : offset + size]
        offset += size


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    """The value of a varint, and the offset after it."""
    value = 0
    for shift in range(0, 64, 7):
        byte = message[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
    raise ValueError(f"varint too long at byte {offset}")
