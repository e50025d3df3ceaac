"""Text that is on every machine: the English documentation of the Python packages installed there.

Docstrings and doc files are read as text, never imported. What is left after code, markup, lists of parameters and
tables are taken out is kept sentence by sentence; a sentence that was seen before is left out. One document per module,
with its package.
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

from bertworks.text.sentences import split_sentences

DOCSTRING = re.compile(r'("""|\'\'\')(.*?)(?<!\\)\1', re.DOTALL)
LEFT_OUT = {
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
LARGEST = 2**21  # bytes
FEWEST = 3  # sentences that make a document
# What may stand before prose: a list's mark, a section's title, a field's name.
LEAD = re.compile(
    r"\s*(?:(?:[-*+•]|\d+[.)]|\(?[a-z]\))\s+)?"
    r"(?:(?:Returns?|Yields|Raises|Notes?|Warnings?|Tip|Args|Examples?):\s+)?"
    r"(?::\w[^:]*:\s+|\*{0,2}`*\w+`*\s*\([^)]*\):\s+|\*{0,2}`*\w+`*:\s+)?"
)
NO_PROSE = re.compile(r"\s*(?:\.\. |@\w+|[\w*, ]+\s:\s|\*{0,2}\w+\s*=|[|+=~^#-]{3}|>>>|\.\.\.|[$%] )")
ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*?)(?:\s*<[^`]*>)?`_*")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)|`([^`<]+?)\s*<[^`>]*>`_+")
MARKS = re.compile(r"``?|\*\*?|(?<=\w)_(?=\s)")
LETTERS = re.compile(r"[A-Za-z]+(?:['’-][a-z]+)*[,;:]?$")
BAD = re.compile(r"[\\{}<>=|#@$^~\[\]]|https?:|\w\(\)|\w\.\w+\.\w|::|__|\.\.\s*$|\s--?\w")


@dataclass(frozen=True)
class Documentation:
    package: str
    module: str
    sentences: list[str]


def write_documentation(
    file: IO[bytes], progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[int, int, int]:
    """JSON lines of text, package and module; returns documents, sentences and words."""
    documents = sentences = words = 0
    for entry in read_documentation(progress):
        text = "\n".join(entry.sentences)
        file.write(
            (
                json.dumps({"text": text, "package": entry.package, "module": entry.module}, ensure_ascii=False) + "\n"
            ).encode()
        )
        documents, sentences, words = documents + 1, sentences + len(entry.sentences), words + len(text.split())
    return documents, sentences, words


def read_documentation(progress: Callable[[int, int], None] = lambda done, total: None) -> Iterator[Documentation]:
    seen: set[str] = set()
    files = installed_files()
    for done, (package, module, path) in enumerate(files):
        progress(done, len(files))
        try:
            content = path.read_bytes().decode("utf-8", errors="ignore") if path.stat().st_size <= LARGEST else ""
        except OSError:
            continue
        texts = [match[2] for match in DOCSTRING.finditer(content)] if path.suffix == ".py" else [content]
        fresh = []
        for sentence in (sentence for text in texts for sentence in clean_sentences(text)):
            if sentence not in seen:
                seen.add(sentence)
                fresh.append(sentence)
        if len(fresh) >= FEWEST:
            yield Documentation(package, module, fresh)


def installed_files() -> list[tuple[str, str, Path]]:
    """Package, module and file, in order; the standard library is the package `python`."""
    paths, files = sysconfig.get_paths(), set()
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
            if not LEFT_OUT & set(inner) and path.is_file():
                yield path


def clean_sentences(text: str) -> list[str]:
    """The sentences of a docstring or a doc file, without code and markup."""
    return [
        sentence
        for paragraph in _prose(text)
        for sentence in split_sentences(_plain(paragraph))
        if is_sentence(sentence)
    ]


def _prose(text: str) -> Iterator[str]:
    """Paragraphs that are neither code nor table; items of lists and fields are paragraphs of their own."""
    first, _, rest = text.partition("\n")
    paragraph: list[str] = []
    code_indent: int | None = None  # lines deeper than this are code
    fenced = False
    for line in [first.strip(), *dedent(rest).split("\n")]:
        stripped, indent = line.strip(), len(line) - len(line.lstrip())
        fence = stripped.startswith(("```", "~~~"))
        fenced ^= fence
        if stripped and code_indent is not None and indent <= code_indent:
            code_indent = None
        if not stripped or fence or fenced or code_indent is not None or NO_PROSE.match(line):
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
            paragraph, code_indent = [], indent
    if paragraph:
        yield " ".join(paragraph)


def _plain(paragraph: str) -> str:
    paragraph = ROLE.sub(lambda match: match[1].rpartition(".")[2], paragraph)
    paragraph = LINK.sub(lambda match: match[1] or match[2] or "", paragraph)
    return " ".join(MARKS.sub("", paragraph).split())


def is_sentence(text: str) -> bool:
    words = text.split()
    if (
        not 4 <= len(words) <= 60
        or not text[0].isupper()
        or text[-1] not in ".!?"
        or BAD.search(text)
        or not text.isprintable()
    ):
        return False
    plain = sum(1 for word in words if LETTERS.match(word.strip("\"'().!?“”")))
    return plain >= 0.75 * len(words) and any(word.islower() and len(word) > 1 for word in words)
