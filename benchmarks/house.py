"""The size of the code base: files and lines, the longest functions, and how many files one sentence passes through.

    python benchmarks/house.py            this tree
    python benchmarks/house.py OTHER      another checkout of it, with the packages of this environment
    python benchmarks/house.py --draw 7   thirty identifiers, drawn with seed 7: can a reader say what they are?

The files are traced: `bertworks finetune` on a small table and `bertworks predict` on one sentence run under a profiler
that records every file of ours in which a function is called.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

SHAPES = ("classify", "regress", "multilabel", "tag", "span", "choice")
ROOMS = ("tasks", "runs", "datasets", "reports", "measure")
SHAPE_LITERAL = re.compile("|".join(rf"(?<![\w\]\[])[\"']{shape}[\"']" for shape in SHAPES))
SHAPE_CHECK = re.compile(r"isinstance\(task, |\bshape (==|!=|not in) |(?<!for )\bshape in \(")
ANY_TYPE = re.compile(r"\bAny\b")
TRACER = """
import os, sys
root, log = sys.argv[1], sys.argv[2]
sys.argv = ["bertworks", *sys.argv[3:]]
seen = set()
def record(frame, event, arg):
    # CO_OPTIMIZED (1): the body of a function, not that of a module or a class.
    if event == "call" and frame.f_code.co_flags & 1 and frame.f_code.co_filename.startswith(root):
        seen.add(frame.f_code.co_filename)
from bertworks.cli.main import run
sys.setprofile(record)
try:
    run()
except SystemExit:
    pass
finally:
    sys.setprofile(None)
    with open(log, "a") as file:
        file.writelines(name + "\\n" for name in sorted(seen))
"""


def functions(files: list[Path], source: Path) -> list[tuple[int, str]]:
    """(lines, name) of each function, the longest first."""
    lengths = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                lengths.append((node.end_lineno - node.lineno + 1, f"{path.relative_to(source)}:{node.name}"))
    return sorted(lengths, reverse=True)


def shape_literals(files: list[Path], source: Path) -> Counter[str]:
    """Lines of each file that name a shape, or check for one, outside of the file of that shape. In model/ and data/
    the same words are names of heads and of masking units, as they are in lines with "ngram"; question["choice"] is a
    field of DREAM's files."""
    counts: Counter[str] = Counter()
    for path in files:
        if path.relative_to(source).parts[0] in ("model", "data"):
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            shapes = {match.strip("\"'") for match in SHAPE_LITERAL.findall(line)} - {path.stem}
            if (shapes and "ngram" not in line and "masking" not in line) or SHAPE_CHECK.search(line):
                counts[str(path.relative_to(source))] += 1
    return counts


def trace(root: Path) -> list[str]:
    """The files that one sentence passes through, from `finetune classify --train x.csv` to `predict`."""
    source = root / "src"
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [
            f"the film was {'good' if at % 2 else 'bad'} {'indeed ' * (at % 5)},{'yes' if at % 2 else 'no'}"
            for at in range(40)
        ]
        (folder / "x.csv").write_text("\n".join(["text,label", *rows]) + "\n")
        (folder / "one.txt").write_text("a good film\n")
        call = [sys.executable, "-c", TRACER, str(source), str(folder / "log")]
        train = ["finetune", "classify", "--train", folder / "x.csv", "--model", "minilm", "--steps", "2"]
        train += ["--out", folder / "run"]
        for command in (train, ["predict", folder / "run", folder / "one.txt"]):
            subprocess.run([*call, *map(str, command)], env=environment, check=True, capture_output=True)
        log = (folder / "log").read_text().splitlines()
    return sorted({str(Path(line).relative_to(source / "bertworks")) for line in log})


def identifiers(files: list[Path], source: Path) -> dict[str, str]:
    """Every name that is given in src, with the place where that is done first: modules' constants, classes, functions,
    parameters and variables; not those of one or two letters."""
    found: dict[str, str] = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[tuple[str, int]] = []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.append((node.name, node.lineno))
            elif isinstance(node, ast.arg):
                names.append((node.arg, node.lineno))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append((node.id, node.lineno))
            for name, line in names:
                if len(name.strip("_")) > 2 and not (name.startswith("__") or name in ("self", "cls")):
                    found.setdefault(name, f"{path.relative_to(source)}:{line}")
    return found


def draw(files: list[Path], source: Path, seed: int) -> None:
    found = identifiers(files, source)
    for name in random.Random(seed).sample(sorted(found), 30):
        file, _, line = found[name].rpartition(":")
        print(f"{name:32} {file:32} {(source / file).read_text(encoding='utf-8').splitlines()[int(line) - 1].strip()}")


def main() -> None:
    if sys.argv[1:2] == ["--draw"]:
        here = Path(__file__).parents[1] / "src" / "bertworks"
        draw(sorted(here.rglob("*.py")), here, int(sys.argv[2]))
        return
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    source = root / "src" / "bertworks"
    files = sorted(source.rglob("*.py"))
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    rooms = {room: sum(n for path, n in lines.items() if path.relative_to(source).parts[0] == room) for room in ROOMS}
    literals = shape_literals(files, source)
    traced = trace(root)
    print(f"files of src            {len(files)}")
    print(f"lines of src            {sum(lines.values()):,}")
    room_lines = json.dumps({room: n for room, n in rooms.items() if n})
    print(f"lines of packages       {room_lines}, {sum(rooms.values()):,} in total")
    print(f"shape literals          {sum(literals.values())}  {json.dumps(literals.most_common())}")
    print(f"`Any`                   {sum(len(ANY_TYPE.findall(path.read_text(encoding='utf-8'))) for path in files)}")
    print(f"the ten longest functions {', '.join(f'{name} {n}' for n, name in functions(files, source)[:10])}")
    print(f"files of one sentence   {len(traced)}: {', '.join(traced)}")


if __name__ == "__main__":
    main()
