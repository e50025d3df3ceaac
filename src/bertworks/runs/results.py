"""`results.json`, what came of a fine-tuning; written last, so a run that has one has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertworks.errors import Remark
from bertworks.files import read_json
from bertworks.model.locate import RUN
from bertworks.train.events import METRICS, Evaluated, of_kind, read_events

RESULTS = "results.json"
BEFORE = {  # keys of before version 0.2
    "measures": "metrics",
    "evidence": "example_scores",
    "others": "extra_eval",
    "hopeless": "pruned",
    "learned": "artifact",
    "deviation": "std",
    "given_up": "pruned",
}


def remarks_if_unfinished(run: Path) -> list[Remark]:
    """What is to be said of predictions, if a run has not ended."""
    if not (run / RUN).is_file() or (run / RESULTS).is_file():
        return []
    is_evaluated = any(event.step for event in of_kind(read_events(run / METRICS), Evaluated))
    state = (
        "these are predictions of its best model so far"
        if is_evaluated
        else "and was not evaluated yet: its model may be untrained"
    )
    code = "unfinished-run" if is_evaluated else "unfinished-run-not-evaluated"
    return [Remark(code, f"this run is unfinished, {state}; `bertworks resume {run}` goes on with it")]


def read_results(run: Path) -> dict[str, Any]:
    """`results.json` in today's words."""
    return _today(read_json(run / RESULTS))


def _today(values: dict[str, Any]) -> dict[str, Any]:
    renamed = {BEFORE.get(name, name): value for name, value in values.items()}
    if isinstance(renamed.get("seeds"), dict):
        renamed["seeds"] = {BEFORE.get(name, name): value for name, value in renamed["seeds"].items()}
    extra = renamed.get("extra_eval")
    if isinstance(extra, dict):
        renamed["extra_eval"] = {
            split: {BEFORE.get(name, name): value for name, value in one.items()} if isinstance(one, dict) else one
            for split, one in extra.items()
        }
    names = {"sure": "severity", "right": "expected", "said": "predicted"}
    errors = renamed.get("errors", [])
    renamed["errors"] = [{names.get(name, name): value for name, value in error.items()} for error in errors]
    return renamed
