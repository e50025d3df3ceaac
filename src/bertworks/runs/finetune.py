"""Fine-tuning: a model, a task, its examples and the trainer joined into a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertworks.config import FinetuneConfig, TaskArtifact, check_finetune
from bertworks.data.batches import BatchStream, RankShard
from bertworks.data.rng import Stream, rng
from bertworks.datasets.checks import TaskData, fingerprint
from bertworks.datasets.columns import NamedColumns
from bertworks.datasets.example import Example
from bertworks.errors import BadText, NotFound, Remark, Unsupported
from bertworks.files import write_json
from bertworks.model.attention import set_attention_dropout
from bertworks.model.init import initialise
from bertworks.model.locate import MODEL, RUN
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.model.resize import refit, use_partial_embedding, with_full_embedding
from bertworks.reports.finetune import write_finetune_report
from bertworks.reports.page import REPORT
from bertworks.runs.context import Outcome, ProcessContext, RunContext, open_run, resolve_name
from bertworks.runs.record import FINETUNE, SEEDS, Kind, RunRecord
from bertworks.runs.results import RESULTS
from bertworks.runs.settings import resolve_finetune
from bertworks.tasks.evaluation import (
    EvalResults,
    SeedSummary,
    calibrate_and_score,
    count_tokens,
    evaluate_task,
    metric_values,
    score,
    tuned_predictions,
)
from bertworks.tasks.features import Features, ShuffledExamples, token_ids
from bertworks.tasks.inference import AnyTask, Progress, evaluation_mode, no_progress, run_windows
from bertworks.tasks.shapes import make_task, task_class
from bertworks.tasks.source import Source, describe_task, read_data, read_eval_data
from bertworks.tasks.windows import SlidingWindows
from bertworks.text.ledger import Ledger, OnLong
from bertworks.train.events import Finished, Started
from bertworks.train.policy import EvaluationPolicy, Pruner, never_prune
from bertworks.train.runtime import choose_device, measure_peak_flops
from bertworks.train.trainer import Trainer
from bertworks.workbench import Workbench, load

EVALUATION_TOKENS = 65_536  # of dev, that an evaluation on the way of a run with a budget may read


@dataclass(frozen=True)
class FinetunePlan:
    """A fine-tuning that is checked and not begun: its examples are read, its config is complete."""

    config: FinetuneConfig
    data: TaskData
    source: Source
    init: str  # name of the model to start from
    start: Workbench | None = None  # that model, if it is loaded already

    @classmethod
    def resolve(
        cls,
        source: Source,
        *,
        model: str,
        settings: Iterable[str] = (),
        options: Mapping[str, Any],
        on_long: OnLong | None = None,
    ) -> FinetunePlan:
        """`settings`: as `--set` has them; `options`: keys of the loop that have options of their own."""
        data = read_data(source)
        start = load(model)
        config = resolve_finetune(
            start,
            describe_task(data, source),
            settings=settings,
            options=options,
            on_long=on_long,
            sizes=(len(data.train), len(data.dev)),
        )
        return cls(config, data, source, model, start)

    @property
    def remarks(self) -> list[Remark]:
        sizes = f"train: {len(self.data.train):,} examples, dev: {len(self.data.dev):,}"
        return [Remark("examples", sizes), *self.data.remarks]

    def record(self, kind: Kind, **fields: Any) -> RunRecord:
        source = self.source.resolved(self.data.columns).model_dump(mode="json")
        init = resolve_name(self.init)
        return RunRecord.new(kind, self.config, init=init, source=source, data=self.data.fingerprint, **fields)


def finetune(plan: FinetunePlan, out: Path, process: ProcessContext, pruner: Pruner = never_prune) -> Outcome:
    """A new run. After torchrun has started the processes again, the same run goes on."""
    return _run(plan.record(FINETUNE), plan.data, out, process, pruner, new=True, start=plan.start)


def resume(out: Path, process: ProcessContext, pruner: Pruner = never_prune) -> Outcome:
    record = RunRecord.read(out, FINETUNE)
    return _run(record, read_again(record, out), out, process, pruner, new=False)


def read_again(record: RunRecord, out: Path) -> TaskData:
    """The examples of a run, if they are still the same."""
    remedy = "put the files back as they were"
    try:
        data = read_data(Source.model_validate(record.source))
    except NotFound as error:
        raise NotFound(
            f"the examples of this run: {error.cause}", place=error.place, remedy=remedy, code=error.code
        ) from None
    if data.fingerprint != record.data:
        raise BadText(
            "these are not the examples that the run began with", place=str(out), remedy=remedy, code="examples-changed"
        )
    return data


@dataclass(frozen=True)
class EncodedSplits:
    """The examples of a run as the model reads them."""

    train: list[Features]
    dev: list[Features]
    sample: list[int]  # of dev, that evaluations on the way read

    @classmethod
    def read(cls, task: AnyTask, data: TaskData, windows: SlidingWindows, *, by_clock: bool) -> EncodedSplits:
        train, dev = (task.features(examples, windows) for examples in (data.train, data.dev))
        return cls(train, dev, token_subset(dev, EVALUATION_TOKENS) if by_clock else list(range(len(dev))))

    @property
    def dev_cost(self) -> float:
        """Of all of dev, in evaluations on the way."""
        return sum(one.length for one in self.dev) / sum(self.dev[at].length for at in self.sample)


def _run(
    record: RunRecord,
    data: TaskData,
    out: Path,
    process: ProcessContext,
    pruner: Pruner,
    *,
    new: bool,
    start: Workbench | None = None,
) -> Outcome:
    config = check_finetune(record.config, str(out / RUN))
    with open_run(record, config.train, out, process, new=new, start=start) as run:
        start = run.initial_model()
        if start is None:
            raise Unsupported("a fine-tuning starts from a model", place=str(out))
        task = build_task(config, start, data.train)
        by_clock = config.train.budget is not None
        splits = EncodedSplits.read(
            task, data, SlidingWindows.from_config(start.tokenizer, config.data), by_clock=by_clock
        )
        use_partial_embedding(task.model, torch.from_numpy(token_ids([*splits.train, *splits.dev])))
        task.to(run.device)
        trainer = _trainer(run, config, task, data, splits, start, pruner)
        run.restore(trainer)
        _announce(trainer, config, data, splits, start, task)
        signal = trainer.run()
        if run.is_main and not signal:
            results = finalise(
                out, config, data, {"train": splits.train, "dev": splits.dev}, pruned=trainer.state.pruned
            )
            trainer.emit(_finished(out, results, config.task.metric, len(data.dev)))
        return Outcome(out, signal, process.runtime.stop.signal)


def _trainer(
    run: RunContext,
    config: FinetuneConfig,
    task: AnyTask,
    data: TaskData,
    splits: EncodedSplits,
    start: Workbench,
    pruner: Pruner,
) -> Trainer:
    examples = ShuffledExamples(splits.train, config.train.batch_size, config.train.seed)
    distributed, runtime = run.process.distributed, run.process.runtime
    sample = [splits.dev[at] for at in splits.sample], [data.dev[at] for at in splits.sample]
    lineage = run.lineage(start, f"finetune {config.task.shape}")
    assert run.record.source is not None
    artifact = TaskArtifact(
        task=config.task,
        data=config.data,
        dataset=run.record.source["dataset"],
        columns=data.columns.texts if data.columns is not None else (),
    )
    policy = EvaluationPolicy(
        evaluate=DevEvaluation(
            task, *sample, config.task.metric, runtime.stop.raise_if_requested if distributed.world_size == 1 else None
        ),
        save_model=lambda: save_model(task, artifact, start, lineage, run.folder) if run.is_main else None,
        monitor="error",
        at_start=config.train.budget
        is not None,  # a new head has nothing to show; but a budget has to know how long it takes
        patience=config.train.patience,
        pruner=pruner,
        extra_evaluations=splits.dev_cost
        * (1 + sum(map(len, data.extra_eval.values())) / len(data.dev)),  # `finalise` reads all once more
    )
    tokens = int(examples.lengths.mean() * config.train.batch_size)
    context = run.begin(config.train.budget, _peak_flops(config, tokens, run.device))
    batches = BatchStream(examples, RankShard(distributed.rank, distributed.world_size, config.train.micro_tokens))
    return Trainer(task, batches, config.optim, config.train, context, policy)


def _announce(
    trainer: Trainer, config: FinetuneConfig, data: TaskData, splits: EncodedSplits, start: Workbench, task: AnyTask
) -> None:
    context = trainer.context
    trainer.emit(
        Started(
            machine=context.machine,
            peak_gflops=context.peak_flops / 1e9,
            terms=dict(task.terms),
            train_examples=len(data.train),
            dev_examples=len(data.dev),
        )
    )
    if task.head in start.model.heads:
        keeps = keeps_head(config, start)
        what = "goes on learning" if keeps else "is replaced by a new one"
        trainer.remark(Remark("head-kept" if keeps else "head-replaced", f"the model's own head {what}"))
    if len(splits.sample) < len(splits.dev):
        n, n_all = len(splits.sample), len(splits.dev)
        trainer.remark(
            Remark(
                "dev-sampled",
                f"evaluations on the way read {n:,} of {n_all:,} dev examples, to save time; the end reads all",
            )
        )
    for name, features, examples in (("train", splits.train, data.train), ("dev", splits.dev, data.dev)):
        ledger = count_tokens(task, features, examples)[""]
        if ledger.windowed_texts or ledger.cut_texts or ledger.has_many_unknown:
            trainer.remark(Remark("ledger", f"{name}: {ledger}"))


def _finished(out: Path, results: EvalResults, metric: str, n_dev: int) -> Finished:
    return Finished(
        model=str(out / MODEL),
        report=str(out / REPORT),
        metrics=results.metrics,
        metric=metric,
        interval=results.intervals[metric],
        dev_examples=n_dev,
        extra_eval={name: one.metrics for name, one in results.extra_eval.items()},
    )


def finalise(
    out: Path,
    config: FinetuneConfig,
    data: TaskData,
    read: dict[str, list[Features]],
    *,
    pruned: bool = False,
    seeds: SeedSummary | None = None,
) -> EvalResults:
    """The best model on dev once more: its confidence calibrated, what is known about it written down. `read`: splits
    that have been read already. Of several `seeds`, the model is the best one's."""
    bench = load(out / MODEL)
    assert bench.artifact is not None  # save_model wrote it
    task, windows = (
        make_task(bench.model, bench.artifact.task),
        SlidingWindows.from_config(bench.tokenizer, config.data),
    )
    task.to(choose_device(config.train.device))
    splits = {"train": data.train, "dev": data.dev, **data.extra_eval}
    features = {name: read.get(name) or task.features(examples, windows) for name, examples in splits.items()}
    results, bench.artifact = calibrate_and_score(task, features["dev"], data.dev, bench.artifact)
    results = replace(
        results,
        ledgers={name: count_tokens(task, features[name], examples) for name, examples in splits.items()},
        extra_eval={name: evaluate_task(task, features[name], examples) for name, examples in data.extra_eval.items()},
    )
    bench.lineage.pop()  # that it was loaded just now
    bench.save(out / MODEL)
    artifact = {"artifact": bench.artifact.model_dump(mode="json"), "dev": fingerprint(data.dev), "pruned": pruned}
    write_finetune_report(out, results, task, config.task.metric, data.remarks, seeds)
    write_json(
        out / RESULTS, {**results.as_dict(), **artifact, "seeds": None if seeds is None else seeds.as_dict()}
    )  # last: it is complete
    return results


