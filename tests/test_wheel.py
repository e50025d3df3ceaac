"""What is installed from a wheel: everything that is ours, nothing else, and it runs outside of the tree."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import bertworks

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, ROOT], check=True)
    (path,) = folder.glob("*.whl")
    return path


def test_it_holds_what_is_ours(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    ours = {path.relative_to(source).as_posix() for path in source.rglob("*.py")} | {"bertworks/py.typed"}
    described = {name for name in names if ".dist-info/" in name}
    assert names - described == ours
    assert {Path(name).name for name in described} >= {"METADATA", "entry_points.txt", "LICENSE"}
    assert wheel.name.startswith(f"bertworks-{bertworks.__version__}-py3-none-any")


def test_it_runs_outside_of_the_tree(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = "import bertworks, runpy, sys; print(bertworks.__file__); sys.argv[1:] = ['params', 'bert-tiny']; runpy.run_module('bertworks')"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "site") in done.stdout.splitlines()[0] and "token embeddings" in done.stdout
