"""Checks of the examples of a data set before any training: errors, and remarks on what may be a mistake."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from unicodedata import category, normalize

from bertworks.datasets.columns import Columns
from bertworks.datasets.example import Example
from bertworks.datasets.report import BadRows, ReadReport
from bertworks.datasets.schema import Schema
from bertworks.errors import BadText, Remark

MAX_LABELS_SHOWN = 12
MISSING_VALUES = {"nan", "na", "n/a", "#n/a", "<na>", "null", "none", "nil"}  # in lower case
WITHOUT_COPIES = "dev without those in train"
MIN_COPIED_SHARE = 0.01  # of dev: from there on, metrics are also computed without the copies


@dataclass
class TaskData:
    """Examples to train on and to evaluate on, and remarks on them."""

    train: list[Example]
    dev: list[Example]
    columns: Columns | None = None
    remarks: list[Remark] = field(default_factory=list)
    # Further evaluation splits: MNLI's mismatched, dev without the examples that are also in train.
    extra_eval: dict[str, list[Example]] = field(default_factory=dict)

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
    data: TaskData, schema: Schema, report: ReadReport, *, place: str | None, max_rows: int | None, skip_bad: bool
) -> None:
    """Remove examples without a usable label from `data` and add remarks, or raise an error that says what is wrong.
    `max_rows`: train was cut to so many rows."""
    train_labels = schema.labels(data.train, [])
    data.dev = [schema.to_tag_scheme(example, train_labels) for example in data.dev]
    labels = schema.labels(data.train, data.dev)

    def labelled(examples: Sequence[Example], split: str) -> list[Example]:
        problem = f" of {split} does not occur in train"
        return list(with_known_labels(examples, labels, report, problem=problem, code="label-not-in-train"))

    data.dev = labelled(data.dev, "dev")
    extra = {name: labelled(examples, name) for name, examples in data.extra_eval.items()}
    data.extra_eval = {name: examples for name, examples in extra.items() if examples}
    data.remarks += [
        Remark("empty-split", f"{name}: no examples, skipped", f"{name}：没有样本，已跳过")
        for name, examples in extra.items()
        if not examples
    ]
    data.train = labelled(data.train, "train")
    report.check_rows(skip=skip_bad, columns=data.columns)
    data.remarks += report.remarks()
    schema.check_labels(labels, len(data.train) + len(data.dev), place=place)
    for name, examples in (("train", data.train), ("dev", data.dev)):
        if not examples:
            raise _no_examples(name, data, report, place)
    schema.check_learnable(data.train, labels, len(data.train) + len(data.dev), place=place, max_rows=max_rows)
    train_counts, dev_counts = (
        Counter(label for example in examples for label in schema.shown_labels(example, labels))
        for examples in (data.train, data.dev)
    )
    data.remarks += [*_label_counts(train_counts, data.train), *_similar_labels(labels)]
    data.remarks += _labels_like_missing_values(train_counts)
    data.remarks += schema.data_remarks(data.train, data.dev, labels)
    data.remarks += [*_contradictions(data.train), *_labels_not_in_dev(train_counts.keys() - dev_counts.keys())]
    _find_copies(data)


def _no_examples(split: str, data: TaskData, report: ReadReport, place: str | None) -> BadText:
    cause, remedy = f"no examples for {split}", "add more rows"
    if report.bad and not data.train and not data.dev:
        frequent, n = report.frequent_causes(1)[0]
        cause = f"all {len(report.bad):,} rows were skipped, most often ({n:,}): {frequent}"
        remedy = "correct them"
        if data.columns is not None:
            cause += f"\n  columns: {data.columns}"
            remedy = "other columns: --label NAME, --text NAME, in Python label=, text="
    return BadRows(cause, report.bad, place=place, remedy=remedy, code="no-examples")


def with_known_labels(
    examples: Sequence[Example], labels: Set[str], report: ReadReport, *, problem: str, code: str
) -> Iterator[Example]:
    """The examples that have an answer and, where answers are classes or tags, only ones of `labels`. The others are
    reported as invalid rows; `problem` ends the message "label 'x' ...", `code` is its code."""
    for example in examples:
        unknown = [label for label in example.labels if label not in labels]
        if example.answer is None:
            report.bad_row("no label", example.place, "no-label")
        elif unknown and labels:
            report.bad_row(f"label {unknown[0]!r}{problem}", example.place, code)
        else:
            yield example


def _label_counts(counts: Counter[str], examples: Sequence[Example]) -> list[Remark]:
    """How often each label occurs, or the range of numeric ones."""
    if counts:
        shown = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(MAX_LABELS_SHOWN))
        more = _and_more(len(counts))
        return [Remark("labels", f"labels: {shown}{more[0]}", f"标签：{shown}{more[1]}")]
    numbers = [example.answer for example in examples if isinstance(example.answer, float)]
    if not numbers:
        return []
    low, high = f"{min(numbers):.4g}", f"{max(numbers):.4g}"
    return [Remark("labels", f"labels: numbers from {low} to {high}", f"标签：{low} 到 {high} 的数值")]


def _and_more(n_labels: int) -> tuple[str, str]:
    """Labels that are not shown: how many, in English and Chinese."""
    n_hidden = n_labels - MAX_LABELS_SHOWN
    return (f" and {n_hidden:,} more", f"，另有 {n_hidden:,} 个") if n_hidden > 0 else ("", "")


def _similar_labels(labels: Set[str]) -> list[Remark]:
    """Labels that are probably the same: they differ only in case, spaces, invisible characters or Unicode
    normalisation, or are equal numbers."""
    groups: dict[str, list[str]] = {}
    for label in sorted(labels):
        key = "".join(normalize("NFKC", _visible(label)).casefold().split())
        groups.setdefault(as_number(label) or key, []).append(label)
    similar = [_side_by_side(group) for group in groups.values() if len(group) > 1]
    if not similar:
        return []
    shown = ", ".join(similar[:MAX_LABELS_SHOWN])
    text = f"similar labels: {shown}; are they the same?"
    return [Remark("similar-labels", text, f"相近的标签：{shown}；它们是同一个吗？")]


def _labels_like_missing_values(counts: Counter[str]) -> list[Remark]:
    """Empty cells are invalid rows; but programs write words into them, which are read as classes."""
    missing = [f"{label} ({count:,})" for label, count in counts.most_common() if label.casefold() in MISSING_VALUES]
    if not missing:
        return []
    shown = ", ".join(missing)
    text = f"labels that look like missing values: {shown}; if they are, leave these cells empty or remove the rows"
    chinese = f"看起来像缺失值的标签：{shown}；如果确实是，请把单元格留空或删除这些行"
    return [Remark("labels-like-missing-values", text, chinese)]


def _visible(label: str) -> str:
    """As it looks: composed, without zero-width characters."""
    return normalize("NFC", "".join(character for character in label if category(character) != "Cf"))


def _side_by_side(labels: Sequence[str]) -> str:
    """Labels that look the same are written with escapes, so that the difference can be seen."""
    appearances = set(map(_visible, labels))
    return " / ".join(labels if len(appearances) == len(labels) else map(ascii, labels))


def as_number(label: str) -> str | None:
    try:
        return str(float(label))
    except ValueError:
        return None


def _contradictions(examples: Sequence[Example]) -> list[Remark]:
    """Equal texts with different labels: one of the labels is wrong."""
    seen: dict[tuple[str, ...], Example] = {}
    pairs = []
    for example in examples:
        earlier = seen.setdefault(example.texts, example)
        if isinstance(example.answer, str) and earlier.answer != example.answer:
            pairs.append((earlier, example))
    if not pairs:
        return []
    first, second = pairs[0]
    labels = f"{first.place} is {first.answer}, {second.place} {second.answer}"
    text = f"{len(pairs):,} examples have the text of an earlier one but another label, the first: {labels}"
    labels_zh = f"{first.place} 标为 {first.answer}，{second.place} 标为 {second.answer}"
    return [Remark("contradictions", text, f"{len(pairs):,} 个样本与前面的文本相同而标签不同，第一处：{labels_zh}")]


def _labels_not_in_dev(labels: Set[str]) -> list[Remark]:
    missing = sorted(labels)
    shown = ", ".join(missing[:MAX_LABELS_SHOWN])
    more = _and_more(len(missing))
    text = f"labels that do not occur in dev are not evaluated: {shown}{more[0]}"
    return [Remark("labels-not-in-dev", text, f"开发集中没有的标签不参与评估：{shown}{more[1]}")] if missing else []


def _find_copies(data: TaskData) -> None:
    """A remark on dev examples that are also in train; from `MIN_COPIED_SHARE` on, dev without them becomes a further
    evaluation split."""
    seen = {example.texts: example.place for example in data.train}
    copies = [example for example in data.dev if example.texts in seen]
    if copies:
        first = copies[0]
        places = f"{first.place} = {seen[first.texts]}"
        text = f"{len(copies):,} of {len(data.dev):,} dev examples are also in train, the first: {places}"
        chinese = f"开发集 {len(data.dev):,} 个样本中有 {len(copies):,} 个也在训练集里，第一个：{places}"
        data.remarks.append(Remark("copies-in-dev", text, chinese))
    if MIN_COPIED_SHARE * len(data.dev) <= len(copies) < len(data.dev):
        data.extra_eval[WITHOUT_COPIES] = [example for example in data.dev if example.texts not in seen]
