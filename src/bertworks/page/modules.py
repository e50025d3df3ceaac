"""The page's script: plain ES modules of `parts/`, joined into one, since a single file has nothing to import from."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

PARTS = Path(__file__).parent / "parts"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
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
    return "\n".join(sources.values())


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
