"""Pages of the documentation, run as a reader would: files, commands and Python of a page in their order, in one
folder.

What a block is:

    ```csv title="rows.csv"     a title: a file of this name, written into the folder
    ```python                   run, with the names that blocks before it have left
    ```console                  lines after `$ ` are commands, the others what they print
    ```bash                     every line is a command
    ```                         lines that begin with `bertworks ` are commands
    ```text, ```json, ...       only shown

Commands may go on after a backslash and may have a here-document. A comment before a block changes what becomes of it:
`<!-- not run: REASON -->`, or `<!-- exit 2 -->` if its commands are to end so. `<!-- slow -->` anywhere in a page
leaves it to `make test-slow`.

Trainings are cut to a few small steps. The first command of each verb but `corpus` is a process as the reader's; the others, where
they need no shell, are forked from one that has imported everything, and read a part only of the documentation
installed here.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import typer.main

from bertworks.cli.main import app
from bertworks.data import documentation
from commands import forked

STEPS = 2
BUDGET = "20s"  # for commands without --steps
SEEDS = 2
SIZES = {"train.batch_tokens": 1024, "train.evaluate_tokens": 512}  # of a pre-training
PROGRAMS = {"bertworks", "python", "torchrun", "cat", "cp", "echo", "head", "ls", "mkdir", "printf", "tail", "wc"}
OPERATORS = {"|", "||", "&&", ";"}
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<info>.*)$")
INFO = re.compile(r'(?P<language>[\w+-]*)(?P<options>( +\w+="[^"]*")*) *')
HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
LENGTH = re.compile(r"(?<=\s)--(?:budget|steps|epochs)(?:=|\s+)\S+")
LENGTH_SETTING = re.compile(r"(?<=\s)--set(?:=|\s+)['\"]?train\.(?:budget|steps|epochs)=[^\s'\"]+['\"]?")
SIZE_SETTING = re.compile(rf"(?<=\s)--set(?:=|\s+)['\"]?(?:{'|'.join(map(re.escape, SIZES))})=[^\s'\"]+['\"]?")
VERB = re.compile(r"\bbertworks\s+([a-z][a-z-]*)(?:\s+([a-z][a-z-]*))?")
Kind = Literal["file", "command", "python"]
FILES_READ = 8  # one in eight, of the documentation
# Verbs, as processes from nothing. What `bertworks corpus docs` reads in full: a slow test of tests/test_documentation.py.
_started = {"corpus"}


class BadPage(Exception):
    """A page that cannot be run, with the line where it stops making sense."""


@dataclass(frozen=True)
class Block:
    language: str
    title: str | None
    text: str
    line: int  # of its first line, in the page
    mark: str  # what the comment before it says


@dataclass(frozen=True)
class Step:
    kind: Kind
    text: str
    line: int
    name: str = ""  # of a file
    exit_code: int = 0

    @property
    def code(self) -> str:
        """The code without comments, which translations change."""
        if self.kind == "python":
            return ast.dump(ast.parse(self.text))
        return " ".join(shlex.split(self.text, comments=True)) if self.kind == "command" else self.text


class Page:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text("utf-8")
        self.is_slow = re.search(r"^<!-- slow -->$", self.text, re.MULTILINE) is not None

    def blocks(self) -> list[Block]:
        return list(_blocks(self.text, self.path))

    def steps(self, *, only_python: bool = False) -> list[Step]:
        steps = [step for block in self.blocks() for step in _steps(block, self.path)]
        return [step for step in steps if step.kind == "python" or not only_python]


def run(page: Page, folder: Path, *, only_python: bool = False) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for step in page.steps(only_python=only_python):
        place = f"{page.path.name}, line {step.line}"
        if step.kind == "file":
            file = folder / step.name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step.text, encoding="utf-8")
        elif step.kind == "command":
            process = _process(shortened(step.text), folder)
            message = f"{place}: {step.text}\nended with {process.returncode}\n{process.stdout[-2000:]}\n{process.stderr[-2000:]}"
            assert process.returncode == step.exit_code, message
            assert "Traceback" not in process.stderr, message
        else:
            with chdir(folder):
                exec(compile(_shortened_python(step.text, place), place, "exec"), names)


def _process(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    without_comment = re.sub(r"\s#.*", "", command)
    verb = VERB.match(command)
    if verb is None or verb[1] not in _started or re.search(r"[|&;<>$`]", without_comment):
        _started.update(match[1] for match in VERB.finditer(without_comment))
        return _bash(command, folder)
    return forked(*shlex.split(command.replace("\\\n", " "), comments=True)[1:], folder=folder, before=_read_less)


def _read_less() -> None:
    """In the process of a command: what it trains on need not be all that is installed."""
    files = documentation.installed_files
    documentation.installed_files = lambda: files()[::FILES_READ]


def _bash(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}
    script = f"set -euo pipefail\n{command}"
    return subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)


# ---------------------------------------------------------------------- reading a page


def _blocks(text: str, path: Path) -> Iterator[Block]:
    lines = text.splitlines()
    index, previous = 0, ""
    while index < len(lines):
        fence = FENCE.match(lines[index])
        if fence is None:
            previous = lines[index].strip() or previous
            index += 1
            continue
        info = INFO.fullmatch(fence["info"])
        first = index + 1
        if info is None:
            raise BadPage(f"{path.name}, line {first}: a block of what? {lines[index].strip()}")
        last = first
        while last < len(lines) and lines[last].strip() != fence["ticks"]:
            last += 1
        if last == len(lines):
            raise BadPage(f"{path.name}, line {first}: a block that does not end")
        block_lines = [line.removeprefix(fence["indent"]) for line in lines[first:last]]
        options = dict(re.findall(r'(\w+)="([^"]*)"', info["options"]))
        comment = re.fullmatch(r"<!-- (.*) -->", previous)
        content = "".join(f"{line}\n" for line in block_lines)
        yield Block(info["language"], options.get("title"), content, first + 1, comment[1] if comment else "")
        index = last + 1
        previous = ""


def _steps(block: Block, path: Path) -> Iterator[Step]:
    if re.fullmatch(r"not run: .+", block.mark):
        return
    exit_code = re.fullmatch(r"exit (\d+)", block.mark)
    if block.title is not None:
        if Path(block.title).is_absolute() or ".." in Path(block.title).parts:
            raise BadPage(f"{path.name}, line {block.line}: a file outside of the page's folder: {block.title}")
        yield Step("file", block.text, block.line, name=block.title)
    elif block.language == "python":
        try:
            ast.parse(block.text)
        except SyntaxError as error:
            raise BadPage(f"{path.name}, line {block.line}: not Python: {error}") from None
        yield Step("python", block.text, block.line)
    elif block.language in ("console", "bash", "sh", ""):
        commands = list(_commands(block, path))
        if not commands and block.language:
            raise BadPage(f"{path.name}, line {block.line}: no command in a block of {block.language}")
        for line, command in commands:
            _check(command, f"{path.name}, line {line}")
            yield Step("command", command, line, exit_code=int(exit_code[1]) if exit_code else 0)


def _commands(block: Block, path: Path) -> Iterator[tuple[int, str]]:
    prefix = {"console": "$ ", "": "bertworks "}.get(block.language, "")
    lines = block.text.splitlines()
    index = 0
    while index < len(lines):
        line = lines[index]
        number = block.line + index
        index += 1
        if not line.startswith(prefix) or not line.strip() or (not prefix and line.startswith("#")):
            continue
        command = [line.removeprefix("$ ") if block.language == "console" else line]
        if not block.language:
            command = [re.split(r" {3,}", line)[0]]  # a description may follow it
        while command[-1].endswith("\\") and index < len(lines):
            command.append(lines[index].removeprefix("> "))
            index += 1
        here_document = HERE_DOCUMENT.search(command[-1])
        while here_document is not None and command[-1] != here_document[2]:
            if index == len(lines):
                raise BadPage(f"{path.name}, line {number}: {here_document[2]} is missing")
            command.append(lines[index])
            index += 1
        yield number, "\n".join(command)


def _check(command: str, place: str) -> None:
    """Refuse commands that cannot be parsed, or that run other programs than the known ones."""
    here_document = HERE_DOCUMENT.search(command)
    try:
        lexer = shlex.shlex(
            command.partition("\n")[0] if here_document else command, posix=True, punctuation_chars=True
        )
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError as error:
        raise BadPage(f"{place}: {command!r} cannot be read: {error}") from None
    expects_program = True
    for word in words:
        if word in OPERATORS:
            expects_program = True
        elif expects_program and not re.fullmatch(r"\w+=.*", word) and word.strip():
            if word not in PROGRAMS:
                raise BadPage(f"{place}: {word!r} is not a program that pages may run; or say <!-- not run: why -->")
            expects_program = False
    if expects_program:
        raise BadPage(f"{place}: {command!r} runs nothing")


# ---------------------------------------------------------------------- small budgets


def shortened(command: str) -> str:
    """The same command with a short training."""
    line, *here_document = command.split("\n") if HERE_DOCUMENT.search(command) else [command]
    starts = [match.start() for match in VERB.finditer(line)]
    parts = [line[begin:end] for begin, end in pairwise([0, *starts, len(line)])]
    return "\n".join(["".join(map(_shortened_verb, parts)), *here_document])


def _shortened_verb(part: str) -> str:
    """One `bertworks` command of a line that may have several."""
    verb = VERB.match(part)
    if verb is None:
        return part
    options = _options(*(word for word in verb.groups() if word))
    verb_end = verb.end(1)
    if {"--steps", "--budget"} <= options:
        part = f"{part[:verb_end]} --steps {STEPS}{LENGTH_SETTING.sub('', LENGTH.sub('', part[verb_end:]))}"
    elif "--budget" in options:
        part = f"{part[:verb_end]} --budget {BUDGET}{LENGTH.sub('', part[verb_end:])}"
    if verb[1] == "pretrain":
        sizes = "".join(f" --set {key}={value}" for key, value in SIZES.items())
        part = f"{part[:verb_end]}{sizes}{SIZE_SETTING.sub('', part[verb_end:])}"
    if "--seeds" in options:
        part = re.sub(r"(?<=\s--seeds)(=|\s+)\d+", rf"\g<1>{SEEDS}", part)
    return part


@cache
def _options(*words: str) -> frozenset[str]:
    command: Any = typer.main.get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return frozenset(name for parameter in command.params for name in parameter.opts)


class _Shorter(ast.NodeTransformer):
    """`finetune` and `pretrain`, wherever they are called, take a few steps, and small ones by their settings."""

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        for at, key in enumerate(node.keys):
            if isinstance(key, ast.Constant) and key.value in SIZES:
                node.values[at] = ast.Constant(SIZES[str(key.value)])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("finetune", "pretrain"):
            other_keywords = [keyword for keyword in node.keywords if keyword.arg not in ("steps", "epochs", "budget")]
            node.keywords = [*other_keywords, ast.keyword("steps", ast.Constant(STEPS))]
            for keyword in node.keywords:
                if keyword.arg == "seeds":
                    keyword.value = ast.Constant(SEEDS)
        return node


def _shortened_python(text: str, place: str) -> ast.Module:
    return ast.fix_missing_locations(_Shorter().visit(ast.parse(text, place)))
