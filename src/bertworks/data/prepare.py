"""Tokenise a corpus into shards: in parallel, in bounded memory, and resumable if the process is killed.

Workers encode the documents into parts (`parts.py`). When all parts are finished, duplicate documents are found by
their digests, the parts without them become the shards, and the manifest is written last. The result does not depend on
the number of workers, the time or the machine.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertworks.data.corpus import Corpus, ReadProgress
from bertworks.data.parts import DOCUMENT_DTYPE, WORK, PartSettings, available_cores, encode_blocks, split_blocks
from bertworks.data.shards import (
    MANIFEST,
    TOKENIZER,
    Manifest,
    ShardContent,
    ShardCounts,
    ShardEntry,
    read_content,
    token_dtype,
)
from bertworks.errors import BadText, Remark, SaveFailed
from bertworks.files import atomic_write, locked, read_json, save_errors, write_json
from bertworks.text.cached_encoder import Words, segmenter_version
from bertworks.text.sentences import MAX_SENTENCE_CHARACTERS
from bertworks.text.tokenizer import Tokenizer

DIGESTS_AT_ONCE = 2**20  # held in memory when looking for duplicates


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    out: Path,
    *,
    words: Words = "auto",
    workers: int | None = None,
    progress: ReadProgress = lambda done, total: None,
) -> Manifest:
    """Tokenise a corpus into shards under `out`."""
    settings = PartSettings(tokenizer.fingerprint, words, segmenter=segmenter_version() if words == "auto" else None)
    with locked(out):
        _check_out(out)
        work = out / WORK
        if (out / MANIFEST).is_file():
            shutil.rmtree(work, ignore_errors=True)
            return _check_unchanged(corpus, settings, Manifest.read(out), out)
        _make_folders(out, tokenizer)
        blocks = encode_blocks(corpus, settings, out, workers or available_cores(), progress)
        if not blocks:
            names = ", ".join("standard input" if path is None else str(path) for path in corpus.paths[:3])
            raise BadText("no text in this corpus", place=names, code="no-text")
        manifest = _write_shards(blocks, settings, corpus, tokenizer, out)
        write_json(out / MANIFEST, manifest.to_json())
        shutil.rmtree(work, ignore_errors=True)
        return manifest


def _make_folders(out: Path, tokenizer: Tokenizer) -> None:
    with save_errors(out):
        (out / WORK).mkdir(exist_ok=True)
        (out / TOKENIZER).mkdir(exist_ok=True)
        tokenizer.save(out / TOKENIZER)


def _check_out(out: Path) -> None:
    own_names = (".lock", WORK, TOKENIZER, MANIFEST, "plans")
    foreign = [path.name for path in out.iterdir() if path.name not in own_names]
    foreign = [name for name in foreign if not name.endswith((".shard", ".new"))]
    if foreign:
        cause = f"this folder holds other files: {', '.join(sorted(foreign)[:3])}"
        raise SaveFailed(cause, place=str(out), remedy="give the path of a new folder", code="not-empty")
    for path in out.glob(".*.new"):  # temporary files of a killed process
        path.unlink(missing_ok=True)


def _check_unchanged(corpus: Corpus, settings: PartSettings, manifest: Manifest, out: Path) -> Manifest:
    """The manifest of shards that are finished already, if they were made from the same text with the same settings."""
    sources = [block.source for block in split_blocks(corpus, settings)]
    if sources != [entry.source for entry in manifest.shards]:
        cause = "this folder holds shards of other text, or of another tokenizer"
        raise SaveFailed(cause, place=str(out), remedy="give the path of a new folder", code="different-source")
    return manifest


def _write_shards(
    blocks: list[tuple[str, str]], settings: PartSettings, corpus: Corpus, tokenizer: Tokenizer, out: Path
) -> Manifest:
    """Write the parts without duplicate documents as shards."""
    work = out / WORK
    dtype = token_dtype(tokenizer.vocab_size)
    parts = [read_json(work / f"{name}.json") for name, _ in blocks]
    is_duplicate = _find_duplicates([work / f"{name}.documents" for name, _ in blocks])
    entries = []
    first_document = 0
    for number, ((name, source), part) in enumerate(zip(blocks, parts, strict=True)):
        part_counts = ShardCounts(documents=part["documents"], sentences=part["sentences"], tokens=part["tokens"])
        content = read_content(np.memmap(work / f"{name}.part", mode="r"), part_counts, dtype)
        documents = np.fromfile(work / f"{name}.documents", dtype=DOCUMENT_DTYPE)
        has_sentences = np.diff(content.documents, prepend=np.uint32(0)) > 0
        keep = ~is_duplicate[first_document : first_document + len(documents)] & has_sentences
        first_document += len(documents)
        content = content if keep.all() else content.keep_documents(keep)
        with atomic_write(out / f"{number:06}.shard") as file:
            size, digest = content.write(file)
        counts = _count(content, documents[keep], tokenizer.unknown_id)
        entries.append(ShardEntry(f"{number:06}.shard", size, digest, source, counts))
    for stale in set(out.glob("*.shard")) - {out / entry.file for entry in entries}:
        stale.unlink()  # of a killed run over another text
    total = sum((entry.counts for entry in entries), ShardCounts())
    if not total.tokens:
        remedy = "use a tokenizer for the language of the text"
        raise BadText("the tokenizer gives no tokens for this text", remedy=remedy, code="no-tokens")
    segmenter = next((part["segmenter"] for part in parts if part["segmenter"]), None)
    cut = [word for part in parts for word in part.get("cut_words", ())]  # parts of an older version have no such key
    remarks = [*corpus.stats.remarks(), *_cut_word_remarks(cut)]
    reading = {**asdict(corpus.stats), "remarks": [str(remark) for remark in remarks]}
    return Manifest(
        settings.tokenizer,
        tokenizer.vocab_size,
        settings.words,
        segmenter,
        total,
        int(is_duplicate.sum()),
        reading,
        entries,
    )


def _cut_word_remarks(words: list[str]) -> list[Remark]:
    if not words:
        return []
    n_words = "1 word" if len(words) == 1 else f"{len(words):,} words"
    text = f"{n_words} of more than {MAX_SENTENCE_CHARACTERS:,} characters cut, the first begins {words[0]!r}"
    return [Remark("cut-words", text)]


def _count(content: ShardContent, documents: NDArray[np.void], unknown_id: int | None) -> ShardCounts:
    return ShardCounts(
        documents=len(content.documents),
        sentences=len(content.sentences),
        words=int(content.word_starts(0, len(content.tokens)).sum()),
        tokens=len(content.tokens),
        unknown=0 if unknown_id is None else int((content.tokens == unknown_id).sum()),
        characters=int(documents["characters"].sum()),
        han_documents=int(documents["han"].sum()),
    )


def _find_duplicates(paths: list[Path]) -> NDArray[np.bool_]:
    """For every document of all parts, whether an earlier one is the same. Digests are divided by their value into
    buckets that are searched one after the other, so that memory stays bounded."""
    n_documents = sum(path.stat().st_size for path in paths) // DOCUMENT_DTYPE.itemsize
    is_duplicate = np.zeros(n_documents, dtype=np.bool_)
    n_buckets = -(-n_documents // DIGESTS_AT_ONCE)
    for bucket in range(n_buckets):
        bucket_digests = []
        bucket_indexes = []
        first_document = 0
        for path in paths:
            documents = np.fromfile(path, dtype=DOCUMENT_DTYPE)
            digests = np.ascontiguousarray(documents["digest"]).view(np.uint64).reshape(-1, 2)
            in_bucket = np.flatnonzero(digests[:, 0] % np.uint64(n_buckets) == bucket)
            bucket_digests.append(digests[in_bucket])
            bucket_indexes.append(in_bucket + first_document)
            first_document += len(digests)
        digests = np.concatenate(bucket_digests)
        indexes = np.concatenate(bucket_indexes)
        order = np.lexsort((indexes, digests[:, 1], digests[:, 0]))
        same_as_previous = (digests[order[1:]] == digests[order[:-1]]).all(axis=1)
        is_duplicate[indexes[order[1:][same_as_previous]]] = True
    return is_duplicate
