"""Where examples come from: official files as they are, and own tables with all that is wrong with them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bertworks.errors import BadText, NotFound
from bertworks.tasks.datasets import TASKS
from bertworks.tasks.example import Span
from bertworks.tasks.source import Data, Source, describe_task, find_source, read_data
from bertworks.tasks.windows import Reader
from test_tasks import minilm, small

NOTHING: dict[str, Any] = {
    "data": None,
    "train": None,
    "dev": None,
    "text": None,
    "pair": (),
    "label": None,
    "first": None,
    "skip_bad": False,
}


def own(path: Path, task: str = "classify", **named: Any) -> Data:
    return read_data(find_source(task, **{**NOTHING, "train": str(path), **named}))


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# ---------------------------------------------------------------------- the user's own


def test_columns_and_labels_are_guessed_and_said(tmp_path: Path) -> None:
    rows = [f'{at},"text {at}, with a comma",{["spam", "ham"][at % 2]}' for at in range(40)]
    data = own(write(tmp_path / "mail.csv", "id,text,label", *rows))
    assert len(data.train) == 36 and len(data.dev) == 4
    assert data.train[0].texts[0].startswith("text ") and {example.answer for example in data.dev} == {"spam", "ham"}
    assert any("text -> label" in remark for remark in data.remarks) and any("seed 0" in remark for remark in data.remarks)


def test_the_split_keeps_the_shares_of_the_classes(tmp_path: Path) -> None:
    rows = [f"text {at}\t{'rare' if at % 10 == 0 else 'common'}" for at in range(200)]
    path = write(tmp_path / "a.tsv", "sentence\tclass", *rows)
    data = own(path)
    assert Counter(example.answer for example in data.dev) == {"rare": 2, "common": 18}
    assert not {example.texts for example in data.dev} & {example.texts for example in data.train}
    assert own(path).dev == data.dev, "the same seed, the same split"


def test_quotes_between_tabs_are_signs_or_marks(tmp_path: Path) -> None:
    """GLUE's files are full of quotes that never close; other programs quote cells."""
    plain = write(tmp_path / "plain.tsv", "text\tlabel", *[f'"He said {at}.\t{"ab"[at % 2]}' for at in range(20)], 'So "did" I.\ta')
    data = own(plain)
    assert len(data.train) + len(data.dev) == 21 and any(example.texts[0].startswith('"He said') for example in data.train)
    quoted = write(tmp_path / "quoted.tsv", "text\tlabel", *[f'"He ""said"" {at},\tso"\t{"ab"[at % 2]}' for at in range(20)])
    assert any(example.texts[0].startswith('He "said"') for example in own(quoted).train)


def test_a_quote_far_down_does_not_swallow_rows(tmp_path: Path) -> None:
    rows = [f"text {at}\t{'ab'[at % 2]}" for at in range(1500)]
    rows[1200], rows[1400] = '"open\ta', '"and again\tb'
    data = own(write(tmp_path / "a.tsv", "text\tlabel", *rows))
    assert len(data.train) + len(data.dev) == 1500
    (tmp_path / "b.tsv").write_bytes(b"text\tlabel\none\rtwo\ta\n")
    with pytest.raises(BadText, match="not a table"):
        own(tmp_path / "b.tsv")


def test_one_article_is_divided_by_passages(tmp_path: Path) -> None:
    paragraphs = [
        {"context": f"I am {at}.", "qas": [{"id": str(at), "question": "Who?", "answers": [{"answer_start": 0, "text": "I"}]}]}
        for at in range(20)
    ]
    (tmp_path / "train-v1.1.json").write_text(json.dumps({"data": [{"title": "one", "paragraphs": paragraphs}]}))
    data = official("squad", tmp_path)
    assert (len(data.train), len(data.dev)) == (18, 2)
    (tmp_path / "train-v1.1.json").write_text(json.dumps([{"question": "Who?"}]))
    with pytest.raises(BadText, match="not a file of SQuAD's"):
        official("squad", tmp_path)


def test_bad_rows_are_named_before_anything_is_trained(tmp_path: Path) -> None:
    rows = [f"good text {at},{'abc'[at % 3]}" for at in range(30)]
    rows[4], rows[9], rows[14] = "no label here,", "too,many,fields", "   ,a"
    path = write(tmp_path / "three.csv", "text,label", *rows)
    with pytest.raises(BadText) as raised:
        own(path)
    said = str(raised.value)
    for line, reason in ((6, "no label"), (11, "3 fields"), (16, "an empty text")):
        assert f"three.csv, line {line}: {reason}" in said
    assert "--skip-bad" in said
    data = own(path, skip_bad=True)
    assert len(data.train) + len(data.dev) == 27 and any("left out: 3 rows are no examples" in remark for remark in data.remarks)


def test_one_class_is_nothing_to_learn(tmp_path: Path) -> None:
    with pytest.raises(BadText, match="same label, 'a'"):
        own(write(tmp_path / "a.csv", "text,label", *[f"text {at},a" for at in range(20)]))


