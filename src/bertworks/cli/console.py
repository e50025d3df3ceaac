"""A console that shows control characters of other people's text instead of obeying them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from bertworks.cli.show import harmless


class HarmlessConsole(Console):
    """Colours and movements of the cursor are rich's own, in styles and control segments; text has none."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)