@dataclass(frozen=True)
class Evaluation:
    """A trained model on other examples."""

    results: EvalResults
    ledger: Ledger
    remarks: list[Remark]


def evaluate(
    out: Path,
    data: Path,
    *,
    columns: NamedColumns | None = None,
    skip_bad: bool = False,
    on_long: OnLong | None = None,
    device: str = "cpu",
    progress: Progress = no_progress,
) -> Evaluation:
    """A run's model on other examples of the same kind; `columns`: those that the user names."""
    source = Source.model_validate({**(RunRecord.read(out, FINETUNE, SEEDS).source or {}), "skip_bad": skip_bad})
    bench = load(out, device=device)
    predictor = bench.predictor
    named = columns if columns is not None and columns.by_option() else None
    eval_data = read_eval_data(source, data, predictor.artifact.task, named=named)
    windows = SlidingWindows.from_config(bench.tokenizer, predictor.artifact.data, on_long)

    def results(examples: Sequence[Example], progress: Progress = no_progress) -> tuple[EvalResults, list[Features]]:
        features = predictor.task.features(examples, windows)
        predictions = predictor.task.decode_all(predictor.run(features, progress), features, examples)
        return score(predictor.task, predictions, examples), features

    on_dev, features = results(eval_data.dev, progress)
    extra = {name: results(examples)[0] for name, examples in eval_data.extra_eval.items() if examples}
    ledger = count_tokens(predictor.task, features, eval_data.dev)[""]
    return Evaluation(replace(on_dev, extra_eval=extra), ledger, eval_data.remarks)


