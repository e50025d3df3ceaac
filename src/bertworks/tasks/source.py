"""Where the examples of a run come from: the folder of a data set or the user's own files; reading them, also again."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from pydantic import Field, model_validator

from bertworks.config import CountedFrom, Frozen, TaskConfig
from bertworks.datasets.checks import TaskData, check_data, with_known_labels
from bertworks.datasets.columns import Columns, NamedColumns, check_options, find_columns
from bertworks.datasets.example import Example
from bertworks.datasets.report import BadRows, ReadReport
from bertworks.datasets.schema import ExampleReader, Schema
from bertworks.datasets.split import SEED, split
from bertworks.datasets.tables import TableReader, check_file, has_columns, is_table, sample_rows
from bertworks.errors import BadText, NotFound, Remark
from bertworks.tasks.catalogue import CATALOGUE, DataSet
from bertworks.tasks.shapes import SHAPES, TaskClass, task_class

PAIR = "pair"  # on the command line: the classification of text pairs


class Source(Frozen):
    """Stored in the record of a run, so that the same examples can be read again."""

    dataset: str | None = Field(None, description="a row of the catalogue")
    folder: str | None = Field(None, description="folder with its files")
    train: str | None = Field(None, description="or the user's own file")
    dev: str | None = Field(None, description="file to evaluate on; null: split off train")
    shape: str
    columns: NamedColumns = NamedColumns()
    by_text: bool | None = Field(
        None, description="choice: the label is the text of the correct choice; null: to be detected"
    )
    separator: str | None = Field(None, description="multilabel: separator of the classes in a cell")
    counted_from: CountedFrom | None = Field(
        None, description="choice: number or letter of the first one; null: labels are not numbered"
    )
    paired: bool = False
    first: int | None = Field(None, ge=1, description="number of examples of train to use, from the first one")
    skip_bad: bool = False

    @model_validator(mode="before")
    @classmethod
    def _migrate(cls, values: object) -> object:
        """Records from before version 0.2 had text, pair and label, with several labels in one string."""
        if not isinstance(values, dict) or "pair" not in values:
            return values
        values = dict(values)
        text, pair, label = (values.pop(name, None) for name in ("text", "pair", "label"))
        return {**values, "columns": task_class(values["shape"]).schema.legacy_named_columns(text, pair or (), label)}

    @property
    def row_schema(self) -> Schema:
        return task_class(self.shape).schema

    def resolved(self, columns: Columns | None) -> Source:
        """For a record: with absolute paths, so that a run can be resumed from another folder, and with the names of
        guessed columns, so that other files are read in the same way."""
        paths = {name: getattr(self, name) for name in ("folder", "train", "dev")}
        changes: dict[str, object] = {name: path and str(Path(path).resolve()) for name, path in paths.items()}
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
    """The source for what the user named, or an error that says what is missing."""
    columns = columns or NamedColumns()
    if task in CATALOGUE:
        if data is None:
            remedy = f"--data FOLDER with {CATALOGUE[task].files['train'][0]}"
            raise BadText(f"{task} is a data set: name the folder with its files", remedy=remedy, code="missing-option")
        options = {"train": train, "dev": dev, **columns.by_option()}
        unsupported = [f"--{name}" for name, value in options.items() if value]
        if unsupported:
            cause = f"no effect with {task}, whose files and columns are fixed: {', '.join(unsupported)}"
            raise BadText(cause, remedy="leave it out", code="no-effect")
        return Source(
            dataset=task, folder=str(data), shape=CATALOGUE[task].task.schema.shape, first=first, skip_bad=skip_bad
        )
    schema = schema_for(task)
    if train is None:
        raise BadText(f"{task} needs a file of examples", remedy="--train FILE", code="missing-option")
    if data is not None:
        remedy = "leave it out; --train FILE [--dev FILE]"
        raise BadText(f"--data is for data sets, {task} reads your own files", remedy=remedy, code="no-effect")
    check_options(schema, columns)
    return Source(
        train=train, dev=dev, shape=schema.shape, paired=task == PAIR, first=first, skip_bad=skip_bad, columns=columns
    )


def schema_for(task: str) -> Schema:
    """The schema of a data set or shape."""
    if task in CATALOGUE:
        return CATALOGUE[task].task.schema
    if task != PAIR and task not in SHAPES:
        similar = similar_task(task)
        remedy = f"did you mean {similar!r}?" if similar else f"known names: {', '.join(sorted(task_names()))}"
        raise NotFound(f"unknown task {task!r}", remedy=remedy, code="unknown-task")
    return task_class(next(iter(SHAPES)) if task == PAIR else task).schema


def task_names() -> list[str]:
    return [*CATALOGUE, *SHAPES, PAIR]


def similar_task(name: str) -> str | None:
    """The task that somebody may mean who calls it so."""
    synonyms = {synonym: shape for shape, task in SHAPES.items() for synonym in task.schema.synonyms}
    names = {**synonyms, **{name: name for name in task_names()}}
    close_names = get_close_matches(name.lower(), names, n=1)
    return names[close_names[0]] if close_names else None


# ---------------------------------------------------------------------- to train on


def read_data(source: Source) -> TaskData:
    """Both splits, read and checked."""
    report = ReadReport()
    remarks: list[Remark] = []
    if source.dataset is not None:
        splits = _read_splits(source, report)
        columns = CATALOGUE[source.dataset].columns
    else:
        assert source.train is not None
        schema = source.row_schema
        read = _file_reader(source, schema, Path(source.train))
        columns = read.columns if isinstance(read, TableReader) else None
        if columns is not None:
            remarks.append(columns.as_remark())
        splits = {"train": read(Path(source.train), report)}
        if source.dev is not None:
            read = _dev_reader(source, schema.fitted(splits["train"][: source.first]), Path(source.dev), columns)
            if isinstance(read, TableReader) and read.columns != columns:
                remarks.append(read.columns.as_remark("dev-columns", (" of dev", "开发集的")))
            splits["dev"] = read(Path(source.dev), report)
    report.check_encoding(sum(map(len, splits.values())))
    has_dev = "dev" in splits
    data = TaskData(splits.pop("train")[: source.first], splits.pop("dev", []), columns, remarks, extra_eval=splits)
    if has_dev and not data.dev and (source.skip_bad or not report.bad):
        remedy = "correct it; without a dev file, dev is split off train"
        place = source.dev or source.folder
        raise BadRows(f"dev: {_no_examples(report)}", report.bad, place=place, remedy=remedy, code="no-dev-examples")
    if not has_dev:
        data.train, data.dev = split(data.train, source.row_schema)
        text = f"no dev file: {len(data.dev):,} examples are split off train, with seed {SEED}"
        chinese = f"没有开发集文件：从训练集划出 {len(data.dev):,} 个样本（种子 {SEED}）"
        data.remarks.append(Remark("dev-split", text, chinese))
    place = source.train or source.folder
    check_data(data, source.row_schema, report, place=place, max_rows=source.first, skip_bad=source.skip_bad)
    return data


def _read_splits(source: Source, report: ReadReport) -> dict[str, list[Example]]:
    """All labelled splits of a data set."""
    dataset = CATALOGUE[str(source.dataset)]
    folder = Path(str(source.folder))
    if "train" not in dataset.splits(folder):
        names = " or ".join(dataset.files["train"])
        remedy = f"name the folder with the files of {source.dataset} with --data"
        raise NotFound(f"no {names} in this folder", place=str(folder), remedy=remedy, code="missing-file")
    return {name: dataset.read(path, report) for name, path in dataset.splits(folder).items()}


def _file_reader(
    source: Source, schema: Schema, path: Path, columns: Columns | None = None, *, strict: bool = True
) -> ExampleReader:
    """The reader of a user's file. The columns of a table, unless given, are those that the user named, and guessed
    ones; if not `strict`, named columns may be missing."""
    if not (schema.reads_folders and path.is_dir()):
        check_file(path)
    labels = source.columns.label
    format_reader = schema.file_reader(path, labels[0] if labels else None)
    if format_reader is not None:
        has_named_texts = any(option != "label" for option in source.columns.by_option())
        if strict and (has_named_texts or (labels and is_table(path))):
            cause = "columns are named, but this is not a table"
            raise BadText(cause, place=str(path), remedy="leave them out", code="no-named-columns")
        return format_reader
    if not is_table(path):
        remedy = "supported: .csv, .tsv (tab-separated), .jsonl, .json, .parquet; save a spreadsheet as .csv"
        raise BadText("not a table", place=str(path), remedy=remedy, code="not-a-table")
    return TableReader(columns or _columns(source, path, strict=strict), schema)


def _dev_reader(source: Source, schema: Schema, path: Path, columns: Columns | None) -> ExampleReader:
    """The reader of dev: with the columns of train, or with guessed ones if dev does not have these."""
    if columns is None or not is_table(path) or has_columns(path, columns.texts):
        return _file_reader(source, schema, path, columns, strict=columns is None)  # named columns are those of train
    paired = task_class(source.shape).reads_pairs and len(columns.texts) == 2
    return _file_reader(source.model_copy(update={"paired": paired, "by_text": None}), schema, path, strict=False)


def _columns(source: Source, path: Path, *, strict: bool) -> Columns:
    rows = sample_rows(path)
    named = source.columns
    if not strict:  # without the named columns that this table does not have
        existing = {name for row in rows for name in row}
        texts = [name for option, names in named.by_option().items() if option != "label" for name in names]
        labels = named.label if set(named.label) <= existing else ()
        named = named.model_copy(update={"label": labels}) if set(texts) <= existing else NamedColumns(label=labels)
    columns = find_columns(source.row_schema, rows, named, str(path), paired=source.paired)
    if source.by_text is not None:
        columns = replace(columns, by_text=source.by_text, counted_from=source.counted_from, separator=source.separator)
    return columns


def _no_examples(report: ReadReport) -> str:
    return f"no examples; {report.summary()}" if report.bad else "no examples"


def describe_task(data: TaskData, source: Source) -> TaskConfig:
    """The config of the task: its labels, its metric, and what else follows from the examples."""
    task: TaskClass = task_class(source.shape)
    labels = tuple(sorted(task.schema.labels(data.train, data.dev)))
    fields = {"metric": task.metrics_for(labels)[0].name, **task.describe(data, labels)}
    if source.dataset is not None:
        dataset = CATALOGUE[source.dataset]
        fields |= {"metric": dataset.metric, **dataset.config}
        if dataset.labels and set(labels) <= set(dataset.labels):
            labels = tuple(dict.fromkeys(dataset.labels))
    return TaskConfig(shape=source.shape, labels=labels, **fields)


# ---------------------------------------------------------------------- to evaluate on


def read_eval_data(
    source: Source,
    data_path: Path,
    task: TaskConfig,
    *,
    schema: Schema | None = None,
    named: NamedColumns | None = None,
) -> TaskData:
    """Further labelled examples for a fine-tuned model: a file, or the folder of a data set with its dev split.
    `schema`: the model's, with what it has learned; `named`: columns that the user names for this file."""
    schema = schema or source.row_schema
    report = ReadReport()
    dataset = CATALOGUE.get(source.dataset or "")
    path = data_path
    extra: dict[str, Path] = {}
    if dataset is not None and data_path.is_dir() and not dataset.has(data_path, labelled=True):
        extra = dataset.splits(data_path)
        extra.pop("train", None)
        if "dev" not in extra:
            names = " or ".join(dataset.files["dev"])
            raise NotFound(f"no {names} in this folder", place=str(data_path), code="missing-file")
        path = extra.pop("dev")
    elif (dataset is None or not data_path.is_dir()) and not (schema.reads_folders and data_path.is_dir()):
        check_file(data_path)
    read = _eval_reader(source, schema, dataset, path, task, named)
    data = TaskData([], [])
    if isinstance(read, TableReader) and (dataset is None or read is not dataset.read):
        data.columns = read.columns
        data.remarks.append(data.columns.as_remark())
    splits = {name: read(split_path, report) for name, split_path in {"dev": path, **extra}.items()}
    report.check_encoding(sum(map(len, splits.values())))
    labels = set(task.labels)
    for name, examples in splits.items():
        rewritten = [schema.to_tag_scheme(example, labels) for example in examples]
        known = with_known_labels(rewritten, labels, report, problem=" is not one of the model's", code="unknown-label")
        data.extra_eval[name] = list(known)
    data.dev = data.extra_eval.pop("dev")
    report.check_rows(skip=source.skip_bad, columns=data.columns)
    if not data.dev:
        raise BadRows(_no_examples(report), report.bad, place=str(data_path), code="no-examples")
    data.remarks += report.remarks()
    return data


