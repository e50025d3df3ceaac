"""The documentation: generated pages are current, links lead somewhere, and what pages show works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import bertworks
from bertworks.cli.main import VERBS
from bertworks.config import TaskArtifact
from bertworks.data.shards import Manifest, ShardCounts, ShardEntry
from bertworks.runs.record import RunRecord
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.checkpoint import State
from stories import BadPage, Page, run, shortened

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WITH_COMMANDS = (
    "README",
    "index",
    "install",
    "quickstart",
)  # and the guides; other pages also show commands that are no longer valid


# ---------------------------------------------------------------------- the pages


def test_generated_pages_are_current() -> None:
    process = subprocess.run([sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True)
    assert process.returncode == 0, f"{process.stderr}\nonce more: python docs/generate.py"


def test_codes_that_tests_expect_are_listed() -> None:
    page = (DOCS / "reference" / "errors.md").read_text("utf-8")
    expected = {
        code
        for file in (ROOT / "tests").glob("test_*.py")
        for code in re.findall(r"\brefused\(\s*\"([a-z0-9-]+)\"", file.read_text("utf-8"))
    }
    assert len(expected) > 50
    assert not [code for code in sorted(expected) if f"| `{code}` |" not in page]


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("README*.md")), *PAGES], ids=lambda page: page.name)
def test_links(page: Path) -> None:
    assert not dead_links(page)


def test_every_page_is_listed() -> None:
    """The build of the site checks this too, but needs the docs extra."""
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted({page.relative_to(DOCS).as_posix().replace(".zh.md", ".md") for page in PAGES})


def dead_links(page: Path) -> list[str]:
    """Relative links and images without their file."""
    text = re.sub(r"^ *(`{3,})[^\n]*\n.*?^ *\1$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]+`", "", text)
    links = re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", text) + re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    links += re.findall(r"^\[[^\]]+\]: +(\S+)", text, re.MULTILINE)
    relative = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:", link)]
    return [link for link in relative if link and not (page.parent / link).exists()]


def test_dead_links_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "[a](a.md) ![b](b.png) [c](page.md#here) [d](https://d.e/f.md) `[e](e.md)`\n\n```\n[f](f.md)\n```\n"
    )
    assert dead_links(page) == ["a.md", "b.png"]


def pages_to_run() -> list[object]:
    """Every page with something to run; a translation only if its code differs from the original's. Concept pages also
    show what is printed: tests/test_concepts.py runs them."""
    cases: list[object] = []
    for path in (ROOT / "README.md", *(page for page in PAGES if page.parent.name != "concepts")):
        page = Page(path)
        only_python = not has_commands(path)
        if is_worth_running(page, only_python):
            marks = [pytest.mark.slow] if page.is_slow else []
            cases.append(pytest.param(page, only_python, id=path.relative_to(ROOT).as_posix(), marks=marks))
    return cases


def is_worth_running(page: Page, only_python: bool) -> bool:
    original = page.path.with_name(page.path.name.replace(".zh.md", ".md"))
    try:
        steps = [step.code for step in page.steps(only_python=only_python)]
        if page.path == original or not original.is_file():
            return bool(steps)
        return steps != [step.code for step in Page(original).steps(only_python=only_python)]
    except BadPage:
        return True  # and it will fail


def has_commands(path: Path) -> bool:
    return path.name.partition(".")[0] in WITH_COMMANDS or path.parent.name == "guides"


@pytest.mark.parametrize(("page", "only_python"), pages_to_run())
def test_page_runs(page: Page, only_python: bool, tmp_path: Path) -> None:
    run(page, tmp_path, only_python=only_python)


def test_every_command_is_documented() -> None:
    pages = [ROOT / "README.md", *(page for page in PAGES if has_commands(page))]
    commands = [step.text for page in pages for step in Page(page).steps() if step.kind == "command"]
    documented = {verb for command in commands for verb in re.findall(r"bertworks ([a-z-]+)", command)}
    not_run = {"tour", "import"}  # minutes; a pickle of others: tests/test_cli.py runs both
    not_run |= {"compare-heads"}  # two atlases, a minute: tests/test_atlas_page.py
    assert documented >= VERBS.keys() - not_run, VERBS.keys() - documented


# ---------------------------------------------------------------------- file formats


def test_file_formats_name_every_field() -> None:
    page = (DOCS / "reference" / "file-formats.md").read_text("utf-8")
    field_names = {
        field.name for record_class in (State, Manifest, ShardCounts, ShardEntry) for field in fields(record_class)
    }
    field_names |= {*RunRecord.model_fields, *TaskArtifact.model_fields}
    assert not [name for name in sorted(field_names) if f"`{name}`" not in page]


def test_file_formats_name_every_file(tmp_path: Path) -> None:
    """Every file of a pre-training and a fine-tuning run, and the keys of `results.json`."""
    page = (DOCS / "reference" / "file-formats.md").read_text("utf-8")
    (tmp_path / "vocab.txt").write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] a of tea cup pot".split()))
    (tmp_path / "text.txt").write_text("a cup of tea. a pot of tea.\n\na pot. a cup.\n\na cup of a pot\n")
    bertworks.prepare(tmp_path / "text.txt", tokenizer=Tokenizer.load(tmp_path), out=tmp_path / "shards", workers=1)
    bertworks.pretrain(tmp_path / "shards", preset="bert-tiny", objective="mlm", steps=1, out=tmp_path / "pretrained")
    rows = [{"text": f"a {word} of tea", "label": word} for word in ("cup", "pot")] * 8
    bertworks.finetune(rows, model=tmp_path / "pretrained", steps=1, seeds=2, out=tmp_path / "tuned")
    for folder in ("shards", "pretrained", "tuned"):
        for file in (tmp_path / folder).rglob("*"):
            name = re.sub(r"^(step-)\d+", r"\g<1>00000100", file.name)
            if file.parent.name != "plans" and "tensorboard" not in file.parts:
                assert name in page, f"{file.relative_to(tmp_path)} is not in file-formats.md"
    keys = {key for file in tmp_path.rglob("results.json") for key in json.loads(file.read_text("utf-8"))}
    assert keys and not [key for key in sorted(keys) if f"`{key}`" not in page]


# ---------------------------------------------------------------------- the runner of pages

EXAMPLE_PAGE = """# A made-up page

