"""Vectors on a plane, by principal components, with what the plane shows of them.

C  vectors      L  layers      D  dimensions
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertworks.inspect.clusters import Floats, pairwise_distances

N_NEIGHBOURS = 10


@dataclass(frozen=True)
class LayerMap:
    """The contexts of a word on a plane, in one layer."""

    points: Floats  # (C, 2)
    static: Floats | None  # (2,) the word's embedding, without a context
    variance: float  # the share of the variance that the two axes show
    neighbours_kept: float  # the share of the ten nearest contexts that are the nearest on the map, too


def aligned_maps(layers: NDArray[np.floating], static: NDArray[np.floating] | None) -> list[LayerMap]:
    """(L, C, D) and (L, D). Each layer is turned so that its points are as near as can be to those of the layer before,
    so that they do not jump."""
    maps: list[LayerMap] = []
    for number, layer in enumerate(layers):
        vectors = layer.astype(np.float64)
        points, axes, variance = plane(vectors)
        point = None if static is None else (static[number].astype(np.float64) - vectors.mean(0)) @ axes
        if maps:
            turn = rotation(points, maps[-1].points)
            points, point = points @ turn, None if point is None else point @ turn
        maps.append(LayerMap(points, point, variance, neighbours_kept(vectors, points)))
    return maps


def plane(vectors: Floats) -> tuple[Floats, Floats, float]:
    """The points (C, 2), the axes (D, 2), and the share of the variance that they show."""
    centred = vectors - vectors.mean(0)
    _, singular, rows = np.linalg.svd(centred, full_matrices=False)
    axes = np.zeros((vectors.shape[1], 2))
    axes[:, : len(rows[:2])] = rows[:2].T
    # The sign of a component is arbitrary: its largest entry is positive.
    axes *= np.where(np.take_along_axis(axes, np.abs(axes).argmax(0)[None], 0) < 0, -1.0, 1.0)
    total = float((singular**2).sum())
    return centred @ axes, axes, float((singular[:2] ** 2).sum()) / total if total > 0 else 0.0


def rotation(points: Floats, to: Floats) -> Floats:
    """The rotation or reflection that brings points nearest to others (Procrustes)."""
    left, _, right = np.linalg.svd(points.T @ to)
    turn: Floats = left @ right
    return turn


def neighbours_kept(vectors: Floats, points: Floats) -> float:
    n = min(N_NEIGHBOURS, len(vectors) - 1)
    if n < 1:
        return 1.0
    near, near_on_map = (
        np.argsort(pairwise_distances(rows) + np.diag(np.full(len(rows), np.inf)), axis=1, kind="stable")[:, :n]
        for rows in (vectors, points)
    )
    return float(np.mean([len(np.intersect1d(a, b)) / n for a, b in zip(near, near_on_map, strict=True)]))
