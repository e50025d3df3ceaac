"""Reading labelled data: the official files of datasets, and users' tables with all that may be wrong with them."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertworks.config import TaskArtifact, TaskConfig
from bertworks.data import tables
from bertworks.datasets.checks import WITHOUT_COPIES, TaskData
from bertworks.datasets.columns import Columns, NamedColumns
from bertworks.datasets.example import Example, Span
from bertworks.datasets.inputs import Inputs, as_example
from bertworks.datasets.report import MAX_ROWS_SHOWN, BadRow, BadRows
from bertworks.errors import Remark
from bertworks.runs.predictions import inputs_for
from bertworks.tasks.catalogue import CATALOGUE
from bertworks.tasks.evaluation import metric_values
from bertworks.tasks.inference import evaluation_mode, run_windows
from bertworks.tasks.shapes import make_task, task_class
from bertworks.tasks.source import Source, describe_task, find_source, read_data, read_eval_data
from bertworks.tasks.task import Task
from bertworks.tasks.windows import SlidingWindows
from refusals import refused
from test_tasks import minilm, sliding_windows, small_task


def named_source(task: str = "classify", **named: Any) -> Source:
    """Columns by their options, and all else that `find_source` takes."""
    columns = NamedColumns(**{option: named.pop(option) for option in NamedColumns.model_fields if option in named})
    return find_source(task, columns=columns, **named)


def read_table(path: Path, task: str = "classify", **named: Any) -> TaskData:
    return read_data(named_source(task, **{"train": str(path), **named}))


def as_recorded(source: Source, columns: Columns | None) -> Source:
    """The source as it is read back from the record of a run."""
    return Source.model_validate_json(source.resolved(columns).model_dump_json())


def inputs_of(path: Path | str, artifact: TaskArtifact, **named: Any) -> Inputs:
    """A file as a model with this artifact reads it for prediction."""
    predictor: Any = SimpleNamespace(
        artifact=artifact, task=SimpleNamespace(schema=task_class(artifact.task.shape).schema)
    )
    return inputs_for(predictor, str(path), **named)


def predictions_of(task: Task[Any, Any], examples: Sequence[Example]) -> list[Any]:
    features = task.features(examples, sliding_windows())
    with evaluation_mode(task):
        return task.decode_all(run_windows(task, features), features, examples)


def write_lines(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@contextmanager
def bad_rows(*expected: tuple[str, str], code: str = "bad-rows") -> Iterator[list[BadRow]]:
    """Expects exactly these bad rows: the code of each and how its place ends. The first of them are in the message."""
    rows: list[BadRow] = []
    with refused(code, kind=BadRows) as error:
        yield rows
    assert isinstance(error.value, BadRows)
    rows += error.value.rows
    assert [row.code for row in rows] == [name for name, _ in expected]
    for row, (_, place) in zip(rows, expected, strict=True):
        assert row.place.endswith(place), row
    assert all(row.place in error.value.cause and row.cause in error.value.cause for row in rows[:MAX_ROWS_SHOWN])


def remark_codes(remarks: Sequence[Remark]) -> list[str]:
    return [remark.code for remark in remarks]


def remark_text(remarks: Sequence[Remark], code: str) -> str:
    """The text of the only remark with this code."""
    (text,) = (str(remark) for remark in remarks if remark.code == code)
    return text


def numbers(text: str) -> list[str]:
    """The numbers in a message, without those in folder names."""
    return re.findall(r"\d[\d,]*(?:\.\d+)?(?<!,)", re.sub(r"/\S*/", "", text))


# ---------------------------------------------------------------------- users' tables


def test_columns_and_labels_are_guessed_and_reported(tmp_path: Path) -> None:
    rows = [f'{i},"text {i}, with a comma",{["spam", "ham"][i % 2]}' for i in range(40)]
    data = read_table(write_lines(tmp_path / "mail.csv", "id,text,label", *rows))
    assert len(data.train) == 36 and len(data.dev) == 4
    assert data.train[0].texts[0].startswith("text ")
    assert {example.answer for example in data.dev} == {"spam", "ham"}
    assert data.columns == Columns(("text",), ("label",), unused=("id",))
    assert all(name in remark_text(data.remarks, "columns") for name in ("text", "label", "id"))
    assert set(numbers(remark_text(data.remarks, "dev-split"))) == {"4", "0"}, "how many, and the seed"


def test_the_dev_split_is_stratified(tmp_path: Path) -> None:
    rows = [f"text {i}\t{'rare' if i % 10 == 0 else 'common'}" for i in range(200)]
    path = write_lines(tmp_path / "a.tsv", "sentence\tclass", *rows)
    data = read_table(path)
    assert Counter(example.answer for example in data.dev) == {"rare": 2, "common": 18}
    assert not {example.texts for example in data.dev} & {example.texts for example in data.train}
    assert read_table(path).dev == data.dev, "the same seed, the same split"


def test_quotes_in_tsv_are_literal_or_delimiters(tmp_path: Path) -> None:
    """GLUE's files are full of quotes that never close; other programs quote cells."""
    plain = write_lines(
        tmp_path / "plain.tsv",
        "text\tlabel",
        *[f'"He said {i}.\t{"ab"[i % 2]}' for i in range(20)],
        'So "did" I.\ta',
    )
    data = read_table(plain)
    assert len(data.train) + len(data.dev) == 21
    assert any(example.texts[0].startswith('"He said') for example in data.train)
    quoted = write_lines(
        tmp_path / "quoted.tsv", "text\tlabel", *[f'"He ""said"" {i},\tso"\t{"ab"[i % 2]}' for i in range(20)]
    )
    assert any(example.texts[0].startswith('He "said"') for example in read_table(quoted).train)


def test_a_quote_far_down_does_not_swallow_rows(tmp_path: Path) -> None:
    rows = [f"text {i}\t{'ab'[i % 2]}" for i in range(1500)]
    rows[1200], rows[1400] = '"open\ta', '"and again\tb'
    data = read_table(write_lines(tmp_path / "a.tsv", "text\tlabel", *rows))
    assert len(data.train) + len(data.dev) == 1500
    (tmp_path / "b.tsv").write_bytes(b"text\tlabel\none\rtwo\ta\n")
    with bad_rows(("carriage-return", "b.tsv, line 2")):
        read_table(tmp_path / "b.tsv")


def test_an_unclosed_quote_is_reported(tmp_path: Path) -> None:
    """Every quoted cell of the first rows is complete, so quotes are delimiters; then one is not."""
    rows = [f"text {i}\t{'ab'[i % 2]}" for i in range(1500)]
    rows[3] = '"Hello there."\ta'
    rows[1200] = '"open\ta'
    rows[1400] = 'and again"\tb'
    with bad_rows(("unclosed-quote", "a.tsv, line 1202")):
        read_table(write_lines(tmp_path / "a.tsv", "text\tlabel", *rows))
    data = read_table(tmp_path / "a.tsv", skip_bad=True)
    assert len(data.train) + len(data.dev) == 1499, "the rows in between are not lost"
    rows[5] = 'So "did" I.\ta'  # a quote inside a cell: quotes are literal
    data = read_table(write_lines(tmp_path / "a.tsv", "text\tlabel", *rows))
    assert len(data.train) + len(data.dev) == 1500


def test_misplaced_quotes_invalidate_one_row_only(tmp_path: Path) -> None:
    rows = [f'"text {i}","{"ab"[i % 2]}"' for i in range(100)]
    rows[20] = '"closed too late,"a"'
    rows[60] = '"he said \\"hi\\" there","a"'
    rows[80] = '"never closed,a'
    path = write_lines(tmp_path / "a.csv", "text,label", *rows)
    with bad_rows(*[("text-after-quote", f"a.csv, line {line}") for line in (22, 62, 82)]):
        read_table(path)
    data = read_table(path, skip_bad=True)
    assert len(data.train) + len(data.dev) == 97
    swallowed = [
        '"open,a',
        *[f"text {i},b" for i in range(5)],
        'size 5",a',
        *[f"t {i},{'ab'[i % 2]}" for i in range(20)],
    ]
    with bad_rows(("unclosed-quote", "c.csv, line 2")):
        read_table(write_lines(tmp_path / "c.csv", "text,label", *swallowed))
    with refused("quotes-in-header", place="d.csv, line 1"):
        read_table(write_lines(tmp_path / "d.csv", '"text" x,label', "a,b", "c,d"))
    multiline_cells = write_lines(tmp_path / "b.csv", "", "text ,label", *['"two\nlines",a', "one,b"] * 10, ",b")
    with bad_rows(("empty-text", "b.csv, line 33")):
        read_table(multiline_cells)


def test_multiline_cells_are_not_split_into_rows(tmp_path: Path) -> None:
    """Lines of a letter have commas where a row has them; what they hold is no label."""
    letter = '"Dear Sir,\nI came, I saw\nI won, I left\nBye",a'
    data = read_table(
        write_lines(tmp_path / "a.csv", "text,label", letter, *[f"text {i},{'ab'[i % 2]}" for i in range(20)])
    )
    assert len(data.train) + len(data.dev) == 21
    assert ("Dear Sir,\nI came, I saw\nI won, I left\nBye",) in {example.texts for example in (*data.train, *data.dev)}
    rows = [
        "1,open",
        '2,"open',
        *[f"{i},text {i}" for i in range(3, 40)],
        '40,size 5"',
        "41,last",
    ]  # no cell occurs twice
    artifact = TaskArtifact(task=TaskConfig(shape="classify"), columns=("text",))
    for table_rows in (rows, [*rows[:12], *rows[-2:]], [f"x{line}" for line in rows]):
        path = write_lines(tmp_path / "b.csv", "id,text", *table_rows)
        with bad_rows(("unclosed-quote", "b.csv, line 3")):
            inputs_of(path, artifact)
    verse = ['"Shall I compare thee,\nThou art more lovely,\nRough winds do shake,\nsummer",', "b,", "c,", "d,"]
    inputs = inputs_of(write_lines(tmp_path / "c.csv", "text,notes", *verse), artifact)
    assert inputs.total == 4, "an empty cell is not a label"


@pytest.mark.parametrize("head", [["text;label"], ["sep=;", "text;label"]])
def test_other_delimiters(head: list[str], tmp_path: Path) -> None:
    data = read_table(write_lines(tmp_path / "a.csv", *head, *[f"yes, {i};{'ab'[i % 2]}" for i in range(20)]))
    assert data.train[0].texts[0].startswith("yes, ")
    assert {example.answer for example in data.train} == {"a", "b"}


def test_all_rows_are_bad(tmp_path: Path) -> None:
    with bad_rows(("wrong-field-count", "a.csv, line 2"), ("wrong-field-count", "a.csv, line 3")) as rows:
        read_table(write_lines(tmp_path / "a.csv", "text,label", "a, x,pos", "b, y,neg"))
    assert numbers(rows[0].cause) == ["3", "2"]
    with refused("is-a-folder", place=str(tmp_path)):
        read_table(tmp_path)


