"""Files and keys of version 0.1 are still read: --set, metrics.jsonl, records, results, states of checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bertworks
from bertworks.config import RENAMED
from bertworks.runs.context import ProcessContext
from bertworks.runs.pretrain import resume
from bertworks.runs.record import RunRecord
from bertworks.runs.results import read_results
from bertworks.tasks.source import Source
from bertworks.train.checkpoint import CHECKPOINTS, OLD_STATE_FIELDS, STATE, _entry
from bertworks.train.events import Evaluated, Remarked, Started, Trained, last, of_kind, read_events
from commands import run
from training import digest, language_shards, train

LOGS = Path(__file__).parents[1] / "docs" / "runs"
OLD_NAMES = {new: old for old, new in RENAMED.items()}


@pytest.mark.parametrize("name", ["bert-mini", "electra-mini", "cola-seed-1", "wikigold", "squad-half-a"])
def test_old_metrics_lines_are_read_as_events(name: str) -> None:
    lines = [json.loads(line) for line in (LOGS / f"{name}.jsonl").read_text().splitlines()]
    events = read_events(LOGS / f"{name}.jsonl")
    assert len(events) == len(lines)
    assert [event.step for event in events] == [line["step"] for line in lines]
    started = last(events, Started)
    evaluated = [line for line in lines if line["kind"] == "held out"]
    assert started is not None and started.machine["torch"] and started.peak_gflops > 1
    for event, line in zip(of_kind(events, Evaluated), evaluated, strict=True):
        assert event.metrics and all(line[key] == value for key, value in event.metrics.items())
    for event, line in zip(of_kind(events, Trained), [line for line in lines if line["kind"] == "train"], strict=True):
        assert event.mfu == line["share"] and event.gradient_norm == line["gradient"]
        assert all(line[key] == event.terms[key] for key in event.terms)


def test_old_keys_are_understood_and_reported(tmp_path: Path) -> None:
    shards = language_shards(tmp_path, 20)
    old_settings = [
        "--set",
        "optim.clip=0.5",
        "--set",
        "train.keep=3",
        "--set",
        "data.short_rate=0.2",
        "--set",
        "train.start=random",
    ]
    process = run("pretrain", shards.folder, "--preset", "bert-mini", "--steps", "1", "--show", *old_settings)
    config = json.loads(process.stdout)
    assert config["optim"]["max_grad_norm"] == 0.5 and config["train"]["keep_checkpoints"] == 3
    assert config["data"]["short_seq_prob"] == 0.2 and config["train"]["init"] == "random"
    for key in ("optim.clip", "train.keep", "data.short_rate", "train.start"):
        assert f"{key} is called {RENAMED[key]}" in process.stderr


def test_an_old_run_can_be_resumed(tmp_path: Path) -> None:
    """A run with old names, stopped in the middle, ends with the same bits as one with today's names."""
    shards = language_shards(tmp_path, 20)
    settings = ["train.checkpoint_every=2", "train.keep_checkpoints=9", "train.evaluations=2"]
    train(shards, tmp_path / "uninterrupted", "bert-mini", *settings, steps=6)
    train(shards, tmp_path / "old", "bert-mini", *settings, steps=6)
    old = tmp_path / "old"
    record = json.loads((old / "run.json").read_text())
    for key, old_key in OLD_NAMES.items():
        section, name = key.split(".")
        if name in record["config"].get(section, {}):
            record["config"][section][old_key.split(".")[1]] = record["config"][section].pop(name)
    (old / "run.json").write_text(json.dumps(record))
    identity = RunRecord.read(old).identity
    old_fields = {new: name for name, new in OLD_STATE_FIELDS.items()}
    for checkpoint in sorted((old / CHECKPOINTS).iterdir())[:2]:
        values = json.loads((checkpoint / STATE).read_text())
        values["run"] = identity
        values["state"] = {old_fields.get(name, name): value for name, value in values["state"].items()}
        (checkpoint / STATE).write_text(json.dumps(values))
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        (checkpoint / "manifest.json").write_text(json.dumps({**manifest, STATE: _entry(checkpoint / STATE)}))
    for checkpoint in sorted((old / CHECKPOINTS).iterdir())[2:]:
        for file in checkpoint.iterdir():
            file.unlink()
        checkpoint.rmdir()
    received: list[object] = []
    resume(old, ProcessContext.library(received.append))
    assert digest(old) == digest(tmp_path / "uninterrupted")
    assert {event.code for event in received if isinstance(event, Remarked)} == {"old-key"}
    assert bertworks.Run(old).metrics == bertworks.Run(tmp_path / "uninterrupted").metrics


def test_old_sources_and_results(tmp_path: Path) -> None:
    common = {
        "dataset": None,
        "folder": None,
        "train": "rows.csv",
        "dev": None,
        "by_text": False,
        "separator": None,
        "counted_from": None,
    }
    shared = {**common, "paired": False, "first": None, "skip_bad": False}
    pairs = Source.model_validate({**shared, "shape": "classify", "text": "a", "pair": ["b"], "label": "x,y"})
    assert (pairs.columns.text, pairs.columns.text2, pairs.columns.label) == ("a", "b", ("x,y",))
    span = Source.model_validate({**shared, "shape": "span", "text": "passage", "pair": ["q"], "label": "answer"})
    assert (span.columns.context, span.columns.question, span.columns.label) == ("passage", "q", ("answer",))
    choice = Source.model_validate({**shared, "shape": "choice", "text": "t", "pair": ["c1", "c2"], "label": None})
    assert (choice.columns.text, choice.columns.choices, choice.columns.label) == ("t", ("c1", "c2"), ())
    several = Source.model_validate({**shared, "shape": "multilabel", "text": "t", "pair": [], "label": "x,y"})
    assert several.columns.label == ("x", "y")
    old = {
        "measures": {"f1": 0.5},
        "evidence": [[1.0]],
        "others": {"mismatched": {"measures": {"f1": 0.4}}},
        "hopeless": False,
        "learned": {},
        "errors": [{"texts": ["a"], "sure": 0.9, "right": "x", "said": "y"}],
        "seeds": {"measures": {"0": {"f1": 0.5}}, "given_up": {}, "deviation": {"f1": 0.1}, "mean": {"f1": 0.5}},
    }
    (tmp_path / "results.json").write_text(json.dumps(old))
    results = read_results(tmp_path)
    assert results["metrics"] == {"f1": 0.5}
    assert results["example_scores"] == [[1.0]]
    assert results["pruned"] is False
    assert results["extra_eval"]["mismatched"]["metrics"] == {"f1": 0.4}
    assert results["seeds"]["std"] == {"f1": 0.1}
    assert (results["errors"][0]["severity"], results["errors"][0]["expected"], results["errors"][0]["predicted"]) == (
        0.9,
        "x",
        "y",
    )
