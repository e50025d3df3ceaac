"""The documentation on this machine as text: sentences, no code, no markup, none twice."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest

from bertworks.data import documentation
from bertworks.data.documentation import clean_sentences, is_sentence, write_documentation

DOCSTRING = """Return the sum of two numbers.

    The numbers may be of any kind that knows ``+``; see :func:`~operator.add` and `the guide <http://x.y>`_ for more.
    This goes on
    over two lines.

    Args:
        first (int): The first of the two numbers.
        second: The other one, which is added to the first.

    Parameters
    ----------
    x : array_like
        Input data of any shape you like.

    Returns: The sum of both numbers.

    >>> add(1, 2)
    3

    Example::

        This looks like a sentence but is code.
        total = add(1, 2)

    Back to prose after the code.

    .. note::
        A note inside a directive is left out.

    ```python
    Fenced code with a sentence in it here.
    ```
    too short.
    - An item of a list, which is a sentence too.
    x = [a for a in b].
"""


def test_clean_sentences() -> None:
    assert clean_sentences(DOCSTRING) == [
        "Return the sum of two numbers.",
        "The numbers may be of any kind that knows +; see add and the guide for more.",
        "This goes on over two lines.",
        "The first of the two numbers.",
        "The other one, which is added to the first.",
        "Input data of any shape you like.",
        "The sum of both numbers.",
        "Back to prose after the code.",
        "An item of a list, which is a sentence too.",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("This is a sentence.", True),
        ("Too short one.", False),
        ("no capital at the start of it.", False),
        ("No full stop at its end", False),
        ("See https://example.org for more of it.", False),
        ("Calls foo() and bar() in a row.", False),
        ("Uses a <b>tag</b> in the middle.", False),
        ("ONLY CAPITAL LETTERS STAND IN HERE.", False),
        ("A b c d e f 1 2 3 4 5.", False),
        ("The name of Peking University is often cut to 北大 by its students.", False),
    ],
)
def test_is_sentence(text: str, expected: bool) -> None:
    assert is_sentence(text) is expected


def test_documentation_of_a_small_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules and doc files, each sentence once, in a fixed order; damaged files do no harm."""
    sentences = "This is the first sentence. Here is another one of them. And this is the third one."
    for name, content in {
        "lib/alpha.py": f'"""{sentences}"""\n',
        "lib/beta.py": f"'''{sentences}'''\n",
        "lib/test/gamma.py": f'"""{sentences} Of a test, that is."""\n',
        "site/pkg/__init__.py": '"""A package of some sort. It has three sentences in it. They are all very short."""\n',
        "site/pkg/mod.py": "x = 1\n",
        "site/pkg/readme.md": "# Title\n\nRead me first of all things. Then read me once again. After that you may rest.\n",
        "site/_private/x.py": '"""A private thing is left out. It has three sentences too. That does not help it."""\n',
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "site/pkg/bad.py").write_bytes(b'"""\xff\xfe broken"""')
    paths = {"stdlib": str(tmp_path / "lib"), "purelib": str(tmp_path / "site"), "platlib": str(tmp_path / "site")}
    monkeypatch.setattr(documentation.sysconfig, "get_paths", lambda: paths)
    file = BytesIO()
    assert write_documentation(file) == (3, 9, 49)
    rows = [json.loads(line) for line in file.getvalue().decode().splitlines()]
    assert [(row["package"], row["module"]) for row in rows] == [
        ("pkg", "pkg"),
        ("pkg", "pkg.readme"),
        ("python", "alpha"),
    ]
    assert rows[2]["text"].split("\n")[0] == "This is the first sentence."


def test_documentation_of_the_real_installation() -> None:
    """A few packages of this installation."""
    entries = []
    for entry in documentation.read_documentation():
        entries.append(entry)
        if len(entries) == 60:
            break
    sentences = [sentence for entry in entries for sentence in entry.sentences]
    assert len(sentences) == len(set(sentences)) > 300
    assert not any(re.search(r">>>|::|``|\bdef ", sentence) for sentence in sentences)


@pytest.mark.slow
def test_all_documentation_of_the_real_installation(tmp_path: Path) -> None:
    """By the verb, as a process from nothing: the pages of the documentation read a part."""
    out = tmp_path / "docs.jsonl"
    command = [sys.executable, "-m", "bertworks", "corpus", "docs", "--out", str(out)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    texts = [json.loads(line)["text"].split("\n") for line in out.read_bytes().splitlines()]
    assert len(texts) > 1000 and sum(map(len, texts)) > 3 * len(texts)
    assert f"{len(texts):,} documents, {sum(map(len, texts)):,} sentences" in output
