"""Fine-tuning runs: from a table to a model that also works in transformers, with interruptions, seeds, and the CLI."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import bertworks
from bertworks.config import FinetuneConfig, TaskArtifact, TaskConfig
from bertworks.data.batches import RankShard
from bertworks.datasets.checks import WITHOUT_COPIES, TaskData
from bertworks.datasets.columns import Columns
from bertworks.datasets.example import Example
from bertworks.datasets.inputs import INPUT_BATCH_SIZE, InputBatch, as_example
from bertworks.datasets.report import BadRows
from bertworks.errors import BadConfig, BadText, SaveFailed, Unsupported
from bertworks.measure.metrics import ClassCounts, entities
from bertworks.model.folder import config_values
from bertworks.page.html import paragraph
from bertworks.reports.finetune import SPLIT_TITLES_ZH, _classes, _confusion
from bertworks.runs import finetune as finetune_module
from bertworks.runs.compare import compare
from bertworks.runs.context import ProcessContext
from bertworks.runs.finetune import (
    DevEvaluation,
    FinetuneJob,
    build_task,
    evaluate,
    finetune,
    resume,
    token_subset,
)
from bertworks.runs.predictions import inputs_for, open_output
from bertworks.runs.results import remarks_on_model
from bertworks.runs.seeds import SeedPruner, finetune_seeds
from bertworks.runs.seeds import resume as resume_seeds
from bertworks.runs.settings import (
    FINETUNE,
    is_settable,
    option_settings,
    parse_settings,
    resolve_finetune,
    setting_keys,
)
from bertworks.tasks.classify import Classify, ClassPrediction
from bertworks.tasks.evaluation import EvalResults, calibrate_and_score, count_tokens
from bertworks.tasks.features import ShuffledExamples
from bertworks.tasks.source import Source, describe_task, find_source, read_data
from bertworks.tasks.span import SpanTask
from bertworks.tasks.tag import EntityPrediction, Tag, TagPrediction, entity_of
from bertworks.train.checkpoint import State
from bertworks.train.events import Event, Finished
from bertworks.train.policy import EvaluationPolicy
from bertworks.train.runtime import own_process
from browsing import without_script
from commands import refusal, run, run_json
from refusals import figures, refused
from test_cli import BERTWORKS
from test_tasks import SMALL, WORDS, new_task, sliding_windows, small_sizes, small_task, synthetic_examples
from test_trainer import free_port, weights
from texts import tiny_tokenizer
from training import digest, events, overridden

QUICK = ["train.evaluations=4", "optim.lr=3e-3", "train.batch_size=16", "train.checkpoint_every=2"]
QUICK_OPTIONS = [part for setting in ("train.threads=1", *QUICK) for part in ("--set", setting)]  # for the command line


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model to start from: random, but a folder like any other."""
    bench = bertworks.new(
        "bert-mini", tokenizer=tiny_tokenizer(), n_positions=48, init_range=0.1, seed=3, **{**SMALL, "dropout": 0.1}
    )
    return bench.save(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Classify which of two words the text contains."""
    rng = random.Random(5)
    rows = []
    for i in range(120):
        words = rng.choices([word for word in WORDS if word not in ("ba", "ku")], k=6)
        words.insert(rng.randrange(6), ["ba", "ku"][i % 2])
        rows.append(f"{' '.join(words)},{['first', 'second'][i % 2]}")
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def prepare_job(base_model: Path, table: Path, *settings: str, **limit: Any) -> tuple[TaskData, Source, FinetuneConfig]:
    source = find_source("classify", train=str(table))
    data = read_data(source)
    config = resolve_finetune(
        bertworks.load(base_model),
        describe_task(data, source),
        settings=parse_settings(overridden(*QUICK, *settings), FINETUNE, option_settings(**(limit or {"steps": 8}))),
    )
    return data, source, config


def low_confidence_counts(output: str) -> tuple[int, ...]:
    """How many predictions, of how many texts, a command reports as below a confidence of 1.0."""
    (line,) = (line for line in output.splitlines() if re.search(r"\b1\.0\b", line))
    return tuple(map(int, re.findall(r"\b\d+\b(?!\.)", line.replace("1.0", ""))))


def run_finetune(base_model: Path, table: Path, out: Path, *settings: str, **limit: Any) -> tuple[TaskData, Source]:
    data, source, config = prepare_job(base_model, table, *settings, **limit)
    finetune(FinetuneJob(config, data, source, str(base_model)), out, ProcessContext.library())
    return data, source


def test_a_run_learns_and_its_model_predicts(base_model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    data, _ = run_finetune(base_model, table, out, "train.evaluations=20", steps=60)
    accuracies = [event["metrics"]["accuracy"] for event in events(out, "eval")]
    assert accuracies[-1] == 1.0 and accuracies[0] < 0.9
    bench = bertworks.load(out)
    predictions = bench.predict([example.texts[0] for example in data.dev])
    assert [prediction.label for prediction in predictions] == [example.answer for example in data.dev]
    assert all(abs(sum(prediction.scores.values()) - 1) < 1e-6 for prediction in predictions)
    assert predictions.ledger.texts == len(data.dev)
    assert bench.lineage[-2] == "finetune classify"
    assert bench.config.heads.labels == ("first", "second")
    results = json.loads((out / "results.json").read_text())
    assert results["metrics"]["accuracy"] == 1.0
    assert results["artifact"]["temperature"] == bench.artifact.temperature  # type: ignore[union-attr]
    page = without_script((out / "report.html").read_text())
    assert page.count(f"{out.name}</span>") == 2
    assert 'lang="en"' in page
    assert 'lang="zh"' in page
    assert "<script" not in page


def test_predict_leaves_the_model_unchanged(base_model: Path, table: Path, tmp_path: Path) -> None:
    """A task shares its model with whoever else uses it: no dropout may be left on."""
    run_finetune(base_model, table, tmp_path / "run", steps=2)
    bench = bertworks.load(tmp_path / "run")
    before = bench.encode(["a text of some words"])
    bench.predict(["a text of some words"])
    assert not bench.model.training
    assert np.array_equal(bench.encode(["a text of some words"]), before)


def test_equal_evaluations_keep_the_last_and_do_not_restart_patience() -> None:
    policy = EvaluationPolicy(evaluate=lambda step: {}, save_model=lambda: None, monitor="error", patience=2)
    state = State()
    for step, error in ((1, 0.5), (2, 0.2), (3, 0.2), (4, 0.2)):
        assert policy.stop_reason(state) is None
        state = policy.update(replace(state, step=step), {"error": error})
    assert (state.best, state.best_step, state.evaluations_without_improvement) == (0.2, 4, 2)
    assert policy.stop_reason(state) is not None


def test_remarks_about_the_data_are_in_the_report(base_model: Path, tmp_path: Path) -> None:
    rows = [f"{'ba de' if i % 2 else 'ku go'} {'fi ' * (i % 5)},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows, ",a"]) + "\n")
    source = find_source("classify", train=str(tmp_path / "rows.csv"), skip_bad=True)
    data = read_data(source)
    config = resolve_finetune(
        bertworks.load(base_model),
        describe_task(data, source),
        settings=parse_settings(QUICK, FINETUNE, {"train.steps": 2}),
    )
    finetune(FinetuneJob(config, data, source, str(base_model)), tmp_path / "run", ProcessContext.library())
    page = (tmp_path / "run/report.html").read_text()
    assert {"bad-rows", "labels"} <= {remark.code for remark in data.remarks}
    assert all(paragraph(remark.text) in page for remark in data.remarks)
    assert all(remark.chinese and paragraph(remark.chinese) in page for remark in data.remarks)
    assert "rows.csv, line 42" in page
    assert all(f"{label} {sum(example.answer == label for example in data.train)}" in page for label in "ab")


def test_unknown_tokens_are_reported(base_model: Path, table: Path, tmp_path: Path) -> None:
    run_finetune(base_model, table, tmp_path / "run", steps=2)
    ledger = bertworks.load(tmp_path / "run").predict(["ba de fi", "ba 漢 字"]).ledger
    assert ledger.unknown == 2 and ledger.has_many_unknown and "33.3%" in str(ledger)
    few = bertworks.Ledger(texts=1, tokens=1000, unknown=3)
    assert not few.has_many_unknown and "3" not in str(few)


def test_transformers_truncates_at_the_models_limit(base_model: Path) -> None:
    import transformers

    folder = bertworks.load(base_model).save(base_model.parent / "again")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 512}))
    bertworks.load(folder).save(base_model.parent / "cut")
    assert transformers.AutoTokenizer.from_pretrained(base_model.parent / "cut").model_max_length == 48


def test_long_texts_are_trained_in_micro_batches() -> None:
    """A step is split by its own number of tokens, not by the average one; examples are never split."""
    lengths = (10, 10, 10, 10, 400, 400, 400, 10)
    items = [SimpleNamespace(windows=[SimpleNamespace(ids=range(length))]) for length in lengths]
    order = ShuffledExamples(items, 4, 0)  # type: ignore[arg-type]
    epoch = order.epoch(0)
    epoch.gather = lambda members: members  # type: ignore[assignment,method-assign]
    for batch in range(2):
        micro_batches = [micro_batch.batch for micro_batch in RankShard(micro_tokens=400)(epoch, batch)]
        assert np.array_equal(np.concatenate(micro_batches), epoch.examples_of(batch))
        assert max(order.lengths[members].sum() for members in micro_batches) <= 440
    for world in (1, 2, 3):
        shards = [RankShard(rank, world, micro_tokens=10)(epoch, 0) for rank in range(world)]
        assert all(micro_batch.is_counted for micro_batches in shards for micro_batch in micro_batches), (
            "computing an example twice would be wasted work"
        )
        assert len({len(micro_batches) for micro_batches in shards}) == 1, (
            "as many for each process: they exchange their gradients"
        )


def test_long_texts_are_read_in_windows(base_model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_finetune(base_model, table, out, "data.max_length=8", steps=60)
    expected = {"texts": 108, "limit": 6, "windowed_texts": 108, "cut_texts": 0}
    train_ledger = json.loads((out / "results.json").read_text())["ledgers"]["train"][""]
    assert train_ledger | expected == train_ledger
    ledger_remarks = [event["text"] for event in events(out, "remark") if event["code"] == "ledger"]
    assert f"train: {bertworks.Ledger(**train_ledger)}" in ledger_remarks
    assert len(ledger_remarks) == 2, "of train and of dev"
    ledger = bertworks.Ledger()
    long = " ".join(["de", "fi", "go"] * 60)
    bench = bertworks.load(out)
    bench.predict([long], ledger=ledger)
    assert ledger.windowed_texts == 1 and ledger.windowed_tokens == 180 and not ledger.cut_tokens
    bench.predict([long], on_long="truncate", ledger=ledger)
    assert ledger.cut_texts == 1 and ledger.cut_tokens == 180 - 6


def test_the_same_seed_gives_the_same_bits_and_another_does_not(base_model: Path, table: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run_finetune(base_model, table, tmp_path / name, f"train.seed={seed}")
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")


def test_resume_in_the_middle_gives_the_same_bits(
    base_model: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninterrupted = tmp_path / "whole"
    stopped = tmp_path / "stopped"
    monkeypatch.chdir(table.parent)
    run_finetune(base_model, Path(table.name), uninterrupted, "train.keep_checkpoints=9")
    shutil.copytree(uninterrupted, stopped)
    for step in (6, 8):
        shutil.rmtree(stopped / f"checkpoints/step-{step:08}")
    monkeypatch.chdir(tmp_path)  # the files are found from anywhere
    resume(stopped, ProcessContext.library())
    assert digest(stopped) == digest(uninterrupted)
    assert (stopped / "model/model.safetensors").read_bytes() == (
        uninterrupted / "model/model.safetensors"
    ).read_bytes()
    results = [json.loads((out / "results.json").read_text()) for out in (uninterrupted, stopped)]
    for error in (error for result in results for error in result["errors"]):
        error["place"] = Path(error["place"]).name  # as it was named, and from the root
    assert results[0] == results[1]


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_signal_interrupts_an_evaluation_and_resume_repeats_it(
    number: int, base_model: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first evaluation, one in the middle, and the last."""
    n_evaluations = 0
    evaluate_dev = DevEvaluation.__call__

    def signalled_evaluation(self: DevEvaluation, step: int) -> dict[str, float]:
        nonlocal n_evaluations
        if n_evaluations == number:
            os.kill(os.getpid(), signal.SIGTERM)
        n_evaluations += 1
        return evaluate_dev(self, step)

    uninterrupted = tmp_path / "whole"
    stopped = tmp_path / "stopped"
    run_finetune(base_model, table, uninterrupted)
    with monkeypatch.context() as patch:
        patch.setattr(DevEvaluation, "__call__", signalled_evaluation)
        data, source, config = prepare_job(base_model, table, "train.threads=1")
        with own_process(time.monotonic()) as runtime:
            outcome = finetune(FinetuneJob(config, data, source, str(base_model)), stopped, ProcessContext(runtime))
    assert outcome.exit_code == 143 and n_evaluations == number + 1
    assert [event["step"] for event in events(stopped, "eval")] == [2, 4, 6, 8][:number]
    assert not (stopped / "results.json").exists()
    resume(stopped, ProcessContext.library())
    assert digest(stopped) == digest(uninterrupted)
    assert not {event["code"] for event in events(stopped, "remark")} & {"head-kept", "head-replaced"}, "it had none"
    run_finetune(stopped, table, tmp_path / "further")
    assert "head-kept" in {event["code"] for event in events(tmp_path / "further", "remark")}
    evaluations = [
        [(event["step"], event["metrics"]) for event in events(out, "eval")] for out in (stopped, uninterrupted)
    ]
    assert evaluations[0] == evaluations[1] and len(evaluations[0]) == 4
    assert (stopped / "results.json").read_text() == (uninterrupted / "results.json").read_text()


def test_a_model_that_could_not_be_saved_is_not_the_best(
    base_model: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at the first evaluation without errors."""
    save_model = finetune_module.save_model
    failed_steps = []

    def save_unless_full(task: Any, artifact: Any, base_model: Any, lineage: Any, out: Path) -> None:
        evaluations = events(out, "eval")
        if evaluations and evaluations[-1]["metrics"]["accuracy"] == 1.0 and not failed_steps:
            failed_steps.append(evaluations[-1]["step"])
            raise SaveFailed("no space left")
        save_model(task, artifact, base_model, lineage, out)

    monkeypatch.setattr(finetune_module, "save_model", save_unless_full)
    run_finetune(base_model, table, tmp_path / "run", "train.evaluations=20", steps=60)
    assert len(failed_steps) == 1
    assert [event["step"] for event in events(tmp_path / "run", "save failed")] == failed_steps
    assert json.loads((tmp_path / "run/results.json").read_text())["metrics"]["accuracy"] == 1.0, (
        "the next one that is as good"
    )


def test_resume_repeats_a_last_save_that_failed(
    base_model: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at the end, and has space again when the run is resumed."""
    uninterrupted = tmp_path / "whole"
    out = tmp_path / "run"
    run_finetune(base_model, table, uninterrupted, "train.evaluations=1")
    save_model = finetune_module.save_model

    def fail_after_evaluation(task: Any, artifact: Any, base_model: Any, lineage: Any, out: Path) -> None:
        if events(out, "eval"):
            raise SaveFailed("no space left")
        save_model(task, artifact, base_model, lineage, out)

    with monkeypatch.context() as patch:
        patch.setattr(finetune_module, "save_model", fail_after_evaluation)
        with pytest.raises(SaveFailed):
            run_finetune(base_model, table, out, "train.evaluations=1")
    resume(out, ProcessContext.library())
    assert (out / "model/model.safetensors").read_bytes() == (uninterrupted / "model/model.safetensors").read_bytes()


def test_evaluate_says_which_examples_were_trained_on(base_model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    own = tmp_path / "own.csv"
    shutil.copy(table, own)
    data, _ = run_finetune(base_model, own, out, steps=2)
    n_trained = sum(example.texts in {trained.texts for trained in data.train} for example in [*data.train, *data.dev])
    (remark,) = (remark for remark in evaluate(out, own).remarks if remark.code == "evaluated-on-train")
    assert figures(remark.text.partition(" examples")[0]) == {str(n_trained), str(len(data.train) + len(data.dev))}
    other = tmp_path / "other.csv"
    other.write_text("text,label\nquite another text,first\nand one more,second\n")
    assert "evaluated-on-train" not in {remark.code for remark in evaluate(out, other).remarks}
    shutil.move(own, tmp_path / "moved.csv")
    assert "evaluated-on-train" not in {remark.code for remark in evaluate(out, tmp_path / "moved.csv").remarks}


def test_a_model_that_never_trained_a_step_says_so(base_model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_finetune(base_model, table, out, steps=2)
    assert remarks_on_model(out) == []
    results = json.loads((out / "results.json").read_text())
    results["selection"]["step"] = 0
    (out / "results.json").write_text(json.dumps(results))
    assert [remark.code for remark in remarks_on_model(out)] == ["untrained-model"]


def test_remarks_about_unfinished_runs(base_model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_finetune(base_model, table, out, steps=4)
    (out / "results.json").unlink()
    assert [remark.code for remark in remarks_on_model(out)] == ["unfinished-run"]
    lines = (out / "metrics.jsonl").read_text().splitlines()
    (out / "metrics.jsonl").write_text("\n".join(line for line in lines if json.loads(line)["kind"] != "eval") + "\n")
    assert [remark.code for remark in remarks_on_model(out)] == ["unfinished-run-not-evaluated"]
    shutil.rmtree(out / "model")
    with refused("no-model-yet", place=str(out)):
        bertworks.load(out)


def test_lineage_names_each_training_once(base_model: Path, table: Path, tmp_path: Path) -> None:
    """Each training once, in order, whether it was stopped in between or not."""
    run_finetune(base_model, table, tmp_path / "one", steps=4)
    run_finetune(tmp_path / "one/model", table, tmp_path / "two", steps=4)
    for step in sorted((tmp_path / "two/checkpoints").iterdir())[1:]:
        shutil.rmtree(step)
    resume(tmp_path / "two", ProcessContext.library())
    lineage = json.loads((tmp_path / "two/model/bertworks.json").read_text())["lineage"]
    loaded = [f"loaded {base_model}", f"loaded {tmp_path / 'one/model'}"]
    assert [*lineage[-4:]] == [loaded[0], "finetune classify", loaded[1], "finetune classify"]


def test_multilabel_from_the_command_line(base_model: Path, tmp_path: Path) -> None:
    rows = [
        f"{'ba' if i % 2 else 'de'} {'ku' if i % 3 else 'go'} {'fi ' * (i % 4)},{i % 2},{int(i % 3 > 0)}"
        for i in range(60)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["text,odd,even,extra", *(f"{row},1" for row in rows)]) + "\n")
    labels = ["--label", "odd", "--label", "even"]
    command = [
        "finetune",
        "multilabel",
        "--train",
        tmp_path / "rows.csv",
        "--model",
        base_model,
        "--steps",
        "60",
        "--out",
        tmp_path / "run",
    ]
    run(*command, *labels, *QUICK_OPTIONS)
    process = run("evaluate", tmp_path / "run", tmp_path / "rows.csv", *labels, "--json")
    assert str(Columns(("text",), ("odd", "even"))) in process.stderr
    assert "f1" in json.loads(process.stdout)["metrics"]
    ledgers = json.loads((tmp_path / "run/results.json").read_text())["ledgers"]["train"]
    assert {"", "odd", "even"} == set(ledgers)
    assert ledgers[""]["texts"] > ledgers["odd"]["texts"] > 0
    (tmp_path / "inputs.txt").write_text("ba ku\n")
    prediction = json.loads(run("predict", tmp_path / "run", tmp_path / "inputs.txt", "--json").stdout)
    assert prediction["predicted_labels"] == ["even", "odd"]
    assert not prediction["predicted_undecided"]
    process = run("predict", tmp_path / "run", tmp_path / "inputs.txt", "--min-confidence", "1")
    assert re.fullmatch(r"none\tundecided: even 0\.\d\d, odd 0\.\d\d\n", process.stdout)
    assert low_confidence_counts(process.stderr) == (1, 1)
    process = run("predict", tmp_path / "run", tmp_path / "inputs.txt", "--min-confidence", "0.01")
    assert "0.01" not in process.stderr, "nothing is said of none"
    assert re.fullmatch(r"even 0\.\d\d, odd 0\.\d\d\n", process.stdout)
    run("predict", tmp_path / "run", tmp_path / "inputs.txt", "--out", tmp_path / "predictions.csv")
    (row,) = csv.DictReader((tmp_path / "predictions.csv").open())
    assert {name: float(row[f"predicted_score_{name}"]) for name in ("even", "odd")} == prediction["predicted_scores"]


def test_min_confidence_out_of_range_is_refused(base_model: Path, table: Path, tmp_path: Path) -> None:
    run_finetune(base_model, table, tmp_path / "run", steps=2)
    for min_confidence in (-0.1, 1.1, float("nan")):
        with refused("out-of-range", kind=BadConfig) as error:
            bertworks.load(tmp_path / "run").predict(["ba"], min_confidence=min_confidence)
        assert error.value.fields == ["min_confidence"]  # type: ignore[attr-defined]


def test_regression_has_no_confidence() -> None:
    bench = bertworks.new(
        "bert-mini", tokenizer=tiny_tokenizer(), heads=["sequence"], n_positions=48, **{**SMALL, "labels": ("value",)}
    )
    with refused("no-confidence", kind=Unsupported):
        bench.predict(["ba de"], min_confidence=0.5)


def test_resume_refuses_changed_examples(base_model: Path, table: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(table.read_text())
    run_finetune(base_model, rows, tmp_path / "run")
    rows.write_text(table.read_text().replace("ba", "ku", 1))
    with refused("examples-changed", place=str(tmp_path / "run"), kind=BadText):
        resume(tmp_path / "run", ProcessContext.library())


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["bert-mini", "xlnet-mini"])
def test_two_processes_train_as_one(preset: str, table: Path, tmp_path: Path) -> None:
    """torchrun with two processes against one, in float64 without dropout."""
    bench = bertworks.new(
        preset, tokenizer=tiny_tokenizer(), **{**small_sizes(preset), "head_dropout": 0.0, "ffn_dropout": 0.0}
    )
    base_model = bench.save(tmp_path / "start")
    script = str(Path(__file__).with_name("in_float64.py"))
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
    ]
    for name, command in (("one", [sys.executable]), ("two", torchrun)):
        arguments = [
            *command,
            script,
            "finetune",
            "classify",
            "--train",
            str(table),
            "--model",
            str(base_model),
            "--out",
            str(tmp_path / name),
        ]
        options = [*QUICK_OPTIONS, "--set", "train.keep_checkpoints=9"]
        process = subprocess.run([*arguments, "--steps", "6", *options], capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
    single = weights(tmp_path / "one", 6)
    double = weights(tmp_path / "two", 6)
    initial = weights(tmp_path / "one", 0)
    assert max(float((single[name] - double[name]).abs().max()) for name in single) < 1e-9
    assert max(float((single[name] - initial[name]).abs().max()) for name in single) > 1e-3
    example_scores = [
        json.loads((tmp_path / name / "results.json").read_text())["example_scores"] for name in ("one", "two")
    ]
    assert example_scores[0] == example_scores[1]


def test_early_stopping(base_model: Path, table: Path, tmp_path: Path) -> None:
    run_finetune(
        base_model, table, tmp_path / "run", "train.patience=2", "train.evaluations=20", "optim.lr=1e-9", steps=40
    )
    assert events(tmp_path / "run", "end")[0]["step"] < 10
    (remark,) = (event["text"] for event in events(tmp_path / "run", "remark") if event["code"] == "early-stopping")
    assert "2" in remark
    resume(tmp_path / "run", ProcessContext.library())
    assert events(tmp_path / "run", "end")[-1]["step"] < 10, "a run that has ended does not go on"


def test_layer_decay_lowers_the_learning_rate_of_lower_layers(base_model: Path, table: Path) -> None:
    from bertworks.train.optim import make_optimizer, set_learning_rate

    data, _, config = prepare_job(base_model, table, "optim.layer_decay=0.5")
    task = build_task(config, bertworks.load(base_model), data.train)
    optimiser = make_optimizer(task, config.optim)
    set_learning_rate(optimiser, 1.0)
    rates = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    rate_of = {name: rates[id(parameter)] for name, parameter in task.named_parameters()}
    assert rate_of["model.heads.sequence.out.weight"] == 1.0
    assert rate_of["model.encoder.ffns.1.down.weight"] == 0.5
    assert rate_of["model.encoder.attentions.0.attn.q.bias"] == 0.25
    assert rate_of["model.encoder.embed.tokens.weight"] == 0.125


def test_frozen_layers_stay_and_reinitialised_layers_change(base_model: Path, table: Path, tmp_path: Path) -> None:
    run_finetune(base_model, table, tmp_path / "run", "train.freeze=1", "train.reinit=1", steps=60)
    before, after = (bertworks.load(path).model.state_dict() for path in (base_model, tmp_path / "run"))
    unchanged = {name for name in before if name in after and torch.equal(before[name], after[name])}
    assert {
        "encoder.embed.tokens.weight",
        "encoder.ffns.0.down.weight",
        "encoder.attentions.0.attn.q.weight",
    } <= unchanged
    difference = float((before["encoder.ffns.1.down.weight"] - after["encoder.ffns.1.down.weight"]).std())
    assert difference > 0.1, "two draws apart, not a few steps"


def test_shared_layers_are_frozen_or_reinitialised_together(table: Path) -> None:
    source = find_source("classify", train=str(table))
    task = describe_task(read_data(source), source)
    albert = bertworks.new("albert-mini", tokenizer=tiny_tokenizer(), n_positions=48, **SMALL)
    for setting in ("train.freeze=1", "train.reinit=1"):
        with refused("bad-config", kind=BadConfig) as error:
            resolve_finetune(albert, task, settings=parse_settings([setting], FINETUNE, {"train.steps": 1}))
        assert error.value.fields == [setting.partition("=")[0], "model.sharing"]  # type: ignore[attr-defined]
    frozen = build_task(
        resolve_finetune(albert, task, settings={"train.freeze": 2, "train.steps": 1}),
        albert,
        read_data(source).train,
    )
    assert not any(parameter.requires_grad for parameter in frozen.model.encoder.parameters())


def test_reinitialised_layers_start_as_new_ones_do(table: Path) -> None:
    source = find_source("classify", train=str(table))
    gpt = bertworks.new("gpt-mini", tokenizer=tiny_tokenizer(), n_positions=48, **SMALL)
    config = resolve_finetune(
        gpt, describe_task(read_data(source), source), settings={"train.reinit": 1, "train.steps": 1}
    )
    new_std, reinitialised_std = (
        model.encoder.ffns[-1].down.weight.std().item() for model in (gpt.model, build_task(config, gpt, []).model)
    )  # type: ignore[union-attr]
    assert reinitialised_std == pytest.approx(new_std, rel=0.1), "narrower before a norm"


@pytest.mark.parametrize("shape", ["span", "choice"])
def test_tasks_without_labels_drop_those_of_the_base_model(shape: Any) -> None:
    classifier = bertworks.new(
        "bert-mini", tokenizer=tiny_tokenizer(), heads=["sequence"], labels=("a", "b", "c"), n_positions=48, **SMALL
    )
    config = resolve_finetune(
        classifier, TaskConfig(shape=shape, metric="f1" if shape == "span" else "accuracy"), settings={"train.steps": 1}
    )
    task = build_task(config, classifier, [])
    assert config_values(task.model, {})["model_type"] == "bert", "so that it opens in transformers"


def test_attention_dropout_is_off_by_default(base_model: Path, table: Path) -> None:
    for settings, training_dropout, saved_dropout in (
        ([], 0.0, 0.0),
        (["train.attention_dropout=0.3"], 0.3, 0.0),
        (["model.attention_dropout=0.1"], 0.1, 0.1),
        (["model.attention_dropout=0.1", "train.attention_dropout=0.3"], 0.3, 0.1),
    ):
        data, _, config = prepare_job(base_model, table, *settings)
        model = build_task(config, bertworks.load(base_model), data.train).model
        assert {attention.attn.drop.p for attention in model.encoder.attentions} == {training_dropout}  # type: ignore[union-attr]
        assert model.config.encoder.attention_dropout == saved_dropout, "what is saved is the model's own"


def test_balanced_class_weights(base_model: Path, table: Path) -> None:
    source = find_source("classify", train=str(table))
    data = read_data(source)
    data.train = [example for example in data.train if example.answer == "first"][:10] + [
        example for example in data.train if example.answer == "second"
    ][:40]
    config = resolve_finetune(
        bertworks.load(base_model),
        describe_task(data, source),
        settings={"task.class_weights": "balanced", "train.steps": 1},
    )
    assert build_task(config, bertworks.load(base_model), data.train).weights.tolist() == pytest.approx([2.5, 0.625])  # type: ignore[union-attr, operator]


def test_a_transformers_folder_predicts_too(base_model: Path, tmp_path: Path) -> None:
    bench = bertworks.load(base_model)
    with refused("not-fine-tuned", kind=Unsupported):
        bench.predict(["ba de"])
    tagger = bertworks.new(
        "bert-tiny", tokenizer=tiny_tokenizer(), heads=["token"], labels=("O", "B-x"), n_positions=48
    )
    folder = tagger.save(tmp_path / "tagger")
    (folder / "bertworks.json").unlink()
    (prediction,) = bertworks.load(folder).predict(["Ba de, fi!"])
    assert prediction.words == ["Ba", "de", ",", "fi", "!"] and len(prediction.tags) == 5
    classifier = bertworks.new(
        "bert-tiny", tokenizer=tiny_tokenizer(), heads=["sequence"], labels=("a", "b"), n_positions=48
    )
    folder = classifier.save(tmp_path / "judge")
    (folder / "bertworks.json").unlink()
    single_text, text_pair = bertworks.load(folder).predict(["ba", ("ba", "de")])  # its files do not say which it takes
    assert single_text.scores != text_pair.scores
    (tmp_path / "lines.txt").write_text("ba\nba\tde\n")
    assert len(run("predict", folder, tmp_path / "lines.txt").stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("argument", "is_text"),
    [
        ("ba de", True),
        ("ba", True),
        ("今天天气很好。", True),
        ("ba and/or de v1.5 fi.", True),
        ("ba " * 2000, True),
        ("ba.csv", False),
        ("my ba.csv", False),
        ("no/ba", False),
        ("ba.conll.gz", False),
    ],
)
def test_a_text_on_the_command_line(argument: str, is_text: bool, classifier: Path, tmp_path: Path) -> None:
    if not is_text:
        refused_input = refusal("predict", classifier, argument)
        assert refused_input["code"] == "not-found" and argument in refused_input["what to do"]
        return
    result = run("predict", classifier, argument, "--on-long", "truncate")
    assert result.stdout == run("predict", classifier, "-", "--on-long", "truncate", stdin=argument.encode()).stdout
    assert "read as a text" in result.stderr


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_text_is_no_folder(text: str, classifier: Path) -> None:
    assert refusal("predict", classifier, text)["code"] == "empty-text"


def test_a_file_is_not_taken_for_a_text(classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ba de").write_text("fi\ngo\nku\n")
    assert len(run("predict", classifier, "ba de").stdout.splitlines()) == 3


def test_one_text_where_a_model_expects_two(tmp_path: Path) -> None:
    bench = bertworks.new("bert-tiny", tokenizer=tiny_tokenizer(), heads=["span"], n_positions=48)
    folder = bench.save(tmp_path / "span")
    error = refusal("predict", folder, "ba de fi")
    assert error["code"] == "wrong-input" and "printf 'question\\tcontext\\n'" in error["what to do"]
    assert len(run("predict", folder, "ba?\tde ba fi").stdout.splitlines()) == 1


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bench = bertworks.new(
        "bert-tiny", tokenizer=tiny_tokenizer(), heads=["sequence"], labels=("a", "b"), n_positions=48
    )
    return bench.save(tmp_path_factory.mktemp("models") / "classifier")


@pytest.mark.parametrize(
    ("args", "code", "suggestion"),
    [
        (["classify"], "unknown-verb", "bertworks finetune classify"),
        (["ner"], "unknown-verb", "bertworks finetune tag"),
        (["similarity"], "unknown-verb", "bertworks embed"),
        (["encode"], "unknown-verb", "bertworks embed"),
        (["train"], "unknown-verb", "bertworks finetune"),
        (["finetune", "clasify", "--model", "minilm"], "unknown-task", "'classify'"),
        (["finetune", "NER", "--model", "minilm"], "unknown-task", "'tag'"),
        (["finetune", "sst-2", "--model", "minilm"], "unknown-task", "'sst2'"),
    ],
)
def test_names_that_are_nearly_right(args: list[str], code: str, suggestion: str) -> None:
    error = refusal(*args, "--out", "never") if args[0] == "finetune" else refusal(*args)
    assert error["code"] == code and suggestion in error["what to do"]


def test_what_is_not_a_list_of_texts() -> None:
    sizes = {"labels": ("a", "b"), "n_positions": 48}
    bench = bertworks.new("bert-tiny", tokenizer=tiny_tokenizer(), heads=["sequence"], **sizes)
    with refused("not-a-list", kind=BadText):
        bench.predict("ba de")
    for inputs in ({"text": "ba de"}, SimpleNamespace(columns=["text"]), None, 7):
        with refused("not-a-list", kind=BadText) as error:
            bench.predict(inputs)  # type: ignore[arg-type]
        assert type(inputs).__name__ in error.value.cause


def test_with_a_time_budget_evaluations_read_a_subset_of_a_large_dev(
    base_model: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = small_task("bert-mini", "classify").features(synthetic_examples("classify", 64), sliding_windows())
    subset = token_subset(dev, sum(feature.length for feature in dev) // 4)
    assert token_subset(dev, 10**6) == list(range(64))
    assert 10 < len(subset) < 20
    assert subset == token_subset(dev, sum(feature.length for feature in dev) // 4)
    n_evaluated: list[int] = []
    monkeypatch.setattr(DevEvaluation, "_progress", lambda self, done, total: n_evaluated.append(total))
    data, _ = run_finetune(base_model, table, tmp_path / "run", "train.evaluate_tokens=50", budget=3.0)
    (remark,) = (event for event in events(tmp_path / "run", "remark") if event["code"] == "dev-sampled")
    assert len(set(n_evaluated)) == 1
    assert max(n_evaluated) < len(data.dev)
    assert figures(remark["text"]) == {str(n_evaluated[0]), str(len(data.dev))}
    assert len(json.loads((tmp_path / "run/results.json").read_text())["example_scores"]) == len(data.dev), (
        "the end reads all"
    )


def test_evaluations_use_the_metric_of_the_final_results() -> None:
    """Where a model may abstain: by the F1 at the best threshold, during training as at the end."""
    task = new_task("bert-mini", "span")
    assert isinstance(task, SpanTask)
    task.no_answer = 0.0
    examples = [
        replace(example, answer=example.answer if i % 2 else ()) for i, example in enumerate(synthetic_examples("span"))
    ]
    features = task.features(examples, sliding_windows())
    metrics = DevEvaluation(task, features, examples, "f1")(0)
    results, _ = calibrate_and_score(
        task, features, examples, TaskArtifact(task=TaskConfig(shape="span", no_answer=True))
    )
    assert metrics["f1"] == results.metrics["f1"] >= 0.5, "always abstaining is right for half of them"


def test_a_head_is_reused_only_for_the_same_labels(tmp_path: Path) -> None:
    """Regression targets are standardised in training; a finished head predicts in the user's units."""
    rng = random.Random(1)
    rows = [(" ".join(rng.choices(WORDS, k=6)), 100 + i % 20) for i in range(60)]
    table = tmp_path / "n.csv"
    table.write_text("text,score\n" + "".join(f"{text},{score}\n" for text, score in rows))
    bench = bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), n_positions=48, **SMALL)
    for i, model in enumerate([bench.save(tmp_path / "start"), tmp_path / "run-0"]):
        source = find_source("regress", train=str(table))
        data = read_data(source)
        config = resolve_finetune(
            bertworks.load(model),
            describe_task(data, source),
            settings=parse_settings(QUICK, FINETUNE, {"train.steps": 2}),
        )
        finetune(FinetuneJob(config, data, source, str(model)), tmp_path / f"run-{i}", ProcessContext.library())
        assert all(
            80 < prediction.value < 140
            for prediction in bertworks.load(tmp_path / f"run-{i}").predict([text for text, _ in rows[:8]])
        )

    def initial_head(labels: tuple[str, ...]) -> torch.Tensor:
        config = resolve_finetune(classifier, TaskConfig(shape="classify", labels=labels), settings={"train.steps": 1})
        return build_task(config, classifier, []).model.state_dict()["heads.sequence.out.weight"]

    classifier = bertworks.new(
        "bert-mini", tokenizer=tiny_tokenizer(), heads=["sequence"], labels=("a", "b"), seed=5, n_positions=48, **SMALL
    )
    old = classifier.model.state_dict()["heads.sequence.out.weight"]
    assert initial_head(("a", "b")).equal(old)
    assert not initial_head(("b", "a")).equal(old)
    assert not initial_head(("c", "d")).equal(old)


def test_every_setting_key_has_help() -> None:
    help_texts = setting_keys(FINETUNE)
    help_page = run("finetune", "--help").stdout
    assert all(help_texts.values())
    assert all((f" {key} " in help_page) == is_settable(key) for key in help_texts)
    assert is_settable("model.dropout")
    assert not is_settable("model.n_layers")
    assert not is_settable("task.shape")


@pytest.mark.parametrize(
    ("settings", "code", "fields", "expected_in_message"),
    [
        (["data.max_length=999"], "bad-config", ["data.max_length", "model.n_positions"], "48"),
        (["train.freeze=3"], "bad-config", ["train.freeze", "train.reinit"], "2"),
        (["model.n_layers=3"], "cannot-change", ["model.n_layers"], "n_positions"),
        (["optim.lt=1"], "unknown-key", ["optim.lt"], "optim.lr"),
        (["train.steps=5"], "given-twice", ["train.steps"], ""),
        (["optim.lr=1e-3", "optim.lr=1e-4"], "given-twice", ["optim.lr"], ""),
        (["optim.max_grad_norm=2", "optim.clip=1"], "given-twice", ["optim.max_grad_norm"], ""),
        (["data.overlap=9999"], "overlap-too-large", ["data.overlap", "data.max_length"], "24"),
        (["data.overlap=17", "data.max_length=32"], "overlap-too-large", ["data.overlap", "data.max_length"], "16"),
        (["task.shape=regress"], "follows-from-examples", ["task.shape"], ""),
        (["task.no_answer=true"], "no-effect", ["task.no_answer"], "classify"),
        (["optim.cooldown=0.5"], "no-effect", ["optim.cooldown"], "optim.schedule"),
        (["train.patience=2", "train.evaluations=0"], "no-effect", ["train.patience"], "train.evaluations"),
        (["task.counted_from=1"], "follows-from-examples", ["task.counted_from"], ""),
        (['task.transitions=[["B","I",true]]'], "no-effect", ["task.transitions"], "classify"),
        (["train.batch_size=null"], "bad-config", ["train.batch_size"], ""),
        (['task.labels=["first"]'], "different-labels", ["task.labels"], '["first", "second"]'),
    ],
)
def test_wrong_settings_are_refused(
    settings: list[str], code: str, fields: list[str], expected_in_message: str, base_model: Path, table: Path
) -> None:
    source = find_source("classify", train=str(table))
    with refused(code, kind=BadConfig) as error:
        resolve_finetune(
            bertworks.load(base_model),
            describe_task(read_data(source), source),
            settings=parse_settings(settings, FINETUNE, {"train.steps": 1}),
            sizes=(9, 9),
        )
    assert error.value.fields == fields and expected_in_message in str(error.value)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("optim.learning_rate", "optim.lr"),
        ("learning_rate", "optim.lr"),
        ("train.num_train_epochs", "train.epochs"),
        ("train.per_device_train_batch_size", "train.batch_size"),
        ("batch_size", "train.batch_size"),
        ("optim.decay", "optim.weight_decay"),
        ("train.warmup_ratio", "optim.warmup"),
        ("dropout", "model.dropout"),
        ("max_len", "data.max_length"),
        ("random_state", "train.seed"),
    ],
)
def test_usual_names_of_settings_are_understood(key: str, suggestion: str) -> None:
    with refused("unknown-key") as error:
        parse_settings([f"{key}=1"], FINETUNE)
    assert error.value.remedy == f"did you mean {suggestion!r}?"


def test_only_the_settable_keys_of_a_section_are_listed() -> None:
    for key, listed, hidden in (
        ("optim.zzz", "optim.lr", "train.seed"),
        ("model.zzz", "model.dropout", "n_layers"),
        ("zzz", "optim", "train.seed"),
    ):
        with refused("unknown-key") as error:
            parse_settings([f"{key}=1"], FINETUNE)
        assert listed in str(error.value.remedy) and hidden not in str(error.value.remedy), error.value


@pytest.mark.parametrize(
    ("settings", "cause", "remedy"),
    [
        ({"train.epochs": 0}, "train.epochs = 0: must be at least 1", "train.epochs (--epochs)"),
        (
            {"train.steps": 3, "train.epochs": 2},
            "train.steps = 3, train.epochs = 2: exactly one of steps, epochs and budget is needed",
            "train.steps (--steps), train.epochs (--epochs)",
        ),
        ({"optim.lr": "fast"}, "optim.lr = 'fast': must be a number", "optim.lr"),
        ({"train.batch_size": 1.5}, "train.batch_size = 1.5: must be a whole number", "train.batch_size"),
        (
            {"train.precision": "half"},
            "train.precision = 'half': must be 'float32' or 'bfloat16'",
            "train.precision",
        ),
    ],
)
def test_wrong_values_are_refused_in_our_words(
    settings: dict[str, Any], cause: str, remedy: str, base_model: Path, table: Path
) -> None:
    source = find_source("classify", train=str(table))
    with refused("bad-config", kind=BadConfig) as error:
        resolve_finetune(bertworks.load(base_model), describe_task(read_data(source), source), settings=settings)
    assert (error.value.cause, error.value.remedy) == (cause, f"correct {remedy}")


def test_transitions_may_be_turned_off_but_not_set(base_model: Path) -> None:
    transitions = (("O", "B", False), ("B", "O", False))
    task = TaskConfig(shape="tag", labels=("B-x", "I-x", "O"), metric="entity_f1", transitions=transitions)

    def resolved(setting: str) -> FinetuneConfig:
        return resolve_finetune(
            bertworks.load(base_model), task, settings=parse_settings([setting], FINETUNE, {"train.steps": 1})
        )

    assert resolved("task.transitions=[]").task.transitions == ()
    assert len(resolved("train.seed=1").task.transitions) == 2
    with refused("follows-from-examples", kind=BadConfig) as error:
        resolved('task.transitions=[["B","I",true]]')
    assert error.value.fields == ["task.transitions"]  # type: ignore[attr-defined]


def test_more_positions_make_longer_windows(base_model: Path, table: Path) -> None:
    assert prepare_job(base_model, table)[2].data.max_length == 48
    assert prepare_job(base_model, table, "model.n_positions=1024")[2].data.max_length == 1024
    unlimited = bertworks.new("xlnet-mini", tokenizer=tiny_tokenizer(), **SMALL)
    config = resolve_finetune(
        unlimited,
        TaskConfig(shape="classify", labels=("a", "b")),
        settings={"model.n_positions": None, "train.steps": 1},
    )
    assert config.data.max_length == 512


@pytest.mark.parametrize(
    ("sizes", "limit", "settings", "n_evaluations"),
    [
        ((4000, 400), {"epochs": 4}, [], 10),
        ((4000, 2000), {"epochs": 2}, [], 4),
        ((4000, 2000), {"steps": 125}, [], 2),
        ((100, 5000), {}, [], 2),
        ((4000, 2000), {"epochs": 2}, ["train.evaluations=7"], 7),
        ((4000, 2000), {"budget": 60}, [], 10),
        ((4000, 2000), {"epochs": 2}, ["train.patience=3"], 10),
        (None, {}, [], 10),
    ],
)
def test_a_large_dev_is_evaluated_less_often(
    sizes: Any, limit: dict[str, float], settings: list[str], n_evaluations: int, base_model: Path
) -> None:
    config = resolve_finetune(
        bertworks.load(base_model),
        TaskConfig(shape="classify", labels=("a", "b")),
        settings=parse_settings(settings, FINETUNE, option_settings(**limit)),
        sizes=sizes,
    )
    assert config.train.evaluations == n_evaluations


def test_default_batch_size_counts_texts_not_examples(base_model: Path) -> None:
    def batch_size(shape: Any, *settings: str) -> int:
        return resolve_finetune(
            bertworks.load(base_model),
            TaskConfig(shape=shape),
            settings=parse_settings(settings, FINETUNE, {"train.steps": 1}),
        ).train.batch_size

    assert (batch_size("classify"), batch_size("choice"), batch_size("choice", "train.batch_size=5")) == (32, 8, 5)


def test_labels_may_change_their_order(base_model: Path, table: Path, tmp_path: Path) -> None:
    run_finetune(base_model, table, tmp_path / "run", 'task.labels=["second", "first"]', steps=60)
    assert json.loads((tmp_path / "run/model/config.json").read_text())["id2label"] == {"0": "second", "1": "first"}
    bench = bertworks.load(tmp_path / "run")
    assert bench.config.heads.labels == bench.artifact.task.labels == ("second", "first")  # type: ignore[union-attr]
    assert [prediction.label for prediction in bench.predict(["de ba", "de ku"])] == ["first", "second"]


def test_seeds_that_never_started_leave_nothing_behind(base_model: Path, tmp_path: Path) -> None:
    long_texts = tmp_path / "long.csv"
    long_texts.write_text("text,label\n" + "".join(f"{'ba ' * 60},{i % 2}\n" for i in range(40)))
    options = [
        "--train",
        long_texts,
        "--model",
        base_model,
        "--seeds",
        "2",
        "--steps",
        "2",
        "--out",
        tmp_path / "run",
        "--set",
        "train.threads=1",
    ]
    assert refusal("finetune", "classify", *options, "--on-long", "error")["code"] == "too-long"
    run("finetune", "classify", *options, "--on-long", "truncate")


def test_several_seeds(base_model: Path, table: Path, tmp_path: Path) -> None:
    """Each seed is a run of its own, the best seed's model is the run's; an interruption changes nothing."""
    out = tmp_path / "run"
    interrupted = tmp_path / "other"
    data, source, config = prepare_job(base_model, table, steps=24)
    heard: list[Event] = []
    finetune_seeds(FinetuneJob(config, data, source, str(base_model)), out, ProcessContext.library(heard.append), 3)
    assert [isinstance(event, Finished) for event in heard].count(True) == 1
    assert isinstance(heard[-1], Finished), "the end of a seed is not the end"
    results = json.loads((out / "results.json").read_text())
    seeds = results["seeds"]
    results_of = {seed: json.loads((out / f"seed-{seed}/results.json").read_text()) for seed in range(3)}
    assert seeds["metrics"] == {
        str(seed): result["metrics"] for seed, result in results_of.items() if not result["pruned"]
    }
    values = [result["metrics"]["accuracy"] for result in results_of.values() if not result["pruned"]]
    assert seeds["mean"]["accuracy"] == pytest.approx(sum(values) / len(values))
    assert max(values) == results["metrics"]["accuracy"]
    low, high = seeds["intervals"]["accuracy"]
    assert low <= seeds["mean"]["accuracy"] <= high and seeds["std"]["accuracy"] >= 0
    best = out / f"seed-{seeds['best']}/model/model.safetensors"
    assert (out / "model/model.safetensors").read_bytes() == best.read_bytes()
    page = (out / "report.html").read_text()
    assert all(page.count(f"</span> {seed}</th>") == 1 for seed in range(3)), "a column for each seed"
    assert bertworks.load(out).predict(["ba de fi"])[0].label in ("first", "second")
    assert len(evaluate(out, table).results.example_scores) == 120
    shutil.copytree(out, interrupted)
    shutil.rmtree(interrupted / "seed-2")
    for name in ("results.json", "seed-1/results.json"):
        (interrupted / name).unlink()
    for step in sorted((interrupted / "seed-1/checkpoints").iterdir())[1:]:
        shutil.rmtree(step)  # as if it had been killed in the middle
    resume_seeds(interrupted, ProcessContext.library())
    resumed = json.loads((interrupted / "results.json").read_text())
    assert resumed == results


def test_seeds_are_also_evaluated_without_copies(base_model: Path, table: Path, tmp_path: Path) -> None:
    lines = table.read_text().splitlines()
    (tmp_path / "dev.csv").write_text("\n".join([*lines[:11], "go de ba fi,first", "la ku fi,second"]) + "\n")
    source = find_source("classify", train=str(table), dev=str(tmp_path / "dev.csv"))
    data = read_data(source)
    config = resolve_finetune(
        bertworks.load(base_model),
        describe_task(data, source),
        settings=parse_settings(QUICK, FINETUNE, {"train.steps": 4}),
    )
    heard: list[Event] = []
    finetune_seeds(
        FinetuneJob(config, data, source, str(base_model)), tmp_path / "run", ProcessContext.library(heard.append), 2
    )
    metrics_of_seeds = json.loads((tmp_path / "run/results.json").read_text())["seeds"]["extra_eval"][WITHOUT_COPIES]
    mean = sum(metrics["accuracy"] for metrics in metrics_of_seeds.values()) / 2
    finished = heard[-1]
    assert isinstance(finished, Finished)
    assert finished.extra_eval[WITHOUT_COPIES]["accuracy"] == mean
    assert mean in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert SPLIT_TITLES_ZH[WITHOUT_COPIES] in (tmp_path / "run/report.html").read_text()


def test_a_seed_that_learns_nothing_is_pruned(base_model: Path, table: Path, tmp_path: Path) -> None:
    """The third seed is replaced by the same run with a learning rate that learns nothing."""
    out = tmp_path / "run"
    data, source, config = prepare_job(base_model, table, "train.evaluations=10", steps=40)
    finetune_seeds(FinetuneJob(config, data, source, str(base_model)), out, ProcessContext.library(), 3)
    is_behind = SeedPruner.from_runs([out / "seed-0", out / "seed-1"], "accuracy")
    assert not is_behind(0.4, 1.0), "too early to say"
    assert is_behind(0.9, 0.9)
    assert not is_behind(0.9, is_behind.noise), "the others have no error at the end"
    assert not SeedPruner.from_runs([out / "seed-0"], "accuracy")(0.9, 1.0), "a single other one may have been lucky"
    slow = config.model_copy(update={"optim": config.optim.model_copy(update={"lr": 1e-9})})
    finetune(
        FinetuneJob(slow, data, source, str(base_model)),
        tmp_path / "slow",
        ProcessContext.library(),
        pruner=replace(is_behind, noise=0.0),
    )
    assert json.loads((tmp_path / "slow/results.json").read_text())["pruned"]
    assert "pruned" in [event["code"] for event in events(tmp_path / "slow", "remark")]
    assert 0.5 <= max(event["progress"] for event in events(tmp_path / "slow", "eval")) < 0.95
    shutil.rmtree(out / "seed-2")
    shutil.copytree(tmp_path / "slow", out / "seed-2")
    heard: list[Event] = []
    resume_seeds(out, ProcessContext.library(heard.append))
    finished = heard[-1]
    assert isinstance(finished, Finished)
    assert finished.pruned_seeds == [2]
    assert finished.n_seeds == 2
    seeds = json.loads((out / "results.json").read_text())["seeds"]
    assert list(seeds["metrics"]) == ["0", "1"]
    assert list(seeds["pruned"]) == ["2"]
    assert seeds["best"] != 2
    comparison = compare(out, out / "seed-0")
    assert comparison.n_seeds == (2, 1)
    assert [remark.code for remark in comparison.remarks] == ["seeds-pruned", "single-seed"]
    assert str(out) in comparison.remarks[0].text
    assert "1" in comparison.remarks[0].text.replace(str(out), "")


def test_two_runs_are_compared(base_model: Path, table: Path, tmp_path: Path) -> None:
    run_finetune(base_model, table, tmp_path / "good", steps=60)
    run_finetune(base_model, table, tmp_path / "bad", "optim.lr=1e-9", steps=2)
    comparison = compare(tmp_path / "bad", tmp_path / "good")
    remarks = comparison.remarks
    accuracy = next(metric for metric in comparison.metrics if metric.metric.name == "accuracy")
    assert comparison.n_seeds == (1, 1)
    assert accuracy.significant
    assert accuracy.second == 1.0
    assert accuracy.interval[0] > 0
    assert not any(metric.significant for metric in compare(tmp_path / "good", tmp_path / "good").metrics)
    assert [remark.code for remark in remarks] == ["single-seed", "different-evaluations"]
    processes = [run("compare", tmp_path / name, tmp_path / "good") for name in ("bad", "good")]
    verdicts = [re.search(r"^ *accuracy .*\d\b(.*)$", process.stdout, re.MULTILINE) for process in processes]
    assert all(verdicts)
    assert len({verdict[1] for verdict in verdicts if verdict}) == 2
    assert all(len(line.rstrip()) <= 80 for process in processes for line in process.stdout.splitlines())
    assert remarks[0].text in processes[0].stderr
    output = run_json("compare", tmp_path / "bad", tmp_path / "good")
    assert output["metrics"]["accuracy"]["significant"] and output["remarks"] == [remark.text for remark in remarks]
    run_finetune(base_model, table, tmp_path / "turned", 'task.labels=["second", "first"]')
    with refused("different-label-order", kind=Unsupported):
        compare(tmp_path / "good", tmp_path / "turned")
    fewer_rows = tmp_path / "rows.csv"
    fewer_rows.write_text("\n".join(table.read_text().splitlines()[:100]) + "\n")
    run_finetune(base_model, fewer_rows, tmp_path / "elsewhere")
    with refused("different-dev", kind=Unsupported):
        compare(tmp_path / "good", tmp_path / "elsewhere")
    (tmp_path / "elsewhere/results.json").unlink()
    with refused("unfinished-run", place="elsewhere"):
        compare(tmp_path / "good", tmp_path / "elsewhere")


def test_predictions_are_written_beside_the_columns_of_a_table(base_model: Path, table: Path, tmp_path: Path) -> None:
    run_finetune(base_model, table, tmp_path / "run", steps=60)
    inputs = tmp_path / "new.csv"
    predictions = tmp_path / "predictions.csv"
    inputs.write_text('id,text,label\n7,"de, fi ba",x\n8,go ku,y\n')
    process = run("predict", tmp_path / "run", inputs, "--out", predictions)
    rows = list(csv.DictReader(predictions.open()))
    assert [(row["id"], row["label"], row["predicted_label"]) for row in rows] == [
        ("7", "x", "first"),
        ("8", "y", "second"),
    ]
    assert 0.5 < float(rows[0]["predicted_confidence"]) <= 1
    assert re.search(r"\btext$", process.stderr, re.MULTILINE), "which column it was"
    run("predict", tmp_path / "run", inputs, "--out", tmp_path / "predictions.jsonl", "--min-confidence", "1")
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [line["predicted_label"] for line in lines] == [None, None]
    assert lines[0]["place"].endswith("line 2")
    assert [line["id"] for line in lines] == ["7", "8"], "a table keeps its columns"
    assert refusal("predict", tmp_path / "run", inputs, "--out", inputs)["code"] == "would-replace-input"
    process = run("predict", tmp_path / "run", inputs, "--min-confidence", "1")
    assert low_confidence_counts(process.stderr) == (2, 2) and process.stdout.startswith("\t0.")
    inputs.write_text("text,label\nde ba,x\ngo ku,\n")
    output_lines = [json.loads(line) for line in run("predict", tmp_path / "run", inputs, "--json").stdout.splitlines()]
    assert [line["predicted_label"] for line in output_lines] == ["first", "second"]
    inputs.write_text('text\nde ba\n""\n')
    error_output = run("predict", tmp_path / "run", inputs, code=2).stderr
    assert "(bad-rows)" in error_output and "new.csv, line 3" in error_output
    with refused("bad-rows", kind=BadRows) as error:
        inputs_for(bertworks.load(tmp_path / "run").predictor, str(inputs))
    assert [row.code for row in error.value.rows] == ["empty-text"]  # type: ignore[attr-defined]
    lines = run("predict", tmp_path / "run", inputs, "--skip-bad").stdout.split("\n")
    assert lines[0].startswith("first\t") and lines[1:] == ["", ""], "a line for each row"
    run("predict", tmp_path / "run", inputs, "--skip-bad", "--out", predictions)
    assert [(row["text"], row["predicted_label"]) for row in csv.DictReader(predictions.open())] == [
        ("de ba", "first"),
        ("", ""),
    ]
    assert refusal("predict", tmp_path / "run", inputs, "--out", tmp_path / "a.xls")["code"] == "unknown-file-type"
    inputs.write_text(
        "".join('{"text": "de ba"}\n' for _ in range(INPUT_BATCH_SIZE + 3)) + '{"text": "go ku", "late": [1]}\n'
    )
    process = run("predict", tmp_path / "run", inputs.rename(tmp_path / "long.jsonl"), "--out", predictions)
    rows = list(csv.DictReader(predictions.open()))
    assert [row["predicted_label"] for row in rows] == ["first"] * (INPUT_BATCH_SIZE + 3) + ["second"]
    assert rows[-1]["late"] == "[1]"
    assert f"{INPUT_BATCH_SIZE + 4:,}" in process.stderr
    inputs.write_text("body\nde ba\n")
    assert run("predict", tmp_path / "run", inputs, "--json").stdout.startswith('{"place"')


def test_entities_are_printed_readably() -> None:
    example = as_example("Jean Paul Sartre of Rome", Tag.schema, False, 1)
    found = [entity_of(example, "PERSON", 0, 2, 0.971), replace(entity_of(example, "LOC", 4, 4, 0.5), start=None)]
    prediction = EntityPrediction(list(example.texts), ["B-PERSON"], [1.0], found)
    assert prediction.shown()["entities"] == "PERSON 0-16 Jean Paul Sartre (0.97); LOC Rome (0.50)"
    assert "entities" not in TagPrediction(["Ba"], ["NOUN"], [1.0], []).cells()


def test_entities_have_offsets_into_the_text() -> None:
    example = as_example("Mr. Li of New-York, Inc.!", Tag.schema, False, 0)
    words = list(example.texts)
    assert words == ["Mr", ".", "Li", "of", "New-York", ",", "Inc", ".", "!"]
    predicted = [
        entity_of(example, *entity, confidence=1.0)
        for entity in entities(["O", "O", "B-x", "O", "B-x", "I-x", "I-x", "I-x", "O"])
    ]
    assert [(entity.text, entity.start, entity.end) for entity in predicted] == [
        ("Li", 4, 6),
        ("New-York, Inc.", 10, 24),
    ]
    assert all(example.source_text[entity.start : entity.end] == entity.text for entity in predicted)


def test_an_error_shows_the_entities_that_differ() -> None:
    example = Example(tuple("Ann saw Bob in Rome".split()), ("B-per", "O", "B-per", "O", "B-loc"))
    prediction = TagPrediction(
        list(example.texts), ["B-per", "O", "B-loc", "O", "B-loc"], [0.9, 0.8, 0.7, 0.9, 0.9], []
    )
    task = Tag(bertworks.new("bert-tiny").model, TaskConfig(shape="tag", labels=("B-per", "B-loc", "O")))
    (score,) = task.scores([prediction], [example])
    assert (score.is_wrong, score.severity, score.expected, score.predicted) == (True, 0.7, "Bob (per)", "Bob (loc)")


def test_no_column_of_a_table_is_lost(tmp_path: Path) -> None:
    """Rows may have more keys than the first, lists, and columns that an earlier prediction added."""
    rows = [{"text": "a", "label": "x", "predicted_label": "y"}, {"text": "b", "note": ["keep", "me"]}]
    batch = InputBatch([Example(("a",)), Example(("b",))], rows)
    with open_output(
        tmp_path / "predictions.tsv", ["text", "label", "predicted_label", "note"], print, as_json=False
    ) as write:
        write(batch, [ClassPrediction("p", 0.5, {}), ClassPrediction(None, 0.4, {})])
    written = list(csv.DictReader((tmp_path / "predictions.tsv").open(), delimiter="\t"))
    assert written[0]["predicted_label"] == "y" and written[0]["predicted_predicted_label"] == "p"
    assert json.loads(written[1]["note"]) == ["keep", "me"]
    assert written[1]["predicted_predicted_label"] == ""


def test_formulas_in_tables_are_made_harmless(tmp_path: Path) -> None:
    """A spreadsheet would run them; numbers stay numbers, and `raw` keeps everything."""
    formulas = ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\tx", "\rx"]
    numbers = ["-1.5", "+3", "-1e-3", "-.5", "-1,234.5", "-5%", "a=b", "", " -x"]
    rows = [{"=text": text, "n": -1.5} for text in [*formulas, *numbers]]
    batch = InputBatch([Example((row["=text"],)) for row in rows], rows)
    predictions = [ClassPrediction("@label", 0.5, {})] * len(rows)
    written = {}
    for raw in (False, True):
        out = tmp_path / f"{raw}.csv"
        with open_output(out, ["=text", "n"], print, as_json=False, raw=raw) as write:
            write(batch, predictions)
        with out.open(newline="") as file:
            written[raw] = list(csv.reader(file))
        assert write.n_formulas == (0 if raw else 1 + len(formulas) + len(rows))
        assert [remark.code for remark in write.remarks] == ([] if raw else ["formulas"])
    header, *cells = written[False]
    assert header[0] == "'=text"
    assert [row[0] for row in cells] == [*(f"'{text}" for text in formulas), *numbers]
    assert {(row[1], row[2]) for row in cells} == {("-1.5", "'@label")}
    assert [row[0] for row in written[True]] == ["=text", *formulas, *numbers]


@pytest.mark.parametrize("arguments", [("--raw",), ("--raw", "--out", "x.jsonl")])
def test_raw_is_for_tables(arguments: tuple[str, ...]) -> None:
    assert refusal("predict", "minilm", "./nowhere", *arguments)["code"] == "no-effect"


@pytest.mark.parametrize("shape", ["tag", "span", "choice"])
def test_other_shapes_predict_files(shape: str, tmp_path: Path) -> None:
    heads = {"tag": "token", "span": "span", "choice": "choice"}
    labels = {"labels": ("O", "B-x")} if shape == "tag" else {}
    bench = bertworks.new(
        "bert-mini", tokenizer=tiny_tokenizer(), heads=[heads[shape]], n_positions=48, **{**SMALL, **labels}
    )
    folder = bench.save(tmp_path / "model")
    inputs = tmp_path / "inputs.txt"
    inputs.write_text({"tag": "Ba de, fi!\n", "span": "ba?\tde fi ba\n", "choice": "ba\tde\tfi\n"}[shape])
    (line,) = map(json.loads, run("predict", folder, inputs, "--json").stdout.splitlines())
    run("predict", folder, inputs, "--out", tmp_path / "predictions.csv")
    (row,) = csv.DictReader((tmp_path / "predictions.csv").open())
    if shape == "tag":
        assert line["predicted_words"] == ["Ba", "de", ",", "fi", "!"]
        assert row["predicted_tags"] == " ".join(line["predicted_tags"])
        assert row["text"] == "Ba de, fi!"
        names = ("type", "text", "start", "end", "confidence")
        cell = [{name: entity[name] for name in names} for entity in line["predicted_entities"]]
        assert json.loads(row["predicted_entities"]) == cell
        process = run("predict", folder, inputs, "--min-confidence", "1")
        assert process.stdout.split("\t")[1].strip() == "? ? ? ? ?"
        assert low_confidence_counts(process.stderr) == (1, 1)
    else:
        field = "predicted_answer" if shape == "span" else "predicted_text"
        assert line[field]
        assert line[field] in "de fi ba" if shape == "span" else line[field] in ("de", "fi")
        assert row[field] == line[field]
        assert row["context"] == ("de fi ba" if shape == "span" else "ba")
        assert (
            line["question"] == row["question"] == "ba?"
            if shape == "span"
            else line["choices"] == json.loads(row["choices"])
        )
        process = run("predict", folder, inputs, "--min-confidence", "1")
        assert process.stdout.startswith("?\t-1" if shape == "span" else "\t\t0.")
        assert low_confidence_counts(process.stderr) == (1, 1)
        (second_prediction,) = map(
            json.loads, run("predict", folder, tmp_path / "predictions.csv", "--json").stdout.splitlines()
        )
        assert second_prediction[f"predicted_{field}"] == line[field], "the output can be an input again"
    if shape != "tag":
        inputs.write_text("one text alone\n")
        assert "inputs.txt, line 1" in run("predict", folder, inputs, code=2).stderr


def test_redirected_predictions_while_the_terminal_shows_progress(
    base_model: Path, table: Path, tmp_path: Path
) -> None:
    """`bertworks predict RUN FILE > answers`, typed into a terminal."""
    run_finetune(base_model, table, tmp_path / "run", steps=2)
    (tmp_path / "texts.txt").write_text("ba de\nku fi\n")
    master, slave = os.openpty()
    with (tmp_path / "answers").open("wb") as output:
        command = [BERTWORKS, "predict", str(tmp_path / "run"), str(tmp_path / "texts.txt")]
        process = subprocess.Popen(command, stdout=output, stderr=slave, env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    terminal = b""
    with suppress(OSError):  # the other side is closed
        while chunk := os.read(master, 4096):
            terminal += chunk
    os.close(master)
    ledger = bertworks.load(tmp_path / "run").predict(["ba de", "ku fi"]).ledger
    assert process.wait() == 0 and str(ledger).encode() in terminal
    assert len((tmp_path / "answers").read_text().splitlines()) == 2


def test_finetune_predict_and_evaluate_from_the_command_line(base_model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    texts = tmp_path / "texts.txt"
    process = run(
        "finetune", "classify", "--train", table, "--model", base_model, "--steps", "60", "--out", out, *QUICK_OPTIONS
    )
    assert re.search(r"^step 60: eval", process.stderr, re.MULTILINE)
    assert "step-0000" not in process.stderr
    assert re.search(r"\b108\b.*\b12\b", process.stderr)
    assert str(Columns(("text",), ("label",))) in process.stderr
    assert re.search(r"\baccuracy\W+100\.0%", process.stdout) and "report.html" in process.stdout
    texts.write_text("de fi ba go\n\nku de fi\n")
    process = run("predict", out, texts)
    assert [line.split("\t")[0] for line in process.stdout.splitlines()] == ["first", "", "second"], (
        "as many as the file has"
    )
    assert str(bertworks.load(out).predict(["de fi ba go", "ku de fi"]).ledger) in process.stderr
    piped = run("predict", out, "-", stdin="de fi ba go\n\u200d\nku de fi\n".encode(), code=2)
    assert "(bad-rows)" in piped.stderr and "line 2" in piped.stderr and not piped.stdout
    piped = run("predict", out, "-", "--skip-bad", stdin="de fi ba go\n\u200d\nku de fi\n".encode())
    no_spaces = "Q" * 20_000
    run("predict", out, "-", "--skip-bad", "--out", tmp_path / "lines.csv", stdin=f"de fi\n{no_spaces}\n".encode())
    assert no_spaces in (tmp_path / "lines.csv").read_text(), "a skipped row is not lost"
    assert piped.stdout == process.stdout
    assert piped.stdout.count("\n") == 3
    assert "line 2" in piped.stderr
    assert refusal("predict", out, "-", stdin=b"\n")["code"] == "no-inputs"
    for text in ("de fi ba go", "de fi " * 100):
        assert run("predict", out, text).stdout == run("predict", out, "-", stdin=text.encode()).stdout
    error = refusal("predict", out, "missing.txt")
    assert error["code"] == "not-found"
    assert f"echo missing.txt | bertworks predict {out} -" in error["what to do"]
    resumed = run("resume", out).stderr
    last = events(out, "remark")[-1]
    assert last["code"] == "already-ended"
    assert resumed.strip() == last["text"], "and nothing else"
    evaluation = json.loads(run("evaluate", out, table, "--json").stdout)
    assert evaluation["metrics"]["accuracy"] == 1.0 and evaluation["ledger"]["texts"] == 120
    eval_table = tmp_path / "other.csv"
    eval_table.write_text("text,label\nba de,first\nku de,third\n")
    error_output = run("evaluate", out, eval_table, code=2).stderr
    assert "(bad-rows)" in error_output
    assert "other.csv, line 3" in error_output
    assert "'third'" in error_output
    with refused("bad-rows", kind=BadRows) as error:
        evaluate(out, eval_table)
    assert [row.code for row in error.value.rows] == ["unknown-label"]  # type: ignore[attr-defined]
    assert "1.0000" in run("evaluate", out, eval_table, "--skip-bad").stdout
    eval_table.write_text("a,b\nba de,first\nku de,second\n")
    assert "1.0000" in run("evaluate", out, eval_table, "--text", "a", "--label", "b").stdout
    (out / "results.json").unlink()
    assert remarks_on_model(out)[0].text in run("predict", out, texts).stderr
    assert refusal("compare", out, out)["code"] == "unfinished-run"
    unknown_key = refusal("finetune", "classify", "--train", table, "--model", base_model, "--set", "lr=1", "--show")
    assert unknown_key["code"] == "unknown-key" and "'optim.lr'" in unknown_key["what to do"]
    missing_out = refusal("finetune", "classify", "--train", "nowhere.csv", "--model", base_model)
    assert missing_out["code"] == "missing-option"
    assert "--out" in missing_out["what to do"], "before anything is read"


def test_classes_that_are_never_predicted_are_named() -> None:
    results = EvalResults({"f1": 0.5}, {"f1": (0.4, 0.6)}, (), confusion=[], example_scores=np.zeros((1, 2)))
    seen = replace(results, classes={"a": ClassCounts(2, 3, 2), "<b>": ClassCounts(0, 3, 0), "c": ClassCounts(0, 0, 0)})
    page = "".join(_classes(seen))
    assert "Never predicted on dev: &lt;b&gt;." in page and "&lt;b&gt;。" in page
    assert "Never" not in "".join(_classes(replace(seen, classes={"a": ClassCounts(2, 3, 2)})))


def test_confusion_of_many_labels_is_a_list_not_a_matrix() -> None:
    labels = tuple(f"class {i}" for i in range(60))
    counts = [[3 * (target == predicted) for predicted in range(60)] for target in range(60)]
    counts[5][7] = 2
    examples = [Example((str(i),), labels[i]) for i in range(60)]
    for n_labels, is_matrix in ((60, False), (30, True)):
        example_scores = np.array(
            [
                [target, predicted]
                for target in range(n_labels)
                for predicted in range(n_labels)
                for _ in range(counts[target][predicted])
            ],
            float,
        )
        table = [row[:n_labels] for row in counts[:n_labels]]
        results = EvalResults(
            {"accuracy": 0.9},
            {"accuracy": (0.8, 1.0)},
            labels[:n_labels],
            confusion=table,
            example_scores=example_scores,
        )
        page = "".join(_confusion(results))
        assert ('class="grid confusion"' in page) == is_matrix
        assert ('class="confused"' in page) != is_matrix
        assert page.count("<table") == 1 and ">2</td>" in page
        assert "class 5" in page and "class 7" in page and ("class 9" in page) == is_matrix
    model = small_task("bert-mini", "classify").model
    windows = sliding_windows()
    for n_labels, is_matrix in ((60, False), (30, True)):
        task = Classify(model, TaskConfig(shape="classify", labels=labels[:n_labels]))
        features = task.features(examples[:n_labels], windows)
        assert set(count_tokens(task, features, examples[:n_labels])) == {"", *(labels[:n_labels] if is_matrix else ())}
