"""Fine-tuning: a model, a task, its examples and the trainer joined into a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bertworks.config import FinetuneConfig, LearnedConfig, TaskConfig, check_finetune
from bertworks.data.chance import Purpose, chance
from bertworks.data.feed import Feed, Share
from bertworks.errors import BadText, NotFound, Remark, Unsupported
from bertworks.files import write_json
from bertworks.model.attention import Attention
from bertworks.model.init import initialise
from bertworks.model.locate import MODEL, RUN
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.model.resize import refit, use_few_rows, with_all_rows
from bertworks.runs.folder import Outcome, Record, identity, named, new_record, opened, read_run
from bertworks.runs.report import REPORT
from bertworks.runs.results import RESULTS, OverSeeds, Results, answers, count_tokens, judge, look
from bertworks.runs.task_report import write_task_report
from bertworks.tasks.checks import Data, fingerprint
from bertworks.tasks.example import Example, Features, tokens_in
from bertworks.tasks.order import Order
from bertworks.tasks.rows import Columns
from bertworks.tasks.shapes import HEADS, make_task
from bertworks.tasks.source import Source, read_data, read_more
from bertworks.tasks.task import Progress, Task
from bertworks.tasks.windows import Reader
from bertworks.text.ledger import Ledger
from bertworks.train.clock import Clock
from bertworks.train.log import Watch
from bertworks.train.looks import Hopeless, Looks, never
from bertworks.train.machine import choose_device, matrix_rate
from bertworks.train.ranks import Ranks
from bertworks.train.trainer import Trainer
from bertworks.workbench import Workbench, load

KIND, SEEDS = "finetune", "seeds"
LOOK_TOKENS = 65_536  # of dev, that a look may read on the way of a run by the clock
KINDS = (KIND, SEEDS)
PROBLEMS = {"classify": "single_label_classification", "regress": "regression", "multilabel": "multi_label_classification"}


def finetune(
    config: FinetuneConfig,
    data: Data,
    source: Source,
    out: Path,
    *,
    init: str,
    ranks: Ranks,
    watch: Watch,
    began: float,
    hopeless: Hopeless = never,
) -> Outcome:
    """A new run. After torchrun has started the processes again, the same run goes on."""
    record = new_record(KIND, config, init=named(init), source=source.settled(data.columns), data=data.fingerprint)
    return _run(record, data, out, ranks, watch, began, hopeless, new=True)


def resume(out: Path, *, ranks: Ranks, watch: Watch, began: float, hopeless: Hopeless = never) -> Outcome:
    record = read_run(out, KIND)
    return _run(record, read_again(record, out), out, ranks, watch, began, hopeless, new=False)


def read_again(record: Record, out: Path) -> Data:
    """The examples of a run, if they are still the same."""
    remedy = "put the files back as they were"
    try:
        data = read_data(Source.model_validate(record["source"]))
    except NotFound as error:
        raise NotFound(f"the examples of this run: {error.cause}", place=error.place, remedy=remedy) from None
    if data.fingerprint != record["data"]:
        raise BadText("these are not the examples that the run began with", place=str(out), remedy=remedy, code="examples-changed")
    return data


def _run(record: Record, data: Data, out: Path, ranks: Ranks, watch: Watch, began: float, hopeless: Hopeless, *, new: bool) -> Outcome:
    config = check_finetune(record["config"], str(out / RUN))
    with opened(record, config.train, out, ranks, watch, new=new) as run:
        start = run.origin()
        if start is None:
            raise Unsupported("a fine-tuning starts from a model", place=str(out))
        task = build_task(config, start, data.train)
        reader = Reader.of(start.tokenizer, config.data)
        train, dev = (task.features(examples, reader) for examples in (data.train, data.dev))
        use_few_rows(task.model, torch.from_numpy(tokens_in([*train, *dev])))
        task.to(run.device)
        log = run.begin()
        lineage, source = run.lineage(start, f"finetune {config.task.shape}"), record["source"]
        some = part_of(dev, LOOK_TOKENS) if config.train.budget is not None else list(range(len(dev)))
        seen, shown = [dev[at] for at in some], [data.dev[at] for at in some]
        whole = sum(one.length for one in dev) / sum(one.length for one in seen)  # dev, in looks
        order = Order(train, config.train.batch_size, config.train.seed)
        tokens = int(order.lengths.mean() * config.train.batch_size)
        trainer = Trainer(
            task,
            Feed(order, Share(ranks.rank, ranks.world, config.train.micro_tokens)),
            config.optim,
            config.train,
            folder=out,
            log=log,
            ranks=ranks,
            clock=Clock(config.train.budget, began=began),
            stop=run.stop,
            evaluate=Evaluation(task, seen, shown, config.task.measure, run.stop.check if ranks.world == 1 else None),
            save_model=lambda: save_model(task, config, start, lineage, out, data.columns, source["dataset"]) if ranks.first else None,
            identity=identity(record),
            machine=run.machine,
            matrix_rate=_rate(config, tokens, run.device),
            looks=Looks(
                "error",
                first=config.train.budget is not None,  # a new head has nothing to show; but a budget has to know how long a look takes
                patience=config.train.patience,
                hopeless=hopeless,
                after=whole * (1 + sum(map(len, data.others.values())) / len(data.dev)),  # `conclude` reads all splits once more
            ),
        )
        run.go_on(trainer)
        trainer.say({"kind": "start", **run.machine, "matrix_gflops": trainer.matrix_rate / 1e9, "train": len(train), "dev": len(dev)})
        if HEADS[config.task.shape] in start.model.heads:
            kept = keeps_head(config, start)
            text = f"the model's own head {'goes on learning' if kept else 'is replaced by a new one'}"
            trainer.say({"kind": "remark", "code": "head-kept" if kept else "head-replaced", "text": text})
        if len(some) < len(dev):
            text = f"looks at dev on the way read {len(some):,} of its {len(dev):,} examples, to save time; the end reads all"
            trainer.say({"kind": "remark", "code": "looks-at-part-of-dev", "examples": len(some), "of": len(dev), "text": text})
        for name, features, examples in (("train", train, data.train), ("dev", dev, data.dev)):
            ledger = count_tokens(task, features, examples, reader)[""]
            if ledger.windowed_texts or ledger.cut_texts or ledger.much_unknown:
                trainer.say({"kind": "remark", "code": "ledger", "split": name, "ledger": vars(ledger), "text": f"{name}: {ledger}"})
        signal = trainer.run()
        if log is not None:
            if not signal:
                results = conclude(out, config, data, {"train": train, "dev": dev}, hopeless=trainer.state.hopeless)
                others = {name: other.measures for name, other in results.others.items()}
                end = {"kind": "end", "model": str(out / MODEL), "report": str(out / REPORT), "kept": results.measures, "others": others}
                trainer.say({**end, "measure": config.task.measure, "interval": results.intervals[config.task.measure], "dev": len(dev)})
            log.close()
        return Outcome(signal, out, asked=run.stop.signal)


def conclude(
    out: Path,
    config: FinetuneConfig,
    data: Data,
    read: Mapping[str, list[Features]],
    *,
    hopeless: bool = False,
    seeds: OverSeeds | None = None,
) -> Results:
    """The best model on dev once more: its confidence put right, what is known about it written down. `read`: splits that have been read
    already. Of several `seeds`, the model is the best one's."""
    bench = load(out / MODEL)
    assert bench.learned is not None  # save_model wrote it
    task, reader = make_task(bench.model, bench.learned.task), Reader.of(bench.tokenizer, config.data)
    task.to(choose_device(config.train, 0))
    splits = {"train": data.train, "dev": data.dev, **data.others}
    features = {name: read.get(name) or task.features(examples, reader) for name, examples in splits.items()}
    results, changes = judge(task, features["dev"], data.dev)
    results = replace(
        results,
        ledgers={name: count_tokens(task, features[name], examples, reader) for name, examples in splits.items()},
        others={name: look(task, task.predict(features[name], examples), examples) for name, examples in data.others.items()},
    )
    bench.learned = changes.apply(bench.learned)
    bench.lineage.pop()  # that it was loaded just now
    bench.save(out / MODEL)
    about = {"learned": bench.learned.model_dump(mode="json"), "dev": fingerprint(data.dev), "hopeless": hopeless}
    write_task_report(out, results, config.task.measure, data.remarks, seeds)
    write_json(out / RESULTS, {**results.as_dict(), **about, "seeds": None if seeds is None else seeds.as_dict()})  # last: it is complete
    return results


