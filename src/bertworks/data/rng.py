"""Random numbers that depend only on (seed, stream, epoch, index).

Philox is a counter-based generator: any position in its sequence is reached at once. The number of workers, the world
size and a resume in the middle of an epoch do not change the random numbers of an example.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Independent random streams, one for each purpose. The values are part of every seed's result: never renumber."""

    ORDER = 0  # of the examples in an epoch
    BATCHES = 1  # their order in an epoch
    EXAMPLES = 2  # the plan: lengths and pairs
    HELD_OUT = 3  # which sentences
    TARGETS = 4  # which positions are targets
    REPLACEMENTS = 5  # mask token, random token or unchanged
    RANKS = 6  # order of prediction (XLNet)
    UNIFORM = 7  # to sample ELECTRA's replacements with
    WINDOWS = 8  # which windows of a long text an epoch of a fine-tuning reads


def rng(seed: int, stream: Stream, epoch: int = 0, index: int = 0) -> np.random.Generator:
    """`index`: of the example or the shard."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, stream, epoch, index]))
