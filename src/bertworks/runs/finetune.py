"""Fine-tuning: a model, a task, its examples and the trainer joined into a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from bertworks.config import FinetuneConfig, LearnedConfig, TaskConfig, check_finetune
from bertworks.data.feed import Cut, Feed
from bertworks.errors import BadText, Unsupported
from bertworks.model.init import initialise
from bertworks.model.locate import MODEL, RUN
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.model.resize import refit
from bertworks.runs.folder import Outcome, Record, identity, named, new_record, opened, read_run
from bertworks.runs.results import Results, count_tokens, judge, look, write_results
from bertworks.runs.task_report import write_task_report
from bertworks.tasks.example import Example, Features
from bertworks.tasks.order import Order
from bertworks.tasks.shapes import HEADS, make_task
from bertworks.tasks.source import Data, Source, read_data, read_more
from bertworks.tasks.task import Task
from bertworks.tasks.windows import Reader
from bertworks.text.ledger import Ledger
from bertworks.train.clock import Clock
from bertworks.train.log import Watch
from bertworks.train.machine import matrix_rate
from bertworks.train.ranks import Ranks
from bertworks.train.trainer import Trainer
from bertworks.workbench import Workbench, load

KIND = "finetune"
PROBLEMS = {"classify": "single_label_classification", "regress": "regression", "multilabel": "multi_label_classification"}


def finetune(
    config: FinetuneConfig, data: Data, source: Source, out: Path, *, init: str, ranks: Ranks, watch: Watch, began: float
) -> Outcome:
    """A new run. After torchrun has started the processes again, the same run goes on."""
    record = new_record(KIND, config, init=named(init), source=source.model_dump(mode="json"), data=data.fingerprint)
    return _run(record, data, out, ranks, watch, began, new=True)


def resume(out: Path, *, ranks: Ranks, watch: Watch, began: float) -> Outcome:
    record = read_run(out, KIND)
    data = read_data(Source.model_validate(record["source"]))
    if data.fingerprint != record["data"]:
        raise BadText("these are not the examples that the run began with", place=str(out), remedy="put the files back as they were")
    return _run(record, data, out, ranks, watch, began, new=False)


def _run(record: Record, data: Data, out: Path, ranks: Ranks, watch: Watch, began: float, *, new: bool) -> Outcome:
    config = check_finetune(record["config"], str(out / RUN))
    with opened(record, config.train, out, ranks, watch, new=new) as run:
        start = run.origin()
        if start is None:
            raise Unsupported("a fine-tuning starts from a model", place=str(out))
        task = build_task(config, start, data.train).to(run.device)
        reader = Reader(start.tokenizer, config.data.max_length, config.data.overlap, config.data.on_long)
        train, dev = (task.features(examples, reader) for examples in (data.train, data.dev))
        log = run.begin()
        order = Order(train, config.train.batch_size, config.train.seed)
        tokens = int(order.lengths.mean() * config.train.batch_size)
        trainer = Trainer(
            task,
            Feed(order, Cut.of(ranks.rank, ranks.world, tokens, config.train.micro_tokens)),
            config.optim,
            config.train,
            folder=out,
            log=log,
            ranks=ranks,
            clock=Clock(config.train.budget, began=began),
            stop=run.stop,
            evaluate=Evaluation(task, dev, data.dev, config.task.measure),
            save_model=lambda: save_model(task, config, start, out) if ranks.first else None,
            identity=identity(record),
            machine=run.machine,
            matrix_rate=_rate(config, tokens, run.device),
            judge="error",
            patience=config.train.patience,
        )
        run.go_on(trainer)
        trainer.say({"kind": "start", **run.machine, "matrix_gflops": trainer.matrix_rate / 1e9, "train": len(train), "dev": len(dev)})
        signal = trainer.run()
        if log is not None:
            if not signal:
                report = _finish(out, config, data, {"train": count_tokens(train, data.train, reader.limit)}, dev)
                trainer.say({"kind": "end", "model": str(out / MODEL), "report": str(report)})
            log.close()
        return Outcome(signal, out)


def _finish(out: Path, config: FinetuneConfig, data: Data, ledgers: dict[str, dict[str, Ledger]], dev: list[Features]) -> Path:
    """The best model on dev once more: its confidence put right, what is known about it written down."""
    bench = load(out / MODEL)
    assert bench.learned is not None  # save_model wrote it
    task = make_task(bench.model, bench.learned.task)
    results, changes = judge(task, dev, data.dev)
    ledgers = {**ledgers, "dev": count_tokens(dev, data.dev, config.data.max_length)}
    bench.learned = changes.apply(bench.learned)
    bench.lineage.pop()  # that it was loaded just now
    bench.save(out / MODEL)
    results = replace(results, ledgers=ledgers)
    write_results(out, results, bench)
    return write_task_report(out, results, config.task.measure)


def evaluate(out: Path, where: Path, *, skip_bad: bool, progress: Callable[[int, int], None]) -> tuple[Results, Ledger]:
    """A run's model on other examples of the same kind."""
    record = read_run(out, KIND)
    source = Source.model_validate({**record["source"], "skip_bad": skip_bad})
    bench = load(out)
    learned, task = bench.task()
    examples = read_more(source, where, learned.task).dev
    features = task.features(examples, Reader(bench.tokenizer, learned.data.max_length, learned.data.overlap, learned.data.on_long))
    results = look(task, task.predict(features, examples, progress), examples)
    return results, count_tokens(features, examples, learned.data.max_length)[""]


