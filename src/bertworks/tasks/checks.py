"""What is wrong with examples, and what else is to be said of them, before a minute is spent."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from bertworks.config import Shape
from bertworks.errors import BadText
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
    remarks: list[str] = field(default_factory=list)
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
    data.dev = list(judged(data.dev, labels, " of dev never occurs in train", findings))
    others = {name: list(judged(examples, labels, f" of {name} never occurs in train", findings)) for name, examples in data.others.items()}
    data.others = {name: examples for name, examples in others.items() if examples}
    data.remarks += [f"{name} has no examples, and is left out" for name, examples in others.items() if not examples]
    data.train = list(judged(data.train, labels, "", findings))
    findings.check_rows(skip=skip_bad)
    data.remarks += findings.remarks()
    _check_enough(data, shape, labels, place, first)
    data.remarks += [*_said_labels(data.train), *_said_alike(labels), *_said_numbers(shape, labels), *_said_contradictions(data.train)]
    data.remarks += [*_said_silence(data), *_said_unjudged(data.dev, labels)]
    _find_copies(data)


def judged(examples: Sequence[Example], labels: Set[str], otherwise: str, findings: Findings) -> Iterator[Example]:
    """Those with a right answer that a model can give: with classes and tags, one of `labels`."""
    for example in examples:
        strange = [label for label in example.labels if label not in labels]
        if example.answer is None:
            findings.bad_row("no label", example.place)
        elif strange and labels:
            findings.bad_row(f"label {strange[0]!r}{otherwise}", example.place)
        else:
            yield example


def _check_enough(data: Data, shape: Shape, labels: Set[str], place: str | None, first: int | None) -> None:
    """Whether there is something to learn and something to judge by."""
    n = len(data.train) + len(data.dev)
    if shape == "classify" and len(labels) > max(2, n / 2):
        raise BadText(f"{len(labels):,} different labels in {n:,} rows", place=place, remedy="is it the right column? for numbers: regress")
    for name, examples in (("train", data.train), ("dev", data.dev)):
        if not examples:
            raise BadText(f"no examples for {name}", place=place, remedy="more rows are needed")
    if shape == "regress" and len({example.answer for example in data.train}) == 1:
        raise BadText("all rows have the same number", place=place, remedy="there is nothing to learn; is it the right column?")
    if shape == "multilabel" and not labels:
        raise BadText("no row has a label", place=place, remedy="is it the right column? --label names another")
    if shape == "span" and not any(example.answer for example in data.train):
        raise BadText("no question has an answer", place=place, remedy="there is nothing to learn; is it the right column?")
    if shape == "tag" and all(len(example.texts) == 1 for example in data.train):
        remedy = "one word in each row? CoNLL's columns have that, with a blank line behind a sentence; in a table a row is a sentence"
        raise BadText("every sentence is a single word", place=place, remedy=remedy)
    if shape in ("classify", "tag") and len(labels) < 2:
        cut = first is not None and n >= first
        only = f"all of the first {first:,} rows" if cut else "all rows"
        remedy = "take more, or put them in another order" if cut else "is it the right column?"
        raise BadText(f"{only} have the same label, {min(labels)!r}", place=place, remedy=f"there is nothing to tell apart; {remedy}")


def _said_labels(examples: Sequence[Example]) -> list[str]:
    """How often each occurs, or between what numbers lie."""
    counts = Counter(label for example in examples for label in example.labels)
    if counts:
        shown = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(MOST_SHOWN))
        return [f"labels: {shown}{f' and {len(counts) - MOST_SHOWN:,} more' if len(counts) > MOST_SHOWN else ''}"]
    numbers = [example.answer for example in examples if isinstance(example.answer, float)]
    return [f"labels: numbers from {min(numbers):.4g} to {max(numbers):.4g}"] if numbers else []


def _said_alike(labels: Set[str]) -> list[str]:
    """Labels that are probably one: they differ in capitals and spaces, or are the same number."""
    groups: dict[str, list[str]] = {}
    for label in sorted(labels):
        groups.setdefault(_number(label) or "".join(label.casefold().split()), []).append(label)
    alike = [" / ".join(group) for group in groups.values() if len(group) > 1]
    return [f"these are different labels here; are they one? {', '.join(alike[:MOST_SHOWN])}"] if alike else []


def _number(label: str) -> str | None:
    try:
        return str(float(label))
    except ValueError:
        return None


def _said_numbers(shape: Shape, labels: Set[str]) -> list[str]:
    """Classes that are amounts."""
    if shape != "classify" or len(labels) < MANY_NUMBERS or not all(map(_number, labels)):
        return []
    return [f"the {len(labels):,} labels are numbers, and are learned as classes that have no order: `finetune regress` learns amounts"]


def _said_contradictions(examples: Sequence[Example]) -> list[str]:
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
    return [f"{len(both):,} examples contradict an earlier one, the first: {first.place} is {first.answer}, {second.place} {second.answer}"]


def _said_silence(data: Data) -> list[str]:
    """Of questions: whether a model learns that some have no answer."""
    if any(example.labels for example in data.train):
        return []
    train, dev = (sum(example.answer == () for example in examples) for examples in (data.train, data.dev))
    if dev and not train:
        cause = f"{dev:,} of {len(data.dev):,} questions of dev have no answer, and none of train"
        return [f"{cause}: the model learns to answer always, and is wrong there"]
    return [f"{train:,} of {len(data.train):,} questions have no answer: the model learns to say so"] if train else []


def _said_unjudged(dev: Sequence[Example], labels: Set[str]) -> list[str]:
    unjudged = sorted(labels - {label for example in dev for label in example.labels})
    more = f" and {len(unjudged) - MOST_SHOWN:,} more" if len(unjudged) > MOST_SHOWN else ""
    return [f"not judged, for dev has none of them: {', '.join(unjudged[:MOST_SHOWN])}{more}"] if unjudged else []


def _find_copies(data: Data) -> None:
    """Dev examples that train has too: they are said, and if they are many, dev is also judged without them."""
    seen = {example.texts: example.place for example in data.train}
    twice = [example for example in data.dev if example.texts in seen]
    if twice:
        first = twice[0]
        data.remarks.append(
            f"{len(twice):,} of {len(data.dev):,} dev examples are in train too, the first: {first.place} = {seen[first.texts]}"
        )
    if MANY_COPIES * len(data.dev) <= len(twice) < len(data.dev):
        data.others[WITHOUT_COPIES] = [example for example in data.dev if example.texts not in seen]