def test_answer_positions_are_those_of_the_table(tmp_path: Path) -> None:
    def span(**row: Any) -> Any:
        rows = [{"question": f"which {i}?", "context": f"man has a plan {i}", "answer": "a", **row} for i in range(20)]
        (answer,) = read_table(write_lines(tmp_path / "s.jsonl", *map(json.dumps, rows)), "span").train[0].answer
        return answer

    assert span().start == 8, "a word of its own"
    assert span(answer_start=1).start == 1 and span(answer_start="12").start == 12
    with bad_rows(*[("answer-not-at-start", f"s.jsonl, line {line}") for line in range(1, 21)]) as rows:
        span(answer_start=0)
    assert "'a'" in rows[0].cause and numbers(rows[0].cause) == ["0"]
    assert read_table(
        write_lines(
            tmp_path / "one.jsonl",
            *[json.dumps({"question": str(i), "context": "I am", "answer": "I"}) for i in range(20)],
        ),
        "span",
    ).dev


@pytest.mark.parametrize(
    ("answers", "code", "parts_of_cause"),
    [
        ({"text": ["man"], "answer_start": ["0"]}, "bad-answer", ["'man'", "'0'"]),
        ({"text": [None], "answer_start": [0]}, "bad-answer", ["'None'", "0"]),
        ({"text": ["man", "has"], "answer_start": [0]}, "wrong-answer-count", ["2", "1"]),
    ],
)
def test_invalid_answers_are_bad_rows(
    answers: dict[str, Any], code: str, parts_of_cause: list[str], tmp_path: Path
) -> None:
    rows = [
        {"query": f"which {i}?", "context": "man has a plan", "answers": {"text": ["man"], "answer_start": [0]}}
        for i in range(20)
    ]
    path = write_lines(tmp_path / "s.jsonl", *map(json.dumps, [*rows, {**rows[0], "answers": answers}]))
    with bad_rows((code, "s.jsonl, line 21")) as bad:
        read_table(path, "span")
    assert all(name in bad[0].cause for name in parts_of_cause)
    assert len(read_table(path, "span", skip_bad=True).train) == 18


def test_a_row_that_lacks_a_column(tmp_path: Path) -> None:
    rows = [{"id": 1, "label": "a"}, *({"text": f"text {i}", "label": "ab"[i % 2]} for i in range(20))]
    path = write_lines(tmp_path / "a.jsonl", *map(json.dumps, rows))
    with bad_rows(("missing-column", "a.jsonl, line 1")) as bad:
        read_table(path)
    assert all(name in bad[0].cause for name in ("'text'", "id", "label"))
    data = read_table(path, skip_bad=True)
    assert len(data.train) + len(data.dev) == 20


def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    rows = [{"tokens": ["a", "b\ud83d"], "tags": ["O", "B-X"]}] * 20
    data = read_table(write_lines(tmp_path / "t.jsonl", *map(json.dumps, rows)), "tag")
    assert data.train[0].texts == ("a", "b\ufffd") and data.fingerprint
    assert numbers(remark_text(data.remarks, "replaced-characters")) == ["20"]
    questions = [{"id": "1", "question": "Who\ud83d?", "answers": [{"answer_start": 0, "text": "I"}]}]
    content = {
        "data": [{"title": str(i), "paragraphs": [{"context": f"I am {i}.", "qas": questions}]} for i in range(20)]
    }
    (tmp_path / "s.json").write_text(json.dumps(content))
    assert read_table(tmp_path / "s.json", "span").train[0].texts[0] == "Who\ufffd?"


def test_train_and_dev_of_different_formats(tmp_path: Path) -> None:
    conll = write_lines(tmp_path / "a.conll", *["Li B-X", "sang O", ""] * 10)
    table = write_lines(tmp_path / "b.csv", "words,tags", "Li sang,B-X O")
    for train, dev in ((conll, table), (table, conll)):
        data = read_table(train, "tag", dev=str(dev))
        assert data.dev[0].texts == ("Li", "sang") and data.dev[0].answer == ("B-X", "O")
    assert read_table(table, "tag", text="words", dev=str(conll)).dev[0].texts == ("Li", "sang"), (
        "the columns are those of the table"
    )
    with refused("no-named-columns", place="a.conll"):
        read_table(conll, "tag", text="words")


def test_comment_lines_are_not_tokens(tmp_path: Path) -> None:
    """As MultiCoNER has them; a hash can be a word all the same."""
    lines = ["# id 1 domain=en", "Li _ _ B-X", "sang _ _ O", "", "# _ _ O", "one _ _ O", "# x _ odd", ""] * 10
    data = read_table(write_lines(tmp_path / "a.conll", *lines), "tag", skip_bad=True)
    assert {example.texts for example in (*data.train, *data.dev)} == {("Li", "sang"), ("#", "one", "#")}


def test_labels_missing_in_dev_are_reported(tmp_path: Path) -> None:
    rows = (
        [f"text {i},A" for i in range(100)]
        + [f"{name} {i},{name}" for name in "BCDEF" for i in range(4)]
        + ["x,G", "y,G"]
    )
    data = read_table(write_lines(tmp_path / "a.csv", "text,label", *rows))
    assert Counter(example.answer for example in data.dev) == {"A": 10, "B": 1, "C": 1, "D": 1, "E": 1, "F": 1}
    assert re.findall(r"\b[A-G]\b", remark_text(data.remarks, "labels-not-in-dev")) == ["G"]


def test_a_long_first_line_is_not_printed_in_full(tmp_path: Path) -> None:
    with refused("no-text-column", place="q.tsv") as error:
        read_table(write_lines(tmp_path / "q.tsv", *[f"Who?\t{'a long passage ' * 99}\tno one"] * 2), "span")
    assert all(name in str(error.value.remedy) for name in ("--context", "Who?", "a long passage", "no one"))
    assert str(error.value).count("a long passage") < 5 and len(str(error.value)) < 400


def test_choices_labelled_by_letters_are_predicted_as_letters(tmp_path: Path) -> None:
    rows = [f"q {i},x,y,z,{'abC'[i % 3]}" for i in range(30)]
    data = read_table(write_lines(tmp_path / "c.csv", "question,option_a,option_b,option_c,answer", *rows), "choice")
    assert {(int(example.texts[0][2:]) % 3, example.answer) for example in data.train} == {(0, 0), (1, 1), (2, 2)}
    assert data.columns is not None
    assert data.columns.counted_from == "A"
    assert re.search(r"\bA\b", remark_text(data.remarks, "columns"))
    source = named_source("choice", train=str(tmp_path / "c.csv"))
    recorded_source = as_recorded(source, data.columns)
    assert [example.answer for example in read_data(recorded_source).dev] == [example.answer for example in data.dev]
    task = make_task(small_task("bert-mini", "choice").model, describe_task(data, source))
    predictions = predictions_of(task, data.dev)
    assert all(prediction.choice == "ABC"["xyz".index(str(prediction.text))] for prediction in predictions)
    is_correct = [
        prediction.text == example.texts[1 + example.answer]
        for prediction, example in zip(predictions, data.dev, strict=True)
    ]
    assert metric_values(task, predictions, data.dev)["accuracy"] == sum(is_correct) / len(is_correct)
    by_text = read_table(
        write_lines(
            tmp_path / "t.csv", "question,option_a,option_b,answer", *[f"q {i},a,b,{'ba'[i % 2]}" for i in range(30)]
        ),
        "choice",
    )
    assert by_text.columns is not None
    assert by_text.columns.by_text
    assert by_text.train[0].texts[1 + by_text.train[0].answer] == "ba"[int(by_text.train[0].texts[0][2:]) % 2]


def test_choices_counted_from_one(tmp_path: Path) -> None:
    data = read_table(
        write_lines(
            tmp_path / "c.csv", "question,option1,option2,answer", *[f"q {i},x,y,{1 + i % 2}" for i in range(20)]
        ),
        "choice",
    )
    assert {(example.texts[0][-1] in "02468", example.answer) for example in data.train} == {(True, 0), (False, 1)}
    assert data.columns is not None
    assert data.columns.counted_from == 1
    assert re.search(r"\b1\b", remark_text(data.remarks, "columns"))
    source = named_source("choice", train=str(tmp_path / "c.csv"))
    eval_file = write_lines(tmp_path / "few.csv", "question,option1,option2,answer", "q,x,y,1")
    eval_data = read_eval_data(as_recorded(source, read_data(source).columns), eval_file, TaskConfig(shape="choice"))
    assert eval_data.dev[0].answer == 0, "as in training, whatever the file shows"
    task = make_task(small_task("bert-mini", "choice").model, describe_task(data, source))
    examples = [Example(("ba ku", "da", "lo"), i % 2) for i in range(4)]
    predictions = predictions_of(task, examples)
    assert all(
        prediction.choice in (1, 2) and examples[0].texts[prediction.choice] == prediction.text
        for prediction in predictions
    ), "answered as they are counted there"
    assert metric_values(task, predictions, examples) == {"accuracy": 0.5}


def test_one_flag_column_per_label(tmp_path: Path) -> None:
    rows = [f"t {i},{i % 2},{i % 3 // 2}" for i in range(20)]
    data = read_table(
        write_lines(tmp_path / "m.csv", "comment_text,toxic,insult", *rows), "multilabel", label=("toxic", "insult")
    )
    assert {example.answer for example in data.train} == {(), ("toxic",), ("insult",), ("toxic", "insult")}
    source = named_source("multilabel", train=str(tmp_path / "m.csv"), label=("toxic", "insult"))
    recorded_source = as_recorded(source, data.columns)
    assert (
        len(
            read_eval_data(
                recorded_source, tmp_path / "m.csv", TaskConfig(shape="multilabel", labels=("toxic", "insult"))
            ).dev
        )
        == 20
    )
    with bad_rows(*[("repeated-label", f"h.jsonl, line {line}") for line in range(1, 21)]) as bad:
        read_table(write_lines(tmp_path / "h.jsonl", *['{"text": "a", "labels": [1, 0, 1]}'] * 20), "multilabel")
    assert "[1, 0, 1]" in bad[0].cause
    with bad_rows(*[("not-a-flag", f"m.csv, line {line}") for line in range(2, 22)]) as bad:
        read_table(
            write_lines(tmp_path / "m.csv", "text,toxic,insult", *[f"t {i},2,0" for i in range(20)]),
            "multilabel",
            label=("toxic", "insult"),
        )
    assert "'2'" in bad[0].cause and "'toxic'" in bad[0].cause


def test_detected_columns_and_label_counts_are_reported(tmp_path: Path) -> None:
    data = read_table(
        write_lines(
            tmp_path / "a.csv", "id,sentence1,sentence2,label", *[f"{i},a {i},b,{'xy'[i % 2]}" for i in range(20)]
        )
    )
    assert data.train[0].texts[1] == "b", "two columns that belong together"
    assert data.columns == Columns(("sentence1", "sentence2"), ("label",), unused=("id",))
    assert re.findall(r"sentence1|sentence2|label|id", remark_text(data.remarks, "columns")) == [
        "sentence1",
        "sentence2",
        "label",
        "id",
    ]
    assert remark_codes(data.remarks)[0] == "columns"
    assert re.findall(r"\b([xy])\W+(\d+)", remark_text(data.remarks, "labels")) == [
        ("x", "9"),
        ("y", "9"),
    ]
    scores = read_table(
        write_lines(tmp_path / "b.csv", "text,score", *[f"a {i},{i / 2}" for i in range(20)]), "regress"
    )
    train_scores = [float(str(example.answer)) for example in scores.train]
    assert [*map(float, numbers(remark_text(scores.remarks, "labels")))] == [min(train_scores), max(train_scores)]


