"""How optimistic the best of several evaluations on the same dev set is, and what cross-fitting makes of it.

Simulated runs: at each evaluation the model has a true accuracy, and predictions of neighbouring evaluations agree as
those of a fine-tuning do. Printed are the mean error of three estimates of the kept model's true accuracy, in points,
and how often a 95 % interval around it contains that accuracy.

A second table is of evaluations that read a small part of dev: how many points the kept model lacks to the best of the
ten, if the best evaluation is kept, the latest within one standard error of it, and the last.

    python benchmarks/selection.py [--runs 1000]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertworks.measure.intervals import intervals
from bertworks.measure.metrics import ACCURACY
from bertworks.measure.selection import best, cross_fitted, latest_near_best

CURVES = {
    "no better than chance": [0.527] * 10,
    "flat": [0.8] * 10,
    "rising": np.linspace(0.7, 0.8, 10).tolist(),
    "overfitting": [0.70, 0.76, 0.80, 0.80, 0.79, 0.79, 0.78, 0.78, 0.77, 0.77],
}
SIZES = (100, 277, 872)
SAMPLED_CURVES = CURVES | {
    "rising to a plateau": [0.5, 0.75, 0.82, 0.85, 0.866, 0.875, 0.88, 0.884, 0.886, 0.888],
    "a slight fall": [0.5, 0.75, 0.84, 0.87, 0.88, 0.88, 0.878, 0.876, 0.874, 0.872],
    "a collapse": [0.5, 0.75, 0.84, 0.87, 0.88, 0.88, 0.87, 0.80, 0.70, 0.60],
}
SAMPLES = (160, 400)
AGREEMENT = 0.8  # correlation of the latent scores of neighbouring evaluations


def simulate(accuracies: Sequence[float], n: int, generator: np.random.Generator) -> list[NDArray[np.float64]]:
    """Whether each example is right at each evaluation, (n, 1) each: a latent score, as a random walk, below a
    threshold."""
    from scipy.stats import norm

    latent = generator.standard_normal(n)
    tables = []
    for accuracy in accuracies:
        latent = AGREEMENT * latent + np.sqrt(1 - AGREEMENT**2) * generator.standard_normal(n)
        tables.append((latent < norm.ppf(accuracy)).astype(float)[:, None])
    return tables


def share(scores: NDArray[np.float64]) -> float:
    return float(scores.mean())


def accuracy(scores: NDArray[np.float64]) -> dict[str, float]:
    return {"accuracy": share(scores)}


def trial(accuracies: Sequence[float], n: int, generator: np.random.Generator) -> tuple[float, float, bool, bool]:
    """Errors of the best evaluation and of cross-fitting, and whether the interval covers: as it is, and shifted."""
    tables = simulate(accuracies, n, generator)
    kept = best(share, tables)
    value = share(tables[kept])
    estimate = cross_fitted(accuracy, "accuracy", tables)["accuracy"]
    low, high = intervals(accuracy, {"accuracy": ACCURACY}, [tables[kept]])["accuracy"]
    truth = accuracies[kept]
    shift = estimate - value
    return value - truth, estimate - truth, low <= truth <= high, low + shift <= truth <= high + shift


def print_lacking(runs: int) -> None:
    title = f"{'points below the best model':32}{'n':>5}"
    print(f"\n{title}{'best':>8}{'latest near':>13}{'last':>8}")
    for name, accuracies in SAMPLED_CURVES.items():
        for n in SAMPLES:
            generator = np.random.default_rng(0)
            lacking = []
            for _ in range(runs):
                tables = simulate(accuracies, n, generator)
                kept = (best(share, tables), latest_near_best(share, tables), len(tables) - 1)
                lacking.append([max(accuracies) - accuracies[index] for index in kept])
            by_best, by_latest_near_best, by_last = 100 * np.mean(lacking, axis=0)
            print(f"{name:32}{n:5}{by_best:8.2f}{by_latest_near_best:13.2f}{by_last:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    title = f"{'true accuracies':24}{'n':>5}  {'best of 10':>12}{'cross-fitted':>14}"
    print(f"{title}   95 % interval covers: as it is, shifted")
    for name, accuracies in CURVES.items():
        for n in SIZES:
            generator = np.random.default_rng(0)
            errors = np.array([trial(accuracies, n, generator) for _ in range(runs)], float)
            best, estimate, covers, covers_shifted = errors.mean(0)
            noise = errors[:, 1].std() / np.sqrt(runs)
            print(
                f"{name:24}{n:5}  {100 * best:+11.2f} {100 * estimate:+10.2f} ± {100 * 1.96 * noise:.2f}"
                f"   {covers:.1%}, {covers_shifted:.1%}"
            )
    print_lacking(runs)


if __name__ == "__main__":
    main()
