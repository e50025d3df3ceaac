"""What is wrong with examples, and what else is to be said of them, before a minute is spent."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from bertworks.config import Shape
from bertworks.errors import BadText, Remark
from bertworks.tasks.example import Example
from bertworks.tasks.rows import Columns, Findings

MOST_SHOWN = 12  # labels
MANY_NUMBERS = 12  # labels that are numbers: probably amounts
WITHOUT_COPIES = "dev without those in train"
MANY_COPIES = 0.01  # of dev: from there on it is also judged without them


@dataclass
class Data:
    """Examples to learn from and to be judged by, and what is to be said about them."""

    train: list[Example]
    dev: list[Example]
    columns: Columns | None = None
    remarks: list[Remark] = field(default_factory=list)
    others: dict[str, list[Example]] = field(default_factory=dict)  # also to be judged by: MNLI's mismatched, dev without copies

    @property
    def fingerprint(self) -> str:
        further = (example for name, examples in self.others.items() if name != WITHOUT_COPIES for example in examples)
        return fingerprint([*self.train, *self.dev, *further])


def fingerprint(examples: Sequence[Example]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps([example.texts, example.answer], default=vars, ensure_ascii=False).encode())
    return digest.hexdigest()


def check_data(data: Data, shape: Shape, findings: Findings, *, place: str | None, first: int | None, skip_bad: bool) -> None:
    """Leaves examples in `data` that can be learned from and judged by, and remarks; or says why there are none. `first`: only so many were
    taken for train."""
    labels = {label for example in data.train for label in example.labels}
    strange = "label-not-in-train"
    data.dev = list(judged(data.dev, labels, findings, otherwise=" of dev never occurs in train", code=strange))
    others = {
        name: list(judged(examples, labels, findings, otherwise=f" of {name} never occurs in train", code=strange))
        for name, examples in data.others.items()
    }
    data.others = {name: examples for name, examples in others.items() if examples}
    empty = [name for name, examples in others.items() if not examples]
    data.remarks += [Remark("empty-split", f"{name} has no examples, and is left out") for name in empty]
    data.train = list(judged(data.train, labels, findings, otherwise="", code=strange))
    findings.check_rows(skip=skip_bad)
    data.remarks += findings.remarks()
    _check_enough(data, shape, labels, place, first)
    data.remarks += [*_said_labels(data.train), *_said_alike(labels), *_said_numbers(shape, labels), *_said_contradictions(data.train)]
    data.remarks += [*_said_silence(data), *_said_unjudged(data.dev, labels)]
    _find_copies(data)


def judged(examples: Sequence[Example], labels: Set[str], findings: Findings, *, otherwise: str, code: str) -> Iterator[Example]:
    """Those with a right answer that a model can give: with classes and tags, one of `labels`."""
    for example in examples:
        strange = [label for label in example.labels if label not in labels]
        if example.answer is None:
            findings.bad_row("no label", example.place, "no-label")
        elif strange and labels:
            findings.bad_row(f"label {strange[0]!r}{otherwise}", example.place, code)
        else:
            yield example


def _check_enough(data: Data, shape: Shape, labels: Set[str], place: str | None, first: int | None) -> None:
    """Whether there is something to learn and something to judge by."""
    n = len(data.train) + len(data.dev)
    if shape == "classify" and len(labels) > max(2, n / 2):
        remedy = "is it the right column? for numbers: regress"
        raise BadText(f"{len(labels):,} different labels in {n:,} rows", place=place, remedy=remedy, code="too-many-labels")
    for name, examples in (("train", data.train), ("dev", data.dev)):
        if not examples:
            raise BadText(f"no examples for {name}", place=place, remedy="more rows are needed", code="no-examples")
    if shape == "regress" and len({example.answer for example in data.train}) == 1:
        remedy = "there is nothing to learn; is it the right column?"
        raise BadText("all rows have the same number", place=place, remedy=remedy, code="one-number")
    if shape == "multilabel" and not labels:
        raise BadText("no row has a label", place=place, remedy="is it the right column? --label names another", code="no-labels")
    if shape == "span" and not any(example.answer for example in data.train):
        remedy = "there is nothing to learn; is it the right column?"
        raise BadText("no question has an answer", place=place, remedy=remedy, code="no-answers")
    if shape == "tag" and all(len(example.texts) == 1 for example in data.train):
        remedy = "one word in each row? CoNLL's columns have that, with a blank line behind a sentence; in a table a row is a sentence"
        raise BadText("every sentence is a single word", place=place, remedy=remedy, code="one-word-sentences")
    if shape in ("classify", "tag") and len(labels) < 2:
        cut = first is not None and n >= first
        only = f"all of the first {first:,} rows" if cut else "all rows"
        remedy = "take more, or put them in another order" if cut else "is it the right column?"
        cause, code = f"{only} have the same label, {min(labels)!r}", "one-label-in-first-rows" if cut else "one-label"
        raise BadText(cause, place=place, remedy=f"there is nothing to tell apart; {remedy}", code=code)


def _said_labels(examples: Sequence[Example]) -> list[Remark]:
    """How often each occurs, or between what numbers lie."""
    counts = Counter(label for example in examples for label in example.labels)
    if counts:
        shown = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(MOST_SHOWN))
        more = f" and {len(counts) - MOST_SHOWN:,} more" if len(counts) > MOST_SHOWN else ""
        return [Remark("labels", f"labels: {shown}{more}")]
    numbers = [example.answer for example in examples if isinstance(example.answer, float)]
    return [Remark("labels", f"labels: numbers from {min(numbers):.4g} to {max(numbers):.4g}")] if numbers else []


def _said_alike(labels: Set[str]) -> list[Remark]:
    """Labels that are probably one: they differ in capitals and spaces, or are the same number."""
    groups: dict[str, list[str]] = {}
    for label in sorted(labels):
        groups.setdefault(_number(label) or "".join(label.casefold().split()), []).append(label)
    alike = [" / ".join(group) for group in groups.values() if len(group) > 1]
    said = f"these are different labels here; are they one? {', '.join(alike[:MOST_SHOWN])}"
    return [Remark("similar-labels", said)] if alike else []


def _number(label: str) -> str | None:
    try:
        return str(float(label))
    except ValueError:
        return None


def _said_numbers(shape: Shape, labels: Set[str]) -> list[Remark]:
    """Classes that are amounts."""
    if shape != "classify" or len(labels) < MANY_NUMBERS or not all(map(_number, labels)):
        return []
    said = f"the {len(labels):,} labels are numbers, and are learned as classes that have no order: `finetune regress` learns amounts"
    return [Remark("number-labels", said)]


def _said_contradictions(examples: Sequence[Example]) -> list[Remark]:
    """Equal texts with different classes: one of them is wrong."""
    seen: dict[tuple[str, ...], Example] = {}
    both = []
    for example in examples:
        other = seen.setdefault(example.texts, example)
        if isinstance(example.answer, str) and other.answer != example.answer:
            both.append((other, example))
    if not both:
        return []
    first, second = both[0]
    where = f"{first.place} is {first.answer}, {second.place} {second.answer}"
    return [Remark("contradictions", f"{len(both):,} examples contradict an earlier one, the first: {where}")]


def _said_silence(data: Data) -> list[Remark]:
    """Of questions: whether a model learns that some have no answer."""
    if any(example.labels for example in data.train):
        return []
    train, dev = (sum(example.answer == () for example in examples) for examples in (data.train, data.dev))
    if dev and not train:
        cause = f"{dev:,} of {len(data.dev):,} questions of dev have no answer, and none of train"
        return [Remark("unanswered-in-dev", f"{cause}: the model learns to answer always, and is wrong there")]
    said = f"{train:,} of {len(data.train):,} questions have no answer: the model learns to say so"
    return [Remark("unanswered", said)] if train else []


def _said_unjudged(dev: Sequence[Example], labels: Set[str]) -> list[Remark]:
    unjudged = sorted(labels - {label for example in dev for label in example.labels})
    more = f" and {len(unjudged) - MOST_SHOWN:,} more" if len(unjudged) > MOST_SHOWN else ""
    said = f"not judged, for dev has none of them: {', '.join(unjudged[:MOST_SHOWN])}{more}"
    return [Remark("unjudged-labels", said)] if unjudged else []


def _find_copies(data: Data) -> None:
    """Dev examples that train has too: they are said, and if they are many, dev is also judged without them."""
    seen = {example.texts: example.place for example in data.train}
    twice = [example for example in data.dev if example.texts in seen]
    if twice:
        first = twice[0]
        said = f"{len(twice):,} of {len(data.dev):,} dev examples are in train too, the first: {first.place} = {seen[first.texts]}"
        data.remarks.append(Remark("copies-in-dev", said))
    if MANY_COPIES * len(data.dev) <= len(twice) < len(data.dev):
        data.others[WITHOUT_COPIES] = [example for example in data.dev if example.texts not in seen]
