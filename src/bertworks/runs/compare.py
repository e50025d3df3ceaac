"""Whether two fine-tuned models differ significantly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertworks.errors import Remark, Unsupported
from bertworks.measure.intervals import Interval, difference_intervals, seed_mean
from bertworks.measure.metrics import Metric
from bertworks.runs.seeds import finished_results, seed_scores
from bertworks.tasks.evaluation import metrics_of
from bertworks.workbench import load


@dataclass(frozen=True)
class MetricComparison:
    """A metric of two runs; the interval is the 95 % CI of the difference."""

    metric: Metric
    first: float
    second: float
    interval: Interval

    @property
    def significant(self) -> bool:
        low, high = self.interval
        return low > 0 or high < 0


@dataclass(frozen=True)
class Comparison:
    metrics: list[MetricComparison]
    n_seeds: tuple[int, int]  # without pruned ones
    remarks: list[Remark]


def compare(first: Path, second: Path) -> Comparison:
    """Each metric of two runs on the same dev examples."""
    results = [finished_results(run) for run in (first, second)]
    place = f"{first}, {second}"
    if results[0]["dev"] != results[1]["dev"]:
        remedy = "fine-tune both with the same --dev, or on the same data set"
        raise Unsupported(
            "these runs were evaluated on different dev examples", place=place, remedy=remedy, code="different-dev"
        )
    task = load(first).predictor.task
    labels = [run_results["artifact"]["task"]["labels"] for run_results in results]
    if labels[0] != labels[1] and task.compares_by_label:
        unshared = sorted(set(labels[0]) ^ set(labels[1]))
        cause = "the labels of these runs are in different order"
        code = "different-label-order"
        if unshared:
            cause = f"labels that only one of these runs has: {', '.join(unshared)}"
            code = "different-labels"
        remedy = "fine-tune both with the same labels; --set task.labels gives their order"
        raise Unsupported(cause, place=place, remedy=remedy, code=code)
    scores = (seed_scores(first), seed_scores(second))
    means = [seed_mean(task.metric_values, run_scores) for run_scores in scores]
    metrics = metrics_of(task)
    intervals = difference_intervals(task.metric_values, metrics, *scores, task.resampled_metrics)
    n_pruned = {
        run: len((run_results["seeds"] or {}).get("pruned", ()))
        for run, run_results in zip((first, second), results, strict=True)
    }
    remarks = [
        Remark("seeds-pruned", f"{run}: {n} pruned seeds are not counted, which may flatter its mean")
        for run, n in n_pruned.items()
        if n
    ]
    if min(map(len, scores)) == 1:
        text = "single seed: the interval does not include seed noise; `bertworks finetune --seeds 3` measures it"
        remarks.append(Remark("single-seed", text))
    n_evaluations = [(run_results.get("selection") or {}).get("n_evaluations") for run_results in results]
    if None not in n_evaluations and n_evaluations[0] != n_evaluations[1]:
        text = (
            f"a choice among {n_evaluations[0]} evaluations is compared with one among {n_evaluations[1]}, and more "
            "evaluations flatter; --set train.evaluations makes them equal"
        )
        remarks.append(Remark("different-evaluations", text))
    comparisons = [
        MetricComparison(metrics[name], means[0][name], means[1][name], interval)
        for name, interval in intervals.items()
    ]
    return Comparison(comparisons, (len(scores[0]), len(scores[1])), remarks)