def token_subset(features: list[Features], tokens: int) -> list[int]:
    """Which examples have about so many tokens together, or all; always the same ones."""
    order = rng(0, Stream.HELD_OUT).permutation(len(features)).tolist()
    ends = np.cumsum([features[at].length for at in order])
    return sorted(order[: max(1, int(np.searchsorted(ends, tokens, side="right")))])


class DevEvaluation:
    """Dev, the same for every process. `check` may interrupt it."""

    def __init__(
        self,
        task: AnyTask,
        features: list[Features],
        examples: list[Example],
        metric: str,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.task, self.features, self.examples, self.metric, self.check = task, features, examples, metric, check

    def __call__(self) -> dict[str, float]:
        with evaluation_mode(self.task):
            outputs = run_windows(self.task, self.features, self._progress)
        predictions, _ = tuned_predictions(self.task, outputs, self.features, self.examples)
        metrics = metric_values(self.task, predictions, self.examples)
        return {**metrics, "error": 1.0 - metrics[self.metric]}

    def _progress(self, done: int, total: int) -> None:
        if self.check is not None:
            self.check()


def build_task(config: FinetuneConfig, start: Workbench, train: Sequence[Example]) -> AnyTask:
    """The task with its model: old weights, new head; upper layers anew and lower ones fixed if so asked."""
    head = task_class(config.task.shape).head
    model = refit(start.model, config.model, [head], config.train.seed, keep_heads=keeps_head(config, start))
    if config.train.recompute:
        model.encoder.use_recompute()
    _reinitialise(model, config.train.reinit, config.train.seed)
    model.encoder.freeze_pretraining_only()
    model.encoder.freeze(config.train.freeze)
    if config.train.attention_dropout is not None:
        set_attention_dropout(model, config.train.attention_dropout)
    return make_task(model, config.task, train).train()


def keeps_head(config: FinetuneConfig, start: Workbench) -> bool:
    """A head for other classes, or for numbers in other units, would only be in the way."""
    return task_class(config.task.shape).keeps_head and start.config.heads.labels == config.model.heads.labels


def _reinitialise(model: Model, n_layers: int, seed: int) -> None:
    """The highest layers, so many, get new weights."""
    generator = torch.Generator().manual_seed(seed)
    for group in model.encoder.groups()[-1 - n_layers : -1]:
        for module in group:
            initialise(module, model.encoder.config, generator)


def save_model(task: AnyTask, artifact: TaskArtifact, start: Workbench, lineage: list[str], out: Path) -> None:
    hf_config = {**start.hf_config, "problem_type": task.problem_type}
    model, left = task.exported(artifact.task)
    bench = Workbench(with_full_embedding(model), start.tokenizer, Pooling(), hf_config, lineage, [])
    bench.artifact = artifact.model_copy(update={"task": left})
    bench.save(out / MODEL)


def _peak_flops(config: FinetuneConfig, tokens: int, device: torch.device) -> float:
    encoder = config.model.encoder
    return measure_peak_flops(
        max(1, min(tokens, 4096)), encoder.hidden_size, encoder.widest_layer, device, torch.get_default_dtype()
    )
