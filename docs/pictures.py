"""The pictures of reports in README and guides, made from the reports of three runs:

    bertworks finetune sst2 --data SST-2 --first 3000 --model minilm --epochs 2 --out sst2      # README
    bertworks finetune classify --train tickets.csv --model minilm --out support                # guides/finetune-your-table
    bertworks pretrain shards --preset bert-mini --budget 10m --out run                         # guides/pretrain-from-scratch
    python docs/pictures.py sst2 support run

It needs playwright and chromium. One run alone makes its own pictures.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
ABOVE, BELOW = 24, 12  # pixels around what is shown
FRAME = """(box) => {
  const frame = document.createElement("div");
  for (const [name, value] of Object.entries({ position: "absolute", left: "0", top: `${box.y}px`,
    width: `${box.width}px`, height: `${box.height}px`, border: "1px solid #c8ced8", "pointer-events": "none" }))
    frame.style.setProperty(name, value);
  frame.id = "frame";
  document.body.append(frame);
}"""


def take(page: Any, path: Path, first: str | None, last: str, *, framed: bool = False) -> None:
    """From above one element, or from the top of the page, to below another; CSS selectors."""
    boxes = [page.locator(selector).first.bounding_box() for selector in (first, last) if selector is not None]
    top = boxes[0]["y"] - ABOVE if first is not None else 0
    bottom = boxes[-1]["y"] + boxes[-1]["height"] + BELOW
    clip = {"x": 0, "y": top, "width": page.viewport_size["width"], "height": bottom - top}
    if framed:
        page.evaluate(FRAME, clip)
    page.screenshot(path=path, clip=clip, full_page=True)
    if framed:
        page.evaluate("document.getElementById('frame').remove()")


def take_all(page: Any, run: str, is_dark: bool, suffix: str) -> None:
    guides = DOCS / "guides" / "img"
    if run == "sst2":
        scheme = "dark" if is_dark else "light"
        take(page, DOCS / "img" / f"report-{scheme}{suffix}.png", None, ".results")
    elif run == "support":
        take(page, guides / f"report-curves{suffix}.png", None, ".curves + .curves", framed=True)
        take(page, guides / f"report-results{suffix}.png", 'h2:has-text("Results")', ".results + ul", framed=True)
        take(page, guides / f"report-errors{suffix}.png", 'h2:has-text("Confusion matrix")', ".errors", framed=True)
    else:
        take(page, guides / f"pretrain-report{suffix.replace('.', '-')}.png", None, ".figures")


def main(runs: list[str]) -> None:
    program = shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for folder in map(Path, runs):
            run = folder.name
            size = {"sst2": (1136, 1.25), "support": (930, 1), "run": (1000, 1)}[run]
            for scheme in ("light", "dark") if run == "sst2" else ("light",):
                page = browser.new_page(
                    viewport={"width": size[0], "height": 800}, device_scale_factor=size[1], color_scheme=scheme
                )
                for suffix in ("", ".zh"):
                    page.goto((folder / "report.html").resolve().as_uri())
                    if suffix:
                        page.locator(".switch label").click()
                        page.mouse.move(0, 0)
                    take_all(page, run, scheme == "dark", suffix)
                page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
