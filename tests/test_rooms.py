"""Imports point down: each room may enter those below it, and torch stays out of the rooms that do not need it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "bertworks"
# From the top of the house to the ground; a room enters its own and lower ones.
FLOORS = [
    ["__main__"],
    ["cli"],
    ["runs"],
    ["reports"],
    ["workbench"],
    ["predictor"],
    ["fill"],
    ["train"],
    ["tasks"],
    ["datasets"],
    ["measure"],
    ["objectives"],
    ["data"],
    ["model"],
    ["text"],
    ["page"],
    ["presets"],
    ["config"],
    ["files"],
    ["errors"],
    ["__init__"],
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# Rooms that do without these, however low they lie.
KEPT_OUT = {
    "reports": {"bertworks.workbench", "bertworks.predictor", "bertworks.fill"},
    "train": {
        "bertworks.objectives",
        "bertworks.tasks",
        "bertworks.datasets",
        "bertworks.measure",
        "bertworks.data",
        "bertworks.text",
        "bertworks.page",
        "bertworks.presets",
    },
    "tasks": {"bertworks.objectives", "bertworks.page", "bertworks.presets"},
    "datasets": {"torch", "bertworks.objectives", "bertworks.model", "bertworks.presets", "bertworks.page"},
    "measure": {
        "torch",
        "bertworks.objectives",
        "bertworks.data",
        "bertworks.model",
        "bertworks.presets",
        "bertworks.page",
    },
    "objectives": {"bertworks.text", "bertworks.page", "bertworks.presets"},
    "model": {"bertworks.text"},
    "data": {"torch", "bertworks.model", "bertworks.presets", "bertworks.page"},
    "text": {"torch", "bertworks.config", "bertworks.presets", "bertworks.page"},
    "page": {"torch", "numpy", "bertworks.config", "bertworks.presets", "bertworks.files"},
    "config": {"torch"},
    "presets": {"torch"},
    "files": {"torch", "pydantic"},
    "errors": {"torch", "pydantic"},
}
ALLOWED = {("train", "bertworks.data.batches")}  # and nothing else of what is kept out
# What the front door shows, and the room it comes from.
SHOWN = {
    **dict.fromkeys(("Run", "finetune", "pretrain", "prepare", "train_vocabulary"), "runs"),
    **dict.fromkeys(("load", "new", "Workbench"), "workbench"),
    "Ledger": "text",
    "record_attention": "model",
}
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(module: str) -> str:
    name = module.split(".")[1]
    if name == "__version__":
        return "__init__"
    return SHOWN.get(name, name)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they point"
            found |= (
                {f"bertworks.{alias.name}" for alias in node.names}
                if node.module == "bertworks"
                else {str(node.module)}
            )
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    relative = path.relative_to(SOURCE)
    room = relative.parts[0].removesuffix(".py")
    assert room in FLOOR, f"{room} has no floor: add it to FLOORS"
    if room == "__init__":
        return  # the front door shows what is inside, lazily
    for module in imports(path):
        if module.partition(".")[0] == "bertworks":
            assert FLOOR[room_of(module)] >= FLOOR[room], f"{relative} looks up to {module}"
        kept_out = any(module == out or module.startswith(out + ".") for out in KEPT_OUT.get(room, ()))
        assert not kept_out or (room, module) in ALLOWED, f"{relative} imports {module}"


def test_there_is_one_softmax_over_keys() -> None:
    users = {
        path.name
        for path in FILES
        if "scaled_dot_product_attention" in path.read_text() or "softmax(" in path.read_text()
    }
    # The next two: over the vocabulary; the last two: over the classes, over where an answer begins and ends.
    assert users == {"attention.py", "fill.py", "objective.py", "task.py", "span.py"}, users


def test_foreign_words_stay_at_the_border() -> None:
    border = {"hf_config.py", "hf_names.py", "backends.py"}
    words = ("num_hidden_layers", "input_ids", "token_type_ids", "attention_mask", "intermediate_size")
    for path in FILES:
        if path.name not in border:
            assert not [word for word in words if word in path.read_text()], path


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from bertworks.cli import main; "
        "print(sorted({'torch', 'numpy', 'tokenizers', 'pydantic', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
