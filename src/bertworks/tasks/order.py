"""In what order examples are learned: another in every epoch, a function of seed and epoch alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertworks.data.chance import Purpose, chance
from bertworks.tasks.example import Batch, Features, Numbers, gather


class Order:
    """A `data.feed.Passes` of examples that are all in memory."""

    def __init__(self, features: Sequence[Features], batch_size: int, seed: int) -> None:
        self.features, self.batch_size, self.seed = features, batch_size, seed
        self.lengths = np.array([one.length for one in features], np.int64)

    def epoch(self, number: int) -> Shuffled:
        return Shuffled(self, number)


class Shuffled:
    def __init__(self, order: Order, number: int) -> None:
        self.order, self.number, self.lengths = order, number, order.lengths
        self.turns = chance(order.seed, Purpose.ORDER, number).permutation(len(order.features))

    def __len__(self) -> int:
        return -(-len(self.turns) // self.order.batch_size)

    def members(self, batch: int) -> Numbers:
        begin = batch * self.order.batch_size
        return self.turns[begin : begin + self.order.batch_size]

    def gather(self, members: Numbers) -> Batch:
        return gather(self.order.features, members)
