"""A task made of the tour's own text, so that what pre-training is worth can be seen: which package does a sentence
come from? Text of the user's has no labels, but an order: does one sentence follow the other?"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import islice, pairwise
from pathlib import Path

from bertworks.data.corpus import Corpus
from bertworks.data.rng import Stream, rng
from bertworks.files import atomic_write
from bertworks.tasks.classify import Classify
from bertworks.tasks.source import Source
from bertworks.text.sentences import split_sentences

# Few to learn from, as people have them who label by hand: that is where a model that has read before is ahead of one
# that has not.
CLASSES, OF_CLASS, DEV_OF_CLASS = 6, 50, 100  # packages; sentences of each to learn from, and to be judged by
PAIRS, DEV_PAIRS, FEWEST_PAIRS = 450, 400, 40
BLOCK, MOST_BLOCKS = 20, 2000  # sentences that stay together when a text is divided, and how many of these are read
Rows = list[tuple[str, ...]]


def package_task(docs: Path, folder: Path) -> Source | None:
    """Balanced, and divided by modules, so that no module is on both sides. None: too little text."""
    modules: dict[str, list[list[str]]] = {}
    with docs.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            modules.setdefault(row["package"], []).append(row["text"].split("\n"))
    parts = {package: _divide(found, DEV_OF_CLASS) for package, found in modules.items() if len(found) > 1}
    enough = {
        package: sides
        for package, sides in parts.items()
        if len(sides[0]) >= OF_CLASS and len(sides[1]) >= DEV_OF_CLASS
    }
    chosen = sorted(enough, key=lambda package: -len(enough[package][0]))[:CLASSES]
    if len(chosen) < CLASSES:
        return None
    train = [(sentence, package) for package in chosen for sentence in enough[package][0][:OF_CLASS]]
    dev = [(sentence, package) for package in chosen for sentence in enough[package][1][:DEV_OF_CLASS]]
    return _write(folder, ("text", "label"), train, dev)


def _divide(modules: Sequence[list[str]], n_dev: int) -> tuple[list[str], list[str]]:
    draw = rng(0, Stream.HELD_OUT)
    train: list[str] = []
    dev: list[str] = []
    for at in draw.permutation(len(modules)).tolist():
        (dev if len(dev) < n_dev else train).extend(modules[at])
    return [train[at] for at in draw.permutation(len(train)).tolist()], [
        dev[at] for at in draw.permutation(len(dev)).tolist()
    ]


def next_task(sources: Sequence[str], folder: Path) -> Source | None:
    """Half of the pairs are neighbours, the second sentence of the others is from elsewhere in the same part."""
    blocks = list(islice(_blocks(sources), MOST_BLOCKS))
    draw = rng(0, Stream.EXAMPLES)
    order = draw.permutation(len(blocks)).tolist()
    parts = [[blocks[at] for at in order[len(blocks) // 5 :]], [blocks[at] for at in order[: len(blocks) // 5]]]
    sides: list[Rows] = []
    for part, most in zip(parts, (PAIRS, DEV_PAIRS), strict=True):
        neighbours = [pair for block in part for pair in pairwise(block)]
        others = [sentence for block in part for sentence in block]
        chosen = draw.permutation(len(neighbours)).tolist()[:most]
        rows: Rows = []
        for at, (first, second) in enumerate(neighbours[place] for place in chosen):
            drawn = (others[other] for other in draw.integers(len(others), size=9).tolist())
            elsewhere = next((other for other in drawn if other not in (first, second)), None)
            if at % 2 or elsewhere is not None:
                rows.append((first, second, "next") if at % 2 else (first, elsewhere or "", "other"))
        sides.append(rows)
    if min(map(len, sides)) < FEWEST_PAIRS:
        return None
    return _write(folder, ("sentence1", "sentence2", "label"), *sides)


def _blocks(sources: Sequence[str]) -> Iterator[list[str]]:
    for document in Corpus(sources):
        sentences = [sentence for paragraph in document.split("\n") for sentence in split_sentences(paragraph)]
        sentences = [sentence for sentence in sentences if any(map(str.isalnum, sentence))]
        yield from (block for at in range(0, len(sentences), BLOCK) if len(block := sentences[at : at + BLOCK]) > 1)


def _write(
    folder: Path, header: tuple[str, ...], train: Sequence[tuple[str, ...]], dev: Sequence[tuple[str, ...]]
) -> Source:
    folder.mkdir(exist_ok=True)
    for name, rows in (("train", train), ("dev", dev)):
        text = StringIO(newline="")
        csv.writer(text).writerows([header, *rows])
        with atomic_write(folder / f"{name}.csv") as file:
            file.write(text.getvalue().encode(errors="replace"))
    return Source(
        train=str(folder / "train.csv"),
        dev=str(folder / "dev.csv"),
        shape=Classify.schema.shape,
        paired=len(header) == 3,
    )
