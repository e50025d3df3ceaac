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

import numpy as np
import pytest
import torch

import bertworks
from bertworks.datasets.report import BadRows
from bertworks.errors import BertworksError, Unsupported
from bertworks.runs import verify
from bertworks.runs.verify import verify_resume
from bertworks.train.events import Evaluated, Event, Finished, Started
from refusals import refused
from texts import documents, tiny_tokenizer

WORDS = ("de", "fi", "go", "la", "mo")
SETTINGS = {"optim.lr": 3e-3, "train.batch_size": 16, "train.evaluations": 4}


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {
        "hidden_size": 32,
        "n_layers": 2,
        "n_heads": 4,
        "ffn_size": 64,
        "n_positions": 48,
        "init_range": 0.1,
        "seed": 3,
    }
    return bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), **sizes).save(
        tmp_path_factory.mktemp("start") / "model"
    )


def make_rows(n: int = 80) -> list[dict[str, Any]]:
    """Classify which of two words is in the text."""
    return [
        {"text": f"{WORDS[i % 5]} {'ba' if i % 2 else 'ku'} {WORDS[i % 3]}", "label": "ab"[i % 2], "id": i}
        for i in range(n)
    ]


def test_finetune_on_rows_and_predict(base_model: Path, tmp_path: Path) -> None:
    heard: list[Event] = []
    run = bertworks.finetune(
        make_rows(), model=base_model, out=tmp_path / "run", steps=40, settings=SETTINGS, on_event=heard.append
    )
    assert isinstance(heard[0], Started)
    assert isinstance(heard[-1], Finished)
    assert any(isinstance(event, Evaluated) for event in heard)
    assert run.metrics["accuracy"] == 1.0 and run.report.is_file() and run.is_finished
    assert [prediction.label for prediction in run.predict(["de ba fi", "go ku"])] == ["b", "a"]
    assert run.evaluate(make_rows(20)).results.metrics["accuracy"] == 1.0
    assert run.model.artifact is not None and run.record.kind == "finetune"
    assert bertworks.Run(tmp_path / "run").resume().metrics == run.metrics, "the run keeps its rows"


