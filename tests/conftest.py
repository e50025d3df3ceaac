import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from bertworks.train import runtime

torch.set_num_threads(1)
if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    # Workers, and the commands that they start, keep to their share of the cores: threads that wait for each other
    # there are slow.
    at, n_workers, cores = (
        int(worker.removeprefix("gw")),
        int(os.environ["PYTEST_XDIST_WORKER_COUNT"]),
        sorted(os.sched_getaffinity(0)),
    )
    os.sched_setaffinity(0, set(cores[at::n_workers]) or set(cores))
runtime.PEAK_FLOPS_SECONDS = 0.02  # what is measured so is shown, and nothing else
# CI draws the same examples every time; at the desk new ones are tried. No test fails for being slow: machines are.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for models that several tests read."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the shared data are not on this machine")
    return SHARED
