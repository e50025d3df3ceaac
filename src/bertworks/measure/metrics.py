"""Metrics as the papers define them; the tests compare each with its official scorer.

A metric is a function of a table with one row of numbers per example, so that rows can be resampled for an interval. It
is NaN where it is undefined, such as the F1 of a class that neither occurs nor is predicted; `nan_to_zero` replaces
that by 0, as the official scorers do.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from math import inf
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from bertworks.text.words import CJK

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
MetricValues = dict[str, float]
Item = tuple[str, Hashable]
"""Something that is predicted: its class, and what distinguishes it from others of that class."""
OUTSIDE = "O"  # the tag of words that are in no entity
TAG = re.compile(rf"([BIESMLU{OUTSIDE}])(?:[-_](.+))?")  # prefix and type, which data with one type leaves out
BILOU_TO_BIOES = {"L": "E", "U": "S"}
CJK_CHARACTER = re.compile(f"[{CJK}]")
ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)


@dataclass(frozen=True)
class Metric:
    """A metric's titles, range and format, wherever it is shown."""

    name: str
    title: tuple[str, str]  # English, Chinese
    help: tuple[str, str]  # what it is, in a few words
    higher_is_better: bool = True
    lowest: float = 0.0
    highest: float = 1.0
    is_percentage: bool = True

    def format(self, value: float) -> str:
        return f"{value:.1%}" if self.is_percentage else f"{value:.3f}"

    def format_std(self, value: float) -> str:
        return f"{value * 100:.1f}" if self.is_percentage else f"{value:.3f}"


def _correlation(name: str, title: tuple[str, str], help: tuple[str, str]) -> Metric:
    return Metric(name, title, help, lowest=-1.0, is_percentage=False)


ACCURACY = Metric("accuracy", ("accuracy", "准确率"), ("share of correct predictions", "预测正确的比例"))
F1 = Metric(
    "f1",
    ("F1", "F1"),
    ("harmonic mean of precision and recall: high only if both are", "精确率与召回率的调和平均：二者都高才会高"),
)
F1_MACRO = Metric(
    "f1_macro",
    ("macro F1", "宏平均 F1"),
    ("mean of the F1 of each class, rare ones as much as frequent ones", "各类别 F1 的平均，少见的类别同样算数"),
)
MATTHEWS = _correlation(
    "matthews",
    ("Matthews correlation", "马修斯相关系数"),
    (
        "correlation of predicted and correct classes: 1 all correct, 0 no better than chance",
        "预测类别与正确类别的相关程度：1 为全对，0 与随机猜测无异",
    ),
)
PEARSON_SPEARMAN = _correlation(
    "pearson_spearman",
    ("mean of Pearson and Spearman", "皮尔逊与斯皮尔曼的平均"),
    (
        "the mean of the two correlations, by which STS-B is compared: 1 perfect, 0 no relation",
        "两种相关系数的平均，STS-B 以此比较：1 为完全一致，0 为毫无关系",
    ),
)
PEARSON = _correlation(
    "pearson",
    ("Pearson correlation", "皮尔逊相关系数"),
    (
        "whether predicted numbers rise and fall in proportion to the correct ones",
        "预测值是否随正确值成比例地升降",
    ),
)
SPEARMAN = _correlation(
    "spearman",
    ("Spearman correlation", "斯皮尔曼相关系数"),
    ("the same of their ranks: whether the order is right", "对名次计算的相关系数：排序是否正确"),
)
MAE = Metric(
    "mae",
    ("mean absolute error", "平均绝对误差"),
    ("how far predicted numbers are off, on average, in their own unit", "预测值平均偏离多少，单位与标注相同"),
    higher_is_better=False,
    highest=inf,
    is_percentage=False,
)
ENTITY_F1 = Metric(
    "entity_f1",
    ("entity F1", "实体 F1"),
    ("F1 of entities: all words and the type must be correct", "以实体计的 F1：边界和类型都对才算对"),
)
PRECISION = Metric(
    "precision", ("precision", "精确率"), ("share of the predicted ones that are correct", "预测出的里面有多少是对的")
)
RECALL = Metric("recall", ("recall", "召回率"), ("share of the correct ones that are found", "该找到的里面找到了多少"))
TAG_ACCURACY = Metric(
    "tag_accuracy", ("tag accuracy", "标签准确率"), ("share of words with the correct tag", "标签正确的词的比例")
)
EXACT = Metric(
    "exact",
    ("exact match", "完全匹配"),
    ("share of examples with the whole answer correct", "答案完全正确的样本比例"),
)
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
    """Counts of one class over all examples."""

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
    """`pairs`: the expected and the predicted items of each example."""
    hits = Counter[str]()
    support = Counter[str]()
    n_predicted = Counter[str]()
    for expected, predicted in pairs:
        hits.update(name for name, _ in expected & predicted)
        support.update(name for name, _ in expected)
        n_predicted.update(name for name, _ in predicted)
    return {name: ClassCounts(hits[name], support[name], n_predicted[name]) for name in sorted(support | n_predicted)}


