"""How fast a model is pre-trained: bertworks against transformers, and against the bare matrix products of a step.

bert-mini (4 x 256), 30,522 words, 4,096 tokens a step of the book corpus: the same weights, the same texts, the same
AdamW. Once 32 x 128 full sequences with a masked-LM head, once ragged next-sentence pairs with both heads, as their
collator pads them. The sides run in turn in one process, several rounds; the ratio of a round compares neighbours in
time, and the median is printed. There glibc frees memory as it likes, for both. Then each side in processes of its own,
in turn, as its users have it: ours keeps freed memory, as the trainer does; that is also where memory is measured. The
bare products are those of our step, with operands of their own for every layer.

    make bench        (or: python benchmarks/pretrain.py --data ../shared/data --rounds 5 --dropout 0.1)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bertworks
from bertworks.config import DataConfig, OptimConfig
from bertworks.data.corpus import Corpus
from bertworks.data.loader import Epoch, Loader
from bertworks.data.prepare import prepare
from bertworks.data.shards import Shards
from bertworks.model.model import Model
from bertworks.objectives.masked import Masked
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.optim import make_optimizer
from bertworks.train.runtime import keep_freed_memory

SEQUENCES, LENGTH = 32, 128
Step = Callable[[], int]
"""One training step; returns its tokens, padding not counted."""


def shards_of(data: Path, folder: Path) -> Shards:
    if not (folder / "manifest.json").is_file():
        prepare(
            Corpus([str(data / "corpora/en/books_en_00.txt")]), Tokenizer.load(data / "vocab/bert-base-uncased"), folder
        )
    return Shards(folder)


def new_model(shards: Shards, heads: list[str], dropout: float) -> bertworks.Workbench:
    sizes = {"vocab_size": 30522, "dropout": dropout, "attention_dropout": dropout}
    return bertworks.new("bert-mini", heads=heads, tokenizer=shards.tokenizer, **sizes)


def epoch_of(shards: Shards, pairs: str) -> Epoch:
    config = DataConfig.model_validate({"pairs": pairs, "max_length": LENGTH})
    return Loader(shards, config, batch_tokens=SEQUENCES * LENGTH).epoch(0)


def our_steps(model: Model, epoch: Epoch) -> Step:
    """The trainer's step without its bookkeeping: portions, counts, backward, clipping, AdamW."""
    objective = Masked(model).train()
    optimiser, numbers = make_optimizer(objective, OptimConfig()), iter(range(len(epoch)))

    def step() -> int:
        batch = epoch[next(numbers)]
        counts = objective.counts(batch)
        optimiser.zero_grad(set_to_none=True)
        torch.stack(
            [term.total / max(1, counts[term.name]) for term in objective(batch) if term.weight]
        ).sum().backward()
        torch.nn.utils.clip_grad_norm_(objective.parameters(), 1.0, foreach=True)
        optimiser.step()
        return len(batch.ids)

    return step


