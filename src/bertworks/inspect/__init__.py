"""Looking inside a model: the attention of a text (`Workbench.attention`), what its heads do over a corpus, and one
word's vectors in many sentences."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["atlas", "words"]

if TYPE_CHECKING:
    from bertworks.inspect.atlas import atlas
    from bertworks.inspect.word_map import words

HOMES = {"atlas": "bertworks.inspect.atlas", "words": "bertworks.inspect.word_map"}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'bertworks.inspect' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
