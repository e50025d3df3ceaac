"""A part of train to be judged by, where there is no dev."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from bertworks.config import Shape
from bertworks.data.chance import Purpose, chance
from bertworks.tasks.example import Example

FEW = 4  # of a class: with fewer, all are needed to learn from


def split(examples: Sequence[Example], shape: Shape, share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """That share of each class, and one at least of each that is not tiny; if that is nothing of any, one of each. What belongs together is
    on one side."""
    units: dict[Hashable, list[int]] = {}
    for at, key in enumerate(_together(examples, shape, share)):
        units.setdefault(key, []).append(at)
    classes: dict[str, list[list[int]]] = {}
    for members in units.values():
        classes.setdefault(str(examples[members[0]].answer) if shape == "classify" else "", []).append(members)
    dev: set[int] = set()
    for fewest in (FEW, 2):
        draw = chance(seed, Purpose.HELD_OUT)
        for _, found in sorted(classes.items()):
            count = max(1, round(share * len(found))) if len(found) >= fewest else 0
            dev.update(at for unit in draw.permutation(len(found))[:count].tolist() for at in found[unit])
        if dev:
            break
    return [example for at, example in enumerate(examples) if at not in dev], [examples[at] for at in sorted(dev)]


def _together(examples: Sequence[Example], shape: Shape, share: float) -> list[Hashable]:
    """For each example what it has in common with those that stay with it: an article or dialogue, a passage, or its texts; as long as that
    leaves something to divide."""
    groups: list[Hashable] = [example.group for example in examples]
    passages: list[Hashable] = [example.texts[1] if shape == "span" else "" for example in examples]
    texts: list[Hashable] = [example.texts for example in examples]
    for keys, fewest in ((groups, 2), (passages, 2), (texts, 1 / share)):
        if len(set(keys)) >= fewest:
            return keys
    return list(range(len(examples)))
