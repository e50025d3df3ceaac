"""Speed of fine-tuning and prediction: bertworks against transformers' Trainer with dynamic padding.

MiniLM (6 x 384) on SST-2's sentences and on MRPC's pairs, batches of 32 examples in random order, AdamW, float32, each
side with its own defaults (theirs has dropout in attention; `--set train.attention_dropout=0.1` gives it to ours too).
Both sides run their own complete trainer, and the time between steps is measured; evaluation and saving are not
counted. The sides take turns in one process for several rounds; ratios are taken within a round, where the machine is
in the same state, and their median is printed. Predictions go from texts to classes, with tokenisation; theirs by
`Trainer.predict` in batches of 32, and by a pipeline as its documentation shows it. The limit is the speed of the bare
linear layers of our predictions.

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
from bertworks.runs.settings import FINETUNE, parse_settings, resolve_finetune
from bertworks.tasks.features import ShuffledExamples, collate, token_ids
from bertworks.tasks.inference import BATCH_TOKENS, token_batches
from bertworks.tasks.source import Source, describe_task, read_data
from bertworks.tasks.windows import SlidingWindows
from bertworks.train.checkpoint import CHECKPOINTS
from bertworks.train.clock import Clock
from bertworks.train.policy import EvaluationPolicy
from bertworks.train.trainer import TrainContext, Trainer

BATCH_SIZE = 32
WARMUP_STEPS = 3  # not timed
Work = Callable[[], float]
"""Returns seconds per example."""


class TimedBatches:
    """Steps, and the time at which each was requested."""

    def __init__(self, batches: BatchStream) -> None:
        self.batches = batches
        self.times: list[float] = []

    def __call__(self, cursor: Cursor) -> Iterator[Step]:
        for step in self.batches(cursor):
            self.times.append(time.perf_counter())
            yield step


def seconds_per_example(times: list[float]) -> float:
    return (times[-1] - times[WARMUP_STEPS]) / (len(times) - 1 - WARMUP_STEPS) / BATCH_SIZE


def our_training(initial: bertworks.Workbench, data: TaskData, config: FinetuneConfig) -> Work:
    def train() -> float:
        task = build_task(config, initial, data.train)
        windows = SlidingWindows.from_config(initial.tokenizer, config.data)
        features = task.features(data.train, windows)
        use_partial_embedding(task.model, torch.from_numpy(token_ids([*features, *task.features(data.dev, windows)])))
        batches = TimedBatches(BatchStream(ShuffledExamples(features, BATCH_SIZE, 0), RankShard()))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / CHECKPOINTS).mkdir()
            context = TrainContext(
                folder=Path(folder), identity="", machine={}, clock=Clock(None, began=time.monotonic())
            )
            policy = EvaluationPolicy(evaluate=lambda: {}, save_model=lambda: None)
            Trainer(task, batches, config.optim, config.train, context, policy).run()
        return seconds_per_example(batches.times)

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

    class StepTimes(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    settings: dict[str, Any] = {
        "per_device_train_batch_size": BATCH_SIZE,
        "per_device_eval_batch_size": BATCH_SIZE,
        "max_steps": steps,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "logging_strategy": "no",
    }
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer = TheirTrainer(
        model, TrainingArguments(out, **settings), DataCollatorWithPadding(tokenizer), rows, callbacks=[StepTimes()]
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
        return seconds_per_example(times)

    return train


def their_rows(folder: Path, texts: list[tuple[str, ...]]) -> list[dict[str, Any]]:
    from transformers import AutoTokenizer

    encoded = AutoTokenizer.from_pretrained(folder)(*map(list, zip(*texts, strict=True)), truncation=True)
    return [{name: values[at] for name, values in encoded.items()} for at in range(len(texts))]


def predictions(folder: Path, texts: list[tuple[str, ...]]) -> tuple[Work, Work, Work, Work]:
    """Their Trainer, their pipeline as its documentation shows it, ours, and the lower bound of ours."""
    from transformers import pipeline

    bench = bertworks.load(folder)
    pipe = pipeline("text-classification", model=str(folder), device="cpu")
    trainer, _ = their_trainer(folder, tempfile.gettempdir(), [], 1)
    inputs = [row[0] if len(row) == 1 else row for row in texts]
    pipe_inputs = [dict(zip(("text", "text_pair"), row, strict=False)) for row in texts]

    def timed(work: Callable[[], Any]) -> Work:
        def seconds() -> float:
            start = time.perf_counter()
            work()
            return (time.perf_counter() - start) / len(texts)

        return seconds

    return (
        timed(lambda: trainer.predict(their_rows(folder, texts))),
        timed(lambda: pipe(pipe_inputs)),
        timed(lambda: bench.predict(inputs)),
        timed(matrix_products(bench, texts)),
    )


def matrix_products(bench: bertworks.Workbench, texts: list[tuple[str, ...]]) -> Callable[[], None]:
    """The linear layers alone on the batches of a prediction, the last layer only for the tokens that the head reads: a
    lower bound of the time in float32."""
    features = [prepared.features for prepared in bench.predictor.prepare([Example(row) for row in texts])]
    lengths = [example.length for example in features]
    batches = [collate(features, members) for members in token_batches(lengths, BATCH_TOKENS)]
    *layers, top = bench.model.encoder.layers()
    attention, ffn = top.attention, top.ffn
    lower = [part for layer in layers for part in (layer.attention, layer.ffn)]
    for_all = [m.weight for part in lower for m in part.modules() if isinstance(m, torch.nn.Linear)]
    for_all += [attention.attn.k.weight, attention.attn.v.weight]
    for_read = [attention.attn.q.weight, attention.attn.out.weight, ffn.up.weight, ffn.down.weight]
    products = [
        (n, weight)
        for batch in batches
        for n, weights in ((len(batch.ids), for_all), (len(batch.positions), for_read))
        for weight in weights
    ]
    inputs = {(n, weight.size(1)): torch.randn(n, weight.size(1)) for n, weight in products}

    @torch.inference_mode()
    def run() -> None:
        for n, weight in products:
            torch.nn.functional.linear(inputs[n, weight.size(1)], weight)

    return run


def compare(title: str, theirs: Work, ours: Work, rounds: int) -> None:
    times = [(theirs(), ours()) for _ in range(rounds + 1)][1:]  # the first round warms up
    speeds = [1 / statistics.median(side) for side in zip(*times, strict=True)]
    ratios = [their / our for their, our in times]
    print(
        f"{title:24} theirs {speeds[0]:>7,.1f}  ours {speeds[1]:>7,.1f} examples/s  "
        f"ratio {statistics.median(ratios):.2f}  (rounds {min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


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
    initial = bertworks.load("minilm")
    for name, folder in (("sst2", "SST-2"), ("mrpc", "MRPC")):
        source = Source(dataset=name, folder=str(arguments.data / "tasks/glue" / folder), shape="classify")
        data = read_data(source)
        settings = [
            f"train.batch_size={BATCH_SIZE}",
            "train.evaluations=0",
            "train.checkpoint_every=1000000",
            *arguments.settings,
        ]
        config = resolve_finetune(
            initial,
            describe_task(data, source),
            settings=parse_settings(settings, FINETUNE, {"train.steps": arguments.steps}),
        )
        with tempfile.TemporaryDirectory() as out:
            artifact = TaskArtifact(task=config.task, data=config.data)
            save_model(build_task(config, initial, data.train), artifact, initial, initial.lineage, Path(out))
            model = Path(out) / MODEL
            theirs = their_training(model, data, arguments.steps)
            compare(f"{name}, fine-tuning", theirs, our_training(initial, data, config), arguments.rounds)
            trainer, pipe, ours, bound = predictions(model, [example.texts for example in data.dev])
            compare(f"{name}, Trainer.predict", trainer, ours, arguments.rounds)
            compare(f"{name}, the limit", trainer, bound, arguments.rounds)
            compare(f"{name}, pipeline", pipe, ours, arguments.rounds)


if __name__ == "__main__":
    main()
