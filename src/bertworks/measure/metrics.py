"""Metrics as the papers have them; each is compared with its official scorer in the tests.

A metric is a function of each example's scores, one row of numbers, so that rows can be drawn again for an interval. It
is NaN where the examples cannot show it, such as F1 of a class that neither occurs nor is predicted; `nan_to_zero`
makes 0 of that, as the official scorers do.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from math import inf
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from bertworks.text.words import CJK

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]
MetricValues = dict[str, float]
Item = tuple[str, Hashable]
"""Something that is predicted: its class, and what tells it from others of that class."""
TAG = re.compile(r"([BIOESMLU])(?:[-_](.+))?")
BILOU = {"L": "E", "U": "S"}  # its names of last and only
WITHOUT_SPACES = re.compile(f"[{CJK}]")
ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)


@dataclass(frozen=True)
class Metric:
    """What is said of a metric wherever it is shown."""

    name: str
    title: tuple[str, str]  # English, Chinese
    higher_is_better: bool = True
    lowest: float = 0.0
    highest: float = 1.0
    is_percentage: bool = True

    def format(self, value: float) -> str:
        return f"{value:.1%}" if self.is_percentage else f"{value:.3f}"

    def format_std(self, value: float) -> str:
        return f"{value * 100:.1f}" if self.is_percentage else f"{value:.3f}"


def _correlation(name: str, english: str, chinese: str) -> Metric:
    return Metric(name, (english, chinese), lowest=-1.0, is_percentage=False)


ACCURACY = Metric("accuracy", ("accuracy", "准确率"))
F1 = Metric("f1", ("F1", "F1"))
F1_MACRO = Metric("f1_macro", ("macro F1", "宏平均 F1"))
MATTHEWS = _correlation("matthews", "Matthews correlation", "马修斯相关系数")
PEARSON_SPEARMAN = _correlation("pearson_spearman", "mean of Pearson and Spearman", "皮尔逊与斯皮尔曼的平均")
PEARSON = _correlation("pearson", "Pearson correlation", "皮尔逊相关系数")
SPEARMAN = _correlation("spearman", "Spearman correlation", "斯皮尔曼相关系数")
MAE = Metric("mae", ("mean absolute error", "平均绝对误差"), higher_is_better=False, highest=inf, is_percentage=False)
ENTITY_F1 = Metric("entity_f1", ("entity F1", "实体 F1"))
PRECISION = Metric("precision", ("precision", "精确率"))
RECALL = Metric("recall", ("recall", "召回率"))
TAG_ACCURACY = Metric("tag_accuracy", ("tag accuracy", "标签准确率"))
EXACT = Metric("exact", ("exact match", "完全匹配"))
METRICS = {
    metric.name: metric
    for metric in (
        ACCURACY,
        F1,
        F1_MACRO,
        MATTHEWS,
        PEARSON_SPEARMAN,
        PEARSON,
        SPEARMAN,
        MAE,
        ENTITY_F1,
        PRECISION,
        RECALL,
        TAG_ACCURACY,
        EXACT,
    )
}


@dataclass(frozen=True)
class ClassCounts:
    """Of one class, over all examples."""

    true_positives: int
    support: int  # how often it occurs
    predicted: int

    @property
    def precision(self) -> float:
        return self.true_positives / max(1, self.predicted)

    @property
    def recall(self) -> float:
        return self.true_positives / max(1, self.support)

    @property
    def f1(self) -> float:
        return 2 * self.true_positives / max(1, self.support + self.predicted)


def count_classes(pairs: Iterable[tuple[Set[Item], Set[Item]]]) -> dict[str, ClassCounts]:
    """`pairs`: what is right in an example, and what was predicted."""
    hits, support, predicted = Counter[str](), Counter[str](), Counter[str]()
    for right, said in pairs:
        hits.update(name for name, _ in right & said)
        support.update(name for name, _ in right)
        predicted.update(name for name, _ in said)
    return {name: ClassCounts(hits[name], support[name], predicted[name]) for name in sorted(support | predicted)}


def class_metrics(truth: Floats, predicted: Floats, n_classes: int) -> MetricValues:
    """Accuracy, F1 (of the second class if there are two, else the mean over classes), and Matthews' correlation;
    classes by number."""
    right = truth == predicted
    hits, support, found = (
        np.bincount(classes.astype(np.int64), minlength=n_classes) for classes in (truth[right], truth, predicted)
    )
    f1 = class_f1(hits, support + found)
    return {
        "accuracy": float(right.mean()),
        "f1": float(f1[1]) if n_classes == 2 else mean_f1(f1),
        "matthews": matthews(int(right.sum()), support, found),
    }


def nan_to_zero(values: MetricValues) -> MetricValues:
    """With 0 for what the examples cannot show."""
    return {name: 0.0 if np.isnan(value) else value for name, value in values.items()}


def confusion(truth: Floats, predicted: Floats, n_classes: int) -> Counts:
    """(right class, predicted class)."""
    places = truth.astype(np.int64) * n_classes + predicted.astype(np.int64)
    return np.bincount(places, minlength=n_classes**2).reshape(n_classes, n_classes)


def class_f1(hits: Counts, both: Counts) -> Floats:
    """Of each class. `both`: how often it occurs plus how often it is predicted; where that is never, there is none."""
    found: Floats = np.divide(2 * hits, both, out=np.full(len(both), np.nan), where=both > 0)
    return found


def mean_f1(found: Floats) -> float:
    """Over the classes that have one. Others say nothing about a model, and examples drawn again often miss a rare
    class."""
    known = found[~np.isnan(found)]
    return float(known.mean()) if len(known) else np.nan


def matthews(n_right: int, support: Counts, predicted: Counts) -> float:
    """Matthews' correlation for any number of classes (Gorodkin 2004), from how many are right, and how often each
    class occurs and is predicted; 0 where only one is predicted, unknown where only one occurs."""
    n, occurring, predicting = float(support.sum()), support.astype(np.float64), predicted.astype(np.float64)
    truth_spread, predicted_spread = n**2 - occurring @ occurring, n**2 - predicting @ predicting
    if truth_spread <= 0:
        return np.nan
    return (
        float((n_right * n - predicting @ occurring) / np.sqrt(predicted_spread * truth_spread))
        if predicted_spread > 0
        else 0.0
    )


def regression_metrics(truth: Floats, predicted: Floats) -> MetricValues:
    pearson, spearman = correlation(truth, predicted), correlation(average_ranks(truth), average_ranks(predicted))
    return {
        "pearson_spearman": (pearson + spearman) / 2,
        "pearson": pearson,
        "spearman": spearman,
        "mae": float(np.abs(truth - predicted).mean()),
    }


def correlation(a: Floats, b: Floats) -> float:
    """Pearson's; 0 where one of the two never changes."""
    a, b = a - a.mean(), b - b.mean()
    spread = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / spread) if spread > 0 else 0.0


