"""Splitting sentences and tokenising take linear time: 1, 2, 4 and 8 MB of one word, and of others without a space.

The best of five rounds for each size, and the ratio per doubling; 2 is linear.

    make bench        (or: python benchmarks/linear.py --data ../shared/data)
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path

from bertworks.text.cached_encoder import CachedEncoder
from bertworks.text.sentences import split_sentences
from bertworks.text.tokenizer import Tokenizer

SIZES = (1, 2, 4, 8)  # MB
REPEATED = {
    "one word": "x",
    "dots": ".",
    "marks": "!?",
    "ellipses": "…",
    "Chinese": "中国",
    "quotes": '."',
    "URLs": "http://a.b/",
}


def best_seconds(encoder: CachedEncoder, text: str, rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        sentences = split_sentences(text)
        encoder.encode(sentences, [True] * len(sentences))
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"no data at {options.data}: name the folder with --data")
    for name in ("bert-base-uncased", "gpt2", "albert-base-v2"):
        encoder = CachedEncoder(Tokenizer.load(options.data / "vocab" / name), "char")
        for title, unit in REPEATED.items():
            texts = (unit * (size * 1_000_000 // len(unit)) for size in SIZES)
            times = [best_seconds(encoder, text, options.rounds) for text in texts]
            seconds = " ".join(f"{value:7.3f}" for value in times)
            ratios = " ".join(f"{later / earlier:.2f}" for earlier, later in pairwise(times))
            print(f"{name:18} {title:9} {seconds} s   x {ratios}", flush=True)


if __name__ == "__main__":
    main()
