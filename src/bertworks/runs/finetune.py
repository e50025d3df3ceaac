"""Fine-tuning: a model, a task, its examples and the trainer joined into a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from bertworks.config import FinetuneConfig, FinetuneLoop, TaskArtifact, check_finetune
from bertworks.data.batches import BatchStream, RankShard
from bertworks.data.rng import Stream, rng
from bertworks.datasets.checks import TaskData, fingerprint
from bertworks.datasets.columns import NamedColumns
from bertworks.datasets.example import Example
from bertworks.errors import BadText, BertworksError, NotFound, Remark, SaveFailed, Unsupported
from bertworks.files import write_json
from bertworks.measure.metrics import Floats, nan_to_zero
from bertworks.measure.selection import by_metric, value_in_choice
from bertworks.model.attention import set_attention_dropout
from bertworks.model.init import initialise
from bertworks.model.locate import MODEL, RUN
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.model.resize import refit, use_partial_embedding, with_full_embedding
from bertworks.reports.finetune import write_finetune_report
from bertworks.reports.page import REPORT
from bertworks.runs.context import DATA, Outcome, ProcessContext, RunContext, open_run, resolve_name
from bertworks.runs.evaluations import History, discard_later, earlier_scores, write_scores
from bertworks.runs.plan import planned
from bertworks.runs.record import FINETUNE, SEEDS, Kind, RunRecord
from bertworks.runs.results import RESULTS, read_results
from bertworks.runs.settings import Settings, resolve_finetune
from bertworks.tasks.evaluation import (
    EvalResults,
    SeedSummary,
    baseline_metrics,
    calibrate_and_score,
    count_tokens,
    evaluate_task,
    metrics_of,
    score,
    tuned_predictions,
)
from bertworks.tasks.features import Features, ShuffledExamples, token_ids
from bertworks.tasks.inference import AnyTask, Progress, evaluation_mode, no_progress, run_windows
from bertworks.tasks.shapes import make_task, task_class
from bertworks.tasks.source import Source, describe_task, read_data, read_eval_data
from bertworks.tasks.task import score_table
from bertworks.tasks.windows import SlidingWindows
from bertworks.text.ledger import Ledger, OnLong
from bertworks.train.checkpoint import State
from bertworks.train.distributed import from_environment
from bertworks.train.events import Finished, Started
from bertworks.train.policy import EvaluationPolicy, Pruner, never_prune
from bertworks.train.runtime import choose_device
from bertworks.train.trainer import Trainer
from bertworks.workbench import Workbench, load

CHOICE_ERROR = "choice_error"


@dataclass(frozen=True)
class FinetuneJob:
    """A fine-tuning that is checked and not started: its examples are read, its config is complete."""

    config: FinetuneConfig
    data: TaskData
    source: Source
    init: str  # name of the model to start from
    start: Workbench | None = None  # that model, if it is loaded already
    rows: Mapping[str, Path] = field(default_factory=dict)  # splits that were given as rows: files to keep in the run
    rows_folder: str = DATA  # where they are kept, from the run's folder

    @classmethod
    def resolve(
        cls,
        source: Source,
        *,
        model: str,
        settings: Settings,
        n_seeds: int = 1,
        began: float | None = None,
    ) -> FinetuneJob:
        """`n_seeds`: that share a time budget. `began`: since when it counts; None: it will count from the run on."""
        data = read_data(source)
        start = load(model)
        config = resolve_finetune(
            start,
            describe_task(data, source),
            settings=settings,
            sizes=(len(data.train), len(data.dev)),
        )
        with torch.random.fork_rng(devices=[]):
            config, remarks = planned(
                config,
                build_task(config, start, data.train),
                start.tokenizer,
                data.train,
                user_keys=settings.keys(),
                n_runs=n_seeds,
                began=began,
                may_measure=from_environment().world_size == 1,
            )
        data.remarks.extend(remarks)
        return cls(config, data, source, model, start)

    @property
    def remarks(self) -> list[Remark]:
        sizes = f"train: {len(self.data.train):,} examples, dev: {len(self.data.dev):,}"
        return [Remark("examples", sizes), *self.data.remarks]

    def record(self, kind: Kind, **fields: Any) -> RunRecord:
        source = self.source.resolved(self.data.columns).model_dump(mode="json")
        source |= {split: f"{self.rows_folder}/{split}.jsonl" for split in self.rows}
        init = resolve_name(self.init)
        return RunRecord.new(kind, self.config, init=init, source=source, data=self.data.fingerprint, **fields)


def finetune(job: FinetuneJob, out: Path, process: ProcessContext, pruner: Pruner = never_prune) -> Outcome:
    """Start a new run; if torchrun has restarted the processes, resume it."""
    rows = job.rows if job.rows_folder == DATA else {}
    return _run(job.record(FINETUNE), job.data, out, process, pruner, new=True, start=job.start, rows=rows)


def resume(out: Path, process: ProcessContext, pruner: Pruner = never_prune) -> Outcome:
    record = RunRecord.read(out, FINETUNE)
    return _run(record, read_again(record, out), out, process, pruner, new=False)


def read_again(record: RunRecord, out: Path) -> TaskData:
    """The examples of a run, if they are still the same."""
    remedy = "put the files back as they were"
    try:
        stored = {split: str(file) for split, file in stored_rows(record, out).items()}
        data = read_data(Source.model_validate({**(record.source or {}), **stored}))
    except NotFound as error:
        cause = f"the examples of this run: {error.cause}"
        raise NotFound(cause, place=error.place, remedy=remedy, code=error.code) from None
    if data.fingerprint != record.data:
        cause = "the examples have changed since the run started"
        raise BadText(cause, place=str(out), remedy=remedy, code="examples-changed")
    return data


def stored_rows(record: RunRecord, out: Path) -> dict[str, Path]:
    """Splits that are kept in the run itself: their paths are relative, so that it can be moved."""
    paths = {split: (record.source or {}).get(split) for split in ("train", "dev")}
    return {split: out / path for split, path in paths.items() if path and not Path(path).is_absolute()}


@dataclass(frozen=True)
class EncodedSplits:
    """The examples of a run as the model reads them."""

    train: list[Features]
    dev: list[Features]
    dev_sample: list[int]  # indices of the dev examples that evaluations during training read

    @classmethod
    def encode(cls, task: AnyTask, data: TaskData, windows: SlidingWindows, loop: FinetuneLoop) -> EncodedSplits:
        train = task.features(data.train, windows)
        dev = task.features(data.dev, windows)
        sample = list(range(len(dev))) if loop.budget is None else token_subset(dev, loop.evaluate_tokens)
        return cls(train, dev, sample)

    @property
    def reads_all_dev(self) -> bool:
        return len(self.dev_sample) == len(self.dev)

    def epochs_read(self, batch_size: int, state: State) -> float:
        return state.epoch + min(1.0, state.batch * batch_size / len(self.train))


def _run(
    record: RunRecord,
    data: TaskData,
    out: Path,
    process: ProcessContext,
    pruner: Pruner,
    *,
    new: bool,
    start: Workbench | None = None,
    rows: Mapping[str, Path] | None = None,
) -> Outcome:
    config = check_finetune(record.config, str(out / RUN))
    with open_run(record, config.train, out, process, new=new, start=start, rows=rows) as run:
        finetuning = _Finetuning.begin(run, config, data)
        trainer = finetuning.trainer(pruner)
        is_finished = (out / RESULTS).is_file()
        # A process that was killed before it wrote the results has left a calibrated model.
        run.restore(trainer, rewrite_model=not is_finished and _is_calibrated(finetuning.start))
        is_finished = is_finished and trainer.has_ended
        if run.is_main:
            discard_later(out, trainer.state.step)
        if not trainer.has_ended:
            finetuning.emit_start(trainer)
        signal = trainer.run()
        if run.is_main and not signal:
            began = monotonic()
            if not is_finished:
                finetuning.finalise(trainer.state)
            epochs = finetuning.splits.epochs_read(config.train.batch_size, trainer.state)
            trainer.emit(
                replace(
                    _finished(out, config.task.metric, len(data.dev)),
                    epochs=epochs,
                    evaluation_seconds=monotonic() - began,
                )
            )
        return Outcome(out, signal, process.runtime.stop.signal)


@dataclass(frozen=True)
class _Finetuning:
    """A run with what it is trained on, from the first step to the results."""

    run: RunContext
    config: FinetuneConfig
    data: TaskData
    start: Workbench  # the model to start from; of a resumed run, its own
    task: AnyTask
    splits: EncodedSplits

    @classmethod
    def begin(cls, run: RunContext, config: FinetuneConfig, data: TaskData) -> _Finetuning:
        start = run.initial_model()
        if start is None:
            raise Unsupported("a fine-tuning starts from a model", place=str(run.folder))
        task = build_task(config, start, data.train)
        windows = SlidingWindows.from_config(start.tokenizer, config.data)
        splits = EncodedSplits.encode(task, data, windows, config.train)
        use_partial_embedding(task.model, torch.from_numpy(token_ids([*splits.train, *splits.dev])))
        return cls(run, config, data, start, task.to(run.device), splits)

    def trainer(self, pruner: Pruner) -> Trainer:
        run, loop, task = self.run, self.config.train, self.task
        examples = ShuffledExamples(self.splits.train, loop.batch_size, loop.seed, self.config.data.train_windows)
        distributed = run.process.distributed
        lineage = run.lineage(self.start, f"finetune {self.config.task.shape}")
        artifact = self._artifact()
        evaluation = DevEvaluation(
            task,
            [self.splits.dev[index] for index in self.splits.dev_sample],
            [self.data.dev[index] for index in self.splits.dev_sample],
            self.config.task.metric,
            is_sampled=not self.splits.reads_all_dev,
            run=run.folder,
            keeps_scores=run.is_main,
            raise_if_stopped=run.process.runtime.stop.raise_if_requested if distributed.world_size == 1 else None,
            on_remark=lambda remark: trainer.remark(remark),
        )
        policy = EvaluationPolicy(
            evaluate=evaluation,
            save_model=lambda: save_model(task, artifact, self.start, lineage, run.folder) if run.is_main else None,
            monitor="error" if self.splits.reads_all_dev else CHOICE_ERROR,
            at_start=loop.budget is not None,  # a new head knows nothing; but a budget needs the time it takes
            patience=loop.patience,
            pruner=pruner,
        )
        context = run.begin(self.config, int(examples.lengths.mean() * loop.batch_size))
        batches = BatchStream(examples, RankShard(distributed.rank, distributed.world_size, loop.micro_tokens))
        trainer = Trainer(task, batches, self.config.optim, loop, context, policy)
        return trainer

    def _artifact(self) -> TaskArtifact:
        assert self.run.record.source is not None
        return TaskArtifact(
            task=self.config.task,
            data=self.config.data,
            dataset=self.run.record.source["dataset"],
            columns=self.data.columns.texts if self.data.columns is not None else (),
            **self.task.learned(self.data.train),
        )

    def emit_start(self, trainer: Trainer) -> None:
        task, data, splits = self.task, self.data, self.splits
        context = trainer.context
        trainer.emit(
            Started(
                machine=context.machine,
                peak_gflops=context.peak_flops.value / 1e9,
                terms=dict(task.terms),
                train_examples=len(data.train),
                dev_examples=len(data.dev),
            )
        )
        # A resumed run starts from its own model, whose head is not the one that the run began with.
        if trainer.saved_state is None and task.head in self.start.model.heads:
            if keeps_head(self.config, self.start):
                trainer.remark(Remark("head-kept", "the model's own head is fine-tuned further"))
            else:
                trainer.remark(Remark("head-replaced", "the model's own head is replaced by a new one"))
        if not splits.reads_all_dev:
            sample = f"{len(splits.dev_sample):,} of {len(splits.dev):,} dev examples"
            text = f"evaluations during training read {sample}, to save time; the last one reads all"
            trainer.remark(Remark("dev-sampled", text))
        for name, features, examples in (("train", splits.train, data.train), ("dev", splits.dev, data.dev)):
            ledger = count_tokens(task, features, examples)[""]
            if ledger.windowed_texts or ledger.cut_texts or ledger.has_many_unknown or ledger.special:
                trainer.remark(Remark("ledger", f"{name}: {ledger}"))

    def finalise(self, state: State) -> None:
        """Results and report of the best model."""
        out = self.run.folder
        encoded = {"train": self.splits.train, "dev": self.splits.dev}
        sample = self.splits.dev_sample
        history = History.read(out, state.best_step, sample) if state.best_step is not None else None
        finalise(out, self.config, self.data, encoded, self.run.device, pruned=state.pruned, history=history)


def _finished(out: Path, metric: str, n_dev: int) -> Finished:
    results = read_results(out)
    selection = results.get("selection") or {}
    return Finished(
        model=str(out / MODEL),
        report=str(out / REPORT),
        metrics=results["metrics"],
        metric=metric,
        interval=tuple(results["intervals"][metric]),
        dev_examples=n_dev,
        extra_eval={split: split_results["metrics"] for split, split_results in results["extra_eval"].items()},
        best_step=selection.get("step"),
        n_evaluations=selection.get("n_evaluations"),
        sampled_examples=selection.get("sampled_examples"),
        last=selection.get("last", {}),
        cross_fitted=selection.get("cross_fitted", {}),
        baseline=results.get("baseline", {}),
    )


def finalise(
    out: Path,
    config: FinetuneConfig,
    data: TaskData,
    encoded: dict[str, list[Features]],
    device: torch.device,
    *,
    pruned: bool = False,
    history: History | None = None,
    seeds: SeedSummary | None = None,
) -> None:
    """Calibrate the best model on dev, evaluate it, and write results and report. `encoded`: splits that have been
    encoded already. Of several `seeds`, the model is the best one's."""
    bench = load(out / MODEL)
    assert bench.artifact is not None  # save_model wrote it
    task = make_task(bench.model, bench.artifact.task)
    is_calibrated = _is_calibrated(bench)
    if is_calibrated:  # as that of a seed: what is saved stays as it is, to the bit; this is a copy, to be scored
        task.scale_logits(bench.artifact.temperature)
    windows = SlidingWindows.from_config(bench.tokenizer, config.data)
    task.to(device)
    splits = {"train": data.train, "dev": data.dev, **data.extra_eval}
    features = {name: encoded.get(name) or task.features(examples, windows) for name, examples in splits.items()}
    results, calibrated = calibrate_and_score(task, features["dev"], data.dev, bench.artifact)
    if history is not None:
        selection = history.selection(task, config.task.metric, results.example_scores)
        results = results.with_selection(selection, metrics_of(task))
    results = replace(
        results,
        baseline=baseline_metrics(task, data.train, features["dev"], data.dev),
        ledgers={name: count_tokens(task, features[name], examples) for name, examples in splits.items()},
        extra_eval={name: evaluate_task(task, features[name], examples) for name, examples in data.extra_eval.items()},
    )
    if not is_calibrated:
        bench.lineage.pop()  # `load` added an entry
        bench.artifact = task.move_temperature_to_head(calibrated)
        bench.save(out / MODEL)
    write_finetune_report(out, results, task, config.task.metric, data.remarks, seeds)
    values = {
        **results.as_dict(),
        "artifact": bench.artifact.model_dump(mode="json"),
        "dev": fingerprint(data.dev),
        "pruned": pruned,
        "seeds": None if seeds is None else seeds.as_dict(),
    }
    write_json(out / RESULTS, values)  # last: a run with this file is complete