def average_ranks(values: Floats) -> Floats:
    """From 1; equal values share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[which]


def multilabel_metrics(truth: Flags, predicted: Flags) -> MetricValues:
    """(B, C) each: micro and macro F1, and how many examples are right in every class."""
    hits, both = (truth & predicted).sum(0), truth.sum(0) + predicted.sum(0)
    micro = 2 * hits.sum() / both.sum() if both.sum() else np.nan
    return {
        "f1": float(micro),
        "f1_macro": mean_f1(class_f1(hits, both)),
        "exact": float((truth == predicted).all(1).mean()),
    }


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """(kind, first, last) of each stretch of words with one name, for BIO, BIOES, BMES, BILOU and names alone.

    As the CoNLL scorer does: a stretch begins at B, S, or where the kind changes or nothing was open, and ends at E, S
    or before the next.
    """
    found, kind, first, ended = [], "", 0, True
    for at, tag in enumerate([*tags, "O"]):
        sign, name = prefix_and_type(tag)
        begins = sign in ("B", "S") or (sign != "O" and (ended or name != kind))
        if not ended and (sign == "O" or begins):
            found.append((kind, first, at - 1))
            ended = True
        if sign != "O" and begins:
            kind, first, ended = name, at, False
        if sign in ("E", "S"):
            found.append((kind, first, at))
            ended = True
    return found


def prefix_and_type(tag: str) -> tuple[str, str]:
    """Where in a stretch a word stands, and of which kind it is; a tag that says only the kind may be anywhere in
    it."""
    parts = TAG.fullmatch(tag)
    return (BILOU.get(parts[1], parts[1]), parts[2] or "_") if parts else ("I", tag)


def mark_entities(tags: Sequence[str]) -> bool:
    """Whether these tags say where something begins and ends, or at least where nothing is; parts of speech do not."""
    return "O" in tags or all(TAG.fullmatch(tag) for tag in tags)


def entity_counts(truth: Sequence[str], predicted: Sequence[str]) -> tuple[int, int, int, int, int]:
    """Of a sentence: entities with the right ends and kind, all there are, all that were found; words with the right
    tag, all words."""
    right, found = set(entities(truth)), set(entities(predicted))
    return (
        len(right & found),
        len(right),
        len(found),
        sum(a == b for a, b in zip(truth, predicted, strict=True)),
        len(truth),
    )


def entity_metrics(scores: Floats) -> MetricValues:
    """Sums of what `entity_counts` says."""
    hits, right, found, same, words = scores.sum(0).tolist()
    return {
        "entity_f1": 2 * hits / (right + found) if right or found else np.nan,
        "precision": hits / found if found else 0.0,
        "recall": hits / right if right else 0.0,
        "tag_accuracy": same / max(1, words),
    }


def answer_scores(answers: Sequence[str], predicted: str) -> tuple[float, float]:
    """F1 and exact match by SQuAD's rules: case, punctuation and articles do not count, the best of all right answers
    does; "" is right if there is none."""
    right = answers or [""]
    exact = any(normalized_answer(answer) == normalized_answer(predicted) for answer in right)
    return max(answer_f1(answer, predicted) for answer in right), float(exact)


def normalized_answer(answer: str) -> str:
    """What SQuAD's rules leave of an answer. Where it is Chinese or Japanese, each character is a word, and their
    punctuation does not count."""
    is_cjk = WITHOUT_SPACES.search(answer) is not None
    kept = "".join(
        character
        for character in answer.lower()
        if character not in string.punctuation and not (is_cjk and category(character)[0] == "P")
    )
    return " ".join(ARTICLES.sub(" ", WITHOUT_SPACES.sub(r" \g<0> ", kept)).split())


def answer_f1(answer: str, predicted: str) -> float:
    a, b = normalized_answer(answer).split(), normalized_answer(predicted).split()
    common = sum((Counter(a) & Counter(b)).values())
    if not a or not b:
        return float(a == b)
    return 2 * common / (len(a) + len(b)) if common else 0.0
