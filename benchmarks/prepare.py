"""Speed of preparing shards and of making batches: against the bare tokenizer, datasets.map, and a training step.

The book file (60 MB) with the uncased vocabulary, two processes or threads on every side. The sides take turns in one
process for several rounds; ratios are taken within a round, where the machine is in the same state, and their median is
printed. Memory is that of a separate process with its children, sampled every tenth of a second. (Other libraries are
imported where they are used, since workers import this file again.)

    make bench        (or: python benchmarks/prepare.py --data ../shared/data --rounds 3 [--large])
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from bertworks.config import DataConfig
from bertworks.data.corpus import Corpus
from bertworks.data.loader import Loader
from bertworks.data.prepare import prepare
from bertworks.data.shards import Shards
from bertworks.text.tokenizer import Tokenizer

WORKERS = 2
Side = Callable[[], object]


def bare_side(file: Path, tokenizer: Tokenizer) -> Side:
    """`tokenizers.encode_batch` on the lines, a thousand at a time; the result is dropped."""

    def run() -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "true"  # tokenizers switches it off when datasets.map forks
        with file.open(encoding="utf-8") as lines:
            while batch := list(islice(lines, 1000)):
                tokenizer.backend.encode_batch(batch, add_special_tokens=False)

    return run


def map_side(file: Path, vocab: Path, work: Path) -> Side:
    import datasets
    from transformers import BertTokenizer

    datasets.disable_progress_bars()
    tokenizer = BertTokenizer.from_pretrained(vocab)
    dataset = datasets.load_dataset("text", data_files=str(file), cache_dir=str(work / "cache"))["train"]

    def run() -> None:
        target = work / f"mapped-{time.monotonic_ns()}.arrow"
        dataset.map(
            lambda batch: tokenizer(batch["text"], add_special_tokens=False),
            batched=True,
            num_proc=WORKERS,
            remove_columns=["text"],
            cache_file_name=str(target),
            load_from_cache_file=False,
        )

    return run


def our_side(file: Path, tokenizer: Tokenizer, work: Path) -> Side:
    def run() -> None:
        shutil.rmtree(work / "shards", ignore_errors=True)
        prepare(Corpus([str(file)]), tokenizer, work / "shards", workers=WORKERS)

    return run


def seconds(side: Side) -> float:
    start = time.perf_counter()
    side()
    return time.perf_counter() - start


def training_step(shards: Shards) -> tuple[float, float]:
    """Median seconds of a bert-mini step on 4,096 tokens, and of making such a batch."""
    import torch

    import bertworks
    from bertworks.model.layout import Tokens

    torch.manual_seed(0)
    model = bertworks.new("bert-mini", heads=["lm"], tokenizer=shards.tokenizer).model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    epoch = Loader(shards, DataConfig(masking="word", pairs="nsp"), batch_tokens=4096).epoch(0)
    batch_seconds = []
    step_seconds = []
    for number in range(12):
        start = time.perf_counter()
        batch = epoch[number]
        batch_end = time.perf_counter()
        ids, segments, targets, labels = map(torch.from_numpy, (batch.ids, batch.segments, batch.targets, batch.labels))
        tokens = Tokens.ragged(ids, batch.lengths.tolist(), segments)
        states = model.encoder(tokens).last.index_select(0, targets)
        loss = torch.nn.functional.cross_entropy(model.read("lm", states, tokens.layout), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        batch_seconds.append(batch_end - start)
        step_seconds.append(time.perf_counter() - batch_end)
    return statistics.median(step_seconds), statistics.median(batch_seconds)


def peak_memory(file: Path, vocab: Path, out: Path) -> tuple[float, float]:
    """Peak MB of `bertworks prepare` with its workers, and its seconds."""
    command = [Path(sys.executable).parent / "bertworks", "prepare", file, "--tokenizer", vocab, "--out", out]
    command += ["--workers", str(WORKERS)]
    start = time.perf_counter()
    peak = 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, _tree_memory(process.pid))
        time.sleep(0.1)
    assert process.returncode == 0
    return peak / 1e6, time.perf_counter() - start


def _tree_memory(root: int) -> int:
    """Bytes in memory of a process and its descendants; shared pages are counted once (PSS)."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    tree = {root}
    while children := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= children
    total = 0
    for pid in tree:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def write_ten_copies(file: Path, target: Path) -> None:
    """Each with another word at the beginning of every document, so that none is a duplicate."""
    text = file.read_text(encoding="utf-8")
    with target.open("w", encoding="utf-8") as out:
        for copy in range(10):
            out.write(f"copy{copy} " + text.replace("\n\n", f"\n\ncopy{copy} ").rstrip() + "\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="memory for ten times the text as well")
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"no data at {options.data}: name the folder with --data")
    file = options.data / "corpora/en/books_en_00.txt"
    vocab = options.data / "vocab/bert-base-uncased"
    megabytes = file.stat().st_size / 1e6
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        tokenizer = Tokenizer.load(vocab)
        sides = {
            "bare": bare_side(file, tokenizer),
            "bertworks": our_side(file, tokenizer, work),
            "map": map_side(file, vocab, work),
        }
        times: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(options.rounds):
            for side, run in sides.items():
                times[side].append(seconds(run))
            latest = ", ".join(f"{side} {values[-1]:.1f} s" for side, values in times.items())
            print(f"round {number + 1}: {latest}", flush=True)
        for peer in ("bare", "map"):
            ratio = statistics.median(
                theirs / ours for theirs, ours in zip(times[peer], times["bertworks"], strict=True)
            )
            speed = megabytes / statistics.median(times["bertworks"])
            print(f"prepare, {speed:.1f} MB/s: {ratio:.2f} x the speed of {peer}")
        shards = Shards(work / "shards")
        on_disk = sum(entry.bytes for entry in shards.manifest.shards)
        print(f"on the disk: {on_disk / 1e6:.1f} MB of shards for {megabytes:.1f} MB of text")
        step, batch = training_step(shards)
        print(
            f"loader: a batch takes {batch * 1e3:.1f} ms, a bert-mini step {step * 1e3:.0f} ms: "
            f"{step / batch:.0f} x faster than needed"
        )
        peak, duration = peak_memory(file, vocab, work / "again")
        print(f"peak memory for {megabytes:.0f} MB of text: {peak:.0f} MB ({duration:.1f} s)")
        if options.large:
            write_ten_copies(file, work / "large.txt")
            peak, duration = peak_memory(work / "large.txt", vocab, work / "large")
            print(f"peak memory for {megabytes * 10:.0f} MB of text: {peak:.0f} MB ({duration:.1f} s)")


if __name__ == "__main__":
    main()
