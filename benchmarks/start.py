"""What pre-training is worth: the same small classifier fine-tuned from a run's model and from random weights.

2,000 sentences of SST-2 for training, the 872 of dev, the same order and learning rates for both, several seeds; the
mean difference in accuracy with its 95 % CI (Student's t over the seeds).

    python benchmarks/start.py RUN --data ../shared/data --seeds 5
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import bertworks
from bertworks.config import OptimConfig
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.resize import refit
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.optim import learning_rate, make_optimizer
from bertworks.train.runtime import keep_freed_memory

# Student's t, 95 %, two-sided, by number of seeds.
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
Rows = list[tuple[list[int], int]]


def read_rows(path: Path, tokenizer: Tokenizer, max_rows: int) -> Rows:
    """Token ids and label of each sentence."""
    lines = [line.rsplit("\t", 1) for line in path.read_text(encoding="utf-8").splitlines()[1 : max_rows + 1]]
    prefix, suffix = (part.tolist() for part, _ in tokenizer.template.parts)
    ids = tokenizer.encode([text for text, _ in lines])
    return [([*prefix, *row.tolist(), *suffix], int(label)) for row, (_, label) in zip(ids, lines, strict=True)]


def logits(model: Model, rows: Rows) -> torch.Tensor:
    ordered = sorted(rows, key=lambda row: len(row[0]))
    tokens = Tokens.ragged(torch.tensor([id for ids, _ in ordered for id in ids]), [len(ids) for ids, _ in ordered])
    by_length = model.read("sequence", model.encoder(tokens).last, tokens.layout)
    position = {id(row): at for at, row in enumerate(ordered)}
    return by_length[[position[id(row)] for row in rows]]


def fine_tune(model: Model, train: Rows, dev: Rows, seed: int, epochs: int, lr: float) -> float:
    """Accuracy on dev."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    config = OptimConfig(lr=lr, warmup=0.1)
    optimizer = make_optimizer(model.train(), config)
    n_steps = epochs * -(-len(train) // 32)
    step = 0
    for _ in range(epochs):
        order = rng.permutation(len(train))
        for begin in range(0, len(train), 32):
            rows = [train[at] for at in order[begin : begin + 32]]
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, (step + 0.5) / n_steps)
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(logits(model, rows), torch.tensor([label for _, label in rows])).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
    model.eval()
    with torch.inference_mode():
        predicted = torch.cat([logits(model, dev[begin : begin + 64]).argmax(1) for begin in range(0, len(dev), 64)])
    return float((predicted == torch.tensor([label for _, label in dev])).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared/data")
    parser.add_argument("--seeds", type=int, default=5, choices=T_95)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, nargs="+", default=[3e-4])
    arguments = parser.parse_args()
    keep_freed_memory()
    bench = bertworks.load(arguments.run)
    folder = arguments.data / "tasks/glue/SST-2"
    train = read_rows(folder / "train.tsv", bench.tokenizer, 2000)
    dev = read_rows(folder / "dev.tsv", bench.tokenizer, 10_000)
    print(f"train: {len(train):,} examples, dev: {len(dev):,}, {arguments.epochs} epochs")
    for lr in arguments.lr:
        pairs = []
        for seed in range(arguments.seeds):
            start = time.monotonic()
            model = refit(bench.model, bench.config, ["sequence"], seed)
            pretrained = fine_tune(model, train, dev, seed, arguments.epochs, lr)
            model = Model.fresh(bench.config, ["sequence"], seed=seed)
            random = fine_tune(model, train, dev, seed, arguments.epochs, lr)
            pairs.append((pretrained, random))
            seconds = time.monotonic() - start
            print(
                f"  lr {lr:g}, seed {seed}: pre-trained {pretrained:.1%}, random {random:.1%}  ({seconds:.0f} s)",
                flush=True,
            )
        differences = [100 * (pretrained - random) for pretrained, random in pairs]
        half_width = T_95[len(differences)] * statistics.stdev(differences) / len(differences) ** 0.5
        means = [100 * statistics.mean(column) for column in zip(*pairs, strict=True)]
        print(f"lr {lr:g}: pre-trained {means[0]:.1f} %, random {means[1]:.1f} %")
        print(f"  difference {statistics.mean(differences):+.1f} points, 95 % CI ± {half_width:.1f}")


if __name__ == "__main__":
    main()
