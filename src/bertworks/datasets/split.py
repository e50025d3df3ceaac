"""Splits dev off train, where there is no dev file."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from bertworks.data.rng import Stream, rng
from bertworks.datasets.example import Example
from bertworks.datasets.schema import Schema

DEV_SHARE = 0.1
SEED = 0
MIN_STRATUM = 4  # groups of a class: smaller classes stay in train


def split(examples: Sequence[Example], schema: Schema) -> tuple[list[Example], list[Example]]:
    """A stratified split into train and dev: `DEV_SHARE` of each class, at least `schema.min_dev`, none of classes
    below `MIN_STRATUM`; if that leaves dev empty, small classes are split too. Examples of a group stay together, and
    no label is in dev only; if that leaves dev empty, smaller groups are tried."""
    dev_sets = (_dev_indices(examples, keys, schema) for keys in _groupings(examples, schema))
    in_dev = next(filter(None, dev_sets), set())
    train = [example for i, example in enumerate(examples) if i not in in_dev]
    dev = [examples[i] for i in sorted(in_dev)]
    return train, dev


def _dev_indices(examples: Sequence[Example], keys: Sequence[Hashable], schema: Schema) -> set[int]:
    groups: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    strata: dict[str, list[list[int]]] = {}
    for members in groups.values():
        strata.setdefault(schema.stratum(examples[members[0]]), []).append(members)
    dev_groups: list[list[int]] = []
    for min_stratum in (MIN_STRATUM, 2):
        generator = rng(SEED, Stream.HELD_OUT)
        for _, stratum in sorted(strata.items()):
            n_wanted = max(schema.min_dev, round(DEV_SHARE * len(stratum)))
            n_dev = min(n_wanted, len(stratum) // 2) if len(stratum) >= min_stratum else 0
            dev_groups += [stratum[i] for i in generator.permutation(len(stratum))[:n_dev].tolist()]
        if dev_groups:
            break
    return _with_labels_of_train(dev_groups, examples)


def _with_labels_of_train(dev_groups: Sequence[list[int]], examples: Sequence[Example]) -> set[int]:
    """The examples of dev, without the groups whose labels would not all occur in train."""
    in_dev = {i for members in dev_groups for i in members}
    train_labels = {label for i, example in enumerate(examples) if i not in in_dev for label in example.labels}
    for members in dev_groups:
        labels = {label for i in members for label in examples[i].labels}
        if not labels <= train_labels:
            train_labels |= labels
            in_dev -= set(members)
    return in_dev


def _groupings(examples: Sequence[Example], schema: Schema) -> list[list[Hashable]]:
    """For each example the key of its group: a document or dialogue, a passage, or its texts; those kinds that give
    enough groups to split."""
    texts: list[Hashable] = [example.texts for example in examples]
    kinds = (*schema.groups(examples), (texts, 1 / DEV_SHARE))
    return [keys for keys, min_groups in kinds if len(set(keys)) >= min_groups] or [list(range(len(examples)))]
