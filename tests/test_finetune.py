"""Fine-tuning runs: from a file to a model that says the same elsewhere, through pauses, with one trainer for all."""

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
from bertworks.measure.metrics import entities
from bertworks.model.folder import config_values
from bertworks.page.html import escape
from bertworks.reports.finetune import SPLIT_TITLES_ZH, _confusion
from bertworks.runs import finetune as runs_of_tasks
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
from bertworks.runs.results import remarks_if_unfinished
from bertworks.runs.seeds import SeedPruner, finetune_seeds
from bertworks.runs.seeds import resume as resume_seeds
from bertworks.runs.settings import FINETUNE, is_settable, resolve_finetune, setting_keys
from bertworks.tasks.classify import Classify, ClassPrediction
from bertworks.tasks.evaluation import EvalResults, calibrate_and_score, count_tokens
from bertworks.tasks.features import ShuffledExamples
from bertworks.tasks.source import Source, describe_task, find_source, read_data
from bertworks.tasks.span import SpanTask
from bertworks.tasks.tag import Tag, TagPrediction, entity_of
from bertworks.train.checkpoint import State
from bertworks.train.events import Event, Finished
from bertworks.train.policy import EvaluationPolicy
from bertworks.train.runtime import own_process
from commands import refusal, run, run_json
from refusals import figures, refused
from test_cli import BERTWORKS
from test_tasks import SMALL, WORDS, fresh, reader, sizes, small
from test_tasks import examples as made_examples
from test_trainer import free_port, weights
from texts import tiny_tokenizer
from training import digest, events

QUICK = ["train.evaluations=4", "optim.lr=3e-3", "train.batch_size=16", "train.checkpoint_every=2"]
QUICK_OPTIONS = [part for setting in ("train.threads=1", *QUICK) for part in ("--set", setting)]  # of a command


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model to start from: random, but a folder like any other."""
    bench = bertworks.new(
        "bert-mini", tokenizer=tiny_tokenizer(), n_positions=48, init_range=0.1, seed=3, **{**SMALL, "dropout": 0.1}
    )
    return bench.save(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Which of two words comes first."""
    draw = random.Random(5)
    rows = []
    for at in range(120):
        words = draw.choices([word for word in WORDS if word not in ("ba", "ku")], k=6)
        words.insert(draw.randrange(6), ["ba", "ku"][at % 2])
        rows.append(f"{' '.join(words)},{['first', 'second'][at % 2]}")
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def prepared(start: Path, table: Path, *settings: str, **limit: Any) -> tuple[TaskData, Source, FinetuneConfig]:
    source = find_source("classify", train=str(table))
    data = read_data(source)
    config = resolve_finetune(
        bertworks.load(start), describe_task(data, source), settings=[*QUICK, *settings], options=limit or {"steps": 8}
    )
    return data, source, config


def unsure(said: str) -> tuple[int, ...]:
    """Of how many answers, and of how many texts, a command says that they were less sure than 1.0."""
    (line,) = (line for line in said.splitlines() if re.search(r"\b1\.0\b", line))
    return tuple(map(int, re.findall(r"\b\d+\b(?!\.)", line.replace("1.0", ""))))


def tune(start: Path, table: Path, out: Path, *settings: str, **limit: Any) -> tuple[TaskData, Source]:
    data, source, config = prepared(start, table, *settings, **limit)
    finetune(FinetuneJob(config, data, source, str(start)), out, ProcessContext.library())
    return data, source


def test_a_run_learns_and_its_model_answers(start: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    data, _ = tune(start, table, out, "train.evaluations=20", steps=60)
    looks = [event["metrics"]["accuracy"] for event in events(out, "eval")]
    assert looks[-1] == 1.0 and looks[0] < 0.9
    bench = bertworks.load(out)
    said = bench.predict([example.texts[0] for example in data.dev])
    assert [one.label for one in said] == [example.answer for example in data.dev]
    assert all(abs(sum(one.scores.values()) - 1) < 1e-6 for one in said) and said.ledger.texts == len(data.dev)
    assert bench.lineage[-2] == "finetune classify" and bench.config.heads.labels == ("first", "second")
    results = json.loads((out / "results.json").read_text())
    assert results["metrics"]["accuracy"] == 1.0 and results["artifact"]["temperature"] == bench.artifact.temperature  # type: ignore[union-attr]
    page = (out / "report.html").read_text()
    assert (
        page.count(f"{out.name}</span>") == 2 and 'lang="en"' in page and 'lang="zh"' in page and "<script" not in page
    )


def test_answers_leave_a_model_as_it_was(start: Path, table: Path, tmp_path: Path) -> None:
    """A task shares its model with whoever else uses it: no dropout may be left on."""
    tune(start, table, tmp_path / "run", steps=2)
    bench = bertworks.load(tmp_path / "run")
    before = bench.encode(["a text of some words"])
    bench.predict(["a text of some words"])
    assert not bench.model.training and np.array_equal(bench.encode(["a text of some words"]), before)


def test_equal_looks_keep_the_last_and_do_not_restart_patience() -> None:
    looks, state = EvaluationPolicy(evaluate=dict, save_model=lambda: None, monitor="error", patience=2), State()
    for step, error in ((1, 0.5), (2, 0.2), (3, 0.2), (4, 0.2)):
        assert looks.stop_reason(state) is None
        state = looks.update(replace(state, step=step), {"error": error})
    assert (state.best, state.best_step, state.evaluations_without_improvement) == (0.2, 4, 2) and looks.stop_reason(
        state
    ) is not None


def test_what_was_found_is_in_the_report(start: Path, tmp_path: Path) -> None:
    rows = [f"{'ba de' if at % 2 else 'ku go'} {'fi ' * (at % 5)},{'ab'[at % 2]}" for at in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows, ",a"]) + "\n")
    source = find_source("classify", train=str(tmp_path / "rows.csv"), skip_bad=True)
    data = read_data(source)
    config = resolve_finetune(bertworks.load(start), describe_task(data, source), settings=QUICK, options={"steps": 2})
    finetune(FinetuneJob(config, data, source, str(start)), tmp_path / "run", ProcessContext.library())
    page = (tmp_path / "run/report.html").read_text()
    assert {"bad-rows", "labels"} <= {remark.code for remark in data.remarks}
    assert all(escape(remark) in page for remark in data.remarks)
    assert "rows.csv, line 42" in page
    assert all(f"{label} {sum(example.answer == label for example in data.train)}" in page for label in "ab")


def test_what_the_vocabulary_does_not_know_is_said(start: Path, table: Path, tmp_path: Path) -> None:
    tune(start, table, tmp_path / "run", steps=2)
    ledger = bertworks.load(tmp_path / "run").predict(["ba de fi", "ba 漢 字"]).ledger
    assert ledger.unknown == 2 and ledger.has_many_unknown and "33.3%" in str(ledger)
    few = bertworks.Ledger(texts=1, tokens=1000, unknown=3)
    assert not few.has_many_unknown and "3" not in str(few)


