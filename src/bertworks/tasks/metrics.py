"""Measures as the papers have them; each is compared with its official scorer in the tests.

A measure is a function of what each example says, one row of numbers, so that rows can be drawn again for an interval. It is NaN where
the examples cannot show it, such as F1 of a class that neither occurs nor is said; `settled` makes 0 of that, as the official scorers do.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from bertworks.tasks.example import SIGN

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Measures = dict[str, float]
TAG = re.compile(r"([BIOESMLU])(?:[-_](.+))?")
SIGNS = {"L": "E", "U": "S"}  # BILOU's names of last and only
SHARES = ("accuracy", "f1", "f1_macro", "entity_f1", "precision", "recall", "tag_accuracy", "exact")  # of 1, or something like it
CORRELATIONS = ("matthews", "pearson_spearman", "pearson", "spearman")  # from -1 to 1
DISTANCES = ("mean_error",)  # from 0, the less the better
WITHOUT_SPACES = re.compile(f"[{SIGN}]")
ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)


@dataclass(frozen=True)
class Counts:
    """Of one class: found where it is, there in all, found in all."""

    hits: int
    there: int
    found: int

    @property
    def precision(self) -> float:
        return self.hits / max(1, self.found)

    @property
    def recall(self) -> float:
        return self.hits / max(1, self.there)

    @property
    def f1(self) -> float:
        return 2 * self.hits / max(1, self.there + self.found)


def count_classes(pairs: Iterable[tuple[Set[Any], Set[Any]]], class_of: Callable[[Any], str]) -> dict[str, Counts]:
    """`pairs`: what is right in an example and what was found, each of a class."""
    hits, there, found = Counter[str](), Counter[str](), Counter[str]()
    for right, said in pairs:
        hits.update(map(class_of, right & said))
        there.update(map(class_of, right))
        found.update(map(class_of, said))
    return {name: Counts(hits[name], there[name], found[name]) for name in sorted(there | found)}


def of_classes(truth: Floats, said: Floats, n_classes: int) -> Measures:
    """Accuracy, F1 (of the second class if there are two, else the mean over classes), and Matthews' correlation; classes by number."""
    right = truth == said
    hits, is_, found = (np.bincount(some.astype(np.int64), minlength=n_classes) for some in (truth[right], truth, said))
    f1 = class_f1(hits, is_ + found)
    return {
        "accuracy": float(right.mean()),
        "f1": float(f1[1]) if n_classes == 2 else mean_f1(f1),
        "matthews": matthews(int(right.sum()), is_, found),
    }


def settled(measures: Measures) -> Measures:
    """With 0 for what the examples cannot show."""
    return {name: 0.0 if np.isnan(value) else value for name, value in measures.items()}


def confusion(truth: Floats, said: Floats, n_classes: int) -> NDArray[np.int64]:
    """(right class, class said)."""
    places = truth.astype(np.int64) * n_classes + said.astype(np.int64)
    return np.bincount(places, minlength=n_classes**2).reshape(n_classes, n_classes)


def class_f1(hits: NDArray[np.int64], both: NDArray[np.int64]) -> Floats:
    """Of each class. `both`: how often it occurs plus how often it is said; where that is never, there is none."""
    found: Floats = np.divide(2 * hits, both, out=np.full(len(both), np.nan), where=both > 0)
    return found


def mean_f1(found: Floats) -> float:
    """Over the classes that have one. Others say nothing about a model, and examples drawn again often miss a rare class."""
    known = found[~np.isnan(found)]
    return float(known.mean()) if len(known) else np.nan


def matthews(right: int, is_: NDArray[np.int64], said: NDArray[np.int64]) -> float:
    """Matthews' correlation for any number of classes (Gorodkin 2004), from how many are right, and how often each class occurs and is
    said; 0 where only one is said, unknown where only one occurs."""
    n, occurring, saying = float(is_.sum()), is_.astype(np.float64), said.astype(np.float64)
    there, spread = n**2 - occurring @ occurring, n**2 - saying @ saying
    if there <= 0:
        return np.nan
    return float((right * n - saying @ occurring) / np.sqrt(spread * there)) if spread > 0 else 0.0


