"""The data sets of the papers, as rows of one table: their shape, their metric, their files as distributed, and how a
file is read.

`tested_on_official_files`: the reader was tried on the real files; the others on files made by hand in the same format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertworks.data.tables import table_format
from bertworks.datasets.columns import Columns
from bertworks.datasets.readers import FormatReader, read_conll, read_dream, read_squad, with_full_endings
from bertworks.datasets.schema import ExampleReader
from bertworks.datasets.tables import GlueReader, ImdbReader, MappedTableReader, TableReader, is_table
from bertworks.tasks.choice import Choice
from bertworks.tasks.classify import Classify
from bertworks.tasks.regress import Regress
from bertworks.tasks.shapes import TaskClass
from bertworks.tasks.span import SpanTask
from bertworks.tasks.tag import Tag

POLARITY = {"0": "negative", "1": "positive"}
ACCEPTABLE = {"0": "unacceptable", "1": "acceptable"}
EQUIVALENT = {"0": "not_equivalent", "1": "equivalent"}
DUPLICATE = {"0": "not_duplicate", "1": "duplicate"}
ENTAILED = {"0": "not_entailment", "1": "entailment"}
SIMILAR = {"0": "different", "1": "same"}


@dataclass(frozen=True)
class DataSet:
    task: TaskClass
    metric: str
    files: Mapping[str, Sequence[str]]  # of each split; the first that is there is taken
    read: ExampleReader
    description: str
    labels: Sequence[str] = ()  # in their order; the second of two is the one that F1 is about
    config: Mapping[str, Any] = field(
        default_factory=dict
    )  # fields of `TaskConfig` that do not follow from the examples
    tested_on_official_files: bool = False
    known_by_name: bool = True  # a file without answers; or only by what is in it

    @property
    def columns(self) -> Columns | None:
        """Of a table."""
        return self.read.columns if isinstance(self.read, TableReader) else None

    def has(self, path: Path, *, labelled: bool) -> bool:
        """Whether a file is one of the data set, with labels if `labelled`: a table by its columns, others by their
        name."""
        is_named = any(path.name in names for names in self.files.values())
        if not isinstance(self.read, TableReader) or path.is_dir():
            return is_named and (labelled or self.known_by_name)
        is_likely = is_table(path)
        if isinstance(
            self.read, GlueReader
        ):  # tables of other names may have quotes, and a header says what is in them
            is_likely = is_named or not is_table(path) or (table_format(path) == "tsv" and self.read.header is not None)
        return is_likely and self.read.matches(path, labelled=labelled)

    def splits(self, folder: Path) -> dict[str, Path]:
        """Those with answers that are there."""
        found = {
            split: [folder / name for name in names if (folder / name).exists()] for split, names in self.files.items()
        }
        return {split: paths[0] for split, paths in found.items() if paths and split != "test"}


_GLUE = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
_CONLL = {
    "train": ("eng.train", "train.txt", "train.conll"),
    "dev": ("eng.testa", "valid.txt", "dev.txt", "dev.conll"),
    "test": ("eng.testb", "test.txt", "test.conll"),
}
_PAIR = ("sentence1", "sentence2")
CATALOGUE: dict[str, DataSet] = {
    "sst2": DataSet(
        Classify,
        "accuracy",
        _GLUE,
        GlueReader(Classify.schema, "sentence", label="label", label_map=POLARITY),
        "sentiment of a sentence (GLUE)",
        tested_on_official_files=True,
    ),
    "cola": DataSet(
        Classify,
        "matthews",
        _GLUE,
        GlueReader(
            Classify.schema,
            "sentence",
            label="label",
            label_map=ACCEPTABLE,
            header=("source", "label", "star", "sentence"),
        ),
        "is it English? (GLUE)",
        tuple(ACCEPTABLE.values()),
        tested_on_official_files=True,
    ),
    "mrpc": DataSet(
        Classify,
        "f1",
        _GLUE,
        GlueReader(Classify.schema, "#1 String", "#2 String", label="Quality", label_map=EQUIVALENT),
        "do two sentences say the same? (GLUE)",
        tuple(EQUIVALENT.values()),
        tested_on_official_files=True,
    ),
    "qqp": DataSet(
        Classify,
        "f1",
        _GLUE,
        GlueReader(
            Classify.schema, "question1", "question2", label="is_duplicate", label_map=DUPLICATE, malformed=True
        ),
        "are two questions one? (GLUE)",
        tuple(DUPLICATE.values()),
    ),
    "qnli": DataSet(
        Classify,
        "accuracy",
        _GLUE,
        GlueReader(Classify.schema, "question", "sentence", label="label"),
        "does a sentence answer a question? (GLUE)",
        tested_on_official_files=True,
    ),
    "mnli": DataSet(
        Classify,
        "accuracy",
        {
            "train": ("train.tsv",),
            "dev": ("dev_matched.tsv",),
            "mismatched": ("dev_mismatched.tsv",),
            "test": ("test_matched.tsv", "test_mismatched.tsv"),
        },
        GlueReader(Classify.schema, *_PAIR, label="gold_label"),
        "entailment, contradiction, neither (GLUE)",
    ),
    "rte": DataSet(
        Classify,
        "accuracy",
        _GLUE,
        GlueReader(Classify.schema, *_PAIR, label="label"),
        "does a text entail another? (GLUE)",
    ),
    "wnli": DataSet(
        Classify,
        "accuracy",
        _GLUE,
        GlueReader(Classify.schema, *_PAIR, label="label", label_map=ENTAILED),
        "what a pronoun stands for (GLUE)",
        tested_on_official_files=True,
    ),
    "stsb": DataSet(
        Regress,
        "pearson_spearman",
        _GLUE,
        GlueReader(Regress.schema, *_PAIR, label="score"),
        "how alike two sentences are, 0 to 5 (GLUE)",
    ),
    "imdb": DataSet(
        Classify,
        "accuracy",
        {"train": ("train", "train.jsonl"), "dev": ("test", "test.jsonl")},
        ImdbReader(Classify.schema),
        "sentiment of film reviews, many longer than a model",
        tested_on_official_files=True,
    ),
    "squad": DataSet(
        SpanTask,
        "f1",
        {"train": ("train-v1.1.json",), "dev": ("dev-v1.1.json",)},
        FormatReader(read_squad, SpanTask.schema),
        "answers in a passage (SQuAD 1.1)",
        config={"no_answer": False},
        tested_on_official_files=True,
    ),
    "squad2": DataSet(
        SpanTask,
        "f1",
        {"train": ("train-v2.0.json",), "dev": ("dev-v2.0.json",)},
        FormatReader(read_squad, SpanTask.schema),
        "answers in a passage, or none (SQuAD 2.0)",
        config={"no_answer": True},
    ),
    "conll2003": DataSet(
        Tag,
        "entity_f1",
        _CONLL,
        FormatReader(read_conll, Tag.schema),
        "names of people, places, organisations and others",
        known_by_name=False,
    ),
    "swag": DataSet(
        Choice,
        "accuracy",
        {"train": ("train.csv",), "dev": ("val.csv",), "test": ("test.csv",)},
        MappedTableReader(
            Choice.schema, "sent1", *(f"ending{at}" for at in range(4)), label="label", transform=with_full_endings
        ),
        "what happens next?",
    ),
    "dream": DataSet(
        Choice,
        "accuracy",
        {"train": ("train.json",), "dev": ("dev.json",), "test": ("test.json",)},
        FormatReader(read_dream, Choice.schema),
        "questions about dialogues",
        tested_on_official_files=True,
    ),
    "chnsenticorp": DataSet(
        Classify,
        "accuracy",
        _GLUE,
        GlueReader(
            Classify.schema,
            "text_a",
            label="label",
            label_map={**POLARITY, **{name: name for name in POLARITY.values()}},
            header=("text_a", "label"),
        ),
        "sentiment of Chinese reviews",
        tested_on_official_files=True,
    ),
    "lcqmc": DataSet(
        Classify,
        "accuracy",
        {"train": ("train.txt", "train.tsv"), "dev": ("dev.txt", "dev.tsv"), "test": ("test.txt", "test.tsv")},
        GlueReader(
            Classify.schema, "text_a", "text_b", label="label", label_map=SIMILAR, header=("text_a", "text_b", "label")
        ),
        "do two Chinese questions ask the same?",
        tested_on_official_files=True,
    ),
}
