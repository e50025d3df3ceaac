"""Looking inside a model: the attention of a text (`Workbench.attention`), and what its heads do over a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["atlas"]

if TYPE_CHECKING:
    from bertworks.inspect.atlas import atlas


def __getattr__(name: str) -> Any:
    if name != "atlas":
        raise AttributeError(f"module 'bertworks.inspect' has no attribute {name!r}")
    from bertworks.inspect.atlas import atlas

    return atlas
