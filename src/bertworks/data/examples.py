"""Plans: which token ranges of the shards make up each example of an epoch, computed once, stored, and looked up by
number.

`nsp` and `sop` follow BERT (section 3.1 and appendix A.2) and ALBERT (section 3.1): sentences of a document are
collected up to a target length, mostly the maximum, sometimes shorter; a random sentence boundary divides them into A
and B. For half of the examples B is then taken from another document, and the sentences that it replaces are used again
in the next example (nsp), or A and B are swapped (sop). A pair that is too long is truncated at the ends of its longer
text, and the lost tokens are counted. `none` fills examples with full sentences (RoBERTa, section 4.2) and loses
nothing; `stream` splits the text wherever an example is full, with a separator between any two documents.

A plan depends only on (seed, epoch, shard) and the settings, not on the process that makes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertworks.config import DataConfig, Pairs
from bertworks.data.rng import Stream, rng
from bertworks.data.shards import ShardContent, Shards
from bertworks.errors import BadConfig, BadText, BertworksError
from bertworks.files import atomic_write, read_json, save_errors, write_json

Split = Literal["train", "held_out"]
# First token and size of A and of B (0 without one), document boundaries inside, label of the pair.
EXAMPLE_DTYPE = np.dtype(
    [("a", "<i8"), ("b", "<i8"), ("a_size", "<u4"), ("b_size", "<u4"), ("breaks", "<u4"), ("label", "i1")]
)
NO_LABEL = -1  # not a pair
POSITIVE_PAIR = 0  # A and B in order
NEGATIVE_PAIR = 1  # B is from another document (nsp), or A and B are swapped (sop)
MAX_PASSAGE = 200  # sentences that are held out together
MAX_CACHED_PLANS = 32  # in a folder; the oldest are deleted
# The fields of `DataConfig` that each way to make examples uses, beside those that all use.
PAIR_OPTIONS: dict[Pairs, frozenset[str]] = {
    "nsp": frozenset({"short_seq_prob"}),
    "sop": frozenset({"short_seq_prob"}),
    "none": frozenset({"short_seq_prob", "cross_documents"}),
    "stream": frozenset(),
}
MAX_TRIES = 1000  # to draw a sentence that is not held out
NO_END = 2**62  # beyond any number of sentences
MILLION = 1_000_000  # shares are whole millionths, so that sums are exact
PlanRow = tuple[int, int, int, int, int, int]  # the fields of EXAMPLE_DTYPE
SentenceRange = tuple[int, int, int]  # document, first sentence, end


@dataclass
class PlanStats:
    """Token counts of a plan: tokens_in + repeated = tokens_out + lost. Repeated tokens occur twice, the second time
    as a random B."""

    examples: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    lost: int = 0
    repeated: int = 0

    def __str__(self) -> str:
        summary = f"{self.examples:,} examples, {self.tokens_in:,} tokens in, {self.tokens_out:,} out"
        if self.lost:
            summary += f", {self.lost:,} truncated ({self.lost / self.tokens_in:.1%})"
        if self.repeated:
            summary += f", {self.repeated:,} repeated in random pairs"
        return summary


@dataclass(frozen=True)
class Plan:
    """The examples of one epoch, as token ranges."""

    examples: NDArray[np.void]  # of EXAMPLE_DTYPE, memory-mapped
    stats: PlanStats
    n_special: int  # special tokens in an example

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Of the examples, in tokens, with special tokens and separators."""
        sizes: NDArray[np.int64] = (
            self.examples["a_size"].astype(np.int64) + self.examples["b_size"] + self.examples["breaks"]
        )
        return sizes + self.n_special