def of_numbers(truth: Floats, said: Floats) -> Measures:
    pearson, spearman = correlation(truth, said), correlation(ranks(truth), ranks(said))
    return {
        "pearson_spearman": (pearson + spearman) / 2,
        "pearson": pearson,
        "spearman": spearman,
        "mean_error": float(np.abs(truth - said).mean()),
    }


def correlation(a: Floats, b: Floats) -> float:
    """Pearson's; 0 where one of the two never changes."""
    a, b = a - a.mean(), b - b.mean()
    spread = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / spread) if spread > 0 else 0.0


def ranks(values: Floats) -> Floats:
    """From 1; equal values share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[which]


def of_marks(truth: Flags, said: Flags) -> Measures:
    """(B, C) each: F1 over all marks and as the mean over classes, and how many examples are right in every class."""
    hits, both = (truth & said).sum(0), truth.sum(0) + said.sum(0)
    micro = 2 * hits.sum() / both.sum() if both.sum() else np.nan
    return {"f1": float(micro), "f1_macro": mean_f1(class_f1(hits, both)), "exact": float((truth == said).all(1).mean())}


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """(kind, first, last) of each stretch of words with one name, for BIO, BIOES, BMES, BILOU and names alone.

    As the CoNLL scorer does: a stretch begins at B, S, or where the kind changes or nothing was open, and ends at E, S or before the next.
    """
    found, kind, first, ended = [], "", 0, True
    for at, tag in enumerate([*tags, "O"]):
        sign, name = sign_and_name(tag)
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


def sign_and_name(tag: str) -> tuple[str, str]:
    """Where in a stretch a word stands, and of which kind it is; a tag that says only the kind may be anywhere in it."""
    parts = TAG.fullmatch(tag)
    return (SIGNS.get(parts[1], parts[1]), parts[2] or "_") if parts else ("I", tag)


def mark_stretches(tags: Sequence[str]) -> bool:
    """Whether these tags say where something begins and ends, or at least where nothing is; parts of speech do not."""
    return "O" in tags or all(TAG.fullmatch(tag) for tag in tags)


def entity_counts(truth: Sequence[str], said: Sequence[str]) -> tuple[int, int, int, int, int]:
    """Of a sentence: entities with the right ends and kind, all there are, all that were found; words with the right tag, all words."""
    right, found = set(entities(truth)), set(entities(said))
    return len(right & found), len(right), len(found), sum(a == b for a, b in zip(truth, said, strict=True)), len(truth)


def of_entities(rows: Floats) -> Measures:
    """Sums of what `entity_counts` says."""
    hits, right, found, same, words = rows.sum(0).tolist()
    return {
        "entity_f1": 2 * hits / (right + found) if right or found else np.nan,
        "precision": hits / found if found else 0.0,
        "recall": hits / right if right else 0.0,
        "tag_accuracy": same / max(1, words),
    }


def answer_scores(rights: Sequence[str], said: str) -> tuple[float, float]:
    """F1 and exact match by SQuAD's rules: case, punctuation and articles do not count, the best of all right answers does; "" is right
    if there is none."""
    return max(answer_f1(right, said) for right in rights or [""]), float(any(plain(right) == plain(said) for right in rights or [""]))


def plain(answer: str) -> str:
    """What SQuAD's rules leave of an answer. Where it is Chinese or Japanese, each sign is a word, and their punctuation does not count."""
    eastern = WITHOUT_SPACES.search(answer) is not None
    kept = "".join(sign for sign in answer.lower() if sign not in string.punctuation and not (eastern and category(sign)[0] == "P"))
    return " ".join(ARTICLES.sub(" ", WITHOUT_SPACES.sub(r" \g<0> ", kept)).split())


def answer_f1(right: str, said: str) -> float:
    a, b = plain(right).split(), plain(said).split()
    common = sum((Counter(a) & Counter(b)).values())
    if not a or not b:
        return float(a == b)
    return 2 * common / (len(a) + len(b)) if common else 0.0
