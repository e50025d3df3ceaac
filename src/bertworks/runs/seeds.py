"""Several seeds of one fine-tuning, one after the other: how much of a result is luck.

RUN/run.json        as of one run, with the seeds
    seed-0/ ...     a run for each
    model/          the best seed's
    results.json    means, deviations and intervals
    report.html     of all seeds, then of the best one
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from bertworks.config import FinetuneConfig, check_finetune
from bertworks.errors import BertworksError, NotFound, Remark, Unsupported
from bertworks.files import locked, new_folder, read_json, write_json
from bertworks.model.locate import MODEL, RUN
from bertworks.runs import finetune
from bertworks.runs.folder import Outcome, Record, check_new, named, new_record, read_run
from bertworks.runs.report import REPORT
from bertworks.runs.results import RESULTS, OverSeeds
from bertworks.tasks.chances import Interval, Runs, deviation, differences, intervals, mean
from bertworks.tasks.checks import Data
from bertworks.tasks.source import Source
from bertworks.tasks.task import Task
from bertworks.train.log import METRICS, Event, Watch, read_events
from bertworks.train.ranks import Ranks
from bertworks.workbench import load

EARLY, FEWEST = 0.5, 2  # in this part of a run no seed is given up, nor as long as so few others have come to their end


def finetune_seeds(config: FinetuneConfig, data: Data, source: Source, out: Path, *, init: str, n_seeds: int, watch: Watch) -> Outcome:
    """The config's seed and those after it. A budget is for all of them."""
    seeds = [config.train.seed + at for at in range(n_seeds)]
    record = new_record(
        finetune.SEEDS,
        config,
        init=named(init),
        source=source.settled(data.columns),
        data=data.fingerprint,
        seeds=seeds,
    )
    with locked(out):
        check_new(out, record, restarted=False)
        write_json(out / RUN, record)
        try:
            return _run(record, data, out, watch)
        except BertworksError:
            if not (_folder(out, seeds[0]) / RUN).is_file():  # nothing has begun: there is no run
                (out / RUN).unlink()
                shutil.rmtree(_folder(out, seeds[0]), ignore_errors=True)
            raise


def resume(out: Path, *, ranks: Ranks, watch: Watch) -> Outcome:
    if ranks.world > 1:
        raise Unsupported("several seeds in several processes", remedy="without torchrun, or one seed at a time: --set train.seed=1")
    record = read_run(out, finetune.SEEDS)
    with locked(out):
        return _run(record, finetune.read_again(record, out), out, watch)


def _run(record: Record, data: Data, out: Path, watch: Watch) -> Outcome:
    config, seeds = check_finetune(record["config"], str(out / RUN)), record["seeds"]
    budget = config.train.budget / len(seeds) if config.train.budget is not None else None
    for at, seed in enumerate(seeds):
        folder = _folder(out, seed)
        if (folder / RESULTS).is_file():
            continue
        _say(watch, {"kind": "remark", "step": 0, "code": "next-seed", "text": f"seed {seed}, {at + 1} of {len(seeds)}"})
        behind = Behind.of([_folder(out, other) for other in seeds[:at]], config.task.measure)
        about: dict[str, Any] = {"ranks": Ranks(), "watch": partial(_of_one, watch), "began": monotonic(), "hopeless": behind}
        if (folder / RUN).is_file():
            outcome = finetune.resume(folder, **about)
        else:
            train = config.train.model_copy(update={"seed": seed, "budget": budget})
            source = Source.model_validate(record["source"])
            outcome = finetune.finetune(config.model_copy(update={"train": train}), data, source, folder, init=record["init"], **about)
        if outcome.asked:
            return Outcome(outcome.asked, out)
    over = _join(out, seeds, config.task.measure)
    with new_folder(out / MODEL, replace=True) as new:
        shutil.copytree(_folder(out, over.best) / MODEL, new, dirs_exist_ok=True)
    finetune.conclude(out, config, data, {}, seeds=over)
    end = {"kind": "end", "step": 0, "model": str(out / MODEL), "report": str(out / REPORT)}
    end |= {
        "given_up": list(over.given_up),
        "measure": config.task.measure,
        "interval": over.intervals[config.task.measure],
        "dev": len(data.dev),
        "seeds": len(over.measures),
    }
    _say(watch, {**end, "kept": over.mean, "deviation": over.deviation, "others": over.other_means})
    return Outcome(0, out)


def _folder(out: Path, seed: int) -> Path:
    return out / f"seed-{seed}"


def _of_one(watch: Watch, event: Event) -> None:
    """Its end is not the end."""
    if event["kind"] != "end":
        watch(event)


def _say(watch: Watch, event: Event) -> None:
    with suppress(OSError):  # nobody may be listening any more
        watch(event)


