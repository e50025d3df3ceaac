"""The README names every preset, is short, and both languages agree; its commands are run by tests/test_docs.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bertworks.presets import PRESETS
from stories import Page

ROOT = Path(__file__).parents[1]
README, CHINESE = (ROOT / name for name in ("README.md", "README.zh.md"))
MAX_LINES = 140


@pytest.mark.parametrize("path", [README, CHINESE], ids=lambda path: path.name)
def test_every_preset_is_named(path: Path) -> None:
    rows = re.findall(r"^\| (`[a-z].*?) \|", path.read_text("utf-8"), re.MULTILINE)
    assert {name for row in rows for name in preset_names(row)} == set(PRESETS)


def preset_names(row: str) -> list[str]:
    """The presets of a table row: `-base` is a size of the family before it, `-generator` goes with each name."""
    names: list[str] = []
    for name in re.findall(r"`([a-z0-9-]+)`", row):
        if name == "-generator":
            names += [f"{generated}{name}" for generated in names]
        else:
            names.append(f"{names[0].rpartition('-')[0]}{name}" if name.startswith("-") else name)
    return names


def test_both_languages_have_the_same_code_and_figures() -> None:
    assert [step.code for step in Page(README).steps()] == [step.code for step in Page(CHINESE).steps()]
    figures = re.compile(r"\d[\d,.]*\d")
    assert set(figures.findall(README.read_text("utf-8"))) == set(figures.findall(CHINESE.read_text("utf-8")))


def test_the_readme_is_short() -> None:
    for path in (README, CHINESE):
        assert len(path.read_text("utf-8").splitlines()) <= MAX_LINES
