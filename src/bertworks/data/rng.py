"""Random numbers as a function of where they are used: (seed, purpose, epoch, index), and nothing else.

Philox is a counter-based generator: any place in its sequence is reached at once. Worker count, world size and a resume
in the middle change nothing about the numbers that an example gets.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Each has numbers of its own."""

    ORDER = 0
    BATCHES = 1
    EXAMPLES = 2
    HELD_OUT = 3
    WHERE = 4
    WHAT = 5
    RANKS = 6
    UNIFORM = 7


def rng(seed: int, stream: Stream, epoch: int = 0, index: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, stream, epoch, index]))
