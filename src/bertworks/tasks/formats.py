"""Files that examples come in: tables, GLUE's rows between tabs, SQuAD's JSON, CoNLL's columns, and what single data sets have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from bertworks.config import Shape
from bertworks.data.packed import Damaged, unpacked
from bertworks.data.tables import Row, decoded, kind_of, rows_of
from bertworks.errors import BadText, NotFound
from bertworks.tasks.columns import GUESSED_FROM
from bertworks.tasks.example import Example, Span
from bertworks.tasks.rows import Columns, Findings, make_examples

Read = Callable[[Path, Findings], list[Example]]
POLARITY = {"0": "negative", "1": "positive"}


def lines_of(path: Path, findings: Findings) -> Iterator[tuple[str, str]]:
    """Each line with its place."""
    try:
        with unpacked(path) as (stream, _):
            for number, line in enumerate(decoded(stream, str(path), findings), start=1):
                yield f"{path}, line {number}", line
    except Damaged as error:
        raise NotFound(f"cannot be read: {getattr(error, 'strerror', None) or error}", place=str(path)) from None


@contextmanager
def opened_table(path: Path, findings: Findings) -> Iterator[Iterator[tuple[str, Row]]]:
    """The rows of a table, each with its place."""
    try:
        with unpacked(path) as (stream, _):
            yield rows_of(stream, str(kind_of(path)), str(path), findings, all_columns=True)
    except Damaged as error:
        raise NotFound(f"cannot be read: {getattr(error, 'strerror', None) or error}", place=str(path)) from None


def check_file(path: Path) -> None:
    if path.is_dir():
        raise NotFound("this is a folder", place=str(path), remedy="name a file in it")
    if not path.is_file():
        raise NotFound("no such file", place=str(path))


def first_rows(path: Path) -> list[Row]:
    """Of a table, to guess from."""
    findings = Findings()
    with opened_table(path, findings) as found:
        rows = [row for _, row in islice(found, GUESSED_FROM)]
    if not rows:
        raise BadText(findings.said() if findings.bad else "no rows in this table", place=str(path))
    return rows


class Tabbed:
    """Reads rows between tabs as GLUE has them: quotes are signs like any other. `header`: where the file has none; `torn`: the official
    file has rows of another width, and all leave them out."""

    def __init__(
        self,
        *texts: str,
        label: str | None,
        names: Mapping[str, str] | None = None,
        header: Sequence[str] | None = None,
        shape: Shape = "classify",
        torn: bool = False,
    ) -> None:
        self.columns, self.header, self.shape, self.torn = Columns(texts, label, names or {}), header, shape, torn

    def __call__(self, path: Path, findings: Findings) -> list[Example]:
        return make_examples(self.rows(path, findings), self.columns, self.shape, findings)

    def rows(self, path: Path, findings: Findings) -> Iterator[tuple[str, Row]]:
        return _with_columns(self._all_rows(path, findings), self.columns.texts, path)

    @contextmanager
    def opened(self, path: Path, findings: Findings) -> Iterator[Iterator[tuple[str, Row]]]:
        """As `opened_table`."""
        yield self.rows(path, findings)

    def _all_rows(self, path: Path, findings: Findings) -> Iterator[tuple[str, Row]]:
        header = self.header
        for place, line in lines_of(path, findings):
            fields = line.split("\t")
            if header is None:
                header = fields
            elif line and len(fields) != len(header):
                (findings.torn_row if self.torn else findings.bad_row)(f"{len(fields)} fields, {len(header)} are usual", place)
            elif line:
                yield place, dict(zip(header, fields, strict=True))


def _with_columns(rows: Iterator[tuple[str, Row]], texts: Sequence[str], path: Path) -> Iterator[tuple[str, Row]]:
    for place, row in rows:
        missing = [name for name in texts if name not in row]
        if missing:
            raise BadText(f"no column {missing[0]!r}", place=str(path), remedy=f"columns: {', '.join(row)}; is this the official file?")
        yield place, row


def chnsenticorp(path: Path, findings: Findings) -> list[Example]:
    """With the header `label, text_a`, or text and label alone; the test file has no labels."""
    first = next(iter(islice(lines_of(path, Findings()), 1)), ("", ""))[1].split("\t")
    if "text_a" in first:
        return Tabbed("text_a", label="label", names=POLARITY)(path, findings)
    return Tabbed("text", label="label", names={"negative": "negative", "positive": "positive"}, header=("text", "label"))(path, findings)


def imdb(path: Path, findings: Findings) -> list[Example]:
    """The folders pos/ and neg/ of aclImdb, or rows with text and label."""
    if path.is_dir():
        found = []
        sides = [sorted((path / name).glob("*.txt")) for name in ("neg", "pos")]
        for file in (file for pair in zip_longest(*sides) for file in pair if file is not None):  # in turn: the first ones are of both
            text = "\n".join(line for _, line in lines_of(file, findings))
            found.append(Example((text.replace("<br />", "\n"),), file.parent.name, str(file)))
        return found
    with opened_table(path, findings) as rows:
        plain = ((place, {**row, "text": str(row.get("text")).replace("<br />", "\n")}) for place, row in rows)
        return make_examples(plain, Columns(("text",), "label"), "classify", findings)


def squad(path: Path, findings: Findings) -> list[Example]:
    """SQuAD 1.1 and 2.0."""
    try:
        asked = [
            (article, paragraph["context"], question)
            for article in _json(path)["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
        return [example for one in asked if (example := _question(*one, path, findings)) is not None]
    except (KeyError, TypeError, AttributeError) as error:
        remedy = "known: SQuAD 1.1 and 2.0; or a table with columns for question, passage and answer"
        raise BadText(f"not a file of SQuAD's: {error!r}", place=str(path), remedy=remedy) from None


def _question(article: Any, passage: str, question: Any, path: Path, findings: Findings) -> Example | None:
    place = f"{path}, question {question['id']}"
    answers = tuple(Span(answer["answer_start"], answer["text"]) for answer in question.get("answers", ()))
    wrong = [span for span in answers if passage[span.start : span.end] != span.text]
    if wrong:
        findings.bad_row(f"the answer {wrong[0].text[:60]!r} is not at character {wrong[0].start}", place)
        return None
    return Example((question["question"].strip(), passage), answers, place, question["id"], group=article.get("title") or passage)


def _json(path: Path) -> Any:
    """All of a file: SQuAD's are one long line."""
    try:
        with unpacked(path) as (stream, _):
            return json.loads(stream.read())
    except Damaged as error:
        raise NotFound(f"cannot be read: {getattr(error, 'strerror', None) or error}", place=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise BadText(f"not JSON: {str(error)[:100]}", place=str(path)) from None


def conll(path: Path, findings: Findings, *, tagged: bool = True) -> list[Example]:
    """A word and its tag on a line, first and last of its columns; a blank line ends a sentence. Or a sentence and its tags on a line,
    between them a tab. Without tags, or with tags that do not count, if not `tagged`."""
    lines = list(lines_of(path, findings))
    found: list[Example] = []
    sentence: list[tuple[str, str]] = []
    start = ""

    def add(words: Sequence[str], tags: Sequence[str], place: str) -> None:
        if words:
            found.append(Example(tuple(words), tuple(tags) if tagged else None, place))

    if path.suffix == ".conllu":
        lines = [(place, pair) for place, line in lines if (pair := _universal(line)) is not None]
    if _are_sentences(line for _, line in lines):
        for place, line in lines:
            words, _, tags = line.partition("\t")
            add(words.split(), tags.split(), place)
        return found
    for place, line in [*lines, ("", "")]:
        parts = line.split()
        if not parts or parts[0] == "-DOCSTART-":
            add([word for word, _ in sentence], [tag for _, tag in sentence], start)
            sentence = []
        elif tagged and len(parts) < 2:
            findings.bad_row("a word without a tag", place)
        else:
            start = start if sentence else place
            sentence.append((parts[0], parts[-1]))
    return found


conll_words = partial(conll, tagged=False)


def _universal(line: str) -> str | None:
    """Word and part of speech of a line of CoNLL-U; None: a comment, or words written together, which follow one by one."""
    parts = line.split("\t")
    if len(parts) == 10 and parts[0].isdecimal():
        return f"{parts[1].replace(' ', '_')} {parts[3]}"
    return None if line.strip() else ""


def _are_sentences(lines: Iterable[str]) -> bool:
    """Whether each line has as many words before its tab as tags behind it, and some have several."""
    halves = [[part.split() for part in line.split("\t")] for line in lines if line.strip()]
    equal = all(len(one) == 2 and len(one[0]) == len(one[1]) for one in halves)
    return equal and any(len(one[0]) > 1 for one in halves)


def swag(path: Path, findings: Findings) -> list[Example]:
    """The second sentence begins the same in all endings."""
    ways = [f"ending{at}" for at in range(4)]
    with opened_table(path, findings) as rows:
        joined = (
            (place, {**row, **{way: f"{row.get('sent2') or ''} {row.get(way) or ''}".strip() for way in ways}}) for place, row in rows
        )
        return make_examples(joined, Columns(("sent1", *ways), "label"), "choice", findings)


def dream(path: Path, findings: Findings) -> list[Example]:
    """Questions about dialogues."""
    found = []
    try:
        for turns, asked, name in _json(path):
            for at, question in enumerate(asked):
                ways = tuple(f"{question['question']} {choice}" for choice in question["choice"])
                answer = question["choice"].index(question["answer"])
                place = f"{path}, dialogue {name}, question {at + 1}"
                found.append(Example(("\n".join(turns), *ways), answer, place, f"{name}-{at}", group=name))
    except (KeyError, TypeError, ValueError) as error:
        raise BadText(f"not a file of DREAM's: {error!r}", place=str(path), remedy="or a table with the choices in columns") from None
    return found
