"""Ragged batches with a token budget: any batch of any epoch, at once, the same for every number of workers and
machines.

A place in the training is a pair, (epoch, batch): both start at once, without a look at what came before. (Epochs
differ a little in their number of batches, so a count of steps alone is no place.)

An epoch's examples are shuffled, sorted by length within windows so that a batch holds alike ones, cut where the budget
is full, and the batches shuffled again. That takes one pass over the examples' lengths; after it a batch costs only
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertworks.config import DataConfig
from bertworks.data.corruption import Corrupted, Corruption, Draws, MaskTokens, Numbers, TokenSequence, Vocabulary
from bertworks.data.examples import NO_LABEL, Plan, Split, make_plan
from bertworks.data.masking import SPAN_LENGTHS
from bertworks.data.rng import Stream, rng
from bertworks.data.shards import Shards
from bertworks.errors import BadConfig, BadShards, Unsupported

SORTED_BATCHES = 64  # batches whose examples are sorted together
# Held-out targets are all hidden: where one in ten is left to be copied, a model looks clever that knows nothing of its
# context.
EVALUATION = {"masking": "token", "mask_rate": 0.15, "mask_share": 1.0, "random_share": 0.0, "mask_epochs": 1}
EVALUATION_SEED = 20_181_011


@dataclass(frozen=True)
class PretrainBatch:
    """Sequences one after the other; nothing is padded."""

    ids: Numbers  # (N,) what the model sees
    segments: Numbers  # (N,)
    lengths: Numbers  # (B,)
    targets: Numbers  # (M,) positions to predict
    labels: Numbers  # (M,) the tokens that stood there
    pairs: Numbers  # (B,) 0 in order, 1 other, -1 no pair
    examples: Numbers  # (B,) which examples of the epoch these are
    ranks: Numbers | None = None  # (N,) permuted: order of prediction
    uniforms: NDArray[np.float64] | None = None  # (M,) replaced: one number per target, to draw its replacement with


class Loader:
    """Batches from shards, corrupted as the objective wants it."""

    def __init__(
        self,
        shards: Shards,
        config: DataConfig,
        *,
        corruption: Corruption | None = None,
        batch_tokens: int = 4096,
        seed: int = 0,
        split: Split = "train",
        cache: Path | None = None,
    ) -> None:
        corruption = corruption or MaskTokens()
        if split == "held_out":
            config, seed = config.model_copy(update=EVALUATION), EVALUATION_SEED
        if batch_tokens < config.max_length:
            raise BadConfig(
                f"batch_tokens = {batch_tokens} is less than max_length = {config.max_length}", code="batch-too-small"
            )
        manifest = shards.manifest
        if config.pairs in ("nsp", "sop") and not len(shards.tokenizer.pair_template.parts[1][0]):
            cause = "this tokenizer sets nothing between the two halves of a pair"
            raise Unsupported(cause, remedy="use pairs none or stream", code="no-pair-separator")
        if (
            "masking" in corruption.uses
            and SPAN_LENGTHS[config.masking].words
            and manifest.counts.han_documents
            and manifest.segmenter is None
        ):
            remedy = "prepare them again with --words auto, or mask tokens"
            cause = "Chinese text whose words are not known (--words char)"
            raise BadShards(cause, place=str(shards.folder), remedy=remedy, code="no-word-boundaries")
        self.shards, self.config, self.corruption = shards, config, corruption
        self.batch_tokens, self.seed, self.split = batch_tokens, seed, split
        self.cache, tokenizer = cache, shards.tokenizer
        self.template = tokenizer.pair_template if config.pairs in ("nsp", "sop") else tokenizer.template
        self.separator_id = tokenizer.id_of("sep") if "sep" in tokenizer.special else None
        self.is_special = tokenizer.special_ids()
        mask_id = tokenizer.id_of("mask") if corruption.needs_mask_token else -1
        self.vocabulary = Vocabulary(mask_id, np.flatnonzero(~self.is_special))

    def epoch(self, number: int) -> Epoch:
        plan = make_plan(self.shards, self.config, self.split, self.seed, self.mask_epoch(number), self.cache)
        return Epoch(self, number, plan)

    def mask_epoch(self, epoch: int) -> int:
        """The epoch whose draws this one uses: with `mask_epochs` they repeat."""
        return epoch % self.config.mask_epochs if self.config.mask_epochs else epoch


class Epoch:
    """The batches of one epoch, by number."""

    def __init__(self, loader: Loader, number: int, plan: Plan) -> None:
        self.loader, self.number, self.plan, self.streamed = loader, number, plan, loader.config.pairs == "stream"
        self.lengths = lengths = plan.lengths
        order = np.arange(len(lengths))
        if loader.split == "train":
            order = rng(loader.seed, Stream.ORDER, number).permutation(len(lengths))
        window = max(1, int(SORTED_BATCHES * loader.batch_tokens / lengths.mean())) if len(lengths) else 1
        self.order = order[np.lexsort((lengths[order], np.arange(len(order)) // window))]
        self.boundaries = _batch_boundaries(lengths[self.order], loader.batch_tokens)
        self.batch_order = np.arange(len(self))
        if loader.split == "train":
            self.batch_order = rng(loader.seed, Stream.BATCHES, number).permutation(len(self))

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    def examples_of(self, batch: int) -> Numbers:
        """Which examples a batch is made of."""
        turn = self.batch_order[batch]
        return self.order[self.boundaries[turn] : self.boundaries[turn + 1]]

    def __getitem__(self, batch: int) -> PretrainBatch:
        if not 0 <= batch < len(self):
            raise IndexError(batch)
        return self.gather(self.examples_of(batch))

    def gather(self, members: Sequence[int] | Numbers) -> PretrainBatch:
        """A batch of any examples. Each is hidden by its own number, whatever else is in the batch."""
        examples = [self.example(int(member)) for member in members]
        hidden = [self.corrupted(int(member), example) for member, example in zip(members, examples, strict=True)]
        lengths = np.array([len(example.ids) for example in examples], dtype=np.int64)
        starts = np.cumsum(lengths) - lengths
        targets = [one.targets + start for one, start in zip(hidden, starts, strict=True)]
        ranks = [one.ranks for one in hidden if one.ranks is not None]
        uniforms = [one.uniforms for one in hidden if one.uniforms is not None]
        return PretrainBatch(
            ids=np.concatenate([one.ids for one in hidden]),
            segments=np.concatenate([example.segments for example in examples]),
            lengths=lengths,
            targets=np.concatenate(targets),
            labels=np.concatenate([example.ids[one.targets] for example, one in zip(examples, hidden, strict=True)]),
            pairs=np.array([example.label for example in examples], dtype=np.int64),
            examples=np.array(members, dtype=np.int64),
            ranks=np.concatenate(ranks) if ranks else None,
            uniforms=np.concatenate(uniforms) if uniforms else None,
        )

    def example(self, number: int) -> TokenSequence:
        row, frame, loader = self.plan.examples[number], self.loader.template, self.loader
        separator = loader.separator_id if row["breaks"] else None
        texts = [loader.shards.token_range(int(row["a"]), int(row["a_size"]), separator, leading=self.streamed)]
        if row["label"] != NO_LABEL:
            texts.append(loader.shards.token_range(int(row["b"]), int(row["b_size"])))
        ids, segments, free, starts = [], [], [], []
        for at, (special, special_segments) in enumerate(frame.parts):
            ids.append(special.astype(np.int64))
            segments.append(special_segments.astype(np.int64))
            free.append(np.zeros(len(special), dtype=np.bool_))
            starts.append(np.ones(len(special), dtype=np.bool_))
            if at < len(texts):
                ids.append(texts[at].ids)
                segments.append(np.full(len(texts[at].ids), frame.segments[at]))
                free.append(texts[at].is_text & ~loader.is_special[texts[at].ids])
                starts.append(texts[at].word_starts)
        joined = np.concatenate
        return TokenSequence(joined(ids), joined(segments), joined(free), joined(starts), int(row["label"]))

    def corrupted(self, number: int, sequence: TokenSequence) -> Corrupted:
        loader = self.loader
        draws = Draws(loader.seed, loader.mask_epoch(self.number), number)
        return loader.corruption(sequence, draws, loader.config, loader.vocabulary)


def _batch_boundaries(lengths: Numbers, budget: int) -> Numbers:
    """Where batches begin, and the end: as many sequences as the budget takes."""
    ends, cuts = np.cumsum(lengths), [0]
    while cuts[-1] < len(lengths):
        used = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        cuts.append(int(np.searchsorted(ends, used + budget, side="right")))
    return np.array(cuts)
