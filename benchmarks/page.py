"""The attention page: its size, and what a browser needs for it, at 19, 128 and 512 tokens; bertviz beside it.

    python benchmarks/page.py --corpus books.txt [--npm FOLDER]

Ours: MiniLM at each length, and a random model of bert-base's size (12 x 12 heads) at 512. Each page is opened in a
browser of its own (Playwright with the system's chromium), on this machine as it is. Times are what a user waits for:
"first picture" from the navigation to the first view drawn, "layer" and "token" from a key or click to the new view, in
the page's own clock. Memory is that of the largest renderer process that is not shared with others.

bertviz 1.4.1 gets the same attention and tokens. Its pages load require.js, jquery and d3 from a CDN; with
`--npm FOLDER` (`npm install d3@5.7.0 jquery@2.2.4 requirejs@2.3.6` there) the requests are answered from that folder,
so that no network is in the times. It imports IPython, of which it needs two classes that hold a string: these are
made here.
What has not ended after 60 s is stopped, and said.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from playwright.sync_api import Error, Page, sync_playwright

import bertworks
from bertworks.inspect.view import AttentionView

PAIR = ("I went to the store.", "At the store, I bought fresh strawberries.")
LIMIT = 60.0  # seconds
FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()
CDN = {"d3": "d3/dist/d3.min.js", "jquery": "jquery/dist/jquery.min.js", "require": "requirejs/require.js"}
BUDGETS = {19: "<= 0.25 MB", 512: "<= 30 MB, 1500 ms, 150 ms, 100 ms, 300 MB"}
FIRST = """new MutationObserver(() => {
    if (!document.body?.dataset.ready || window.drawn) return;
    requestAnimationFrame(() => { window.drawn ||= performance.now(); });
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-ready"] });"""
LAYER = "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown', bubbles: true }));"
TOKEN = "document.querySelector('[data-key=from-3]').click();"


def waited(page: Page, act: str) -> str:
    """Milliseconds until the page has drawn, the longest of four times."""
    wait = f"""() => new Promise((done) => {{
        const start = performance.now();
        const see = new MutationObserver(() => {{
            see.disconnect();
            requestAnimationFrame(() => done(performance.now() - start));
        }});
        see.observe(document.body, {{ attributes: true, attributeFilter: ["data-ready"] }});
        {act}
    }})"""
    return f"{max(page.evaluate(wait) for _ in range(4)):.0f}"


@dataclass
class Row:
    title: str
    megabytes: float
    write: float  # seconds
    first: str = ""  # ms
    layer: str = ""  # ms
    token: str = ""  # ms
    memory: str = ""  # MB
    elements: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="a text file; without it, the pair is repeated")
    parser.add_argument("--npm", type=Path, help="a folder with d3, jquery and requirejs, to measure bertviz, too")
    parser.add_argument("--tokens", type=int, nargs="+", default=[19, 128, 512])
    options = parser.parse_args()
    minilm = bertworks.load("minilm")
    minilm.pooling = replace(minilm.pooling, limit=None)  # it has 512 positions, of which its folder uses fewer
    text = options.corpus.open(encoding="utf-8").read(20_000) if options.corpus else " ".join(PAIR) * 60
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for n_tokens in options.tokens:
            view = minilm.attention(*PAIR if n_tokens == 19 else (text_of(minilm, text, n_tokens),))
            rows.append(ours(f"minilm 6x12, {n_tokens}", view, Path(folder)))
            if options.npm:
                kinds = ("head_view", "model_view") if n_tokens < 500 else ("head_view",)
                rows += [peers(f"bertviz {kind}, {n_tokens}", kind, view, Path(folder), options.npm) for kind in kinds]
        if 512 in options.tokens:
            base = bertworks.new("bert-base", tokenizer=minilm.tokenizer, init_range=0.08)
            rows.append(ours("random 12x12, 512", base.attention(text_of(minilm, text, 512)), Path(folder)))
    print_rows(rows)


def text_of(model: Any, text: str, n_tokens: int) -> str:
    """Its beginning, of so many tokens with the special ones."""
    pieces = model.tokenizer.pieces(text)
    return text[: pieces.offsets[n_tokens - 2][1]]


def ours(title: str, view: AttentionView, folder: Path) -> Row:
    start = time.perf_counter()
    path = view.save(folder / "page.html")
    row = Row(title, path.stat().st_size / 1e6, time.perf_counter() - start)

    def measure(page: Page) -> None:
        page.add_init_script(FIRST)
        page.goto(path.as_uri() + "#L0H0,lines", timeout=LIMIT * 1000)
        page.wait_for_selector("body[data-ready]", timeout=LIMIT * 1000)
        page.wait_for_timeout(500)
        row.first = f"{page.evaluate('window.drawn'):.0f}"
        row.layer, row.token = waited(page, LAYER), waited(page, TOKEN)
        row.elements = str(page.evaluate("document.querySelectorAll('*').length"))

    in_browser(measure, row, None)
    return row


def peers(title: str, kind: str, view: AttentionView, folder: Path, npm: Path) -> Row:
    stub_ipython()
    import bertviz
    import torch

    start = time.perf_counter()
    attention = [torch.from_numpy(layer)[None] for layer in view.probabilities]
    html = getattr(bertviz, kind)(attention, view.tokens.pieces, html_action="return").data
    path = folder / "peer.html"
    path.write_text(f"<!DOCTYPE html><meta charset='utf-8'><body>{html}</body>", encoding="utf-8")
    row = Row(title, path.stat().st_size / 1e6, time.perf_counter() - start)
    del html

    def measure(page: Page) -> None:
        page.goto(path.as_uri(), timeout=LIMIT * 1000, wait_until="commit")
        page.wait_for_selector("svg line", state="attached", timeout=LIMIT * 1000)
        row.first = f"{page.evaluate('performance.now()'):.0f}"
        row.elements = str(page.evaluate("document.querySelectorAll('*').length"))
        if kind == "head_view":
            change = """() => {
                const select = document.querySelector('select#layer'), start = performance.now();
                select.selectedIndex = 1;
                select.dispatchEvent(new Event('change', {bubbles: true}));
                return performance.now() - start;
            }"""
            row.layer = f"{page.evaluate(change):.0f}"

    in_browser(measure, row, npm)
    return row


def in_browser(measure: Any, row: Row, npm: Path | None) -> None:
    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.set_default_timeout(LIMIT * 1000)
        if npm is not None:
            page.route(re.compile("^https:"), lambda route: answer(route, npm))
        try:
            measure(page)
        except Error as error:
            row.first = row.first or f"stopped: {str(error).splitlines()[0][:60]}"
        row.memory = f"{renderer_memory(browser) / 1e6:.0f}"
        browser.close()


def answer(route: Any, npm: Path) -> None:
    name = next((name for name in CDN if name in route.request.url.rsplit("/", 1)[-1]), None)
    route.fulfill(path=npm / "node_modules" / CDN[name]) if name else route.abort()


def renderer_memory(browser: Any) -> float:
    """Bytes of the largest one that it shares with no other process."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = [0.0]
    for process in processes:
        rollup = Path(f"/proc/{process['id']}/smaps_rollup")
        if process["type"] == "renderer" and rollup.exists():
            private = [line.split()[1] for line in rollup.read_text().splitlines() if line.startswith("Private_")]
            sizes.append(1024.0 * sum(map(int, private)))
    return max(sizes)


def stub_ipython() -> None:
    def holder(data: str = "", **_: Any) -> SimpleNamespace:
        return SimpleNamespace(data=data)

    display = ModuleType("IPython.display")
    vars(display).update(display=print, HTML=holder, Javascript=holder)
    root = ModuleType("IPython")
    vars(root).update(display=display)
    sys.modules.setdefault("IPython", root)
    sys.modules.setdefault("IPython.display", display)


def print_rows(rows: list[Row]) -> None:
    header = ("page", "MB", "write s", "first ms", "layer ms", "token ms", "tab MB", "elements")
    print(("{:24}" + "{:>10}" * 7).format(*header))
    for row in rows:
        cells = (row.first, row.layer, row.token, row.memory, row.elements)
        print(f"{row.title:24}{row.megabytes:10.2f}{row.write:10.1f}" + "".join(f"{cell:>10}" for cell in cells))
    print("budgets: 19 tokens " + BUDGETS[19] + "; 512 x 144 " + BUDGETS[512])


if __name__ == "__main__":
    main()
