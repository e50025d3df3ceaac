"""How optimistic the best of several evaluations on the same dev set is, and what cross-fitting makes of it.

Simulated runs: at each evaluation the model has a true accuracy, and predictions of neighbouring evaluations agree as
those of a fine-tuning do. Printed are the mean error of three estimates of the kept model's true accuracy, in points,
and how often a 95 % interval around it contains that accuracy.

    python benchmarks/selection.py [--runs 1000]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertworks.measure.intervals import intervals
from bertworks.measure.metrics import ACCURACY
from bertworks.measure.selection import best_of, cross_fitted

CURVES = {
    "no better than chance": [0.527] * 10,
    "flat": [0.8] * 10,
    "rising": np.linspace(0.7, 0.8, 10).tolist(),
    "overfitting": [0.70, 0.76, 0.80, 0.80, 0.79, 0.79, 0.78, 0.78, 0.77, 0.77],
}
SIZES = (100, 277, 872)
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


def accuracy(scores: NDArray[np.float64]) -> dict[str, float]:
    return {"accuracy": float(scores.mean())}


def trial(accuracies: Sequence[float], n: int, generator: np.random.Generator) -> tuple[float, float, bool, bool]:
    """Errors of the best evaluation and of cross-fitting, and whether the interval covers: as it is, and shifted."""
    tables = simulate(accuracies, n, generator)
    values = [accuracy(table)["accuracy"] for table in tables]
    best = best_of(values)
    estimate = cross_fitted(accuracy, "accuracy", tables)["accuracy"]
    low, high = intervals(accuracy, {"accuracy": ACCURACY}, [tables[best]])["accuracy"]
    truth = accuracies[best]
    shift = estimate - values[best]
    return values[best] - truth, estimate - truth, low <= truth <= high, low + shift <= truth <= high + shift


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


if __name__ == "__main__":
    main()
