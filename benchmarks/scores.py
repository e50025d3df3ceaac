"""Dev scores of transformers' Trainer on a classification data set, to compare with `bertworks finetune`.

The same files, model, seeds and metrics. As in its examples: 3 epochs, batches of 32 padded to their longest row, AdamW
at 5e-5 with linear decay, texts truncated to 128 tokens, the last state evaluated. A seed sets the head, the order and
the dropout. Compare like with like: with the last evaluation of `bertworks finetune`, not with its best.

    python benchmarks/scores.py cola ../shared/data/tasks/glue/CoLA
    python benchmarks/scores.py sst2 ../shared/data/tasks/glue/SST-2 --first 8000
    bertworks finetune cola --data ../shared/data/tasks/glue/CoLA --model minilm --seeds 3 --set train.seed=1 --out cola
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import bertworks
from bertworks.datasets.example import Example
from bertworks.measure.metrics import class_metrics
from bertworks.tasks.source import Source, describe_task, read_data


def their_rows(folder: Path, examples: list[Example], labels: list[str]) -> list[dict[str, Any]]:
    from transformers import AutoTokenizer

    columns = zip(*(example.texts for example in examples), strict=True)
    encoded = AutoTokenizer.from_pretrained(folder)(*map(list, columns), truncation=True, max_length=128)
    return [
        {**{name: values[at] for name, values in encoded.items()}, "labels": labels.index(str(example.answer))}
        for at, example in enumerate(examples)
    ]


def their_scores(
    folder: Path, train: list[dict[str, Any]], dev: list[dict[str, Any]], n_classes: int, seed: int
) -> dict[str, float]:
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )
    from transformers.trainer_callback import PrinterCallback

    set_seed(seed)
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 32,
        "num_train_epochs": 3,
        "learning_rate": 5e-5,
        "seed": seed,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "logging_strategy": "no",
    }
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=n_classes)
    collator = DataCollatorWithPadding(AutoTokenizer.from_pretrained(folder))
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(model, TrainingArguments(out, **settings), collator, train)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        output = trainer.predict(dev)
    predicted = output.predictions.argmax(1).astype(np.float64)
    return class_metrics(output.label_ids.astype(np.float64), predicted, n_classes)


def main() -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("folder")
    parser.add_argument("--first", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    source = Source(dataset=arguments.dataset, folder=arguments.folder, shape="classify", first=arguments.first)
    data = read_data(source)
    labels = list(describe_task(data, source).labels)  # in our order: with two classes, F1 is that of the second
    scores: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        model = bertworks.load("minilm").save(Path(folder) / "minilm")
        train = their_rows(model, data.train, labels)
        dev = their_rows(model, data.dev, labels)
        for seed in arguments.seeds:
            start = time.perf_counter()
            scores.append(their_scores(model, train, dev, len(labels), seed))
            metrics = ", ".join(f"{name} {value:.4f}" for name, value in scores[-1].items())
            print(f"{arguments.dataset}, seed {seed}: {metrics}, {time.perf_counter() - start:.0f} s", flush=True)
    for name in scores[0]:
        per_seed = [score[name] for score in scores]
        std = statistics.stdev(per_seed) if len(per_seed) > 1 else 0.0
        print(f"{name}: mean {statistics.mean(per_seed):.4f}, std {std:.4f}")


if __name__ == "__main__":
    main()
