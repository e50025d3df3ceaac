"""What users hand to a fine-tuned model, as examples without an answer."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bertworks.config import LearnedConfig, TaskConfig
from bertworks.data.tables import Row, decoded, kind_of
from bertworks.errors import BadConfig, BadText, NotFound
from bertworks.tasks.datasets import Read, conll_words, opened_table, squad
from bertworks.tasks.example import Example
from bertworks.tasks.rows import GUESSED_FROM, Columns, Findings, guess_columns, make_examples

Input = str | Sequence[str] | tuple[str, Sequence[str]]
SIGN = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # Chinese and Japanese: each is a word
WORD = re.compile(rf"[{SIGN}]|[^\W{SIGN}]+(?:[-'’.][^\W{SIGN}]+)*|[^\w\s]")
OF_SHAPE: dict[str, dict[str, Read]] = {"span": {".json": squad}, "tag": {".conll": conll_words, ".bio": conll_words}}
EXPECTED = {
    "classify": "a text",
    "regress": "a text",
    "multilabel": "a text",
    "tag": "a text, or a list of words",
    "span": "a question and a passage",
    "choice": "a text and a list of at least two ways to go on",
}


@dataclass
class Asked:
    """What a file asks a model, and its rows as they stand there, where it is a table."""

    examples: list[Example]
    rows: list[Row]
    remarks: list[str] = field(default_factory=list)


def as_example(given: Input, task: TaskConfig, at: int) -> Example:
    place, texts = f"input {at}", _texts(given, task)
    if texts is None:
        raise BadText(f"not what this model takes: {_wanted(task)}", place=place)
    if any(not text.strip() for text in texts):
        raise BadText("an empty text", place=place, remedy="leave it out")
    if task.shape == "tag" and isinstance(given, str):
        return Example(texts, None, place, whole=given, begins=tuple(found.start() for found in WORD.finditer(given)))
    return Example(texts, None, place)


def _wanted(task: TaskConfig) -> str:
    return "two texts" if task.pairs else EXPECTED[task.shape]


def read_inputs(file: str, learned: LearnedConfig, *, text: str | None, pair: Sequence[str], skip_bad: bool) -> Asked:
    """A table, SQuAD's JSON, sentences as CoNLL has them, or else a text on each line; several texts of a line lie between tabs."""
    path, task, findings = Path(file), learned.task, Findings()
    if file != "-" and not path.is_file():
        raise NotFound("no such file", place=file)
    is_table = file != "-" and kind_of(path) is not None
    if (text is not None or pair) and not is_table:
        raise BadConfig("--text and --pair name columns, and this is no table", place=file, remedy="leave them out")
    if path.suffix in OF_SHAPE.get(task.shape, {}):
        asked = Asked(OF_SHAPE[task.shape][path.suffix](path, findings), [])
    elif is_table:
        asked = _of_table(path, learned, text, pair, findings)
    else:
        asked = _of_lines(path, task, findings)
    if findings.bad and not skip_bad:
        raise BadText(findings.said(), remedy="put them right, or --skip-bad goes on without them")
    if findings.bad:
        asked.remarks.append(f"left out: {findings.said()}")
    asked.remarks += findings.remarks()
    if not asked.examples:
        raise BadText("nothing to answer", place=file)
    return asked


def _of_table(path: Path, learned: LearnedConfig, text: str | None, pair: Sequence[str], findings: Findings) -> Asked:
    """The columns that the user names, or those of the table it was trained on, or usual names."""
    task, place = learned.task, str(path)
    with opened_table(path, findings) as found:
        rows = list(found)
    if not rows:
        raise BadText("no rows in this table", place=place)
    if text is None and not pair and learned.columns and all(name in rows[0][1] for name in learned.columns):
        columns = Columns(learned.columns, None)
    else:
        values = [row for _, row in rows[:GUESSED_FROM]]
        columns = guess_columns(values, task.shape, text=text, pair=pair, label="", paired=task.pairs, place=place)
    several = task.shape == "choice" or len(columns.texts) == (2 if task.pairs or task.shape == "span" else 1)
    if not several:
        raise BadText(f"{len(columns.texts)} columns of text; this model takes {_wanted(task)}", place=place)
    by_place = dict(rows)
    examples = make_examples(iter(rows), columns, task.shape, findings)
    return Asked(examples, [by_place[example.place] for example in examples], [f"columns: {', '.join(columns.texts)}"])


def _of_lines(path: Path, task: TaskConfig, findings: Findings) -> Asked:
    several = task.pairs or task.shape in ("span", "choice")
    examples = []
    with sys.stdin.buffer if str(path) == "-" else path.open("rb") as stream:
        for number, line in enumerate(decoded(stream, str(path), findings), start=1):
            if line.strip():
                try:
                    examples.append(replace(as_example(line.split("\t") if several else line, task, 0), place=f"{path}, line {number}"))
                except BadText as reason:
                    findings.bad_row(reason.cause, f"{path}, line {number}")
    return Asked(examples, [])


def _texts(given: Input, task: TaskConfig) -> tuple[str, ...] | None:
    """None: these are not the texts that the task takes."""
    if task.shape == "tag":
        words = tuple(WORD.findall(given)) if isinstance(given, str) else _strings(given)
        return words or None
    if task.shape == "choice":
        if isinstance(given, str) or len(given) < 2:
            return None
        first, rest = given[0], given[1] if len(given) == 2 and not isinstance(given[1], str) else given[1:]
        found = _strings([first, *rest])
        return found if found is not None and len(found) > 2 else None
    found = (given,) if isinstance(given, str) else _strings(given)
    wanted = 2 if task.pairs or task.shape == "span" else 1
    return found if found is not None and len(found) == wanted else None


def _strings(given: Sequence[object]) -> tuple[str, ...] | None:
    found = tuple(one for one in given if isinstance(one, str))
    return found if len(found) == len(given) else None
