"""Which stretches of the shards become an example: planned once per epoch, stored, and looked up by number.

`nsp` and `sop` follow BERT (section 3.1 and appendix A.2) and ALBERT (section 3.1): sentences of a document are
collected up to a target length, mostly the longest, sometimes shorter; a random point divides them into A and B. For
half of the examples B is then taken from another document, and what it replaces goes back to be used again (nsp), or A
and B change places (sop). A pair that is too long loses tokens at the ends of its longer half, and these are counted.
`none` fills examples with full sentences (RoBERTa, section 4.2) and loses nothing; `stream` cuts the text wherever an
example is full, with a separator between any two documents.

A plan is a function of (seed, epoch, shard) and the settings, whoever makes it.
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
from bertworks.errors import BadConfig, BadText, BertworksError, SaveFailed
from bertworks.files import atomic_write, read_json, write_json

Split = Literal["train", "held_out"]
EXAMPLE = np.dtype(
    [("a", "<i8"), ("b", "<i8"), ("a_size", "<u4"), ("b_size", "<u4"), ("breaks", "<u4"), ("label", "i1")]
)
NO_LABEL, TRUE_ORDER, OTHER = -1, 0, 1  # in order; from another document, or swapped
PASSAGE = 200  # sentences that are held out together, at most
KEPT_PLANS = 32
PAIR_OPTIONS: dict[
    Pairs, frozenset[str]
] = {  # which fields of `DataConfig` each way to make examples uses, beside those that all do
    "nsp": frozenset({"short_seq_prob"}),
    "sop": frozenset({"short_seq_prob"}),
    "none": frozenset({"short_seq_prob", "cross_documents"}),
    "stream": frozenset(),
}
MAX_TRIES = 1000  # at a sentence that is not held out
NEVER = 2**62
MILLION = 1_000_000
PlanRow = tuple[int, int, int, int, int, int]
SentenceRange = tuple[int, int, int]


@dataclass
class PlanStats:
    """Tokens in + repeated = tokens out + lost; repeated are those seen once more as the B of another document's A."""

    examples: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    lost: int = 0
    repeated: int = 0

    def __str__(self) -> str:
        said = f"{self.examples:,} examples, {self.tokens_in:,} tokens in, {self.tokens_out:,} out"
        if self.lost:
            said += f", {self.lost:,} lost to shortening ({self.lost / self.tokens_in:.1%})"
        if self.repeated:
            said += f", {self.repeated:,} seen once more in random pairs"
        return said


@dataclass(frozen=True)
class Plan:
    examples: NDArray[np.void]  # of EXAMPLE, mapped
    stats: PlanStats
    n_special: int

    @property
    def lengths(self) -> NDArray[np.int64]:
        """With special tokens."""
        sizes: NDArray[np.int64] = (
            self.examples["a_size"].astype(np.int64) + self.examples["b_size"] + self.examples["breaks"]
        )
        return sizes + self.n_special