def class_metrics(targets: Floats, predicted: Floats, n_classes: int, absent_f1: Floats | None = None) -> MetricValues:
    """Accuracy, F1 (of the second class if there are two, else the mean over classes), and Matthews' correlation;
    classes by number. `absent_f1`: see `mean_f1`."""
    hits, support, n_predicted = _class_counts(targets, predicted, n_classes)
    f1 = class_f1(hits, support + n_predicted)
    return {
        "accuracy": float((targets == predicted).mean()),
        "f1": float(f1[1]) if n_classes == 2 else mean_f1(f1, absent_f1),
        "matthews": matthews(int(hits.sum()), support, n_predicted),
    }


def f1_by_class(targets: Floats, predicted: Floats, n_classes: int) -> Floats:
    hits, support, n_predicted = _class_counts(targets, predicted, n_classes)
    return class_f1(hits, support + n_predicted)


def _class_counts(targets: Floats, predicted: Floats, n_classes: int) -> tuple[Ints, Ints, Ints]:
    """How often each class is predicted correctly, occurs, and is predicted."""
    hits, support, n_predicted = (
        np.bincount(classes.astype(np.int64), minlength=n_classes)
        for classes in (targets[targets == predicted], targets, predicted)
    )
    return hits, support, n_predicted


def nan_to_zero(values: MetricValues) -> MetricValues:
    return {name: 0.0 if np.isnan(value) else value for name, value in values.items()}


def confusion(targets: Floats, predicted: Floats, n_classes: int) -> Ints:
    """Confusion matrix (target class, predicted class)."""
    cells = targets.astype(np.int64) * n_classes + predicted.astype(np.int64)
    return np.bincount(cells, minlength=n_classes**2).reshape(n_classes, n_classes)


def class_f1(hits: Ints, n_targets_and_predicted: Ints) -> Floats:
    """F1 of each class; NaN for one that neither occurs nor is predicted."""
    undefined = np.full(len(n_targets_and_predicted), np.nan)
    f1: Floats = np.divide(2 * hits, n_targets_and_predicted, out=undefined, where=n_targets_and_predicted > 0)
    return f1


def mean_f1(f1: Floats, absent_f1: Floats | None = None) -> float:
    """Over the classes for which F1 is defined. A resample often misses a rare class, but its mean has to be over the
    same classes, or it would be another statistic: there such a class has its F1 among all examples, `absent_f1`."""
    if absent_f1 is not None:
        f1 = np.where(np.isnan(f1), absent_f1, f1)
    defined = f1[~np.isnan(f1)]
    return float(defined.mean()) if len(defined) else np.nan


def matthews(n_correct: int, support: Ints, n_predicted: Ints) -> float:
    """Matthews' correlation for any number of classes (Gorodkin 2004), from how many examples are correct, and how
    often each class occurs and is predicted; 0 where only one class is predicted, NaN where only one occurs."""
    n = float(support.sum())
    occurs = support.astype(np.float64)
    predicted = n_predicted.astype(np.float64)
    target_variance = n**2 - occurs @ occurs
    predicted_variance = n**2 - predicted @ predicted
    if target_variance <= 0:
        return np.nan
    if predicted_variance <= 0:
        return 0.0
    return float((n_correct * n - predicted @ occurs) / np.sqrt(predicted_variance * target_variance))


def regression_metrics(targets: Floats, predicted: Floats) -> MetricValues:
    pearson = correlation(targets, predicted)
    spearman = correlation(average_ranks(targets), average_ranks(predicted))
    return {
        "pearson_spearman": (pearson + spearman) / 2,
        "pearson": pearson,
        "spearman": spearman,
        "mae": float(np.abs(targets - predicted).mean()),
    }


def correlation(a: Floats, b: Floats) -> float:
    """Pearson's correlation; 0 where one of the two is constant."""
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else 0.0