class Evaluation:
    """All of dev, the same for every process."""

    def __init__(self, task: Task, features: list[Features], examples: list[Example], measure: str) -> None:
        self.task, self.features, self.examples, self.measure = task, features, examples, measure

    def __call__(self) -> dict[str, float]:
        measures = self.task.score(self.task.predict(self.features, self.examples), self.examples)
        return {**measures, "error": 1.0 - measures[self.measure]}


def build_task(config: FinetuneConfig, start: Workbench, train: list[Example]) -> Task:
    """The task with its model: old weights, new head; upper layers anew and lower ones fixed if so asked."""
    model = refit(start.model, config.model, [HEADS[config.task.shape]], config.train.seed)
    _renew(model, config.train.reinit, config.train.seed)
    _freeze(model, config.train.freeze)
    return make_task(model, config.task, _class_weights(config.task, train)).train()


def _renew(model: Model, n_layers: int, seed: int) -> None:
    encoder, generator = model.encoder, torch.Generator().manual_seed(seed)
    for attention, ffn in list(encoder.layers())[encoder.config.n_layers - n_layers :]:
        for part in (attention, ffn):
            initialise(part, encoder.config, generator)


def _freeze(model: Model, n_layers: int) -> None:
    """Parts that a higher layer uses too go on learning."""
    if n_layers:
        still: list[nn.Module] = [model.encoder.embed, model.encoder.project]
        moving = {id(part) for pair in list(model.encoder.layers())[n_layers:] for part in pair}
        still += [part for pair in list(model.encoder.layers())[:n_layers] for part in pair if id(part) not in moving]
        for part in still:
            part.requires_grad_(False)


def _class_weights(task: TaskConfig, train: list[Example]) -> list[float] | None:
    """So that every class weighs the same in all, and an example one on average."""
    if task.class_weights == "none" or task.shape != "classify":
        return None
    counts = Counter(str(example.answer) for example in train)
    return [len(train) / (len(task.labels) * counts[label]) if counts[label] else 0.0 for label in task.labels]


def save_model(task: Task, config: FinetuneConfig, start: Workbench, out: Path) -> None:
    hf_config = {**start.hf_config, "problem_type": PROBLEMS.get(config.task.shape)}
    lineage = [*start.lineage, f"finetune {config.task.shape}"]
    bench = Workbench(task.finished(), start.tokenizer, Pooling(), hf_config, list(dict.fromkeys(lineage)), [])
    bench.learned = LearnedConfig(task=config.task.model_copy(update={"shift": 0.0, "scale": 1.0}), data=config.data)
    bench.save(out / MODEL)


def _rate(config: FinetuneConfig, tokens: int, device: torch.device) -> float:
    encoder = config.model.encoder
    return matrix_rate(max(1, min(tokens, 4096)), encoder.hidden_size, encoder.ffn_size, device, torch.get_default_dtype())
