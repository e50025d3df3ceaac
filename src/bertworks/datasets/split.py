"""A part of train kept as dev, where there is no dev file."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from bertworks.data.rng import Stream, rng
from bertworks.datasets.example import Example
from bertworks.datasets.schema import Schema

DEV_SHARE, SEED = 0.1, 0
FEW = 4  # of a class: with fewer, all are needed to learn from


def split(examples: Sequence[Example], schema: Schema) -> tuple[list[Example], list[Example]]:
    """That share of each class, and one at least of each that is not tiny; if that is nothing of any, one of each. What
    belongs together is on one side, and so are all examples of a label that would be in dev only: in train."""
    units: dict[Hashable, list[int]] = {}
    for at, key in enumerate(_groups(examples, schema)):
        units.setdefault(key, []).append(at)
    strata: dict[str, list[list[int]]] = {}
    for members in units.values():
        strata.setdefault(schema.stratum(examples[members[0]]), []).append(members)
    dev: list[list[int]] = []
    for fewest in (FEW, 2):
        draw = rng(SEED, Stream.HELD_OUT)
        for _, stratum in sorted(strata.items()):
            n_dev = max(schema.fewest_dev, round(DEV_SHARE * len(stratum)))
            count = min(n_dev, len(stratum) // 2) if len(stratum) >= fewest else 0
            dev += [stratum[unit] for unit in draw.permutation(len(stratum))[:count].tolist()]
        if dev:
            break
    kept = _with_known_labels(dev, examples)
    return [example for at, example in enumerate(examples) if at not in kept], [examples[at] for at in sorted(kept)]


def _with_known_labels(dev: Sequence[list[int]], examples: Sequence[Example]) -> set[int]:
    """What is left in dev, if all labels in it are to be in train too."""
    kept = {at for members in dev for at in members}
    known = {label for at, example in enumerate(examples) if at not in kept for label in example.labels}
    for members in dev:
        labels = {label for at in members for label in examples[at].labels}
        if not labels <= known:
            known |= labels
            kept -= set(members)
    return kept


def _groups(examples: Sequence[Example], schema: Schema) -> list[Hashable]:
    """For each example what it has in common with those that stay with it: an article or dialogue, a passage, or its
    texts; as long as that leaves something to divide."""
    texts: list[Hashable] = [example.texts for example in examples]
    for keys, fewest in (*schema.groups(examples), (texts, 1 / DEV_SHARE)):
        if len(set(keys)) >= fewest:
            return keys
    return list(range(len(examples)))
