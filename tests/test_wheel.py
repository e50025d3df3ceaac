"""The wheel contains the whole package and nothing else, and runs outside of the source tree."""

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


def test_the_wheel_contains_the_package_only(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    suffixes = (".py", ".js", ".css")
    ours = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.suffix in suffixes}
    ours.add("bertworks/py.typed")
    metadata = {name for name in names if ".dist-info/" in name}
    assert names - metadata == ours
    assert {Path(name).name for name in metadata} >= {"METADATA", "entry_points.txt", "LICENSE"}
    assert wheel.name.startswith(f"bertworks-{bertworks.__version__}-py3-none-any")


def test_the_wheel_runs_outside_of_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = "import bertworks, runpy, sys; print(bertworks.__file__); sys.argv[1:] = ['params', 'bert-tiny']; runpy.run_module('bertworks', run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert str(tmp_path / "site") in process.stdout.splitlines()[0]
    assert "token embeddings" in process.stdout