def evaluate(
    out: Path,
    where: Path,
    *,
    text: str | None = None,
    pair: tuple[str, ...] = (),
    label: str | None = None,
    skip_bad: bool = False,
    progress: Progress = lambda done, total: None,
) -> tuple[Results, Ledger, list[Remark]]:
    """A run's model on other examples of the same kind."""
    named = {name: value for name, value in {"text": text, "pair": pair, "label": label}.items() if value}
    source = Source.model_validate({**read_run(out, *KINDS)["source"], **named, "skip_bad": skip_bad})
    bench = load(out)
    learned, task = bench.task()
    data = read_more(source, where, learned.task, strict=bool(named))
    examples = data.dev
    reader = Reader.of(bench.tokenizer, learned.data)
    features = task.features(examples, reader)
    results = look(task, task.predict(features, examples, progress), examples)
    others = {name: look(task, task.predict(task.features(more, reader), more), more) for name, more in data.others.items() if more}
    return replace(results, others=others), count_tokens(task, features, examples, reader)[""], data.remarks


def part_of(features: list[Features], tokens: int) -> list[int]:
    """Which examples have about so many tokens together, or all; always the same ones."""
    order = chance(0, Purpose.HELD_OUT).permutation(len(features)).tolist()
    ends = np.cumsum([features[at].length for at in order])
    return sorted(order[: max(1, int(np.searchsorted(ends, tokens, side="right")))])


