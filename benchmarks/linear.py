"""Time grows no faster than the text: 1, 2, 4 and 8 MB of one word, and of other things that have no end.

Best of five for each size, and the ratio per doubling; 2 is linear.

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
SIGNS = {
    "one word": "x",
    "dots": ".",
    "marks": "!?",
    "ellipses": "…",
    "Chinese": "中国",
    "quotes": '."',
    "URLs": "http://a.b/",
}


def best(speller: CachedEncoder, text: str, rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        sentences = split_sentences(text)
        speller.encode(sentences, [True] * len(sentences))
        taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"no data at {options.data}: name the folder with --data")
    for name in ("bert-base-uncased", "gpt2", "albert-base-v2"):
        speller = CachedEncoder(Tokenizer.load(options.data / "vocab" / name), "char")
        for said, sign in SIGNS.items():
            times = [best(speller, sign * (size * 1_000_000 // len(sign)), options.rounds) for size in SIZES]
            ratios = [later / earlier for earlier, later in pairwise(times)]
            taken, growth = " ".join(f"{one:7.3f}" for one in times), " ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"{name:18} {said:9} {taken} s   x {growth}", flush=True)


if __name__ == "__main__":
    main()
