"""Shards: a tokenised corpus on the disk, memory-mapped, the same for every objective.

One file per shard. Its sections follow each other, each padded to 8 bytes, and their sizes follow from three counts:

    documents   uint32 each   where a document ends, in sentences
    sentences   uint32 each   where a sentence ends, in tokens
    words       one bit each  whether a word begins at this token
    tokens      uint16 or uint32 each

`manifest.json` has the counts and the hash of every file, and the settings that they were made with; it is written
last, so shards without one are not finished. The hash of a file is verified when it is first used.
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
from bertworks.files import JsonObject, read_json
from bertworks.text.tokenizer import Tokenizer

FORMAT = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"
Ends = NDArray[np.uint32]
STRICT = ConfigDict(extra="forbid")  # manifests with unknown fields are refused


@dataclass(frozen=True)
class ShardCounts:
    """Counts of a shard, or of all shards."""

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
    """The sections of a shard."""

    documents: Ends
    sentences: Ends
    words: NDArray[np.uint8]  # packed, eight tokens each
    tokens: NDArray[Any]

    @classmethod
    def pack(cls, documents: Ends, sentences: Ends, starts: NDArray[np.bool_], tokens: NDArray[Any]) -> Self:
        return cls(documents, sentences, np.packbits(starts, bitorder="little"), tokens)

    def word_starts(self, begin: int, end: int) -> NDArray[np.bool_]:
        """For the tokens of a range, whether a word begins there."""
        first_byte = begin // 8
        bits = np.unpackbits(self.words[first_byte : -(-end // 8)], bitorder="little")
        return bits[begin - first_byte * 8 : end - first_byte * 8].view(np.bool_)

    def document_ends(self, begin: int, end: int) -> NDArray[np.int64]:
        """The tokens at which documents end inside of a range, after `begin` and before `end`."""
        sentence = np.searchsorted(self.sentences, np.uint32(begin), side="right")
        document = int(np.searchsorted(self.documents, np.uint32(sentence), side="right"))
        ends = []
        while document < len(self.documents):
            document_end = int(self.sentences[self.documents[document] - 1])
            if document_end >= end:
                break
            ends.append(document_end)
            document += 1
        return np.array(ends, dtype=np.int64)

    def write(self, file: IO[bytes]) -> tuple[int, str]:
        """Write the sections to a file; returns its size and SHA-256."""
        digest = hashlib.sha256()
        size = 0
        for section in (self.documents, self.sentences, self.words, self.tokens):
            raw = section.tobytes()
            raw += b"\0" * (-len(raw) % 8)
            file.write(raw)
            digest.update(raw)
            size += len(raw)
        return size, digest.hexdigest()

    def keep_documents(self, keep: NDArray[np.bool_]) -> ShardContent:
        """A copy with some of the documents; `keep` has a flag for each."""
        sentence_counts = np.diff(self.documents, prepend=np.uint32(0))
        token_counts = np.diff(self.sentences, prepend=np.uint32(0))
        keep_sentences = np.repeat(keep, sentence_counts)
        keep_tokens = np.repeat(keep_sentences, token_counts)
        return ShardContent.pack(
            np.cumsum(sentence_counts[keep], dtype=np.uint32),
            np.cumsum(token_counts[keep_sentences], dtype=np.uint32),
            self.word_starts(0, len(self.tokens))[keep_tokens],
            self.tokens[keep_tokens],
        )


@dataclass(frozen=True)
class TokenRange:
    """Consecutive tokens of a shard, with separators between documents."""

    ids: NDArray[np.int64]
    word_starts: NDArray[np.bool_]
    is_text: NDArray[np.bool_]  # False for separators


@dataclass(frozen=True)
class ShardEntry:
    """A shard in the manifest."""

    __pydantic_config__ = STRICT

    file: str
    bytes: int
    sha256: str
    source: str  # hash of its text and of the settings
    counts: ShardCounts


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`."""

    __pydantic_config__ = STRICT

    tokenizer: str  # hash
    vocab_size: int
    words: str  # auto or char
    segmenter: str | None  # name and version of the Chinese word segmenter, if there is Chinese text
    counts: ShardCounts
    duplicates: int  # documents that were left out
    reading: JsonObject  # `ReadStats` of the corpus, and its remarks
    shards: list[ShardEntry] = field(default_factory=list)
    format: int = FORMAT

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        return token_dtype(self.vocab_size)

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def read(cls, folder: Path) -> Self:
        path = folder / MANIFEST
        if not path.is_file():
            if (folder / ".work").is_dir():
                remedy = "run the same `bertworks prepare` again to finish them"
                raise NotFound("unfinished shards", place=str(folder), remedy=remedy, code="unfinished-shards")
            remedy = "`bertworks prepare` makes them"
            raise NotFound("no shards in this folder", place=str(folder), remedy=remedy, code="no-shards")
        values = read_json(path)
        if values.get("format") != FORMAT:
            cause = f"shards of format {values.get('format')!r}; this version reads format {FORMAT}"
            raise BadShards(cause, place=str(path), remedy="prepare them again", code="other-format")
        try:
            return TypeAdapter(cls).validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            first_error = error.errors()[0]
            dotted_field_name = ".".join(map(str, first_error["loc"]))
            cause = f"not a manifest of shards: {dotted_field_name}: {first_error['msg']}"
            raise BadShards(cause, place=str(path), remedy="prepare them again", code="bad-manifest") from None