def _eval_reader(
    source: Source,
    schema: Schema,
    dataset: DataSet | None,
    path: Path,
    task: TaskConfig,
    named: NamedColumns | None,
) -> ExampleReader:
    """The reader of further examples for a model that was fine-tuned on `source`: that of the data set, if the file
    belongs to it, or that of a table."""
    strict = named is not None
    if dataset is not None and not strict and dataset.has(path, labelled=True):
        return dataset.read
    eval_columns = source.columns.model_copy(
        update={option: getattr(named, option) for option in named.by_option()} if named is not None else {}
    )
    columns = dataset.columns if dataset is not None else None
    if columns is not None:
        official = schema.named_columns(columns)
        named_options = eval_columns.by_option()
        defaults = {
            option: getattr(official, option)
            for option, names in official.by_option().items()
            if not strict or (option not in named_options and has_columns(path, names))
        }
        eval_columns = eval_columns.model_copy(update=defaults)
    try:
        eval_source = source.model_copy(update={"columns": eval_columns, "paired": bool(task.pairs)})
        read = _file_reader(eval_source, schema, path, strict=strict)
    except BadText:
        if dataset is None or strict or isinstance(dataset.read, TableReader):
            raise
        return dataset.read  # the data set's format, under another file name
    if not isinstance(read, TableReader):
        return read
    schema.check_columns(read.columns, task.pairs, str(path))
    if columns is not None and columns.label_map:  # labels as the data set writes them, or our names of them
        read.columns = replace(read.columns, label_map={**columns.label_map, **{label: label for label in task.labels}})
    return read
