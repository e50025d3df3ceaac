"""Where examples come from: a data set's folder or the user's own files. What is wrong with them is said before a minute is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from bertworks.config import CountedFrom, Frozen, Shape, TaskConfig
from bertworks.errors import BadText, NotFound, Remark, nearest
from bertworks.tasks.checks import Data, check_data, judged
from bertworks.tasks.columns import check_texts, guess_columns
from bertworks.tasks.datasets import TASKS, DataSet
from bertworks.tasks.example import Example
from bertworks.tasks.formats import OfTable, Read, check_file, conll, first_rows, is_squad, squad, table_kind
from bertworks.tasks.metrics import mark_stretches
from bertworks.tasks.rows import BadRows, Columns, Findings, label_columns
from bertworks.tasks.split import SEED, split
from bertworks.tasks.transitions import usual_transitions

MEASURES: dict[Shape, tuple[str, ...]] = {  # the higher the better
    "classify": ("accuracy", "f1", "matthews"),
    "regress": ("pearson_spearman", "pearson", "spearman"),
    "multilabel": ("f1", "f1_macro", "exact"),
    "tag": ("entity_f1", "precision", "recall", "tag_accuracy"),
    "span": ("f1", "exact"),
    "choice": ("accuracy",),
}
NO_COLUMNS = "--text, --pair and --label name columns, and this is no table"


class Source(Frozen):
    """Said in the record of a run, so that the same examples can be read again."""

    dataset: str | None = Field(None, description="a row of TASKS")
    folder: str | None = Field(None, description="where its files are")
    train: str | None = Field(None, description="or a file of one's own")
    dev: str | None = Field(None, description="to compare models on; none: a part of train")
    shape: Shape
    text: str | None = None
    pair: tuple[str, ...] = ()
    label: str | None = None
    by_text: bool | None = Field(None, description="choice: the label is the text of the right one; null: that is looked for")
    separator: str | None = Field(None, description="multilabel: what lies between the classes of a cell")
    counted_from: CountedFrom | None = Field(None, description="choice: the first one's number or letter; null: they have none")
    paired: bool = False
    first: int | None = Field(None, ge=1, description="only the first examples of train")
    skip_bad: bool = False

    def settled(self, columns: Columns | None) -> dict[str, Any]:
        """For a record: files by their paths from the root, so that a run can go on from another folder, and the columns that were
        guessed by their names, so that other files are read in the same way."""
        paths = {name: getattr(self, name) for name in ("folder", "train", "dev")}
        changes: dict[str, Any] = {name: path and str(Path(path).resolve()) for name, path in paths.items()}
        if columns is not None and self.dataset is None:
            first, *others = reversed(columns.texts) if self.shape == "span" else columns.texts
            changes |= {"text": first, "pair": tuple(others), "label": columns.label}
            changes |= {"by_text": columns.by_text, "counted_from": columns.counted_from, "separator": columns.separator}
        return self.model_copy(update=changes).model_dump(mode="json")


def read_data(source: Source) -> Data:
    """Both splits, read and checked."""
    findings, columns = Findings(), None
    remarks: list[Remark] = []
    if source.dataset is not None:
        found, columns = _read_splits(source, findings), TASKS[source.dataset].columns
    else:
        assert source.train is not None
        read = _own_reader(source, Path(source.train))
        columns = read.columns if isinstance(read, OfTable) else None
        if columns is None and (source.text or source.pair or (source.label and source.shape != "tag")):
            raise BadText(NO_COLUMNS, place=source.train, remedy="leave them out", code="no-named-columns")
        remarks += [Remark("columns", f"columns: {columns}")] if columns is not None else []
        found = {"train": read(Path(source.train), findings)}
        if source.dev is not None:
            read = _dev_reader(source, Path(source.dev), columns)
            if isinstance(read, OfTable) and read.columns != columns:
                remarks.append(Remark("dev-columns", f"columns of dev: {read.columns}"))
            found["dev"] = read(Path(source.dev), findings)
    findings.check_encoding(sum(map(len, found.values())))
    is_given = "dev" in found
    data = Data(found.pop("train")[: source.first], found.pop("dev", []), columns, remarks, others=found)
    if is_given and not data.dev and (source.skip_bad or not findings.bad):
        remedy = "without a dev file, a part of train is kept for that"
        cause, place = f"dev: {_nothing(findings)}", source.dev or source.folder
        raise BadRows(cause, findings.bad, place=place, remedy=remedy, code="no-dev-examples")
    if not is_given:
        data.train, data.dev = split(data.train, source.shape)
        said = f"no dev file: {len(data.dev):,} of the examples are kept as dev, drawn with seed {SEED}"
        data.remarks.append(Remark("dev-split", said))
    check_data(data, source.shape, findings, place=source.train or source.folder, first=source.first, skip_bad=source.skip_bad)
    return data


def read_more(source: Source, where: Path, task: TaskConfig, *, strict: bool = False) -> Data:
    """Other examples of the same kind, to be judged by: a file, or the folder of a data set with its dev."""
    findings, row, path = Findings(), TASKS.get(source.dataset or ""), where
    others: dict[str, Path] = {}
    if row is not None and where.is_dir() and not row.has(where, answered=True):
        others = row.splits(where)
        others.pop("train", None)
        if "dev" not in others:
            raise NotFound(f"no {' or '.join(row.files['dev'])} in this folder", place=str(where), code="missing-file")
        path = others.pop("dev")
    elif row is None or not where.is_dir():
        check_file(where)
    read = _other_reader(source, row, path, task, strict=strict)
    data = Data([], [], read.columns if isinstance(read, OfTable) and (row is None or read is not row.read) else None)
    data.remarks += [Remark("columns", f"columns: {data.columns}")] if data.columns is not None else []
    found = {name: read(at, findings) for name, at in {"dev": path, **others}.items()}
    findings.check_encoding(sum(map(len, found.values())))
    data.others = {
        name: list(judged(examples, set(task.labels), findings, otherwise=", which the model does not know", code="unknown-label"))
        for name, examples in found.items()
    }
    data.dev = data.others.pop("dev")
    findings.check_rows(skip=source.skip_bad)
    if not data.dev:
        raise BadRows(_nothing(findings), findings.bad, place=str(where), code="no-examples")
    data.remarks += findings.remarks()
    return data


def _other_reader(source: Source, row: DataSet | None, path: Path, task: TaskConfig, *, strict: bool) -> Read:
    """How further examples are read for a model that was fine-tuned on `source`: a file of the data set, whatever its name; or a table."""
    if row is not None and not strict and row.has(path, answered=True):
        return row.read
    changes: dict[str, Any] = {"paired": bool(task.pairs)}
    columns = row.columns if row is not None else None
    if columns is not None:
        usual = {"text": columns.texts[0], "pair": columns.texts[1:], "label": columns.label}
        changes |= {name: value for name, value in usual.items() if not strict or (not getattr(source, name) and _has(path, value))}
    try:
        read = _own_reader(source.model_copy(update=changes), path, strict=strict)
    except BadText:
        if row is None or strict or isinstance(row.read, OfTable):
            raise
        return row.read  # a format of its own, under another name
    if not isinstance(read, OfTable):
        if strict:
            raise BadText(NO_COLUMNS, place=str(path), remedy="leave them out", code="no-named-columns")
        return read
    check_texts(read.columns, task, str(path))
    if columns is not None and columns.names:  # labels as they are written there, or as they are called here
        read.columns = replace(read.columns, names={**columns.names, **{label: label for label in task.labels}})
    return read


def _has(path: Path, columns: str | Sequence[str] | None) -> bool:
    wanted = [columns] if isinstance(columns, str) else columns or ()
    return table_kind(path) is not None and set(wanted) <= {name for row in first_rows(path) for name in row}


def _nothing(findings: Findings) -> str:
    return f"no examples; {findings.said()}" if findings.bad else "no examples"


def _read_splits(source: Source, findings: Findings) -> dict[str, list[Example]]:
    """All splits that come with answers."""
    row, folder = TASKS[str(source.dataset)], Path(str(source.folder))
    if "train" not in row.splits(folder):
        wanted = " or ".join(row.files["train"])
        remedy = f"--data names the folder with the files of {source.dataset}"
        raise NotFound(f"no {wanted} in this folder", place=str(folder), remedy=remedy, code="missing-file")
    return {name: row.read(path, findings) for name, path in row.splits(folder).items()}


def _own_reader(source: Source, path: Path, columns: Columns | None = None, *, strict: bool = True) -> Read:
    """How a file of the user's is read. The columns of a table, if they are not known, are those that the user named and usual ones; if not
    `strict`, columns of other names will do."""
    check_file(path)
    if source.shape == "span" and is_squad(path):
        return squad
    if table_kind(path) is None and source.shape == "tag":
        return _of_columns(source.label, path)
    if table_kind(path) is None:
        remedy = "known kinds: .csv, .tsv (between tabs), .jsonl, .json, .parquet; save a spreadsheet as .csv"
        raise BadText("not a table", place=str(path), remedy=remedy, code="not-a-table")
    return OfTable(columns or _columns(source, path, strict=strict), source.shape)


def _of_columns(label: str | None, path: Path) -> Read:
    if label is not None and not label.isdecimal():
        remedy = "the column of the tags by its number, from 1"
        raise BadText(f"--label {label}: these columns have no names", place=str(path), remedy=remedy, code="no-named-columns")
    return conll if label is None else partial(conll, column=int(label))


def _dev_reader(source: Source, path: Path, columns: Columns | None) -> Read:
    """A table like that of train; one with columns of other names, if it is clear which they are."""
    if columns is None or table_kind(path) is None or _has(path, columns.texts):
        return _own_reader(source, path, columns)
    paired = source.shape == "classify" and len(columns.texts) == 2
    return _own_reader(source.model_copy(update={"paired": paired, "by_text": None}), path, strict=False)


def _columns(source: Source, path: Path, *, strict: bool) -> Columns:
    rows = first_rows(path)
    known, text, pair, label = {name for row in rows for name in row}, source.text, source.pair, source.label
    if not strict and not {text, *pair} - {None} <= known:
        text, pair = None, ()
    if not strict and label is not None and not set(label_columns(label, source.shape)) <= known:
        label = None
    columns = guess_columns(rows, source.shape, text=text, pair=pair, label=label, paired=source.paired, place=str(path))
    if source.by_text is not None:
        columns = replace(columns, by_text=source.by_text, counted_from=source.counted_from, separator=source.separator)
    return columns


def describe_task(data: Data, source: Source) -> TaskConfig:
    """What is asked, as the examples show it."""
    row = TASKS[source.dataset] if source.dataset is not None else None
    labels = tuple(sorted({label for example in data.train for label in example.labels}))
    known = dict.fromkeys(row.labels) if row is not None else {}
    shift, scale = 0.0, 1.0
    marked = source.shape == "tag" and mark_stretches(labels)
    if source.shape == "regress":
        values = np.array([float(example.answer) for example in data.train])  # type: ignore[arg-type]
        shift, scale = float(values.mean()), float(values.std()) or 1.0
    return TaskConfig(
        shape=source.shape,
        labels=tuple(known) if known and set(labels) <= set(known) else labels,
        measure=row.measure if row is not None else measures_of(source.shape, labels)[0],
        pairs=len(data.train[0].texts) == 2 and source.shape in ("classify", "regress", "multilabel"),
        no_answer=row.no_answer if row is not None else any(example.answer == () for example in data.train),
        transitions=usual_transitions(example.labels for example in data.train) if marked else (),
        counted_from=(data.columns.counted_from or 0) if data.columns is not None else 0,
        shift=shift,
        scale=scale,
    )


def measures_of(shape: Shape, labels: Sequence[str]) -> tuple[str, ...]:
    """Those by which models may be compared, the usual one first."""
    return ("tag_accuracy",) if shape == "tag" and not mark_stretches(labels) else MEASURES[shape]


def find_source(
    task: str,
    *,
    data: Path | None,
    train: str | None,
    dev: str | None,
    text: str | None,
    pair: tuple[str, ...],
    label: str | None,
    first: int | None,
    skip_bad: bool,
) -> Source:
    """From what the user named, or an error that says what is missing."""
    if task in TASKS:
        if data is None:
            remedy = f"--data FOLDER with {TASKS[task].files['train'][0]}"
            raise BadText(f"{task} is a data set: name the folder with its files", remedy=remedy, code="missing-option")
        idle = [f"--{name}" for name, value in {"train": train, "dev": dev, "text": text, "pair": pair, "label": label}.items() if value]
        if idle:
            raise BadText(f"{task} knows its files and columns: {', '.join(idle)}", remedy="leave it out", code="no-effect")
        return Source(dataset=task, folder=str(data), shape=TASKS[task].shape, first=first, skip_bad=skip_bad)
    shapes: dict[str, Shape] = {**{shape: shape for shape in MEASURES}, "pair": "classify"}
    if task not in shapes:
        raise NotFound(f"no task is called {task!r}", remedy=nearest(task, [*TASKS, *shapes]), code="unknown-task")
    if train is None:
        raise BadText(f"{task} needs examples of your own", remedy="--train FILE", code="missing-option")
    if data is not None:
        remedy = "leave it out; --train FILE [--dev FILE]"
        raise BadText(f"--data is for data sets, {task} reads your own files", remedy=remedy, code="no-effect")
    named = {"text": text, "pair": pair, "label": label}
    return Source(train=train, dev=dev, shape=shapes[task], paired=task == "pair", first=first, skip_bad=skip_bad, **named)