def token_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """The smallest type that holds every id."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


class Shards:
    """Finished shards, opened for reading. Tokens, sentences and documents are numbered across all shards."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.manifest = Manifest.read(self.folder)
        self.opened: dict[int, ShardContent] = {}
        if sum((entry.counts for entry in self.manifest.shards), ShardCounts()) != self.manifest.counts:
            cause = "the counts of the shards do not add up to the total counts"
            raise BadShards(cause, place=str(self.folder / MANIFEST), code="bad-manifest")
        for number, entry in enumerate(self.manifest.shards):
            if entry.file != f"{number:06}.shard":
                cause = f"shard {number} is called {entry.file!r}"
                raise BadShards(cause, place=str(self.folder / MANIFEST), code="bad-manifest")
            path = self.folder / entry.file
            remedy = "prepare the shards again"
            if not path.is_file():
                raise BadShards("missing shard", place=str(path), remedy=remedy, code="missing-file")
            if path.stat().st_size != entry.bytes:
                cause = f"{entry.bytes:,} bytes expected, {path.stat().st_size:,} bytes found"
                raise BadShards(cause, place=str(path), remedy=remedy, code="wrong-size")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.load(self.folder / TOKENIZER)
        self.check_tokenizer(tokenizer, str(self.folder / TOKENIZER))
        return tokenizer

    def check_tokenizer(self, tokenizer: Tokenizer, place: str) -> None:
        if tokenizer.fingerprint != self.manifest.tokenizer:
            shards_hash = self.manifest.tokenizer[:12]
            cause = f"tokenizer mismatch: the shards were made with {shards_hash}, this is {tokenizer.fingerprint[:12]}"
            remedy = "prepare the text again with this tokenizer"
            raise BadShards(cause, place=place, remedy=remedy, code="tokenizer-mismatch")

    def __len__(self) -> int:
        return len(self.manifest.shards)

    @cached_property
    def token_edges(self) -> NDArray[np.int64]:
        """The number of each shard's first token, and the end of the last shard."""
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
        """Tokens by their number, all in one shard.

        With a `separator` id, one is inserted wherever a document ends; with `leading`, also before the first token if
        a document ends there.
        """
        shard = int(np.searchsorted(self.token_edges, begin, side="right")) - 1
        content = self[shard]
        begin -= int(self.token_edges[shard])
        ids = content.tokens[begin : begin + size].astype(np.int64)
        word_starts = content.word_starts(begin, begin + size)
        if separator is None:
            return TokenRange(ids, word_starts, np.ones(size, dtype=np.bool_))
        breaks = content.document_ends(begin - 1 if leading and begin else begin, begin + size) - begin
        is_text = np.insert(np.ones(size, dtype=np.bool_), breaks, False)
        return TokenRange(np.insert(ids, breaks, separator), np.insert(word_starts, breaks, True), is_text)

    def _open(self, entry: ShardEntry) -> ShardContent:
        path = self.folder / entry.file
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
                cause = "the file has changed since it was written (SHA-256)"
                raise BadShards(cause, place=str(path), remedy="prepare the shards again", code="changed-file")
        raw = (
            np.memmap(path, mode="r") if entry.bytes else np.empty(0, np.uint8)
        )  # empty if all its documents are duplicates
        return read_content(raw, entry.counts, self.manifest.dtype)


def read_content(raw: NDArray[np.uint8], counts: ShardCounts, dtype: type[np.uint16] | type[np.uint32]) -> ShardContent:
    """The sections of a shard as views of its bytes."""
    sizes = (
        counts.documents * 4,
        counts.sentences * 4,
        -(-counts.tokens // 8),
        counts.tokens * np.dtype(dtype).itemsize,
    )
    sections = []
    offset = 0
    for size in sizes:
        sections.append(raw[offset : offset + size])
        offset += size + (-size % 8)
    if offset != len(raw):
        raise BadShards(f"{offset:,} bytes expected, {len(raw):,} found", code="wrong-size")
    documents, sentences, words, tokens = sections
    return ShardContent(documents.view(np.uint32), sentences.view(np.uint32), words, tokens.view(dtype))
