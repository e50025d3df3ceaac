"""How rows of a table, other files and users' inputs become examples of a task shape.

The base class reads a text, or two; each shape's subclass, in `tasks/<shape>.py`, overrides what differs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import ClassVar, Protocol

from bertworks.data.tables import Row
from bertworks.datasets.columns import (
    LABEL_NAMES,
    PAIR_COLUMNS,
    TEXT_NAMES,
    Columns,
    MissingColumn,
    NamedColumns,
    TableSample,
    text_cell,
)
from bertworks.datasets.example import Example, InvalidRow, check_readable
from bertworks.datasets.report import ReadReport
from bertworks.errors import BadText, Remark

Input = str | Sequence[str] | tuple[str, Sequence[str]]
SECOND_TEXT_NAMES = ("text2", "pair", *PAIR_COLUMNS.values(), "question")
NOTHING_TO_LEARN = "nothing can be learned from it"


class ExampleReader(Protocol):
    """Reads the examples of a file; if not `labelled`, answers are ignored, since they may be missing or invalid."""

    def __call__(self, path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]: ...


class Schema:
    """A text, or two that are read together, and an answer."""

    shape: ClassVar[str] = "text"  # its name on the command line and in configs
    synonyms: ClassVar[tuple[str, ...]] = ()  # what others call it, for suggestions
    column_options: ClassVar[tuple[str, ...]] = ("text", "text2", "label")  # fields of `NamedColumns`
    takes_several_labels: ClassVar[bool] = False  # labels may be in one column per class
    label_names: ClassVar[tuple[str, ...]] = ()  # common names of the label column, tried before `LABEL_NAMES`
    table_help: ClassVar[tuple[tuple[str, str, str], ...]] = ()  # for --help: task, columns, an example row
    input_help: ClassVar[str] = "a text"  # an input of a trained model
    min_dev: ClassVar[int] = 1  # examples (or groups of them) of a stratum in a dev split
    reads_folders: ClassVar[bool] = False  # a folder may be given in place of a file

    # ------------------------------------------------------------------ tables

    def text_columns(self, table: TableSample, named: NamedColumns, *, paired: bool) -> tuple[str, ...]:
        """The columns of the texts, in the order in which the model reads them; `paired`: there must be two."""
        first = named.text or table.find(TEXT_NAMES) or table.longest_text_column()
        if first is None:
            raise MissingColumn("the text", "text")
        if named.text2 is not None:
            return first, named.text2
        candidates = table.without([first])
        second = None
        if named.text is None and first.lower() in PAIR_COLUMNS:
            second = candidates.find([PAIR_COLUMNS[first.lower()]])
        if paired and second is None:
            second = candidates.require(SECOND_TEXT_NAMES, "the second text", "text2")
        return (first,) if second is None else (first, second)

    def label_columns(self, table: TableSample) -> tuple[str, ...]:
        column = table.find((*self.label_names, *LABEL_NAMES)) or table.fewest_values_column()
        if column is None:
            raise MissingColumn("the labels", "label")
        return (column,)

    def label_format(self, rows: Sequence[Row], columns: Columns) -> Columns:
        """`columns` with the format of the labels in these rows, where that differs from table to table."""
        return columns

    def named_columns(self, columns: Columns) -> NamedColumns:
        """The options that name these columns."""
        text, text2 = (*columns.texts, None)[:2]
        return NamedColumns(text=text, text2=text2, label=columns.labels)

    def legacy_named_columns(self, text: str | None, pair: Sequence[str], label: str | None) -> NamedColumns:
        """The columns that --text, --pair and --label named before version 0.2."""
        return NamedColumns(text=text, text2=single_pair_column(pair), label=(label,) if label else ())

    def check_columns(self, columns: Columns, pairs: bool | None, place: str) -> None:
        """An error unless there are as many text columns as a trained model reads together."""
        if len(columns.texts) not in self.n_texts(pairs):
            cause = f"text columns: {', '.join(columns.texts)}; this model expects {self.expects(pairs)}"
            text_options = [f"--{option}" for option in self.column_options if option != "label"]
            options = " and ".join(text_options[: max(self.n_texts(pairs))])
            raise BadText(cause, place=place, remedy=f"name them with {options}", code="wrong-text-count")

    def texts(self, row: Row, columns: Columns) -> tuple[str, ...]:
        return tuple(text_cell(row, name) for name in columns.texts)

    def check_texts(self, texts: Sequence[str]) -> None:
        """An `InvalidRow` if they are blank or not text."""
        check_readable(texts)

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> object:
        raise NotImplementedError

    def examples(self, rows: Iterable[tuple[str, Row]], columns: Columns, report: ReadReport) -> list[Example]:
        """The examples in the rows; invalid rows are reported."""
        examples = []
        for place, row in rows:
            try:
                texts = self.texts(row, columns)
                self.check_texts(texts)
                is_labelled = bool(columns.labels) and all(name in row for name in columns.labels)
                answer = self.answer(row, texts, columns) if is_labelled else None
                examples.append(Example(texts, answer, place, str(row.get("id", ""))))
            except InvalidRow as error:
                report.bad_row(error.cause, place, error.code)
        return examples

    def fitted(self, train: Sequence[Example]) -> Schema:
        """The schema that reads further files as these examples were read."""
        return self

    # ------------------------------------------------------------------ files that are not tables

    def file_reader(self, path: Path, label: str | None) -> ExampleReader | None:
        """The reader of a labelled file in a format of this shape's own, None: it is a table; `label`: the label column
        that the user named."""
        return None

    def input_reader(self, path: Path, labels: Sequence[str]) -> ExampleReader | None:
        """The reader of an unlabelled file, None: it is a table or plain text; `labels` are those of the model."""
        return None

    def without_blank_texts(self, examples: Iterable[Example], report: ReadReport) -> list[Example]:
        """The examples that pass `check_texts`; the others are reported as invalid rows."""
        valid = []
        for example in examples:
            try:
                self.check_texts(example.texts)
                valid.append(example)
            except InvalidRow as error:
                report.bad_row(error.cause, example.place, error.code)
        return valid

    # ------------------------------------------------------------------ inputs of a trained model

    def n_texts(self, pairs: bool | None) -> tuple[int, ...]:
        """The allowed numbers of texts in an input; `pairs` None: one or two."""
        return (1, 2) if pairs is None else (2,) if pairs else (1,)

    def expects(self, pairs: bool | None) -> str:
        """An input in words, for messages."""
        return "a text, or two" if pairs is None else "two texts" if pairs else self.input_help

    def parse(self, value: object, pairs: bool | None) -> Example | None:
        """An input as an example; None: it is not a valid input of the task."""
        texts = (value,) if isinstance(value, str) else as_strings(value)
        return Example(texts) if texts is not None and len(texts) in self.n_texts(pairs) else None

    def from_cell(self, example: Example, row: Row, columns: Columns, *, as_trained: bool) -> Example:
        """An input read from a table; `as_trained`: from the columns that the model was trained on."""
        return example

    def input_remarks(self, *, as_trained: bool) -> list[Remark]:
        """Remarks on how inputs were read from a table."""
        return []

    def splits_lines(self, pairs: bool | None) -> bool:
        """Whether a line of a text file holds several texts, separated by tabs."""
        return 2 in self.n_texts(pairs)

    def input_columns(self, pairs: bool | None) -> tuple[str, ...]:
        """The column names for the texts of an input in a table of predictions."""
        return ("text", "text2")[: max(self.n_texts(pairs))]

    def as_row(self, example: Example, pairs: bool | None) -> Row:
        """An example that does not come from a table, as a row of a table of predictions."""
        return {**id_cell(example), **dict(zip(self.input_columns(pairs), example.texts, strict=False))}

    # ------------------------------------------------------------------ checks before training, and the dev split

    def labels(self, train: Sequence[Example], dev: Sequence[Example]) -> set[str]:
        """The labels of a task with these examples."""
        return {label for example in train for label in example.labels}

    def shown_labels(self, example: Example, labels: Set[str]) -> tuple[str, ...]:
        """What remarks call the labels of an example; `labels`: of all examples."""
        return example.labels

    def to_tag_scheme(self, example: Example, labels: Set[str]) -> Example:
        """The same example; tags of entities are written in the scheme of these labels, such as BIO."""
        return example

    def check_labels(self, labels: Set[str], n_rows: int, *, place: str | None) -> None:
        """An error where the label column is probably not one of labels. Called before dev is checked, which such
        labels would leave empty."""

    def check_learnable(
        self, train: Sequence[Example], labels: Set[str], n_rows: int, *, place: str | None, max_rows: int | None
    ) -> None:
        """An error where nothing can be learned; `first`: train was cut to so many rows."""

    def data_remarks(self, train: Sequence[Example], dev: Sequence[Example], labels: Set[str]) -> list[Remark]:
        """Remarks on the examples."""
        return []

    def stratum(self, example: Example) -> str:
        """The stratum of an example in a stratified dev split."""
        return ""

    def groups(self, examples: Sequence[Example]) -> Iterator[tuple[list[Hashable], float]]:
        """Ways to group examples that a split keeps together, in order of preference: the group of each example, and
        how many groups there must be at least."""
        yield [example.group for example in examples], 2


def as_strings(value: object) -> tuple[str, ...] | None:
    """A list or tuple of strings; None: anything else."""
    if not isinstance(value, list | tuple):
        return None
    texts = tuple(text for text in value if isinstance(text, str))
    return texts if len(texts) == len(value) else None


def single_pair_column(pair: Sequence[str]) -> str | None:
    """The column that the old option --pair named, for shapes that read two texts."""
    if len(pair) > 1:
        raise BadText(
            f"--pair names {len(pair)} columns, but only one is the second text",
            remedy="name one",
            code="too-many-columns",
        )
    return next(iter(pair), None)


def id_cell(example: Example) -> Row:
    """The id column of a table of predictions, if the example has one."""
    return {"id": example.name} if example.name else {}


def one_label_error(labels: Set[str], n_rows: int, *, place: str | None, max_rows: int | None) -> BadText:
    """All rows have the same label, or all of the first rows that train was cut to."""
    is_cut = max_rows is not None and n_rows >= max_rows
    rows = f"all of the first {max_rows:,} rows" if is_cut else "all rows"
    remedy = "take more, or shuffle them" if is_cut else "is it the right column?"
    code = "one-label-in-first-rows" if is_cut else "one-label"
    cause = f"{rows} have the same label, {min(labels)!r}"
    return BadText(cause, place=place, remedy=f"{NOTHING_TO_LEARN}; {remedy}", code=code)
