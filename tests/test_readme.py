"""The README names every preset, is short, and both languages agree; its commands are run by tests/test_docs.py."""

from __future__ import annotations

import re
from pathlib import Path

from bertworks.presets import PRESETS
from stories import Page

ROOT = Path(__file__).parents[1]
README, CHINESE = (ROOT / name for name in ("README.md", "README.zh.md"))
MAX_LINES = 140


def test_every_preset_is_named() -> None:
    text = README.read_text("utf-8")
    for name in PRESETS:
        family, size = re.findall("(xlm-roberta|[a-z]+)-(.+)", name)[0]
        assert name in text or f"`-{size}`" in text or (size.endswith("-generator") and "`-generator`" in text), name
        assert f"`{family}-" in text


def test_both_languages_have_the_same_code_and_figures() -> None:
    assert [step.code for step in Page(README).steps()] == [step.code for step in Page(CHINESE).steps()]
    figures = re.compile(r"\d[\d,.]*\d")
    assert set(figures.findall(README.read_text("utf-8"))) == set(figures.findall(CHINESE.read_text("utf-8")))


def test_the_readme_is_short() -> None:
    for path in (README, CHINESE):
        assert len(path.read_text("utf-8").splitlines()) <= MAX_LINES
