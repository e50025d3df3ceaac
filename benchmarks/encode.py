"""How fast texts become vectors: bertworks against transformers, sentence-transformers and the bare matrix products.

500 lines of SST-2 and 150 book paragraphs in random order through all-MiniLM-L6-v2, cut at 256 tokens on every side.
The sides run in turn in one process, several rounds; the ratio of a round compares neighbours in time, and the median
is printed.

    make bench        (or: python benchmarks/encode.py --data ../shared/data --rounds 7)
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer, logging

import bertworks
from bertworks.model.locate import locate
from bertworks.tasks.inference import BATCH_TOKENS, token_batches

CUT = 256
Side = Callable[[], object]


def texts(data: Path) -> list[str]:
    with (data / "tasks/glue/SST-2/train.tsv").open(encoding="utf-8") as file:
        sentences = [line.split("\t")[0] for line in file.readlines()[1:501]]
    with (data / "corpora/en/books_en_00.txt").open(encoding="utf-8") as file:
        paragraphs = [line.strip() for _, line in zip(range(20_000), file, strict=False) if len(line) > 200]
    draw = random.Random(0)
    mixed = sentences + draw.sample(paragraphs, 150)
    draw.shuffle(mixed)
    return mixed


def transformers_side(folder: Path, lines: list[str]) -> Side:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def run() -> np.ndarray:
        vectors = []
        for start in range(0, len(lines), 32):
            batch = tokenizer(
                lines[start : start + 32], padding=True, truncation=True, max_length=CUT, return_tensors="pt"
            )
            with torch.inference_mode():
                states = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            vectors.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)))
        return torch.cat(vectors).numpy()

    return run


def matrix_products(lines: list[str], bench: bertworks.Workbench) -> tuple[Side, float]:
    """The linear layers alone, on the very batches that encode makes, and the share of arithmetic that attention adds.

    Nothing can be faster without other arithmetic. Attention's own products are small and odd-shaped; for the limit
    they are taken to run at the rate of the linear layers.
    """
    windows = [window for one in bench.embedder().prepare(lines, "truncate") for window in one.windows]
    lengths = [len(window.ids) for window in windows]
    sizes = [sum(lengths[at] for at in members) for members in token_batches(lengths, BATCH_TOKENS)]
    weights = [m.weight for m in bench.model.encoder.modules() if isinstance(m, torch.nn.Linear)]
    inputs = {(size, w.size(1)): torch.randn(size, w.size(1)) for size in sizes for w in weights}

    def run() -> None:
        with torch.inference_mode():
            for size in sizes:
                for weight in weights:
                    torch.nn.functional.linear(inputs[size, weight.size(1)], weight)

    c = bench.config.encoder
    linear = sum(sizes) * sum(weight.numel() for weight in weights)
    attention = sum(2 * len(window.ids) ** 2 * c.hidden_size * c.n_layers for window in windows)
    return run, attention / linear


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).parents[2] / "shared/data", help="folder with tasks/ and corpora/"
    )
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    lines, folder = texts(args.data), locate("minilm")

    bench, peer = bertworks.load(folder), SentenceTransformer(str(folder))
    products, attention_share = matrix_products(lines, bench)
    sides: dict[str, Side] = {
        "bertworks": lambda: bench.encode(lines, on_long="truncate"),
        "transformers": transformers_side(folder, lines),
        "sentence-transformers": lambda: peer.encode(lines, show_progress_bar=False),
        "linear layers alone": products,
    }
    ours = bench.encode(lines, on_long="truncate")
    for name in ("transformers", "sentence-transformers"):
        worst = float(np.abs(ours - sides[name]()).max())
        print(f"largest difference to {name}: {worst:.1e}")
        assert worst <= 1e-5, "the sides do not compute the same"
    ratios = report(sides, args.rounds)
    linear = ratios["linear layers alone"]
    print(
        f"of the limit: {linear:.0%} (linear layers alone), {linear * (1 + attention_share):.0%} (with attention's products)"
    )
    loading = {
        "bertworks": lambda: bertworks.load(folder),
        "bertworks, by name": lambda: bertworks.load("minilm"),  # with the SHA-256 of the weights
        "transformers": lambda: (AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)),
    }
    print("\nloading model and tokenizer")
    report(loading, args.rounds)


def report(sides: dict[str, Side], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            times[name].append(time.perf_counter() - start)
    medians = {}
    for name, taken in times.items():
        ratios = [
            theirs / ours for theirs, ours in zip(taken[1:], times["bertworks"][1:], strict=True)
        ]  # the first round warms up
        medians[name] = statistics.median(ratios)
        print(f"{name:22} {statistics.median(taken[1:]):7.3f} s   {medians[name]:5.2f} x the time of bertworks")
    return medians


if __name__ == "__main__":
    main()
