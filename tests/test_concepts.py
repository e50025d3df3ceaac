"""The file map of the architecture page matches the source tree; concept pages have their drawings, and their Python
prints what the pages show, in both languages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bertworks.data.corpus import Corpus
from bertworks.data.prepare import prepare
from bertworks.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONCEPTS = sorted(path for path in (DOCS / "concepts").glob("*.md") if not path.name.endswith(".zh.md"))
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def test_the_file_map_matches_the_source_tree() -> None:
    text = (DOCS / "develop" / "architecture.md").read_text(encoding="utf-8")
    tree = re.findall(r"^( +)([a-z_]+)(/|\.py)", FENCED.findall(text)[0], re.MULTILINE)
    listed = set()
    package = ""
    for indent, name, kind in tree:
        if kind == "/":
            package = name + "/"
        else:
            listed.add((package if len(indent) > 2 else "") + name + kind)
    source = ROOT / "src" / "bertworks"
    existing = {str(path.relative_to(source)) for path in source.rglob("*.py") if not path.name.startswith("__")}
    assert listed == existing, listed ^ existing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shards of exact-resume.md."""
    folder = tmp_path_factory.mktemp("docs")
    page = (DOCS / "concepts" / "exact-resume.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"<<'END'\n(.*?)^END$", page, re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True)
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        ".",
        *sorted(set(re.findall(r"\w+", (folder / "text.txt").read_text().lower()))),
    ]
    (folder / "vocab.txt").write_text("\n".join(words))
    prepare(Corpus([str(folder / "text.txt")]), Tokenizer.load(folder), folder / "shards", workers=1)
    return folder


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda page: page.stem)
def test_concept_page(page: Path, folder: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert (page.parent / "img" / f"{page.stem}.svg").is_file()
    chinese = page.with_suffix(".zh.md").read_text(encoding="utf-8")
    assert FENCED.findall(text) == FENCED.findall(chinese)
    examples = EXAMPLE.findall(text)
    assert len(examples) == text.count("```python\n") > 0, "every block of Python is followed by its output"
    for code, printed in examples:
        process = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
        assert process.stdout.split() == printed.split(), process.stdout + process.stderr
