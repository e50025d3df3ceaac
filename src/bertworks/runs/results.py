"""`results.json`, the results of a fine-tuning; written last, so a run that has it is finished."""

from __future__ import annotations

from pathlib import Path

from bertworks.errors import Remark
from bertworks.files import JsonObject, read_json
from bertworks.model.locate import RUN
from bertworks.train.events import METRICS, Evaluated, of_kind, read_events

RESULTS = "results.json"
# Keys before version 0.2 -> today's.
SECTION_KEYS = {
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


def remarks_on_model(run: Path) -> list[Remark]:
    """A remark for predictions of a run that is not finished, or whose model has not learned anything."""
    if not (run / RUN).is_file():
        return []
    if (run / RESULTS).is_file():
        if (read_results(run).get("selection") or {}).get("step") != 0:
            return []
        text = "this model has its initial weights: no step was trained, or none made it better; train it for longer"
        return [Remark("untrained-model", text)]
    code = "unfinished-run"
    state = "these are predictions of its best model so far"
    if not any(event.step for event in of_kind(read_events(run / METRICS), Evaluated)):
        code = "unfinished-run-not-evaluated"
        state = "and was not evaluated yet: its model may be untrained"
    return [Remark(code, f"this run is unfinished, {state}; `bertworks resume {run}` continues it")]


def read_results(run: Path) -> JsonObject:
    """`results.json` with today's keys."""
    return _with_new_keys(read_json(run / RESULTS))


def _with_new_keys(values: JsonObject) -> JsonObject:
    """Labels are keys too, in `classes`, and may have any name: keys are renamed only where they are ours."""
    results = _renamed(values, SECTION_KEYS)
    if isinstance(results.get("seeds"), dict):
        results["seeds"] = _renamed(results["seeds"], SECTION_KEYS)
    for split, split_results in (results.get("extra_eval") or {}).items():
        results["extra_eval"][split] = _renamed(split_results, SECTION_KEYS)
    for section in {"metrics", "intervals", "seeds", "extra_eval"} & results.keys():
        results[section] = _rename_metrics(results[section])
    results["errors"] = [_renamed(error, ERROR_KEYS) for error in results.get("errors", [])]
    if isinstance(results.get("classes"), dict):
        results["classes"] = {label: _renamed(counts, CLASS_KEYS) for label, counts in results["classes"].items()}
    return results


def _renamed(values: JsonObject, new_keys: dict[str, str]) -> JsonObject:
    return {new_keys.get(key, key): value for key, value in values.items()}


def _rename_metrics(values: object) -> object:
    if not isinstance(values, dict):
        return values
    return {METRIC_NAMES.get(key, key): _rename_metrics(value) for key, value in values.items()}