def test_others_cut_no_later_than_the_model_can_read(start: Path) -> None:
    import transformers

    folder = bertworks.load(start).save(start.parent / "again")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 512}))
    bertworks.load(folder).save(start.parent / "cut")
    assert transformers.AutoTokenizer.from_pretrained(start.parent / "cut").model_max_length == 48


def test_long_texts_are_learned_in_portions() -> None:
    """A step is cut by its own tokens, not by those of a usual one; examples stay whole."""
    order = ShuffledExamples([SimpleNamespace(length=length) for length in (10, 10, 10, 10, 400, 400, 400, 10)], 4, 0)  # type: ignore[list-item]
    epoch = order.epoch(0)
    epoch.gather = lambda members: members  # type: ignore[assignment,method-assign]
    for batch in range(2):
        portions = [portion.batch for portion in RankShard(micro_tokens=400)(epoch, batch)]
        assert np.array_equal(np.concatenate(portions), epoch.examples_of(batch))
        assert max(order.lengths[members].sum() for members in portions) <= 440
    for world in (1, 2, 3):
        shares = [RankShard(rank, world, micro_tokens=10)(epoch, 0) for rank in range(world)]
        assert all(portion.is_counted for portions in shares for portion in portions), (
            "an example more than once is work for nothing"
        )
        assert len({len(portions) for portions in shares}) == 1, (
            "as many for each process: they exchange their gradients"
        )


