"""A corpus that every machine has: the English documentation of its installed Python packages.

Docstrings and doc files are read as text, modules are never imported. Code, markup, lists of parameters and tables are
removed, the rest is split into sentences and deduplicated. One document per module, with the name of its package.
"""

from __future__ import annotations

import json
import re
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import IO

from bertworks.text.cached_encoder import HAN
from bertworks.text.sentences import split_sentences

DOCSTRING = re.compile(r'("""|\'\'\')(.*?)(?<!\\)\1', re.DOTALL)
SKIPPED_FOLDERS = {
    "tests",
    "test",
    "testing",
    "idlelib",
    "__pycache__",
    "_vendor",
    "vendor",
    "site-packages",
    "dist-packages",
    "lib2to3",
    "encodings",
}
DOC_SUFFIXES = (".rst", ".md", ".txt")
MAX_FILE_BYTES = 2**21
MIN_SENTENCES = 3  # of a document
# What may precede prose on a line: a bullet, the title of a section, the name of a field.
LEAD = re.compile(
    r"\s*(?:(?:[-*+•]|\d+[.)]|\(?[a-z]\))\s+)?"
    r"(?:(?:Returns?|Yields|Raises|Notes?|Warnings?|Tip|Args|Examples?):\s+)?"
    r"(?::\w[^:]*:\s+|\*{0,2}`*\w+`*\s*\([^)]*\):\s+|\*{0,2}`*\w+`*:\s+)?"
)
NOT_PROSE = re.compile(r"\s*(?:\.\. |@\w+|[\w*, ]+\s:\s|\*{0,2}\w+\s*=|[|+=~^#-]{3}|>>>|\.\.\.|[$%] )")
ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*?)(?:\s*<[^`]*>)?`_*")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)|`([^`<]+?)\s*<[^`>]*>`_+")
MARKS = re.compile(r"``?|\*\*?|(?<=\w)_(?=\s)")
PLAIN_WORD = re.compile(r"[A-Za-z]+(?:['’-][a-z]+)*[,;:]?$")
CODE_OR_MARKUP = re.compile(r"[\\{}<>=|#@$^~\[\]]|https?:|\w\(\)|\w\.\w+\.\w|::|__|\.\.\s*$|\s--?\w")


@dataclass(frozen=True)
class Documentation:
    """The sentences of one module or doc file."""

    package: str
    module: str
    sentences: list[str]


def write_documentation(
    file: IO[bytes], progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[int, int, int]:
    """Write JSON lines with text, package and module; returns the numbers of documents, sentences and words."""
    documents = sentences = words = 0
    for entry in read_documentation(progress):
        text = "\n".join(entry.sentences)
        row = {"text": text, "package": entry.package, "module": entry.module}
        file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
        documents += 1
        sentences += len(entry.sentences)
        words += len(text.split())
    return documents, sentences, words


def read_documentation(progress: Callable[[int, int], None] = lambda done, total: None) -> Iterator[Documentation]:
    seen: set[str] = set()
    files = installed_files()
    for n_read, (package, module, path) in enumerate(files):
        progress(n_read, len(files))
        try:
            content = (
                path.read_bytes().decode("utf-8", errors="ignore") if path.stat().st_size <= MAX_FILE_BYTES else ""
            )
        except OSError:
            continue
        texts = [match[2] for match in DOCSTRING.finditer(content)] if path.suffix == ".py" else [content]
        new_sentences = []
        for sentence in (sentence for text in texts for sentence in clean_sentences(text)):
            if sentence not in seen:
                seen.add(sentence)
                new_sentences.append(sentence)
        if len(new_sentences) >= MIN_SENTENCES:
            yield Documentation(package, module, new_sentences)


def installed_files() -> list[tuple[str, str, Path]]:
    """Package, module and file, in order; the standard library is the package `python`."""
    paths = sysconfig.get_paths()
    files = set()
    for name in ("stdlib", "purelib", "platlib"):
        root = Path(paths[name])
        for path in _text_files(root):
            inner = path.relative_to(root)
            package = "python" if name == "stdlib" else inner.parts[0].removesuffix(".py").partition("-")[0]
            if not package.startswith("_") and not package.endswith(".txt"):
                files.add((package, ".".join(inner.with_suffix("").parts).removesuffix(".__init__"), path))
    return sorted(files)


def _text_files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.suffix == ".py" or path.suffix in DOC_SUFFIXES or path.name == "METADATA":
            inner = path.relative_to(root).parts
            if not SKIPPED_FOLDERS & set(inner) and path.is_file():
                yield path


def clean_sentences(text: str) -> list[str]:
    """The sentences of a docstring or a doc file, without code and markup."""
    return [
        sentence
        for paragraph in _prose(text)
        for sentence in split_sentences(_without_markup(paragraph))
        if is_sentence(sentence)
    ]


def _prose(text: str) -> Iterator[str]:
    """Paragraphs that are neither code nor a table; list items and fields are separate paragraphs."""
    first_line, _, other_lines = text.partition("\n")
    paragraph: list[str] = []
    code_indent: int | None = None  # lines deeper than this are code
    fenced = False
    for line in [first_line.strip(), *dedent(other_lines).split("\n")]:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        fence = stripped.startswith(("```", "~~~"))
        fenced ^= fence
        if stripped and code_indent is not None and indent <= code_indent:
            code_indent = None
        if not stripped or fence or fenced or code_indent is not None or NOT_PROSE.match(line):
            if paragraph:
                yield " ".join(paragraph)
            paragraph = []
            if stripped.startswith(".. ") and code_indent is None:
                code_indent = indent
            continue
        lead = LEAD.match(line)
        if lead is not None and len(lead[0].strip()) and paragraph:
            yield " ".join(paragraph)
            paragraph = []
        stripped = line[lead.end() if lead else 0 :].strip()
        paragraph.append(stripped)
        if stripped.endswith("::"):
            yield " ".join(paragraph)
            paragraph = []
            code_indent = indent
    if paragraph:
        yield " ".join(paragraph)


def _without_markup(paragraph: str) -> str:
    paragraph = ROLE.sub(lambda match: match[1].rpartition(".")[2], paragraph)
    paragraph = LINK.sub(lambda match: match[1] or match[2] or "", paragraph)
    return " ".join(MARKS.sub("", paragraph).split())


def is_sentence(text: str) -> bool:
    """Whether it is English prose of usual length: mostly plain words, from a capital to a full stop."""
    words = text.split()
    if (
        not 4 <= len(words) <= 60
        or not text[0].isupper()
        or text[-1] not in ".!?"
        or CODE_OR_MARKUP.search(text)
        or not text.isprintable()
        or HAN.search(text)  # preparing it would need a package for Chinese words
    ):
        return False
    plain_words = sum(1 for word in words if PLAIN_WORD.match(word.strip("\"'().!?“”")))
    return plain_words >= 0.75 * len(words) and any(word.islower() and len(word) > 1 for word in words)
