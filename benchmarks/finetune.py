"""How fast a classifier is fine-tuned and asked: bertworks against transformers' Trainer with dynamic padding.

MiniLM (6 x 384) on SST-2's sentences and on MRPC's pairs, batches of 32 examples in random order, AdamW, float32, each
side with its own defaults (theirs has dropout in attention; `--set train.attention_dropout=0.1` gives it to ours too).
Both sides run their own trainer, whole, and the time between steps is read off it; evaluation and saving are not
counted. The sides run in turn in one process, several rounds; the ratio of a round compares neighbours in time, and the
median is printed. Predictions go from texts to classes, with tokenising; theirs by `Trainer.predict` in batches of 32,
and by a pipeline as its documentation shows it. The limit is what the bare linear layers of our predictions would
reach.

    make bench        (or: python benchmarks/finetune.py --data ../shared/data --rounds 5)
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import bertworks
from bertworks.config import FinetuneConfig, TaskArtifact
from bertworks.data.batches import BatchStream, Cursor, RankShard, Step
from bertworks.datasets.checks import TaskData
from bertworks.datasets.example import Example
from bertworks.model.locate import MODEL
from bertworks.model.resize import use_partial_embedding
from bertworks.runs.finetune import build_task, save_model
from bertworks.runs.settings import resolve_finetune
from bertworks.tasks.features import ShuffledExamples, collate, token_ids
from bertworks.tasks.inference import BATCH_TOKENS, token_batches
from bertworks.tasks.source import Source, describe_task, read_data
from bertworks.tasks.windows import SlidingWindows
from bertworks.train.checkpoint import CHECKPOINTS
from bertworks.train.clock import Clock
from bertworks.train.policy import EvaluationPolicy
from bertworks.train.trainer import TrainContext, Trainer

BATCH, WARM = 32, 3  # examples of a step; steps that are not timed
Work = Callable[[], float]
"""Seconds for each example."""


class Stamped:
    """Steps, and the time at which each was asked for."""

    def __init__(self, feed: BatchStream) -> None:
        self.feed, self.times = feed, list[float]()

    def __call__(self, place: Cursor) -> Iterator[Step]:
        for step in self.feed(place):
            self.times.append(time.perf_counter())
            yield step


def per_example(times: list[float]) -> float:
    return (times[-1] - times[WARM]) / (len(times) - 1 - WARM) / BATCH


def our_training(start: bertworks.Workbench, data: TaskData, config: FinetuneConfig) -> Work:
    def train() -> float:
        task, reader = build_task(config, start, data.train), SlidingWindows.from_config(start.tokenizer, config.data)
        features = task.features(data.train, reader)
        use_partial_embedding(task.model, torch.from_numpy(token_ids([*features, *task.features(data.dev, reader)])))
        stamped = Stamped(BatchStream(ShuffledExamples(features, BATCH, 0), RankShard()))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / CHECKPOINTS).mkdir()
            context = TrainContext(
                folder=Path(folder), identity="", machine={}, clock=Clock(None, began=time.monotonic())
            )
            policy = EvaluationPolicy(evaluate=lambda: {}, save_model=lambda: None)
            Trainer(task, stamped, config.optim, config.train, context, policy).run()
        return per_example(stamped.times)

    return train


def their_trainer(folder: Path, out: str, rows: list[dict[str, Any]], steps: int) -> tuple[Any, list[float]]:
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        TrainerCallback,
        TrainingArguments,
    )
    from transformers import Trainer as TheirTrainer
    from transformers.trainer_callback import PrinterCallback

    times: list[float] = []

    class Stamp(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    settings: dict[str, Any] = {
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": BATCH,
        "max_steps": steps,
    }
    settings |= {
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "logging_strategy": "no",
    }
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    trainer = TheirTrainer(
        model, TrainingArguments(out, **settings), DataCollatorWithPadding(tokenizer), rows, callbacks=[Stamp()]
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, times


def their_training(folder: Path, data: TaskData, steps: int) -> Work:
    rows = their_rows(folder, [example.texts for example in data.train])
    labels = sorted({str(example.answer) for example in data.train})
    rows = [{**row, "labels": labels.index(str(example.answer))} for row, example in zip(rows, data.train, strict=True)]

    def train() -> float:
        with tempfile.TemporaryDirectory() as out:
            trainer, times = their_trainer(folder, out, rows, steps)
            trainer.train()
        return per_example(times)

    return train


def their_rows(folder: Path, texts: list[tuple[str, ...]]) -> list[dict[str, Any]]:
    from transformers import AutoTokenizer

    encoded = AutoTokenizer.from_pretrained(folder)(*map(list, zip(*texts, strict=True)), truncation=True)
    return [{name: values[at] for name, values in encoded.items()} for at in range(len(texts))]


def predictions(folder: Path, texts: list[tuple[str, ...]]) -> tuple[Work, Work, Work, Work]:
    """Their Trainer, their pipeline as its documentation shows it, ours, and the least that ours can take."""
    from transformers import pipeline

    bench, pipe = bertworks.load(folder), pipeline("text-classification", model=str(folder), device="cpu")
    trainer, _ = their_trainer(folder, tempfile.gettempdir(), [], 1)
    inputs = [one[0] if len(one) == 1 else one for one in texts]
    named = [dict(zip(("text", "text_pair"), one, strict=False)) for one in texts]

    def timed(work: Callable[[], Any]) -> Work:
        def seconds() -> float:
            start = time.perf_counter()
            work()
            return (time.perf_counter() - start) / len(texts)

        return seconds

    works = (lambda: trainer.predict(their_rows(folder, texts)), lambda: pipe(named), lambda: bench.predict(inputs))
    return timed(works[0]), timed(works[1]), timed(works[2]), timed(products(bench, texts))


def products(bench: bertworks.Workbench, texts: list[tuple[str, ...]]) -> Callable[[], None]:
    """The linear layers alone on the very batches of a prediction, the last one's for the tokens that are read: in
    float32 nothing can be faster."""
    features = [one.features for one in bench.predictor.prepare([Example(one) for one in texts])]
    batches = [collate(features, members) for members in token_batches([one.length for one in features], BATCH_TOKENS)]
    *layers, (attention, ffn) = bench.model.encoder.layers()
    of_all = [m.weight for pair in layers for part in pair for m in part.modules() if isinstance(m, torch.nn.Linear)]
    of_all += [attention.attn.k.weight, attention.attn.v.weight]
    of_read = [attention.attn.q.weight, attention.attn.out.weight, ffn.up.weight, ffn.down.weight]
    work = [
        (n, weight)
        for batch in batches
        for n, some in ((len(batch.ids), of_all), (len(batch.positions), of_read))
        for weight in some
    ]
    inputs = {(n, weight.size(1)): torch.randn(n, weight.size(1)) for n, weight in work}

    @torch.inference_mode()
    def run() -> None:
        for n, weight in work:
            torch.nn.functional.linear(inputs[n, weight.size(1)], weight)

    return run


def compare(title: str, theirs: Work, ours: Work, rounds: int) -> None:
    times = [(theirs(), ours()) for _ in range(rounds + 1)][1:]  # the first round warms up
    speeds = [1 / statistics.median(side) for side in zip(*times, strict=True)]
    ratios = [their / our for their, our in times]
    print(
        f"{title:24} theirs {speeds[0]:>7,.1f}  ours {speeds[1]:>7,.1f} examples/s  ratio {statistics.median(ratios):.2f}",
        end="  ",
    )
    print(f"(rounds {min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main() -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared/data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    arguments = parser.parse_args()
    start = bertworks.load("minilm")
    for name, folder in (("sst2", "SST-2"), ("mrpc", "MRPC")):
        source = Source(dataset=name, folder=str(arguments.data / "tasks/glue" / folder), shape="classify")
        data = read_data(source)
        settings = [
            f"train.batch_size={BATCH}",
            "train.evaluations=0",
            "train.checkpoint_every=1000000",
            *arguments.settings,
        ]
        config = resolve_finetune(
            start, describe_task(data, source), settings=settings, options={"steps": arguments.steps}
        )
        with tempfile.TemporaryDirectory() as out:
            artifact = TaskArtifact(task=config.task, data=config.data)
            save_model(build_task(config, start, data.train), artifact, start, start.lineage, Path(out))
            model = Path(out) / MODEL
            training = their_training(model, data, arguments.steps), our_training(start, data, config)
            compare(f"{name}, fine-tuning", *training, arguments.rounds)
            trainer, pipe, ours, least = predictions(model, [example.texts for example in data.dev])
            compare(f"{name}, Trainer.predict", trainer, ours, arguments.rounds)
            compare(f"{name}, the limit", trainer, least, arguments.rounds)
            compare(f"{name}, pipeline", pipe, ours, arguments.rounds)


if __name__ == "__main__":
    main()
