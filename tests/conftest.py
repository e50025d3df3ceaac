import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from bertworks.train import runtime

torch.set_num_threads(1)
if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    # Workers, and the commands that they start, keep to their share of the cores: threads that wait for each other
    # there are slow.
    index = int(worker.removeprefix("gw"))
    n_workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[index::n_workers]) or set(cores))
# Under nohup, or in the background of a script, signals are ignored, and commands that tests start would ignore them.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
runtime.PEAK_FLOPS_SECONDS = 0.02  # short: the measured peak is only displayed
# CI runs the same examples every time, developers run new ones. No deadline, since machines may be slow.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

CHROMIUM_FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()
SHARED = Path(__file__).parents[2] / "shared" / "data"


LONGEST = ("test_page_runs", "test_tour")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: at the end no worker waits for them."""
    items.sort(key=lambda item: item.name.partition("[")[0] not in LONGEST)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models that several tests share."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the shared data are not on this machine")
    return SHARED


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One for all tests, of Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if not (chromium := shutil.which("chromium")):
        pytest.skip("there is no chromium on this machine")
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()