def make_plan(
    shards: Shards, config: DataConfig, split: Split, seed: int, epoch: int, cache: Path | None = None
) -> Plan:
    """The examples of an epoch, from the cache if they were planned before."""
    is_paired = config.pairs in ("nsp", "sop")
    n_special = (shards.tokenizer.pair_template if is_paired else shards.tokenizer.template).n_special
    max_tokens = config.max_length - n_special
    if max_tokens < 2:
        cause = f"max_length = {config.max_length} is too short for {n_special} special tokens and a text"
        raise BadConfig(cause, code="no-room")
    is_random = is_paired or (config.pairs == "none" and config.short_seq_prob > 0)
    key = {
        "shards": [entry.sha256 for entry in shards.manifest.shards],
        "config": config.model_dump(include={"pairs", "max_length", "cross_documents", "short_seq_prob", "held_out"}),
        "draws": [split, seed if is_random else 0, epoch if is_random else 0],
        "tokenizer": shards.manifest.tokenizer,
        "version": 1,
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    path = (cache or _default_cache(shards)) / f"{name}.plan"
    stats = _read_stats(path)
    if stats is None:
        stats = _write_plan(Planner(shards, config, split, max_tokens), seed, epoch, path)
    is_empty = stats.examples == 0  # an empty file cannot be mapped
    examples = np.empty(0, EXAMPLE_DTYPE) if is_empty else np.memmap(path, dtype=EXAMPLE_DTYPE, mode="r")
    return Plan(examples, stats, n_special)


def _default_cache(shards: Shards) -> Path:
    """Beside the shards, or in the user's cache folder if the shards are read-only."""
    writable = os.access(shards.folder, os.W_OK)
    return shards.folder / "plans" if writable else Path.home() / ".cache" / "bertworks" / "plans"


def _read_stats(path: Path) -> PlanStats | None:
    """The stats of a cached plan; None if it is missing or corrupt, and has to be made again."""
    try:
        record = read_json(path.with_suffix(".json"))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return PlanStats(**record["tally"]) if record.get("sha256") == digest else None
    except (BertworksError, OSError, KeyError, TypeError):
        return None


def _write_plan(planner: Planner, seed: int, epoch: int, path: Path) -> PlanStats:
    digest = hashlib.sha256()
    with save_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        for shard in range(len(planner.shards)):
            content = planner.plan(shard, rng(seed, Stream.EXAMPLES, epoch, shard)).tobytes()
            file.write(content)
            digest.update(content)
    write_json(path.with_suffix(".json"), {"tally": asdict(planner.stats), "sha256": digest.hexdigest()})
    with suppress(OSError):  # another process may be deleting them too
        by_age = sorted(path.parent.glob("*.json"), key=lambda plan: plan.stat().st_mtime)
        for old in by_age[:-MAX_CACHED_PLANS]:
            old.unlink(missing_ok=True)
            old.with_suffix(".plan").unlink(missing_ok=True)
    return planner.stats


class Planner:
    """Plans the examples of shards, one shard at a time. `max_tokens`: of an example, without special tokens."""

    def __init__(self, shards: Shards, config: DataConfig, split: Split, max_tokens: int) -> None:
        self.shards = shards
        self.config = config
        self.split = split
        self.max_tokens = max_tokens
        self.stats = PlanStats()
        counts = shards.manifest.counts
        self.n_documents = counts.documents
        self.has_separator = "sep" in shards.tokenizer.special
        self.held_out = HeldOut(counts.sentences, config.held_out)
        if config.pairs == "nsp" and self.n_documents < 2:
            remedy = "separate documents by a blank line, or set data.pairs=sop"
            cause = "next-sentence prediction needs at least two documents"
            raise BadText(cause, place=str(shards.folder), remedy=remedy, code="single-document")

    def plan(self, shard: int, rng: np.random.Generator) -> NDArray[np.void]:
        content = self.shards[shard]
        base = int(self.shards.token_edges[shard])
        sentence_edges = [base, *(content.sentences.astype(np.int64) + base).tolist()]  # in tokens, of all shards
        ranges = list(self._sentence_ranges(shard, content))
        self.stats.tokens_in += sum(sentence_edges[last] - sentence_edges[first] for _, first, last in ranges)
        if self.config.pairs in ("nsp", "sop"):
            rows = list(self._pairs(rng, sentence_edges, ranges))
        else:
            ends = [sentence_edges[end] for end in content.documents.tolist()] if self.has_separator else []
            rows = list(self._packed(rng, sentence_edges, ranges, ends))
        examples = np.array(rows, dtype=EXAMPLE_DTYPE)
        self.stats.examples += len(rows)
        self.stats.tokens_out += int(examples["a_size"].sum() + examples["b_size"].sum())
        return examples

    def _sentence_ranges(self, shard: int, content: ShardContent) -> Iterator[SentenceRange]:
        """The consecutive sentences of a document that belong to this split, numbered within the shard."""
        base = int(self.shards.sentence_edges[shard])
        first_document = int(self.shards.document_edges[shard])
        sentence = 0
        for document, end in enumerate(content.documents.tolist(), start=first_document):
            while sentence < end:
                is_held_out, stop = self.held_out.lookup(base + sentence)
                stop = min(end, stop - base)
                if is_held_out == (self.split == "held_out"):
                    yield document, sentence, stop
                sentence = stop

    def _packed(
        self, rng: np.random.Generator, sentence_edges: list[int], ranges: list[SentenceRange], ends: list[int]
    ) -> Iterator[PlanRow]:
        """Full sentences (`none`) or all text (`stream`), up to `max_tokens`; the `ends` of documents inside of an
        example cost a separator each."""
        full_sentences = self.config.pairs == "none"
        if self.config.cross_documents or not full_sentences:
            ranges = _merge_adjacent(ranges)
        uniforms = _uniforms(rng)
        base = sentence_edges[0]

        def count_from(begin: int) -> int:
            """Streamed text has a separator also where a document ended just before it."""
            return begin if full_sentences or begin == base else begin - 1

        for _, first, last in ranges:
            begin = sentence_edges[first]
            stop = sentence_edges[last]
            while begin < stop:
                max_tokens = self._target_length(uniforms) if full_sentences else self.max_tokens
                end = min(stop, begin + max_tokens)
                while end > begin + 1 and end - begin + _count_between(ends, count_from(begin), end) > max_tokens:
                    end -= 1
                sentence_end = sentence_edges[bisect_right(sentence_edges, end) - 1]
                if full_sentences and sentence_end > begin:  # else the sentence is longer than an example, and is split
                    end = sentence_end
                yield begin, 0, end - begin, 0, _count_between(ends, count_from(begin), end), NO_LABEL
                begin = end

    def _pairs(
        self, rng: np.random.Generator, sentence_edges: list[int], ranges: list[SentenceRange]
    ) -> Iterator[PlanRow]:
        uniforms = _uniforms(rng)
        is_sop = self.config.pairs == "sop"
        for document, first, last in ranges:
            sentence = first
            while sentence < last:
                target = self._target_length(uniforms)
                end = min(last, max(sentence + 1, bisect_left(sentence_edges, sentence_edges[sentence] + target)))
                is_negative = next(uniforms) < 0.5
                n_sentences = end - sentence
                middle = sentence + 1 + int(next(uniforms) * (n_sentences - 1)) if n_sentences > 1 else end
                begin, cut, stop = (sentence_edges[i] for i in (sentence, middle, end))
                if stop - begin < 2:  # too short for two texts
                    self.stats.lost += stop - begin
                    sentence = end
                    continue
                if is_negative and not is_sop:
                    b, b_size = self._random_sentences(uniforms, document, max(1, target - (cut - begin)))
                    self.stats.repeated += b_size
                    yield self._truncated(rng, begin, cut - begin, b, b_size, NEGATIVE_PAIR)
                    sentence = middle  # the sentences that B replaced are used in the next example
                    continue
                sentence = end
                if middle == end:  # a single sentence is split in half
                    cut = begin + (stop - begin) // 2
                if is_negative:
                    yield self._truncated(rng, cut, stop - cut, begin, cut - begin, NEGATIVE_PAIR)
                else:
                    yield self._truncated(rng, begin, cut - begin, cut, stop - cut, POSITIVE_PAIR)

    def _target_length(self, uniforms: Iterator[float]) -> int:
        """Mostly the maximum; sometimes less, so that the model sees short texts too."""
        is_short = self.config.short_seq_prob > 0 and next(uniforms) < self.config.short_seq_prob
        return 2 + int(next(uniforms) * (self.max_tokens - 1)) if is_short else self.max_tokens

    def _random_sentences(self, uniforms: Iterator[float], document: int, target: int) -> tuple[int, int]:
        """First token and size of sentences of another document, `target` tokens or a little more. In training, never
        of held-out text."""
        for _ in range(MAX_TRIES):
            other_document = int(next(uniforms) * (self.n_documents - 1))
            other_document += other_document >= document
            shard = int(np.searchsorted(self.shards.document_edges, other_document, side="right")) - 1
            content = self.shards[shard]
            index = other_document - int(self.shards.document_edges[shard])  # in the shard
            base = int(self.shards.sentence_edges[shard])
            first = int(content.documents[index - 1]) if index else 0
            last = int(content.documents[index])
            begin = first + int(next(uniforms) * (last - first))
            is_held_out, stop = self.held_out.lookup(base + begin)
            if is_held_out and self.split == "train":
                continue
            last = min(last, stop - base)
            start = int(content.sentences[begin - 1]) if begin else 0  # in tokens
            end = begin + int(np.searchsorted(content.sentences[begin:last], np.uint32(start + target))) + 1
            return int(self.shards.token_edges[shard]) + start, int(content.sentences[min(end, last) - 1]) - start
        remedy = "prepare more documents, or set data.held_out=0"
        cause = "too few documents outside of the held-out text to draw random pairs from"
        raise BadText(cause, place=str(self.shards.folder), remedy=remedy, code="too-few-documents")

    def _truncated(self, rng: np.random.Generator, a: int, a_size: int, b: int, b_size: int, label: int) -> PlanRow:
        """Remove excess tokens one by one from the longer text, at random from its front or its end, as in BERT's
        original code."""
        excess = a_size + b_size - self.max_tokens
        if excess > 0:
            from_longer = min(excess, abs(a_size - b_size))  # until both texts have the same size
            from_both = excess - from_longer
            from_a = from_both // 2 + (from_longer if a_size > b_size else 0)
            from_b = (from_both + 1) // 2 + (0 if a_size > b_size else from_longer)
            a += int(rng.binomial(from_a, 0.5))
            b += int(rng.binomial(from_b, 0.5))
            a_size -= from_a
            b_size -= from_b
            is_random_b = label == NEGATIVE_PAIR and self.config.pairs == "nsp"
            self.stats.lost += from_a + (0 if is_random_b else from_b)
            self.stats.repeated -= from_b if is_random_b else 0
        return a, b, a_size, b_size, 0, label


class HeldOut:
    """Which sentences are held out for evaluation: evenly spaced passages, the same ones for every seed.

    A passage is held out where the running sum of `share` passes a whole number; a fixed random offset decides where
    that happens first.
    """

    def __init__(self, n_sentences: int, share: float) -> None:
        self.share = round(share * MILLION)
        self.passage = max(1, min(MAX_PASSAGE, int(n_sentences * share / 2)))  # sentences
        n_passages = -(-n_sentences // self.passage)
        period = min(n_passages, MILLION // self.share) if self.share else 1
        first_passage = int(rng(0, Stream.HELD_OUT).integers(max(1, period))) if self.share else 0
        self.offset = MILLION - (first_passage + 1) * self.share

    def lookup(self, sentence: int) -> tuple[bool, int]:
        """Whether a sentence is held out, and the next sentence for which this changes."""
        if not self.share:
            return False, NO_END
        passage = sentence // self.passage
        n_before = (passage * self.share + self.offset) // MILLION  # passages held out before this one
        n_after = ((passage + 1) * self.share + self.offset) // MILLION
        is_held_out = n_after > n_before
        next_passage = passage + 1 if is_held_out else -(-((n_after + 1) * MILLION - self.offset) // self.share) - 1
        return is_held_out, next_passage * self.passage


def _merge_adjacent(ranges: list[SentenceRange]) -> list[SentenceRange]:
    """Ranges that follow each other directly, merged."""
    merged: list[SentenceRange] = []
    for document, first, last in ranges:
        if merged and merged[-1][2] == first:
            document, first = merged.pop()[:2]
        merged.append((document, first, last))
    return merged


def _count_between(ends: list[int], begin: int, end: int) -> int:
    """The number of documents that end inside of a token range."""
    return max(0, bisect_left(ends, end) - bisect_right(ends, begin))


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    """An endless iterator over numbers in [0, 1), drawn in blocks since single draws are slow."""
    while True:
        yield from rng.random(1024).tolist()
