"""How much of its speed is left beside another busy process: encoding, a loop of single texts, pre-training.

The work is done alone, beside a busy loop of Python, and beside a torch process that multiplies matrices with all its
threads; each time with threads that soon sleep while they wait, as bertworks sets it, with threads that spin first, as
OpenMP does by default, and with one thread. All take turns, each in a process of its own. Ratios to the same work alone
are taken within a round, and their median is printed. Only for sleeping threads beside the Python loop there is an aim:
at least half of the speed. Alone, they are compared with spinning ones.

    python benchmarks/busy.py --rounds 5        (some four minutes a round, on a machine that is idle otherwise)
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from against import ROOT, WARM, train, write_files

AIM = 0.5
TOKENS = 1024  # of a pre-training step
UNITS = {"encode": "texts/s", "single texts": "texts/s", "pretrain": "tokens/s"}
# GNU's OpenMP spins 300,000 times by default, some milliseconds.
SIDES = {"sleep": {}, "spin": {"GOMP_SPINCOUNT": "300000"}, "one thread": {"OMP_NUM_THREADS": "1"}}
PYTHON_LOOP = "print(flush=True)\nwhile True: pass"
TORCH_LOOP = "import torch\na = torch.randn(1000, 1000)\nprint(flush=True)\nwhile True: a @ a"
NEIGHBOURS = {"alone": None, "beside Python": PYTHON_LOOP, "beside torch": TORCH_LOOP}


# ---------------------------------------------------------------------- in a process of its own


def calls_per_second(call: Callable[[], object], seconds: float) -> float:
    call()
    start = time.perf_counter()
    n_calls = 0
    while (elapsed := time.perf_counter() - start) < seconds or not n_calls:
        call()
        n_calls += 1
    return n_calls / elapsed


def work(name: str, folder: Path, seconds: float, steps: int) -> float:
    """What is done in a second."""
    import bertworks  # before torch, as on the command line

    if name == "pretrain":
        with tempfile.TemporaryDirectory() as scratch:
            options = ["--preset", "bert-mini", "--out", str(Path(scratch) / "run")]
            settings = ["--set", f"train.batch_tokens={TOKENS}", "--set", "data.held_out=0.01"]
            return TOKENS * train(steps, "pretrain", str(folder / "shards"), *options, *settings)
    model = bertworks.load("minilm")
    texts = json.loads((folder / "texts.json").read_text())
    if name == "encode":
        return len(texts) * calls_per_second(lambda: model.encode(texts), seconds)
    short_texts = [text for text in texts if text.count(" ") < 30][:20]
    return len(short_texts) * calls_per_second(lambda: [model.encode([text]) for text in short_texts], seconds)


# ---------------------------------------------------------------------- the comparison


@contextmanager
def beside(code: str | None) -> Iterator[None]:
    """While another process runs this code; it prints a line when it is busy."""
    if code is None:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()


def call(*words: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stderr[-2000:]}")
    return done.stdout


def measure(name: str, side: str, folder: Path, seconds: float, steps: int) -> float:
    words = [__file__, "--work", name, str(folder), str(seconds), str(steps)]
    return float(json.loads(call(*words, **SIDES[side]).splitlines()[-1]))


def run_round(folder: Path, seconds: float, steps: int) -> dict[tuple[str, str, str], float]:
    """The speed of each work, on each side, beside each neighbour."""
    speeds = {}
    for name in UNITS:
        for neighbour, code in NEIGHBOURS.items():
            with beside(code):
                for side in SIDES:
                    speeds[name, side, neighbour] = measure(name, side, folder, seconds, steps)
                    print(f"{name:13} {neighbour:14} {side:11} {speeds[name, side, neighbour]:9,.1f} {UNITS[name]}")
                    sys.stdout.flush()
    return speeds


def show(rounds: list[dict[tuple[str, str, str], float]]) -> None:
    def ratio(above: tuple[str, str, str], below: tuple[str, str, str]) -> str:
        values = [speeds[above] / speeds[below] for speeds in rounds]
        return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"

    print("\nshare of the speed alone that is left: median of the rounds, least and most")
    for name in UNITS:
        for neighbour in list(NEIGHBOURS)[1:]:
            shares = [f"{side} {ratio((name, side, neighbour), (name, side, 'alone'))}" for side in SIDES]
            print(f"{name:13} {neighbour:14} {'   '.join(shares)}")
    print("\nalone, sleep / spin")
    for name in UNITS:
        print(f"{name:13} {ratio((name, 'sleep', 'alone'), (name, 'spin', 'alone'))}")
    for name in UNITS:
        shares = [speeds[name, "sleep", "beside Python"] / speeds[name, "sleep", "alone"] for speeds in rounds]
        if statistics.median(shares) < AIM:
            print(f"{name}: below the aim of {AIM}")


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        name, folder, seconds, steps = sys.argv[2:]
        print(json.dumps(work(name, Path(folder), float(seconds), int(steps))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=100, help="to encode in a call")
    parser.add_argument("--seconds", type=float, default=4.0, help="of encoding, after a first call")
    parser.add_argument(
        "--steps", type=int, default=10, help=f"of a training that are timed, after {WARM} that are not"
    )
    arguments = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        write_files(folder, arguments.texts, arguments.steps)
        prepare = ["prepare", str(folder / "corpus.txt"), "--tokenizer", "minilm", "--out", str(folder / "shards")]
        call("-m", "bertworks", *prepare)
        show([run_round(folder, arguments.seconds, arguments.steps) for _ in range(arguments.rounds)])


if __name__ == "__main__":
    main()