class Evaluation:
    """Dev, the same for every process. `check` may break it off."""

    def __init__(
        self, task: Task, features: list[Features], examples: list[Example], measure: str, check: Callable[[], None] | None = None
    ) -> None:
        self.task, self.features, self.examples, self.measure, self.check = task, features, examples, measure, check

    def __call__(self) -> dict[str, float]:
        predictions, _ = answers(self.task, self.task.outputs(self.features, self._progress), self.features, self.examples)
        measures = self.task.score(predictions, self.examples)
        return {**measures, "error": 1.0 - measures[self.measure]}

    def _progress(self, done: int, total: int) -> None:
        if self.check is not None:
            self.check()


def build_task(config: FinetuneConfig, start: Workbench, train: list[Example]) -> Task:
    """The task with its model: old weights, new head; upper layers anew and lower ones fixed if so asked."""
    keep = keeps_head(config, start)
    model = refit(start.model, config.model, [HEADS[config.task.shape]], config.train.seed, keep_heads=keep)
    model.encoder.recompute = config.train.recompute
    _renew(model, config.train.reinit, config.train.seed)
    _freeze(model, config.train.freeze)
    if config.train.attention_dropout is not None:
        for attention in (module for module in model.modules() if isinstance(module, Attention)):
            attention.drop.p = config.train.attention_dropout
    return make_task(model, config.task, _class_weights(config.task, train)).train()


def keeps_head(config: FinetuneConfig, start: Workbench) -> bool:
    """A head for other classes, or for numbers in other units, would only be in the way."""
    return config.task.shape != "regress" and start.config.heads.labels == config.model.heads.labels


def _renew(model: Model, n_layers: int, seed: int) -> None:
    encoder, generator = model.encoder, torch.Generator().manual_seed(seed)
    for attention, ffn in list(encoder.layers())[encoder.config.n_layers - n_layers :]:
        for part in (attention, ffn):
            initialise(part, encoder.config, generator)


def _freeze(model: Model, n_layers: int) -> None:
    if model.encoder.config.attention == "relative":
        model.encoder.blank.requires_grad_(False)  # of pre-training; no task asks for it
    if n_layers:
        layers = list(model.encoder.layers())[:n_layers]
        for part in (model.encoder.embed, model.encoder.project, *(part for pair in layers for part in pair)):
            part.requires_grad_(False)


def _class_weights(task: TaskConfig, train: list[Example]) -> list[float] | None:
    """So that every class weighs the same in all, and an example one on average."""
    if task.class_weights == "none" or task.shape != "classify":
        return None
    counts = Counter(str(example.answer) for example in train)
    return [len(train) / (len(task.labels) * counts[label]) if counts[label] else 0.0 for label in task.labels]


def save_model(
    task: Task,
    config: FinetuneConfig,
    start: Workbench,
    lineage: list[str],
    out: Path,
    columns: Columns | None = None,
    dataset: str | None = None,
) -> None:
    hf_config = {**start.hf_config, "problem_type": PROBLEMS.get(config.task.shape)}
    model, left = task.finished(config.task)
    bench = Workbench(with_all_rows(model), start.tokenizer, Pooling(), hf_config, lineage, [])
    texts = columns.texts if columns is not None else ()
    bench.learned = LearnedConfig(task=left, data=config.data, dataset=dataset, columns=texts)
    bench.save(out / MODEL)


def _rate(config: FinetuneConfig, tokens: int, device: torch.device) -> float:
    encoder = config.model.encoder
    return matrix_rate(max(1, min(tokens, 4096)), encoder.hidden_size, encoder.ffn_size, device, torch.get_default_dtype())