def test_long_texts_are_read_in_windows(start: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    tune(start, table, out, "data.max_length=8", steps=60)
    of_train = {"texts": 108, "limit": 6, "windowed_texts": 108, "cut_texts": 0}
    counted = json.loads((out / "results.json").read_text())["ledgers"]["train"][""]
    assert counted | of_train == counted
    said = [event["text"] for event in events(out, "remark") if event["code"] == "ledger"]
    assert f"train: {bertworks.Ledger(**counted)}" in said and len(said) == 2, "of train and of dev"
    ledger = bertworks.Ledger()
    long = " ".join(["de", "fi", "go"] * 60)
    bench = bertworks.load(out)
    bench.predict([long], ledger=ledger)
    assert ledger.windowed_texts == 1 and ledger.windowed_tokens == 180 and not ledger.cut_tokens
    bench.predict([long], on_long="truncate", ledger=ledger)
    assert ledger.cut_texts == 1 and ledger.cut_tokens == 180 - 6


def test_the_same_seed_gives_the_same_bits_and_another_does_not(start: Path, table: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        tune(start, table, tmp_path / name, f"train.seed={seed}")
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")


def test_resume_in_the_middle_gives_the_same_bits(
    start: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    monkeypatch.chdir(table.parent)
    tune(start, Path(table.name), whole, "train.keep_checkpoints=9")
    shutil.copytree(whole, stopped)
    for step in (6, 8):
        shutil.rmtree(stopped / f"checkpoints/step-{step:08}")
    monkeypatch.chdir(tmp_path)  # the files are found from anywhere
    resume(stopped, ProcessContext.library())
    assert digest(stopped) == digest(whole)
    assert (stopped / "model/model.safetensors").read_bytes() == (whole / "model/model.safetensors").read_bytes()
    results = [json.loads((out / "results.json").read_text()) for out in (whole, stopped)]
    for error in (error for result in results for error in result["errors"]):
        error["place"] = Path(error["place"]).name  # as it was named, and from the root
    assert results[0] == results[1]


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_signal_breaks_a_look_off_and_resume_makes_up_for_it(
    number: int, start: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look, one in the middle, and the last."""
    looks, look = 0, DevEvaluation.__call__

    def asked_to_stop(self: DevEvaluation) -> dict[str, float]:
        nonlocal looks
        if looks == number:
            os.kill(os.getpid(), signal.SIGTERM)
        looks += 1
        return look(self)

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    tune(start, table, whole)
    with monkeypatch.context() as patch:
        patch.setattr(DevEvaluation, "__call__", asked_to_stop)
        data, source, config = prepared(start, table, "train.threads=1")
        with own_process(time.monotonic()) as runtime:
            outcome = finetune(FinetuneJob(config, data, source, str(start)), stopped, ProcessContext(runtime))
    assert outcome.exit_code == 143 and looks == number + 1
    assert [event["step"] for event in events(stopped, "eval")] == [2, 4, 6, 8][:number]
    assert not (stopped / "results.json").exists()
    resume(stopped, ProcessContext.library())
    assert digest(stopped) == digest(whole)
    looks_of = [[(event["step"], event["metrics"]) for event in events(out, "eval")] for out in (stopped, whole)]
    assert looks_of[0] == looks_of[1] and len(looks_of[0]) == 4
    assert (stopped / "results.json").read_text() == (whole / "results.json").read_text()


def test_a_model_that_could_not_be_saved_is_not_the_best(
    start: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at the first look that has no error."""
    keep, full = runs_of_tasks.save_model, []

    def save(task: Any, artifact: Any, start: Any, lineage: Any, out: Path) -> None:
        looks = events(out, "eval")
        if looks and looks[-1]["metrics"]["accuracy"] == 1.0 and not full:
            full.append(looks[-1]["step"])
            raise SaveFailed("no space left")
        keep(task, artifact, start, lineage, out)

    monkeypatch.setattr(runs_of_tasks, "save_model", save)
    tune(start, table, tmp_path / "run", "train.evaluations=20", steps=60)
    assert len(full) == 1 and [event["step"] for event in events(tmp_path / "run", "save failed")] == full
    assert json.loads((tmp_path / "run/results.json").read_text())["metrics"]["accuracy"] == 1.0, (
        "the next one that is as good"
    )


def test_a_last_save_that_failed_is_made_up_for(
    start: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at the end, and has room again when the run goes on."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    tune(start, table, whole, "train.evaluations=1")
    keep = runs_of_tasks.save_model

    def save(task: Any, artifact: Any, start: Any, lineage: Any, out: Path) -> None:
        if events(out, "eval"):
            raise SaveFailed("no space left")
        keep(task, artifact, start, lineage, out)

    with monkeypatch.context() as patch:
        patch.setattr(runs_of_tasks, "save_model", save)
        with pytest.raises(SaveFailed):
            tune(start, table, out, "train.evaluations=1")
    resume(out, ProcessContext.library())
    assert (out / "model/model.safetensors").read_bytes() == (whole / "model/model.safetensors").read_bytes()


def test_what_is_said_of_runs_that_are_not_at_their_end(start: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    tune(start, table, out, steps=4)
    (out / "results.json").unlink()
    assert [remark.code for remark in remarks_if_unfinished(out)] == ["unfinished-run"]
    lines = (out / "metrics.jsonl").read_text().splitlines()
    (out / "metrics.jsonl").write_text("\n".join(line for line in lines if json.loads(line)["kind"] != "eval") + "\n")
    assert [remark.code for remark in remarks_if_unfinished(out)] == ["unfinished-run-not-evaluated"]
    shutil.rmtree(out / "model")
    with refused("no-model-yet", place=str(out)):
        bertworks.load(out)


def test_what_made_a_model(start: Path, table: Path, tmp_path: Path) -> None:
    """Each training once, in order, whether it was stopped in between or not."""
    tune(start, table, tmp_path / "one", steps=4)
    tune(tmp_path / "one/model", table, tmp_path / "two", steps=4)
    for step in sorted((tmp_path / "two/checkpoints").iterdir())[1:]:
        shutil.rmtree(step)
    resume(tmp_path / "two", ProcessContext.library())
    own = json.loads((tmp_path / "two/model/bertworks.json").read_text())["lineage"]
    loaded = [f"loaded {start}", f"loaded {tmp_path / 'one/model'}"]
    assert [*own[-4:]] == [loaded[0], "finetune classify", loaded[1], "finetune classify"]


def test_several_classes_from_the_command_line(start: Path, tmp_path: Path) -> None:
    rows = [
        f"{'ba' if at % 2 else 'de'} {'ku' if at % 3 else 'go'} {'fi ' * (at % 4)},{at % 2},{int(at % 3 > 0)}"
        for at in range(60)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["text,odd,even,extra", *(f"{row},1" for row in rows)]) + "\n")
    labels = ["--label", "odd", "--label", "even"]
    call = [
        "finetune",
        "multilabel",
        "--train",
        tmp_path / "rows.csv",
        "--model",
        start,
        "--steps",
        "60",
        "--out",
        tmp_path / "run",
    ]
    run(*call, *labels, *QUICK_OPTIONS)
    done = run("evaluate", tmp_path / "run", tmp_path / "rows.csv", *labels, "--json")
    assert str(Columns(("text",), ("odd", "even"))) in done.stderr and "f1" in json.loads(done.stdout)["metrics"]
    ledgers = json.loads((tmp_path / "run/results.json").read_text())["ledgers"]["train"]
    assert {"", "odd", "even"} == set(ledgers) and ledgers[""]["texts"] > ledgers["odd"]["texts"] > 0
    (tmp_path / "given.txt").write_text("ba ku\n")
    said = json.loads(run("predict", tmp_path / "run", tmp_path / "given.txt", "--json").stdout)
    assert said["predicted_labels"] == ["even", "odd"] and not said["predicted_undecided"]
    done = run("predict", tmp_path / "run", tmp_path / "given.txt", "--min-confidence", "1")
    assert done.stdout == "\teven, odd\n" and unsure(done.stderr) == (1, 1)


def test_no_confidence_beyond_its_range(start: Path, table: Path, tmp_path: Path) -> None:
    tune(start, table, tmp_path / "run", steps=2)
    for least in (-0.1, 1.1, float("nan")):
        with refused("out-of-range", kind=BadConfig) as error:
            bertworks.load(tmp_path / "run").predict(["ba"], min_confidence=least)
        assert error.value.fields == ["min_confidence"]  # type: ignore[attr-defined]


def test_a_number_has_no_confidence() -> None:
    bench = bertworks.new(
        "bert-mini", tokenizer=tiny_tokenizer(), heads=["sequence"], n_positions=48, **{**SMALL, "labels": ("value",)}
    )
    with refused("no-confidence", kind=Unsupported):
        bench.predict(["ba de"], min_confidence=0.5)


def test_other_examples_are_refused(start: Path, table: Path, tmp_path: Path) -> None:
    own = tmp_path / "rows.csv"
    own.write_text(table.read_text())
    tune(start, own, tmp_path / "run")
    own.write_text(table.read_text().replace("ba", "ku", 1))
    with refused("examples-changed", place=str(tmp_path / "run"), kind=BadText):
        resume(tmp_path / "run", ProcessContext.library())


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["bert-mini", "xlnet-mini"])
def test_two_processes_are_one(preset: str, table: Path, tmp_path: Path) -> None:
    """torchrun with two processes against one, in float64 without dropout."""
    bench = bertworks.new(
        preset, tokenizer=tiny_tokenizer(), **{**sizes(preset), "head_dropout": 0.0, "ffn_dropout": 0.0}
    )
    start, script = bench.save(tmp_path / "start"), str(Path(__file__).with_name("in_float64.py"))
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
        call = [
            *command,
            script,
            "finetune",
            "classify",
            "--train",
            str(table),
            "--model",
            str(start),
            "--out",
            str(tmp_path / name),
        ]
        options = [*QUICK_OPTIONS, "--set", "train.keep_checkpoints=9"]
        done = subprocess.run([*call, "--steps", "6", *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    one, two, before = weights(tmp_path / "one", 6), weights(tmp_path / "two", 6), weights(tmp_path / "one", 0)
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-9
    assert max(float((one[name] - before[name]).abs().max()) for name in one) > 1e-3
    said = [json.loads((tmp_path / name / "results.json").read_text())["example_scores"] for name in ("one", "two")]
    assert said[0] == said[1]


def test_it_stops_when_nothing_gets_better(start: Path, table: Path, tmp_path: Path) -> None:
    tune(start, table, tmp_path / "run", "train.patience=2", "train.evaluations=20", "optim.lr=1e-9", steps=40)
    assert events(tmp_path / "run", "end")[0]["step"] < 10
    (said,) = (event["text"] for event in events(tmp_path / "run", "remark") if event["code"] == "early-stopping")
    assert "2" in said
    resume(tmp_path / "run", ProcessContext.library())
    assert events(tmp_path / "run", "end")[-1]["step"] < 10, "a run that has ended does not go on"


def test_lower_layers_learn_more_slowly(start: Path, table: Path) -> None:
    from bertworks.train.optim import make_optimizer, set_learning_rate

    data, _, config = prepared(start, table, "optim.layer_decay=0.5")
    task = build_task(config, bertworks.load(start), data.train)
    optimiser = make_optimizer(task, config.optim)
    set_learning_rate(optimiser, 1.0)
    rates = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    named = {name: rates[id(parameter)] for name, parameter in task.named_parameters()}
    assert named["model.heads.sequence.out.weight"] == 1.0
    assert named["model.encoder.ffns.1.down.weight"] == 0.5 and named["model.encoder.attentions.0.attn.q.bias"] == 0.25
    assert named["model.encoder.embed.tokens.weight"] == 0.125


def test_frozen_layers_stay_and_renewed_ones_are_new(start: Path, table: Path, tmp_path: Path) -> None:
    tune(start, table, tmp_path / "run", "train.freeze=1", "train.reinit=1", steps=60)
    before, after = (bertworks.load(path).model.state_dict() for path in (start, tmp_path / "run"))
    same = {name for name in before if name in after and torch.equal(before[name], after[name])}
    assert {"encoder.embed.tokens.weight", "encoder.ffns.0.down.weight", "encoder.attentions.0.attn.q.weight"} <= same
    moved = float((before["encoder.ffns.1.down.weight"] - after["encoder.ffns.1.down.weight"]).std())
    assert moved > 0.1, "two draws apart, not a few steps"


def test_shared_layers_are_frozen_or_renewed_together(table: Path) -> None:
    source = find_source("classify", train=str(table))
    task = describe_task(read_data(source), source)
    albert = bertworks.new("albert-mini", tokenizer=tiny_tokenizer(), n_positions=48, **SMALL)
    for setting in ("train.freeze=1", "train.reinit=1"):
        with refused("bad-config", kind=BadConfig) as error:
            resolve_finetune(albert, task, settings=[setting], options={"steps": 1})
        assert error.value.fields == [setting.partition("=")[0], "model.sharing"]  # type: ignore[attr-defined]
    frozen = build_task(
        resolve_finetune(albert, task, settings=["train.freeze=2"], options={"steps": 1}),
        albert,
        read_data(source).train,
    )
    assert not any(parameter.requires_grad for parameter in frozen.model.encoder.parameters())


def test_renewed_layers_start_as_new_ones_do(table: Path) -> None:
    source = find_source("classify", train=str(table))
    gpt = bertworks.new("gpt-mini", tokenizer=tiny_tokenizer(), n_positions=48, **SMALL)
    config = resolve_finetune(
        gpt, describe_task(read_data(source), source), settings=["train.reinit=1"], options={"steps": 1}
    )
    old, new = (
        model.encoder.ffns[-1].down.weight.std().item() for model in (gpt.model, build_task(config, gpt, []).model)
    )  # type: ignore[union-attr]
    assert new == pytest.approx(old, rel=0.1), "narrower before a norm"


@pytest.mark.parametrize("shape", ["span", "choice"])
def test_what_has_no_classes_does_not_keep_those_of_before(shape: Any) -> None:
    judge = bertworks.new(
        "bert-mini", tokenizer=tiny_tokenizer(), heads=["sequence"], labels=("a", "b", "c"), n_positions=48, **SMALL
    )
    config = resolve_finetune(
        judge, TaskConfig(shape=shape, metric="f1" if shape == "span" else "accuracy"), options={"steps": 1}
    )
    task = build_task(config, judge, [])
    assert config_values(task.model, {})["model_type"] == "bert", "so that it opens in transformers"


def test_attention_drops_nothing_unless_asked(start: Path, table: Path) -> None:
    for settings, rate, own in (
        ([], 0.0, 0.0),
        (["train.attention_dropout=0.3"], 0.3, 0.0),
        (["model.attention_dropout=0.1"], 0.1, 0.1),
        (["model.attention_dropout=0.1", "train.attention_dropout=0.3"], 0.3, 0.1),
    ):
        data, _, config = prepared(start, table, *settings)
        model = build_task(config, bertworks.load(start), data.train).model
        assert {attention.attn.drop.p for attention in model.encoder.attentions} == {rate}  # type: ignore[union-attr]
        assert model.config.encoder.attention_dropout == own, "what is saved is the model's own"


def test_classes_weigh_the_same_if_asked(start: Path, table: Path) -> None:
    source = find_source("classify", train=str(table))
    data = read_data(source)
    data.train = [example for example in data.train if example.answer == "first"][:10] + [
        e for e in data.train if e.answer == "second"
    ][:40]
    config = resolve_finetune(
        bertworks.load(start),
        describe_task(data, source),
        settings=["task.class_weights=balanced"],
        options={"steps": 1},
    )
    assert build_task(config, bertworks.load(start), data.train).weights.tolist() == pytest.approx([2.5, 0.625])  # type: ignore[union-attr, operator]


def test_a_foreign_folder_predicts_too(start: Path, tmp_path: Path) -> None:
    bench = bertworks.load(start)
    with refused("not-fine-tuned", kind=Unsupported):
        bench.predict(["ba de"])
    tagger = bertworks.new(
        "bert-tiny", tokenizer=tiny_tokenizer(), heads=["token"], labels=("O", "B-x"), n_positions=48
    )
    folder = tagger.save(tmp_path / "tagger")
    (folder / "bertworks.json").unlink()
    (said,) = bertworks.load(folder).predict(["Ba de, fi!"])
    assert said.words == ["Ba", "de", ",", "fi", "!"] and len(said.tags) == 5
    judge = bertworks.new(
        "bert-tiny", tokenizer=tiny_tokenizer(), heads=["sequence"], labels=("a", "b"), n_positions=48
    )
    folder = judge.save(tmp_path / "judge")
    (folder / "bertworks.json").unlink()
    one, two = bertworks.load(folder).predict(["ba", ("ba", "de")])  # its files do not say which it takes
    assert one.scores != two.scores
    (tmp_path / "lines.txt").write_text("ba\nba\tde\n")
    assert len(run("predict", folder, tmp_path / "lines.txt").stdout.splitlines()) == 2


def test_one_text_is_not_a_list_of_texts(start: Path) -> None:
    with refused("not-a-list", kind=BadText):
        bertworks.load(start).predict("ba de")


def test_a_table_is_not_a_list_of_texts(start: Path) -> None:
    for given in ({"text": "ba de"}, SimpleNamespace(columns=["text"]), None, 7):
        with refused("not-a-list", kind=BadText) as error:
            bertworks.load(start).predict(given)  # type: ignore[arg-type]
        assert type(given).__name__ in error.value.cause


def test_by_the_clock_looks_read_a_part_of_a_large_dev(
    start: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = small("bert-mini", "classify").features(made_examples("classify", 64), reader())
    some = token_subset(dev, sum(one.length for one in dev) // 4)
    assert (
        token_subset(dev, 10**6) == list(range(64))
        and 10 < len(some) < 20
        and some == token_subset(dev, sum(one.length for one in dev) // 4)
    )
    monkeypatch.setattr(runs_of_tasks, "EVALUATION_TOKENS", 50)
    seen: list[int] = []
    monkeypatch.setattr(DevEvaluation, "_progress", lambda self, done, total: seen.append(total))
    data, _ = tune(start, table, tmp_path / "run", budget=3.0)
    (said,) = (event for event in events(tmp_path / "run", "remark") if event["code"] == "dev-sampled")
    assert (
        len(set(seen)) == 1
        and max(seen) < len(data.dev)
        and figures(said["text"]) == {str(seen[0]), str(len(data.dev))}
    )
    assert len(json.loads((tmp_path / "run/results.json").read_text())["example_scores"]) == len(data.dev), (
        "the end reads all"
    )


def test_looks_are_judged_as_the_end_is() -> None:
    """Where a model may be silent, by the F1 of the best threshold, on the way as at the end."""
    task = fresh("bert-mini", "span")
    assert isinstance(task, SpanTask)
    task.no_answer = 0.0
    some = [
        replace(example, answer=example.answer if at % 2 else ()) for at, example in enumerate(made_examples("span"))
    ]
    features = task.features(some, reader())
    seen = DevEvaluation(task, features, some, "f1")()
    results, _ = calibrate_and_score(task, features, some, TaskArtifact(task=TaskConfig(shape="span", no_answer=True)))
    assert seen["f1"] == results.metrics["f1"] >= 0.5, "silence alone is right for half of them"


def test_a_head_goes_on_only_where_its_answers_mean_the_same(tmp_path: Path) -> None:
    """Numbers are learned in units of their spread; a head that is finished speaks in the user's."""
    draw = random.Random(1)
    rows = [(" ".join(draw.choices(WORDS, k=6)), 100 + at % 20) for at in range(60)]
    numbers = tmp_path / "n.csv"
    numbers.write_text("text,score\n" + "".join(f"{text},{score}\n" for text, score in rows))
    bench = bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), n_positions=48, **SMALL)
    for at, model in enumerate([bench.save(tmp_path / "start"), tmp_path / "run-0"]):
        source = find_source("regress", train=str(numbers))
        data = read_data(source)
        config = resolve_finetune(
            bertworks.load(model), describe_task(data, source), settings=QUICK, options={"steps": 2}
        )
        finetune(FinetuneJob(config, data, source, str(model)), tmp_path / f"run-{at}", ProcessContext.library())
        assert all(
            80 < said.value < 140
            for said in bertworks.load(tmp_path / f"run-{at}").predict([text for text, _ in rows[:8]])
        )

    def head(labels: tuple[str, ...]) -> torch.Tensor:
        config = resolve_finetune(judge, TaskConfig(shape="classify", labels=labels), options={"steps": 1})
        return build_task(config, judge, []).model.state_dict()["heads.sequence.out.weight"]

    judge = bertworks.new(
        "bert-mini", tokenizer=tiny_tokenizer(), heads=["sequence"], labels=("a", "b"), seed=5, n_positions=48, **SMALL
    )
    old = judge.model.state_dict()["heads.sequence.out.weight"]
    assert head(("a", "b")).equal(old) and not head(("b", "a")).equal(old) and not head(("c", "d")).equal(old)


def test_every_key_is_explained() -> None:
    found = setting_keys(FINETUNE)
    shown = run("finetune", "--help").stdout
    assert all(found.values()) and all((f" {key} " in shown) == is_settable(key) for key in found)
    assert is_settable("model.dropout") and not is_settable("model.n_layers") and not is_settable("task.shape")


@pytest.mark.parametrize(
    ("settings", "code", "fields", "said"),
    [
        (["data.max_length=999"], "bad-config", ["data.max_length", "model.n_positions"], "48"),
        (["train.freeze=3"], "bad-config", ["train.freeze", "train.reinit"], "2"),
        (["model.n_layers=3"], "cannot-change", ["model.n_layers"], "n_positions"),
        (["optim.lt=1"], "unknown-key", ["optim.lt"], "optim.lr"),
        (["train.steps=5"], "given-twice", ["train.steps"], ""),
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
def test_wrong_settings_are_named(
    settings: list[str], code: str, fields: list[str], said: str, start: Path, table: Path
) -> None:
    source = find_source("classify", train=str(table))
    with refused(code, kind=BadConfig) as error:
        resolve_finetune(
            bertworks.load(start),
            describe_task(read_data(source), source),
            settings=settings,
            options={"steps": 1},
            sizes=(9, 9),
        )
    assert error.value.fields == fields and said in str(error.value)  # type: ignore[attr-defined]


def test_transitions_may_be_turned_off_but_not_made_up(start: Path) -> None:
    usual = (("O", "B", False), ("B", "O", False))
    task = TaskConfig(shape="tag", labels=("B-x", "I-x", "O"), metric="entity_f1", transitions=usual)

    def settled(setting: str) -> FinetuneConfig:
        return resolve_finetune(bertworks.load(start), task, settings=[setting], options={"steps": 1})

    assert settled("task.transitions=[]").task.transitions == () and len(settled("train.seed=1").task.transitions) == 2
    with refused("follows-from-examples", kind=BadConfig) as error:
        settled('task.transitions=[["B","I",true]]')
    assert error.value.fields == ["task.transitions"]  # type: ignore[attr-defined]


def test_more_positions_are_for_longer_windows(start: Path, table: Path) -> None:
    assert prepared(start, table)[2].data.max_length == 48
    assert prepared(start, table, "model.n_positions=1024")[2].data.max_length == 1024
    endless = bertworks.new("xlnet-mini", tokenizer=tiny_tokenizer(), **SMALL)
    config = resolve_finetune(
        endless,
        TaskConfig(shape="classify", labels=("a", "b")),
        settings=["model.n_positions=null"],
        options={"steps": 1},
    )
    assert config.data.max_length == 512


@pytest.mark.parametrize(
    ("sizes", "limit", "settings", "looks"),
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
def test_looks_at_a_large_dev_are_few(
    sizes: Any, limit: dict[str, float], settings: list[str], looks: int, start: Path
) -> None:
    config = resolve_finetune(
        bertworks.load(start),
        TaskConfig(shape="classify", labels=("a", "b")),
        settings=settings,
        options=limit,
        sizes=sizes,
    )
    assert config.train.evaluations == looks


def test_a_step_has_as_many_texts_whatever_the_shape(start: Path) -> None:
    def size(shape: Any, *settings: str) -> int:
        return resolve_finetune(
            bertworks.load(start), TaskConfig(shape=shape), settings=settings, options={"steps": 1}
        ).train.batch_size

    assert (size("classify"), size("choice"), size("choice", "train.batch_size=5")) == (32, 8, 5)


def test_labels_may_change_their_order(start: Path, table: Path, tmp_path: Path) -> None:
    tune(start, table, tmp_path / "run", 'task.labels=["second", "first"]', steps=60)
    assert json.loads((tmp_path / "run/model/config.json").read_text())["id2label"] == {"0": "second", "1": "first"}
    bench = bertworks.load(tmp_path / "run")
    assert bench.config.heads.labels == bench.artifact.task.labels == ("second", "first")  # type: ignore[union-attr]
    assert [said.label for said in bench.predict(["de ba", "de ku"])] == ["first", "second"]


def test_seeds_that_never_began_leave_nothing(start: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.csv"
    long.write_text("text,label\n" + "".join(f"{'ba ' * 60},{at % 2}\n" for at in range(40)))
    options = [
        "--train",
        long,
        "--model",
        start,
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


def test_several_seeds(start: Path, table: Path, tmp_path: Path) -> None:
    """Each is a run of its own, the best one's model is the run's; a stop in the middle changes nothing."""
    out, other = tmp_path / "run", tmp_path / "other"
    data, source, config = prepared(start, table, steps=24)
    seen: list[Event] = []
    finetune_seeds(FinetuneJob(config, data, source, str(start)), out, ProcessContext.library(seen.append), 3)
    assert [isinstance(event, Finished) for event in seen].count(True) == 1 and isinstance(seen[-1], Finished), (
        "the end of a seed is not the end"
    )
    results = json.loads((out / "results.json").read_text())
    over = results["seeds"]
    single = {seed: json.loads((out / f"seed-{seed}/results.json").read_text()) for seed in range(3)}
    assert over["metrics"] == {str(seed): one["metrics"] for seed, one in single.items() if not one["pruned"]}
    values = [one["metrics"]["accuracy"] for one in single.values() if not one["pruned"]]
    assert (
        over["mean"]["accuracy"] == pytest.approx(sum(values) / len(values))
        and max(values) == results["metrics"]["accuracy"]
    )
    low, high = over["intervals"]["accuracy"]
    assert low <= over["mean"]["accuracy"] <= high and over["std"]["accuracy"] >= 0
    best = out / f"seed-{over['best']}/model/model.safetensors"
    assert (out / "model/model.safetensors").read_bytes() == best.read_bytes()
    page = (out / "report.html").read_text()
    assert all(page.count(f"</span> {seed}</th>") == 1 for seed in range(3)), "a column for each seed"
    assert bertworks.load(out).predict(["ba de fi"])[0].label in ("first", "second")
    assert len(evaluate(out, table).results.example_scores) == 120
    shutil.copytree(out, other)
    shutil.rmtree(other / "seed-2")
    for name in ("results.json", "seed-1/results.json"):
        (other / name).unlink()
    for step in sorted((other / "seed-1/checkpoints").iterdir())[1:]:
        shutil.rmtree(step)  # as if it had been killed in the middle
    resume_seeds(other, ProcessContext.library())
    again = json.loads((other / "results.json").read_text())
    assert again == results


def test_seeds_are_judged_without_copies_too(start: Path, table: Path, tmp_path: Path) -> None:
    lines = table.read_text().splitlines()
    (tmp_path / "dev.csv").write_text("\n".join([*lines[:11], "go de ba fi,first", "la ku fi,second"]) + "\n")
    source = find_source("classify", train=str(table), dev=str(tmp_path / "dev.csv"))
    data = read_data(source)
    config = resolve_finetune(bertworks.load(start), describe_task(data, source), settings=QUICK, options={"steps": 4})
    seen: list[Event] = []
    finetune_seeds(
        FinetuneJob(config, data, source, str(start)), tmp_path / "run", ProcessContext.library(seen.append), 2
    )
    over = json.loads((tmp_path / "run/results.json").read_text())["seeds"]["extra_eval"][WITHOUT_COPIES]
    mean = sum(one["accuracy"] for one in over.values()) / 2
    end = seen[-1]
    assert (
        isinstance(end, Finished)
        and end.extra_eval[WITHOUT_COPIES]["accuracy"] == mean
        and mean in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    assert SPLIT_TITLES_ZH[WITHOUT_COPIES] in (tmp_path / "run/report.html").read_text()


def test_a_seed_that_learns_nothing_is_given_up(start: Path, table: Path, tmp_path: Path) -> None:
    """The third seed's rate is broken after the others have run: the same run, but for the rate."""
    out = tmp_path / "run"
    data, source, config = prepared(start, table, "train.evaluations=10", steps=40)
    finetune_seeds(FinetuneJob(config, data, source, str(start)), out, ProcessContext.library(), 3)
    behind = SeedPruner.from_runs([out / "seed-0", out / "seed-1"], "accuracy")
    assert not behind(0.4, 1.0), "too early to say"
    assert behind(0.9, 0.9) and not behind(0.9, behind.noise), "the others have no error at the end"
    assert not SeedPruner.from_runs([out / "seed-0"], "accuracy")(0.9, 1.0), "a single other one may have been lucky"
    slow = config.model_copy(update={"optim": config.optim.model_copy(update={"lr": 1e-9})})
    finetune(
        FinetuneJob(slow, data, source, str(start)),
        tmp_path / "slow",
        ProcessContext.library(),
        pruner=replace(behind, noise=0.0),
    )
    assert json.loads((tmp_path / "slow/results.json").read_text())["pruned"]
    assert "pruned" in [event["code"] for event in events(tmp_path / "slow", "remark")]
    assert 0.5 <= max(event["progress"] for event in events(tmp_path / "slow", "eval")) < 0.95
    shutil.rmtree(out / "seed-2")
    shutil.copytree(tmp_path / "slow", out / "seed-2")
    said: list[Event] = []
    resume_seeds(out, ProcessContext.library(said.append))
    end = said[-1]
    assert isinstance(end, Finished) and end.pruned_seeds == [2] and end.n_seeds == 2
    over = json.loads((out / "results.json").read_text())["seeds"]
    assert list(over["metrics"]) == ["0", "1"] and list(over["pruned"]) == ["2"] and over["best"] != 2
    found = compare(out, out / "seed-0")
    assert found.n_seeds == (2, 1) and [remark.code for remark in found.remarks] == ["seeds-pruned", "single-seed"]
    assert str(out) in found.remarks[0].text and "1" in found.remarks[0].text.replace(str(out), "")


def test_two_runs_are_compared(start: Path, table: Path, tmp_path: Path) -> None:
    tune(start, table, tmp_path / "good", steps=60)
    tune(start, table, tmp_path / "bad", "optim.lr=1e-9", steps=2)
    found = compare(tmp_path / "bad", tmp_path / "good")
    remarks = found.remarks
    accuracy = next(one for one in found.metrics if one.metric.name == "accuracy")
    assert found.n_seeds == (1, 1) and accuracy.significant and accuracy.second == 1.0 and accuracy.interval[0] > 0
    assert not any(one.significant for one in compare(tmp_path / "good", tmp_path / "good").metrics)
    assert [remark.code for remark in remarks] == ["single-seed"]
    shown = [run("compare", tmp_path / name, tmp_path / "good") for name in ("bad", "good")]
    verdicts = [re.search(r"^ *accuracy .*\d\b(.*)$", one.stdout, re.MULTILINE) for one in shown]
    assert (
        all(verdicts)
        and len({verdict[1] for verdict in verdicts if verdict}) == 2
        and remarks[0].text in shown[0].stderr
    )
    said = run_json("compare", tmp_path / "bad", tmp_path / "good")
    assert said["metrics"]["accuracy"]["significant"] and said["remarks"] == [remarks[0].text]
    tune(start, table, tmp_path / "turned", 'task.labels=["second", "first"]')
    with refused("different-label-order", kind=Unsupported):
        compare(tmp_path / "good", tmp_path / "turned")
    own = tmp_path / "rows.csv"
    own.write_text("\n".join(table.read_text().splitlines()[:100]) + "\n")
    tune(start, own, tmp_path / "elsewhere")
    with refused("different-dev", kind=Unsupported):
        compare(tmp_path / "good", tmp_path / "elsewhere")
    (tmp_path / "elsewhere/results.json").unlink()
    with refused("unfinished-run", place="elsewhere"):
        compare(tmp_path / "good", tmp_path / "elsewhere")


def test_tables_are_answered_beside_their_columns(start: Path, table: Path, tmp_path: Path) -> None:
    tune(start, table, tmp_path / "run", steps=60)
    given, said = tmp_path / "new.csv", tmp_path / "said.csv"
    given.write_text('id,text,label\n7,"de, fi ba",x\n8,go ku,y\n')
    done = run("predict", tmp_path / "run", given, "--out", said)
    rows = list(csv.DictReader(said.open()))
    assert [(row["id"], row["label"], row["predicted_label"]) for row in rows] == [
        ("7", "x", "first"),
        ("8", "y", "second"),
    ]
    assert 0.5 < float(rows[0]["predicted_confidence"]) <= 1 and re.search(r"\btext$", done.stderr, re.MULTILINE), (
        "which column it was"
    )
    run("predict", tmp_path / "run", given, "--out", tmp_path / "said.jsonl", "--min-confidence", "1")
    lines = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    assert [line["predicted_label"] for line in lines] == [None, None] and lines[0]["place"].endswith("line 2")
    assert [line["id"] for line in lines] == ["7", "8"], "a table keeps its columns"
    assert refusal("predict", tmp_path / "run", given, "--out", given)["code"] == "would-replace-input"
    done = run("predict", tmp_path / "run", given, "--min-confidence", "1")
    assert unsure(done.stderr) == (2, 2) and done.stdout.startswith("\t0.")
    given.write_text("text,label\nde ba,x\ngo ku,\n")
    said_lines = [json.loads(line) for line in run("predict", tmp_path / "run", given, "--json").stdout.splitlines()]
    assert [line["predicted_label"] for line in said_lines] == ["first", "second"]
    given.write_text('text\nde ba\n""\n')
    said_wrong = run("predict", tmp_path / "run", given, code=2).stderr
    assert "(bad-rows)" in said_wrong and "new.csv, line 3" in said_wrong
    with refused("bad-rows", kind=BadRows) as error:
        inputs_for(bertworks.load(tmp_path / "run").predictor, str(given))
    assert [row.code for row in error.value.rows] == ["empty-text"]  # type: ignore[attr-defined]
    lines = run("predict", tmp_path / "run", given, "--skip-bad").stdout.split("\n")
    assert lines[0].startswith("first\t") and lines[1:] == ["", ""], "a line for each row"
    run("predict", tmp_path / "run", given, "--skip-bad", "--out", said)
    assert [(row["text"], row["predicted_label"]) for row in csv.DictReader(said.open())] == [
        ("de ba", "first"),
        ("", ""),
    ]
    assert refusal("predict", tmp_path / "run", given, "--out", tmp_path / "a.xls")["code"] == "unknown-file-type"
    given.write_text(
        "".join('{"text": "de ba"}\n' for _ in range(INPUT_BATCH_SIZE + 3)) + '{"text": "go ku", "late": [1]}\n'
    )
    done = run("predict", tmp_path / "run", given.rename(tmp_path / "long.jsonl"), "--out", said)
    rows = list(csv.DictReader(said.open()))
    assert [row["predicted_label"] for row in rows] == ["first"] * (INPUT_BATCH_SIZE + 3) + ["second"] and rows[-1][
        "late"
    ] == "[1]"
    assert f"{INPUT_BATCH_SIZE + 4:,}" in done.stderr
    given.write_text("body\nde ba\n")
    assert run("predict", tmp_path / "run", given, "--json").stdout.startswith('{"place"')


def test_entities_are_found_again_in_the_text() -> None:
    example = as_example("Mr. Li of New-York, Inc.!", Tag.schema, False, 0)
    words = list(example.texts)
    assert words == ["Mr", ".", "Li", "of", "New-York", ",", "Inc", ".", "!"]
    tagged = [
        entity_of(example, *found, confidence=1.0)
        for found in entities(["O", "O", "B-x", "O", "B-x", "I-x", "I-x", "I-x", "O"])
    ]
    assert [(one.text, one.start, one.end) for one in tagged] == [("Li", 4, 6), ("New-York, Inc.", 10, 24)]
    assert all(example.source_text[one.start : one.end] == one.text for one in tagged)


def test_an_error_shows_what_differs() -> None:
    example = Example(tuple("Ann saw Bob in Rome".split()), ("B-per", "O", "B-per", "O", "B-loc"))
    said = TagPrediction(list(example.texts), ["B-per", "O", "B-loc", "O", "B-loc"], [0.9, 0.8, 0.7, 0.9, 0.9], [])
    task = Tag(bertworks.new("bert-tiny").model, TaskConfig(shape="tag", labels=("B-per", "B-loc", "O")))
    (score,) = task.scores([said], [example])
    assert (score.is_wrong, score.severity, score.expected, score.predicted) == (True, 0.7, "Bob (per)", "Bob (loc)")


def test_no_column_of_a_table_is_lost(tmp_path: Path) -> None:
    """Rows may have more keys than the first, lists, and columns that an earlier answer added."""
    rows = [{"text": "a", "label": "x", "predicted_label": "y"}, {"text": "b", "note": ["keep", "me"]}]
    asked = InputBatch([Example(("a",)), Example(("b",))], rows)
    with open_output(tmp_path / "said.tsv", ["text", "label", "predicted_label", "note"], as_json=False) as write:
        write(asked, [ClassPrediction("p", 0.5, {}), ClassPrediction(None, 0.4, {})])
    found = list(csv.DictReader((tmp_path / "said.tsv").open(), delimiter="\t"))
    assert found[0]["predicted_label"] == "y" and found[0]["predicted_predicted_label"] == "p"
    assert json.loads(found[1]["note"]) == ["keep", "me"] and found[1]["predicted_predicted_label"] == ""


@pytest.mark.parametrize("shape", ["tag", "span", "choice"])
def test_other_shapes_answer_files(shape: str, tmp_path: Path) -> None:
    heads = {"tag": "token", "span": "span", "choice": "choice"}
    labels = {"labels": ("O", "B-x")} if shape == "tag" else {}
    bench = bertworks.new(
        "bert-mini", tokenizer=tiny_tokenizer(), heads=[heads[shape]], n_positions=48, **{**SMALL, **labels}
    )
    folder, given = bench.save(tmp_path / "model"), tmp_path / "given.txt"
    given.write_text({"tag": "Ba de, fi!\n", "span": "ba?\tde fi ba\n", "choice": "ba\tde\tfi\n"}[shape])
    (line,) = map(json.loads, run("predict", folder, given, "--json").stdout.splitlines())
    run("predict", folder, given, "--out", tmp_path / "said.csv")
    (row,) = csv.DictReader((tmp_path / "said.csv").open())
    if shape == "tag":
        assert line["predicted_words"] == ["Ba", "de", ",", "fi", "!"] and row["predicted_tags"] == " ".join(
            line["predicted_tags"]
        )
        assert row["text"] == "Ba de, fi!" and "predicted_entities" not in row
        done = run("predict", folder, given, "--min-confidence", "1")
        assert done.stdout.split("\t")[1].strip() == "? ? ? ? ?" and unsure(done.stderr) == (1, 1)
    else:
        said = "predicted_answer" if shape == "span" else "predicted_text"
        assert line[said] and (line[said] in "de fi ba" if shape == "span" else line[said] in ("de", "fi"))
        assert row[said] == line[said] and row["context"] == ("de fi ba" if shape == "span" else "ba")
        assert (
            line["question"] == row["question"] == "ba?"
            if shape == "span"
            else line["choices"] == json.loads(row["choices"])
        )
        done = run("predict", folder, given, "--min-confidence", "1")
        assert done.stdout.startswith("?\t-1" if shape == "span" else "\t\t0.") and unsure(done.stderr) == (1, 1)
        (again,) = map(json.loads, run("predict", folder, tmp_path / "said.csv", "--json").stdout.splitlines())
        assert again[f"predicted_{said}"] == line[said], "what was written can be asked again"
    if shape != "tag":
        given.write_text("one text alone\n")
        assert "given.txt, line 1" in run("predict", folder, given, code=2).stderr


def test_answers_go_where_they_are_sent_while_a_terminal_shows_progress(
    start: Path, table: Path, tmp_path: Path
) -> None:
    """`bertworks predict RUN FILE > answers`, typed into a terminal."""
    tune(start, table, tmp_path / "run", steps=2)
    (tmp_path / "texts.txt").write_text("ba de\nku fi\n")
    master, slave = os.openpty()
    with (tmp_path / "answers").open("wb") as answers:
        call = [BERTWORKS, "predict", str(tmp_path / "run"), str(tmp_path / "texts.txt")]
        process = subprocess.Popen(call, stdout=answers, stderr=slave, env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    shown = b""
    with suppress(OSError):  # the other side is closed
        while part := os.read(master, 4096):
            shown += part
    os.close(master)
    ledger = bertworks.load(tmp_path / "run").predict(["ba de", "ku fi"]).ledger
    assert process.wait() == 0 and str(ledger).encode() in shown
    assert len((tmp_path / "answers").read_text().splitlines()) == 2


def test_from_the_command_line(start: Path, table: Path, tmp_path: Path) -> None:
    out, texts = tmp_path / "run", tmp_path / "texts.txt"
    done = run(
        "finetune", "classify", "--train", table, "--model", start, "--steps", "60", "--out", out, *QUICK_OPTIONS
    )
    assert re.search(r"\b108\b.*\b12\b", done.stderr) and str(Columns(("text",), ("label",))) in done.stderr
    assert re.search(r"\baccuracy\W+100\.0%", done.stdout) and "report.html" in done.stdout
    texts.write_text("de fi ba go\n\nku de fi\n")
    done = run("predict", out, texts)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["first", "", "second"], (
        "as many as the file has"
    )
    assert str(bertworks.load(out).predict(["de fi ba go", "ku de fi"]).ledger) in done.stderr
    piped = run("predict", out, "-", stdin="de fi ba go\n\u200d\nku de fi\n".encode(), code=2)
    assert "(bad-rows)" in piped.stderr and "line 2" in piped.stderr and not piped.stdout
    piped = run("predict", out, "-", "--skip-bad", stdin="de fi ba go\n\u200d\nku de fi\n".encode())
    endless = "Q" * 20_000
    run("predict", out, "-", "--skip-bad", "--out", tmp_path / "lines.csv", stdin=f"de fi\n{endless}\n".encode())
    assert endless in (tmp_path / "lines.csv").read_text(), "what is not answered is not lost"
    assert piped.stdout == done.stdout and piped.stdout.count("\n") == 3 and "line 2" in piped.stderr
    assert refusal("predict", out, "-", stdin=b"\n")["code"] == "no-inputs"
    resumed, last = run("resume", out).stderr, events(out, "remark")[-1]
    assert last["code"] == "already-ended" and last["text"] in resumed
    measured = json.loads(run("evaluate", out, table, "--json").stdout)
    assert measured["metrics"]["accuracy"] == 1.0 and measured["ledger"]["texts"] == 120
    other = tmp_path / "other.csv"
    other.write_text("text,label\nba de,first\nku de,third\n")
    said = run("evaluate", out, other, code=2).stderr
    assert "(bad-rows)" in said and "other.csv, line 3" in said and "'third'" in said
    with refused("bad-rows", kind=BadRows) as error:
        evaluate(out, other)
    assert [row.code for row in error.value.rows] == ["unknown-label"]  # type: ignore[attr-defined]
    assert "1.0000" in run("evaluate", out, other, "--skip-bad").stdout
    other.write_text("a,b\nba de,first\nku de,second\n")
    assert "1.0000" in run("evaluate", out, other, "--text", "a", "--label", "b").stdout
    (out / "results.json").unlink()
    assert remarks_if_unfinished(out)[0].text in run("predict", out, texts).stderr
    assert refusal("compare", out, out)["code"] == "unfinished-run"
    wrong = refusal("finetune", "classify", "--train", table, "--model", start, "--set", "lr=1", "--show")
    assert wrong["code"] == "unknown-key" and "'optim.lr'" in wrong["what to do"]
    nowhere = refusal("finetune", "classify", "--train", "nowhere.csv", "--model", start)
    assert nowhere["code"] == "missing-option" and "--out" in nowhere["what to do"], "before anything is read"


def test_of_many_classes_what_is_mixed_up_is_shown() -> None:
    labels = tuple(f"class {at}" for at in range(60))
    counts = [[3 * (right == said) for said in range(60)] for right in range(60)]
    counts[5][7] = 2
    examples = [Example((str(at),), labels[at]) for at in range(60)]
    for some, shown in ((60, False), (30, True)):
        counted = np.array(
            [[right, said] for right in range(some) for said in range(some) for _ in range(counts[right][said])], float
        )
        table = [row[:some] for row in counts[:some]]
        results = EvalResults(
            {"accuracy": 0.9}, {"accuracy": (0.8, 1.0)}, labels[:some], confusion=table, example_scores=counted
        )
        page = "".join(_confusion(results))
        assert ('class="grid confusion"' in page) == shown and ('class="confused"' in page) != shown
        assert page.count("<table") == 1 and ">2</td>" in page
        assert "class 5" in page and "class 7" in page and ("class 9" in page) == shown
    model, read = small("bert-mini", "classify").model, reader()
    for some, shown in ((60, False), (30, True)):
        task = Classify(model, TaskConfig(shape="classify", labels=labels[:some]))
        features = task.features(examples[:some], read)
        assert set(count_tokens(task, features, examples[:some])) == {"", *(labels[:some] if shown else ())}
