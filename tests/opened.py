"""A page in a real browser, and all that it must not do there: errors, requests, violations of its policy."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np

from browsing import WATCH

PIXELS = """(canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let text = "";
    for (let at = 0; at < data.length; at += 8192) text += String.fromCharCode(...data.subarray(at, at + 8192));
    return btoa(text);
}"""


class OpenedPage:
    def __init__(self, browser: Any, path: Path, address: str = "", **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.complaints: list[str] = []
        self.page.add_init_script(WATCH)
        self.page.on("console", lambda message: self._said(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._heard(request.url))
        self.path = path
        self.page.goto(path.resolve().as_uri() + address)
        self.page.wait_for_selector("body[data-ready]")

    def _said(self, message: str) -> None:
        if "willReadFrequently" not in message:  # that is our own reading of pixels
            self.complaints.append(message)

    def _heard(self, url: str) -> None:
        if not url.startswith(("data:", "blob:")) and url.split("#")[0] != self.path.resolve().as_uri():
            self.complaints.append(f"request: {url}")

    def go(self, address: str) -> None:
        """As if a user had typed it."""
        self.page.evaluate(
            """(address) => {
                delete document.body.dataset.ready;
                history.replaceState(null, "", address);
                window.dispatchEvent(new HashChangeEvent("hashchange"));
            }""",
            address,
        )
        self.page.wait_for_selector("body[data-ready]")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.evaluate("() => { delete document.body.dataset.ready; }")
            self.page.keyboard.press(key)
            self.page.wait_for_selector("body[data-ready]")

    @property
    def status(self) -> str:
        return str(self.page.inner_text("#status"))

    @property
    def address(self) -> str:
        return str(self.page.evaluate("location.hash"))

    def pixels(self, selector: str, number: int = 0) -> Any:
        """(rows, columns, 4) of a canvas."""
        canvas = self.page.locator(selector).nth(number)
        width, height = canvas.evaluate("(canvas) => [canvas.width, canvas.height]")
        return np.frombuffer(b64decode(canvas.evaluate(PIXELS)), np.uint8).reshape(height, width, 4)

    def check(self) -> None:
        """All is well, or it is said what is not."""
        complaints = self.complaints + self.page.evaluate("window.violations")
        self.complaints.clear()
        self.page.evaluate("window.violations = []")
        assert not complaints, complaints

    def close(self) -> None:
        self.check()
        self.context.close()
