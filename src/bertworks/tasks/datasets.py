"""The data sets of the papers, as rows of one table: their shape, their measure, their files as distributed, and how a file is read.

`seen` rows were read from the real files; the others from files made by hand in the same format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertworks.config import Shape
from bertworks.tasks.formats import (
    Changed,
    OfTable,
    Read,
    Reviews,
    Tabbed,
    conll,
    dream,
    second_sentences,
    squad,
    table_kind,
)
from bertworks.tasks.rows import Columns

POLARITY = {"0": "negative", "1": "positive"}
ACCEPTABLE = {"0": "unacceptable", "1": "acceptable"}
EQUIVALENT = {"0": "not_equivalent", "1": "equivalent"}
DUPLICATE = {"0": "not_duplicate", "1": "duplicate"}
ENTAILED = {"0": "not_entailment", "1": "entailment"}
SIMILAR = {"0": "different", "1": "same"}


@dataclass(frozen=True)
class DataSet:
    shape: Shape
    measure: str
    files: Mapping[str, Sequence[str]]  # of each split; the first that is there is taken
    read: Read
    said: str
    labels: Sequence[str] = ()  # in their order; the second of two is the one that F1 is about
    seen: bool = False
    no_answer: bool = False  # span: the passage need not say

    @property
    def columns(self) -> Columns | None:
        """Of a table."""
        return self.read.columns if isinstance(self.read, OfTable) else None

    def has(self, path: Path, *, answered: bool) -> bool:
        """Whether a file is one of the data set, with labels if `answered`: a table by its columns, others by their name."""
        named, kind = any(path.name in names for names in self.files.values()), table_kind(path)
        if not isinstance(self.read, OfTable) or path.is_dir():
            return named
        likely = kind is not None
        if isinstance(self.read, Tabbed):  # tables of other names may have quotes, and a header says what is in them
            likely = named or kind is None or (kind == "tsv" and self.read.header is not None)
        return likely and self.read.fits(path, answered=answered)

    def splits(self, folder: Path) -> dict[str, Path]:
        """Those with answers that are there."""
        found = {split: [folder / name for name in names if (folder / name).exists()] for split, names in self.files.items()}
        return {split: paths[0] for split, paths in found.items() if paths and split != "test"}


_GLUE = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
_CONLL = {
    "train": ("eng.train", "train.txt", "train.conll"),
    "dev": ("eng.testa", "valid.txt", "dev.txt", "dev.conll"),
    "test": ("eng.testb", "test.txt", "test.conll"),
}
_PAIR = ("sentence1", "sentence2")
TASKS: dict[str, DataSet] = {
    "sst2": DataSet(
        "classify", "accuracy", _GLUE, Tabbed("sentence", label="label", names=POLARITY), "sentiment of a sentence (GLUE)", seen=True
    ),
    "cola": DataSet(
        "classify",
        "matthews",
        _GLUE,
        Tabbed("sentence", label="label", names=ACCEPTABLE, header=("source", "label", "star", "sentence")),
        "is it English? (GLUE)",
        tuple(ACCEPTABLE.values()),
        seen=True,
    ),
    "mrpc": DataSet(
        "classify",
        "f1",
        _GLUE,
        Tabbed("#1 String", "#2 String", label="Quality", names=EQUIVALENT),
        "do two sentences say the same? (GLUE)",
        tuple(EQUIVALENT.values()),
        seen=True,
    ),
    "qqp": DataSet(
        "classify",
        "f1",
        _GLUE,
        Tabbed("question1", "question2", label="is_duplicate", names=DUPLICATE, torn=True),
        "are two questions one? (GLUE)",
        tuple(DUPLICATE.values()),
    ),
    "qnli": DataSet(
        "classify", "accuracy", _GLUE, Tabbed("question", "sentence", label="label"), "does a sentence answer a question? (GLUE)", seen=True
    ),
    "mnli": DataSet(
        "classify",
        "accuracy",
        {
            "train": ("train.tsv",),
            "dev": ("dev_matched.tsv",),
            "mismatched": ("dev_mismatched.tsv",),
            "test": ("test_matched.tsv", "test_mismatched.tsv"),
        },
        Tabbed(*_PAIR, label="gold_label"),
        "entailment, contradiction, neither (GLUE)",
    ),
    "rte": DataSet("classify", "accuracy", _GLUE, Tabbed(*_PAIR, label="label"), "does a text entail another? (GLUE)"),
    "wnli": DataSet(
        "classify", "accuracy", _GLUE, Tabbed(*_PAIR, label="label", names=ENTAILED), "what a pronoun stands for (GLUE)", seen=True
    ),
    "stsb": DataSet(
        "regress", "pearson_spearman", _GLUE, Tabbed(*_PAIR, label="score", shape="regress"), "how alike two sentences are, 0 to 5 (GLUE)"
    ),
    "imdb": DataSet(
        "classify",
        "accuracy",
        {"train": ("train", "train.jsonl"), "dev": ("test", "test.jsonl")},
        Reviews(),
        "sentiment of film reviews, many longer than a model",
        seen=True,
    ),
    "squad": DataSet(
        "span", "f1", {"train": ("train-v1.1.json",), "dev": ("dev-v1.1.json",)}, squad, "answers in a passage (SQuAD 1.1)", seen=True
    ),
    "squad2": DataSet(
        "span",
        "f1",
        {"train": ("train-v2.0.json",), "dev": ("dev-v2.0.json",)},
        squad,
        "answers in a passage, or none (SQuAD 2.0)",
        no_answer=True,
    ),
    "conll2003": DataSet("tag", "entity_f1", _CONLL, conll, "names of people, places, organisations and others"),
    "swag": DataSet(
        "choice",
        "accuracy",
        {"train": ("train.csv",), "dev": ("val.csv",), "test": ("test.csv",)},
        Changed("sent1", *(f"ending{at}" for at in range(4)), label="label", change=second_sentences, shape="choice"),
        "what happens next?",
    ),
    "dream": DataSet(
        "choice",
        "accuracy",
        {"train": ("train.json",), "dev": ("dev.json",), "test": ("test.json",)},
        dream,
        "questions about dialogues",
        seen=True,
    ),
    "chnsenticorp": DataSet(
        "classify",
        "accuracy",
        _GLUE,
        Tabbed("text_a", label="label", names={**POLARITY, **{name: name for name in POLARITY.values()}}, header=("text_a", "label")),
        "sentiment of Chinese reviews",
        seen=True,
    ),
    "lcqmc": DataSet(
        "classify",
        "accuracy",
        {"train": ("train.txt", "train.tsv"), "dev": ("dev.txt", "dev.tsv"), "test": ("test.txt", "test.tsv")},
        Tabbed("text_a", "text_b", label="label", names=SIMILAR, header=("text_a", "text_b", "label")),
        "do two Chinese questions ask the same?",
        seen=True,
    ),
}