def their_steps(folder: Path, epoch: Epoch, with_pairs: bool) -> Step:
    """Their model, their masking and padding collator, the fused AdamW and the clipping of their Trainer."""
    from transformers import (
        AutoTokenizer,
        BertForMaskedLM,
        BertForPreTraining,
        DataCollatorForLanguageModeling,
        logging,
    )

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = (BertForPreTraining if with_pairs else BertForMaskedLM).from_pretrained(folder).train()
    collate = DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained(folder), mlm_probability=0.15)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    rows = in_random_order(epoch)

    def step() -> int:
        examples = [epoch.example(next(rows)) for _ in range(SEQUENCES)]
        features: list[dict[str, Any]] = [
            {"input_ids": e.ids.tolist(), "token_type_ids": e.segments.tolist()} for e in examples
        ]
        if with_pairs:
            features = [
                {**feature, "next_sentence_label": e.label} for feature, e in zip(features, examples, strict=True)
            ]
        optimiser.zero_grad(set_to_none=True)
        model(**collate(features)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimiser.step()
        return sum(len(e.ids) for e in examples)

    return step


def in_random_order(epoch: Epoch) -> Iterator[int]:
    return iter(np.random.default_rng(0).permutation(len(epoch.lengths)).tolist())


def bare_products(model: Model, n: int = SEQUENCES * LENGTH) -> tuple[Step, float]:
    """The matrix products of a step alone: forward, for the input and for the weights; and what attention's own would
    add."""
    config, targets = model.config.encoder, round(0.15 * n)
    hidden, ffn = config.hidden_size, config.ffn_size
    layer = [(n, hidden, hidden)] * 4 + [(n, hidden, ffn), (n, ffn, hidden)]
    last = (
        [(n, hidden, hidden)] * 2 + [(targets, hidden, hidden)] * 2 + [(targets, hidden, ffn), (targets, ffn, hidden)]
    )
    head = [(targets, hidden, hidden), (targets, hidden, config.vocab_size)]
    shapes = layer * (config.n_layers - 1) + last + head
    operands = [(torch.randn(count, i), torch.randn(count, o), torch.randn(o, i)) for count, i, o in shapes]

    def step() -> int:
        for x, y, w in operands:
            torch.mm(x, w.t())
            torch.mm(y, w)
            torch.mm(y.t(), x)
        return n

    linear = 3 * sum(count * i * o for count, i, o in shapes)
    attention = (
        3.5 * 2 * ((config.n_layers - 1) * n + targets) * LENGTH * hidden
    )  # the backward pass computes the scores once more
    return step, attention / linear


def seconds(step: Step, steps: int) -> float:
    """Per token."""
    start, tokens = time.perf_counter(), 0
    for _ in range(steps):
        tokens += step()
    return (time.perf_counter() - start) / tokens


def compare(shards: Shards, pairs: str, rounds: int, steps: int, dropout: float) -> None:
    heads = ["lm", "pair"] if pairs == "nsp" else ["lm"]
    bench, epoch = new_model(shards, heads, dropout), epoch_of(shards, pairs)
    with tempfile.TemporaryDirectory() as folder:
        theirs = their_steps(bench.save(folder), epoch, with_pairs=pairs == "nsp")
    ours, (bare, attention) = our_steps(bench.model, epoch), bare_products(bench.model)
    sides = {"theirs": theirs, "ours": ours, "bare products": bare}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for at in range(rounds + 1):
        for name, step in sides.items():
            taken = seconds(step, steps)
            if at:  # the first round warms up
                times[name].append(taken)
    print(
        f"{'ragged next-sentence pairs' if pairs == 'nsp' else f'{SEQUENCES} x {LENGTH}'}, dropout {dropout}, in one process"
    )
    for name, values in times.items():
        ratios = [other / own for other, own in zip(values, times["ours"], strict=True)]
        spread = f"(rounds {min(ratios):.2f} to {max(ratios):.2f})"
        print(
            f"  {name:14} {1 / statistics.median(values):>7,.0f} tokens/s; of our time {statistics.median(ratios):.2f}  {spread}"
        )
    share = statistics.median(b / o for b, o in zip(times["bare products"], times["ours"], strict=True))
    print(
        f"  share of the limit: {share:.0%} of the linear layers alone, {share * (1 + attention):.0%} with attention's products"
    )


def alone(shards: Shards, side: str, steps: int, dropout: float) -> None:
    """For a process of its own: speed, and the memory that the steps take beyond what was there before them."""
    if side == "ours":
        keep_freed_memory()
    bench, epoch = new_model(shards, ["lm"], dropout), epoch_of(shards, "stream")
    with tempfile.TemporaryDirectory() as folder:
        bench.save(folder)
        step = our_steps(bench.model, epoch) if side == "ours" else their_steps(Path(folder), epoch, with_pairs=False)
    before = status("VmRSS")
    seconds(step, 2)
    speed = 1 / seconds(step, steps)
    print(json.dumps({"speed": speed, "before": before, "most": status("VmHWM")}))


def status(name: str) -> float:
    """MB. (What getrusage calls the maximum begins with that of the parent process.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def compare_processes(arguments: argparse.Namespace) -> None:
    found: dict[str, list[dict[str, float]]] = {"theirs": [], "ours": []}
    for _ in range(arguments.rounds):
        for side, results in found.items():
            call = [
                sys.executable,
                __file__,
                "--data",
                str(arguments.data),
                "--cache",
                str(arguments.cache),
                "--alone",
                side,
            ]
            call += ["--steps", str(arguments.steps), "--dropout", str(arguments.dropout)]
            results.append(json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout))
    print(f"{SEQUENCES} x {LENGTH}, dropout {arguments.dropout}, in processes of their own")
    for side, results in found.items():
        speed, most = (statistics.median(result[name] for result in results) for name in ("speed", "most"))
        steps = statistics.median(result["most"] - result["before"] for result in results)
        print(f"  {side:7} {speed:>7,.0f} tokens/s, {steps:>6,.0f} MB for the steps, {most:>6,.0f} MB in all")
    rounds = list(zip(found["theirs"], found["ours"], strict=True))
    ratios = [ours["speed"] / theirs["speed"] for theirs, ours in rounds]
    used = [(ours["most"] - ours["before"]) / (theirs["most"] - theirs["before"]) for theirs, ours in rounds]
    print(f"  ours / theirs: speed {statistics.median(ratios):.2f}  (rounds {min(ratios):.2f} to {max(ratios):.2f})")
    print(
        f"  memory {statistics.median(used):.2f} for the steps, {statistics.median(o['most'] / t['most'] for t, o in rounds):.2f} in all"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared/data")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "bertworks-bench-pretrain")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--alone", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shards = shards_of(arguments.data, arguments.cache)
    if arguments.alone:
        alone(shards, arguments.alone, arguments.steps, arguments.dropout)
        return
    for pairs in ("stream", "nsp"):
        compare(shards, pairs, arguments.rounds, arguments.steps, arguments.dropout)
    compare_processes(arguments)


if __name__ == "__main__":
    main()