@pytest.mark.parametrize(
    ("task", "rows", "code", "row_codes"),
    [
        ("regress", [f"a {i},1.5" for i in range(20)], "one-number", set()),
        ("regress", [f'a {i},"0,5"' for i in range(20)], "bad-rows", {"decimal-comma"}),
        ("regress", [f"a {i},half" for i in range(20)], "bad-rows", {"not-a-number"}),
        ("classify", [f"a {i},{i}.5" for i in range(20)], "too-many-labels", set()),
    ],
)
def test_implausible_labels_are_refused(
    task: str, rows: list[str], code: str, row_codes: set[str], tmp_path: Path
) -> None:
    with refused(code) as error:
        read_table(write_lines(tmp_path / "a.csv", "text,label", *rows), task)
    assert {row.code for row in getattr(error.value, "rows", ())} == row_codes
    if code == "too-many-labels":
        assert numbers(error.value.cause) == ["20", "20"]
    with refused("given-twice", place="a.csv"):
        read_table(write_lines(tmp_path / "a.csv", "text,label", *rows), task, text="label", label=("label",))


def test_rare_labels_stay_in_train(tmp_path: Path) -> None:
    """Wherever the rare label is, the split that we draw must not be what makes the run impossible."""
    for i in range(20):
        sentences = [f"a{n} b\t{'B-rare' if n == i else 'B-x'} O" for n in range(20)]
        multilabel_rows = [f"text {n},{'rare' if n == i else 'usual'}" for n in range(20)]
        tags = write_lines(tmp_path / "t.conll", *sentences)
        multilabel = write_lines(tmp_path / "m.csv", "text,labels", *multilabel_rows)
        for data in (read_table(tags, "tag"), read_table(multilabel, "multilabel")):
            assert any("rare" in label for example in data.train for label in example.labels)
            assert data.dev


def test_a_regression_reads_a_column_of_numbers(tmp_path: Path) -> None:
    """Not one of words that is called as usual, and not one that counts the rows."""
    rows = [f"{n},text {n},{'good' if n % 2 else 'bad'},{n % 7 / 2}" for n in range(30)]
    guessed = read_table(write_lines(tmp_path / "a.csv", "id,text,label,grade", *rows), "regress")
    assert guessed.columns is not None and guessed.columns.labels == ("grade",)
    named = read_table(
        write_lines(tmp_path / "b.csv", "id,text,grade,score", *rows[:-1], "30,a,b,?"), "regress", skip_bad=True
    )
    assert named.columns is not None and named.columns.labels == ("score",)


def test_if_all_rows_are_skipped_columns_and_cause_are_said(tmp_path: Path) -> None:
    table = write_lines(
        tmp_path / "a.csv", "text,label", *[f"text {n},{'good' if n % 3 else 'bad'}" for n in range(30)]
    )
    with refused("no-examples", kind=BadRows) as error:
        read_table(table, "regress", skip_bad=True)
    assert "all 30 rows" in error.value.cause and "(20): 'good' is not a number" in error.value.cause
    assert "text -> label" in error.value.cause and "--label NAME" in str(error.value.remedy)
    with refused("bad-rows", kind=BadRows) as error:
        read_table(table, "regress")
    assert "text -> label" in str(error.value.place)


def test_regression_dev_split_has_several_examples(tmp_path: Path) -> None:
    data = read_table(write_lines(tmp_path / "r.csv", "text,score", *[f"text {n},{n}" for n in range(14)]), "regress")
    assert (len(data.train), len(data.dev)) == (9, 5)


def test_equal_texts_stay_in_one_split(tmp_path: Path) -> None:
    data = read_table(
        write_lines(tmp_path / "a.csv", "text,label", *[f"text {i % 30},{'ab'[i % 2]}" for i in range(120)])
    )
    assert not {example.texts for example in data.dev} & {example.texts for example in data.train}
    assert len(data.dev) == 16
    assert (
        len(read_table(write_lines(tmp_path / "b.csv", "text,label", *[f"t {i},{'ab'[i % 2]}" for i in range(8)])).dev)
        == 2
    ), "few, but some"


def test_tab_separated_words_may_contain_spaces(tmp_path: Path) -> None:
    """And whitespace other than an ASCII space may be a word."""
    tabs = read_table(write_lines(tmp_path / "t.conll", *["New York\tB-LOC", "\u3000\tO", "is\tO", ""] * 8), "tag")
    assert tabs.train[0].texts == ("New York", "\u3000", "is")
    assert tabs.train[0].answer == ("B-LOC", "O", "O")
    spaces = read_table(write_lines(tmp_path / "s.conll", *["York  B-LOC", "\u3000 O", "a\u00a0b O", ""] * 8), "tag")
    assert spaces.train[0].texts == ("York", "\u3000", "a\u00a0b")


def test_a_sentence_with_a_malformed_line_is_a_bad_row(tmp_path: Path) -> None:
    good = ["Bonn\tNNP\tB-LOC", "is\tVBZ\tO", ""]
    malformed = ["Peter\tNNP", "sang\tVBD\tO", "", "Li\tNNP\t", ""]
    path = write_lines(tmp_path / "a.conll", *good * 9, *malformed)
    with bad_rows(("wrong-field-count", "a.conll, line 28"), ("wrong-field-count", "a.conll, line 31")) as bad:
        read_table(path, "tag")
    assert numbers(bad[0].cause) == ["2", "3"]
    data = read_table(path, "tag", skip_bad=True)
    assert {example.texts for example in (*data.train, *data.dev)} == {("Bonn", "is")}, (
        "no sentence with a hole, no tag NNP"
    )
    lines = ["1\tA\ta\tDET\t_\t_\t0\t_\t_\t_", "2\tdog\tdog\tNOUN\t_\t_\t0\t_\t_"]
    with bad_rows(("wrong-field-count", "u.conllu, line 2")) as bad:
        read_table(write_lines(tmp_path / "u.conllu", *lines, ""), "tag")
    assert numbers(bad[0].cause) == ["9", "10"]


