"""Where the examples of a run come from: a data set's folder or the user's own files; and how they are read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from bertworks.config import CountedFrom, Frozen, TaskConfig
from bertworks.datasets.checks import TaskData, check_data, with_known_labels
from bertworks.datasets.columns import Columns, NamedColumns, check_options, find_columns
from bertworks.datasets.example import Example
from bertworks.datasets.report import BadRows, ReadReport
from bertworks.datasets.schema import ExampleReader, Schema
from bertworks.datasets.split import SEED, split
from bertworks.datasets.tables import TableReader, check_file, has_columns, is_table, sample_rows
from bertworks.errors import BadText, NotFound, Remark, nearest
from bertworks.tasks.catalogue import CATALOGUE, DataSet
from bertworks.tasks.shapes import SHAPES, TaskClass, task_class

PAIR = "pair"  # a task for users: two texts, one of several classes
NO_COLUMNS = "columns are named, and this is no table"


class Source(Frozen):
    """Written into the record of a run, so that the same examples can be read again."""

    dataset: str | None = Field(None, description="a row of the catalogue")
    folder: str | None = Field(None, description="where its files are")
    train: str | None = Field(None, description="or a file of one's own")
    dev: str | None = Field(None, description="to compare models on; none: a part of train")
    shape: str
    columns: NamedColumns = NamedColumns()
    by_text: bool | None = Field(
        None, description="choice: the label is the text of the right one; null: that is looked for"
    )
    separator: str | None = Field(None, description="multilabel: what separates the classes of a cell")
    counted_from: CountedFrom | None = Field(
        None, description="choice: the first one's number or letter; null: they have none"
    )
    paired: bool = False
    first: int | None = Field(None, ge=1, description="only the first examples of train")
    skip_bad: bool = False

    @model_validator(mode="before")
    @classmethod
    def _today(cls, values: Any) -> Any:
        """Records of before version 0.2 had text, pair and label, several labels in one string."""
        if not isinstance(values, dict) or "pair" not in values:
            return values
        values = dict(values)
        text, pair, label = (values.pop(name, None) for name in ("text", "pair", "label"))
        return {**values, "columns": task_class(values["shape"]).schema.legacy_named_columns(text, pair or (), label)}

    @property
    def row_schema(self) -> Schema:
        return task_class(self.shape).schema

    def resolved(self, columns: Columns | None) -> Source:
        """For a record: files by their absolute paths, so that a run can go on from another folder, and the columns
        that were guessed by their names, so that other files are read in the same way."""
        paths = {name: getattr(self, name) for name in ("folder", "train", "dev")}
        changes: dict[str, Any] = {name: path and str(Path(path).resolve()) for name, path in paths.items()}
        if columns is not None and self.dataset is None:
            changes["columns"] = self.row_schema.named_columns(columns)
            changes |= {
                "by_text": columns.by_text,
                "counted_from": columns.counted_from,
                "separator": columns.separator,
            }
        return self.model_copy(update=changes)


def find_source(
    task: str,
    *,
    data: Path | None = None,
    train: str | None = None,
    dev: str | None = None,
    columns: NamedColumns | None = None,
    first: int | None = None,
    skip_bad: bool = False,
) -> Source:
    """From what the user named, or an error that says what is missing."""
    columns = columns or NamedColumns()
    if task in CATALOGUE:
        if data is None:
            remedy = f"--data FOLDER with {CATALOGUE[task].files['train'][0]}"
            raise BadText(f"{task} is a data set: name the folder with its files", remedy=remedy, code="missing-option")
        given = {"train": train, "dev": dev, **columns.by_option()}
        idle = [f"--{name}" for name, value in given.items() if value]
        if idle:
            raise BadText(
                f"{task} knows its files and columns: {', '.join(idle)}", remedy="leave it out", code="no-effect"
            )
        return Source(
            dataset=task, folder=str(data), shape=CATALOGUE[task].task.schema.shape, first=first, skip_bad=skip_bad
        )
    schema = schema_for(task)
    if train is None:
        raise BadText(f"{task} needs examples of your own", remedy="--train FILE", code="missing-option")
    if data is not None:
        remedy = "leave it out; --train FILE [--dev FILE]"
        raise BadText(f"--data is for data sets, {task} reads your own files", remedy=remedy, code="no-effect")
    check_options(schema, columns)
    return Source(
        train=train, dev=dev, shape=schema.shape, paired=task == PAIR, first=first, skip_bad=skip_bad, columns=columns
    )


def schema_for(task: str) -> Schema:
    """Of what the user named: a data set, or a shape."""
    if task in CATALOGUE:
        return CATALOGUE[task].task.schema
    if task != PAIR and task not in SHAPES:
        raise NotFound(
            f"no task is called {task!r}", remedy=nearest(task, [*CATALOGUE, *SHAPES, PAIR]), code="unknown-task"
        )
    return task_class(next(iter(SHAPES)) if task == PAIR else task).schema


# ---------------------------------------------------------------------- to train on


def read_data(source: Source) -> TaskData:
    """Both splits, read and checked."""
    report, columns = ReadReport(), None
    remarks: list[Remark] = []
    if source.dataset is not None:
        found, columns = _read_splits(source, report), CATALOGUE[source.dataset].columns
    else:
        assert source.train is not None
        read = _file_reader(source, Path(source.train))
        columns = read.columns if isinstance(read, TableReader) else None
        if columns is not None:
            remarks.append(Remark("columns", f"columns: {columns}"))
        found = {"train": read(Path(source.train), report)}
        if source.dev is not None:
            read = _dev_reader(source, Path(source.dev), columns)
            if isinstance(read, TableReader) and read.columns != columns:
                remarks.append(Remark("dev-columns", f"columns of dev: {read.columns}"))
            found["dev"] = read(Path(source.dev), report)
    report.check_encoding(sum(map(len, found.values())))
    has_dev = "dev" in found
    data = TaskData(found.pop("train")[: source.first], found.pop("dev", []), columns, remarks, extra_eval=found)
    if has_dev and not data.dev and (source.skip_bad or not report.bad):
        remedy = "without a dev file, a part of train is kept for that"
        place = source.dev or source.folder
        raise BadRows(f"dev: {_no_examples(report)}", report.bad, place=place, remedy=remedy, code="no-dev-examples")
    if not has_dev:
        data.train, data.dev = split(data.train, source.row_schema)
        text = f"no dev file: {len(data.dev):,} examples are kept as dev, drawn with seed {SEED}"
        data.remarks.append(Remark("dev-split", text))
    check_data(
        data,
        source.row_schema,
        report,
        place=source.train or source.folder,
        first=source.first,
        skip_bad=source.skip_bad,
    )
    return data


def _read_splits(source: Source, report: ReadReport) -> dict[str, list[Example]]:
    """All splits that come with answers."""
    row, folder = CATALOGUE[str(source.dataset)], Path(str(source.folder))
    if "train" not in row.splits(folder):
        wanted = " or ".join(row.files["train"])
        remedy = f"--data names the folder with the files of {source.dataset}"
        raise NotFound(f"no {wanted} in this folder", place=str(folder), remedy=remedy, code="missing-file")
    return {name: row.read(path, report) for name, path in row.splits(folder).items()}


def _file_reader(source: Source, path: Path, columns: Columns | None = None, *, strict: bool = True) -> ExampleReader:
    """How a file of the user's is read. The columns of a table, if they are not known, are those that the user named
    and usual ones; if not `strict`, columns of other names will do."""
    check_file(path)
    labels = source.columns.label
    special = source.row_schema.file_reader(path, labels[0] if labels else None)
    if special is not None or not is_table(path):
        named = [option for option in source.columns.by_option() if option != "label" or special is None]
        if special is None:
            remedy = "known kinds: .csv, .tsv (tab-separated), .jsonl, .json, .parquet; save a spreadsheet as .csv"
            raise BadText("not a table", place=str(path), remedy=remedy, code="not-a-table")
        if strict and (named or (labels and is_table(path))):
            raise BadText(NO_COLUMNS, place=str(path), remedy="leave them out", code="no-named-columns")
        return special
    return TableReader(columns or _columns(source, path, strict=strict), source.row_schema)


def _dev_reader(source: Source, path: Path, columns: Columns | None) -> ExampleReader:
    """A table like that of train; one with columns of other names, if it is clear which they are."""
    if columns is None or not is_table(path) or has_columns(path, columns.texts):
        return _file_reader(source, path, columns, strict=columns is None)  # what is named is named for train
    paired = task_class(source.shape).reads_pairs and len(columns.texts) == 2
    return _file_reader(source.model_copy(update={"paired": paired, "by_text": None}), path, strict=False)


def _columns(source: Source, path: Path, *, strict: bool) -> Columns:
    rows = sample_rows(path)
    known, named = {name for row in rows for name in row}, source.columns
    if not strict:
        texts = [name for option, names in named.by_option().items() if option != "label" for name in names]
        labels = named.label if set(named.label) <= known else ()
        named = named.model_copy(update={"label": labels}) if set(texts) <= known else NamedColumns(label=labels)
    columns = find_columns(source.row_schema, rows, named, str(path), paired=source.paired)
    if source.by_text is not None:
        columns = replace(columns, by_text=source.by_text, counted_from=source.counted_from, separator=source.separator)
    return columns


def _no_examples(report: ReadReport) -> str:
    return f"no examples; {report.summary()}" if report.bad else "no examples"


def describe_task(data: TaskData, source: Source) -> TaskConfig:
    """What is asked, as the examples show it."""
    row = CATALOGUE[source.dataset] if source.dataset is not None else None
    task: TaskClass = task_class(source.shape)
    labels = tuple(sorted({label for example in data.train for label in example.labels}))
    known = dict.fromkeys(row.labels) if row is not None else {}
    values = {"metric": task.metrics_for(labels)[0].name, **task.describe(data, labels)}
    if row is not None:
        values |= {"metric": row.metric, **row.config}
    return TaskConfig(
        shape=source.shape, labels=tuple(known) if known and set(labels) <= set(known) else labels, **values
    )


# ---------------------------------------------------------------------- to evaluate on


def read_eval_data(source: Source, where: Path, task: TaskConfig, *, named: NamedColumns | None = None) -> TaskData:
    """Other examples of the same kind: a file, or the folder of a data set with its dev. `named`: columns that the user
    names now."""
    report, row, path = ReadReport(), CATALOGUE.get(source.dataset or ""), where
    extra: dict[str, Path] = {}
    if row is not None and where.is_dir() and not row.has(where, labelled=True):
        extra = row.splits(where)
        extra.pop("train", None)
        if "dev" not in extra:
            raise NotFound(f"no {' or '.join(row.files['dev'])} in this folder", place=str(where), code="missing-file")
        path = extra.pop("dev")
    elif row is None or not where.is_dir():
        check_file(where)
    read = _eval_reader(source, row, path, task, named)
    data = TaskData(
        [], [], read.columns if isinstance(read, TableReader) and (row is None or read is not row.read) else None
    )
    data.remarks += [Remark("columns", f"columns: {data.columns}")] if data.columns is not None else []
    found = {name: read(at, report) for name, at in {"dev": path, **extra}.items()}
    report.check_encoding(sum(map(len, found.values())))
    data.extra_eval = {
        name: list(
            with_known_labels(
                examples, set(task.labels), report, problem=" is not one of the model's", code="unknown-label"
            )
        )
        for name, examples in found.items()
    }
    data.dev = data.extra_eval.pop("dev")
    report.check_rows(skip=source.skip_bad)
    if not data.dev:
        raise BadRows(_no_examples(report), report.bad, place=str(where), code="no-examples")
    data.remarks += report.remarks()
    return data


def _eval_reader(
    source: Source, row: DataSet | None, path: Path, task: TaskConfig, named: NamedColumns | None
) -> ExampleReader:
    """How further examples are read for a model that was fine-tuned on `source`: a file of the data set, whatever its
    name; or a table."""
    strict = named is not None
    if row is not None and not strict and row.has(path, labelled=True):
        return row.read
    wanted = source.columns.model_copy(
        update={option: getattr(named, option) for option in named.by_option()} if named is not None else {}
    )
    columns = row.columns if row is not None else None
    if columns is not None:
        usual = source.row_schema.named_columns(columns)
        given = wanted.by_option()
        fitting = {
            option: getattr(usual, option)
            for option, names in usual.by_option().items()
            if not strict or (option not in given and has_columns(path, names))
        }
        wanted = wanted.model_copy(update=fitting)
    try:
        read = _file_reader(
            source.model_copy(update={"columns": wanted, "paired": bool(task.pairs)}), path, strict=strict
        )
    except BadText:
        if row is None or strict or isinstance(row.read, TableReader):
            raise
        return row.read  # a format of its own, under another name
    if not isinstance(read, TableReader):
        return read
    source.row_schema.check_columns(read.columns, task.pairs, str(path))
    if columns is not None and columns.label_map:  # labels as they are written there, or as they are called here
        read.columns = replace(read.columns, label_map={**columns.label_map, **{label: label for label in task.labels}})
    return read
