"""How rows of a table, other files and users' inputs become examples of one shape.

A shape's own `Schema` stands beside its task, in `tasks/<shape>.py`; it overrides what is different there. The base
class reads plain texts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bertworks.data.tables import Row
from bertworks.datasets.columns import (
    LABEL_NAMES,
    SECOND_TEXTS,
    TEXT_NAMES,
    Columns,
    MissingColumn,
    NamedColumns,
    Table,
    text_cell,
)
from bertworks.datasets.example import Example, InvalidRow, check_readable
from bertworks.datasets.report import ReadReport
from bertworks.errors import BadText, Remark

Input = str | Sequence[str] | tuple[str, Sequence[str]]
SECOND_NAMES = ("text2", "pair", *SECOND_TEXTS.values(), "question")
IMPOSSIBLE = "nothing can be learned from it"


class ExampleReader(Protocol):
    """Reads the examples of a file; if not `labelled`, without their answers, which may be missing or wrong."""

    def __call__(self, path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]: ...


class Schema:
    """A text, or two that are read together, and an answer."""

    shape: ClassVar[str] = "text"  # its name on the command line and in configs
    column_options: ClassVar[tuple[str, ...]] = ("text", "text2", "label")  # fields of `NamedColumns`
    takes_several_labels: ClassVar[bool] = False  # a column for each class
    label_names: ClassVar[tuple[str, ...]] = ()  # usual ones of this shape, before those of all
    table_help: ClassVar[tuple[tuple[str, str, str], ...]] = ()  # for --help: what to type, usual columns, a row
    input_help: ClassVar[str] = "a text"  # what users hand to a trained model

    # ------------------------------------------------------------------ tables

    def text_columns(self, table: Table, named: NamedColumns, *, paired: bool) -> tuple[str, ...]:
        """In the order in which the model reads them."""
        by_name = table.first(TEXT_NAMES) is not None
        first = named.text or (None if by_name else table.wordiest()) or table.usual(TEXT_NAMES, "the text", "text")
        if named.text2 is not None:
            return first, named.text2
        rest = table.without([first])
        second = (
            rest.first([SECOND_TEXTS[first.lower()]]) if named.text is None and first.lower() in SECOND_TEXTS else None
        )
        if paired and second is None:
            second = rest.usual(SECOND_NAMES, "the second text", "text2")
        return (first,) if second is None else (first, second)

    def label_columns(self, table: Table) -> tuple[str, ...]:
        found = table.first((*self.label_names, *LABEL_NAMES)) or table.most_repetitive()
        if found is None:
            raise MissingColumn("labels", "label")
        return (found,)

    def label_format(self, rows: Sequence[Row], columns: Columns) -> Columns:
        """With what the labels of these rows look like, where that differs from table to table."""
        return columns

    def named_columns(self, columns: Columns) -> NamedColumns:
        """The options that would name just these columns."""
        text, text2 = (*columns.texts, None)[:2]
        return NamedColumns(text=text, text2=text2, label=columns.labels)

    def legacy_named_columns(self, text: str | None, pair: Sequence[str], label: str | None) -> NamedColumns:
        """What --text, --pair and --label named before version 0.2."""
        return NamedColumns(text=text, text2=only_one(pair), label=(label,) if label else ())

    def check_columns(self, columns: Columns, pairs: bool | None, place: str) -> None:
        """Whether there are as many columns of text as a trained model reads together."""
        if len(columns.texts) not in self.n_texts(pairs):
            cause = f"columns of text: {', '.join(columns.texts)}; this model takes {self.expects(pairs)}"
            of_texts = [f"--{option}" for option in self.column_options if option != "label"]
            options = " and ".join(of_texts[: max(self.n_texts(pairs))])
            raise BadText(cause, place=place, remedy=f"name them with {options}", code="wrong-text-count")

    def texts(self, row: Row, columns: Columns) -> tuple[str, ...]:
        return tuple(text_cell(row, name) for name in columns.texts)

    def check_texts(self, texts: Sequence[str]) -> None:
        """Whether there is something to read in them; else an `InvalidRow`."""
        check_readable(texts)

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> Any:
        raise NotImplementedError

    def examples(self, rows: Iterable[tuple[str, Row]], columns: Columns, report: ReadReport) -> list[Example]:
        """The examples among the rows; what the others are is in the report."""
        found = []
        for place, row in rows:
            try:
                texts = self.texts(row, columns)
                self.check_texts(texts)
                is_known = bool(columns.labels) and all(name in row for name in columns.labels)
                answer = self.answer(row, texts, columns) if is_known else None
                found.append(Example(texts, answer, place, str(row.get("id", ""))))
            except InvalidRow as error:
                report.bad_row(error.cause, place, error.code)
        return found

    # ------------------------------------------------------------------ files that are no tables

    def file_reader(self, path: Path, label: str | None) -> ExampleReader | None:
        """For a file with answers that is no table of this shape's; `label`: the column of its labels, if the user
        named it."""
        return None

    def input_reader(self, path: Path, labels: Sequence[str]) -> ExampleReader | None:
        """For a file without answers that is neither a table nor plain text; `labels` are those that the model
        knows."""
        return None

    def readable(self, examples: Iterable[Example], report: ReadReport) -> list[Example]:
        """Those with something to read in them."""
        found = []
        for example in examples:
            try:
                self.check_texts(example.texts)
                found.append(example)
            except InvalidRow as error:
                report.bad_row(error.cause, example.place, error.code)
        return found

    # ------------------------------------------------------------------ what users hand to a model

    def n_texts(self, pairs: bool | None) -> tuple[int, ...]:
        """How many texts may be read together; `pairs` None: one or two."""
        return (1, 2) if pairs is None else (2,) if pairs else (1,)

    def expects(self, pairs: bool | None) -> str:
        return "a text, or two" if pairs is None else "two texts" if pairs else self.input_help

    def parse(self, given: object, pairs: bool | None) -> Example | None:
        """An input as an example; None: this is not what the task takes."""
        texts = (given,) if isinstance(given, str) else strings(given)
        return Example(texts) if texts is not None and len(texts) in self.n_texts(pairs) else None

    def from_cell(self, example: Example, row: Row, columns: Columns, *, as_trained: bool) -> Example:
        """An input that was read off a table; `as_trained`: off the columns that the model was trained on."""
        return example

    def input_remarks(self, *, as_trained: bool) -> list[Remark]:
        """How inputs were read off a table."""
        return []

    def splits_lines(self, pairs: bool | None) -> bool:
        """Whether a line of a text file holds several texts, separated by tabs."""
        return 2 in self.n_texts(pairs)

    def input_columns(self, pairs: bool | None) -> tuple[str, ...]:
        """What the texts of an input are called in a table that is written."""
        return ("text", "text2")[: max(self.n_texts(pairs))]

    def as_row(self, example: Example, pairs: bool | None) -> Row:
        """An example that does not come from a table, as a row of one."""
        return {**_id(example), **dict(zip(self.input_columns(pairs), example.texts, strict=False))}

    # ------------------------------------------------------------------ whether there is enough to learn from

    def check_labels(self, labels: Set[str], n_rows: int, *, place: str | None) -> None:
        """An error where these labels cannot be what is meant, which is why nothing may be left for dev."""

    def check_learnable(
        self, train: Sequence[Example], labels: Set[str], n_rows: int, *, place: str | None, first: int | None
    ) -> None:
        """An error where nothing can be learned; `first`: only so many rows were taken."""

    def data_remarks(self, train: Sequence[Example], dev: Sequence[Example], labels: Set[str]) -> list[Remark]:
        """What is worth knowing of these examples."""
        return []

    def stratum(self, example: Example) -> str:
        """Of which a dev split keeps the same share as of all."""
        return ""

    def groups(self, examples: Sequence[Example]) -> Iterator[tuple[list[Hashable], float]]:
        """What examples may have in common so that a split keeps them together, and how many different ones there must
        be."""
        yield [example.group for example in examples], 2

    fewest_dev: ClassVar[int] = 1  # of a stratum


def strings(given: object) -> tuple[str, ...] | None:
    """A list of texts and nothing else."""
    if not isinstance(given, list | tuple):
        return None
    texts = tuple(one for one in given if isinstance(one, str))
    return texts if len(texts) == len(given) else None


def only_one(pair: Sequence[str]) -> str | None:
    """What --pair named, where two texts are read together."""
    if len(pair) > 1:
        raise BadText(
            f"--pair names {len(pair)} columns, and two texts are read together",
            remedy="name one",
            code="too-many-columns",
        )
    return next(iter(pair), None)


def _id(example: Example) -> Row:
    return {"id": example.name} if example.name else {}


def one_label_error(labels: Set[str], n_rows: int, *, place: str | None, first: int | None) -> BadText:
    """All rows have the same label, or all of the first ones that were taken."""
    is_cut = first is not None and n_rows >= first
    rows = f"all of the first {first:,} rows" if is_cut else "all rows"
    remedy = "take more, or shuffle them" if is_cut else "is it the right column?"
    cause, code = f"{rows} have the same label, {min(labels)!r}", "one-label-in-first-rows" if is_cut else "one-label"
    return BadText(cause, place=place, remedy=f"{IMPOSSIBLE}; {remedy}", code=code)