def test_the_tag_column_is_reported_and_may_be_chosen(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.conll", *["Bonn NNP B-LOC", "is VBZ O", ""] * 9)
    data = read_table(path, "tag")
    assert data.train[0].answer == ("B-LOC", "O")
    assert numbers(remark_text(data.remarks, "tag-column")) == ["1", "3", "3"]
    source = named_source("tag", train=str(path), label=("2",))
    data = read_data(source)
    assert data.train[0].answer == ("NNP", "VBZ")
    assert numbers(remark_text(data.remarks, "tag-column")) == ["1", "2", "3"]
    recorded_source = as_recorded(source, data.columns)
    assert read_eval_data(recorded_source, path, describe_task(data, source)).dev[0].answer == ("NNP", "VBZ"), (
        "as in training"
    )
    for label, code in (("9", "missing-column"), ("0", "missing-column"), ("pos", "no-named-columns")):
        with refused(code, place="a.conll") as error:
            read_table(path, "tag", label=(label,))
        assert label in error.value.cause
        assert label == "pos" or numbers(error.value.cause) == [label, "3"]
    lines = ["1\tA\ta\tDET\tDT\t_\t0\t_\t_\t_", "2\tdog\tdog\tNOUN\tNN\t_\t0\t_\t_\t_", ""]
    assert read_table(write_lines(tmp_path / "u.conllu", *lines * 9), "tag", label=("5",)).train[0].answer == (
        "DT",
        "NN",
    )


def test_a_missing_header_is_refused(tmp_path: Path) -> None:
    rows = [f"some words of text {i},{'good' if i % 2 else 'bad'}" for i in range(20)]
    for lines in (rows, ["text,verdict", *rows, "text,verdict", *rows]):
        with refused("no-header", place="t.csv"):
            read_table(write_lines(tmp_path / "t.csv", *lines))
    spam = write_lines(
        tmp_path / "spam.csv",
        "text,spam",
        *[f"some words of text {i},{'spam' if i % 2 else 'ham'}" for i in range(20)],
    )
    assert {example.answer for example in read_table(spam, label=("spam",)).train} == {"spam", "ham"}, (
        "unless it is meant"
    )


def test_labels_that_look_like_missing_values_are_reported(tmp_path: Path) -> None:
    labels = ["good", "bad", "nan", "good", "bad", "N/A"]
    lines = [f"text {i},{labels[i % 6]}" for i in range(60)]
    data = read_table(write_lines(tmp_path / "a.csv", "text,label", *lines))
    counts = Counter(example.answer for example in data.train)
    remark = remark_text(data.remarks, "labels-like-missing-values")
    assert f"nan ({counts['nan']})" in remark and f"N/A ({counts['N/A']})" in remark and "good" not in remark
    rows = [f"text {i},{'good' if i % 2 else 'bad'}" for i in range(20)]
    clean = read_table(write_lines(tmp_path / "b.csv", "text,label", *rows))
    assert "labels-like-missing-values" not in {remark.code for remark in clean.remarks}


def test_remarks_on_entities_name_their_types(tmp_path: Path) -> None:
    """Not the tags: of one-word and of longer entities, and outside of all."""
    lines = [f"Anna Bell{n} lives in Bonn,S-PER O O O S-LOC" for n in range(40)]
    lines += ["the United Nations met,O B-ORG E-ORG O"]
    data = read_table(write_lines(tmp_path / "a.csv", "words,tags", *lines), "tag")
    assert sum(example.texts[0] == "the" for example in data.train) == 1
    n_train = len(data.train) - 1
    assert set(remark_text(data.remarks, "labels").removeprefix("labels: ").split(", ")) == {
        f"PER {n_train}",
        f"LOC {n_train}",
        "ORG 1",
    }
    assert remark_text(data.remarks, "labels-not-in-dev").endswith(": ORG")
    words = [f"the dog{n} barks,DET NOUN VERB" for n in range(20)]
    tagged = read_table(write_lines(tmp_path / "b.csv", "words,tags", *words), "tag")
    assert "NOUN" in remark_text(tagged.remarks, "labels")


def test_suspicious_labels_are_reported(tmp_path: Path) -> None:
    labels = ["good", "bad", "Good ", "1", "1.0", "not good", "notgood"]
    data = read_table(write_lines(tmp_path / "a.csv", "text,label", *[f"text {i},{labels[i % 7]}" for i in range(70)]))
    assert all(
        similar in remark_text(data.remarks, "similar-labels")
        for similar in ("1 / 1.0", "Good / good", "not good / notgood")
    )
    assert remark_text(data.remarks, "similar-labels").count(" / ") == 3
    number_labels = remark_text(
        read_table(
            write_lines(tmp_path / "n.csv", "text,label", *[f"text {i},{i % 15 / 2}" for i in range(90)])
        ).remarks,
        "number-labels",
    )
    assert numbers(number_labels) == ["15"] and "finetune regress" in number_labels
    contradicting = read_table(
        write_lines(tmp_path / "c.csv", "text,label", *[f"text {i},{'ab'[i % 2]}" for i in range(40)], "text 0,b")
    )
    contradictions = remark_text(contradicting.remarks, "contradictions")
    assert numbers(contradictions) == ["1", "2", "42"]
    assert re.search(r"c\.csv, line 2\b.*\ba\b.*c\.csv, line 42\b.*\bb\b", contradictions)
    unsuspicious = read_table(
        write_lines(tmp_path / "p.csv", "text,label", *[f"text {i},{'ab'[i % 2]}" for i in range(40)])
    )
    assert not {"similar-labels", "number-labels", "contradictions"} & {*remark_codes(unsuspicious.remarks)}


def test_labels_that_look_the_same_are_reported(tmp_path: Path) -> None:
    """By Unicode normalisation, zero-width characters and width; written so that the difference can be seen."""
    labels = ["caf\u00e9", "cafe\u0301", "yes", "y\u200bes", "\uff21\uff22", "ab", "no"]
    rows = [f"text {i},{labels[i % 7]}" for i in range(70)]
    remark = remark_text(read_table(write_lines(tmp_path / "a.csv", "text,label", *rows)).remarks, "similar-labels")
    for pair in (r"'cafe\u0301' / 'caf\xe9'", r"'yes' / 'y\u200bes'", "ab / \uff21\uff22"):
        assert pair in remark
    assert remark.count(" / ") == 3


def test_numbers_that_a_model_cannot_compute_with(tmp_path: Path) -> None:
    scores = ["1e300", "-1e31", *map(str, range(20))]
    with bad_rows(("number-too-large", "line 2"), ("number-too-large", "line 3")):
        read_table(write_lines(tmp_path / "a.csv", "text,score", *[f"text {n},{n}" for n in scores]), "regress")
    large = read_table(write_lines(tmp_path / "b.csv", "text,score", *[f"t {n},{n}e29" for n in range(10)]), "regress")
    assert max(example.answer for example in large.train) <= 1e30
    with refused("numbers-too-close"):
        read_table(write_lines(tmp_path / "c.csv", "text,score", *[f"text {n},{n}e-300" for n in range(20)]), "regress")


def test_a_key_that_occurs_twice_is_an_invalid_row(tmp_path: Path) -> None:
    rows = [f'{{"text": "text {n}", "label": "{n % 2}"}}' for n in range(20)]
    twice = '{"text": "a", "label": "0", "label": "1"}'
    with bad_rows(("duplicate-key", "a.jsonl, line 21")) as bad:
        read_table(write_lines(tmp_path / "a.jsonl", *rows, twice))
    assert "'label'" in bad[0].cause
    with refused("duplicate-key", place="a.json"):
        read_table(write_lines(tmp_path / "a.json", f"[{', '.join([*rows, twice])}]"))


def test_one_odd_cell_does_not_change_the_label_separator(tmp_path: Path) -> None:
    rows = [f'text {i},"{"red;blue" if i == 7 else "red,blue" if i % 3 else "red"}"' for i in range(60)]
    data = read_table(write_lines(tmp_path / "m.csv", "text,labels", *rows), "multilabel")
    assert data.columns is not None
    assert data.columns.separator == ","
    assert "','" in remark_text(data.remarks, "columns")


def test_rows_may_have_fewer_choices_than_columns(tmp_path: Path) -> None:
    rows = [f"question {i},yes,no,{'maybe' if i % 2 else ''},{i % (3 if i % 2 else 2)}" for i in range(24)]
    data = read_table(write_lines(tmp_path / "c.csv", "question,choice_a,choice_b,choice_c,label", *rows), "choice")
    assert {len(example.texts) for example in (*data.train, *data.dev)} == {3, 4}
    assert "bad-rows" not in remark_codes(data.remarks)
    with bad_rows(("empty-text", "d.csv, line 26")) as bad:
        read_table(
            write_lines(tmp_path / "d.csv", "question,choice_a,choice_b,choice_c,label", *rows, "q,yes,,maybe,0"),
            "choice",
        )
    assert "'choice_b'" in bad[0].cause


def test_blank_texts_are_bad_rows_in_every_format(tmp_path: Path) -> None:
    def question(text: str, n: int) -> dict[str, Any]:
        return {"question": text, "id": f"q{n}", "answers": [{"text": "Bonn", "answer_start": 0}]}

    questions = [question("Where?" if n else " ", n) for n in range(20)]
    articles = [
        {"title": entry["id"], "paragraphs": [{"context": "Bonn it is.", "qas": [entry]}]} for entry in questions
    ]
    (tmp_path / "s.json").write_text(json.dumps({"data": articles}))
    for label in ("pos", "neg"):
        (tmp_path / "train" / label).mkdir(parents=True)
        for n in range(9):
            (tmp_path / "train" / label / f"{n}_1.txt").write_text(f"film {n} {label}" if n else "\u200b")
    conll = write_lines(tmp_path / "w.conll", *["\u200b O", ""], *["Bonn B-LOC", "is O", ""] * 9)
    cases: list[tuple[str, dict[str, Any], list[str]]] = [
        ("span", {"train": str(tmp_path / "s.json")}, ["s.json, question q0"]),
        ("imdb", {"data": tmp_path}, ["neg/0_1.txt", "pos/0_1.txt"]),
        ("tag", {"train": str(conll)}, ["w.conll, line 1"]),
    ]
    for task, options, places in cases:
        with bad_rows(*[("empty-text", place) for place in places]):
            read_data(named_source(task, **options))
        data = read_data(named_source(task, **options, skip_bad=True))
        assert all(place in remark_text(data.remarks, "bad-rows") for place in places)
        assert data.train


def test_unanswered_questions_are_reported(tmp_path: Path) -> None:
    rows = [f"Where is {n}?,It is in Bonn {n}.,{'Bonn' if n % 5 else ''}" for n in range(20)]
    data = read_table(write_lines(tmp_path / "q.csv", "question,context,answer", *rows), "span")
    unanswered = sum(example.answer == () for example in data.train)
    assert numbers(remark_text(data.remarks, "unanswered")) == [str(unanswered), "18"]
    assert "unanswered-in-dev" not in remark_codes(data.remarks)
    answered = write_lines(tmp_path / "a.csv", "question,context,answer", *(row for i, row in enumerate(rows) if i % 5))
    source = named_source("span", train=str(answered), dev=str(tmp_path / "q.csv"))
    remarks = read_data(source).remarks
    assert numbers(remark_text(remarks, "unanswered-in-dev")) == ["4", "20"]
    assert "unanswered" not in remark_codes(remarks)
    with refused("no-answers", place="n.csv"):
        read_table(
            write_lines(tmp_path / "n.csv", "question,context,answer", *[row.removesuffix("Bonn") for row in rows]),
            "span",
        )
    questions = [{"question": "Where?", "id": f"q{n}"} for n in range(20)]
    (tmp_path / "test.json").write_text(
        json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "Bonn.", "qas": questions}]}]})
    )
    with bad_rows(*[("no-answer-list", f"test.json, question q{n}") for n in range(20)]):
        read_table(tmp_path / "test.json", "span")


def test_chinese_answers_start_at_their_first_occurrence(tmp_path: Path) -> None:
    """Characters beside an answer do not make it part of a longer word in scripts without spaces between words."""
    rows = ["哪里？,北京大学在北京市海淀区。首都（北京）很大。,北京", "which?,a catalog of a cat,cat"]
    data = read_table(write_lines(tmp_path / "q.csv", "question,context,answer", *rows * 10), "span")
    assert {example.answer[0].start for example in [*data.train, *data.dev]} == {0, 15}


def test_text_cells_are_split_into_words_for_tagging(tmp_path: Path) -> None:
    """As texts of a plain file are; but the column of the training is split at spaces, as it was there."""
    artifact = TaskArtifact(task=TaskConfig(shape="tag", labels=("B-x", "O")), columns=("words",))
    for header, expected in (("text", ("我", "在", "北", "京", "。")), ("words", ("我在北京。",))):
        inputs = inputs_of(write_lines(tmp_path / "t.csv", header, "我在北京。"), artifact)
        (batch,) = inputs
        assert batch.valid[0].texts == expected
        assert remark_codes(inputs.remarks) == [
            "columns",
            "words-between-spaces" if header == "words" else "words-divided",
        ]
    assert batch.rows == [{"words": "我在北京。"}]
    inputs = inputs_of(write_lines(tmp_path / "l.jsonl", '{"text": ["a b", "c"]}'), artifact)
    assert [example.texts for batch in inputs for example in batch.valid] == [("a b", "c")]


def test_universal_dependencies(tmp_path: Path) -> None:
    lines = [
        "# text = des",
        "1-2\tdes\t_\t_\t_\t_\t_\t_\t_\t_",
        "1\tde\tde\tADP\t_\t_\t0\t_\t_\t_",
        "2\tles\tle\tDET\t_\t_\t1\t_\t_\t_",
        "",
    ]
    (tmp_path / "u.conllu.gz").write_bytes(gzip.compress("\n".join(lines * 20).encode()))
    data = read_table(tmp_path / "u.conllu.gz", "tag")
    assert data.train[0].texts == ("de", "les") and data.train[0].answer == ("ADP", "DET")


def test_files_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(("text,label\n" + "很好吃,好\n太难吃,坏\n" * 5).encode("gb18030"))
    with refused("not-utf8", place="a.csv, line 2") as error:
        read_table(tmp_path / "a.csv")
    assert "iconv" in str(error.value.remedy)
    (tmp_path / "b.csv").write_bytes(
        b"text,label\n" + b"".join(b"text %d,%s\n" % (i, [b"a", b"b"][i % 2]) for i in range(60)) + b"caf\xe9,a\n"
    )
    data = read_table(tmp_path / "b.csv")
    replaced = remark_text(data.remarks, "replaced-characters")
    assert numbers(replaced) == ["1", "62"] and "b.csv, line 62" in replaced


def test_nested_columns_of_parquet_are_read(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "question": "who?",
            "context": f"it was I {i}",
            "answers": {"text": ["I"], "answer_start": [7]},
            "vector": [0.5, 1.0],
        }
        for i in range(20)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "s.parquet")
    assert read_table(tmp_path / "s.parquet", "span").train[0].answer == (Span(7, "I"),)
    inputs = inputs_of(tmp_path / "s.parquet", TaskArtifact(task=TaskConfig(shape="span")))
    assert list(inputs.header) == ["question", "context", "answers", "vector"]
    pq.write_table(
        pa.Table.from_pylist([{"text": f"t {i}", "labels": [i % 3]} for i in range(20)]), tmp_path / "m.parquet"
    )
    assert {example.answer for example in read_table(tmp_path / "m.parquet", "multilabel").train} == {
        ("0",),
        ("1",),
        ("2",),
    }