def _is_calibrated(bench: Workbench) -> bool:
    """Whether the temperature is in the weights of the head."""
    return bench.artifact is not None and bench.artifact.temperature_in_head


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
    """A run's model on further examples for its task; `columns`: those that the user names."""
    record = RunRecord.read(out, FINETUNE, SEEDS)
    source = Source.model_validate({**(record.source or {}), "skip_bad": skip_bad})
    bench = load(out, device=choose_device(device))
    predictor = bench.predictor
    named_columns = columns if columns is not None and columns.by_option() else None
    eval_data = read_eval_data(source, data, predictor.artifact.task, schema=predictor.task.schema, named=named_columns)
    windows = SlidingWindows.from_config(bench.tokenizer, predictor.artifact.data, on_long)

    def run_and_score(
        examples: Sequence[Example], progress: Progress = no_progress
    ) -> tuple[EvalResults, list[Features]]:
        features = predictor.task.features(examples, windows)
        predictions = predictor.task.decode_all(predictor.run(features, progress), features, examples)
        return score(predictor.task, predictions, examples), features

    results, features = run_and_score(eval_data.dev, progress)
    extra = {name: run_and_score(examples)[0] for name, examples in eval_data.extra_eval.items() if examples}
    ledger = count_tokens(predictor.task, features, eval_data.dev)[""]
    remarks = [*eval_data.remarks, *_seen_in_training(record, out, eval_data.dev)]
    return Evaluation(replace(results, extra_eval=extra), ledger, remarks)


