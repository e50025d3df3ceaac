"""Several seeds of one fine-tuning, one after the other, to measure seed noise.

RUN/run.json        as of one run, with the seeds
    seed-0/ ...     a run for each
    model/          the best seed's
    results.json    means, standard deviations and intervals
    report.html     of all seeds, then of the best one
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from statistics import fmean
from time import monotonic

import numpy as np

from bertworks.config import check_finetune
from bertworks.errors import BertworksError, NotFound, Unsupported
from bertworks.files import JsonObject, locked, new_folder
from bertworks.measure.intervals import SeedScores, intervals, seed_mean, seed_std, shifted_interval
from bertworks.model.locate import MODEL, RUN
from bertworks.reports.page import REPORT
from bertworks.runs import finetune
from bertworks.runs.context import DATA, Outcome, ProcessContext, check_new, keep_rows
from bertworks.runs.finetune import FinetuneJob
from bertworks.runs.record import FINETUNE, SEEDS, RunRecord
from bertworks.runs.results import RESULTS, read_results
from bertworks.tasks.evaluation import SeedSummary, metrics_of
from bertworks.tasks.source import Source
from bertworks.train.events import METRICS, Evaluated, Event, EventHandler, Finished, Remarked, of_kind, read_events
from bertworks.train.runtime import choose_device
from bertworks.train.trainer import already_ended
from bertworks.workbench import load

MIN_PRUNING_PROGRESS = 0.5  # before which no seed is pruned
MIN_COMPLETED_SEEDS = 2  # with fewer, no seed is pruned


def finetune_seeds(job: FinetuneJob, out: Path, process: ProcessContext, n_seeds: int) -> Outcome:
    """Train with the config's seed and those after it. A time budget is for all of them together."""
    _check_single_process(process)
    seeds = [job.config.train.seed + index for index in range(n_seeds)]
    record = job.record(SEEDS, seeds=seeds)
    with locked(out):
        check_new(out, record, restarted=False)
        keep_rows(job.rows, out)
        record.write(out)
        try:
            return _run(record, job, out, process)
        except BertworksError:
            if not (_seed_folder(out, seeds[0]) / RUN).is_file():  # no seed has started: there is no run
                (out / RUN).unlink()
                shutil.rmtree(out / DATA, ignore_errors=True)
                shutil.rmtree(_seed_folder(out, seeds[0]), ignore_errors=True)
            raise


def resume(out: Path, process: ProcessContext) -> Outcome:
    _check_single_process(process)
    record = RunRecord.read(out, SEEDS)
    config = check_finetune(record.config, str(out / RUN))
    source = Source.model_validate(record.source)
    with locked(out):
        rows = finetune.stored_rows(record, out)
        job = FinetuneJob(config, finetune.read_again(record, out), source, str(record.init), rows=rows)
        if (out / RESULTS).is_file():
            remark = already_ended(out)
            _report_event(process, Remarked(code=remark.code, text=remark.text))
        return _run(record, job, out, process)


def _check_single_process(process: ProcessContext) -> None:
    if process.distributed.world_size > 1:
        remedy = "without torchrun, or one seed at a time: --set train.seed=1"
        raise Unsupported("several seeds in several processes", remedy=remedy, code="several-processes")


def _run(record: RunRecord, job: FinetuneJob, out: Path, process: ProcessContext) -> Outcome:
    config = job.config
    seeds = record.seeds or []
    budget = config.train.budget / len(seeds) if config.train.budget is not None else None
    for index, seed in enumerate(seeds):
        folder = _seed_folder(out, seed)
        if (folder / RESULTS).is_file():
            continue
        _report_event(process, Remarked(code="next-seed", text=f"seed {seed}, {index + 1} of {len(seeds)}"))
        pruner = SeedPruner.from_runs([_seed_folder(out, earlier) for earlier in seeds[:index]], config.task.metric)
        runtime = replace(process.runtime, began=monotonic())
        seed_process = replace(process, runtime=runtime, on_event=partial(_forward_unless_finished, process.on_event))
        if (folder / RUN).is_file():
            outcome = finetune.resume(folder, seed_process, pruner)
        else:
            train = config.train.model_copy(update={"seed": seed, "budget": budget})
            seed_job = replace(job, rows_folder=f"../{DATA}", config=config.model_copy(update={"train": train}))
            outcome = finetune.finetune(seed_job, folder, seed_process, pruner)
        if outcome.requested_signal:
            return Outcome(out, outcome.requested_signal, outcome.requested_signal)
    summary = _summarise(out, seeds, config.task.metric)
    with new_folder(out / MODEL, replace=True) as new:
        shutil.copytree(_seed_folder(out, summary.best) / MODEL, new, dirs_exist_ok=True)
    device = choose_device(process.device or config.train.device)
    finetune.finalise(out, config, job.data, {}, device, seeds=summary)
    finished = Finished(
        model=str(out / MODEL),
        report=str(out / REPORT),
        metrics=summary.mean,
        metric=config.task.metric,
        interval=summary.intervals[config.task.metric],
        dev_examples=len(job.data.dev),
        extra_eval=summary.extra_eval_means,
        cross_fitted=summary.cross_fitted,
        last=summary.last,
        baseline=read_results(out)["baseline"],
        std=summary.std,
        n_seeds=len(summary.metrics),
        pruned_seeds=list(summary.pruned),
    )
    _report_event(process, finished)
    return Outcome(out)