def test_labels_of_dev_that_train_never_has(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", "text,label", "one,a", "two,b")
    dev = write(tmp_path / "dev.csv", "text,label", "three,a", "four,c")
    with pytest.raises(BadText, match=r"dev\.csv, line 3: label 'c' of dev never occurs in train"):
        own(train, dev=str(dev))
    assert len(own(train, dev=str(dev), skip_bad=True).dev) == 1


def test_examples_in_both_splits_are_said(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", "text,label", "one,a", "two,b")
    dev = write(tmp_path / "dev.csv", "text,label", "two,b", "three,a")
    assert any("1 of 2 dev examples are in train too" in remark and "line 3" in remark for remark in own(train, dev=str(dev)).remarks)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"text": "txet"}, "did you mean 'text'"),
        ({"label": "no"}, "no column 'no'"),
        ({"train": "missing.csv"}, "no such file"),
    ],
)
def test_wrong_names_are_answered(named: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label", "one,a", "two,b")
    with pytest.raises((BadText, NotFound), match=said):
        own(path, **named)


def test_shapes_of_own_tables(tmp_path: Path) -> None:
    def table(name: str, rows: list[dict[str, Any]]) -> Path:
        return write(tmp_path / name, *(json.dumps(row, ensure_ascii=False) for row in rows))

    number = own(
        table("n.jsonl", [{"sentence1": f"a {at}", "sentence2": "b", "score": at / 2} for at in range(20)]), "regress", pair=("sentence2",)
    )
    assert number.train[0].texts[1] == "b" and isinstance(number.train[0].answer, float)
    marks = own(table("m.jsonl", [{"text": f"a {at}", "labels": "x; y" if at % 2 else []} for at in range(20)]), "multilabel")
    assert {example.answer for example in marks.train} == {("x", "y"), ()}
    tags = own(table("t.jsonl", [{"words": ["a", "b"], "tags": ["O", "B-x"]}] * 20), "tag")
    assert tags.train[0].texts == ("a", "b") and tags.train[0].answer == ("O", "B-x")
    answers = own(table("s.jsonl", [{"question": "who?", "context": f"it was I {at}", "answer": "I"} for at in range(20)]), "span")
    assert answers.train[0].answer == (Span(7, "I"),) and answers.train[0].texts[0] == "who?"
    ways = [{"text": f"go {at}", "choice0": "on", "choice1": "home", "label": "B"} for at in range(20)]
    choices = own(table("c.jsonl", ways), "choice")
    assert choices.train[0].texts[1:] == ("on", "home") and choices.train[0].answer == 1


def test_span_without_the_answer_in_it(tmp_path: Path) -> None:
    rows = [json.dumps({"question": "who?", "context": "it was I", "answer": answer}) for answer in ("I", "you", "")]
    with pytest.raises(BadText, match="'you' is not in the passage"):
        own(write(tmp_path / "s.jsonl", *rows), "span")


def test_a_passage_is_in_one_split_only(tmp_path: Path) -> None:
    rows = [json.dumps({"question": f"who {at}?", "context": f"it was I {at % 10}", "answer": "I"}) for at in range(100)]
    data = own(write(tmp_path / "s.jsonl", *rows), "span")
    assert len({example.texts[1] for example in data.dev}) == 1
    assert not {example.texts[1] for example in data.dev} & {example.texts[1] for example in data.train}


def test_unknown_tasks_and_missing_files() -> None:
    with pytest.raises(NotFound, match="did you mean 'sst2'"):
        find_source("sst", **NOTHING)
    with pytest.raises(BadText, match="--train FILE"):
        find_source("classify", **NOTHING)
    with pytest.raises(BadText, match="--data FOLDER"):
        find_source("cola", **NOTHING)


# ---------------------------------------------------------------------- official files


def official(task: str, folder: Path, **named: Any) -> Data:
    return read_data(Source(dataset=task, folder=str(folder), shape=TASKS[task].shape, **named))


SEEN = {  # folder, train, dev, classes
    "sst2": ("glue/SST-2", 67349, 872, ("negative", "positive")),
    "cola": ("glue/CoLA", 8551, 1043, ("unacceptable", "acceptable")),
    "mrpc": ("glue/MRPC", 3667, 408, ("not_equivalent", "equivalent")),
    "wnli": ("glue/WNLI", 635, 71, ("entailment", "not_entailment")),
    "imdb": ("imdb", 4000, 2000, ("neg", "pos")),
    "dream": ("dream", 6116, 2040, ()),
    "chnsenticorp": ("ChnSentiCorp", 9600, 1200, ("negative", "positive")),
}


@pytest.mark.parametrize("task", SEEN)
def test_official_files(task: str, shared: Path) -> None:
    folder, train, dev, labels = SEEN[task]
    data = official(task, shared / "tasks" / folder)
    assert (len(data.train), len(data.dev)) == (train, dev)
    config = describe_task(data, Source(dataset=task, folder="", shape=TASKS[task].shape))
    assert config.labels == labels and config.measure == TASKS[task].measure


def test_squad_as_distributed(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "train-v1.1.json").symlink_to(shared / "tasks/squad/dev_half_a.json")
    data = official("squad", tmp_path)
    assert len(data.train) + len(data.dev) == 4961
    assert all(example.texts[1][span.start : span.end] == span.text for example in data.train for span in example.answer)  # type: ignore[union-attr]
    assert not {example.group for example in data.train} & {example.group for example in data.dev}, "no article is on both sides"
    assert len({example.group for example in data.train}) > 10


@pytest.mark.parametrize(("limit", "overlap"), [(128, 0), (256, 150), (384, 64), (512, 7)])
def test_every_answer_of_squad_is_whole_in_some_window(limit: int, overlap: int, shared: Path, tmp_path: Path) -> None:
    (tmp_path / "train-v1.1.json").symlink_to(shared / "tasks/squad/dev_half_a.json")
    data = official("squad", tmp_path)
    examples = [*data.train, *data.dev]
    task, windows = small("bert-mini", "span"), 0
    for example, features in zip(examples, task.features(examples, Reader(minilm(), limit, overlap, "window")), strict=True):
        found = [window.about[window.targets] for window in features.windows if window.targets[0]]
        assert found, example.place
        (right, *_), passage = example.answer, example.texts[1]  # type: ignore[misc]
        assert all(first[0] <= right.start and right.end <= last[1] for first, last in found), example.place  # type: ignore[union-attr]
        assert all(len(passage[first[0] : last[1]].split()) <= len(right.text.split()) + 1 for first, last in found)  # type: ignore[union-attr]
        windows += len(features.windows)
    assert windows > len(examples)


HAND_MADE = {  # file -> lines, in the official format
    "qqp": {
        "train.tsv": [
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            '0\t1\t2\tHow "big" is it?\tHow large is it?\t1',
            "1\t3\t4\tWho?\tWhy?\t0",
        ]
    },
    "qnli": {"train.tsv": ["index\tquestion\tsentence\tlabel", "0\tWho?\tIt was I.\tentailment", "1\tWho?\tNo.\tnot_entailment"]},
    "mnli": {
        "train.tsv": [
            "index\tsentence1\tsentence2\tgold_label",
            "0\tA man sleeps.\tHe is awake.\tcontradiction",
            "1\tA.\tB.\tneutral",
            "2\tA.\tA.\tentailment",
        ]
    },
    "rte": {"train.tsv": ["index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\tentailment", "1\tC.\tD.\tnot_entailment"]},
    "stsb": {"train.tsv": ["index\tgenre\tsentence1\tsentence2\tscore", "0\tx\tA.\tB.\t5.000", "1\tx\tC.\tD.\t0.250"]},
    "lcqmc": {"train.txt": ["怎么去北京？\t去北京怎么走？\t1", "你好\t再见\t0"]},
    "conll2003": {"eng.train": ["-DOCSTART- -X- -X- O", "", "EU NNP B-NP B-ORG", "rejects VBZ B-VP O", "", "Peter NNP B-NP B-PER"]},
    "swag": {
        "train.csv": [
            ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label",
            "0,v,1,x,He sits.,He,gold,eats.,flies.,melts.,sings.,0",
            "1,v,1,x,She runs.,She,gold,sleeps.,stops.,melts.,sings.,1",
        ]
    },
}


@pytest.mark.parametrize("task", HAND_MADE)
def test_formats_whose_files_are_not_here(task: str, tmp_path: Path) -> None:
    ((name, lines),) = HAND_MADE[task].items()
    write(tmp_path / name, *lines)
    dev = TASKS[task].files["dev"][0]
    write(tmp_path / dev, *lines)
    if task == "mnli":
        write(tmp_path / "dev_mismatched.tsv", *lines[:2])
    data = official(task, tmp_path)
    assert list(map(len, data.others.values())) == ([1] if task == "mnli" else [])
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


def test_squad2_has_questions_without_an_answer(tmp_path: Path) -> None:
    asked = [
        {"id": "1", "question": "Who?", "answers": [{"answer_start": 0, "text": "I"}]},
        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
    ]
    content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": "I was it.", "qas": asked}]}]}
    for name in ("train-v2.0.json", "dev-v2.0.json"):
        (tmp_path / name).write_text(json.dumps(content))
    data = official("squad2", tmp_path)
    assert [example.answer for example in data.train] == [(Span(0, "I"),), ()]
    assert describe_task(data, Source(dataset="squad2", folder="", shape="span")).no_answer


def test_columns_of_words_and_tags(shared: Path) -> None:
    wikigold = shared / "tasks/ner/wikigold/CONLL-format/data/wikigold.conll.txt"
    data = own(wikigold, "tag")
    assert len(data.train) + len(data.dev) == 1696 and data.train[0].texts[0]
    resume = own(shared / "tasks/ner/zh_resume/test.char.bmes", "tag")
    assert any("B-NAME" in example.answer for example in resume.train)  # type: ignore[operator]
