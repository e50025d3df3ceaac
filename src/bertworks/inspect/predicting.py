"""Which word of a sentence predicts another: by a language model from which words are hidden, or by counting.

    d_ij = log p(w_i | i hidden) - log p(w_i | i and j hidden)

What j tells about i, whole words hidden (cf. Perturbed Masking, Wu et al. 2020). Masked models hide a word under mask
tokens; XLNet has a query stream that does not see its own word, and hides others by their rank; so do left-to-right
models, of whose past j is taken away. Without a language head, words that go together are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from bertworks.inspect.passages import Passage
from bertworks.inspect.related import MAX_WORDS, pair_counts
from bertworks.inspect.relations import InspectedText
from bertworks.inspect.units import Bools, Floats, Numbers
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.weights import as_numpy
from bertworks.tasks.inference import Progress, token_batches

TARGETS_PER_SENTENCE = 8
COUNTED_DISTANCE = 5  # words to either side
MIN_PAIRS = 5  # that were seen, for a pair to be counted
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class HidingModel:
    """A model with a language head, and how words are hidden from it."""

    model: Model
    mask_id: int | None  # None: words are hidden by their ranks
    by: str

    @property
    def has_query_stream(self) -> bool:
        return bool(getattr(self.model.config.encoder, "has_two_streams", False))

    @property
    def is_causal(self) -> bool:
        return bool(getattr(self.model.config.encoder, "causal", False))


@dataclass(frozen=True)
class HiddenText:
    """A sentence with hidden pieces, of which some are to be predicted."""

    ids: Sequence[int]
    segments: Sequence[int]
    hidden: Sequence[int]
    targets: Sequence[int]


@torch.inference_mode()
def log_probabilities(hiding: HidingModel, texts: Sequence[HiddenText], progress: Progress) -> Floats:
    """Of the hidden targets of each text, together."""
    totals = np.zeros(len(texts))
    n_done = 0
    for members in token_batches([len(text.ids) for text in texts], BATCH_TOKENS):
        batch = [texts[member] for member in members]
        states, labels = _target_states(hiding, batch)
        of_targets = hiding.model.read("lm", states).log_softmax(-1).gather(1, labels[:, None])[:, 0]
        owners = np.repeat(members, [len(text.targets) for text in batch])
        np.add.at(totals, owners, as_numpy(of_targets))
        n_done += len(members)
        progress(n_done, len(texts))
    return totals


def _target_states(hiding: HidingModel, batch: Sequence[HiddenText]) -> tuple[Tensor, Tensor]:
    """What predicts each target, and its id."""
    encoder = hiding.model.encoder
    starts = [0, *accumulate(len(text.ids) for text in batch)]
    ids = torch.tensor([id for text in batch for id in text.ids], device=encoder.device)
    segments = torch.tensor([segment for text in batch for segment in text.segments], device=encoder.device)
    positions, hidden = (
        torch.tensor(
            [start + at for start, text in zip(starts, batch, strict=False) for at in getattr(text, name)],
            dtype=torch.long,
            device=encoder.device,
        )
        for name in ("targets", "hidden")
    )
    lengths = [len(text.ids) for text in batch]
    labels = ids[positions]
    if hiding.mask_id is not None:
        tokens = Tokens.ragged(ids.index_fill(0, hidden, hiding.mask_id), lengths, segments)
        return encoder(tokens).last[positions], labels
    if hiding.has_query_stream:
        tokens = Tokens.ragged(ids, lengths, segments)
        ranks = torch.full_like(ids, -1).index_fill(0, hidden, 0)
        return encoder.two_stream(tokens, ranks, positions, [len(text.targets) for text in batch]), labels
    # Taken out: a state that reads the word before a target reads that word whatever is hidden.
    kept = torch.ones_like(ids, dtype=torch.bool).index_fill(0, hidden, False)
    places = kept.cumsum(0) - 1
    lengths = [len(text.ids) - len(text.hidden) for text in batch]
    past = Tokens.ragged(ids[kept], lengths, segments[kept])
    return encoder(past).last[places[positions] - 1], labels


@dataclass(frozen=True)
class Predictors:
    """Of some words of a sentence, which other word tells most about them."""

    pairs: Bools  # (U, U), at most one key for a query
    gains: Floats  # of these words: by how much they are predicted better than by their frequency, nats


def find_predictors(
    hiding: HidingModel,
    passages: Sequence[Passage],
    texts: Sequence[InspectedText],
    n_words: float,
    min_effect: float,
    rng: np.random.Generator,
    progress: Progress,
) -> list[Predictors]:
    """`n_words`: of the corpus, for frequencies; `min_effect`: what the other word tells, at least, nats."""
    chosen = [_chosen_targets(hiding, text, rng) for text in texts]
    variants: list[HiddenText] = []
    for passage, text, targets in zip(passages, texts, chosen, strict=True):
        variants += [variant for target in targets for variant in _variants(hiding, passage, text, int(target))]
    values = iter(log_probabilities(hiding, variants, progress))
    predictors = []
    for text, targets in zip(texts, chosen, strict=True):
        pairs = np.zeros((len(text.units), len(text.units)), bool)
        gains = []
        for target in targets.tolist():
            alone = next(values)
            keys = np.flatnonzero(text.ordinary[target])
            effects = alone - np.array([next(values) for _ in keys])
            gains.append(alone - (text.log_counts[target] * np.log(2) - np.log(n_words)))
            if effects.max() >= min_effect:
                pairs[target, keys[effects.argmax()]] = True
        predictors.append(Predictors(pairs, np.array(gains)))
    return predictors


def _chosen_targets(hiding: HidingModel, text: InspectedText, rng: np.random.Generator) -> Numbers:
    units = text.units
    is_target = units.is_word & ~units.is_punctuation & text.ordinary.any(1)
    if hiding.is_causal:
        is_target &= np.arange(len(units)) > 1  # without one word of its past, there is another
    return np.sort(rng.permutation(np.flatnonzero(is_target))[:TARGETS_PER_SENTENCE])


def _variants(hiding: HidingModel, passage: Passage, text: InspectedText, target: int) -> Iterator[HiddenText]:
    """The target hidden; then, with every other word."""
    tokens = passage.tokens
    own = _pieces_of(text, target)
    hidden_itself = [] if hiding.is_causal else own  # its own token is no part of the past
    yield HiddenText(tokens.ids, tokens.segments, hidden_itself, own)
    for key in np.flatnonzero(text.ordinary[target]).tolist():
        yield HiddenText(tokens.ids, tokens.segments, [*hidden_itself, *_pieces_of(text, key)], own)


def _pieces_of(text: InspectedText, unit: int) -> list[int]:
    start = int(text.units.starts[unit])
    return list(range(start, start + int(text.units.n_pieces[unit])))


# ---------------------------------------------------------------------- by counting


class OrderedPMI:
    """How much more often one word stands shortly before another than by chance: pointwise mutual information."""

    def __init__(self, documents: Sequence[Sequence[int]], n_words: int) -> None:
        self.n_words = min(n_words, MAX_WORDS)
        codes, counts = pair_counts(documents, self.n_words, COUNTED_DISTANCE)
        before = np.bincount(codes // self.n_words, counts, self.n_words)
        after = np.bincount(codes % self.n_words, counts, self.n_words)
        kept = counts >= MIN_PAIRS
        self.codes, pairs = codes[kept], counts[kept]
        chance = before[self.codes // self.n_words] * after[self.codes % self.n_words] / max(counts.sum(), 1)
        self.information = np.log(pairs / chance)

    def predictors(self, text: InspectedText, min_information: float) -> Bools:
        """(U, U): of each word the one beside it that goes with it most."""
        places = np.arange(len(text.units))
        is_near: Bools = np.abs(places[:, None] - places[None]) <= COUNTED_DISTANCE
        is_known = (text.types >= 0) & (text.types < self.n_words) & ~text.units.is_punctuation
        pairs = text.ordinary & text.within & is_near & is_known[:, None] & is_known[None]
        queries, keys = np.nonzero(pairs)
        first, second = np.minimum(queries, keys), np.maximum(queries, keys)
        information = np.full(pairs.shape, -np.inf)
        information[queries, keys] = self._of(text.types[first], text.types[second])
        best = information.argmax(1)
        is_predictor = np.zeros(pairs.shape, bool)
        has_one = np.flatnonzero(information.max(1) >= min_information)
        is_predictor[has_one, best[has_one]] = True
        return is_predictor

    def _of(self, first: Numbers, second: Numbers) -> Floats:
        if not len(self.codes):
            return np.full(len(first), -np.inf)
        codes = first * self.n_words + second
        places = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return np.where(self.codes[places] == codes, self.information[places], -np.inf)