def make_plan(
    shards: Shards, config: DataConfig, part: Split, seed: int, epoch: int, cache: Path | None = None
) -> Plan:
    """The examples of an epoch, read from the cache if they were planned before."""
    paired = config.pairs in ("nsp", "sop")
    frame_size = (shards.tokenizer.pair_template if paired else shards.tokenizer.template).n_special
    room = config.max_length - frame_size
    if room < 2:
        raise BadConfig(
            f"max_length = {config.max_length} leaves no room beside {frame_size} special tokens", code="no-room"
        )
    drawn = paired or (config.pairs == "none" and config.short_seq_prob > 0)
    key = {
        "shards": [entry.sha256 for entry in shards.manifest.shards],
        "config": config.model_dump(include={"pairs", "max_length", "cross_documents", "short_seq_prob", "held_out"}),
        "draws": [part, seed if drawn else 0, epoch if drawn else 0],
        "tokenizer": shards.manifest.tokenizer,
        "version": 1,
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    path = (cache or _cache(shards)) / f"{name}.plan"
    tally = _read_tally(path)
    if tally is None:
        tally = _write_plan(Planner(shards, config, part, room), seed, epoch, path)
    raw = np.memmap(path, dtype=EXAMPLE, mode="r") if tally.examples else np.empty(0, EXAMPLE)
    return Plan(raw, tally, frame_size)


def _cache(shards: Shards) -> Path:
    """Beside the shards, or in the user's own cache if nothing can be written there."""
    writable = os.access(shards.folder, os.W_OK)
    return shards.folder / "plans" if writable else Path.home() / ".cache" / "bertworks" / "plans"


def _read_tally(path: Path) -> PlanStats | None:
    """What stands beside a plan, if both are there and whole; a plan that is not is made again."""
    try:
        record = read_json(path.with_suffix(".json"))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return PlanStats(**record["tally"]) if record.get("sha256") == digest else None
    except (BertworksError, OSError, KeyError, TypeError):
        return None


def _write_plan(planner: Planner, seed: int, epoch: int, path: Path) -> PlanStats:
    digest = hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SaveFailed(f"could not write: {error.strerror}", place=str(path.parent)) from None
    with atomic_write(path) as file:
        for shard in range(len(planner.shards)):
            rows = planner.plan(shard, rng(seed, Stream.EXAMPLES, epoch, shard)).tobytes()
            file.write(rows)
            digest.update(rows)
    write_json(path.with_suffix(".json"), {"tally": asdict(planner.stats), "sha256": digest.hexdigest()})
    with suppress(OSError):  # another process may be tidying up too
        for old in sorted(path.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)[:-KEPT_PLANS]:
            old.unlink(missing_ok=True)
            old.with_suffix(".plan").unlink(missing_ok=True)
    return planner.stats


class Planner:
    """Plans shards one by one."""

    def __init__(self, shards: Shards, config: DataConfig, split: Split, max_tokens: int) -> None:
        self.shards, self.config, self.split, self.max_tokens = shards, config, split, max_tokens
        self.stats = PlanStats()
        counts = shards.manifest.counts
        self.n_documents = counts.documents
        self.separated = "sep" in shards.tokenizer.special
        self.held_out = HeldOut(counts.sentences, config.held_out)
        if config.pairs == "nsp" and self.n_documents < 2:
            remedy = "a blank line ends a document; or use sop pairs"
            cause = "next-sentence pairs need at least two documents"
            raise BadText(cause, place=str(shards.folder), remedy=remedy, code="single-document")

    def plan(self, shard: int, rng: np.random.Generator) -> NDArray[np.void]:
        content, base = self.shards[shard], int(self.shards.token_edges[shard])
        tokens = [
            base,
            *(content.sentences.astype(np.int64) + base).tolist(),
        ]  # where each sentence begins, and the end
        stretches = list(self._sentence_ranges(shard, content))
        self.stats.tokens_in += sum(tokens[last] - tokens[first] for _, first, last in stretches)
        if self.config.pairs in ("nsp", "sop"):
            rows = list(self._pairs(rng, tokens, stretches))
        else:
            ends = [tokens[end] for end in content.documents.tolist()] if self.separated else []
            rows = list(self._packed(rng, tokens, stretches, ends))
        table = np.array(rows, dtype=EXAMPLE)
        self.stats.examples += len(rows)
        self.stats.tokens_out += int(table["a_size"].sum() + table["b_size"].sum())
        return table

    def _sentence_ranges(self, shard: int, content: ShardContent) -> Iterator[SentenceRange]:
        """The stretches of this part: which document, first sentence, last sentence."""
        before, number, start = int(self.shards.sentence_edges[shard]), int(self.shards.document_edges[shard]), 0
        for document, end in enumerate(content.documents.tolist(), start=number):
            at = start
            while at < end:
                held, stop = self.held_out.lookup(before + at)
                stop = min(end, stop - before)
                if held == (self.split == "held_out"):
                    yield document, at, stop
                at = stop
            start = end

    def _packed(
        self, rng: np.random.Generator, tokens: list[int], stretches: list[SentenceRange], ends: list[int]
    ) -> Iterator[PlanRow]:
        """Full sentences, or all text, up to the room; a document that begins inside an example costs a separator."""
        whole = self.config.pairs == "none"
        if self.config.cross_documents or not whole:
            stretches = _joined(stretches)
        draws = _uniforms(rng)
        base = tokens[0]

        def first_end(at: int) -> int:
            """Streamed text has a separator also where a document ended just before."""
            return at if whole or at == base else at - 1

        for _, first, last in stretches:
            at, stop = tokens[first], tokens[last]
            while at < stop:
                room = self._target_length(draws) if whole else self.max_tokens
                end = min(stop, at + room)
                while end > at + 1 and end - at + _between(ends, first_end(at), end) > room:
                    end -= 1
                full = tokens[bisect_right(tokens, end) - 1]
                if whole and full > at:  # a sentence longer than the room is cut
                    end = full
                yield at, 0, end - at, 0, _between(ends, first_end(at), end), NO_LABEL
                at = end

    def _pairs(self, rng: np.random.Generator, tokens: list[int], stretches: list[SentenceRange]) -> Iterator[PlanRow]:
        draws, swapping = _uniforms(rng), self.config.pairs == "sop"
        for document, first, last in stretches:
            at = first
            while at < last:
                target = self._target_length(draws)
                end = min(last, max(at + 1, bisect_left(tokens, tokens[at] + target)))
                other = next(draws) < 0.5
                middle = at + 1 + int(next(draws) * (end - at - 1)) if end - at > 1 else end
                begin, cut, stop = tokens[at], tokens[middle], tokens[end]
                if stop - begin < 2:  # too short for either label
                    self.stats.lost += stop - begin
                    at = end
                    continue
                if other and not swapping:
                    b, b_size = self._random_sentences(draws, document, max(1, target - (cut - begin)))
                    self.stats.repeated += b_size
                    yield self._truncated(rng, begin, cut - begin, b, b_size, OTHER)
                    at = middle  # the rest goes back, to be used again
                    continue
                at = end
                if middle == end:  # a single sentence is divided itself
                    cut = begin + (stop - begin) // 2
                if other:
                    yield self._truncated(rng, cut, stop - cut, begin, cut - begin, OTHER)
                else:
                    yield self._truncated(rng, begin, cut - begin, cut, stop - cut, TRUE_ORDER)

    def _target_length(self, draws: Iterator[float]) -> int:
        """Mostly all the room; sometimes less, so that short texts are seen too."""
        short = self.config.short_seq_prob > 0 and next(draws) < self.config.short_seq_prob
        return 2 + int(next(draws) * (self.max_tokens - 1)) if short else self.max_tokens

    def _random_sentences(self, draws: Iterator[float], document: int, target: int) -> tuple[int, int]:
        """Sentences of another document, of `target` tokens or a little more; never of text held out from training."""
        for _ in range(MAX_TRIES):
            other = int(next(draws) * (self.n_documents - 1))
            other += other >= document
            shard = int(np.searchsorted(self.shards.document_edges, other, side="right")) - 1
            content, local = self.shards[shard], other - int(self.shards.document_edges[shard])
            first = int(content.documents[local - 1]) if local else 0
            last = int(content.documents[local])
            begin = first + int(next(draws) * (last - first))
            held, stop = self.held_out.lookup(int(self.shards.sentence_edges[shard]) + begin)
            if held and self.split == "train":
                continue
            last = min(last, stop - int(self.shards.sentence_edges[shard]))
            start = int(content.sentences[begin - 1]) if begin else 0
            end = begin + int(np.searchsorted(content.sentences[begin:last], np.uint32(start + target))) + 1
            return int(self.shards.token_edges[shard]) + start, int(content.sentences[min(end, last) - 1]) - start
        remedy = "give it more text, or held_out = 0"
        cause = "too few documents to draw pairs from beside the text that is held out"
        raise BadText(cause, place=str(self.shards.folder), remedy=remedy, code="too-few-documents")

    def _truncated(self, rng: np.random.Generator, a: int, a_size: int, b: int, b_size: int, label: int) -> PlanRow:
        """What is too much goes from the longer half, token by token, from its front or its end (BERT's own code)."""
        excess = a_size + b_size - self.max_tokens
        if excess > 0:
            uneven = min(excess, abs(a_size - b_size))
            from_a, from_b = (uneven, 0) if a_size > b_size else (0, uneven)
            from_a, from_b = from_a + (excess - uneven) // 2, from_b + (excess - uneven + 1) // 2
            a, b = a + int(rng.binomial(from_a, 0.5)), b + int(rng.binomial(from_b, 0.5))
            a_size, b_size = a_size - from_a, b_size - from_b
            random_b = label == OTHER and self.config.pairs == "nsp"
            self.stats.lost += from_a + (0 if random_b else from_b)
            self.stats.repeated -= from_b if random_b else 0
        return a, b, a_size, b_size, 0, label


class HeldOut:
    """Which sentences are kept for evaluation: passages at even distances, the same ones for every run."""

    def __init__(self, sentences: int, share: float) -> None:
        self.share = round(share * MILLION)
        self.passage = max(1, min(PASSAGE, int(sentences * share / 2)))  # sentences
        passages = -(-sentences // self.passage)
        first = int(rng(0, Stream.HELD_OUT).integers(max(1, min(passages, MILLION // self.share)))) if self.share else 0
        self.phase = MILLION - (first + 1) * self.share

    def lookup(self, sentence: int) -> tuple[bool, int]:
        """Whether a sentence is held out, and the next one that is on the other side."""
        if not self.share:
            return False, NEVER
        number = sentence // self.passage
        before, after = (
            (number * self.share + self.phase) // MILLION,
            ((number + 1) * self.share + self.phase) // MILLION,
        )
        held = after > before
        following = number + 1 if held else -(-((after + 1) * MILLION - self.phase) // self.share) - 1
        return held, following * self.passage


def _joined(stretches: list[SentenceRange]) -> list[SentenceRange]:
    """Stretches that follow each other, as one."""
    joined: list[SentenceRange] = []
    for document, first, last in stretches:
        if joined and joined[-1][2] == first:
            document, first = joined.pop()[:2]
        joined.append((document, first, last))
    return joined


def _between(ends: list[int], begin: int, end: int) -> int:
    """How many documents end inside a stretch of tokens."""
    return max(0, bisect_left(ends, end) - bisect_right(ends, begin))


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(1024).tolist()