def test_lists_in_cells(tmp_path: Path) -> None:
    """As pandas and JSON write them."""
    multilabel = write_lines(
        tmp_path / "m.csv", "text,labels", *[f"t {i},\"['x', 'y, z']\"" for i in range(10)], 't,"[""x""]"', "t,[]"
    )
    assert {label for example in read_table(multilabel, "multilabel").train for label in example.answer} == {
        "x",
        "y, z",
    }
    tags = write_lines(tmp_path / "t.csv", "words,tags", *["\"['New', 'York']\",\"['B-LOC', 'I-LOC']\"", "I,O"] * 10)
    assert {example.texts for example in read_table(tags, "tag").train} == {("New", "York"), ("I",)}
    arrays = write_lines(
        tmp_path / "a.csv", "words,tags", *["\"['EU' 'rejects']\",\"['B-ORG' 'O']\"", "\"['I']\",['O']"] * 10
    )
    data = read_table(arrays, "tag")  # numpy prints no commas
    assert {(example.texts, example.answer) for example in data.train} == {
        (("EU", "rejects"), ("B-ORG", "O")),
        (("I",), ("O",)),
    }
    assert read_table(
        write_lines(tmp_path / "n.csv", "text,labels", *['"x [{[1]}]","[{[1]}]"', "t,b"] * 10), "multilabel"
    ).train


def test_a_choice_by_number_letter_or_text(tmp_path: Path) -> None:
    def answers_of(*rows: str) -> set[Any]:
        data = read_table(
            write_lines(
                tmp_path / "c.csv", "text,choice0,choice1,choice2,label", *[row for row in rows for _ in range(10)]
            ),
            "choice",
        )
        return {(example.texts[0], example.answer) for example in data.train}

    assert answers_of("a,1,2,0,1", "b,5,6,7,2") == {("a", 1), ("b", 2)}, "not all are texts to choose from: numbers"
    assert answers_of("a,1,2,0,1", "b,5,6,7,6") == {("a", 0), ("b", 1)}, "all are"
    assert answers_of("a,x,y,z,C", "b,x,y,z,a") == {("a", 2), ("b", 0)}
    rows = ["a,x,y,z,1", "b,x,y,z,2"] * 10
    for header, first in (
        ("choice0,choice1,choice2", 0),
        ("choice1,choice2,choice3", 1),
        ("choice_a,choice_b,choice_c", 1),
    ):
        data = read_table(write_lines(tmp_path / "d.csv", f"text,{header},label", *rows), "choice")
        assert {(example.texts[0], example.answer) for example in data.train} == {("a", 1 - first), ("b", 2 - first)}
        assert data.columns is not None and data.columns.counted_from == first
        assert re.search(rf"\b{first}\b", remark_text(data.remarks, "columns"))
    assert answers_of("a,O,A,B,A", "b,O,A,B,B", "c,O,A,B,O", "d,O,A,B,1") == {("a", 1), ("b", 2), ("c", 0), ("d", 1)}, (
        "most are texts"
    )


@pytest.mark.parametrize(
    ("shape", "header", "row", "expected"),
    [
        ("classify", "text,score,label", "a {},{},{}", "label"),
        ("regress", "text,label,score", "a {},{},{}", "score"),
        ("tag", "class,tokens,tags", "{},a b,O B-x", "tags"),
        ("choice", "question,option1,option2,category,answer", "q {},x,y,{},{}", "answer"),
    ],
)
def test_the_likeliest_label_column_is_chosen(shape: str, header: str, row: str, expected: str, tmp_path: Path) -> None:
    data = read_table(write_lines(tmp_path / "a.csv", header, *[row.format(i, i, i % 2) for i in range(40)]), shape)
    assert data.columns is not None and data.columns.labels == (expected,)


