"""What is wrong with the examples of a data set, and what else is worth knowing of them, before a minute is spent."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from bertworks.datasets.columns import Columns
from bertworks.datasets.example import Example
from bertworks.datasets.report import ReadReport
from bertworks.datasets.schema import Schema
from bertworks.errors import BadText, Remark

LABELS_SHOWN = 12
WITHOUT_COPIES = "dev without those in train"
MANY_COPIES = 0.01  # of dev: from there on it is also evaluated without them


@dataclass
class TaskData:
    """Examples to train on and to evaluate on, and what is worth knowing of them."""

    train: list[Example]
    dev: list[Example]
    columns: Columns | None = None
    remarks: list[Remark] = field(default_factory=list)
    extra_eval: dict[str, list[Example]] = field(
        default_factory=dict
    )  # also to evaluate on: MNLI's mismatched, dev without copies

    @property
    def fingerprint(self) -> str:
        extra = (
            example for name, examples in self.extra_eval.items() if name != WITHOUT_COPIES for example in examples
        )
        return fingerprint([*self.train, *self.dev, *extra])


def fingerprint(examples: Sequence[Example]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps([example.texts, example.answer], default=vars, ensure_ascii=False).encode())
    return digest.hexdigest()


def check_data(
    data: TaskData, schema: Schema, report: ReadReport, *, place: str | None, first: int | None, skip_bad: bool
) -> None:
    """Leaves examples in `data` that can be trained and evaluated on, and remarks; or says why there are none. `first`:
    only so many were taken for train."""
    labels = {label for example in data.train for label in example.labels}
    data.dev = list(
        usable(data.dev, labels, report, otherwise=" of dev never occurs in train", code="label-not-in-train")
    )
    extra = {
        name: list(
            usable(examples, labels, report, otherwise=f" of {name} never occurs in train", code="label-not-in-train")
        )
        for name, examples in data.extra_eval.items()
    }
    data.extra_eval = {name: examples for name, examples in extra.items() if examples}
    data.remarks += [
        Remark("empty-split", f"{name}: no examples, left out") for name, examples in extra.items() if not examples
    ]
    data.train = list(usable(data.train, labels, report, otherwise="", code="label-not-in-train"))
    report.check_rows(skip=skip_bad)
    data.remarks += report.remarks()
    schema.check_labels(labels, len(data.train) + len(data.dev), place=place)
    for name, examples in (("train", data.train), ("dev", data.dev)):
        if not examples:
            raise BadText(f"no examples for {name}", place=place, remedy="more rows are needed", code="no-examples")
    schema.check_learnable(data.train, labels, len(data.train) + len(data.dev), place=place, first=first)
    data.remarks += [*_label_counts(data.train), *_similar_labels(labels)]
    data.remarks += schema.data_remarks(data.train, data.dev, labels)
    data.remarks += [*_contradictions(data.train), *_labels_not_in_dev(data.dev, labels)]
    _find_copies(data)


def usable(
    examples: Sequence[Example], labels: Set[str], report: ReadReport, *, otherwise: str, code: str
) -> Iterator[Example]:
    """Those with an answer that a model can give: with classes and tags, one of `labels`."""
    for example in examples:
        unknown = [label for label in example.labels if label not in labels]
        if example.answer is None:
            report.bad_row("no label", example.place, "no-label")
        elif unknown and labels:
            report.bad_row(f"label {unknown[0]!r}{otherwise}", example.place, code)
        else:
            yield example


def _label_counts(examples: Sequence[Example]) -> list[Remark]:
    """How often each occurs, or the range of numbers."""
    counts = Counter(label for example in examples for label in example.labels)
    if counts:
        shown = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(LABELS_SHOWN))
        return [Remark("labels", f"labels: {shown}{_more(len(counts))}")]
    numbers = [example.answer for example in examples if isinstance(example.answer, float)]
    return [Remark("labels", f"labels: numbers from {min(numbers):.4g} to {max(numbers):.4g}")] if numbers else []


def _more(n_labels: int) -> str:
    return f" and {n_labels - LABELS_SHOWN:,} more" if n_labels > LABELS_SHOWN else ""


def _similar_labels(labels: Set[str]) -> list[Remark]:
    """Labels that are probably one: they differ in capitals and spaces, or are the same number."""
    groups: dict[str, list[str]] = {}
    for label in sorted(labels):
        groups.setdefault(as_number(label) or "".join(label.casefold().split()), []).append(label)
    similar = [" / ".join(group) for group in groups.values() if len(group) > 1]
    return (
        [Remark("similar-labels", f"labels that look alike: {', '.join(similar[:LABELS_SHOWN])}; are they one?")]
        if similar
        else []
    )


def as_number(label: str) -> str | None:
    try:
        return str(float(label))
    except ValueError:
        return None


def _contradictions(examples: Sequence[Example]) -> list[Remark]:
    """Equal texts with different classes: one of them is wrong."""
    seen: dict[tuple[str, ...], Example] = {}
    pairs = []
    for example in examples:
        earlier = seen.setdefault(example.texts, example)
        if isinstance(example.answer, str) and earlier.answer != example.answer:
            pairs.append((earlier, example))
    if not pairs:
        return []
    first, second = pairs[0]
    where = f"{first.place} is {first.answer}, {second.place} {second.answer}"
    return [
        Remark(
            "contradictions",
            f"{len(pairs):,} examples have the text of an earlier one and another label, the first: {where}",
        )
    ]


def _labels_not_in_dev(dev: Sequence[Example], labels: Set[str]) -> list[Remark]:
    missing = sorted(labels - {label for example in dev for label in example.labels})
    text = f"not evaluated, since dev has none of them: {', '.join(missing[:LABELS_SHOWN])}{_more(len(missing))}"
    return [Remark("labels-not-in-dev", text)] if missing else []


def _find_copies(data: TaskData) -> None:
    """Dev examples that train has too: they are said, and if they are many, dev is also evaluated without them."""
    seen = {example.texts: example.place for example in data.train}
    copies = [example for example in data.dev if example.texts in seen]
    if copies:
        first = copies[0]
        where = f"{first.place} = {seen[first.texts]}"
        data.remarks.append(
            Remark(
                "copies-in-dev",
                f"{len(copies):,} of {len(data.dev):,} dev examples are in train too, the first: {where}",
            )
        )
    if MANY_COPIES * len(data.dev) <= len(copies) < len(data.dev):
        data.extra_eval[WITHOUT_COPIES] = [example for example in data.dev if example.texts not in seen]
