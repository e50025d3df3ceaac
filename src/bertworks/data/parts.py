"""Documents to parts of shards: in worker processes, and resumable if they are killed.

The documents are divided, in order, into blocks of about `BLOCK_CHARACTERS`, and workers encode each block into a part
in `WORK`. A part is named after the hash of its text and of the settings: a later run finds the finished parts, and
never mistakes a part of another text or of another tokenizer for one of its own.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing.connection import wait as wait_for
from pathlib import Path

import numpy as np

from bertworks.data.corpus import Corpus, ReadProgress
from bertworks.data.shards import FORMAT, TOKENIZER, ShardContent, token_dtype
from bertworks.errors import BertworksError
from bertworks.files import atomic_write, read_json, write_json
from bertworks.text.cached_encoder import HAN, CachedEncoder, Words
from bertworks.text.sentences import SPLITTER_VERSION, cut_words, split_sentences
from bertworks.text.tokenizer import Tokenizer

WORK = ".work"  # the folder of the parts, beside the shards
BLOCK_CHARACTERS = 2**23  # of a block, about
CHARACTERS_AT_ONCE = 2**16  # encoded in one call, about
DOCUMENT_DTYPE = np.dtype([("digest", "V16"), ("characters", "<u4"), ("han", "?")])
WORD_START_CHARACTERS = 20  # of a cut word, that the remark shows


@dataclass(frozen=True)
class PartSettings:
    """Everything but the text that determines a part. Its JSON is hashed: renaming a field changes the hash."""

    tokenizer: str  # hash
    words: Words
    format: int = FORMAT
    rules: int = SPLITTER_VERSION  # version of the sentence splitter
    library: str = version("tokenizers")
    segmenter: str | None = None  # version of the installed one, whether it is needed or not

    def digest(self) -> bytes:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class Block:
    """Consecutive documents, the unit of work of a worker."""

    number: int
    documents: list[str]
    source: str  # hash of the text and the settings
    position: int  # bytes of the corpus read up to its end

    @property
    def name(self) -> str:
        """The file name of its part, without suffix."""
        return f"{self.number:06}-{self.source[:32]}"


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_blocks(corpus: Corpus, settings: PartSettings) -> Iterator[Block]:
    salt = settings.digest()
    number = 0
    documents: list[str] = []
    size = 0
    for document in corpus:
        documents.append(document)
        size += len(document) + 1
        if size >= BLOCK_CHARACTERS:
            yield Block(number, documents, _source_hash(salt, documents), corpus.position)
            number += 1
            documents = []
            size = 0
    if documents:
        yield Block(number, documents, _source_hash(salt, documents), corpus.position)


def _source_hash(salt: bytes, documents: list[str]) -> str:
    digest = hashlib.sha256(salt)
    for document in documents:
        content = document.encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def encode_blocks(
    corpus: Corpus, settings: PartSettings, out: Path, workers: int, progress: ReadProgress
) -> list[tuple[str, str]]:
    """Encode all blocks into parts in `WORK`; returns the name and the source hash of each. A single worker is the
    calling process itself: scripts need no `if __name__ == "__main__":` then."""
    blocks: list[tuple[str, str]] = []
    with ExitStack() as stack:
        own: _Worker | None = None
        pool: ProcessPoolExecutor | None = None
        running: dict[Future[None], int] = {}
        for block in split_blocks(corpus, settings):
            blocks.append((block.name, block.source))
            progress(block.position, corpus.total)
            if _is_finished(out / WORK, block.name):
                continue
            if workers == 1:
                own = own or _make_worker(out, settings.words)
                _encode_block(block, own)
                continue
            if pool is None:
                context = multiprocessing.get_context("spawn")
                pool = ProcessPoolExecutor(workers, context, _start_worker, (out, settings.words))
                stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            if len(running) > workers:
                _collect(running)
            try:
                with _interrupts_blocked():
                    running[pool.submit(_encode_in_worker, block)] = block.number
            except BrokenProcessPool:
                raise _worker_died() from None
        while running:
            _collect(running)
    return blocks


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes that are started here never see Ctrl-C: it is for the calling one, which waits for their parts."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_finished(work: Path, name: str) -> bool:
    """Whether a part was finished by an earlier run, and is unchanged."""
    try:
        hashes = read_json(work / f"{name}.json")["sha256"]
        return all(
            hashlib.sha256((work / f"{name}.{suffix}").read_bytes()).hexdigest() == digest
            for suffix, digest in hashes.items()
        )
    except (BertworksError, OSError, KeyError, AttributeError):
        return False


def _collect(running: dict[Future[None], int]) -> None:
    """Wait for at least one block; an exception of a worker is raised here."""
    finished, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in sorted(finished, key=lambda future: running[future]):
        del running[future]
        try:
            future.result()
        except BrokenProcessPool:
            raise _worker_died() from None


def _worker_died() -> BertworksError:
    cause = "a worker process died: killed, out of memory, or started by a script without `if __name__ == '__main__':`"
    remedy = "run the same again, finished parts are kept; fewer workers need less memory, 1 needs no other process"
    return BertworksError(cause, remedy=remedy, code="worker-died")


@dataclass
class _Worker:
    """What encodes blocks: a worker process, or the calling one."""

    encoder: CachedEncoder
    dtype: type[np.uint16] | type[np.uint32]
    work: Path


def _make_worker(out: Path, words: Words) -> _Worker:
    tokenizer = Tokenizer.load(out / TOKENIZER)
    return _Worker(CachedEncoder(tokenizer, words), token_dtype(tokenizer.vocab_size), out / WORK)


_worker: _Worker  # of this worker process, set by _start_worker


def _start_worker(out: Path, words: Words) -> None:
    global _worker
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # every core has a worker already
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent.sentinel,), daemon=True).start()
    _worker = _make_worker(out, words)


def _exit_with_parent(sentinel: int) -> None:
    """A worker whose parent was killed would otherwise wait for work for ever."""
    wait_for([sentinel])
    os._exit(1)


def _encode_in_worker(block: Block) -> None:
    _encode_block(block, _worker)


def _encode_block(block: Block, worker: _Worker) -> None:
    """Encode a block into a part. Its .json is written last: if that exists, the part is finished."""
    content = _encode_documents(block.documents, worker)
    records = [
        (hashlib.sha256(document.encode()).digest()[:16], len(document), HAN.search(document) is not None)
        for document in block.documents
    ]
    with atomic_write(worker.work / f"{block.name}.part") as file:
        _, digest = content.write(file)
    with atomic_write(worker.work / f"{block.name}.documents") as file:
        table = np.array(records, dtype=DOCUMENT_DTYPE).tobytes()
        file.write(table)
    sizes = {"documents": len(content.documents), "sentences": len(content.sentences), "tokens": len(content.tokens)}
    hashes = {"part": digest, "documents": hashlib.sha256(table).hexdigest()}
    paragraphs = (paragraph for document in block.documents for paragraph in document.split("\n"))
    cut = [word[:WORD_START_CHARACTERS] for paragraph in paragraphs for word in cut_words(paragraph)]
    values = {**sizes, "segmenter": worker.encoder.segmenter, "cut_words": cut, "sha256": hashes}
    write_json(worker.work / f"{block.name}.json", values)


def _encode_documents(documents: list[str], worker: _Worker) -> ShardContent:
    """The documents of a block as tokens; sentences without tokens are left out."""
    ids, word_starts, lengths, document_numbers = [], [], [], []
    for sentences, starts_document, numbers in _sentence_groups(documents):
        encoded = worker.encoder.encode(sentences, starts_document)
        has_tokens = encoded.lengths > 0
        ids.append(encoded.ids.astype(worker.dtype))
        word_starts.append(encoded.word_starts)
        lengths.append(encoded.lengths[has_tokens])
        document_numbers.append(np.array(numbers, dtype=np.int64)[has_tokens])
    sentence_counts = np.bincount(np.concatenate(document_numbers), minlength=len(documents))
    return ShardContent.pack(
        np.cumsum(sentence_counts, dtype=np.uint32),
        np.cumsum(np.concatenate(lengths), dtype=np.uint32),
        np.concatenate(word_starts),
        np.concatenate(ids),
    )


def _sentence_groups(documents: list[str]) -> Iterator[tuple[list[str], list[bool], list[int]]]:
    """Sentences to encode in one call: whether each is the first of its document, and the document's number."""
    sentences: list[str] = []
    starts_document: list[bool] = []
    document_numbers: list[int] = []
    size = 0
    for number, document in enumerate(documents):
        is_first = True
        for paragraph in document.split("\n"):
            paragraph_sentences = split_sentences(paragraph)
            for sentence in paragraph_sentences:
                sentences.append(sentence)
                starts_document.append(is_first)
                document_numbers.append(number)
                is_first = False
            size += len(paragraph)
            if size >= CHARACTERS_AT_ONCE:
                yield sentences, starts_document, document_numbers
                sentences, starts_document, document_numbers = [], [], []
                size = 0
    yield sentences, starts_document, document_numbers  # possibly empty
