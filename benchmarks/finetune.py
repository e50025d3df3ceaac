"""How fast a classifier is fine-tuned and asked: bertworks against transformers' Trainer with dynamic padding.

MiniLM (6 x 384) on SST-2's sentences and on MRPC's pairs, batches of 32 examples in random order, AdamW, float32. Both sides run their
own trainer, whole, and the time between steps is read off it; evaluation and saving are not counted. The sides run in turn in one process,
several rounds; the ratio of a round compares neighbours in time, and the median is printed. Predictions go from texts to classes, with
tokenising, in the batches that each side makes: theirs of 32 in the given order.

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

import bertworks
from bertworks.config import FinetuneConfig
from bertworks.data.feed import Cut, Feed, Place, Step
from bertworks.runs.finetune import build_task
from bertworks.runs.folder import CHECKPOINTS
from bertworks.runs.settings import settle_task
from bertworks.tasks.order import Order
from bertworks.tasks.source import Data, Source, describe_task, read_data
from bertworks.tasks.windows import Reader
from bertworks.train.clock import Clock
from bertworks.train.ranks import Ranks
from bertworks.train.signals import Stop
from bertworks.train.trainer import Trainer

BATCH, WARM = 32, 3  # examples; steps that are not timed
Seconds = Callable[[int], float]
"""Of a training of so many steps: seconds for each example."""


class Stamped:
    """Steps, and the time at which each was asked for."""

    def __init__(self, feed: Feed) -> None:
        self.feed, self.times = feed, list[float]()

    def __call__(self, place: Place) -> Iterator[Step]:
        for step in self.feed(place):
            self.times.append(time.perf_counter())
            yield step


def per_example(times: list[float]) -> float:
    return (times[-1] - times[WARM]) / (len(times) - 1 - WARM) / BATCH


def ours(data: Data, source: Source) -> Seconds:
    start = bertworks.load("minilm")

    def train(steps: int) -> float:
        settings = [f"train.batch_size={BATCH}", "train.evaluations=0", "train.checkpoint_every=1000000"]
        config: FinetuneConfig = settle_task(start, describe_task(data, source), settings=settings, limit={"steps": steps})
        task = build_task(config, start, data.train)
        features = task.features(data.train, Reader.of(start.tokenizer, config.data))
        stamped = Stamped(Feed(Order(features, BATCH, 0), Cut()))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / CHECKPOINTS).mkdir()
            trainer = Trainer(
                task,
                stamped,
                config.optim,
                config.train,
                folder=Path(folder),
                log=None,
                ranks=Ranks(),
                clock=Clock(None, began=time.monotonic()),
                stop=Stop(),
                evaluate=lambda: {},
                save_model=lambda: None,
                identity="",
                machine={},
                matrix_rate=0.0,
            )
            trainer.run()
        return per_example(stamped.times)

    return train


def theirs(folder: Path, data: Data) -> Seconds:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, TrainerCallback, TrainingArguments
    from transformers import Trainer as TheirTrainer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    rows = their_rows(tokenizer, data)

    def train(steps: int) -> float:
        times: list[float] = []

        class Stamp(TrainerCallback):
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                times.append(time.perf_counter())

        with tempfile.TemporaryDirectory() as out:
            arguments = TrainingArguments(
                out,
                per_device_train_batch_size=BATCH,
                max_steps=steps,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            )
            trainer = TheirTrainer(model, arguments, DataCollatorWithPadding(tokenizer), rows, callbacks=[Stamp()])
            trainer.train()
        return per_example(times)

    return train


def their_rows(tokenizer: Any, data: Data) -> list[dict[str, Any]]:
    labels = sorted({str(example.answer) for example in data.train})
    encoded = tokenizer(*map(list, zip(*(example.texts for example in data.train), strict=True)), truncation=True)
    return [
        {**{name: values[at] for name, values in encoded.items()}, "labels": labels.index(str(example.answer))}
        for at, example in enumerate(data.train)
    ]


def main() -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared/data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=25)
    arguments = parser.parse_args()
    for name, folder in (("sst2", "SST-2"), ("mrpc", "MRPC")):
        source = Source(dataset=name, folder=str(arguments.data / "tasks/glue" / folder), shape="classify")
        data = read_data(source)
        with tempfile.TemporaryDirectory() as folder:
            bertworks.load("minilm").save(folder)
            sides = {"theirs": theirs(Path(folder), data), "ours": ours(data, source)}
        times: dict[str, list[float]] = {side: [] for side in sides}
        for at in range(arguments.rounds + 1):
            for side, train in sides.items():
                taken = train(arguments.steps)
                if at:
                    times[side].append(taken)
        ratios = [t / o for t, o in zip(times["theirs"], times["ours"], strict=True)]
        print(
            name,
            {side: f"{1 / statistics.median(values):,.0f} examples/s" for side, values in times.items()},
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        )


if __name__ == "__main__":
    main()
