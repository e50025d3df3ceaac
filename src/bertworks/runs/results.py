"""`results.json`, what came of a fine-tuning; written last, so a run that has one has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertworks.errors import Remark
from bertworks.files import read_json
from bertworks.model.locate import RUN
from bertworks.train.events import METRICS, Evaluated, of_kind, read_events

RESULTS = "results.json"
# Keys of before version 0.2.
SECTIONS = {
    "measures": "metrics",
    "evidence": "example_scores",
    "others": "extra_eval",
    "hopeless": "pruned",
    "given_up": "pruned",
    "learned": "artifact",
    "deviation": "std",
}
METRIC_NAMES = {"mean_error": "mae"}
ERROR_KEYS = {"sure": "severity", "right": "expected", "said": "predicted"}
CLASS_KEYS = {"hits": "true_positives", "there": "support", "found": "predicted"}


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
    return [Remark(code, f"this run is unfinished, {state}; `bertworks resume {run}` continues it")]


def read_results(run: Path) -> dict[str, Any]:
    """`results.json` in today's words."""
    return _today(read_json(run / RESULTS))


def _today(values: dict[str, Any]) -> dict[str, Any]:
    """Labels are keys too, in `classes`, and may be called anything: no key is renamed but where it is ours."""
    results = _renamed(values, SECTIONS)
    if isinstance(results.get("seeds"), dict):
        results["seeds"] = _renamed(results["seeds"], SECTIONS)
    for split, of_split in (results.get("extra_eval") or {}).items():
        results["extra_eval"][split] = _renamed(of_split, SECTIONS)
    for section in {"metrics", "intervals", "seeds", "extra_eval"} & results.keys():
        results[section] = _rename_metrics(results[section])
    results["errors"] = [_renamed(error, ERROR_KEYS) for error in results.get("errors", [])]
    if isinstance(results.get("classes"), dict):
        results["classes"] = {label: _renamed(counts, CLASS_KEYS) for label, counts in results["classes"].items()}
    return results


def _renamed(values: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in values.items()}


def _rename_metrics(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {METRIC_NAMES.get(key, key): _rename_metrics(value) for key, value in values.items()}
