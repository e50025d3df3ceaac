"""A corpus made into shards: in parallel, in bounded memory, and again from where it was if the run was killed.

The documents are cut into blocks of about `BLOCK` characters, in order, and each block becomes a part in `.work`,
whoever spells it and whenever. A part is named after the hash of its text and of the settings: a later run finds what
is done, and a part of other text or of another tokenizer is never taken for it. When all parts are there, documents
that occur twice are found by their digests, the parts without them become the shards, and the manifest is written last.
Nothing in the result depends on the number of workers, the time or the machine.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing.connection import wait as wait_for
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertworks.data.corpus import Corpus
from bertworks.data.shards import (
    FORMAT,
    MANIFEST,
    TOKENIZER,
    Manifest,
    ShardContent,
    ShardCounts,
    ShardEntry,
    read_content,
    token_dtype,
)
from bertworks.errors import BadText, BertworksError, SaveFailed
from bertworks.files import atomic_write, locked, read_json, write_json
from bertworks.text.cached_encoder import HAN, CachedEncoder, Words, segmenter_version
from bertworks.text.sentences import RULES, split_sentences
from bertworks.text.tokenizer import Tokenizer

BLOCK_CHARACTERS = 2**23  # characters
CHARACTERS_AT_ONCE = 2**16  # characters spelled in one go
RECORD = np.dtype([("digest", "V16"), ("characters", "<u4"), ("han", "?")])  # of a document
DIGESTS_AT_ONCE = 2**20  # looked through for duplicates
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Settings:
    """Everything but the text that decides about a part."""

    tokenizer: str  # hash
    words: Words
    format: int = FORMAT
    rules: int = RULES  # of the sentence splitter
    library: str = version("tokenizers")
    segmenter: str | None = None  # set if there is one, whether it is needed or not

    def digest(self) -> bytes:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class Block:
    number: int
    documents: list[str]
    source: str  # hash of the text and the settings
    position: int  # bytes read up to here

    @property
    def name(self) -> str:
        return f"{self.number:06}-{self.source[:32]}"


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    out: Path,
    *,
    words: Words = "auto",
    workers: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Tokenise a corpus into shards under `out`."""
    settings = Settings(tokenizer.fingerprint, words, segmenter=segmenter_version() if words == "auto" else None)
    with locked(out):
        _check_target(out)
        work = out / ".work"
        if (out / MANIFEST).is_file():
            shutil.rmtree(work, ignore_errors=True)
            return _check_same(corpus, settings, Manifest.read(out), out)
        _make_folders(out, tokenizer)
        blocks = _encode_all(corpus, settings, out, workers or available_cores(), progress)
        if not blocks:
            names = ", ".join("standard input" if path is None else str(path) for path in corpus.paths[:3])
            raise BadText("there is no text in it", place=names, code="no-text")
        manifest = _finish(blocks, settings, corpus, tokenizer, out)
        write_json(out / MANIFEST, manifest.to_json())
        shutil.rmtree(work, ignore_errors=True)
        return manifest


def _make_folders(out: Path, tokenizer: Tokenizer) -> None:
    try:
        (out / ".work").mkdir(exist_ok=True)
        (out / TOKENIZER).mkdir(exist_ok=True)
        tokenizer.save(out / TOKENIZER)
    except OSError as error:
        raise SaveFailed(f"could not write: {error.strerror or error}", place=str(out)) from None


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_target(out: Path) -> None:
    strangers = [
        path.name for path in out.iterdir() if path.name not in (".lock", ".work", TOKENIZER, MANIFEST, "plans")
    ]
    strangers = [name for name in strangers if not name.endswith((".shard", ".new"))]
    if strangers:
        cause = f"this folder holds other things: {', '.join(sorted(strangers)[:3])}"
        raise SaveFailed(cause, place=str(out), remedy="name a new folder", code="not-empty")
    for path in out.glob(".*.new"):  # left by a run that was killed
        path.unlink(missing_ok=True)


def _check_same(corpus: Corpus, settings: Settings, manifest: Manifest, out: Path) -> Manifest:
    """Finished before: fine if it was made from the same text in the same way."""
    sources = [block.source for block in _blocks(corpus, settings)]
    if sources != [entry.source for entry in manifest.shards]:
        cause = "this folder holds shards of other text, or of another tokenizer"
        raise SaveFailed(cause, place=str(out), remedy="name a new folder", code="different-source")
    return manifest


