"""Numbers of attention as bytes, for a page."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Bytes = NDArray[np.uint8]


def root_code(probabilities: Array) -> Bytes:
    """A byte for each, by the root: a row of 512 equal ones is lost if they are coded linearly."""
    codes: Bytes = np.round(255 * np.sqrt(np.clip(probabilities, 0, 1))).astype(np.uint8)
    return codes


def decode_root(codes: Bytes) -> Array:
    decoded: Array = ((codes / 255) ** 2).astype(np.float32)
    return decoded


def thumbnails(probabilities: Array, size: int) -> Array:
    """(L, H, T, T) to (L, H, size, size): the largest of each square, since a mean loses diagonals."""
    n = probabilities.shape[-1]
    starts = np.linspace(0, n, size, endpoint=False).astype(int)
    rows = np.maximum.reduceat(probabilities, starts, axis=2)
    pooled: Array = np.maximum.reduceat(rows, starts, axis=3)
    return pooled


def signed_scale(part: Array) -> Array:
    """(H, ...) to (H,): what one step of a signed byte stands for."""
    scale: Array = np.abs(part).reshape(len(part), -1).max(1) / 127
    return scale


def signed_code(part: Array) -> NDArray[np.int8]:
    """(H, ...): a signed byte for each, to the scale of its head."""
    scale = np.maximum(signed_scale(part), 1e-30).reshape(-1, *[1] * (part.ndim - 1))
    codes: NDArray[np.int8] = np.round(part / scale).astype(np.int8)
    return codes
