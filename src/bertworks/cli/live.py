"""The live view of a training: a picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Event = dict[str, Any]


@contextmanager
def watching(run: Path, *, quiet: bool) -> Iterator[Callable[[Event], None]]:
    def watch(event: Event) -> None:
        if not quiet:
            print({k: (round(v, 4) if isinstance(v, float) else v) for k, v in event.items()}, file=sys.stderr)

    yield watch
