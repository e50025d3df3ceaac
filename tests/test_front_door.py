"""Trainings as Python calls: rows and DataFrames in, a run out; the caller's process stays as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import bertworks
from bertworks.errors import BertworksError
from bertworks.train.events import Evaluated, Event, Finished, Started
from refusals import refused
from texts import documents, tiny_tokenizer

WORDS = ("de", "fi", "go", "la", "mo")
SETTINGS = {"optim.lr": 3e-3, "train.batch_size": 16, "train.evaluations": 4}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = {
        "hidden_size": 32,
        "n_layers": 2,
        "n_heads": 4,
        "ffn_size": 64,
        "n_positions": 48,
        "init_range": 0.1,
        "seed": 3,
    }
    return bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), **small).save(
        tmp_path_factory.mktemp("start") / "model"
    )


def rows(n: int = 80) -> list[dict[str, Any]]:
    """Which of two words is in the text."""
    return [
        {"text": f"{WORDS[at % 5]} {'ba' if at % 2 else 'ku'} {WORDS[at % 3]}", "label": "ab"[at % 2], "id": at}
        for at in range(n)
    ]


def test_rows_in_predictions_out(start: Path, tmp_path: Path) -> None:
    heard: list[Event] = []
    run = bertworks.finetune(
        rows(), model=start, out=tmp_path / "run", steps=40, settings=SETTINGS, on_event=heard.append
    )
    assert (
        isinstance(heard[0], Started)
        and isinstance(heard[-1], Finished)
        and any(isinstance(one, Evaluated) for one in heard)
    )
    assert run.metrics["accuracy"] == 1.0 and run.report.is_file() and run.is_finished
    assert [one.label for one in run.predict(["de ba fi", "go ku"])] == ["b", "a"]
    assert run.evaluate(rows(20)).results.metrics["accuracy"] == 1.0
    assert run.model.artifact is not None and run.record.kind == "finetune"
    assert bertworks.Run(tmp_path / "run").resume().metrics == run.metrics, "the rows were kept"


def test_a_frame_gives_what_rows_and_files_give(start: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows())
    frame.to_csv(tmp_path / "rows.csv", index=False)
    weights = []
    for name, data in (("rows", rows()), ("frame", frame), ("file", tmp_path / "rows.csv")):
        run = bertworks.finetune(data, model=start, out=tmp_path / name, steps=4, settings=SETTINGS)
        weights.append((run.folder / "model/model.safetensors").read_bytes())
    assert weights[0] == weights[1] == weights[2]


class Frame:
    """What polars shows of itself."""

    columns = ("text", "label")

    def to_dicts(self) -> list[dict[str, Any]]:
        return rows(20)


def test_other_frames_are_known_by_what_they_can_do(start: Path, tmp_path: Path) -> None:
    run = bertworks.finetune(Frame(), model=start, out=tmp_path / "run", steps=2, settings=SETTINGS)  # type: ignore[arg-type]
    assert len((run.folder / "data/train.jsonl").read_text().splitlines()) == 20


def test_in_a_thread(start: Path, tmp_path: Path) -> None:
    """Where signal handlers cannot be set; two trainings and a prediction at the same time."""
    runs: dict[str, bertworks.Run] = {}
    errors: list[BaseException] = []

    def train(name: str) -> None:
        try:
            runs[name] = bertworks.finetune(rows(), model=start, out=tmp_path / name, steps=4, settings=SETTINGS)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and set(runs) == {"a", "b"}


def test_random_numbers_stay_the_callers(start: Path, tmp_path: Path) -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    bertworks.finetune(rows(), model=start, out=tmp_path / "run", steps=2, settings=SETTINGS)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", [ValueError, OSError])
def test_what_a_handler_raises_is_not_swallowed(kind: type[Exception], start: Path, tmp_path: Path) -> None:
    def on_event(event: Event) -> None:
        raise kind("the caller's own")

    with pytest.raises(kind, match="the caller's own"):
        bertworks.finetune(rows(), model=start, out=tmp_path / "run", steps=1, on_event=on_event)


def test_a_refused_call_touches_nothing_of_the_caller(start: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("text,label\nde ba,a\nku fi,b\n" * 20)
    (tmp_path / "data" / "train.jsonl").write_text("mine")
    for data in (str(tmp_path / "data" / "train.csv"), rows()):
        with pytest.raises(BertworksError):
            bertworks.finetune(data, model=start, out=tmp_path, steps=1)
        with pytest.raises(BertworksError):
            bertworks.finetune(data, model="./nowhere", out=tmp_path, steps=1)
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"train.csv", "train.jsonl"}
    assert (tmp_path / "data" / "train.jsonl").read_text() == "mine"


def test_a_second_call_for_the_same_folder_leaves_the_first_alone(start: Path, tmp_path: Path) -> None:
    refusals: list[BertworksError] = []

    def second(event: Event) -> None:
        if isinstance(event, Started):
            try:
                bertworks.finetune(rows(), model=start, out=tmp_path / "run", steps=1)
            except BertworksError as error:
                refusals.append(error)

    run = bertworks.finetune(rows(), model=start, out=tmp_path / "run", steps=4, settings=SETTINGS, on_event=second)
    assert run.is_finished and len(refusals) == 1 and refusals[0].code in ("run-exists", "in-use")


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_run_with_its_rows_can_be_moved(seeds: int, start: Path, tmp_path: Path) -> None:
    run = bertworks.finetune(rows(), model=start, out=tmp_path / "run", steps=4, seeds=seeds, settings=SETTINGS)
    metrics = run.metrics
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "run").rename(tmp_path / "elsewhere" / "moved")
    (moved / "results.json").unlink()
    assert bertworks.Run(moved).resume().metrics == metrics


def test_metrics_of_a_pretraining_are_those_of_its_best_model(start: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(documents(40)))
    shards = bertworks.prepare(tmp_path / "text.txt", tokenizer=start, out=tmp_path / "shards", workers=1)
    settings = {
        "optim.lr": 5.0,
        "optim.warmup": 0.0,
        "data.max_length": 32,
        "data.held_out": 0.2,
        "train.batch_tokens": 256,
    }
    run = bertworks.pretrain(
        shards.folder, model=start, objective="mlm", steps=6, out=tmp_path / "run", settings=settings
    )
    losses = [event.metrics["loss"] for event in run.events if isinstance(event, Evaluated)]
    assert losses[-1] > min(losses), "it did not get worse, so nothing is shown"
    assert run.metrics["loss"] == min(losses)


def test_dropout_is_noticed(start: Path, tmp_path: Path) -> None:
    run = bertworks.finetune(rows(), model=start, out=tmp_path / "run", steps=1, settings=SETTINGS)
    run.predict(["de ba"])
    run.model.model.train()
    with refused("training-mode"):
        run.predict(["de ba"])


def test_missing_values_of_pandas_are_missing(start: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for value in (pandas.NA, pandas.NaT):
        with refused("bad-rows"):
            bertworks.finetune([*rows(), {"text": "de", "label": value}], model=start, out=tmp_path / "run", steps=1)
    with refused("not-text"):
        bertworks.finetune([*rows(), {"text": b"de", "label": "a"}], model=start, out=tmp_path / "run", steps=1)
    with refused("lone-surrogate", place="row 80"):
        bertworks.finetune([*rows(), {"text": "\ud83d", "label": "a"}], model=start, out=tmp_path / "run", steps=1)


def test_a_predictor_is_shared_between_threads(start: Path, tmp_path: Path) -> None:
    run = bertworks.finetune(rows(), model=start, out=tmp_path / "run", steps=10, settings=SETTINGS)
    texts = [f"{a} {b} {'ba' if at % 2 else 'ku'}" for at, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS)]
    predictor = run.model.predictor
    alone = [one.confidence for one in predictor.predict(texts)]
    found: dict[int, list[float]] = {}

    def ask(number: int) -> None:
        found[number] = [one.confidence for one in predictor.predict(texts)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[number] == alone for number in range(4))


def test_stages_in_a_row_are_a_prediction(start: Path, tmp_path: Path) -> None:
    """Requests that are run together get the numbers that they get alone."""
    predictor = bertworks.finetune(
        rows(), model=start, out=tmp_path / "run", steps=10, settings=SETTINGS
    ).model.predictor
    first, second = predictor.prepare(["de ba fi"]), predictor.prepare(["go ku", "la ba"])
    together = predictor.run([one.features for one in (*first, *second)])
    staged = [*predictor.finish(first, together[:1]), *predictor.finish(second, together[1:])]
    alone = predictor.predict(["de ba fi", "go ku", "la ba"])
    assert [one.label for one in staged] == [one.label for one in alone]
    assert [one.confidence for one in staged] == pytest.approx([one.confidence for one in alone], abs=1e-6)


NOTEBOOK = """
import signal, sys, threading, torch
import bertworks
before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), torch.get_num_threads()
torch.set_num_threads(1)
rows = [{"text": f"{'ba' if at % 2 else 'ku'} de {'fi ' * (at % 4)}", "label": "ab"[at % 2]} for at in range(40)]
during = []
def note(event):
    during.append((signal.getsignal(signal.SIGINT), torch.get_num_threads()))