def _blocks(corpus: Corpus, settings: Settings) -> Iterator[Block]:
    salt, number = settings.digest(), 0
    documents: list[str] = []
    size = 0
    for document in corpus:
        documents.append(document)
        size += len(document) + 1
        if size >= BLOCK_CHARACTERS:
            yield Block(number, documents, _source(salt, documents), corpus.position)
            documents, size, number = [], 0, number + 1
    if documents:
        yield Block(number, documents, _source(salt, documents), corpus.position)


def _source(salt: bytes, documents: list[str]) -> str:
    digest = hashlib.sha256(salt)
    for document in documents:
        content = document.encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def _encode_all(
    corpus: Corpus, settings: Settings, out: Path, workers: int, progress: Progress
) -> list[tuple[str, str]]:
    """Every block's name and source, once all of them are parts in `.work`."""
    blocks: list[tuple[str, str]] = []
    with ExitStack() as stack:
        pool: ProcessPoolExecutor | None = None
        running: dict[Future[None], int] = {}
        for block in _blocks(corpus, settings):
            blocks.append((block.name, block.source))
            progress(block.position, corpus.total)
            if _is_whole(out / ".work", block.name):
                continue
            if pool is None:
                context = multiprocessing.get_context("spawn")
                pool = ProcessPoolExecutor(workers, context, _start_worker, (out, settings.words))
                stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            if len(running) > workers:
                _collect(running)
            try:
                running[pool.submit(_encode_block, block)] = block.number
            except BrokenProcessPool:
                raise _worker_died() from None
        while running:
            _collect(running)
    return blocks


def _is_whole(work: Path, name: str) -> bool:
    """Whether a part was finished before, and has stayed as it was."""
    try:
        hashes = read_json(work / f"{name}.json")["sha256"]
        return all(
            hashlib.sha256((work / f"{name}.{suffix}").read_bytes()).hexdigest() == digest
            for suffix, digest in hashes.items()
        )
    except (BertworksError, OSError, KeyError, AttributeError):
        return False


def _collect(running: dict[Future[None], int]) -> None:
    """Wait for one block or more; what went wrong in a worker is raised here."""
    finished, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in sorted(finished, key=lambda future: running[future]):
        del running[future]
        try:
            future.result()
        except BrokenProcessPool:
            raise _worker_died() from None


def _worker_died() -> BertworksError:
    cause = "a worker ended without a word: killed, short of memory, or started by a script without `if __name__ == '__main__':`"
    return BertworksError(
        cause, remedy="run the same again, it goes on where it was; fewer workers need less memory", code="worker-died"
    )


@dataclass
class _Worker:
    encoder: CachedEncoder
    dtype: type[np.uint16] | type[np.uint32]
    work: Path


_worker: _Worker  # of this process, set by _start_worker


def _start_worker(out: Path, words: Words) -> None:
    global _worker
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a worker for every core already
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    tokenizer = Tokenizer.load(out / TOKENIZER)
    _worker = _Worker(CachedEncoder(tokenizer, words), token_dtype(tokenizer.vocab_size), out / ".work")


def _end_with(parent: int) -> None:
    """A worker whose parent was killed would wait for work for ever."""
    wait_for([parent])
    os._exit(1)


def _encode_block(block: Block) -> None:
    """A block becomes a part. Its .json comes last: where it is, the part is whole."""
    content = _encode_documents(block.documents, _worker)
    records = [
        (hashlib.sha256(document.encode()).digest()[:16], len(document), HAN.search(document) is not None)
        for document in block.documents
    ]
    with atomic_write(_worker.work / f"{block.name}.part") as file:
        _, digest = content.write(file)
    with atomic_write(_worker.work / f"{block.name}.documents") as file:
        table = np.array(records, dtype=RECORD).tobytes()
        file.write(table)
    sizes = {"documents": len(content.documents), "sentences": len(content.sentences), "tokens": len(content.tokens)}
    hashes = {"part": digest, "documents": hashlib.sha256(table).hexdigest()}
    write_json(_worker.work / f"{block.name}.json", {**sizes, "segmenter": _worker.encoder.segmenter, "sha256": hashes})


def _encode_documents(documents: list[str], worker: _Worker) -> ShardContent:
    """All documents of a block; sentences without any token are left out."""
    ids, starts, lengths, owners = [], [], [], []
    for sentences, opens, owner in _gathered(documents):
        spelled = worker.encoder.encode(sentences, opens)
        kept = spelled.lengths > 0
        ids.append(spelled.ids.astype(worker.dtype))
        starts.append(spelled.word_starts)
        lengths.append(spelled.lengths[kept])
        owners.append(np.array(owner, dtype=np.int64)[kept])
    sentence_counts = np.bincount(np.concatenate(owners), minlength=len(documents))
    return ShardContent.pack(
        np.cumsum(sentence_counts, dtype=np.uint32),
        np.cumsum(np.concatenate(lengths), dtype=np.uint32),
        np.concatenate(starts),
        np.concatenate(ids),
    )


