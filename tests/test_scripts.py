"""The scripts of examples/ run as they are, each in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))
EXPECTED = {  # what the script prints, in part
    "embed.py": "Passwords are changed",
    "finetune_csv.py": "tickets-run/report.html",
    "transformers_both_ways.py": "largest difference: ",
    "watch_training.py": "ClassPrediction(",
}


def test_every_script_has_an_expected_output() -> None:
    assert set(SCRIPTS) == set(EXPECTED)


@pytest.mark.parametrize("name", SCRIPTS)
def test_python_script(name: str, tmp_path: Path) -> None:
    process = subprocess.run([sys.executable, EXAMPLES / name], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert EXPECTED[name] in process.stdout, process.stdout
    if name == "embed.py":
        assert EXPECTED[name] in process.stdout.splitlines()[0], "the right sentence is the closest"
    if name == "finetune_csv.py":
        assert "billing" in process.stdout and "bugs" in process.stdout
    if name == "transformers_both_ways.py":
        differences = [float(line.rpartition(" ")[2]) for line in process.stdout.splitlines()]
        assert len(differences) == 2 and max(differences) < 1e-5


def test_pretrain_script(tmp_path: Path) -> None:
    text = " ".join(
        f"The {a} returns a {b}. It takes a {b} of strings." for a in ("call", "loop") for b in ("list", "set")
    )
    (tmp_path / "text.txt").write_text("\n\n".join(f"{text} Page {n} of it." for n in range(200)))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"BUDGET": "4s", "VOCAB_SIZE": "200", "SENTENCE": "the call returns a [MASK] of strings"}
    command = ["bash", EXAMPLES / "pretrain.sh", "text.txt"]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "blank 1" in process.stdout and (tmp_path / "run" / "report.html").is_file()