run = bertworks.finetune(rows, model=sys.argv[1], out=sys.argv[2], steps=3, on_event=note)
assert set(during) == {(before[0], 1)}, set(during)
assert signal.getsignal(signal.SIGINT) is before[0] and signal.getsignal(signal.SIGTERM) is before[1] and torch.get_num_threads() == 1
assert run.predict(["ba de"])[0].label in ("a", "b")
"""


def test_the_process_stays_the_callers(start: Path, tmp_path: Path) -> None:
    """As in a notebook: SIGINT stays Python's own, threads stay, nothing is printed."""
    call = [sys.executable, "-c", NOTEBOOK, str(start), str(tmp_path / "run")]
    done = subprocess.run(call, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and done.stderr == ""


def open_files() -> set[str]:
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one of this very listing is gone by now
            found.add(link.readlink().name)
    return found


@pytest.fixture
def sigint_raises() -> Iterator[None]:
    """As in a notebook. A shell's background job ignores the signal, and so would these tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_sigint_is_an_interrupt_and_the_run_goes_on_later(start: Path, tmp_path: Path, sigint_raises: None) -> None:
    whole = bertworks.finetune(
        rows(), model=start, out=tmp_path / "whole", steps=8, settings={**SETTINGS, "train.checkpoint_every": 2}
    )

    def interrupt(event: Event) -> None:
        if event.step == 4 and isinstance(event, Evaluated):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as interrupted:
        bertworks.finetune(
            rows(),
            model=start,
            out=tmp_path / "run",
            steps=8,
            settings={**SETTINGS, "train.checkpoint_every": 2},
            on_event=interrupt,
        )
    assert interrupted.tb is not None and "metrics.jsonl" not in open_files(), (
        "closed, though the trainer is still there"
    )
    run = bertworks.Run(tmp_path / "run").resume()
    assert (run.folder / "model/model.safetensors").read_bytes() == (
        whole.folder / "model/model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ([], "no-rows"),
        ({"text": ["a"]}, "not-rows"),
        (["a text"], "not-rows"),
        ([*rows(20), {"text": "ba de", "label": float("nan")}], "bad-rows"),
        ([*rows(20), {"text": "ba de"}], "bad-rows"),
        ([*rows(20), {"words": "ba de", "label": "a"}], "bad-rows"),
        ([*rows(20), {"text": float("nan"), "label": "a"}], "bad-rows"),
        ([{"text": "ba", "label": "a"}] * 9, "one-label"),
    ],
)
def test_what_is_wrong_with_rows(data: Any, code: str, start: Path, tmp_path: Path) -> None:
    with refused(code):
        bertworks.finetune(data, model=start, out=tmp_path / "run", steps=1)
    assert not (tmp_path / "run").exists(), "nothing is left behind"


def test_an_existing_run_is_not_written_over(start: Path, tmp_path: Path) -> None:
    bertworks.finetune(rows(20), model=start, out=tmp_path / "run", steps=1)
    before = (tmp_path / "run/data/train.jsonl").read_bytes()
    with refused("run-exists"):
        bertworks.finetune(rows(40), model=start, out=tmp_path / "run", steps=1)
    assert (tmp_path / "run/data/train.jsonl").read_bytes() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    with refused("not-empty"):
        bertworks.finetune(rows(20), model=start, out=tmp_path / "other", steps=1)
    assert [path.name for path in (tmp_path / "other").iterdir() if path.name != ".lock"] == ["notes.txt"]


def test_columns_and_settings_by_name(start: Path, tmp_path: Path) -> None:
    named = [{"a": row["text"], "b": row["label"], "c": 0} for row in rows(40)]
    run = bertworks.finetune(
        named, model=start, out=tmp_path / "run", steps=1, text="a", label="b", settings={"optim.lr": 1e-3}
    )
    assert run.record.config["optim"]["lr"] == 1e-3 and run.record.source is not None
    assert run.record.source["columns"]["text"] == "a" and run.record.source["columns"]["label"] == ["b"]
    with pytest.raises(TypeError, match="texts"):
        bertworks.finetune(named, model=start, out=tmp_path / "new", steps=1, texts="a")
    with refused("no-effect") as error:
        bertworks.finetune(
            named, model=start, out=tmp_path / "new", steps=1, text="a", label="b", settings={"train.threads": 1}
        )
    assert isinstance(error.value, BertworksError)


def test_a_column_with_a_comma_in_its_name(start: Path, tmp_path: Path) -> None:
    table = [{"text": row["text"], "a,b": at % 2, "c": int(at % 3 == 0)} for at, row in enumerate(rows(40))]
    labels = ["a,b", "c"]
    run = bertworks.finetune(table, task="multilabel", model=start, out=tmp_path / "run", steps=1, label=labels)
    assert run.model.artifact is not None and run.model.artifact.task.labels == ("a,b", "c")
    assert set(run.predict(["ba de"])[0].scores) == {"a,b", "c"}
    single = [{"text": row["text"], "a,b": row["label"]} for row in rows(40)]
    run = bertworks.finetune(single, model=start, out=tmp_path / "single", steps=1, label="a,b")
    assert run.record.source is not None and run.record.source["columns"]["label"] == ["a,b"]


def test_from_text_to_a_model(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(documents(60)))
    tokenizer = bertworks.train_vocabulary(tmp_path / "text.txt", size=150, out=tmp_path / "vocab")
    shards = bertworks.prepare(tmp_path / "text.txt", tokenizer=tmp_path / "vocab", out=tmp_path / "shards", workers=1)
    assert shards.manifest.tokenizer == tokenizer.fingerprint
    sizes = {
        "model.n_layers": 2,
        "model.hidden_size": 32,
        "model.n_heads": 4,
        "model.ffn_size": 64,
        "train.batch_tokens": 512,
    }
    run = bertworks.pretrain(tmp_path / "shards", preset="bert-mini", out=tmp_path / "run", steps=3, settings=sizes)
    assert run.metrics["masked"] > 0 and run.is_finished and run.model.fill("ba [MASK]").blanks
    assert json.loads((tmp_path / "run/run.json").read_text())["kind"] == "pretrain"
    assert torch.get_num_threads() == 1, "as the tests have set it"
