"""What a page must never do in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertworks.page.modules import script_hash

WATCH = """window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));"""
TRUSTED_TYPES = "; require-trusted-types-for 'script'; trusted-types 'none'"


def without_script(html: str) -> str:
    """A report without the one script that its policy allows."""
    scripts = re.findall(r'<script type="module">(.*?)</script>', html, re.DOTALL)
    assert len(scripts) == 1 and f"script-src {script_hash(scripts[0])}" in html
    return html.replace(f'<script type="module">{scripts[0]}</script>', "")


@contextmanager
def opened(browser: Any, path: Path, address: str = "", **options: Any) -> Iterator[Any]:
    """A page that must stay without errors, requests, and violations of its own policy or of Trusted Types."""
    html = path.read_text(encoding="utf-8")
    if "trusted-types" not in html:
        path.write_text(html.replace("img-src data:", f"img-src data:{TRUSTED_TYPES}", 1), encoding="utf-8")
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
    page = context.new_page()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    uri = path.resolve().as_uri()
    page.on("request", lambda request: problems.append(request.url) if request.url.split("#")[0] != uri else None)
    page.add_init_script(WATCH)
    page.goto(uri + address)
    yield page
    if options.get("java_script_enabled", True):
        problems += page.evaluate("window.violations")
    assert problems == []
    context.close()