@pytest.mark.parametrize(
    ("task", "options", "code", "expected_in_cause"),
    [
        ("classify", {"choices": ("b", "c")}, "no-effect", "--choices"),
        ("tag", {"text2": "b"}, "no-effect", "--text2"),
        ("classify", {"label": ("b", "label")}, "too-many-columns", "--label"),
        ("multilabel", {"label": ("empty",)}, "no-labels", ""),
        ("classify", {"data": Path()}, "no-effect", "--data"),
        ("sst2", {"data": Path()}, "no-effect", "--train"),
    ],
)
def test_options_that_do_not_apply_are_refused(
    task: str, options: dict[str, Any], code: str, expected_in_cause: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.csv", "text,b,c,empty,label", *[f"t {i},x,y,,{i % 2}" for i in range(20)])
    with refused(code) as error:
        read_table(path, task, **options)
    assert expected_in_cause in error.value.cause


def test_columns_that_a_shape_does_not_have_are_refused_wherever_they_are_named(tmp_path: Path) -> None:
    for shape in ("classify", "span"):
        with refused("too-many-columns") as error:
            task_class(shape).schema.legacy_named_columns("a", ("b", "c"), None)
        assert "--pair" in error.value.cause, "of before version 0.2"
    path = write_lines(tmp_path / "a.csv", "text,b,label", *[f"t {i},x,{i % 2}" for i in range(20)])
    source = named_source(train=str(path))
    task = TaskConfig(shape="classify", labels=("0", "1"))
    with refused("no-effect", place="a.csv") as error:
        read_eval_data(source, path, task, named=NamedColumns(question="b"))
    assert "--question" in error.value.cause
    with refused("no-effect", place="a.csv"):
        inputs_of(path, TaskArtifact(task=task), named=NamedColumns(question="b"))


def test_dev_without_a_valid_row(tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.csv", "text,label", "one,a", "two,b")
    dev = write_lines(tmp_path / "dev.csv", "text,label", ",a")
    with bad_rows(("empty-text", "dev.csv, line 2"), code="no-dev-examples"):
        read_table(train, dev=str(dev), skip_bad=True)


def test_json_files_are_tables_too(tmp_path: Path) -> None:
    rows = [{"words": ["a", "b"], "ner": ["O", "B-x"]}] * 20
    for name, text in (
        ("list", json.dumps(rows)),
        ("data", json.dumps({"data": rows})),
        ("lines", "\n".join(map(json.dumps, rows))),
    ):
        data = read_table(write_lines(tmp_path / f"{name}.json", text), "tag")
        assert len(data.train) + len(data.dev) == 20 and data.train[0].answer == ("O", "B-x")
    span_rows = [
        {"question": "who?", "context": f"it was I {i}", "answers": {"text": ["I"], "answer_start": [7]}}
        for i in range(20)
    ]
    assert read_table(write_lines(tmp_path / "span.json", json.dumps(span_rows)), "span").train[0].answer == (
        Span(7, "I"),
    )
    with refused("not-json", place="bad.json"):
        read_table(write_lines(tmp_path / "bad.json", '[{"text": "a"},', "]"), "classify")


def test_part_of_speech_tagging_is_measured_by_tag_accuracy(tmp_path: Path) -> None:
    source = named_source("tag", train=str(write_lines(tmp_path / "p.conll", *["the DT", "cat NN", ""] * 20)))
    assert describe_task(read_data(source), source).metric == "tag_accuracy"


def test_one_sentence_with_its_tags_per_line(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s.txt", *["New York !\tB-LOC I-LOC O", "Yes\tO"] * 10)
    data = read_table(path, "tag")
    assert {example.texts for example in data.train} == {("New", "York", "!"), ("Yes",)}
    artifact = TaskArtifact(task=TaskConfig(shape="tag", labels=("B-LOC", "I-LOC", "O")))
    (batch,) = inputs_of(path, artifact)
    assert [example.texts for example in batch.valid[:2]] == [("New", "York", "!"), ("Yes",)]
    with bad_rows(("wrong-tag-count", "s.txt, line 21")) as bad:
        read_table(write_lines(path, *["New York !\tB-LOC I-LOC O", "Yes\tO"] * 10, "Torn line\tO"), "tag")
    assert numbers(bad[0].cause) == ["2", "1"]


def test_evaluation_reads_the_columns_of_the_training(tmp_path: Path) -> None:
    rows = [f"review {i},title {i},{'ab'[i % 2]}" for i in range(20)]
    path = write_lines(tmp_path / "a.csv", "review,text,label", *rows)
    source = named_source("classify", train=str(path), text="review")
    recorded_source = as_recorded(source, read_data(source).columns)
    assert recorded_source.columns == NamedColumns(text="review", label=("label",))
    assert recorded_source.train == str(path)
    eval_data = read_eval_data(recorded_source, path, TaskConfig(shape="classify", labels=("a", "b")))
    assert eval_data.dev[0].texts == ("review 0",)
    assert eval_data.columns == Columns(("review",), ("label",), unused=("text",))
    assert remark_codes(eval_data.remarks) == ["columns"]
    gold = write_lines(tmp_path / "g.csv", "review,text,gold", *[f"review {i},title,{'ab'[i % 2]}" for i in range(20)])
    eval_data = read_eval_data(recorded_source, gold, TaskConfig(shape="classify", labels=("a", "b")))
    assert eval_data.columns == Columns(("review",), ("gold",), unused=("text",))
    assert "gold" in remark_text(eval_data.remarks, "columns")
    other = write_lines(tmp_path / "b.csv", "sentence,class", "something,a")
    eval_data = read_eval_data(recorded_source, other, TaskConfig(shape="classify", labels=("a", "b")))
    assert eval_data.columns == Columns(("sentence",), ("class",))
    assert remark_codes(eval_data.remarks) == ["columns"]
    span_table = write_lines(
        tmp_path / "s.jsonl", *[json.dumps({"q": "who?", "p": f"it was I {i}", "a": "I"}) for i in range(20)]
    )
    span = named_source("span", train=str(span_table), context="p", question="q", label=("a",))
    assert as_recorded(span, read_data(span).columns).columns == NamedColumns(question="q", context="p", label=("a",))


@pytest.mark.parametrize(
    ("shape", "old", "expected"),
    [
        ("classify", {"text": "a", "pair": ["b"], "label": "c"}, NamedColumns(text="a", text2="b", label=("c",))),
        (
            "multilabel",
            {"text": "a", "pair": [], "label": "toxic,insult"},
            NamedColumns(text="a", label=("toxic", "insult")),
        ),
        ("tag", {"text": None, "pair": [], "label": "2"}, NamedColumns(label=("2",))),
        ("span", {"text": "p", "pair": ["q"], "label": None}, NamedColumns(question="q", context="p")),
        (
            "choice",
            {"text": "a", "pair": ["x", "y"], "label": "c"},
            NamedColumns(text="a", choices=("x", "y"), label=("c",)),
        ),
    ],
)
def test_records_of_older_versions_name_the_same_columns(
    shape: str, old: dict[str, Any], expected: NamedColumns
) -> None:
    assert Source.model_validate({"train": "a.csv", "shape": shape, **old}).columns == expected


def test_a_single_squad_article_is_split_by_passage(tmp_path: Path) -> None:
    paragraphs = [
        {
            "context": f"I am {i}.",
            "qas": [{"id": str(i), "question": "Who?", "answers": [{"answer_start": 0, "text": "I"}]}],
        }
        for i in range(20)
    ]
    (tmp_path / "train-v1.1.json").write_text(json.dumps({"data": [{"title": "one", "paragraphs": paragraphs}]}))
    data = read_dataset("squad", tmp_path)
    assert (len(data.train), len(data.dev)) == (18, 2)
    (tmp_path / "train-v1.1.json").write_text(json.dumps([{"question": "Who?"}]))
    with refused("not-squad", place="train-v1.1.json"):
        read_dataset("squad", tmp_path)


def test_bad_rows_are_listed_before_training(tmp_path: Path) -> None:
    rows = [f"good text {i},{'abc'[i % 3]}" for i in range(30)]
    rows[4] = "no label here,"
    rows[9] = "too,many,fields"
    rows[14] = "   ,a"
    path = write_lines(tmp_path / "three.csv", "text,label", *rows)
    expected = [
        ("no-label", "three.csv, line 6"),
        ("wrong-field-count", "three.csv, line 11"),
        ("empty-text", "three.csv, line 16"),
    ]
    with bad_rows(*expected):
        read_table(path)
    with refused("bad-rows") as error:
        read_table(path)
    assert "--skip-bad" in str(error.value.remedy)
    data = read_table(path, skip_bad=True)
    remark = remark_text(data.remarks, "bad-rows")
    assert len(data.train) + len(data.dev) == 27
    assert numbers(remark)[0] == "3"
    assert all(place in remark for _, place in expected)


def test_a_single_label_is_refused(tmp_path: Path) -> None:
    with refused("one-label", place="a.csv") as error:
        read_table(write_lines(tmp_path / "a.csv", "text,label", *[f"text {i},a" for i in range(20)]))
    assert "'a'" in error.value.cause


def test_dev_labels_that_train_never_has_are_bad_rows(tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.csv", "text,label", "one,a", "two,b")
    dev = write_lines(tmp_path / "dev.csv", "text,label", "three,a", "four,c")
    with bad_rows(("label-not-in-train", "dev.csv, line 3")) as bad:
        read_table(train, dev=str(dev))
    assert "'c'" in bad[0].cause and "dev" in bad[0].cause
    assert len(read_table(train, dev=str(dev), skip_bad=True).dev) == 1


def test_examples_in_both_splits_are_reported(tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.csv", "text,label", "one,a", "two,b")
    dev = write_lines(tmp_path / "dev.csv", "text,label", "two,b", "three,a")
    data = read_table(train, dev=str(dev))
    assert numbers(remark_text(data.remarks, "copies-in-dev")) == ["1", "2", "2", "3"], (
        "how many of how many; where in dev, where in train"
    )
    assert {name: [example.texts for example in examples] for name, examples in data.extra_eval.items()} == {
        WITHOUT_COPIES: [("three",)]
    }


@pytest.mark.parametrize(
    ("options", "code", "place", "cause", "remedy"),
    [
        ({"text": "txet"}, "missing-column", "a.csv", "'txet'", "'text'"),
        ({"label": ("no",)}, "missing-column", "a.csv", "'no'", "label, text"),
        ({"train": "missing.csv"}, "not-found", "missing.csv", "", ""),
    ],
)
def test_wrong_column_and_file_names_are_refused(
    options: dict[str, Any], code: str, place: str, cause: str, remedy: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.csv", "text,label", "one,a", "two,b")
    with refused(code, place=place) as error:
        read_table(path, **options)
    assert cause in error.value.cause and remedy in (error.value.remedy or "")


def test_tables_of_every_shape(tmp_path: Path) -> None:
    def table(name: str, rows: list[dict[str, Any]]) -> Path:
        return write_lines(tmp_path / name, *(json.dumps(row, ensure_ascii=False) for row in rows))

    regression = read_table(
        table("n.jsonl", [{"sentence1": f"a {i}", "sentence2": "b", "score": i / 2} for i in range(20)]),
        "regress",
        text2="sentence2",
    )
    assert regression.train[0].texts[1] == "b" and isinstance(regression.train[0].answer, float)
    multilabel = read_table(
        table("m.jsonl", [{"text": f"a {i}", "labels": "x; y" if i % 2 else []} for i in range(20)]), "multilabel"
    )
    assert {example.answer for example in multilabel.train} == {("x", "y"), ()}
    tags = read_table(table("t.jsonl", [{"words": ["a", "b"], "tags": ["O", "B-x"]}] * 20), "tag")
    assert tags.train[0].texts == ("a", "b") and tags.train[0].answer == ("O", "B-x")
    spans = read_table(
        table("s.jsonl", [{"question": "who?", "context": f"it was I {i}", "answer": "I"} for i in range(20)]), "span"
    )
    assert spans.train[0].answer == (Span(7, "I"),) and spans.train[0].texts[0] == "who?"
    choice_rows = [{"text": f"go {i}", "choice0": "on", "choice1": "home", "label": "B"} for i in range(20)]
    choices = read_table(table("c.jsonl", choice_rows), "choice")
    assert choices.train[0].texts[1:] == ("on", "home") and choices.train[0].answer == 1


def test_an_answer_that_is_not_in_the_passage_is_a_bad_row(tmp_path: Path) -> None:
    rows = [json.dumps({"question": "who?", "context": "it was I", "answer": answer}) for answer in ("I", "you", "")]
    with bad_rows(("answer-not-in-passage", "s.jsonl, line 2")) as bad:
        read_table(write_lines(tmp_path / "s.jsonl", *rows), "span")
    assert "'you'" in bad[0].cause


def test_a_passage_is_in_one_split_only(tmp_path: Path) -> None:
    rows = [json.dumps({"question": f"who {i}?", "context": f"it was I {i % 10}", "answer": "I"}) for i in range(100)]
    data = read_table(write_lines(tmp_path / "s.jsonl", *rows), "span")
    assert len({example.texts[1] for example in data.dev}) == 1
    assert not {example.texts[1] for example in data.dev} & {example.texts[1] for example in data.train}


def test_unknown_tasks_and_missing_files() -> None:
    for task, code, remedy in (
        ("sst", "unknown-task", "'sst2'"),
        ("classify", "missing-option", "--train"),
        ("cola", "missing-option", "--data"),
    ):
        with refused(code) as error:
            find_source(task)
        assert remedy in str(error.value.remedy)


# ---------------------------------------------------------------------- official files


def read_dataset(task: str, folder: Path, **named: Any) -> TaskData:
    return read_data(Source(dataset=task, folder=str(folder), shape=CATALOGUE[task].task.schema.shape, **named))


OFFICIAL_DATASETS = {  # folder, train size, dev size, labels
    "sst2": ("glue/SST-2", 67349, 872, ("negative", "positive")),
    "cola": ("glue/CoLA", 8551, 1043, ("unacceptable", "acceptable")),
    "mrpc": ("glue/MRPC", 3667, 408, ("not_equivalent", "equivalent")),
    "wnli": ("glue/WNLI", 635, 71, ("entailment", "not_entailment")),
    "imdb": ("imdb", 4000, 2000, ("neg", "pos")),
    "dream": ("dream", 6116, 2040, ()),
    "chnsenticorp": ("ChnSentiCorp", 9600, 1200, ("negative", "positive")),
}


@pytest.mark.parametrize("task", OFFICIAL_DATASETS)
def test_official_files(task: str, shared: Path) -> None:
    folder, train, dev, labels = OFFICIAL_DATASETS[task]
    data = read_dataset(task, shared / "tasks" / folder)
    assert (len(data.train), len(data.dev)) == (train, dev)
    config = describe_task(data, Source(dataset=task, folder="", shape=CATALOGUE[task].task.schema.shape))
    assert config.labels == labels and config.metric == CATALOGUE[task].metric


def test_squad_as_distributed(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "train-v1.1.json").symlink_to(shared / "tasks/squad/dev_half_a.json")
    data = read_dataset("squad", tmp_path)
    assert len(data.train) + len(data.dev) == 4961
    assert all(
        example.texts[1][span.start : span.end] == span.text for example in data.train for span in example.answer
    )
    assert not {example.group for example in data.train} & {example.group for example in data.dev}, (
        "no article is on both sides"
    )
    assert len({example.group for example in data.train}) > 10


@pytest.mark.parametrize(("limit", "overlap"), [(128, 0), (256, 150), (384, 64), (512, 7)])
def test_every_squad_answer_is_complete_in_some_window(limit: int, overlap: int, shared: Path, tmp_path: Path) -> None:
    (tmp_path / "train-v1.1.json").symlink_to(shared / "tasks/squad/dev_half_a.json")
    data = read_dataset("squad", tmp_path)
    examples = [*data.train, *data.dev]
    task = small_task("bert-mini", "span")
    n_windows = 0
    for example, features in zip(
        examples, task.features(examples, SlidingWindows(minilm(), limit, overlap, "window")), strict=True
    ):
        target_origins = [window.origins[window.targets] for window in features.windows if window.targets[0]]
        assert target_origins, example.place
        (answer, *_) = example.answer
        passage = example.texts[1]
        assert all(first[0] <= answer.start and answer.end <= last[1] for first, last in target_origins), example.place
        assert all(
            len(passage[first[0] : last[1]].split()) <= len(answer.text.split()) + 1 for first, last in target_origins
        )
        n_windows += len(features.windows)
    assert n_windows > len(examples)


def test_json_files_on_one_long_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As SQuAD 2.0 has them: 42 MB without a break."""
    questions = [{"id": "1", "question": "Who?", "answers": [{"answer_start": 0, "text": "I"}]}]
    content = {
        "data": [{"title": str(i), "paragraphs": [{"context": f"I am {i}.", "qas": questions}]} for i in range(20)]
    }
    (tmp_path / "train-v1.1.json").write_text(json.dumps(content))
    monkeypatch.setattr(tables, "MAX_LINE_BYTES", 100)
    data = read_dataset("squad", tmp_path)
    assert (len(data.train), len(data.dev)) == (18, 2)


def test_scores_of_stsb(shared: Path) -> None:
    data = read_dataset("stsb", shared / "tasks/hf_test_samples/tests_samples/STS-B")
    assert data.train[0].texts == ("A plane is taking off.", "An air plane is taking off.")
    assert data.train[0].answer == 5.0


def test_imdb_reviews_alternate_between_labels(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            (tmp_path / split / label).mkdir(parents=True)
            for i in range(4):
                (tmp_path / split / label / f"{i}_1.txt").write_text(f"{label} {i}.<br />More.")
    data = read_dataset("imdb", tmp_path, first=4)
    assert [example.answer for example in data.train] == ["neg", "pos"] * 2
    assert data.train[0].texts == ("neg 0.\nMore.",)


DATASET_INPUTS = {  # (dataset, file) -> lines, first texts, number of columns
    ("qnli", "dev.tsv"): (["index\tquestion\tsentence\tlabel", "0\tWho?\tI.\tentailment"], ("Who?", "I."), 4),
    ("qnli", "mine.tsv"): (["sentence\tquestion", "I.\tWho?"], ("Who?", "I."), 2),
    ("cola", "dev.tsv"): (["gj04\t1\t\tIt is so."], ("It is so.",), 4),
    ("cola", "test.tsv"): (["index\tsentence", "0\tIt is so."], ("It is so.",), 2),
    ("mrpc", "test.tsv"): (["index\t#1 ID\t#2 ID\t#1 String\t#2 String", '0\t1\t2\tA "b.\tC.'], ('A "b.', "C."), 5),
    ("chnsenticorp", "dev.tsv"): (["qid\tlabel\ttext_a", "0\t\t很好"], ("很好",), 3),
    ("chnsenticorp", "test.tsv"): (["很好\tpositive"], ("很好",), 2),
    ("mnli", "test_mismatched.tsv"): (["index\tsentence1\tsentence2", '0\tA "b.\tC.'], ('A "b.', "C."), 3),
    ("dream", "test.json"): (
        [json.dumps([[["M: Hi."], [{"question": "Who?", "choice": ["a", "b"]}], "1"]])],
        ("M: Hi.", "Who? a"),
        3,
    ),
    ("squad", "dev-v1.1.json"): (
        [
            json.dumps(
                {
                    "data": [
                        {"paragraphs": [{"context": "I.", "qas": [{"id": "1", "question": "Who?", "answers": [{}]}]}]}
                    ]
                }
            )
        ],
        ("Who?", "I."),
        3,
    ),
    ("swag", "test.csv"): (
        [",sent1,sent2,ending0,ending1,ending2,ending3", "0,He sits.,He,eats.,a,b,c"],
        ("He sits.", "He eats."),
        7,
    ),
    ("swag", "mine.csv"): (
        ["sent1,sent2,ending0,ending1,ending2,ending3", "He sits.,He,eats.,a,b,c"],
        ("He sits.", "He eats."),
        6,
    ),
    ("imdb", "test.jsonl"): (['{"id": 1, "text": "a<br />b"}'], ("a\nb",), 2),
    ("conll2003", "test.txt"): (["The EU rejects it .", "So it goes on and on ."], ("The", "EU"), 1),
    ("conll2003", "valid.txt"): (
        ["EU NNP B-NP B-ORG", "rejects VBZ B-VP O", *["a DT B-NP O"] * 20, "x X X B-NEW"],
        ("EU", "rejects"),
        1,
    ),
    ("conll2003", "eng.testb"): (["EU NNP B-NP B-ORG", "rejects VBZ B-VP O"], ("EU", "rejects"), 1),
    (None, "other.testb"): (["EU NNP B-NP B-ORG", "rejects VBZ B-VP O"], ("EU", "rejects"), 1),
    (None, "plain.txt"): (["The EU rejects it"], ("The", "EU"), 1),
}


@pytest.mark.parametrize(("dataset", "name"), DATASET_INPUTS)
def test_official_files_as_prediction_inputs(dataset: str | None, name: str, tmp_path: Path) -> None:
    lines, expected, columns = DATASET_INPUTS[dataset, name]
    row = CATALOGUE[dataset or "conll2003"]
    texts = row.columns.texts if row.columns is not None else ()
    task = TaskConfig(shape=row.task.schema.shape, labels=("B-ORG", "O", "."), pairs=len(texts) == 2)
    artifact = TaskArtifact(task=task, dataset=dataset, columns=texts)
    inputs = inputs_of(write_lines(tmp_path / name, *lines), artifact)
    batch, *_ = inputs
    assert batch.valid[0].texts[:2] == expected and len(inputs.header) == columns
    if dataset in ("swag", "imdb"):
        assert "eats." in batch.rows[0].values() or "a<br />b" in batch.rows[0].values(), "a table comes back as it was"


def test_a_run_on_an_official_dataset_is_evaluated_on_other_tables(tmp_path: Path) -> None:
    source = Source(dataset="sst2", folder="elsewhere", shape="classify")
    task = TaskConfig(shape="classify", labels=("negative", "positive"))
    table = write_lines(tmp_path / "mine.csv", "sentence,label", "a,1", "b,negative")
    eval_data = read_eval_data(source, table, task)
    assert [example.answer for example in eval_data.dev] == ["positive", "negative"]
    assert remark_codes(eval_data.remarks) == ["columns"]
    assert eval_data.columns is not None
    assert (eval_data.columns.texts, eval_data.columns.labels) == (("sentence",), ("label",))
    write_lines(tmp_path / "dev.tsv", "sentence\tother\tlabel", "a\tb\t1")
    assert read_eval_data(source, tmp_path / "dev.tsv", task).dev[0].texts == ("a",)
    assert read_eval_data(source, tmp_path / "dev.tsv", task, named=NamedColumns(text="other")).dev[0].texts == ("b",)
    with refused("not-found", place="nosuch.tsv"):
        read_eval_data(source, tmp_path / "nosuch.tsv", task)
    with refused("wrong-text-count", place="p.csv") as error:
        read_eval_data(source, write_lines(tmp_path / "p.csv", "sentence1,sentence2,label", "a,b,1"), task)
    assert "sentence1" in error.value.cause
    assert "sentence2" in error.value.cause
    assert "--text2" not in str(error.value.remedy)
    with refused("no-label-column", place="test.tsv"):
        read_eval_data(source, write_lines(tmp_path / "test.tsv", "index\tsentence", "0\ta"), task)
    pairs = Source(dataset="mrpc", folder="elsewhere", shape="classify")
    pair_task = TaskConfig(shape="classify", labels=("not_equivalent", "equivalent"), pairs=True)
    assert read_eval_data(pairs, write_lines(tmp_path / "q.csv", "text,pair,label", "a,b,1"), pair_task).dev[
        0
    ].texts == ("a", "b")
    read_dataset = write_lines(
        tmp_path / "dev.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\tmine", "0\t1\t2\ta\tb\t1"
    )
    eval_data = read_eval_data(pairs, read_dataset, pair_task, named=NamedColumns(label=("mine",)))
    assert eval_data.dev[0].answer == "equivalent", "its texts are where they always are"


def test_imdb_is_evaluated_on_either_of_its_folders(tmp_path: Path) -> None:
    for label in ("pos", "neg"):
        (tmp_path / "aclImdb/test" / label).mkdir(parents=True)
        write_lines(tmp_path / "aclImdb/test" / label / "0_1.txt", f"{label} text")
    source = Source(dataset="imdb", folder="elsewhere", shape="classify")
    task = TaskConfig(shape="classify", labels=("neg", "pos"))
    for folder in ("aclImdb", "aclImdb/test"):
        assert [example.answer for example in read_eval_data(source, tmp_path / folder, task).dev] == ["neg", "pos"]


def test_an_empty_extra_eval_split_is_left_out(tmp_path: Path) -> None:
    lines = HANDMADE_DATASETS["mnli"]["train.tsv"]
    for name in ("train.tsv", "dev_matched.tsv"):
        write_lines(tmp_path / name, *lines)
    write_lines(tmp_path / "dev_mismatched.tsv", lines[0])
    data = read_dataset("mnli", tmp_path)
    assert not data.extra_eval and "mismatched" in remark_text(data.remarks, "empty-split")


def test_all_labelled_splits_are_evaluated(tmp_path: Path) -> None:
    lines = HANDMADE_DATASETS["mnli"]["train.tsv"]
    for name, rows in (
        ("train.tsv", lines[1:] * 3),
        ("dev_matched.tsv", lines[1:3]),
        ("dev_mismatched.tsv", lines[1:2]),
    ):
        write_lines(tmp_path / name, lines[0], *rows)
    source = Source(dataset="mnli", folder=str(tmp_path), shape="classify")
    data = read_eval_data(source, tmp_path, describe_task(read_data(source), source))
    assert len(data.dev) == 2
    assert {name: len(examples) for name, examples in data.extra_eval.items()} == {"mismatched": 1}


def test_a_dev_file_of_bad_rows_is_not_a_missing_one(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.tsv", "sentence\tlabel", *[f"text {i}\t{i % 2}" for i in range(20)])
    write_lines(tmp_path / "dev.tsv", "sentence\tlabel", "text\t7")
    with bad_rows(("unknown-label", "dev.tsv, line 2"), code="no-dev-examples"):
        read_dataset("sst2", tmp_path, skip_bad=True)


def test_a_changed_extra_eval_split_changes_the_fingerprint(tmp_path: Path) -> None:
    lines = HANDMADE_DATASETS["mnli"]["train.tsv"]
    for name in ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"):
        write_lines(tmp_path / name, *lines)
    before = read_dataset("mnli", tmp_path).fingerprint
    write_lines(tmp_path / "dev_mismatched.tsv", *lines[:2])
    assert read_dataset("mnli", tmp_path).fingerprint != before


def test_numbers_as_labels(tmp_path: Path) -> None:
    rows = [{"text": f"t{i}", "label": [1, 1.0, 2.0][i % 3]} for i in range(12)]
    data = read_table(write_lines(tmp_path / "a.jsonl", *map(json.dumps, rows)))
    assert {example.answer for example in [*data.train, *data.dev]} == {"1", "2"}
    with bad_rows(("no-label", "b.jsonl, line 13")):
        read_table(write_lines(tmp_path / "b.jsonl", *map(json.dumps, rows), '{"text": "x", "label": NaN}'))
    choice_rows = [{"text": f"t{i}", "choices": ["a", "b"], "label": i % 2} for i in range(8)]
    for label in ("0.9", "Infinity", "NaN"):
        bad_row = '{"text": "x", "choices": ["a", "b"], "label": ' + label + "}"
        with bad_rows(("unknown-choice", "c.jsonl, line 9")):
            read_table(write_lines(tmp_path / "c.jsonl", *map(json.dumps, choice_rows), bad_row), "choice")


def test_the_first_rows_of_a_sorted_file_have_one_label(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", "text,label", *(f"t{i},{'no' if i < 50 else 'yes'}" for i in range(100)))
    with refused("one-label-in-first-rows", place="a.csv") as error:
        read_table(path, first=20)
    assert "'no'" in error.value.cause and numbers(error.value.cause) == ["20"]


FILES_UNDER_OTHER_NAMES = {  # (dataset, file) -> lines, (texts, answer)
    ("qnli", "held.tsv"): (
        ["index\tquestion\tsentence\tlabel", "0\tWho?\tI.\tentailment"],
        (("Who?", "I."), "entailment"),
    ),
    ("mnli", "copy.tsv"): (
        ["index\tsentence1\tsentence2\tlabel1\tgold_label", *["0\tA.\tB.\tneutral\tentailment"] * 9],
        (("A.", "B."), "entailment"),
    ),
    ("cola", "out_of_domain_dev.tsv"): (['clc95\t1\t\tIn "which way.'], (('In "which way.',), "acceptable")),
    ("mrpc", "msr_paraphrase_test.txt"): (
        ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t7\t8\tA "b.\tC.'],
        (('A "b.', "C."), "equivalent"),
    ),
    ("lcqmc", "mine.txt"): (["你好\t再见\t0"], (("你好", "再见"), "different")),
    ("dream", "other.json"): (
        [json.dumps([[["M: Hi."], [{"question": "Who?", "choice": ["a", "b"], "answer": "b"}], "1"]])],
        (("M: Hi.", "Who? a", "Who? b"), 1),
    ),
    ("imdb", "mine.csv"): (["text,sentiment", "fine,pos"], (("fine",), "pos")),
    ("swag", "test.csv"): (["question,option1,option2,answer", "q,x,y,y"], (("q", "x", "y"), 1)),
    ("sst2", "quoted.tsv"): (["sentence\tlabel", '"so ""it"" goes"\t1'], (('so "it" goes',), "positive")),
    ("sst2", "mine.csv"): (["label,sentence", '1,"so, it goes"'], (("so, it goes",), "positive")),
}


@pytest.mark.parametrize(("dataset", "name"), FILES_UNDER_OTHER_NAMES)
def test_official_formats_under_other_file_names(dataset: str, name: str, tmp_path: Path) -> None:
    lines, expected = FILES_UNDER_OTHER_NAMES[dataset, name]
    row = CATALOGUE[dataset]
    shape = row.task.schema.shape
    labels = (*row.labels, *row.columns.label_map.values()) if row.columns is not None else ()
    all_labels = tuple(
        dict.fromkeys([*labels, *(["entailment", "neutral", "pos"] if not labels and shape == "classify" else [])])
    )
    task = TaskConfig(shape=shape, labels=all_labels, pairs=row.columns is not None and len(row.columns.texts) == 2)
    (first, *_) = read_eval_data(
        Source(dataset=dataset, folder="elsewhere", shape=shape), write_lines(tmp_path / name, *lines), task
    ).dev
    assert (first.texts, first.answer) == expected
    if dataset not in ("dream", "imdb", "swag"):  # the others are read by their columns
        artifact = TaskArtifact(task=task, dataset=dataset, columns=row.columns.texts if row.columns else ())
        batch, *_ = inputs_of(tmp_path / name, artifact)
        assert batch.valid[0].texts == expected[0], "predicted as they are evaluated"


def test_a_dev_file_with_other_columns(tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.csv", "text,label", *[f"text {i},{'ab'[i % 2]}" for i in range(20)])
    dev = write_lines(tmp_path / "dev.csv", "sentence,sentiment", "one,a", "two,b")
    data = read_table(train, dev=str(dev))
    assert [(example.texts[0], example.answer) for example in data.dev] == [("one", "a"), ("two", "b")]
    assert all(name in remark_text(data.remarks, "dev-columns") for name in ("sentence", "sentiment"))
    assert data.columns == Columns(("text",), ("label",))
    source = named_source("classify", train=str(train), dev=str(dev))
    assert read_data(as_recorded(source, data.columns)).fingerprint == data.fingerprint, "as a resumed run reads it"
    dev = write_lines(tmp_path / "dev.csv", "x,y", "one,a")
    with refused("no-text-column", place="dev.csv") as error:
        read_table(train, dev=str(dev))
    assert "--text" in str(error.value.remedy)


def test_a_dev_file_with_another_label_separator_is_reread_alike(tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.csv", "text,labels", *[f'text {i},"red,blue"' for i in range(20)])
    dev = write_lines(tmp_path / "dev.csv", "comment,tags", *[f"some text {i},red|blue" for i in range(9)])
    source = named_source("multilabel", train=str(train), dev=str(dev))
    data = read_data(source)
    assert data.dev[0].answer == ("red", "blue")
    assert read_data(as_recorded(source, data.columns)).fingerprint == data.fingerprint


def test_a_text_without_spaces_is_a_bad_row(tmp_path: Path) -> None:
    rows = [f"text {i},{'ab'[i % 2]}" for i in range(20)]
    path = write_lines(tmp_path / "t.csv", "text,label", *rows, f"look {'Q' * 20_000},a", f"{'字' * 20_000},b")
    with bad_rows(("no-spaces", "t.csv, line 22")) as bad:
        read_table(path)
    assert numbers(bad[0].cause) == ["20,000"]
    assert len(read_table(path, skip_bad=True).train) == 19


def test_columns_are_guessed_from_their_content(tmp_path: Path) -> None:
    rows = [f"{i},这部电影真的很{'好看' if i % 2 else '难看'}啊{i},{'好评' if i % 2 else '差评'}" for i in range(30)]
    assert read_table(write_lines(tmp_path / "zh.csv", "编号,影评,情感", *rows)).columns == Columns(
        ("影评",), ("情感",), unused=("编号",)
    )
    for no, yes in ("01", ("False", "True"), ("no", "yes")):
        flags = [f"{i},some words {i},{(no, yes)[i % 2]},{(no, yes)[i % 3 // 2]},{no}" for i in range(30)]
        data = read_table(write_lines(tmp_path / "f.csv", "id,comment_text,toxic,obscene,threat", *flags), "multilabel")
        assert data.columns == Columns(("comment_text",), ("toxic", "obscene", "threat"), unused=("id",))
        assert {example.answer for example in data.train} == {(), ("toxic",), ("obscene",), ("toxic", "obscene")}


@pytest.mark.parametrize(
    ("cell", "separator"), [("Health, Safety|Food", "|"), ("Health, Safety; Food", ";"), ("Health, Food", ",")]
)
def test_a_table_has_one_label_separator(cell: str, separator: str, tmp_path: Path) -> None:
    data = read_table(
        write_lines(tmp_path / "m.csv", "text,labels", *[f'text {i},"{cell if i % 2 else "Food"}"' for i in range(20)]),
        "multilabel",
    )
    expected = ("Health", "Food") if separator == "," else ("Health, Safety", "Food")
    assert {example.answer for example in data.train} == {expected, ("Food",)}
    assert data.columns is not None
    assert data.columns.separator == separator
    assert repr(separator) in remark_text(data.remarks, "columns")


def test_tables_with_one_word_per_row_are_refused(tmp_path: Path) -> None:
    rows = [
        f"{i // 4},{word},{tag}" for i, (word, tag) in enumerate([("Anna", "B-PER"), ("is", "O"), ("here", "O")] * 10)
    ]
    with refused("one-word-sentences", place="w.csv"):
        read_table(write_lines(tmp_path / "w.csv", "sentence_id,word,tag", *rows), "tag")


def test_gzipped_inputs(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "x.txt.gz", "wt") as file:
        file.write("one\ntwo\n")
    inputs = inputs_of(tmp_path / "x.txt.gz", TaskArtifact(task=TaskConfig(shape="classify")))
    assert [example.texts for batch in inputs for example in batch.valid] == [("one",), ("two",)]


def test_many_blank_lines_before_the_first_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"\n" * 3000 + b"one\n")))
    inputs = inputs_of("-", TaskArtifact(task=TaskConfig(shape="classify")))
    assert [example.place for batch in inputs for example in batch.valid] == ["standard input, line 3001"]


@pytest.mark.parametrize("shape", ["classify", "tag", "span", "choice"])
@pytest.mark.parametrize("value", [{"text": "hello"}, None, 5, [["a"]], {"a", "b"}])
def test_inputs_that_are_not_texts_are_refused(shape: str, value: Any) -> None:
    with refused("wrong-input", place="input 1"):
        as_example(value, task_class(shape).schema, False, 1)


HANDMADE_DATASETS = {  # file -> lines, in the official format
    "qqp": {
        "train.tsv": [
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            '0\t1\t2\tHow "big" is it?\tHow large is it?\t1',
            "2\t5\t6\tTorn in the official file",
            "3\t7\t8\tAnd one has nothing to compare\t\t0",
            "1\t3\t4\tWho?\tWhy?\t0",
        ]
    },
    "qnli": {
        "train.tsv": [
            "index\tquestion\tsentence\tlabel",
            "0\tWho?\tIt was I.\tentailment",
            "1\tWho?\tNo.\tnot_entailment",
        ]
    },
    "mnli": {
        "train.tsv": [
            "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\t"
            "sentence1\tsentence2\tlabel1\tgold_label",
            *(
                f"{i}\t1\t1n\tfiction\t( A )\t( B )\t(ROOT A)\t(ROOT B)\t{texts}\tneutral\t{label}"
                for i, (texts, label) in enumerate(
                    [("A man sleeps.\tHe is awake.", "contradiction"), ("A.\tB.", "neutral"), ("A.\tA.", "entailment")]
                )
            ),
        ]
    },
    "rte": {"train.tsv": ["index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\tentailment", "1\tC.\tD.\tnot_entailment"]},
    "stsb": {"train.tsv": ["index\tgenre\tsentence1\tsentence2\tscore", "0\tx\tA.\tB.\t5.000", "1\tx\tC.\tD.\t0.250"]},
    "lcqmc": {"train.txt": ["怎么去北京？\t去北京怎么走？\t1", "你好\t再见\t0"]},
    "conll2003": {
        "eng.train": ["-DOCSTART- -X- -X- O", "", "EU NNP B-NP B-ORG", "rejects VBZ B-VP O", "", "Peter NNP B-NP B-PER"]
    },
    "swag": {
        "train.csv": [
            ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label",
            "0,v,1,x,He sits.,He,gold,eats.,flies.,melts.,sings.,0",
            "1,v,1,x,She runs.,She,gold,sleeps.,stops.,melts.,sings.,1",
        ]
    },
}


@pytest.mark.parametrize("task", HANDMADE_DATASETS)
def test_official_formats_by_handmade_files(task: str, tmp_path: Path) -> None:
    ((name, lines),) = HANDMADE_DATASETS[task].items()
    write_lines(tmp_path / name, *lines)
    dev = CATALOGUE[task].files["dev"][0]
    write_lines(tmp_path / dev, *lines)
    if task == "mnli":
        write_lines(tmp_path / "dev_mismatched.tsv", *lines[:2])
    data = read_dataset(task, tmp_path)
    assert list(map(len, data.extra_eval.values())) == ([1] if task == "mnli" else [])
    assert ("malformed-rows" in remark_codes(data.remarks)) == (task == "qqp")
    assert "bad-rows" not in remark_codes(data.remarks)
    if task == "qqp":
        assert numbers(remark_text(data.remarks, "malformed-rows"))[0] == "4", "two of each file"
    first = data.train[0]
    expected = {
        "qqp": (('How "big" is it?', "How large is it?"), "duplicate"),
        "qnli": (("Who?", "It was I."), "entailment"),
        "mnli": (("A man sleeps.", "He is awake."), "contradiction"),
        "rte": (("A.", "B."), "entailment"),
        "stsb": (("A.", "B."), 5.0),
        "lcqmc": (("怎么去北京？", "去北京怎么走？"), "same"),
        "conll2003": (("EU", "rejects"), ("B-ORG", "O")),
        "swag": (("He sits.", "He eats.", "He flies.", "He melts.", "He sings."), 0),
    }
    assert (first.texts, first.answer) == expected[task]


def test_squad2_has_unanswerable_questions(tmp_path: Path) -> None:
    questions = [
        {"id": "1", "question": "Who?", "answers": [{"answer_start": 0, "text": "I"}]},
        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
    ]
    content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": "I was it.", "qas": questions}]}]}
    for name in ("train-v2.0.json", "dev-v2.0.json"):
        (tmp_path / name).write_text(json.dumps(content))
    data = read_dataset("squad2", tmp_path)
    assert [example.answer for example in data.train] == [(Span(0, "I"),), ()]
    assert describe_task(data, Source(dataset="squad2", folder="", shape="span")).no_answer


def test_conll_and_bmes_files(shared: Path) -> None:
    wikigold = shared / "tasks/ner/wikigold/CONLL-format/data/wikigold.conll.txt"
    data = read_table(wikigold, "tag")
    assert len(data.train) + len(data.dev) == 1696 and data.train[0].texts[0]
    resume = read_table(shared / "tasks/ner/zh_resume/test.char.bmes", "tag")
    assert any("B-NAME" in example.answer for example in resume.train)
