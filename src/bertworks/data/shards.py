"""Shards: a corpus as tokens on the disk, mapped into memory, good for every objective.

One file per shard. Its sections stand one after the other, each padded to 8 bytes, and their sizes follow from three
counts:

    documents   uint32 each   where a document ends, in sentences
    sentences   uint32 each   where a sentence ends, in tokens
    words       one bit each  whether a word begins at this token
    tokens      uint16 or uint32 each

`manifest.json` has the counts and a hash of every file, and what made them; it is written last, so shards without one
are not finished. A file is compared with its hash when it is first used.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError

from bertworks.errors import BadShards, NotFound
from bertworks.files import read_json
from bertworks.text.tokenizer import Tokenizer

FORMAT = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"
Ends = NDArray[np.uint32]
STRICT = ConfigDict(extra="forbid")  # how manifests are read: no field too many, none of another type


@dataclass(frozen=True)
class ShardCounts:
    """Of a shard, or of all of them together."""

    __pydantic_config__ = STRICT

    documents: int = 0
    sentences: int = 0
    words: int = 0
    tokens: int = 0
    unknown: int = 0  # [UNK]
    characters: int = 0
    han_documents: int = 0  # with Chinese characters

    def __add__(self, other: ShardCounts) -> ShardCounts:
        return ShardCounts(**{name: value + getattr(other, name) for name, value in asdict(self).items()})


@dataclass(frozen=True)
class ShardContent:
    """What a shard holds."""

    documents: Ends
    sentences: Ends
    words: NDArray[np.uint8]  # packed, eight tokens each
    tokens: NDArray[Any]

    @classmethod
    def pack(cls, documents: Ends, sentences: Ends, starts: NDArray[np.bool_], tokens: NDArray[Any]) -> Self:
        return cls(documents, sentences, np.packbits(starts, bitorder="little"), tokens)

    def word_starts(self, begin: int, end: int) -> NDArray[np.bool_]:
        """Whether a word begins, for the tokens of a stretch."""
        first = begin // 8
        bits = np.unpackbits(self.words[first : -(-end // 8)], bitorder="little")
        return bits[begin - first * 8 : end - first * 8].view(np.bool_)

    def document_ends(self, begin: int, end: int) -> NDArray[np.int64]:
        """Where documents end inside a stretch of tokens, after `begin` and before `end`."""
        sentence = np.searchsorted(self.sentences, np.uint32(begin), side="right")
        document = int(np.searchsorted(self.documents, np.uint32(sentence), side="right"))
        found = []
        while document < len(self.documents) and (at := int(self.sentences[self.documents[document] - 1])) < end:
            found.append(at)
            document += 1
        return np.array(found, dtype=np.int64)

    def write(self, file: IO[bytes]) -> tuple[int, str]:
        """Returns the size and the SHA-256."""
        digest, size = hashlib.sha256(), 0
        for section in (self.documents, self.sentences, self.words, self.tokens):
            raw = section.tobytes()
            raw += b"\0" * (-len(raw) % 8)
            file.write(raw)
            digest.update(raw)
            size += len(raw)
        return size, digest.hexdigest()

    def keep_documents(self, keep: NDArray[np.bool_]) -> ShardContent:
        """Without the other documents."""
        sentence_counts = np.diff(self.documents, prepend=np.uint32(0))
        token_counts = np.diff(self.sentences, prepend=np.uint32(0))
        sentences = np.repeat(keep, sentence_counts)
        tokens = np.repeat(sentences, token_counts)
        return ShardContent.pack(
            np.cumsum(sentence_counts[keep], dtype=np.uint32),
            np.cumsum(token_counts[sentences], dtype=np.uint32),
            self.word_starts(0, len(self.tokens))[tokens],
            self.tokens[tokens],
        )


@dataclass(frozen=True)
class TokenRange:
    ids: NDArray[np.int64]
    word_starts: NDArray[np.bool_]
    is_text: NDArray[np.bool_]  # of the text, not a separator


@dataclass(frozen=True)
class ShardEntry:
    """A line of the manifest."""

    __pydantic_config__ = STRICT

    file: str
    bytes: int
    sha256: str
    source: str  # hash of the text it was made from, and of how
    counts: ShardCounts


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` says."""

    __pydantic_config__ = STRICT

    tokenizer: str  # hash
    vocab_size: int
    words: str  # auto or char
    segmenter: str | None  # what found the words of Chinese text
    counts: ShardCounts
    duplicates: int  # documents left out
    reading: dict[str, Any]  # what was replaced or left out while reading
    shards: list[ShardEntry] = field(default_factory=list)
    format: int = FORMAT

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        return token_dtype(self.vocab_size)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, folder: Path) -> Self:
        path = folder / MANIFEST
        if not path.is_file():
            unfinished = (folder / ".work").is_dir()
            cause, code = (
                ("these shards are not finished", "unfinished-shards")
                if unfinished
                else ("no shards here", "no-shards")
            )
            remedy = (
                "run the same `bertworks prepare` again: it goes on where it was"
                if unfinished
                else "`bertworks prepare` makes them"
            )
            raise NotFound(cause, place=str(folder), remedy=remedy, code=code)
        values = read_json(path)
        if values.get("format") != FORMAT:
            cause = f"format {values.get('format')!r}; this version reads {FORMAT}"
            raise BadShards(cause, place=str(path), remedy="prepare them again", code="other-format")
        try:
            return TypeAdapter(cls).validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            cause = f"not a manifest of shards: {where}: {first['msg']}"
            raise BadShards(cause, place=str(path), remedy="prepare them again", code="bad-manifest") from None