def test_dataframe_rows_and_file_give_the_same_model(base_model: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(make_rows())
    frame.to_csv(tmp_path / "rows.csv", index=False)
    weights = []
    for name, data in (("rows", make_rows()), ("frame", frame), ("file", tmp_path / "rows.csv")):
        run = bertworks.finetune(data, model=base_model, out=tmp_path / name, steps=4, settings=SETTINGS)
        weights.append((run.folder / "model/model.safetensors").read_bytes())
    assert weights[0] == weights[1] == weights[2]


class Frame:
    """The part of a polars DataFrame's interface that is used."""

    columns = ("text", "label")

    def to_dicts(self) -> list[dict[str, Any]]:
        return make_rows(20)


def test_other_dataframes_are_duck_typed(base_model: Path, tmp_path: Path) -> None:
    run = bertworks.finetune(Frame(), model=base_model, out=tmp_path / "run", steps=2, settings=SETTINGS)  # type: ignore[arg-type]
    assert len((run.folder / "data/train.jsonl").read_text().splitlines()) == 20


def test_finetune_in_threads(base_model: Path, tmp_path: Path) -> None:
    """Where signal handlers cannot be set; two trainings and a prediction at the same time."""
    runs: dict[str, bertworks.Run] = {}
    errors: list[BaseException] = []

    def train(name: str) -> None:
        try:
            runs[name] = bertworks.finetune(
                make_rows(), model=base_model, out=tmp_path / name, steps=4, settings=SETTINGS
            )
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and set(runs) == {"a", "b"}


def test_the_global_rng_state_is_unchanged(base_model: Path, tmp_path: Path) -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    bertworks.finetune(make_rows(), model=base_model, out=tmp_path / "run", steps=2, settings=SETTINGS)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("exception", [ValueError, OSError])
def test_exceptions_of_an_event_handler_are_not_swallowed(
    exception: type[Exception], base_model: Path, tmp_path: Path
) -> None:
    def on_event(event: Event) -> None:
        raise exception("the caller's own")

    with pytest.raises(exception, match="the caller's own"):
        bertworks.finetune(make_rows(), model=base_model, out=tmp_path / "run", steps=1, on_event=on_event)


def test_a_refused_call_leaves_other_files_alone(base_model: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("text,label\nde ba,a\nku fi,b\n" * 20)
    (tmp_path / "data" / "train.jsonl").write_text("mine")
    for data in (str(tmp_path / "data" / "train.csv"), make_rows()):
        with pytest.raises(BertworksError):
            bertworks.finetune(data, model=base_model, out=tmp_path, steps=1)
        with pytest.raises(BertworksError):
            bertworks.finetune(data, model="./nowhere", out=tmp_path, steps=1)
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"train.csv", "train.jsonl"}
    assert (tmp_path / "data" / "train.jsonl").read_text() == "mine"


def test_a_second_call_for_the_same_folder_leaves_the_first_alone(base_model: Path, tmp_path: Path) -> None:
    refusals: list[BertworksError] = []

    def start_second(event: Event) -> None:
        if isinstance(event, Started):
            try:
                bertworks.finetune(make_rows(), model=base_model, out=tmp_path / "run", steps=1)
            except BertworksError as error:
                refusals.append(error)

    run = bertworks.finetune(
        make_rows(), model=base_model, out=tmp_path / "run", steps=4, settings=SETTINGS, on_event=start_second
    )
    assert run.is_finished and len(refusals) == 1 and refusals[0].code in ("run-exists", "in-use")


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_run_with_its_rows_can_be_moved(seeds: int, base_model: Path, tmp_path: Path) -> None:
    run = bertworks.finetune(
        make_rows(), model=base_model, out=tmp_path / "run", steps=4, seeds=seeds, settings=SETTINGS
    )
    metrics = run.metrics
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "run").rename(tmp_path / "elsewhere" / "moved")
    (moved / "results.json").unlink()
    assert bertworks.Run(moved).resume().metrics == metrics


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_run_with_its_rows_can_be_verified(seeds: int, base_model: Path, tmp_path: Path) -> None:
    """Each seed too, whose rows are kept beside it."""
    settings = {**SETTINGS, "train.evaluations": 1}
    run = bertworks.finetune(
        make_rows(), model=base_model, out=tmp_path / "run", steps=1, seeds=seeds, settings=settings
    )
    proof = verify_resume(run.folder if seeds == 1 else run.folder / "seed-1", 40, threads=1)
    assert proof.same