```csv title="data/rows.csv"
text,label
a cup,cup
```

```bash
cat > more.txt <<'EOF'
bertworks is a word here --steps 100
EOF
# a comment
cat data/rows.csv more.txt \\
  | wc -l > n.txt
```

Output is not run:

```console
$ cat n.txt
3
$ bertworks --version | head -1
bertworks 9.9
```

```
src/
bertworks params bert-tiny --json     what it does
```

<!-- exit 2 -->
```console
$ bertworks params no-such-model
error (not-found): ...
```

<!-- not run: only shown -->
```python
never.defined(
```

- in a list

  ```python
  from pathlib import Path
  n = int(Path("n.txt").read_text())
  ```

```python
Path("seen.txt").write_text(str(n))
```

```text
bertworks no-such-verb
```
"""


def write_page(text: str, folder: Path) -> Page:
    path = folder / "story.md"
    path.write_text(text, encoding="utf-8")
    return Page(path)


def test_runner(tmp_path: Path) -> None:
    page = write_page(EXAMPLE_PAGE, tmp_path)
    kinds = [step.kind for step in page.steps()]
    assert kinds == ["file", *["command"] * 6, "python", "python"] and not page.is_slow
    assert [step.line for step in page.steps()][:3] == [4, 9, 13]
    (tmp_path / "here").mkdir()
    run(page, tmp_path / "here")
    assert (tmp_path / "here" / "seen.txt").read_text() == "3"
    assert "--steps 100" in (tmp_path / "here" / "more.txt").read_text(), "files stay as they are"
    assert [step.kind for step in page.steps(only_python=True)] == ["python", "python"]
    assert write_page("<!-- slow -->\n", tmp_path).is_slow


@pytest.mark.parametrize(
    "block",
    [
        "```bash\nbertworks params no-such-model\n```",
        "```console\n$ bertworks no-such-verb\n```",
        "```\nbertworks params bert-tiny --no-such-option\n```",
        "```bash\ncat not-there.txt | wc -l\n```",
        "<!-- exit 2 -->\n```bash\nbertworks params bert-tiny\n```",
    ],
)
def test_a_command_that_fails_fails_the_page(block: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="line"):
        run(write_page(block, tmp_path), tmp_path)


def test_python_that_fails_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(write_page("```python\n1 / 0\n```", tmp_path), tmp_path)


@pytest.mark.parametrize(
    "block",
    [
        "```bash\nbertworks fill 'not closed\n```",
        "```bash\nfrobnicate --all\n```",
        "```bash\nbertworks params bert-tiny | frobnicate\n```",
        "```bash\nbertworks params bert-tiny |\n```",
        "```bash\ncat > x <<EOF\nno end\n```",
        "```console\nbertworks params bert-tiny\n```",
        "```python\nno Python here\n```",
        "```{ .python }\n1\n```",
        "```bash\nbertworks params bert-tiny\n",
        '```csv title="../outside.csv"\na\n```',
        "<!-- not run -->\n```bash\nfrobnicate\n```",
    ],
)
def test_a_malformed_block_fails_the_page(block: str, tmp_path: Path) -> None:
    with pytest.raises(BadPage, match="line"):
        run(write_page(block, tmp_path), tmp_path)


def test_trainings_are_shortened(tmp_path: Path) -> None:
    """For every verb that trains, however its length is given, and also if it is not."""
    sizes = "--set train.batch_tokens=1024 --set train.evaluate_tokens=512"
    for given in (
        "",
        " --budget 10m",
        " --epochs=3",
        " --steps 5000",
        " --set train.epochs=3 --set train.batch_tokens=9",
    ):
        assert shortened(f"bertworks pretrain shards{given} --out run").split() == (
            f"bertworks pretrain {sizes} --steps 2 shards --out run".split()
        )
    assert shortened("bertworks finetune classify --seeds 5 --out r") == (
        "bertworks finetune --steps 2 classify --seeds 2 --out r"
    )
    assert shortened("torchrun -m bertworks pretrain shards --steps 9 > log").split() == (
        f"torchrun -m bertworks pretrain {sizes} --steps 2 shards > log".split()
    )
    several = "bertworks pretrain s --out a && bertworks finetune tag --model a --epochs 9 --out b | tail -1"
    assert shortened(several).split() == (
        f"bertworks pretrain {sizes} --steps 2 s --out a && bertworks finetune --steps 2 tag --model a --out b | tail -1".split()
    )
    assert shortened("bertworks tour --budget 4m").split() == "bertworks tour --budget 20s".split()
    assert shortened("bertworks vocab train a.txt --out v") == "bertworks vocab train a.txt --out v"
    code = "class Fake:\n    def finetune(self, **given):\n        self.given = given\nfake = Fake()\n"
    code += 'fake.finetune(budget="10m", seeds=9, settings={"train.batch_tokens": 8192})\n'
    code += 'assert fake.given == {"steps": 2, "seeds": 2, "settings": {"train.batch_tokens": 1024}}, fake.given\n'
    run(write_page(f"```python\n{code}```", tmp_path), tmp_path)
