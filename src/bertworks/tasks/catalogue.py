"""The catalogue of benchmark data sets: task, metric, file names as distributed, and the reader.

`tested_on_official_files`: the reader was tested on the official files; the others on hand-made files of the same
format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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

SENTIMENT_LABELS = {"0": "negative", "1": "positive"}
ACCEPTABILITY_LABELS = {"0": "unacceptable", "1": "acceptable"}
PARAPHRASE_LABELS = {"0": "not_equivalent", "1": "equivalent"}
DUPLICATE_LABELS = {"0": "not_duplicate", "1": "duplicate"}
ENTAILMENT_LABELS = {"0": "not_entailment", "1": "entailment"}
SIMILARITY_LABELS = {"0": "different", "1": "same"}


@dataclass(frozen=True)
class DataSet:
    """A row of the catalogue."""

    task: TaskClass
    metric: str
    files: Mapping[str, Sequence[str]]  # of each split; the first that exists is used
    read: ExampleReader
    description: str
    labels: Sequence[str] = ()  # in order; of two, the second is the positive class of F1
    config: Mapping[str, object] = field(default_factory=dict)  # further fields of `TaskConfig`
    tested_on_official_files: bool = False
    known_by_name: bool = True  # unlabelled files are recognised by name; False: by content only

    @property
    def columns(self) -> Columns | None:
        """The columns, if the files are tables."""
        return self.read.columns if isinstance(self.read, TableReader) else None

    def has(self, path: Path, *, labelled: bool) -> bool:
        """Whether a file belongs to the data set, with labels if `labelled`: tables are recognised by their columns,
        other files by their name."""
        has_official_name = any(path.name in names for names in self.files.values())
        if not isinstance(self.read, TableReader) or path.is_dir():
            return has_official_name and (labelled or self.known_by_name)
        is_candidate = is_table(path)
        if isinstance(self.read, GlueReader):
            # A table of another name is the user's own, unless it is a tab-separated one of a data set without headers:
            # it may have quotes, and its header names its columns.
            is_headerless = table_format(path) == "tsv" and self.read.header is not None
            is_candidate = has_official_name or not is_table(path) or is_headerless
        return is_candidate and self.read.matches(path, labelled=labelled)

    def splits(self, folder: Path) -> dict[str, Path]:
        """The labelled splits in a folder, with their files."""
        existing = {
            split: [folder / name for name in names if (folder / name).exists()] for split, names in self.files.items()
        }
        return {split: paths[0] for split, paths in existing.items() if paths and split != "test"}


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
        GlueReader(Classify.schema, "sentence", label="label", label_map=SENTIMENT_LABELS),
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
            label_map=ACCEPTABILITY_LABELS,
            header=("source", "label", "star", "sentence"),
        ),
        "linguistic acceptability of a sentence (GLUE)",
        tuple(ACCEPTABILITY_LABELS.values()),
        tested_on_official_files=True,
    ),
    "mrpc": DataSet(
        Classify,
        "f1",
        _GLUE,
        GlueReader(Classify.schema, "#1 String", "#2 String", label="Quality", label_map=PARAPHRASE_LABELS),
        "are two sentences paraphrases? (GLUE)",
        tuple(PARAPHRASE_LABELS.values()),
        tested_on_official_files=True,
    ),
    "qqp": DataSet(
        Classify,
        "f1",
        _GLUE,
        GlueReader(
            Classify.schema, "question1", "question2", label="is_duplicate", label_map=DUPLICATE_LABELS, malformed=True
        ),
        "are two questions duplicates? (GLUE)",
        tuple(DUPLICATE_LABELS.values()),
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
        "natural language inference: entailment, contradiction, neutral (GLUE)",
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
        GlueReader(Classify.schema, *_PAIR, label="label", label_map=ENTAILMENT_LABELS),
        "Winograd sentences: what a pronoun refers to (GLUE)",
        tested_on_official_files=True,
    ),
    "stsb": DataSet(
        Regress,
        "pearson_spearman",
        _GLUE,
        GlueReader(Regress.schema, *_PAIR, label="score"),
        "similarity of two sentences, 0 to 5 (GLUE)",
    ),
    "imdb": DataSet(
        Classify,
        "accuracy",
        {"train": ("train", "train.jsonl"), "dev": ("test", "test.jsonl")},
        ImdbReader(Classify.schema),
        "sentiment of film reviews, many of them long",
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
        "named entities: persons, locations, organisations, others",
        known_by_name=False,
    ),
    "swag": DataSet(
        Choice,
        "accuracy",
        {"train": ("train.csv",), "dev": ("val.csv",), "test": ("test.csv",)},
        MappedTableReader(
            Choice.schema, "sent1", *(f"ending{i}" for i in range(4)), label="label", transform=with_full_endings
        ),
        "which sentence comes next? (SWAG)",
    ),
    "dream": DataSet(
        Choice,
        "accuracy",
        {"train": ("train.json",), "dev": ("dev.json",), "test": ("test.json",)},
        FormatReader(read_dream, Choice.schema),
        "multiple-choice questions about dialogues",
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
            label_map={**SENTIMENT_LABELS, **{name: name for name in SENTIMENT_LABELS.values()}},
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
            Classify.schema,
            "text_a",
            "text_b",
            label="label",
            label_map=SIMILARITY_LABELS,
            header=("text_a", "text_b", "label"),
        ),
        "do two Chinese questions mean the same?",
        tested_on_official_files=True,
    ),
}
