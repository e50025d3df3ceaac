"""What the reports of runs have in common: the most important numbers, curves of events, and the settings at the
end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bertworks.files import atomic_write
from bertworks.page.html import both, escape, table
from bertworks.train.events import Event

REPORT = "report.html"
STYLE = """
.facts { display: flex; flex-wrap: wrap; gap: 0.8rem; margin: 1rem 0 0.4rem; }
.fact { border: 1px solid var(--line); border-radius: 8px; padding: 0.5rem 0.9rem; min-width: 8.5rem; background: var(--soft); }
.fact b { display: block; font-size: 1.25rem; } .fact span { color: var(--dim); font-size: 0.85rem; }
.example { border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem 1rem; margin: 0.8rem 0; line-height: 1.9; }
.guess { border-radius: 4px; padding: 0.05rem 0.3rem; } .guess small { opacity: 0.85; font-size: 0.72rem; margin-left: 0.25rem; }
.right { background: #46b07d; color: #04210f; } .wrong { background: #f3c1bd; color: #4a0f0a; }
.wrong s { opacity: 0.75; } details { margin: 0.5rem 0; } summary { cursor: pointer; color: var(--link); }
"""
STEPS = ("step", "步")


def write_page(path: Path, text: str) -> Path:
    with atomic_write(path) as file:
        file.write(text.encode(errors="replace"))  # a folder's name may be any bytes
    return path


def duration(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def facts(values: Iterable[tuple[str, tuple[str, str]]]) -> str:
    """The most important numbers, each with its name in both languages."""
    boxes = "".join(
        f'<div class="fact"><b>{escape(value)}</b><span>{both(*name)}</span></div>' for value, name in values
    )
    return f'<div class="facts">{boxes}</div>'


def details(record: dict[str, Any]) -> list[str]:
    """Everything that was set, to be unfolded."""
    setting, value = both("setting", "设置"), both("value", "值")
    environment = record.get("environment")
    sections: list[tuple[str, dict[str, Any]]] = [
        (both("Config", "配置"), record["config"]),
        (both("Machine", "运行环境"), environment if isinstance(environment, dict) else {}),
        (
            both("Data", "数据"),
            {name: record[name] for name in ("shards", "source", "data") if record.get(name) is not None},
        ),
    ]
    tables = [(title, [(escape(name), str(given)) for name, given in _flat(values)]) for title, values in sections]
    return [f"<details><summary>{title}</summary>{table([setting, value], rows)}</details>" for title, rows in tables]


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, value in values.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return found


def points(events: Sequence[Event], values: Iterable[object]) -> list[tuple[float, float]]:
    """Of a curve: the step of each event, and a number of it, where it has one."""
    return [(event.step, value) for event, value in zip(events, values, strict=True) if isinstance(value, float)]