def _seed_folder(out: Path, seed: int) -> Path:
    return out / f"seed-{seed}"


def _forward_unless_finished(on_event: EventHandler, event: Event) -> None:
    """The end of one seed is not the end of the run."""
    if not isinstance(event, Finished):
        on_event(event)


def _report_event(process: ProcessContext, event: Event) -> None:
    with suppress(OSError):  # a closed terminal is no reason to stop
        process.on_event(event)


@dataclass(frozen=True)
class SeedPruner:
    """Whether a seed is so far behind earlier ones that the rest of its run is a waste of time (Dodge et al. 2020):
    past the first half of the run, its lowest error is higher than that of each earlier seed at the same progress, by
    more than the noise of dev. One earlier seed is not enough: it may have been lucky, and seeds differ most early in
    training."""

    curves: list[list[tuple[float, float]]]  # of each earlier seed: progress and error of its evaluations
    noise: float

    @classmethod
    def from_runs(cls, runs: list[Path], metric: str) -> SeedPruner:
        """The noise is half the width of the widest interval of their results."""
        results = {run: read_results(run) for run in runs}
        completed = [run for run, result in results.items() if not result["pruned"]]
        evaluations = [of_kind(read_events(run / METRICS), Evaluated) for run in completed]
        metric_intervals = [results[run]["intervals"][metric] for run in completed]
        noise = max(((high - low) / 2 for low, high in metric_intervals), default=0.0)
        return cls([[(event.progress, event.metrics["error"]) for event in events] for events in evaluations], noise)

    def __call__(self, progress: float, best: float) -> bool:
        if progress < MIN_PRUNING_PROGRESS or len(self.curves) < MIN_COMPLETED_SEEDS:
            return False
        lowest_errors = (
            min((error for curve_progress, error in curve if curve_progress <= progress), default=inf)
            for curve in self.curves
        )
        return best > self.noise + max(lowest_errors)


def _summarise(out: Path, seeds: list[int], metric: str) -> SeedSummary:
    results = {seed: read_results(_seed_folder(out, seed)) for seed in seeds}
    metrics = {seed: result["metrics"] for seed, result in results.items() if not result["pruned"]}
    extra = {
        split: {seed: results[seed]["extra_eval"][split]["metrics"] for seed in metrics}
        for split in results[seeds[0]]["extra_eval"]
    }
    scores = seed_scores(out)
    task = load(_seed_folder(out, seeds[0])).predictor.task
    mean = seed_mean(task.metric_values, scores)
    selections = [results[seed].get("selection") or {} for seed in metrics]
    cross_fitted = _mean_metrics([selection.get("cross_fitted") for selection in selections])
    metrics_by_name = metrics_of(task)
    around_mean = intervals(task.metric_values, metrics_by_name, scores, task.resampled_metrics)
    return SeedSummary(
        metrics=metrics,
        pruned={seed: result["metrics"] for seed, result in results.items() if result["pruned"]},
        mean=mean,
        std=seed_std(task.metric_values, scores),
        intervals={
            name: shifted_interval(interval, cross_fitted.get(name, mean[name]) - mean[name], metrics_by_name[name])
            for name, interval in around_mean.items()
        },
        cross_fitted=cross_fitted,
        last=_mean_metrics([selection.get("last") for selection in selections]),
        best=max(metrics, key=lambda seed: metrics[seed][metric]),
        extra_eval=extra,
    )


def _mean_metrics(metrics: list[dict[str, float] | None]) -> dict[str, float]:
    """Over the seeds; empty, if one of them has none."""
    known = [values for values in metrics if values]
    return {name: fmean(values[name] for values in known) for name in known[0]} if len(known) == len(metrics) else {}


def seed_scores(run: Path) -> SeedScores:
    """The example scores of each seed that was not pruned."""
    record = RunRecord.read(run, FINETUNE, SEEDS)
    folders = [_seed_folder(run, seed) for seed in record.seeds or []] if record.kind == SEEDS else [run]
    results = [finished_results(folder) for folder in folders]
    completed = [result for result in results if not result["pruned"]] or results[:1]
    return [np.array(result["example_scores"], np.float64) for result in completed]


def finished_results(run: Path) -> JsonObject:
    RunRecord.read(run, FINETUNE, SEEDS)
    if not (run / RESULTS).is_file():
        remedy = f"`bertworks resume {run}` continues it"
        raise NotFound("this run is unfinished", place=str(run), remedy=remedy, code="unfinished-run")
    return read_results(run)
