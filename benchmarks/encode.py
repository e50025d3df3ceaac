"""Embedding speed: bertworks against transformers, sentence-transformers and the bare matrix products.

500 lines of SST-2 and 150 book paragraphs in random order through all-MiniLM-L6-v2, truncated to 256 tokens by all.
The sides take turns in one process for several rounds; ratios are taken within a round, where the machine is in the
same state, and their median is printed.

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

MAX_LENGTH = 256  # tokens
Side = Callable[[], object]


def read_texts(data: Path) -> list[str]:
    with (data / "tasks/glue/SST-2/train.tsv").open(encoding="utf-8") as file:
        sentences = [line.split("\t")[0] for line in file.readlines()[1:501]]
    with (data / "corpora/en/books_en_00.txt").open(encoding="utf-8") as file:
        paragraphs = [line.strip() for _, line in zip(range(20_000), file, strict=False) if len(line) > 200]
    rng = random.Random(0)
    texts = sentences + rng.sample(paragraphs, 150)
    rng.shuffle(texts)
    return texts


def transformers_side(folder: Path, lines: list[str]) -> Side:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()

    def run() -> np.ndarray:
        vectors = []
        for start in range(0, len(lines), 32):
            batch = tokenizer(
                lines[start : start + 32], padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt"
            )
            with torch.inference_mode():
                states = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            vectors.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)))
        return torch.cat(vectors).numpy()

    return run


def matrix_products(lines: list[str], bench: bertworks.Workbench) -> tuple[Side, float]:
    """The linear layers alone, on the batches of `encode`, and the FLOPs of attention relative to theirs.

    A lower bound of the time in the same precision. Attention's products are small and badly shaped; for the bound they
    are assumed to run at the speed of the linear layers.
    """
    windows = [window for text in bench.embedder().prepare(lines, "truncate") for window in text.windows]
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
    lines = read_texts(args.data)
    folder = locate("minilm")
    bench = bertworks.load(folder)
    sentence_transformer = SentenceTransformer(str(folder))
    products, attention_share = matrix_products(lines, bench)
    sides: dict[str, Side] = {
        "bertworks": lambda: bench.encode(lines, on_long="truncate"),
        "transformers": transformers_side(folder, lines),
        "sentence-transformers": lambda: sentence_transformer.encode(lines, show_progress_bar=False),
        "linear layers alone": products,
    }
    ours = bench.encode(lines, on_long="truncate")
    for name in ("transformers", "sentence-transformers"):
        difference = float(np.abs(ours - sides[name]()).max())
        print(f"largest difference to {name}: {difference:.1e}")
        assert difference <= 1e-5, "the sides do not compute the same"
    ratios = report(sides, args.rounds)
    linear = ratios["linear layers alone"]
    with_attention = linear * (1 + attention_share)
    print(f"of the limit: {linear:.0%} (linear layers alone), {with_attention:.0%} (with attention's products)")
    loading = {
        "bertworks": lambda: bertworks.load(folder),
        "bertworks, by name": lambda: bertworks.load("minilm"),  # checks the SHA-256 of the weights
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
    ours = times["bertworks"][1:]  # the first round warms up
    for name, (_, *seconds) in times.items():
        medians[name] = statistics.median(theirs / own for theirs, own in zip(seconds, ours, strict=True))
        print(f"{name:22} {statistics.median(seconds):7.3f} s   {medians[name]:5.2f} x the time of bertworks")
    return medians


if __name__ == "__main__":
    main()
