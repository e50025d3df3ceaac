"""Word-similarity sets: how well the cosines of a model's word vectors agree with what people say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertworks.errors import BadText
from bertworks.files import read_file
from bertworks.inspect.atlas import LoadedModel
from bertworks.inspect.clusters import unit
from bertworks.inspect.contexts import Context, SentenceSample, read_context, word_pattern
from bertworks.inspect.marking import context_words
from bertworks.inspect.word_map import Array, static_vector, word_states
from bertworks.measure.metrics import average_ranks, correlation
from bertworks.tasks.inference import Progress, no_progress
from bertworks.text.sentences import split_sentences

N_CONTEXTS = 20  # of each word
MIN_PAIRS = 4
Pair = tuple[str, str, float]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PairScore:
    """Spearman's correlation with the judgements, with its 95 % interval."""

    vectors: str  # "static", or the number of a layer
    spearman: float
    low: float
    high: float
    n_pairs: int


@dataclass(frozen=True)
class PairScores:
    scores: tuple[PairScore, ...]  # static, then the layers from the embeddings on
    n_left_out: int  # pairs with a word that the corpus does not have
    n_contexts: int  # of all words together

    def as_dict(self) -> dict[str, Any]:
        rows = [vars(score) for score in self.scores]
        return {"scores": rows, "pairs_left_out": self.n_left_out, "contexts": self.n_contexts}


def read_pairs(path: Path) -> list[Pair]:
    """Lines of two words and a number, between tabs or spaces; lines that begin with # are remarks."""
    pairs: list[Pair] = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = line.split()
        try:
            first, second, value = cells[0], cells[1], float(cells[2])
        except (IndexError, ValueError):
            remedy = "a line for each pair: two words and a number"
            raise BadText("no pair of words", place=f"{path}, line {number}", remedy=remedy, code="bad-pair") from None
        pairs.append((first.lower(), second.lower(), value))
    if len(pairs) < MIN_PAIRS:
        remedy = "a line for each pair: two words and a number"
        raise BadText(f"fewer than {MIN_PAIRS} pairs", place=str(path), remedy=remedy, code="too-few-pairs")
    return pairs


def _text(path: Path) -> str:
    try:
        return read_file(path).decode()
    except UnicodeDecodeError:
        raise BadText("not UTF-8", place=str(path), remedy="save it as UTF-8", code="not-utf8") from None


def score_pairs(
    model: LoadedModel,
    pairs: Sequence[Pair],
    texts: Iterable[str] | None = None,
    *,
    contexts: int = N_CONTEXTS,
    progress: Progress = no_progress,
) -> PairScores:
    """Of embeddings, and of each layer the mean over up to so many contexts of a word; without texts, the word alone is
    its context. Vectors are compared less the mean of all tokens."""
    names = sorted({word for first, second, _ in pairs for word in (first, second)})
    contexts_of = _alone(model, names) if texts is None else _in_texts(model, names, texts, contexts)
    known = [pair for pair in pairs if contexts_of.get(pair[0]) and contexts_of.get(pair[1])]
    if len(known) < MIN_PAIRS:
        cause = f"the text has both words of {len(known)} pairs only"
        raise BadText(cause, remedy="more text", code="too-few-pairs")
    all_contexts = [context for name in names for context in contexts_of.get(name, [])]
    layers, means = word_states(model, all_contexts, progress)
    owners = np.array([at for at, name in enumerate(names) for _ in contexts_of.get(name, [])])
    index = {name: at for at, name in enumerate(names)}
    rows = np.array([[index[first], index[second]] for first, second, _ in known])
    human_scores = np.array([value for _, _, value in known])
    scores = (
        [_score("static", table, rows, human_scores)]
        if (table := _static(model, names, contexts_of)) is not None
        else []
    )
    for number, (layer, mean) in enumerate(zip(layers, means, strict=True)):
        scores.append(_score(str(number), _means(layer - mean, owners, len(names)), rows, human_scores))
    return PairScores(tuple(scores), len(pairs) - len(known), len(all_contexts))


def _alone(model: LoadedModel, names: Sequence[str]) -> dict[str, list[Context]]:
    contexts = {}
    for name in names:
        match = word_pattern(name).search(name)
        context = None if match is None else read_context(model.tokenizer, model.limit, name, match)
        contexts[name] = [] if context is None else [context]
    return contexts


def _in_texts(model: LoadedModel, names: Sequence[str], texts: Iterable[str], n: int) -> dict[str, list[Context]]:
    samples = {name: SentenceSample(n) for name in names}
    patterns = {name: word_pattern(name) for name in names}
    names_by_key: dict[str, list[str]] = {}
    for name in names:
        names_by_key.setdefault(max(_keys(name), key=len), []).append(name)
    for text in texts:
        for paragraph in text.split("\n"):
            if names_by_key.keys().isdisjoint(_keys(paragraph)):
                continue
            for sentence in split_sentences(paragraph):
                for name in (name for key in names_by_key.keys() & _keys(sentence) for name in names_by_key[key]):
                    match = patterns[name].search(sentence)
                    if match is not None:
                        samples[name].offer(
                            sentence, partial(read_context, model.tokenizer, model.limit, sentence, match)
                        )
    return {name: sample.contexts for name, sample in samples.items()}


def _keys(text: str) -> set[str]:
    """A text with a word has all keys of that word, so that few patterns are tried: words, of Chinese the pairs of
    neighbouring characters, and characters."""
    return {*context_words(text), *text.lower()}


def _static(model: LoadedModel, names: Sequence[str], contexts_of: dict[str, list[Context]]) -> Floats | None:
    """(words, D), less their mean; None where a model's embeddings have another size than its states."""
    vectors = [static_vector(model, contexts_of[name][0].ids) if contexts_of.get(name) else None for name in names]
    known = [vector for vector in vectors if vector is not None]
    if not known:
        return None
    mean = np.mean(known, axis=0)
    return np.stack([np.zeros(len(mean)) if vector is None else vector - mean for vector in vectors]).astype(np.float64)


def _means(vectors: Array, owners: NDArray[np.int64], n: int) -> Floats:
    sums = np.zeros((n, vectors.shape[1]))
    np.add.at(sums, owners, vectors)
    means: Floats = sums / np.maximum(np.bincount(owners, minlength=n), 1)[:, None]
    return means


def _score(name: str, table: Floats, rows: NDArray[np.int64], human_scores: Floats) -> PairScore:
    vectors = unit(table)
    cosines = (vectors[rows[:, 0]] * vectors[rows[:, 1]]).sum(1)
    value = correlation(average_ranks(cosines), average_ranks(human_scores))
    return PairScore(name, value, *spearman_interval(value, len(human_scores)), len(human_scores))


def spearman_interval(value: float, n: int) -> tuple[float, float]:
    """By Fisher's z, with the variance of Bonett & Wright (2000)."""
    z = np.arctanh(np.clip(value, -0.999999, 0.999999))
    reach = 1.96 * np.sqrt((1 + value**2 / 2) / (n - 3))
    return float(np.tanh(z - reach)), float(np.tanh(z + reach))
