"""Entities as character spans: the formats of annotation tools, what becomes of them, and words split as in training."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import bertworks
from bertworks.config import TaskArtifact, TaskConfig, check_artifact
from bertworks.datasets.checks import TaskData
from bertworks.datasets.columns import word_list
from bertworks.datasets.example import Example
from bertworks.datasets.inputs import as_example
from bertworks.datasets.words import learn_words
from bertworks.errors import Remark
from bertworks.tasks.source import describe_task, read_data
from bertworks.tasks.tag import Tag, TagPrediction, TagSchema
from bertworks.text.word_splitter import WordSplitter, words_with_starts
from commands import run as command
from refusals import refused
from test_sources import bad_rows, named_source, read_table, write_lines
from texts import tiny_tokenizer

# A text, and its entities: label, surface, and where it starts.
LATIN = [
    ("Ba de's go (Mo-la) fi.", [("PER", "Ba de", 0), ("LOC", "Mo-la", 12)]),
    ("  La go ku, Ba mo!", [("LOC", "La", 2), ("PER", "Ba", 12)]),
    ("go fi de ku de", []),
]
HAN = [("王小明，1966年生，任84部队教授。", [("NAME", "王小明", 0), ("ORG", "84部队", 12)])]
Annotated = list[tuple[str, list[tuple[str, str, int]]]]


def spans_of(entities: list[tuple[str, str, int]]) -> list[tuple[int, int, str]]:
    return [(start, start + len(surface), label) for label, surface, start in entities]


def json_lines(path: Path, rows: Iterator[dict[str, Any]]) -> Path:
    return write_lines(path, *(json.dumps(row, ensure_ascii=False) for row in rows))


def doccano(folder: Path, texts: Annotated) -> Path:
    return json_lines(folder / "d.jsonl", ({"id": 7, "text": t, "label": spans_of(e)} for t, e in texts))


def doccano_objects(folder: Path, texts: Annotated) -> Path:
    return json_lines(
        folder / "o.jsonl",
        (
            {
                "text": text,
                "entities": [
                    {"id": 1, "label": label, "start_offset": start, "end_offset": end}
                    for start, end, label in spans_of(entities)
                ],
                "relations": [],
                "Comments": [],
            }
            for text, entities in texts
        ),
    )


def prodigy(folder: Path, texts: Annotated) -> Path:
    """With the words that the tool has split the text into."""
    rows = (
        {
            "text": text,
            "_input_hash": 5,
            "tokens": [
                {"text": word, "start": start, "end": start + len(word), "id": i}
                for i, (start, word) in enumerate(fine_words(text))
            ],
            "spans": [{"start": start, "end": end, "label": label} for start, end, label in spans_of(entities)],
            "answer": "accept",
        }
        for text, entities in texts
    )
    rejected = {"text": "no no", "tokens": [], "spans": [], "answer": "reject"}
    return json_lines(folder / "p.jsonl", iter([*rows, rejected]))


def cluener(folder: Path, texts: Annotated) -> Path:
    """Whose ends are inclusive."""
    rows = []
    for text, entities in texts:
        labels: dict[str, dict[str, list[list[int]]]] = {}
        for label, surface, start in entities:
            labels.setdefault(label, {}).setdefault(surface, []).append([start, start + len(surface) - 1])
        rows.append({"text": text, "label": labels})
    return json_lines(folder / "c.json", iter(rows))


def label_studio(folder: Path, texts: Annotated) -> Path:
    tasks = []
    for number, (text, entities) in enumerate(texts):
        values = [
            {"start": start, "end": end, "text": text[start:end], "labels": [label]}
            for start, end, label in spans_of(entities)
        ]
        results = [{"type": "labels", "from_name": "label", "to_name": "text", "value": value} for value in values]
        cancelled = {"was_cancelled": True, "result": [{"value": {"start": 0, "end": 1, "labels": ["X"]}}]}
        relation = {"type": "relation", "from_id": "a", "to_id": "b"}
        annotations = [cancelled, {"was_cancelled": False, "result": [*results, relation]}]
        tasks.append({"id": number, "data": {"text": text}, "annotations": annotations, "predictions": []})
    path = folder / "l.json"
    path.write_text(json.dumps(tasks, ensure_ascii=False), encoding="utf-8")
    return path


def brat(folder: Path, texts: Annotated) -> Path:
    """One text, a line for each."""
    content = ""
    lines = []
    for text, entities in texts:
        for start, end, label in spans_of(entities):
            offset = len(content)
            lines.append(f"T{len(lines) + 1}\t{label} {offset + start} {offset + end}\t{text[start:end]}")
        content += text + "\n"
    (folder / "brat").mkdir(exist_ok=True)
    (folder / "brat" / "one.txt").write_text(content, encoding="utf-8")
    (folder / "brat" / "one.ann").write_text("\n".join([*lines, "R1\tpart Arg1:T1 Arg2:T2", "#1\tnote"]) + "\n")
    return folder / "brat"


FORMATS = (doccano, doccano_objects, prodigy, cluener, label_studio, brat)


def fine_words(text: str) -> list[tuple[int, str]]:
    """Letters and digits together, every other character alone."""
    splitter = WordSplitter.learn([["ab", "Ab", "12", *"(),.'!-，。"]])
    return splitter.split(text)


def all_examples(data: TaskData) -> list[Example]:
    return [*data.train, *data.dev]


def remark(remarks: list[Remark], code: str) -> Remark:
    (found,) = (remark for remark in remarks if remark.code == code)
    assert found.chinese
    return found


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_formats_of_annotation_tools(write: Callable[[Path, Annotated], Path], tmp_path: Path) -> None:
    data = read_table(write(tmp_path, LATIN * 8), "tag")
    assert remark(data.remarks, "span-format").text
    by_text = {example.source_text.strip(): example for example in all_examples(data)}
    assert len(all_examples(data)) == 24 and len(by_text) == 3
    first = by_text["Ba de's go (Mo-la) fi."]
    assert first.texts == ("Ba", "de", "'", "s", "go", "(", "Mo", "-", "la", ")", "fi", ".")
    assert first.answer == ("B-PER", "E-PER", *"OOOO", "B-LOC", "I-LOC", "E-LOC", *"OOO")
    second = by_text["La go ku, Ba mo!"]
    assert second.answer == ("S-LOC", "O", "O", "O", "S-PER", "O", "O")
    assert set(by_text["go fi de ku de"].answer) == {"O"}
    for example in by_text.values():
        for start, word in zip(example.word_starts, example.texts, strict=True):
            assert example.source_text[start : start + len(word)] == word


@pytest.mark.parametrize("write", [doccano, cluener, label_studio, brat], ids=lambda write: write.__name__)
def test_chinese_is_split_by_character(write: Callable[[Path, Annotated], Path], tmp_path: Path) -> None:
    """As Chinese data sets are, digits too."""
    (example, *_) = read_table(write(tmp_path, HAN * 8), "tag").train
    assert example.texts == tuple("王小明，1966年生，任84部队教授。")
    assert example.answer == ("B-NAME", "I-NAME", "E-NAME", *"O" * 9, "B-ORG", *["I-ORG"] * 2, "E-ORG", *"OOO")


def test_spans_that_cut_words_and_overlapping_spans_are_said(tmp_path: Path) -> None:
    rows = [
        {"text": "Berlinreise im Mai", "label": [[0, 6, "LOC"]]},
        {"text": "5kg of New York Times", "label": [[0, 1, "NUM"], [7, 15, "LOC"], [7, 21, "ORG"], [7, 21, "ORG"]]},
        {"text": "Anna is here", "label": [[0, 5, "PER"]]},  # a space at its end is no cut
    ]
    data = read_table(json_lines(tmp_path / "d.jsonl", iter(rows * 7)), "tag")
    cut = remark(data.remarks, "spans-cut-words")
    assert cut.text.startswith("7 ") and "d.jsonl, line 1: 'Berlin' (LOC) -> 'Berlinreise'" in cut.text
    overlap = remark(data.remarks, "overlapping-spans")
    assert overlap.text.startswith("7 ") and "d.jsonl, line 2: 'New York' (LOC)" in overlap.text
    examples = {example.texts[0]: example for example in all_examples(data)}
    assert examples["Berlinreise"].answer == ("S-LOC", "O", "O")
    assert examples["5"].texts[:2] == ("5", "kg"), "where a span ends between a digit and a letter, they are separated"
    assert examples["5"].answer == ("S-NUM", "O", "O", "B-ORG", "I-ORG", "E-ORG")
    assert examples["Anna"].answer == ("S-PER", "O", "O")


@pytest.mark.parametrize(
    ("label", "code"),
    [
        ([[0, 99, "LOC"]], "span-outside-text"),
        ([[3, 3, "LOC"]], "span-outside-text"),
        ([[4, 5, "LOC"]], "span-outside-text"),
        ([["0", 4, "LOC"]], "bad-spans"),
        ([[0, 4, None]], "bad-spans"),
        ([{"start": 0, "label": "LOC"}], "bad-spans"),
        ([{"start": 0, "end": 4, "label": "LOC", "text": "Bonn"}], "span-not-its-text"),
        ({"LOC": {"Bonn": [[0, 3]]}}, "span-not-its-text"),
        ({"LOC": {"Anna": 3}}, "bad-spans"),
        (["LOC"], "bad-spans"),
    ],
)
def test_invalid_spans(label: Any, code: str, tmp_path: Path) -> None:
    rows = [{"text": "Anna is here", "label": [[0, 4, "PER"]]}] * 12
    path = json_lines(tmp_path / "d.jsonl", iter([*rows, {"text": "Anna is here", "label": label}]))
    with bad_rows((code, "d.jsonl, line 13")):
        read_table(path, "tag")
    assert len(all_examples(read_table(path, "tag", skip_bad=True))) == 12


def test_tasks_without_an_annotation_are_left_out(tmp_path: Path) -> None:
    """Skipped or still to do: nobody has said that there are no entities."""
    path = label_studio(tmp_path, LATIN * 4)
    tasks = json.loads(path.read_text(encoding="utf-8"))
    cancelled = {"was_cancelled": True, "result": []}
    tasks[2:2] = [{"id": 90 + n, "data": {"text": "Ba go"}, "annotations": [cancelled] * n} for n in range(2)]
    path.write_text(json.dumps(tasks), encoding="utf-8")
    data = read_table(path, "tag")
    assert len(all_examples(data)) == 12
    assert remark(data.remarks, "malformed-rows").text.startswith("skipped 2 ")


def test_rows_without_a_label_are_not_rows_without_entities(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": "Anna is here", "label": [[0, 4, "PER"]]}] * 12
    none = [{"text": "no one", "label": []}, {"text": "no one", "label": {}}]
    assert len(all_examples(read_table(json_lines(tmp_path / "d.jsonl", iter(rows + none)), "tag"))) == 14
    unlabelled = [{"text": "Anna"}, {"text": "Anna", "label": None}, {"text": "Anna", "label": ""}]
    dev = str(json_lines(tmp_path / "dev.jsonl", iter(rows)))
    with bad_rows(*[("no-label", f"d.jsonl, line {n}") for n in (13, 14, 15)]):
        read_table(json_lines(tmp_path / "d.jsonl", iter(rows + unlabelled)), "tag", dev=dev)


def test_prodigy_writes_no_spans_where_there_are_none(tmp_path: Path) -> None:
    """If the row was accepted: others may not have been looked at."""
    rows = [{"text": "Anna is here", "spans": [{"start": 0, "end": 4, "label": "PER"}], "answer": "accept"}] * 12
    accepted = {"text": "no one", "answer": "accept"}
    data = read_table(json_lines(tmp_path / "p.jsonl", iter([*rows, accepted])), "tag")
    assert [set(example.answer) for example in all_examples(data) if example.texts == ("no", "one")] == [{"O"}]
    with bad_rows(("no-label", "p.jsonl, line 13")):
        read_table(json_lines(tmp_path / "p.jsonl", iter([*rows, {"text": "no one"}])), "tag")


@pytest.mark.parametrize(
    "tokens",
    [[(0, 4), (8, 12)], [(5, 7), (0, 4), (8, 12)], [(0, 7), (5, 12)]],
    ids=["gap", "order", "overlap"],
)
def test_tokens_that_are_not_the_words_of_the_text_are_not_used(tokens: list[tuple[int, int]], tmp_path: Path) -> None:
    row = {
        "text": "Anna is here",
        "tokens": [{"start": start, "end": end} for start, end in tokens],
        "spans": [{"start": 0, "end": 7, "label": "PER"}],
        "answer": "accept",
    }
    data = read_table(json_lines(tmp_path / "p.jsonl", iter([row] * 12)), "tag")
    assert data.train[0].texts == ("Anna", "is", "here") and data.train[0].answer == ("B-PER", "E-PER", "O")
    assert not {"spans-cut-words", "overlapping-spans"} & {remark.code for remark in data.remarks}


def test_lines_of_a_document_are_in_one_split(tmp_path: Path) -> None:
    for n in range(8):
        lines = [f"Ba{'abcdefgh'[n]} go {'de ' * i}fi" for i in range(5)]
        starts = [sum(len(line) + 1 for line in lines[:i]) for i in range(5)]
        (tmp_path / f"{n}.txt").write_text("\n".join(lines))
        (tmp_path / f"{n}.ann").write_text(
            "".join(f"T{i}\tPER {s} {s + 3}\t{lines[0][:3]}\n" for i, s in enumerate(starts))
        )
    data = read_table(tmp_path, "tag")
    documents = [{example.texts[0] for example in examples} for examples in (data.train, data.dev)]
    assert documents[0].isdisjoint(documents[1]) and [len(part) for part in documents] == [7, 1]


def test_documents_are_divided_if_each_has_a_tag_of_its_own(tmp_path: Path) -> None:
    """Else dev would be empty: no tag is in dev only."""
    for n in range(4):
        lines = [f"Ba {'abcd'[n]} {'de ' * i}fi" for i in range(6)]
        starts = [sum(len(line) + 1 for line in lines[:i]) for i in range(6)]
        (tmp_path / f"{n}.txt").write_text("\n".join(lines))
        (tmp_path / f"{n}.ann").write_text("".join(f"T{i}\tX{n} {s} {s + 2}\tBa\n" for i, s in enumerate(starts)))
    assert read_table(tmp_path, "tag").dev


def test_line_separators_inside_of_a_surface(tmp_path: Path) -> None:
    for n, separator in enumerate("\u2028\x85\x0c\r"):
        (tmp_path / f"{n}.txt").write_bytes(f"in New{separator}York\n".encode())
        (tmp_path / f"{n}.ann").write_bytes(f"T1\tLOC 3 11\tNew{separator}York\r\n#1\tnote\n".encode())
    data = read_table(tmp_path, "tag")
    assert {example.answer for example in all_examples(data)} == {("O", "B-LOC", "E-LOC")}


def test_brat_spans_without_text_are_invalid(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("in  Bonn\n" * 3)
    (tmp_path / "a.ann").write_text("T1\tLOC 4 8\tBonn\nT2\tLOC 2 4\t  \nT3\tLOC 2 2\t\n")
    with bad_rows(("span-outside-text", "a.ann, line 2"), ("span-outside-text", "a.ann, line 3")):
        read_table(tmp_path, "tag")


def test_no_valid_row_to_decide_on(tmp_path: Path) -> None:
    dev = doccano(tmp_path, LATIN)
    train = json_lines(tmp_path / "t.jsonl", iter([{"text": "Anna is here", "label": [[0, 99, "PER"]]}]))
    with bad_rows(("span-outside-text", "t.jsonl, line 1")):
        read_table(train, "tag", dev=str(dev))


def test_brat_folders(tmp_path: Path) -> None:
    """Offsets count line ends; an entity may go on in the next line, or have several fragments."""
    folder = tmp_path / "b"
    folder.mkdir()
    text = "New\r\nYork is big.\r\nNorth and South America\r\n\r\nAnna.\r\n"
    (folder / "a.txt").write_bytes(text.encode())
    entities = [("LOC", "0 9", "New York"), ("LOC", "19 24;35 42", "North America"), ("PER", "46 50", "Anna")]
    lines = [f"T{n}\t{label} {places}\t{surface}" for n, (label, places, surface) in enumerate(entities)]
    (folder / "a.ann").write_text("\n".join(lines))
    data = read_table(folder, "tag", dev=str(folder))
    assert [example.texts for example in data.train] == [
        ("New", "York", "is", "big", "."),
        ("North", "and", "South", "America"),
        ("Anna", "."),
    ]
    assert [example.place.rpartition(", ")[2] for example in data.train] == ["line 1", "line 3", "line 5"]
    assert data.train[0].answer[:2] == ("B-LOC", "E-LOC")
    assert "a.ann, line 2" in remark(data.remarks, "discontinuous-spans").text
    (folder / "a.ann").write_text("T1\tLOC 1 9\tNew York\nT2\tLOC\n")
    (folder / "b.txt").write_text("no annotations")
    with bad_rows(("span-not-its-text", "a.ann, line 1"), ("bad-spans", "a.ann, line 2"), ("no-annotations", "b.txt")):
        read_table(folder, "tag")
    (folder / "a.ann").unlink()
    with refused("missing-file", place="b"):
        read_table(folder, "tag")
    with refused("is-a-folder"):
        read_table(folder, "classify")


def test_dev_is_split_into_words_as_train_is(tmp_path: Path) -> None:
    """By character, as most texts of train are, though dev by itself would be split into words."""
    train = doccano(tmp_path, HAN * 8)
    english = [{"text": "任 iPhone 部门 manager now", "label": [[2, 8, "ORG"]]}] * 2
    dev = json_lines(tmp_path / "dev.jsonl", iter(english))
    for split in (dev, label_studio(tmp_path, [("任 iPhone 部门 manager now", [("ORG", "iPhone", 2)])])):
        (example, *_) = read_table(train, "tag", dev=str(split)).dev
        assert example.texts == tuple("任iPhone部门managernow")
    words = write_lines(tmp_path / "w.conll", *["do O", "n't O", "go O", "Ba B-PER", ""] * 9)
    spans = json_lines(tmp_path / "s.jsonl", iter([{"text": "Ba don't", "label": [[0, 2, "PER"]]}]))
    (example,) = read_table(words, "tag", dev=str(spans)).dev
    assert example.texts == ("Ba", "do", "n't") and example.answer == ("B-PER", "O", "O")


def test_words_do_not_depend_on_the_spans_of_their_own_text(tmp_path: Path) -> None:
    """They would tell where an entity ends: whether letters and digits are separated is decided on train."""
    whole = [{"text": "go 5mg de", "label": [[3, 6, "DOSE"]]}, {"text": "go 5 de", "label": [[3, 4, "NUM"]]}] * 6
    cut = [{"text": "go 5mg de", "label": [[3, 4, "NUM"]]}, {"text": "go 7kg de", "label": [[3, 6, "DOSE"]]}] * 6
    dev = [{"text": "8kg", "label": [[0, 1, "NUM"]]}, {"text": "9kg", "label": []}, {"text": "B12", "label": []}]
    dev_path = json_lines(tmp_path / "dev.jsonl", iter(dev))
    for rows, words in ((whole, ["8kg", "9kg", "B12"]), (cut, ["8 kg", "9 kg", "B 12"])):
        data = read_table(json_lines(tmp_path / "train.jsonl", iter(rows)), "tag", dev=str(dev_path))
        assert [" ".join(example.texts) for example in data.dev] == words
        assert ("spans-cut-words" in {remark.code for remark in data.remarks}) == (words[0] == "8kg")
        schema = TagSchema(learn_words(data.train))
        assert [" ".join(as_example(row["text"], schema, None, 0).texts) for row in dev] == words, "as predicted"
    assert [example.texts for example in data.train[:2]] == [("go", "5", "mg", "de"), ("go", "7", "kg", "de")]


@pytest.mark.parametrize("tag", ["B-PER", "B"])
def test_the_entity_column_of_conllu_is_found_by_its_content(tag: str, tmp_path: Path) -> None:
    lines = [
        "# text = Anna sang",
        f"1\tAnna\tAnna\tPROPN\t_\t_\t2\tnsubj\t_\t{tag}",
        "2\tsang\tsing\tVERB\t_\t_\t0\troot\t_\tO",
        "",
    ]
    data = read_table(write_lines(tmp_path / "u.txt", *lines * 9), "tag")
    assert data.train[0].texts == ("Anna", "sang") and data.train[0].answer == (tag, "O")
    assert "10 of 10" in remark(data.remarks, "tag-column").text
    named = read_table(tmp_path / "u.txt", "tag", label=("4",))
    assert named.train[0].answer == ("PROPN", "VERB")


def test_tags_of_dev_that_train_does_not_have(tmp_path: Path) -> None:
    """If entities of that type are in train: the user has labelled spans, not S-LOC."""
    train = json_lines(tmp_path / "t.jsonl", iter([{"text": "in New York", "label": [[3, 11, "LOC"]]}] * 9))
    dev = json_lines(tmp_path / "d.jsonl", iter([{"text": "in Bonn", "label": [[3, 7, "LOC"]]}] * 3))
    assert len(read_table(train, "tag", dev=str(dev)).dev) == 3
    other = json_lines(tmp_path / "o.jsonl", iter([{"text": "in Bonn", "label": [[3, 7, "CITY"]]}] * 3))
    with bad_rows(*[("label-not-in-train", f"o.jsonl, line {n}") for n in (1, 2, 3)]):
        read_table(train, "tag", dev=str(other))
    parts_of_speech = write_lines(tmp_path / "p.conll", *["one M", "dog NN", ""] * 9)
    with bad_rows(("label-not-in-train", "q.conll, line 1")):
        read_table(parts_of_speech, "tag", dev=str(write_lines(tmp_path / "q.conll", "oh E", "")))


@pytest.mark.parametrize("label", ["LOC", "AI-Co"])
def test_entities_are_written_in_the_tags_of_a_model(label: str) -> None:
    spans = Example(("in", "New", "York", "City", "Bonn"), ("O", *(f"{p}-{label}" for p in "BIES")))
    for scheme, prefixes in (("BMES", "BMES"), ("BILU", "BILU"), ("BI", "BIIB"), ("BE", "BIES")):
        labels = {"O", *(f"{prefix}-{label}" for prefix in scheme)}
        assert TagSchema().to_tag_scheme(spans, labels).answer == ("O", *(f"{p}-{label}" for p in prefixes))
    assert TagSchema().to_tag_scheme(spans, {"O", "B-PER"}).answer == spans.answer


def test_dev_is_written_in_the_tags_of_train(tmp_path: Path) -> None:
    """A tag that is only in dev would be a class that is never trained."""
    words = write_lines(tmp_path / "w.conll", *["in O", "New B-LOC", "York I-LOC", "", "Bonn B-LOC", "is O", ""] * 9)
    dev = [{"text": "in New York", "label": [[3, 11, "LOC"]]}, {"text": "Bonn is", "label": [[0, 4, "LOC"]]}]
    source = named_source("tag", train=str(words), dev=str(json_lines(tmp_path / "d.jsonl", iter(dev))))
    data = read_data(source)
    assert [example.answer for example in data.dev] == [("O", "B-LOC", "I-LOC"), ("B-LOC", "O")]
    assert describe_task(data, source).labels == ("B-LOC", "I-LOC", "O")


def test_predictions_with_spaces_in_their_tags_can_be_read_again() -> None:
    for words, tags in (
        (["Ba", "go"], ["S-Company Name", "O"]),
        (["Ba", "New York"], ["O", None]),
        (["[", "1", "]"], ["O", "O", "O"]),
        (["[", "null", "]"], ["O", "O", "O"]),
    ):
        cells = TagPrediction(words, tags, [0.5] * len(words), []).cells()
        assert word_list(cells["words"], "words") == tuple(words)
        assert word_list(cells["tags"], "tags") == tuple("?" if tag is None else tag for tag in tags)
    assert TagPrediction(["Ba", "go"], ["O", None], [0.5] * 2, []).cells() == {"words": "Ba go", "tags": "O ?"}


# ---------------------------------------------------------------------- words


TRAINING_WORDS = [
    "Apple 's U.N. office did n't open in St. Louis , Mr. Smith said .".split(),
    "The U.S. ( and the E.U. ) has n't paid $ 3,000.50 .".split(),
    "It 's well-known that Anna 's co-author was n't here .".split(),
]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Apple's", ["Apple", "'s"]),
        ("Bob’s dog.", ["Bob", "’s", "dog", "."]),  # with another apostrophe
        ("hasn't", ["has", "n't"]),
        ("U.K. (U.N.)", ["U.K.", "(", "U.N.", ")"]),
        ("St. Mr. end.", ["St.", "Mr.", "end", "."]),
        ("half-done, 1,200.75!", ["half-done", ",", "1,200.75", "!"]),
        ("café\u0301s", ["café\u0301s"]),
    ],
)
def test_texts_are_split_as_the_training_words_are(text: str, words: list[str]) -> None:
    splitter = WordSplitter.learn(TRAINING_WORDS * 3)
    assert [word for _, word in splitter.split(text)] == words
    assert all(text[start : start + len(word)] == word for start, word in splitter.split(text))


def test_each_training_convention_is_learned() -> None:
    """The same text, by words, by characters, and with punctuation at its word."""
    text = "Don't go to U.N. 2009!"
    for sentence, words in (
        ("Do n't go to the U.S. 1999 !", "Do n't go to U.N. 2009 !"),
        ("D o n ' t g o 1 9 9 9 ! U .", " ".join(text.replace(" ", ""))),
        ("Don't go! to the U.S. 1999 now!", text),
    ):
        splitter = WordSplitter.learn([sentence.split()] * 20)
        assert [word for _, word in splitter.split(text)] == words.split()


def test_typographic_apostrophes_are_learned_too() -> None:
    """Each is read as the other."""
    for learned in ("n’t", "n't"):
        splitter = WordSplitter.learn([["do", learned, "go", "has", learned, "-"]])
        for text in ("don’t", "don't"):
            assert [word for _, word in splitter.split(text)] == ["do", text[2:]]


def test_long_texts_without_spaces_are_split_in_linear_time() -> None:
    """Also if a long word is known."""
    url = "http://" + "a.b/" * 50
    splitter = WordSplitter.learn([[*"王小明任教授，1966年生。", url]] * 3)
    assert url in splitter.words
    text = "王小明任教授，1966年生。" * 20
    assert len(splitter.split(text)) == len(text)
    assert len(splitter.split(url)) == 1
    assert calls_of(splitter, text * 2) < 2.1 * calls_of(splitter, text) < 2.1 * 30 * len(text)


def calls_of(splitter: WordSplitter, text: str) -> int:
    """How many functions are called to split it, those of Python itself included."""
    n_calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal n_calls
        n_calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        splitter.split(text)
    finally:
        sys.setprofile(before)
    return n_calls


def test_a_splitter_can_be_pickled() -> None:
    splitter = WordSplitter.learn(TRAINING_WORDS)
    splitter.split("Apple's")
    copy = pickle.loads(pickle.dumps(splitter))
    assert copy.split("Apple's U.N.") == splitter.split("Apple's U.N.")


def test_models_without_learned_words_split_by_the_rule() -> None:
    """Older ones."""
    artifact = TaskArtifact(task=TaskConfig(shape="tag", labels=("O", "B-x")))
    task = Tag(bertworks.new("bert-tiny").model, artifact.task)
    task.restore(artifact)
    text = "Apple's U.N. 2009年 don't"
    example = as_example(text, task.schema, None, 0)
    assert list(zip(example.word_starts, example.texts, strict=True)) == words_with_starts(text)
    assert example.texts == ("Apple's", "U.N", ".", "2009", "年", "don't")


@pytest.mark.parametrize(
    "words", [{"trigrams": {"ab": 1}}, {"trigrams": {"  x": 0}}, {"trigrams": {}}, {"trigrams": 5}]
)
def test_damaged_words_of_an_artifact_are_refused(words: dict[str, Any]) -> None:
    with refused("bad-config"):
        check_artifact({"task": {"shape": "tag"}, "words": {"words": {}, **words}})


# ---------------------------------------------------------------------- from spans to a model, and to entities


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 32, "n_layers": 2, "n_heads": 4, "ffn_size": 64, "n_positions": 48, "seed": 3}
    bench = bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), init_range=0.1, **sizes)
    return bench.save(tmp_path_factory.mktemp("start") / "model")


def synthetic_texts(n: int = 60) -> Annotated:
    """`ku` is an entity and so is `mo-la`; what is around them differs."""
    words = ("de", "fi", "go", "ba")
    texts: Annotated = []
    for i in range(n):
        before = " ".join(words[(i + j) % 4] for j in range(i % 5)) + " ("
        between = f"ku's) {words[i % 3]}," + " go" * (i % 3) + " "
        text = f"{before}{between}mo-la!"
        texts.append((text, [("A", "ku", len(before)), ("B", "mo-la", len(before + between))]))
    return texts


SETTINGS = {"optim.lr": 1e-2, "train.batch_size": 16, "train.evaluations": 1}


def test_from_four_formats_to_exact_offsets(base_model: Path, tmp_path: Path) -> None:
    weights = set()
    for write in (doccano, prodigy, label_studio, brat):
        path = write(tmp_path, synthetic_texts())
        run = bertworks.finetune(
            path, task="tag", model=base_model, out=tmp_path / f"{write.__name__}-run", steps=60, settings=SETTINGS
        )
        weights.add((run.folder / "model/model.safetensors").read_bytes())
        text = " go,  ba (ku's) mo-la! de mo-la!"
        (prediction,) = bertworks.load(run.folder).predict([text])
        assert [(e.type, e.text, e.start, e.end) for e in prediction.entities] == [
            ("A", "ku", 10, 12),
            ("B", "mo-la", 16, 21),
            ("B", "mo-la", 26, 31),
        ]
    assert len(weights) == 1, "the same examples give the same model"
    table = write_lines(tmp_path / "more.csv", "text,n", "ku's go,1")
    (line,) = run_json_lines("predict", tmp_path / "doccano-run", table)
    assert line["predicted_words"] == ["ku", "'", "s", "go"], "a text, though it is in the column of the training"
    bench = bertworks.load(run.folder)
    bench.predict([text])
    assert pickle.loads(pickle.dumps(bench)).predict([text]) == [prediction]
    metrics = run.evaluate(doccano(tmp_path, synthetic_texts(8))).results.metrics
    assert metrics["entity_f1"] == 1.0


def run_json_lines(*args: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command(*args, "--json").stdout.splitlines()]


def test_spans_give_the_model_of_the_same_tags(base_model: Path, tmp_path: Path) -> None:
    """Characters with BMES tags, as zh_resume has them, and the same as spans: equal to the bit."""
    texts: Annotated = []
    for i in range(30):
        title = "部长" if i % 2 else "员"
        text = f"{'王李张'[i % 3]}小明，19{i + 60}年任{'部队' * (1 + i % 2)}{title}。"
        texts.append((text, [("NAME", text[:3], 0), ("TITLE", title, len(text) - 1 - len(title))]))
    lines = []
    for text, entities in texts:
        tags = ["O"] * len(text)
        for label, surface, start in entities:
            n = len(surface)
            tags[start : start + n] = (
                [f"B-{label}", *[f"M-{label}"] * (n - 2), f"E-{label}"] if n > 1 else [f"S-{label}"]
            )
        lines.append(" ".join(text) + "\t" + " ".join(tags))
    bmes = write_lines(tmp_path / "train.char.bmes", *lines)
    options: dict[str, Any] = {"task": "tag", "model": base_model, "steps": 6, "settings": SETTINGS}
    by_tags = bertworks.finetune(bmes, out=tmp_path / "tags", **options)
    by_spans = bertworks.finetune(doccano(tmp_path, texts), out=tmp_path / "spans", **options)
    assert by_tags.metrics == by_spans.metrics
    first, second = ((run.folder / "model/model.safetensors").read_bytes() for run in (by_tags, by_spans))
    assert first == second
    assert by_tags.evaluate(doccano(tmp_path, texts)).results.metrics == by_tags.evaluate(bmes).results.metrics
    (prediction,) = by_tags.predict(["张三，2009年"])
    assert prediction.words == list("张三，2009年"), "digits too, as in training"
    english = json_lines(
        tmp_path / "e.jsonl", iter([{"text": "王小明 is a manager", "label": [[0, 3, "NAME"], [9, 11, "TITLE"]]}])
    )
    for run in (by_tags, by_spans):
        codes = {remark.code for remark in run.evaluate(english).remarks}
        assert "spans-cut-words" not in codes, "also where most of a file is English"
