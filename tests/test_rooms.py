"""Imports point down: each package may import those below it, and torch stays out of those that do not need it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "bertworks"
# From top to bottom; a package may import itself and lower ones.
FLOORS = [
    ["__main__"],
    ["cli"],
    ["runs"],
    ["reports"],
    ["workbench"],
    ["inspect"],
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
    ["arguments"],
    ["errors"],
    ["__init__"],
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# Imports that are forbidden although they point down.
FORBIDDEN = {
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
    "arguments": {"torch", "pydantic", "numpy"},
    "errors": {"torch", "pydantic"},
}
ALLOWED = {("train", "bertworks.data.batches")}  # the only exception
# Names of the public API, and the package they come from.
PUBLIC_API = {
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
    return PUBLIC_API.get(name, name)


def imports(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they point"
            modules |= (
                {f"bertworks.{alias.name}" for alias in node.names}
                if node.module == "bertworks"
                else {str(node.module)}
            )
    return modules


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    relative = path.relative_to(SOURCE)
    room = relative.parts[0].removesuffix(".py")
    assert room in FLOOR, f"{room} has no floor: add it to FLOORS"
    if room == "__init__":
        return  # it imports the public API lazily
    for module in imports(path):
        if module.partition(".")[0] == "bertworks":
            assert FLOOR[room_of(module)] >= FLOOR[room], f"{relative} imports {module}, which is above it"
        is_forbidden = any(module == name or module.startswith(name + ".") for name in FORBIDDEN.get(room, ()))
        assert not is_forbidden or (room, module) in ALLOWED, f"{relative} imports {module}"


def test_there_is_one_softmax_over_keys() -> None:
    users = {
        path.name
        for path in FILES
        if "scaled_dot_product_attention" in path.read_text() or "softmax(" in path.read_text()
    }
    # fill.py, objective.py and predicting.py: over the vocabulary; task.py: over the classes; span.py: over starts and
    # ends of answers.
    assert users == {"attention.py", "fill.py", "objective.py", "predicting.py", "task.py", "span.py"}, users


def test_names_of_transformers_are_only_in_its_converters() -> None:
    converters = {"hf_config.py", "hf_names.py", "fairseq.py", "backends.py"}
    words = ("num_hidden_layers", "input_ids", "token_type_ids", "attention_mask", "intermediate_size")
    for path in FILES:
        if path.name not in converters:
            assert not [word for word in words if word in path.read_text()], path


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from bertworks.cli import main; "
        "print(sorted({'torch', 'numpy', 'tokenizers', 'pydantic', 'transformers'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