def token_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if vocab_size <= 2**16 else np.uint32


class Shards:
    """Prepared shards, opened for reading. Sentences and documents are numbered through all shards."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.manifest = Manifest.read(self.folder)
        self.opened: dict[int, ShardContent] = {}
        if sum((entry.counts for entry in self.manifest.shards), ShardCounts()) != self.manifest.counts:
            raise BadShards(
                "the counts of the shards are not the counts of all",
                place=str(self.folder / MANIFEST),
                code="bad-manifest",
            )
        for number, entry in enumerate(self.manifest.shards):
            if entry.file != f"{number:06}.shard":
                raise BadShards(
                    f"shard {number} is called {entry.file!r}", place=str(self.folder / MANIFEST), code="bad-manifest"
                )
            path = self.folder / entry.file
            if not path.is_file() or path.stat().st_size != entry.bytes:
                found, code = (
                    (f"{path.stat().st_size:,} bytes", "wrong-size") if path.is_file() else ("nothing", "missing-file")
                )
                cause = f"{entry.bytes:,} bytes expected, {found} found"
                raise BadShards(cause, place=str(path), remedy="prepare the shards again", code=code)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.load(self.folder / TOKENIZER)
        self.check_tokenizer(tokenizer, str(self.folder / TOKENIZER))
        return tokenizer

    def check_tokenizer(self, tokenizer: Tokenizer, place: str) -> None:
        if tokenizer.fingerprint != self.manifest.tokenizer:
            cause = (
                f"made with another tokenizer: {self.manifest.tokenizer[:12]} there, {tokenizer.fingerprint[:12]} here"
            )
            raise BadShards(
                cause, place=place, remedy="prepare the text again with this tokenizer", code="tokenizer-mismatch"
            )

    def __len__(self) -> int:
        return len(self.manifest.shards)

    @cached_property
    def token_edges(self) -> NDArray[np.int64]:
        """Where each shard's tokens begin among all tokens, and where the last one's end."""
        return np.cumsum([0, *(entry.counts.tokens for entry in self.manifest.shards)])

    @cached_property
    def document_edges(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(entry.counts.documents for entry in self.manifest.shards)])

    @cached_property
    def sentence_edges(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(entry.counts.sentences for entry in self.manifest.shards)])

    def __getitem__(self, index: int) -> ShardContent:
        if index not in self.opened:
            self.opened[index] = self._open(self.manifest.shards[index])
        return self.opened[index]

    def token_range(self, begin: int, size: int, separator: int | None = None, leading: bool = False) -> TokenRange:
        """Tokens by their number among all tokens, inside one shard.

        A separator, if one is given, goes where a document ends; `leading`, also before the first token.
        """
        shard = int(np.searchsorted(self.token_edges, begin, side="right")) - 1
        content, begin = self[shard], begin - int(self.token_edges[shard])
        ids, word_starts = (
            content.tokens[begin : begin + size].astype(np.int64),
            content.word_starts(begin, begin + size),
        )
        if separator is None:
            return TokenRange(ids, word_starts, np.ones(size, dtype=np.bool_))
        breaks = content.document_ends(begin - 1 if leading and begin else begin, begin + size) - begin
        own = np.insert(np.ones(size, dtype=np.bool_), breaks, False)
        return TokenRange(np.insert(ids, breaks, separator), np.insert(word_starts, breaks, True), own)

    def _open(self, entry: ShardEntry) -> ShardContent:
        path = self.folder / entry.file
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
                cause = "the file has changed since it was written (SHA-256)"
                raise BadShards(cause, place=str(path), remedy="prepare the shards again", code="changed-file")
        raw = np.memmap(path, mode="r") if entry.bytes else np.empty(0, np.uint8)  # all its documents occurred before
        return read_content(raw, entry.counts, self.manifest.dtype)


def read_content(raw: NDArray[np.uint8], counts: ShardCounts, dtype: type[np.uint16] | type[np.uint32]) -> ShardContent:
    """The sections of a shard as views of its bytes."""
    sizes = (
        counts.documents * 4,
        counts.sentences * 4,
        -(-counts.tokens // 8),
        counts.tokens * np.dtype(dtype).itemsize,
    )
    sections, at = [], 0
    for size in sizes:
        sections.append(raw[at : at + size])
        at += size + (-size % 8)
    if at != len(raw):
        raise BadShards(f"{at:,} bytes expected, {len(raw):,} found", code="wrong-size")
    documents, sentences, words, tokens = sections
    return ShardContent(documents.view(np.uint32), sentences.view(np.uint32), words, tokens.view(dtype))