def test_more_steps_than_a_trial_grows_to_are_tried(
    base_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bertworks.finetune(make_rows(), model=base_model, out=tmp_path / "run", steps=1, settings=SETTINGS)
    tried: list[int] = []

    def ended(record: object, steps: int, *_: object) -> verify.ResumeProof:
        tried.append(steps)
        raise verify._EndedBeforeKill

    monkeypatch.setattr(verify, "_trial", ended)
    for steps in (5000, 1000, 1030):
        with pytest.raises(Unsupported):
            verify_resume(run.folder, steps)
    assert tried == [5000, 1000, 4000, 1030]


def test_metrics_of_a_pretraining_are_those_of_its_best_model(base_model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(documents(40)))
    shards = bertworks.prepare(tmp_path / "text.txt", tokenizer=base_model, out=tmp_path / "shards", workers=1)
    settings = {
        "optim.lr": 5.0,
        "optim.warmup": 0.0,
        "data.max_length": 32,
        "data.held_out": 0.2,
        "train.batch_tokens": 256,
    }
    run = bertworks.pretrain(
        shards.folder, model=base_model, objective="mlm", steps=6, out=tmp_path / "run", settings=settings
    )
    losses = [event.metrics["loss"] for event in run.events if isinstance(event, Evaluated)]
    assert losses[-1] > min(losses), "the loss must get worse, or this test shows nothing"
    assert run.metrics["loss"] == min(losses)
    assert isinstance(run.events[-1], Finished) and run.events[-1].metrics == run.metrics, "those of the best are told"


def test_predict_refuses_a_model_in_training_mode(base_model: Path, tmp_path: Path) -> None:
    run = bertworks.finetune(make_rows(), model=base_model, out=tmp_path / "run", steps=1, settings=SETTINGS)
    run.predict(["de ba"])
    run.model.model.train()
    with refused("training-mode"):
        run.predict(["de ba"])


def test_missing_values_and_invalid_texts_in_rows(base_model: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for value in (pandas.NA, pandas.NaT):
        with refused("bad-rows"):
            bertworks.finetune(
                [*make_rows(), {"text": "de", "label": value}], model=base_model, out=tmp_path / "run", steps=1
            )
    with refused("not-text"):
        bertworks.finetune(
            [*make_rows(), {"text": b"de", "label": "a"}], model=base_model, out=tmp_path / "run", steps=1
        )
    with refused("lone-surrogate", place="row 81"):
        bertworks.finetune(
            [*make_rows(), {"text": "\ud83d", "label": "a"}], model=base_model, out=tmp_path / "run", steps=1
        )


def test_errors_name_the_rows_of_the_caller(base_model: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": base_model, "out": tmp_path / "run", "steps": 1, "settings": SETTINGS}
    unlabelled = [*make_rows(), {"text": "de", "label": None}]
    for data, place in (
        ({"data": unlabelled}, "train, row 81"),
        ({"data": make_rows(), "dev": unlabelled}, "dev, row 81"),
    ):
        with refused("bad-rows", kind=BadRows) as error:
            bertworks.finetune(**data, **options)
        assert error.value.rows[0].place == place  # type: ignore[attr-defined]
        assert place in error.value.cause
        assert "skip_bad=True" in str(error.value)
        assert ".jsonl" not in str(error.value)
    long_row = {"text": "de " * 100, "label": "a"}
    with refused("too-long", place="train, row 81"):
        bertworks.finetune([*make_rows(), long_row], dev=make_rows(), on_long="error", **options)
    run = bertworks.finetune(make_rows(), **options)
    with refused("bad-rows") as error:
        run.evaluate(unlabelled)
    assert "data, row 81" in error.value.cause


def test_a_predictor_is_shared_between_threads(base_model: Path, tmp_path: Path) -> None:
    run = bertworks.finetune(make_rows(), model=base_model, out=tmp_path / "run", steps=10, settings=SETTINGS)
    texts = [f"{a} {b} {'ba' if i % 2 else 'ku'}" for i, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS)]
    predictor = run.model.predictor
    expected = [prediction.confidence for prediction in predictor.predict(texts)]
    confidences: dict[int, list[float]] = {}

    def predict_in_thread(number: int) -> None:
        confidences[number] = [prediction.confidence for prediction in predictor.predict(texts)]

    threads = [threading.Thread(target=predict_in_thread, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(confidences[number] == expected for number in range(4))


def test_prepare_run_finish_is_predict(base_model: Path, tmp_path: Path) -> None:
    """Requests that are batched together get the numbers that they get alone."""
    predictor = bertworks.finetune(
        make_rows(), model=base_model, out=tmp_path / "run", steps=10, settings=SETTINGS
    ).model.predictor
    first = predictor.prepare(["de ba fi"])
    second = predictor.prepare(["go ku", "la ba"])
    together = predictor.run([prepared.features for prepared in (*first, *second)])
    staged = [*predictor.finish(first, together[:1]), *predictor.finish(second, together[1:])]
    direct = predictor.predict(["de ba fi", "go ku", "la ba"])
    assert [prediction.label for prediction in staged] == [prediction.label for prediction in direct]
    assert [prediction.confidence for prediction in staged] == pytest.approx(
        [prediction.confidence for prediction in direct], abs=1e-6
    )


@pytest.fixture(scope="module")
def trained(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> bertworks.Run:
    out = tmp_path_factory.mktemp("trained") / "run"
    return bertworks.finetune(make_rows(), model=base_model, out=out, steps=10, settings=SETTINGS)


def test_logits_of_predictions(trained: bertworks.Run) -> None:
    """They are what the predictions are made of, in the three stages too; long texts have the mean of their windows."""
    texts = ["de ba fi", "go ku", "la " * 100]
    predictions = trained.predict(texts, logits=True)
    assert trained.predict(texts).logits is None
    for prediction, logits in zip(predictions, predictions.logits or (), strict=True):
        exponentials = np.exp(logits)
        assert np.allclose(exponentials / exponentials.sum(), list(prediction.scores.values()))
    predictor = trained.model.predictor
    prepared = predictor.prepare(texts)
    outputs = predictor.run([item.features for item in prepared])
    staged = predictor.logits(prepared, outputs)
    assert len(outputs[2]) > 1 and np.allclose(staged[2], np.concatenate(outputs[2]).mean(0))
    assert all(np.array_equal(a, b) for a, b in zip(staged, predictions.logits or (), strict=True))


def test_logits_are_calibrated_wherever_the_temperature_is(trained: bertworks.Run) -> None:
    """Older folders have it beside the weights, not in them."""
    bench = bertworks.load(trained.folder)
    assert bench.artifact is not None
    bench.artifact = bench.artifact.model_copy(update={"temperature": 2.5, "temperature_in_head": False})
    (prediction,) = predictions = bench.predict(["de ba fi"], logits=True)
    (logits,) = predictions.logits or ()
    assert logits is not None
    assert np.allclose(np.exp(logits) / np.exp(logits).sum(), list(prediction.scores.values()))


def test_columns_without_names_are_numbers(trained: bertworks.Run) -> None:
    """pandas numbers them."""
    table = pytest.importorskip("pandas").DataFrame([["de ba", "x"], ["fi", "y"]])
    with pytest.raises(BertworksError):
        trained.predict(table)


@pytest.mark.parametrize(
    ("head", "labels", "value", "shape"),
    [
        ("token", ("O", "B-x", "I-x"), "ba de, fi", (4, 3)),
        ("span", (), ("ba?", "de fi ku"), (4, 2)),
        ("choice", (), ("ba", ["de", "fi", "ku"]), (3,)),
        ("sequence", ("a",), "ba de", (1,)),
        ("sequence", ("a", "b"), ("ba", "de"), (2,)),
    ],
)
def test_logits_of_each_shape(head: str, labels: tuple[str, ...], value: Any, shape: tuple[int, ...]) -> None:
    sizes: dict[str, Any] = {"labels": labels} if labels else {}
    bench = bertworks.new("bert-tiny", tokenizer=tiny_tokenizer(), heads=[head], n_positions=48, **sizes)
    (logits,) = bench.predict([value], logits=True).logits or ()
    assert logits is not None and logits.shape == shape


def test_bad_inputs_are_raised_or_skipped(trained: bertworks.Run) -> None:
    inputs: list[Any] = ["de ba", "", 7, ("a", "b"), "go ku", None, "x" * 20_000]
    with refused("empty-text", place="input 2"):
        trained.predict(inputs)
    predictions = trained.predict(inputs, on_bad="skip", logits=True)
    assert [prediction is None for prediction in predictions] == [False, True, True, True, False, True, True]
    assert [item is None for item in predictions.logits or ()] == [prediction is None for prediction in predictions]
    assert [p.confidence for p in predictions if p] == [p.confidence for p in trained.predict(["de ba", "go ku"])]
    (remark,) = predictions.remarks
    assert remark.code == "bad-rows" and "input 2" in remark.text and "5" in remark.text
    assert predictions.ledger.texts == 2 and not trained.predict(["de ba"]).remarks
    with refused("too-long", place="input 2"):
        trained.predict(["de", "ba " * 100], on_long="error")
    assert trained.predict(["de", "ba " * 100], on_long="error", on_bad="skip")[1] is None
    with refused("unknown-value"):
        trained.predict(["de"], on_bad="skipp")


@pytest.mark.parametrize(
    ("value", "received"),
    [(None, "None"), (float("nan"), "nan"), (3, "3"), (("a", "b"), "('a', 'b')"), (("x" * 9999, "b"), "xxx...")],
)
def test_a_wrong_input_is_shown(value: Any, received: str, trained: bertworks.Run) -> None:
    with refused("wrong-input") as error:
        trained.predict([value])
    cause = error.value.cause
    assert cause.startswith("this model expects a text, not ") and received in cause and len(cause) < 200


def test_predict_rows_and_dataframes(trained: bertworks.Run, base_model: Path, tmp_path: Path) -> None:
    """In the columns of the training, or of the usual names; pairs as tuples and as two columns."""
    pandas = pytest.importorskip("pandas")
    texts = ["de ba", "go ku"]
    expected = [prediction.confidence for prediction in trained.predict(texts)]
    rows = [{"id": i, "text": text, "label": "?"} for i, text in enumerate(texts)]
    for inputs in (rows, pandas.DataFrame(rows), pandas.DataFrame({"sentence": texts})):
        assert [prediction.confidence for prediction in trained.predict(inputs)] == expected
    frame = pandas.DataFrame({"text": ["de ba", None, float("nan")]})
    with refused("no-text", place="inputs, row 2"):
        trained.predict(frame)
    assert [prediction is None for prediction in trained.predict(frame, on_bad="skip")] == [False, True, True]
    with refused("no-text-column") as error:
        trained.predict(pandas.DataFrame({"n": [1, 2]}))
    assert "predict(list(table['text']))" in str(error.value.remedy)
    assert "trained on: text;" in error.value.cause and "the table has: n" in error.value.cause
    pairs = [{"first": row["text"], "second": "mo", "label": row["label"]} for row in make_rows(40)]
    out = tmp_path / "pairs"
    run = bertworks.finetune(pairs, model=base_model, out=out, steps=1, text="first", text2="second", settings=SETTINGS)
    by_tuple = run.predict([("de ba", "mo")])[0].confidence
    assert run.predict(pandas.DataFrame([{"second": "mo", "first": "de ba"}]))[0].confidence == by_tuple
    with refused("no-text-column") as error:
        run.predict(pandas.DataFrame({"text": texts}))
    assert "zip(table['text'], table['text2'])" in str(error.value.remedy)
    with refused("wrong-input", place="input 1") as error:
        run.predict(["de ba"])
    assert "predict([(text, text2)])" in str(error.value.remedy)


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


def test_signals_threads_and_output_stay_the_callers(base_model: Path, tmp_path: Path) -> None:
    """As in a notebook: SIGINT stays Python's own, threads stay, nothing is printed."""
    command = [sys.executable, "-c", NOTEBOOK, str(base_model), str(tmp_path / "run")]
    process = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert process.returncode == 0, process.stderr
    assert process.stdout == "" and process.stderr == ""


def open_files() -> set[str]:
    names = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of this listing itself is closed by now
            names.add(link.readlink().name)
    return names


@pytest.fixture
def sigint_raises() -> Iterator[None]:
    """As in a notebook. A shell's background job ignores the signal, and so would these tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_sigint_interrupts_and_the_run_can_be_resumed(base_model: Path, tmp_path: Path, sigint_raises: None) -> None:
    uninterrupted = bertworks.finetune(
        make_rows(),
        model=base_model,
        out=tmp_path / "uninterrupted",
        steps=8,
        settings={**SETTINGS, "train.checkpoint_every": 2},
    )

    def interrupt(event: Event) -> None:
        if event.step == 4 and isinstance(event, Evaluated):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as interrupted:
        bertworks.finetune(
            make_rows(),
            model=base_model,
            out=tmp_path / "run",
            steps=8,
            settings={**SETTINGS, "train.checkpoint_every": 2},
            on_event=interrupt,
        )
    assert interrupted.tb is not None
    assert "metrics.jsonl" not in open_files(), "closed, though the trainer is still there"
    run = bertworks.Run(tmp_path / "run").resume()
    assert (run.folder / "model/model.safetensors").read_bytes() == (
        uninterrupted.folder / "model/model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ([], "no-rows"),
        ({"text": ["a"]}, "not-rows"),
        (["a text"], "not-rows"),
        ([*make_rows(20), {"text": "ba de", "label": float("nan")}], "bad-rows"),
        ([*make_rows(20), {"text": "ba de"}], "bad-rows"),
        ([*make_rows(20), {"words": "ba de", "label": "a"}], "bad-rows"),
        ([*make_rows(20), {"text": float("nan"), "label": "a"}], "bad-rows"),
        ([{"text": "ba", "label": "a"}] * 9, "one-label"),
    ],
)
def test_bad_rows_are_refused(data: Any, code: str, base_model: Path, tmp_path: Path) -> None:
    with refused(code):
        bertworks.finetune(data, model=base_model, out=tmp_path / "run", steps=1)
    assert not (tmp_path / "run").exists(), "nothing is left behind"


def test_an_existing_run_is_not_overwritten(base_model: Path, tmp_path: Path) -> None:
    bertworks.finetune(make_rows(20), model=base_model, out=tmp_path / "run", steps=1)
    before = (tmp_path / "run/data/train.jsonl").read_bytes()
    with refused("run-exists"):
        bertworks.finetune(make_rows(40), model=base_model, out=tmp_path / "run", steps=1)
    wrong: tuple[dict[str, Any], ...] = ({"epochs": 0}, {"seeds": 0}, {"first": 0}, {"settings": {"optim.rate": 1}})
    for arguments in wrong:  # these are said first: another folder would not help
        with refused("unknown-key" if "settings" in arguments else "out-of-range"):
            bertworks.finetune(make_rows(40), model=base_model, out=tmp_path / "run", **arguments)
    with pytest.raises(TypeError, match="step"):
        bertworks.finetune(make_rows(40), model=base_model, out=tmp_path / "run", epochs=1, step="3")
    assert (tmp_path / "run/data/train.jsonl").read_bytes() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    with refused("not-empty"):
        bertworks.finetune(make_rows(20), model=base_model, out=tmp_path / "other", steps=1)
    assert [path.name for path in (tmp_path / "other").iterdir() if path.name != ".lock"] == ["notes.txt"]


def test_columns_and_settings_by_name(base_model: Path, tmp_path: Path) -> None:
    rows = [{"a": row["text"], "b": row["label"], "c": 0} for row in make_rows(40)]
    run = bertworks.finetune(
        rows, model=base_model, out=tmp_path / "run", steps=1, text="a", label="b", settings={"optim.lr": 1e-3}
    )
    assert run.record.config["optim"]["lr"] == 1e-3 and run.record.source is not None
    assert run.record.source["columns"]["text"] == "a"
    assert run.record.source["columns"]["label"] == ["b"]
    with pytest.raises(TypeError, match="texts"):
        bertworks.finetune(rows, model=base_model, out=tmp_path / "new", steps=1, texts="a")
    with refused("no-effect") as error:
        bertworks.finetune(
            rows, model=base_model, out=tmp_path / "new", steps=1, text="a", label="b", settings={"train.threads": 1}
        )
    assert isinstance(error.value, BertworksError)


def test_a_column_with_a_comma_in_its_name(base_model: Path, tmp_path: Path) -> None:
    table = [{"text": row["text"], "a,b": i % 2, "c": int(i % 3 == 0)} for i, row in enumerate(make_rows(40))]
    labels = ["a,b", "c"]
    run = bertworks.finetune(table, task="multilabel", model=base_model, out=tmp_path / "run", steps=1, label=labels)
    assert run.model.artifact is not None and run.model.artifact.task.labels == ("a,b", "c")
    assert set(run.predict(["ba de"])[0].scores) == {"a,b", "c"}
    single = [{"text": row["text"], "a,b": row["label"]} for row in make_rows(40)]
    run = bertworks.finetune(single, model=base_model, out=tmp_path / "single", steps=1, label="a,b")
    assert run.record.source is not None and run.record.source["columns"]["label"] == ["a,b"]


def test_train_vocabulary_prepare_and_pretrain(tmp_path: Path) -> None:
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