def average_ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values get the mean of their ranks."""
    _, value_of, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[value_of]


def multilabel_metrics(targets: Bools, predicted: Bools, absent_f1: Floats | None = None) -> MetricValues:
    """Micro and macro F1, and the share of examples with all classes correct; (B, C) each. `absent_f1`: see
    `mean_f1`."""
    total = targets.sum() + predicted.sum()
    return {
        "f1": float(2 * (targets & predicted).sum() / total if total else np.nan),
        "f1_macro": mean_f1(multilabel_f1_by_class(targets, predicted), absent_f1),
        "exact": float((targets == predicted).all(1).mean()),
    }


def multilabel_f1_by_class(targets: Bools, predicted: Bools) -> Floats:
    return class_f1((targets & predicted).sum(0), targets.sum(0) + predicted.sum(0))


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """(type, first word, last word) of each entity, for BIO, BIOES, BMES, BILOU and tags without a prefix.

    As the CoNLL scorer does: an entity begins at B, S, where the type changes, or where no entity is open; it ends at
    E, S, or before the next O or beginning.
    """
    spans = []
    open_type = ""
    first = 0
    is_open = False
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, entity_type = prefix_and_type(tag)
        begins = prefix in ("B", "S") or (prefix != OUTSIDE and (not is_open or entity_type != open_type))
        if is_open and (prefix == OUTSIDE or begins):
            spans.append((open_type, first, i - 1))
            is_open = False
        if prefix != OUTSIDE and begins:
            open_type, first, is_open = entity_type, i, True
        if prefix in ("E", "S"):
            spans.append((open_type, first, i))
            is_open = False
    return spans


def prefix_and_type(tag: str) -> tuple[str, str]:
    """The BIOES prefix and the entity type of a tag; a tag without a prefix counts as inside (I)."""
    match = TAG.fullmatch(tag)
    return (BILOU_TO_BIOES.get(match[1], match[1]), match[2] or "_") if match else ("I", tag)


def has_entity_tags(tags: Collection[str]) -> bool:
    """Whether tags mark entities: by prefixes such as B and I, or at least by O. Part-of-speech tags do not."""
    return OUTSIDE in tags or have_prefixes(tags)


def have_prefixes(tags: Collection[str]) -> bool:
    """Whether all are written with the prefixes of BIO, BIOES, BMES or BILOU."""
    return all(TAG.fullmatch(tag) for tag in tags)


def entity_counts(target_tags: Sequence[str], predicted_tags: Sequence[str]) -> tuple[int, int, int, int, int]:
    """Of a sentence: entities with correct boundaries and type, expected entities, predicted entities; words with the
    correct tag, all words."""
    expected = set(entities(target_tags))
    predicted = set(entities(predicted_tags))
    return (
        len(expected & predicted),
        len(expected),
        len(predicted),
        sum(a == b for a, b in zip(target_tags, predicted_tags, strict=True)),
        len(target_tags),
    )


def entity_metrics(scores: Floats) -> MetricValues:
    """From the `entity_counts` of each sentence."""
    hits, n_expected, n_predicted, n_correct_tags, n_words = scores.sum(0).tolist()
    return {
        "entity_f1": 2 * hits / (n_expected + n_predicted) if n_expected or n_predicted else np.nan,
        "precision": hits / n_predicted if n_predicted else 0.0,
        "recall": hits / n_expected if n_expected else 0.0,
        "tag_accuracy": n_correct_tags / max(1, n_words),
    }


def answer_scores(answers: Sequence[str], predicted: str) -> tuple[float, float]:
    """F1 and exact match by SQuAD's rules: case, punctuation and articles are ignored, and the correct answer that fits
    best counts; without any, "" is correct."""
    expected = answers or [""]
    exact = any(normalized_answer(answer) == normalized_answer(predicted) for answer in expected)
    return max(answer_f1(answer, predicted) for answer in expected), float(exact)


def normalized_answer(answer: str) -> str:
    """Lower case, without punctuation and articles. In Chinese or Japanese each character is a word, and full-width
    punctuation is removed, too."""
    is_cjk = CJK_CHARACTER.search(answer) is not None
    text = "".join(
        character
        for character in answer.lower()
        if character not in string.punctuation and not (is_cjk and category(character)[0] == "P")
    )
    return " ".join(ARTICLES.sub(" ", CJK_CHARACTER.sub(r" \g<0> ", text)).split())


def answer_f1(answer: str, predicted: str) -> float:
    """F1 of the words."""
    expected_words = normalized_answer(answer).split()
    predicted_words = normalized_answer(predicted).split()
    n_common = sum((Counter(expected_words) & Counter(predicted_words)).values())
    if not expected_words or not predicted_words:
        return float(expected_words == predicted_words)
    return 2 * n_common / (len(expected_words) + len(predicted_words)) if n_common else 0.0