@dataclass(frozen=True)
class Behind:
    """Whether a seed is so far behind those before it that its time is better saved (Dodge et al. 2020): past the first half of
    the run, and its best is worse than that of each of them was at the same place, by more than the noise of dev. One other is not
    enough: it may have been lucky, and seeds differ most while they learn."""

    curves: list[list[tuple[float, float]]]  # of each of the others: progress and error of its looks
    noise: float

    @classmethod
    def of(cls, others: list[Path], measure: str) -> Behind:
        """The noise is half the width of the widest interval of their results."""
        results = {other: read_json(other / RESULTS) for other in others}
        whole = [other for other, result in results.items() if not result["hopeless"]]
        looks = [[event for event in read_events(other / METRICS) if event["kind"] == "held out"] for other in whole]
        edges = [results[other]["intervals"][measure] for other in whole]
        noise = max(((high - low) / 2 for low, high in edges), default=0.0)
        return cls([[(event["progress"], event["error"]) for event in events] for events in looks], noise)

    def __call__(self, progress: float, best: float) -> bool:
        if progress < EARLY or len(self.curves) < FEWEST:
            return False
        return best > self.noise + max(min((error for at, error in curve if at <= progress), default=inf) for curve in self.curves)


def _join(out: Path, seeds: list[int], measure: str) -> OverSeeds:
    results = {seed: read_json(_folder(out, seed) / RESULTS) for seed in seeds}
    measures = {seed: result["measures"] for seed, result in results.items() if not result["hopeless"]}
    others = {split: {seed: results[seed]["others"][split]["measures"] for seed in measures} for split in results[seeds[0]]["others"]}
    runs, task = _evidence(out), _task(out, seeds)
    middle = mean(task.measure, runs)
    return OverSeeds(
        measures,
        {seed: result["measures"] for seed, result in results.items() if result["hopeless"]},
        middle,
        deviation(task.measure, runs),
        intervals(task.measure, runs),
        max(measures, key=lambda seed: measures[seed][measure]),
        others,
    )


def _task(out: Path, seeds: list[int]) -> Task:
    return load(_folder(out, seeds[0])).task()[1]


# ---------------------------------------------------------------------- two runs


@dataclass(frozen=True)
class Compared:
    """A measure of two runs; the interval is that of the difference."""

    name: str
    first: float
    second: float
    interval: Interval

    @property
    def beyond_noise(self) -> bool:
        low, high = self.interval
        return low > 0 or high < 0


def compare(first: Path, second: Path) -> tuple[list[Compared], tuple[int, int], list[Remark]]:
    """Each measure of two runs on the same dev examples, how many seeds of each are counted, and what is to be said of others."""
    about = [_results(run) for run in (first, second)]
    place = f"{first}, {second}"
    if about[0]["dev"] != about[1]["dev"]:
        remedy = "fine-tune both with the same --dev, or on the same data set"
        raise Unsupported("these were judged by different examples", place=place, remedy=remedy, code="different-dev")
    labels, shape = [one["learned"]["task"]["labels"] for one in about], about[0]["learned"]["task"]["shape"]
    if labels[0] != labels[1] and shape in ("classify", "multilabel"):  # whose evidence names classes by their numbers
        only = set(labels[0]) ^ set(labels[1])
        said = f"one of these does not know: {', '.join(sorted(only))}" if only else "these have their labels in different order"
        remedy = "fine-tune both with the same labels; --set task.labels gives their order"
        raise Unsupported(said, place=place, remedy=remedy, code="different-labels" if only else "different-label-order")
    task, runs = load(first).task()[1], (_evidence(first), _evidence(second))
    means = [mean(task.measure, side) for side in runs]
    found = differences(task.measure, *runs)
    given_up = {run: len((one["seeds"] or {}).get("given_up", ())) for run, one in zip((first, second), about, strict=True)}
    remarks = [
        Remark("seeds-given-up", f"{run}: seeds given up and not counted: {n}; so it may look better than it is")
        for run, n in given_up.items()
        if n
    ]
    if min(map(len, runs)) == 1:
        text = "one seed: how much luck it had is not in the interval; `bertworks finetune --seeds 3` shows it"
        remarks.append(Remark("single-seed", text))
    compared = [Compared(name, means[0][name], means[1][name], interval) for name, interval in found.items()]
    return compared, (len(runs[0]), len(runs[1])), remarks


def _results(run: Path) -> dict[str, Any]:
    read_run(run, *finetune.KINDS)
    if not (run / RESULTS).is_file():
        remedy = f"`bertworks resume {run}` goes on with it"
        raise NotFound("this run has not come to its end", place=str(run), remedy=remedy, code="unfinished-run")
    return read_json(run / RESULTS)


def _evidence(run: Path) -> Runs:
    """Of each seed that was not given up."""
    record = read_run(run, *finetune.KINDS)
    parts = [_folder(run, seed) for seed in record["seeds"]] if record["kind"] == finetune.SEEDS else [run]
    found = [_results(part) for part in parts]
    return [np.array(one["evidence"], np.float64) for one in found if not one["hopeless"]] or [np.array(found[0]["evidence"], np.float64)]
