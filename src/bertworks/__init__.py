"""One workbench for the BERT family: text in; tokenizers, models and predictions out."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

# OpenMP's threads wait for each other. By default they spin for milliseconds before they sleep, which beside another
# busy process takes the core from the very thread that they wait for. A thousand turns are enough for a machine of its
# own. Results are the same. GNU's OpenMP reads it when torch is imported.
if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__version__ = "0.2.0"
__all__ = [
    "Ledger",
    "Run",
    "Workbench",
    "finetune",
    "load",
    "new",
    "prepare",
    "pretrain",
    "record_attention",
    "train_vocabulary",
]

if TYPE_CHECKING:
    from bertworks.model.attention import record_attention
    from bertworks.runs.run import Run, finetune, prepare, pretrain, train_vocabulary
    from bertworks.text.ledger import Ledger
    from bertworks.workbench import Workbench, load, new

_MODULES = {
    "Ledger": "bertworks.text.ledger",
    "Run": "bertworks.runs.run",
    "Workbench": "bertworks.workbench",
    "finetune": "bertworks.runs.run",
    "load": "bertworks.workbench",
    "new": "bertworks.workbench",
    "prepare": "bertworks.runs.run",
    "pretrain": "bertworks.runs.run",
    "record_attention": "bertworks.model.attention",
    "train_vocabulary": "bertworks.runs.run",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    # torch takes a second to import; `bertworks --help` and the tokenizers do without it.
    if name not in _MODULES:
        raise AttributeError(f"module 'bertworks' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
