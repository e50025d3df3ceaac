"""A classification task made from the tour's own text, to show what pre-training is worth.

The documentation is labelled by its packages: which one does a sentence come from? A user's text has no labels, but an
order: does the second sentence follow the first?
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import islice, pairwise
from pathlib import Path

from bertworks.data.corpus import Corpus, ReadOptions
from bertworks.data.rng import Stream, rng
from bertworks.files import atomic_write
from bertworks.tasks.classify import Classify
from bertworks.tasks.source import Source
from bertworks.text.sentences import split_sentences

# Few training examples, as many as one labels by hand: that is where pre-training helps most.
N_CLASSES = 6  # packages
TRAIN_PER_CLASS = 50  # sentences
DEV_PER_CLASS = 100
TRAIN_PAIRS = 450
DEV_PAIRS = 400
MIN_PAIRS = 40
BLOCK_SENTENCES = 20  # consecutive sentences that go to the same split
MAX_BLOCKS = 2000
Rows = list[tuple[str, ...]]


def package_task(docs: Path, folder: Path) -> Source | None:
    """Balanced classes; a module goes to train or dev as a whole. None: too little text."""
    modules: dict[str, list[list[str]]] = {}
    with docs.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            modules.setdefault(row["package"], []).append(row["text"].split("\n"))
    splits = {package: _split(members, DEV_PER_CLASS) for package, members in modules.items() if len(members) > 1}
    large_enough = {
        package: (train, dev)
        for package, (train, dev) in splits.items()
        if len(train) >= TRAIN_PER_CLASS and len(dev) >= DEV_PER_CLASS
    }
    packages = sorted(large_enough, key=lambda package: -len(large_enough[package][0]))[:N_CLASSES]
    if len(packages) < N_CLASSES:
        return None
    train = [(text, package) for package in packages for text in large_enough[package][0][:TRAIN_PER_CLASS]]
    dev = [(text, package) for package in packages for text in large_enough[package][1][:DEV_PER_CLASS]]
    return _write(folder, ("text", "label"), train, dev)


def _split(modules: Sequence[list[str]], n_dev: int) -> tuple[list[str], list[str]]:
    """Train and dev sentences, shuffled; whole modules go to dev until it has `n_dev` sentences."""
    generator = rng(0, Stream.HELD_OUT)
    train: list[str] = []
    dev: list[str] = []
    for index in generator.permutation(len(modules)).tolist():
        (dev if len(dev) < n_dev else train).extend(modules[index])
    train = [train[index] for index in generator.permutation(len(train)).tolist()]
    dev = [dev[index] for index in generator.permutation(len(dev)).tolist()]
    return train, dev


def next_sentence_task(sources: Sequence[str], folder: Path) -> Source | None:
    """Half of the pairs are neighbours; in the others the second sentence is a random one of the same split. None: too
    little text."""
    blocks = list(islice(_blocks(sources), MAX_BLOCKS))
    generator = rng(0, Stream.EXAMPLES)
    order = generator.permutation(len(blocks)).tolist()
    n_dev = len(blocks) // 5
    train_blocks = [blocks[index] for index in order[n_dev:]]
    dev_blocks = [blocks[index] for index in order[:n_dev]]
    splits: list[Rows] = []
    for split_blocks, max_pairs in ((train_blocks, TRAIN_PAIRS), (dev_blocks, DEV_PAIRS)):
        neighbours = [pair for block in split_blocks for pair in pairwise(block)]
        sentences = [sentence for block in split_blocks for sentence in block]
        chosen = generator.permutation(len(neighbours)).tolist()[:max_pairs]
        rows: Rows = []
        for row_index, (first, second) in enumerate(neighbours[index] for index in chosen):
            candidates = (sentences[index] for index in generator.integers(len(sentences), size=9).tolist())
            unrelated = next((sentence for sentence in candidates if sentence not in (first, second)), None)
            if row_index % 2:
                rows.append((first, second, "next"))
            elif unrelated is not None:
                rows.append((first, unrelated, "other"))
        splits.append(rows)
    if min(map(len, splits)) < MIN_PAIRS:
        return None
    return _write(folder, ("sentence1", "sentence2", "label"), *splits)


def _blocks(sources: Sequence[str]) -> Iterator[list[str]]:
    for document in Corpus(sources, ReadOptions(skip_bad=True)):  # as the vocabulary and the shards
        sentences = [sentence for paragraph in document.split("\n") for sentence in split_sentences(paragraph)]
        sentences = [sentence for sentence in sentences if any(map(str.isalnum, sentence))]
        starts = range(0, len(sentences), BLOCK_SENTENCES)
        yield from (block for start in starts if len(block := sentences[start : start + BLOCK_SENTENCES]) > 1)


def _write(
    folder: Path, header: tuple[str, ...], train: Sequence[tuple[str, ...]], dev: Sequence[tuple[str, ...]]
) -> Source:
    """Two CSV files."""
    folder.mkdir(exist_ok=True)
    paths = {"train": folder / "train.csv", "dev": folder / "dev.csv"}
    for split, rows in (("train", train), ("dev", dev)):
        text = StringIO(newline="")
        csv.writer(text).writerows([header, *rows])
        with atomic_write(paths[split]) as file:
            file.write(text.getvalue().encode(errors="replace"))
    return Source(
        train=str(paths["train"]), dev=str(paths["dev"]), shape=Classify.schema.shape, paired=len(header) == 3
    )