def _gathered(documents: list[str]) -> Iterator[tuple[list[str], list[bool], list[int]]]:
    """Sentences in portions: whether each opens its document, and which document it is from."""
    sentences: list[str] = []
    opens: list[bool] = []
    owners: list[int] = []
    size = 0
    for number, document in enumerate(documents):
        first = True
        for paragraph in document.split("\n"):
            found = split_sentences(paragraph)
            sentences += found
            opens += [first, *[False] * (len(found) - 1)] if found else []
            owners += [number] * len(found)
            first, size = first and not found, size + len(paragraph)
            if size >= CHARACTERS_AT_ONCE:
                yield sentences, opens, owners
                sentences, opens, owners, size = [], [], [], 0
    yield sentences, opens, owners  # perhaps none at all


def _finish(
    blocks: list[tuple[str, str]], settings: Settings, corpus: Corpus, tokenizer: Tokenizer, out: Path
) -> Manifest:
    """The parts without duplicates are the shards."""
    work, dtype = out / ".work", token_dtype(tokenizer.vocab_size)
    parts = [read_json(work / f"{name}.json") for name, _ in blocks]
    repeated = _repeated([work / f"{name}.documents" for name, _ in blocks])
    entries, at = [], 0
    for number, ((name, source), part) in enumerate(zip(blocks, parts, strict=True)):
        sizes = ShardCounts(documents=part["documents"], sentences=part["sentences"], tokens=part["tokens"])
        content = read_content(np.memmap(work / f"{name}.part", mode="r"), sizes, dtype)
        records = np.fromfile(work / f"{name}.documents", dtype=RECORD)
        keep = ~repeated[at : at + len(records)] & (np.diff(content.documents, prepend=np.uint32(0)) > 0)
        at += len(records)
        content = content if keep.all() else content.keep_documents(keep)
        with atomic_write(out / f"{number:06}.shard") as file:
            size, digest = content.write(file)
        entries.append(
            ShardEntry(f"{number:06}.shard", size, digest, source, _count(content, records[keep], tokenizer.unknown_id))
        )
    for stranger in set(out.glob("*.shard")) - {out / entry.file for entry in entries}:
        stranger.unlink()  # of a run over other text that was killed here
    total = sum((entry.counts for entry in entries), ShardCounts())
    if not total.tokens:
        remedy = "is it a tokenizer for this language?"
        raise BadText("the tokenizer has no token for any of the text", remedy=remedy, code="no-tokens")
    segmenter = next((part["segmenter"] for part in parts if part["segmenter"]), None)
    reading = {**asdict(corpus.stats), "remarks": [str(remark) for remark in corpus.stats.remarks()]}
    return Manifest(
        settings.tokenizer,
        tokenizer.vocab_size,
        settings.words,
        segmenter,
        total,
        int(repeated.sum()),
        reading,
        entries,
    )


def _count(content: ShardContent, records: NDArray[np.void], unknown: int | None) -> ShardCounts:
    return ShardCounts(
        documents=len(content.documents),
        sentences=len(content.sentences),
        words=int(content.word_starts(0, len(content.tokens)).sum()),
        tokens=len(content.tokens),
        unknown=0 if unknown is None else int((content.tokens == unknown).sum()),
        characters=int(records["characters"].sum()),
        han_documents=int(records["han"].sum()),
    )


def _repeated(paths: list[Path]) -> NDArray[np.bool_]:
    """Which documents, of all, occurred before. Digests are looked through in portions, so that memory stays flat."""
    total = sum(path.stat().st_size for path in paths) // RECORD.itemsize
    repeated = np.zeros(total, dtype=np.bool_)
    portions = -(-total // DIGESTS_AT_ONCE)
    for portion in range(portions):
        found, indexes, at = [], [], 0
        for path in paths:
            digests = np.ascontiguousarray(np.fromfile(path, dtype=RECORD)["digest"]).view(np.uint64).reshape(-1, 2)
            mine = np.flatnonzero(digests[:, 0] % np.uint64(portions) == portion)
            found.append(digests[mine])
            indexes.append(mine + at)
            at += len(digests)
        digests, index = np.concatenate(found), np.concatenate(indexes)
        order = np.lexsort((index, digests[:, 1], digests[:, 0]))
        same = (digests[order[1:]] == digests[order[:-1]]).all(axis=1)
        repeated[index[order[1:][same]]] = True
    return repeated
