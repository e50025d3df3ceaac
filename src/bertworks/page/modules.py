"""The page's script: plain ES modules of `parts/`, joined into one, since a single file has nothing to import from; and
the data that it reads."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

PARTS = Path(__file__).parent / "parts"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
INDENTED_OR_COMMENT = re.compile(r"^(\s*//.*\n|[ \t]+)", re.MULTILINE)  # no template of ours goes over several lines
EXPORT = re.compile(r"^export (?=(async )?function|class|const|let)", re.MULTILINE)


def joined_modules(name: str) -> str:
    """A module with all that it imports before it, each once. Names at the top of modules have to be different ones."""
    sources: dict[str, str] = {}

    def add(module: str) -> None:
        if module in sources:
            return
        text = (PARTS / f"{module}.js").read_text(encoding="utf-8")
        sources[module] = ""  # it is being added
        for imported in IMPORT.findall(text):
            add(imported)
        del sources[module]
        sources[module] = EXPORT.sub("", IMPORT.sub("", text))

    add(name)
    return INDENTED_OR_COMMENT.sub("", "\n".join(sources.values()))


def joined_styles(name: str) -> str:
    """The style sheets beside a module and all that it imports, those of imported ones first."""
    modules = [name]
    for module in modules:
        imported = IMPORT.findall((PARTS / f"{module}.js").read_text(encoding="utf-8"))
        modules += [other for other in imported if other not in modules]
    sheets = [PARTS / f"{module}.css" for module in reversed(modules)]
    return "".join(sheet.read_text(encoding="utf-8") for sheet in sheets if sheet.is_file())


def script_hash(script: str) -> str:
    """For the content security policy, which allows this script and no other."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def data_block(name: str, content: bytes) -> str:
    """Deflated bytes, in an element that is data and never runs."""
    text = b64encode(deflated(content)).decode()
    return f'<script type="application/octet-stream" id="{name}">{text}</script>'


def deflated(content: bytes) -> bytes:
    """The smaller of two ways. Numbers of nearly uniform attention are noise: copies of earlier bytes, where there
    seem to be some, take more room than the bytes themselves."""
    return min((_deflated(content, strategy) for strategy in (zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY)), key=len)


def _deflated(content: bytes, strategy: int) -> bytes:
    stream = zlib.compressobj(strategy=strategy)
    return stream.compress(content) + stream.flush()


def json_block(name: str, value: object) -> str:
    """Numbers and names of ours; a `<` would end the element."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'
