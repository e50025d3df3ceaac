"""An HTML page: escaped, self-contained, in English and Chinese.

Untrusted text enters only through `escape`. Both languages are in the page; a switch in CSS, without a script, shows
one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape as _escape

from bertworks.page.modules import script_hash

NUMBER_CELL = re.compile(r"[-+]?[\d.,]*\d%?( \([\d.]+%\))?|")  # or empty
CODE = re.compile("`([^`]+)`")
# Trusted Types with no policy: no script can turn text into HTML or code.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1c2330; --dim: #667085; --paper: #ffffff; --line: #d8dde6; --soft: #f5f7fa; --link: #2457c5;
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --dim: #98a2b3; --paper: #14181f; --line: #333b48; --soft: #1d232d; --link: #8ab0ff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); }
body { font: 16px/1.6 system-ui, "Noto Sans", "Noto Sans CJK SC", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1.5rem 4rem; }
a { color: var(--link); }
h1 { font-size: 1.6rem; margin: 0.4rem 0 0.2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 0.6rem; }
p { max-width: 46rem; } .dim { color: var(--dim); } code { font-family: ui-monospace, monospace; font-size: 0.92em; }
table { border-collapse: collapse; margin: 0.6rem 0; } th, td { padding: 0.25rem 0.9rem 0.25rem 0; text-align: left; }
th { color: var(--dim); font-weight: 500; border-bottom: 1px solid var(--line); } .number { text-align: right; }
.switch { position: absolute; top: 1rem; right: 1.5rem; } .switch label { color: var(--link); cursor: pointer; }
#zh { position: absolute; opacity: 0; } #zh:focus-visible ~ .switch label { outline: 2px solid var(--link); }
#zh:checked ~ main [lang=en], #zh:checked ~ .switch [lang=en] { display: none; }
#zh:not(:checked) ~ main [lang=zh], #zh:not(:checked) ~ .switch [lang=zh] { display: none; }
"""


def escape(text: object) -> str:
    return _escape(str(text), quote=True)


def paragraph(text: str) -> str:
    """A text of a message as HTML: lines below the first are a list, `code` is set as code."""
    first, *others = (CODE.sub(r"<code>\1</code>", escape(line.strip())) for line in text.splitlines())
    items = "".join(f"<li>{line}</li>" for line in others)
    return f"{first}<ul>{items}</ul>" if items else first


def bilingual(english: str, chinese: str) -> str:
    """HTML that shows one text or the other, by language. Both are HTML: the caller escapes untrusted text."""
    return f'<span lang="en">{english}</span><span lang="zh">{chinese}</span>'


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The header and the first cell of each row are HTML, so that they can be bilingual; other cells are escaped.
    Columns that hold only numbers are aligned to the right."""
    texts = [
        [str(title), *(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)] for title, *cells in rows
    ]
    is_numeric = [i > 0 and all(NUMBER_CELL.fullmatch(row[i]) for row in texts) for i in range(len(header))]
    classes = [' class="number"' if numeric else "" for numeric in is_numeric]
    parts = ["<table><tr>", *(f"<th{name}>{cell}</th>" for name, cell in zip(classes, header, strict=True)), "</tr>"]
    for title, *cells in texts:
        tds = (f"<td{name}>{escape(cell)}</td>" for name, cell in zip(classes[1:], cells, strict=True))
        parts += [f"<tr><td>{title}</td>", *tds, "</tr>"]
    return "".join([*parts, "</table>"])


def page(title: tuple[str, str], body: str, style: str = "", script: str = "") -> str:
    """The complete document. `title`: plain text, in English and Chinese; `body`: HTML; `script`: the one that may run,
    by its hash."""
    english, chinese = map(escape, title)
    policy = CONTENT_SECURITY_POLICY + (f"; script-src {script_hash(script)}" if script else "")
    module = f'<script type="module">{script}</script>' if script else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{english} · {chinese}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}{style}</style></head>\n'
        '<body><input type="checkbox" id="zh" aria-label="中文 / English">'
        '<div class="switch"><label for="zh"><span lang="en">中文</span><span lang="zh">English</span></label></div>\n'
        f"<main><h1>{bilingual(english, chinese)}</h1>\n{body}\n</main>{module}</body></html>\n"
    )
