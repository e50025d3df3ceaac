"""A part of train to be judged by, where there is no dev."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from bertworks.config import Shape
from bertworks.data.chance import Purpose, chance
from bertworks.tasks.example import Example

SHARE, SEED = 0.1, 0
FEW = 4  # of a class: with fewer, all are needed to learn from
FEWEST_NUMBERS = 5  # that correlations say anything of


def split(examples: Sequence[Example], shape: Shape) -> tuple[list[Example], list[Example]]:
    """That share of each class, and one at least of each that is not tiny; if that is nothing of any, one of each. What belongs together is
    on one side, and so are all examples of a label that would be in dev only: in train."""
    units: dict[Hashable, list[int]] = {}
    for at, key in enumerate(_together(examples, shape)):
        units.setdefault(key, []).append(at)
    classes: dict[str, list[list[int]]] = {}
    for members in units.values():
        classes.setdefault(str(examples[members[0]].answer) if shape == "classify" else "", []).append(members)
    least = FEWEST_NUMBERS if shape == "regress" else 1
    dev: list[list[int]] = []
    for fewest in (FEW, 2):
        draw = chance(SEED, Purpose.HELD_OUT)
        for _, found in sorted(classes.items()):
            count = min(max(least, round(SHARE * len(found))), len(found) // 2) if len(found) >= fewest else 0
            dev += [found[unit] for unit in draw.permutation(len(found))[:count].tolist()]
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


def _together(examples: Sequence[Example], shape: Shape) -> list[Hashable]:
    """For each example what it has in common with those that stay with it: an article or dialogue, a passage, or its texts; as long as that
    leaves something to divide."""
    groups: list[Hashable] = [example.group for example in examples]
    passages: list[Hashable] = [example.texts[1] if shape == "span" else "" for example in examples]
    texts: list[Hashable] = [example.texts for example in examples]
    for keys, fewest in ((groups, 2), (passages, 2), (texts, 1 / SHARE)):
        if len(set(keys)) >= fewest:
            return keys
    return list(range(len(examples)))