def _seen_in_training(record: RunRecord, out: Path, examples: Sequence[Example]) -> list[Remark]:
    """A remark on examples that the run was trained on, if those can still be read."""
    try:
        train = {example.texts: example.place for example in read_again(record, out).train}
    except BertworksError:
        return []
    seen = [train[example.texts] for example in examples if example.texts in train]
    if not seen:
        return []
    text = f"{len(seen):,} of {len(examples):,} examples are also in train, the first: {seen[0]}"
    return [Remark("evaluated-on-train", f"{text}; the metrics do not show how the model does on new ones")]


def token_subset(features: list[Features], max_tokens: int) -> list[int]:
    """Indices of a random subset with at most so many tokens in total; the same subset every time."""
    order = rng(0, Stream.HELD_OUT).permutation(len(features)).tolist()
    ends = np.cumsum([features[index].length for index in order])
    return sorted(order[: max(1, int(np.searchsorted(ends, max_tokens, side="right")))])


@dataclass
class DevEvaluation:
    """The metrics on dev, the same in every process. Models are chosen by "error", 1 - metric. Where only a part of dev
    is read, they are chosen by "choice_error": that of a model that cannot be told from the best so far is the best
    one's, so that of both the later is kept."""

    task: AnyTask
    features: list[Features]
    examples: list[Example]
    metric: str
    is_sampled: bool = False
    run: Path | None = None  # where the scores of evaluations are
    keeps_scores: bool = False  # in one of several processes
    raise_if_stopped: Callable[[], None] | None = None  # called after each batch
    on_remark: Callable[[Remark], None] = lambda remark: None
    _earlier: list[Floats] = field(default_factory=list, init=False)  # scores of earlier evaluations, if sampled

    def __call__(self, step: int) -> dict[str, float]:
        with evaluation_mode(self.task):
            outputs = run_windows(self.task, self.features, self._progress)
        predictions, _ = tuned_predictions(self.task, outputs, self.features, self.examples)
        scores = score_table(self.task.scores(predictions, self.examples))
        metrics = nan_to_zero(self.task.metric_values(scores))
        errors = {"error": 1.0 - metrics[self.metric]}
        if self.is_sampled:
            errors[CHOICE_ERROR] = 1.0 - self._value_in_choice(step, scores)
        if self.run is not None and self.keeps_scores:
            self._keep_scores(self.run, step, scores)
        return {**metrics, **errors}

    def _value_in_choice(self, step: int, scores: Floats) -> float:
        if not self._earlier and self.run is not None:  # in a process that resumes a run
            self._earlier = earlier_scores(self.run, step)
        value = value_in_choice(by_metric(self.task.metric_values, self.metric), self._earlier, scores)
        self._earlier.append(scores)
        return value

    def _keep_scores(self, run: Path, step: int, scores: Floats) -> None:
        """A full disk is no reason to stop: without the scores, the results lack an estimate for new examples."""
        try:
            write_scores(run, step, scores)
        except SaveFailed as error:
            self.on_remark(Remark("scores-not-saved", f"the scores of this evaluation are not kept: {error}"))

    def _progress(self, done: int, total: int) -> None:
        if self.raise_if_stopped is not None:
            self.raise_if_stopped()


def build_task(config: FinetuneConfig, start: Workbench, train: Sequence[Example]) -> AnyTask:
    """The task with its model: trained weights, a new head; upper layers reinitialised and lower ones frozen as the
    config says."""
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
    """Whether the model's head is of use: one for other classes, or for targets of another scale, is not."""
    return task_class(config.task.shape).keeps_head and start.config.heads.labels == config.model.heads.labels


def _reinitialise(model: Model, n_layers: int, seed: int) -> None:
    """New weights for the top `n_layers`."""
    generator = torch.Generator().manual_seed(seed)
    for group in model.encoder.groups()[-1 - n_layers : -1]:
        for module in group:
            initialise(module, model.encoder.config, generator)


def save_model(task: AnyTask, artifact: TaskArtifact, start: Workbench, lineage: list[str], out: Path) -> None:
    hf_config = {**start.hf_config, "problem_type": task.problem_type}
    model, task_config = task.exported(artifact.task)
    bench = Workbench(with_full_embedding(model), start.tokenizer, Pooling(), hf_config, lineage, [])
    bench.artifact = artifact.model_copy(update={"task": task_config})
    bench.save(out / MODEL)
