"""Speed and memory of pre-training: bertworks against transformers, and against the bare matrix products of a step.

bert-mini (4 x 256), a vocabulary of 30,522, 4,096 tokens per step of the book corpus: the same weights, texts and AdamW
on both sides. Once with 32 x 128 full sequences and a masked-LM head, once with ragged next-sentence pairs and both
heads, which their collator pads. The sides take turns in one process for several rounds; ratios are taken within a
round, where the machine is in the same state, and their median is printed. There glibc has its default settings. Then
each side runs in processes of its own, in turn, as users run it: ours keeps freed memory, as the trainer does; memory
is measured there. The bare products are those of our step, with separate operands for every layer.

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

SEQUENCES = 32  # of a step
LENGTH = 128
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
    """The trainer's step without its bookkeeping: counts, forward, backward, clipping, AdamW."""
    objective = Masked(model).train()
    optimizer = make_optimizer(objective, OptimConfig())
    numbers = iter(range(len(epoch)))

    def step() -> int:
        batch = epoch[next(numbers)]
        counts = objective.counts(batch)
        optimizer.zero_grad(set_to_none=True)
        means = [term.total / max(1, counts[term.name]) for term in objective(batch) if term.weight]
        torch.stack(means).sum().backward()
        torch.nn.utils.clip_grad_norm_(objective.parameters(), 1.0, foreach=True)
        optimizer.step()
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
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    order = shuffled_examples(epoch)

    def step() -> int:
        examples = [epoch.example(next(order)) for _ in range(SEQUENCES)]
        features: list[dict[str, Any]] = [
            {"input_ids": e.ids.tolist(), "token_type_ids": e.segments.tolist()} for e in examples
        ]
        if with_pairs:
            features = [
                {**feature, "next_sentence_label": e.label} for feature, e in zip(features, examples, strict=True)
            ]
        optimizer.zero_grad(set_to_none=True)
        model(**collate(features)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        return sum(len(e.ids) for e in examples)

    return step


def shuffled_examples(epoch: Epoch) -> Iterator[int]:
    return iter(np.random.default_rng(0).permutation(len(epoch.lengths)).tolist())


def bare_products(model: Model, n: int = SEQUENCES * LENGTH) -> tuple[Step, float]:
    """The matrix products of a step alone: forward, and for the gradients of inputs and weights. Also the FLOPs of
    attention relative to theirs."""
    config = model.config.encoder
    targets = round(0.15 * n)
    hidden = config.hidden_size
    ffn = config.ffn_size
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
    # 3.5 times the forward products: the backward pass computes the scores again.
    attention = 3.5 * 2 * ((config.n_layers - 1) * n + targets) * LENGTH * hidden
    return step, attention / linear


def seconds_per_token(step: Step, steps: int) -> float:
    start = time.perf_counter()
    tokens = 0
    for _ in range(steps):
        tokens += step()
    return (time.perf_counter() - start) / tokens


def compare(shards: Shards, pairs: str, rounds: int, steps: int, dropout: float) -> None:
    heads = ["lm", "pair"] if pairs == "nsp" else ["lm"]
    bench = new_model(shards, heads, dropout)
    epoch = epoch_of(shards, pairs)
    with tempfile.TemporaryDirectory() as folder:
        theirs = their_steps(bench.save(folder), epoch, with_pairs=pairs == "nsp")
    bare, attention = bare_products(bench.model)
    sides = {"theirs": theirs, "ours": our_steps(bench.model, epoch), "bare products": bare}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, step in sides.items():
            seconds = seconds_per_token(step, steps)
            if number:  # the first round warms up
                times[name].append(seconds)
    sequences = "ragged next-sentence pairs" if pairs == "nsp" else f"{SEQUENCES} x {LENGTH}"
    print(f"{sequences}, dropout {dropout}, in one process")
    for name, values in times.items():
        ratios = [value / own for value, own in zip(values, times["ours"], strict=True)]
        print(
            f"  {name:14} {1 / statistics.median(values):>7,.0f} tokens/s; "
            f"{statistics.median(ratios):.2f} x our time  (rounds {min(ratios):.2f} to {max(ratios):.2f})"
        )
    share = statistics.median(b / o for b, o in zip(times["bare products"], times["ours"], strict=True))
    with_attention = share * (1 + attention)
    print(f"  of the limit: {share:.0%} (linear layers alone), {with_attention:.0%} (with attention's products)")


def measure_side(shards: Shards, side: str, steps: int, dropout: float) -> None:
    """In a process of its own: speed, memory before the steps, and peak memory, as a line of JSON."""
    if side == "ours":
        keep_freed_memory()
    bench = new_model(shards, ["lm"], dropout)
    epoch = epoch_of(shards, "stream")
    with tempfile.TemporaryDirectory() as folder:
        bench.save(folder)
        step = our_steps(bench.model, epoch) if side == "ours" else their_steps(Path(folder), epoch, with_pairs=False)
    before = memory_status("VmRSS")
    seconds_per_token(step, 2)
    speed = 1 / seconds_per_token(step, steps)
    print(json.dumps({"speed": speed, "before": before, "peak": memory_status("VmHWM")}))


def memory_status(name: str) -> float:
    """MB. (The maximum of getrusage includes that of the parent process.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def compare_processes(arguments: argparse.Namespace) -> None:
    measured: dict[str, list[dict[str, float]]] = {"theirs": [], "ours": []}
    for _ in range(arguments.rounds):
        for side, results in measured.items():
            command = [sys.executable, __file__, "--data", str(arguments.data), "--cache", str(arguments.cache)]
            command += ["--alone", side, "--steps", str(arguments.steps), "--dropout", str(arguments.dropout)]
            results.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    print(f"{SEQUENCES} x {LENGTH}, dropout {arguments.dropout}, in processes of their own")
    for side, results in measured.items():
        speed, peak = (statistics.median(result[name] for result in results) for name in ("speed", "peak"))
        steps = statistics.median(result["peak"] - result["before"] for result in results)
        print(f"  {side:7} {speed:>7,.0f} tokens/s, {steps:>6,.0f} MB for the steps, {peak:>6,.0f} MB in total")
    rounds = list(zip(measured["theirs"], measured["ours"], strict=True))
    ratios = [ours["speed"] / theirs["speed"] for theirs, ours in rounds]
    step_memory = statistics.median(
        (ours["peak"] - ours["before"]) / (theirs["peak"] - theirs["before"]) for theirs, ours in rounds
    )
    total_memory = statistics.median(ours["peak"] / theirs["peak"] for theirs, ours in rounds)
    print(f"  ours / theirs: speed {statistics.median(ratios):.2f}  (rounds {min(ratios):.2f} to {max(ratios):.2f})")
    print(f"  memory {step_memory:.2f} for the steps, {total_memory:.2f} in total")


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
        measure_side(shards, arguments.alone, arguments.steps, arguments.dropout)
        return
    for pairs in ("stream", "nsp"):
        compare(shards, pairs, arguments.rounds, arguments.steps, arguments.dropout)
    compare_processes(arguments)


if __name__ == "__main__":
    main()
