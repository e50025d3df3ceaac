"""Ragged pre-training batches with a token budget, with random access to any batch of any epoch, the same for every
number of workers and machines.

A cursor in the training is a pair, (epoch, batch): a resume starts there at once, without replaying what came before.
(Epochs differ a little in their number of batches, so a count of steps alone is not enough.)

The examples of an epoch are shuffled, sorted by length within windows so that a batch holds similar lengths, split into
batches where the token budget is full, and the batches are shuffled. That takes one pass over the lengths of the
examples; after it the cost of a batch does not depend on its number.
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
# In evaluation all targets are masked: if a tenth stayed unchanged, a model that ignores the context could copy them
# and would score too well.
EVALUATION_MASKING = {"masking": "token", "mask_rate": 0.15, "mask_share": 1.0, "random_share": 0.0, "mask_epochs": 1}
EVALUATION_SEED = 20_181_011


@dataclass(frozen=True)
class PretrainBatch:
    """A flat batch: sequences are concatenated, nothing is padded."""

    ids: Numbers  # (N,) what the model sees
    segments: Numbers  # (N,)
    lengths: Numbers  # (B,)
    targets: Numbers  # (M,) positions to predict
    labels: Numbers  # (M,) the original tokens there
    pairs: Numbers  # (B,) 0 in order, 1 random or swapped, -1 no pair
    examples: Numbers  # (B,) their numbers in the epoch
    ranks: Numbers | None = None  # (N,) permuted: order of prediction
    uniforms: NDArray[np.float64] | None = (
        None  # (M,) replaced: a random number per target, to sample its replacement with
    )


class Loader:
    """Batches from shards, with the corruption of the objective."""

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
            config = config.model_copy(update=EVALUATION_MASKING)
            seed = EVALUATION_SEED
        if batch_tokens < config.max_length:
            cause = f"batch_tokens = {batch_tokens} is less than max_length = {config.max_length}"
            raise BadConfig(cause, code="batch-too-small")
        manifest = shards.manifest
        if config.pairs in ("nsp", "sop") and not len(shards.tokenizer.pair_template.parts[1][0]):
            cause = "this tokenizer has no separator between the texts of a pair"
            raise Unsupported(cause, remedy="set data.pairs=none or data.pairs=stream", code="no-pair-separator")
        if (
            "masking" in corruption.uses
            and SPAN_LENGTHS[config.masking].words
            and manifest.counts.han_documents
            and manifest.segmenter is None
        ):
            remedy = "prepare them again with --words auto, or set data.masking=token"
            cause = "Chinese text without word boundaries (prepared with --words char)"
            raise BadShards(cause, place=str(shards.folder), remedy=remedy, code="no-word-boundaries")
        self.shards = shards
        self.config = config
        self.corruption = corruption
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.split = split
        self.cache = cache
        tokenizer = shards.tokenizer
        self.template = tokenizer.pair_template if config.pairs in ("nsp", "sop") else tokenizer.template
        self.separator_id = tokenizer.id_of("sep") if "sep" in tokenizer.special else None
        self.is_special = tokenizer.special_ids()
        mask_id = tokenizer.id_of("mask") if corruption.needs_mask_token else -1
        self.vocabulary = Vocabulary(mask_id, np.flatnonzero(~self.is_special))

    def epoch(self, number: int) -> Epoch:
        plan = make_plan(self.shards, self.config, self.split, self.seed, self.mask_epoch(number), self.cache)
        return Epoch(self, number, plan)

    def mask_epoch(self, epoch: int) -> int:
        """The epoch whose random numbers this one uses: with `mask_epochs` they repeat."""
        return epoch % self.config.mask_epochs if self.config.mask_epochs else epoch


class Epoch:
    """The batches of one epoch, by number."""

    def __init__(self, loader: Loader, number: int, plan: Plan) -> None:
        self.loader = loader
        self.number = number
        self.plan = plan
        self.is_stream = loader.config.pairs == "stream"
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
        """The numbers of the examples in a batch."""
        index = self.batch_order[batch]
        return self.order[self.boundaries[index] : self.boundaries[index + 1]]

    def __getitem__(self, batch: int) -> PretrainBatch:
        if not 0 <= batch < len(self):
            raise IndexError(batch)
        return self.gather(self.examples_of(batch))

    def gather(self, example_ids: Sequence[int] | Numbers) -> PretrainBatch:
        """Collate any examples. The corruption of each depends on its own number only, not on the rest of the batch."""
        examples = [self.example(int(id)) for id in example_ids]
        corrupted = [self.corrupted(int(id), example) for id, example in zip(example_ids, examples, strict=True)]
        lengths = np.array([len(example.ids) for example in examples], dtype=np.int64)
        starts = np.cumsum(lengths) - lengths
        targets = [sequence.targets + start for sequence, start in zip(corrupted, starts, strict=True)]
        labels = [example.ids[sequence.targets] for example, sequence in zip(examples, corrupted, strict=True)]
        ranks = [sequence.ranks for sequence in corrupted if sequence.ranks is not None]
        uniforms = [sequence.uniforms for sequence in corrupted if sequence.uniforms is not None]
        return PretrainBatch(
            ids=np.concatenate([sequence.ids for sequence in corrupted]),
            segments=np.concatenate([example.segments for example in examples]),
            lengths=lengths,
            targets=np.concatenate(targets),
            labels=np.concatenate(labels),
            pairs=np.array([example.label for example in examples], dtype=np.int64),
            examples=np.array(example_ids, dtype=np.int64),
            ranks=np.concatenate(ranks) if ranks else None,
            uniforms=np.concatenate(uniforms) if uniforms else None,
        )

    def example(self, number: int) -> TokenSequence:
        """An example with its special tokens, before its corruption."""
        loader = self.loader
        template = loader.template
        row = self.plan.examples[number]
        separator = loader.separator_id if row["breaks"] else None
        texts = [loader.shards.token_range(int(row["a"]), int(row["a_size"]), separator, leading=self.is_stream)]
        if row["label"] != NO_LABEL:
            texts.append(loader.shards.token_range(int(row["b"]), int(row["b_size"])))
        ids, segments, maskable, word_starts = [], [], [], []
        for i, (special_ids, special_segments) in enumerate(template.parts):
            ids.append(special_ids.astype(np.int64))
            segments.append(special_segments.astype(np.int64))
            maskable.append(np.zeros(len(special_ids), dtype=np.bool_))
            word_starts.append(np.ones(len(special_ids), dtype=np.bool_))
            if i < len(texts):
                ids.append(texts[i].ids)
                segments.append(np.full(len(texts[i].ids), template.segments[i]))
                maskable.append(texts[i].is_text & ~loader.is_special[texts[i].ids])
                word_starts.append(texts[i].word_starts)
        return TokenSequence(
            ids=np.concatenate(ids),
            segments=np.concatenate(segments),
            maskable=np.concatenate(maskable),
            word_starts=np.concatenate(word_starts),
            label=int(row["label"]),
        )

    def corrupted(self, number: int, sequence: TokenSequence) -> Corrupted:
        loader = self.loader
        draws = Draws(loader.seed, loader.mask_epoch(self.number), number)
        return loader.corruption(sequence, draws, loader.config, loader.vocabulary)


def _batch_boundaries(lengths: Numbers, budget: int) -> Numbers:
    """The index at which each batch begins, and the end: as many sequences as fit into the token budget."""
    ends = np.cumsum(lengths)
    boundaries = [0]
    while boundaries[-1] < len(lengths):
        tokens_before = int(ends[boundaries[-1] - 1]) if boundaries[-1] else 0
        boundaries.append(int(np.searchsorted(ends, tokens_before + budget, side="right")))
    return np.array(boundaries)
