"""What gives the name of a same-word head a meaning: without such heads, words that recur in a text are predicted worse
than they were, more so than words that do not recur, and more so than without other heads of the same layers.

A word that recurs is compared with one of the same text that does not: as frequent, and of as many pieces. Both are
hidden; the other occurrences are not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from bertworks.inspect.evidence import Evidence
from bertworks.inspect.importance import MIN_DOCUMENTS
from bertworks.inspect.measures import MASK_RATE, LanguageLoss
from bertworks.inspect.passages import Passage
from bertworks.inspect.relations import FREQUENCY_TOLERANCE, N_COMMON, InspectedText, same_word
from bertworks.inspect.replacing import AblatedModel, Head
from bertworks.inspect.units import Floats, WordTypes
from bertworks.tasks.inference import Progress, no_progress

N_OTHER_SETS = 10  # of as many other heads of the same layers
MIN_TYPES = 30  # of words that recur
Z = 1.96
Interval = tuple[float, float, float]  # mean, low, high


@dataclass(frozen=True)
class WordPair:
    """Two words of a text, as the tokens that are to be predicted."""

    type: int  # of the word that recurs
    recurring: range
    single: range


@dataclass(frozen=True)
class RecurrenceCheck:
    """Losses are those of a word: the sum over its pieces."""

    heads: tuple[Head, ...]  # those that look at the same word
    n_pairs: int
    n_types: int
    n_documents: int
    n_other_sets: int
    loss: tuple[float, float]  # of words that recur, and of those that do not
    change: tuple[float, float]  # the same, without the heads
    other_change: tuple[float, float]  # the same, without other heads
    difference: Interval  # how much more the former lose
    against_others: Interval  # by how much that is more than without other heads
    n_as_large: int  # sets of other heads without which the difference is as large

    @property
    def is_confirmed(self) -> bool:
        return self.difference[1] > 0 and self.against_others[1] > 0


def matched_words(text: InspectedText, n_tokens: int) -> list[WordPair]:
    """Each word that recurs, at its last place, with the nearest in frequency of those that do not."""
    units = text.units
    is_content = units.is_word & ~units.is_punctuation & (text.types >= N_COMMON) & (units.starts > 0)
    recurs = is_content & same_word(text).any(1)
    counts = {kind: int((text.types == kind).sum()) for kind in np.unique(text.types).tolist()}
    single = [unit for unit in np.flatnonzero(is_content).tolist() if counts[int(text.types[unit])] == 1]
    pairs: list[WordPair] = []
    room = MASK_RATE * n_tokens
    for unit in {int(text.types[unit]): unit for unit in np.flatnonzero(recurs).tolist()}.values():
        distances = {
            other: abs(float(text.log_counts[other] - text.log_counts[unit]))
            for other in single
            if units.n_pieces[other] == units.n_pieces[unit]
        }
        best = min(distances, key=lambda other: (distances[other], other), default=None)
        size = 2 * int(units.n_pieces[unit])
        if best is None or distances[best] > FREQUENCY_TOLERANCE or size > room:
            continue
        room -= size
        single.remove(best)
        tokens = [range(int(units.starts[at]), int(units.starts[at] + units.n_pieces[at])) for at in (unit, best)]
        pairs.append(WordPair(int(text.types[unit]), *tokens))
    return pairs


def other_sets(heads: Sequence[Head], unnamed: Collection[Head], n: int = N_OTHER_SETS) -> list[tuple[Head, ...]]:
    """Different sets of heads without a name, as many of each layer as `heads` has; fewer, where there are not as many;
    none, where a layer has too few."""
    rng = np.random.default_rng(0)
    sets: set[tuple[Head, ...]] = set()
    for _ in range(20 * n):
        chosen: list[Head] = []
        for layer in sorted({layer for layer, _ in heads}):
            wanted = sum(own == layer for own, _ in heads)
            candidates = sorted(head for head in unnamed if head[0] == layer)
            if len(candidates) < wanted:
                return []
            chosen += [candidates[at] for at in sorted(rng.permutation(len(candidates))[:wanted].tolist())]
        sets.add(tuple(chosen))
        if len(sets) == n:
            break
    return sorted(sets)


def check_recurrence(
    ablated: AblatedModel,
    passages: Sequence[Passage],
    words: WordTypes,
    heads: Sequence[Head],
    unnamed: Collection[Head],
    progress: Progress = no_progress,
) -> RecurrenceCheck | str:
    """Of the heads that look at the same word, against sets of `unnamed` ones; a text: why it cannot be measured."""
    measure = ablated.measure
    if not isinstance(measure, LanguageLoss):
        return "cannot be measured: the model predicts no words"
    if not heads:
        return "no head is named for the same word"
    others = other_sets(heads, unnamed)
    if not others:
        return "cannot be measured: too few heads without a name in these layers"
    causal = bool(getattr(ablated.model.config.encoder, "causal", False))
    matched = []
    for passage in passages:
        text = InspectedText.of(passage.units, words, passage.document, causal=causal)
        if pairs := matched_words(text, len(passage.tokens.ids)):
            targets = sorted(target for pair in pairs for target in (*pair.recurring, *pair.single))
            matched.append((pairs, targets, measure.predicted(passage, targets)))
    n_documents = len({scored.document for _, _, scored in matched})
    if len({pair.type for pairs, _, _ in matched for pair in pairs}) < MIN_TYPES or n_documents < MIN_DOCUMENTS:
        return "not enough text"
    differences = Evidence()  # (sets,): by how much words that recur lose more
    losses, changes = [], []  # (2,) and (sets, 2) of each pair
    results = ablated.changes([scored for _, _, scored in matched], [tuple(heads), *others], progress)
    for (pairs, targets, scored), (loss, change) in zip(matched, results, strict=True):
        for pair in pairs:
            rows = [[targets.index(target) for target in word] for word in (pair.recurring, pair.single)]
            losses.append([loss[own].sum() for own in rows])
            changes.append(np.stack([change[:, own].sum(1) for own in rows], axis=1))
            lost_more = changes[-1][:, 0] - changes[-1][:, 1]
            differences.add(np.array([pair.type]), scored.document, lost_more[None])
    return _conclude(tuple(heads), differences, np.array(losses), np.array(changes))


def _conclude(heads: tuple[Head, ...], differences: Evidence, losses: Floats, changes: Floats) -> RecurrenceCheck:
    """`losses` (pairs, 2), `changes` (pairs, sets, 2), the heads' own set first."""
    n_others = changes.shape[1] - 1
    own = np.eye(1 + n_others)[0]
    others = (1 - own) / n_others
    means = differences.means
    mean_changes = changes.mean(0)

    def interval(weights: Floats) -> Interval:
        """By the larger of the errors over types and over documents."""
        groups = [group.means @ weights for group in (differences.types, differences.documents)]
        width = Z * max(float(values.std(ddof=1)) / len(values) ** 0.5 for values in groups)
        mean = float(means @ weights)
        return mean, mean - width, mean + width

    def both(values: Floats) -> tuple[float, float]:
        return float(values[0]), float(values[1])

    return RecurrenceCheck(
        heads=heads,
        n_pairs=len(losses),
        n_types=len(differences.types),
        n_documents=len(differences.documents),
        n_other_sets=n_others,
        loss=both(losses.mean(0)),
        change=both(mean_changes[0]),
        other_change=both(mean_changes[1:].mean(0)),
        difference=interval(own),
        against_others=interval(own - others),
        n_as_large=int((means[1:] >= means[0]).sum()),
    )
