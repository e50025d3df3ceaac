"""What the README teaches works: its Python runs, its commands run, and both languages show the same code."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bertworks
from bertworks.data.corpus import Corpus
from bertworks.data.prepare import prepare
from bertworks.data.shards import Shards
from bertworks.model.locate import locate
from bertworks.presets import PRESETS
from bertworks.text.tokenizer import Tokenizer
from training import train

ROOT = Path(__file__).parents[1]
README, CHINESE = (ROOT / name for name in ("README.md", "README.zh.md"))
BIN = Path(sys.executable).parent
SHORTER = re.compile(r"--budget 10m")  # a test has less time


def blocks(path: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def commands(path: Path) -> list[str]:
    lines = [line for block in blocks(path, "") for line in block.splitlines()]
    return [re.split(r" {3,}", line)[0] for line in lines if line.startswith("bertworks ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "vocab.txt").write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] a of tea cup pot".split()))
    bench = bertworks.new("bert-tiny", heads=["lm"], tokenizer=Tokenizer.load(folder))
    return bench.save(folder / "model")


@pytest.fixture(scope="module")
def tuned(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and what was fine-tuned on it."""
    place = tmp_path_factory.mktemp("tuned")
    rows = [f"a {word} of tea {'cup ' * at},{word}" for at in range(10) for word in ("cup", "pot")]
    (place / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    call = [BIN / "bertworks", "finetune", "classify", "--train", place / "rows.csv", "--model", folder, "--steps", "2"]
    subprocess.run([*call, "--out", place / "run"], check=True, capture_output=True)
    return place


def test_python(tmp_path: Path) -> None:
    code = blocks(README, "python")
    assert len(code) == 1
    done = subprocess.run([sys.executable, "-c", code[0]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == re.search(r"print\(ledger\) +# (.*)", code[0])[1]  # type: ignore[index]
    assert bertworks.load(tmp_path / "my-model").limit == 256


@pytest.mark.parametrize("command", commands(README))
def test_commands(command: str, folder: Path, tuned: Path, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("a cup of tea\n")
    (tmp_path / "files.txt").write_text(
        "a cup of tea. A pot of tea. A cup.\n\na pot. A tea.\n\na cup of a pot\n\nof tea\n"
    )
    pickled = tmp_path / "pickled"
    bertworks.load(folder).save(pickled)
    if " import " in command:
        from safetensors.torch import load_file

        torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
        (pickled / "model.safetensors").unlink()
        command = command.replace("FOLDER", str(pickled))
    if any(verb in command for verb in (" masks ", " pretrain ", " resume ", " verify-resume ")):
        tokenizer = Tokenizer.load(locate("minilm") if "--model minilm" in command else folder)
        prepare(Corpus([str(tmp_path / "files.txt")]), tokenizer, tmp_path / "shards")
    if "resume " in command:
        train(Shards(tmp_path / "shards"), tmp_path / "run", "bert-tiny", steps=2)
    if any(verb in command for verb in (" finetune ", " evaluate ", " predict ", " compare ")):
        shutil.copytree(
            tuned,
            tmp_path,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("run") if " finetune " in command else None,
        )
    command = SHORTER.sub("--steps 2", command)
    places = {
        "ROWS.csv": "rows.csv",
        "FILES": "files.txt",
        "FILE": "file.txt",
        "SHARDS": "shards",
        "RUN": "run",
        "NEW": "new",
    }
    for word, name in places.items():
        command = re.sub(rf"\b{word}\b", str(tmp_path / name), command)
    command = command.replace("VOCAB", str(folder)).replace("FOLDER", str(folder))
    done = subprocess.run(
        [BIN / "bertworks", *shlex.split(command)[1:]], cwd=tmp_path, capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_verb_is_taught() -> None:
    from bertworks.cli.main import VERBS

    assert {command.split()[1] for command in commands(README)} >= VERBS.keys() - {"tour"}
    assert "make tour" in README.read_text()


def test_every_preset_is_named() -> None:
    text = README.read_text()
    for name in PRESETS:
        family, _, size = name.partition("-")
        assert name in text or f"`-{size}`" in text or (size.endswith("-generator") and "`-generator`" in text), name
        assert f"`{family}-" in text


def test_both_languages_show_the_same() -> None:
    def strip(block: str) -> str:
        return "\n".join(re.split(r" *#| {3,}", line)[0] for line in block.splitlines())

    assert [strip(b) for b in blocks(README, "python")] == [strip(b) for b in blocks(CHINESE, "python")]
    assert commands(README) == commands(CHINESE)
    figures = re.compile(r"\d[\d,.]*\d")
    assert set(figures.findall(README.read_text())) == set(figures.findall(CHINESE.read_text()))
