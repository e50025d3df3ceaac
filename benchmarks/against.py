"""How fast this tree is against an older checkout: encoding, pre-training and fine-tuning.

Old and new take turns, in processes of their own with two threads each; the side that begins changes from round to
round. Only the work is timed: of encoding a second call, of trainings the time between optimiser steps after the first
few, without evaluations and checkpoints. Both sides train by the command line, whose process is theirs, from the same
files. The ratio of a round compares neighbours in time, and the median is printed. Above 1 this tree is faster; 0.97
and more counts as no slower.

    git worktree add ../old b9e4e56
    python benchmarks/against.py ../old --rounds 7
"""

from __future__ import annotations

import argparse
import json
import os
import random
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AIM, THREADS = 0.97, 2
WARM = 5  # steps that are not timed
BATCH = 32  # examples of a fine-tuning step
TOKENS = 4096  # of a pre-training step
UNITS = {"encode": "texts/s", "pretrain": "tokens/s", "finetune": "examples/s"}
WORDS = (
    "the a of and to in is it was on river house letter garden engine window market teacher morning bridge paper stone "
    "winter music doctor ship bread field lamp story road silver quiet broken early distant heavy bright narrow old "
    "carried opened painted followed answered remembered repaired crossed waited wondered between before after without"
).split()


def text(draw: random.Random, n_words: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(n_words)).capitalize() + "."


def write_files(folder: Path, n_texts: int, steps: int) -> None:
    """Texts of 3 to 150 words, which the model reads whole; documents for so many steps; a table of short texts."""
    draw = random.Random(0)
    lengths = [draw.choice((draw.randrange(3, 30), draw.randrange(20, 150))) for _ in range(n_texts)]
    (folder / "texts.json").write_text(json.dumps([text(draw, n) for n in lengths]))
    n_words, documents = 0, []
    while n_words < 1.5 * TOKENS * (WARM + steps):
        sentences = [text(draw, draw.randrange(5, 25)) for _ in range(20)]
        documents.append(" ".join(sentences))
        n_words += documents[-1].count(" ")
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    rows = [f"{text(draw, draw.randrange(5, 40))},{draw.choice(('yes', 'no'))}" for _ in range(BATCH * 20)]
    for name, part in (("train", rows), ("dev", rows[:BATCH])):
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *part]) + "\n")


# ---------------------------------------------------------------------- in a process of its own


def encode(folder: Path, out: str, steps: int) -> float:
    """Nothing is written, and there are no steps."""
    import torch

    import bertworks

    torch.set_num_threads(THREADS)
    model, texts = bertworks.load("minilm"), json.loads((folder / "texts.json").read_text())
    model.encode(texts)
    start = time.perf_counter()
    model.encode(texts)
    return len(texts) / (time.perf_counter() - start)


def train(steps: int, *command: str) -> float:
    """Steps a second of a training, by the time at which the optimiser ends each of them."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    times: list[float] = []
    register_optimizer_step_post_hook(lambda *_: times.append(time.perf_counter()))
    settings = ["train.evaluations=0", "train.checkpoint_every=1000000", "train.log_every=1000000"]
    options = ["--steps", str(WARM + steps), *(word for setting in settings for word in ("--set", setting))]
    sys.argv = ["bertworks", *command, *options]
    try:
        runpy.run_module("bertworks", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    assert len(times) == WARM + steps
    return steps / (times[-1] - times[WARM - 1])


def pretrain(folder: Path, out: str, steps: int) -> float:
    settings = ["--set", f"train.batch_tokens={TOKENS}", "--set", "data.held_out=0.01"]
    speed = train(steps, "pretrain", str(folder / "shards"), "--preset", "bert-mini", "--out", out, *settings)
    lines = (Path(out) / "metrics.jsonl").read_text().splitlines()
    return speed * max(json.loads(line)["tokens"] for line in lines) / (WARM + steps)


def finetune(folder: Path, out: str, steps: int) -> float:
    files = ["--train", str(folder / "train.csv"), "--dev", str(folder / "dev.csv")]
    options = ["--model", "minilm", "--out", out, "--set", f"train.batch_size={BATCH}"]
    return BATCH * train(steps, "finetune", "classify", *files, *options)


WORK = {"encode": encode, "pretrain": pretrain, "finetune": finetune}


def work(name: str, source: str, folder: Path, steps: int) -> None:
    import bertworks

    if not Path(str(bertworks.__file__)).is_relative_to(source):
        sys.exit(f"this is the code of {bertworks.__file__}, not of {source}")
    with tempfile.TemporaryDirectory() as scratch:
        speed = WORK[name](folder, str(Path(scratch) / "run"), steps)
    print(json.dumps(speed))


# ---------------------------------------------------------------------- the comparison


def call(source: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": str(THREADS)}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{source}: {' '.join(words)}\n{done.stderr[-2000:]}")
    return done.stdout


def measure(name: str, source: Path, folder: Path, steps: int) -> float:
    """What it does in a second."""
    return json.loads(call(source, __file__, "--work", name, str(source), str(folder), str(steps)).splitlines()[-1])


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        name, source, folder, steps = sys.argv[2:]
        work(name, source, Path(folder), int(steps))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a checkout of an older version")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--texts", type=int, default=500, help="to encode")
    parser.add_argument(
        "--steps", type=int, default=15, help=f"of a training that are timed, after {WARM} that are not"
    )
    arguments = parser.parse_args()
    sources = {"old": arguments.old.resolve() / "src", "new": ROOT / "src"}
    ratios: dict[str, list[float]] = {name: [] for name in UNITS}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        write_files(folder, arguments.texts, arguments.steps)
        prepare = ["prepare", str(folder / "corpus.txt"), "--tokenizer", "minilm", "--out", str(folder / "shards")]
        call(sources["old"], "-m", "bertworks", *prepare)
        for at in range(arguments.rounds):
            for name, unit in UNITS.items():
                order = ("old", "new") if at % 2 == 0 else ("new", "old")
                speeds = {side: measure(name, sources[side], folder, arguments.steps) for side in order}
                ratios[name].append(speeds["new"] / speeds["old"])
                both = f"old {speeds['old']:>8,.1f}  new {speeds['new']:>8,.1f} {unit}"
                print(f"round {at + 1}  {name:9} {both:45} new / old {ratios[name][-1]:.3f}", flush=True)
    for name, values in ratios.items():
        median = statistics.median(values)
        spread = f"(rounds {min(values):.3f} to {max(values):.3f})"
        print(
            f"{name:9} new / old {median:.3f}  {spread}  {'' if median >= AIM else f'below the aim of {AIM}'}".rstrip()
        )


if __name__ == "__main__":
    main()
