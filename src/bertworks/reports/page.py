"""What the reports of runs share: key figures, curves of events, and the settings at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from bertworks.files import JsonObject, atomic_write
from bertworks.page.html import bilingual, escape, page, table
from bertworks.page.modules import joined_modules, joined_styles
from bertworks.train.events import Event

REPORT = "report.html"
STEPS = ("step", "步数")
MAX_BOXES_IN_ROW = 6


def write_page(path: Path, html: str) -> Path:
    with atomic_write(path) as file:
        file.write(html.encode(errors="replace"))  # a folder's name may hold bytes that are no UTF-8
    return path


def write_report(path: Path, title: tuple[str, str], body: Iterable[str]) -> Path:
    """A page with the script that draws its tables; `body`: HTML."""
    return write_page(path, page(title, "\n".join(body), joined_styles("report"), joined_modules("report")))


def duration(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def key_figures(figures: Iterable[tuple[str, tuple[str, str]]]) -> str:
    """The most important numbers in boxes, each with its title in English and Chinese; rows are as equal as can be."""
    boxes = [
        f'<div class="figure-box"><b>{escape(value)}</b><span>{bilingual(*title)}</span></div>'
        for value, title in figures
    ]
    n_rows = -(-len(boxes) // MAX_BOXES_IN_ROW)
    columns = -(-len(boxes) // n_rows)
    return f'<div class="figure-boxes columns-{columns}">{"".join(boxes)}</div>'


def settings_sections(record: JsonObject) -> list[str]:
    """All settings of a run, in sections that are folded until clicked."""
    header = [bilingual("setting", "设置"), bilingual("value", "值")]
    environment = record.get("environment")
    sections: list[tuple[str, JsonObject]] = [
        (bilingual("Config", "配置"), record["config"]),
        (bilingual("Machine", "运行环境"), environment if isinstance(environment, dict) else {}),
        (
            bilingual("Data", "数据"),
            {name: record[name] for name in ("shards", "source", "data") if record.get(name) is not None},
        ),
    ]
    tables = [(title, [(escape(key), str(value)) for key, value in _flatten(values)]) for title, values in sections]
    return [f"<details><summary>{title}</summary>{table(header, rows)}</details>" for title, rows in tables]


def _flatten(values: JsonObject, prefix: str = "") -> list[tuple[str, object]]:
    """Nested keys joined by dots, as `--set` takes them."""
    rows: list[tuple[str, object]] = []
    for name, value in values.items():
        rows += _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return rows


def curve_points(events: Sequence[Event], values: Iterable[object]) -> list[tuple[float, float]]:
    """(step, value) of each event that has a value."""
    return [(event.step, value) for event, value in zip(events, values, strict=True) if isinstance(value, float)]
