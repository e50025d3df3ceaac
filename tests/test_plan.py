"""What a time budget buys: shorter windows, smaller steps, and that it is said."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertworks
from bertworks.errors import BadConfig, Remark, Unsupported
from bertworks.model.partial_embedding import PartialEmbedding
from bertworks.runs.finetune import FinetuneJob
from bertworks.runs.plan import (
    MIN_BATCH_SIZE,
    MIN_STEPS,
    PACE_TOKENS,
    Pace,
    Plan,
    bound_step,
    shorten_windows,
    shrink_steps,
)
from bertworks.runs.settings import FINETUNE, option_settings, parse_duration, parse_settings
from bertworks.tasks.classify import Classify
from bertworks.tasks.features import ShuffledExamples
from bertworks.tasks.source import find_source
from bertworks.train.policy import EVALUATION_SHARE, EVALUATION_SPEED
from bertworks.train.trainer import PROFILED_STEPS
from refusals import refused
from test_selection import noisy_rows
from test_tasks import WORDS, sliding_windows, small_task, synthetic_examples
from texts import tiny_tokenizer
from training import digest, events


def pace(tokens: float) -> Pace:
    """That allows so many tokens."""
    return Pace(1.0, tokens / (1 - EVALUATION_SHARE))


def test_steps_are_bounded_in_tokens() -> None:
    assert bound_step(32, 40.0) == 32
    assert bound_step(32, 512.0) == 16
    assert bound_step(32, 1e6) == MIN_BATCH_SIZE
    assert bound_step(4, 1e6) == 4, "not more than was asked for"


def test_windows_are_as_long_as_one_epoch_allows() -> None:
    lengths = [1000] * 10
    whole = Plan(8, 512, 1000.0, 100)
    assert shorten_windows(whole, pace(100_000), lengths, 100) == whole
    assert shorten_windows(whole, pace(60_000), lengths, 100) == Plan(8, 512, 512.0, 100, one_window=True)
    assert shorten_windows(whole, pace(20_000), lengths, 100) == Plan(8, 128, 128.0, 100, one_window=True)
    assert shorten_windows(whole, pace(10), lengths, 100) == Plan(8, 64, 64.0, 100, one_window=True)


def test_windows_never_grow() -> None:
    assert shorten_windows(Plan(8, 100, 300.0, 100), pace(10), [300], 100).max_length == 64
    assert shorten_windows(Plan(8, 48, 300.0, 100), pace(10), [300], 100).max_length == 48


def test_steps_shrink_until_there_are_enough() -> None:
    plan = shrink_steps(Plan(32, 128, 100.0, 100), pace(100 * 32 * 20))
    assert plan.batch_size == 8 and plan.n_steps(pace(100 * 32 * 20)) >= MIN_STEPS
    assert shrink_steps(Plan(32, 128, 100.0, 100), pace(100 * 32 * (MIN_STEPS + PROFILED_STEPS))).batch_size == 32
    assert shrink_steps(Plan(32, 128, 100.0, 100), pace(1)).batch_size == MIN_BATCH_SIZE
    assert shrink_steps(Plan(4, 128, 100.0, 100), pace(1)).batch_size == 4


# ---------------------------------------------------------------------- in a job


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes: dict[str, Any] = {"n_layers": 2, "hidden_size": 32, "n_heads": 2, "ffn_size": 64, "n_positions": 512}
    return bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), **sizes).save(
        tmp_path_factory.mktemp("start") / "model"
    )


@pytest.fixture(scope="module")
def long_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    generator = np.random.default_rng(0)
    return write_table(path, [" ".join(generator.choice(WORDS, 700)) for _ in range(80)])


def write_table(path: Path, texts: list[str]) -> Path:
    rows = [f"{text},{'ab'[i % 2]}" for i, text in enumerate(texts)]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def job(base_model: Path, table: Path, *settings: str, seconds_per_token: float, monkeypatch: Any, **more: Any) -> Any:
    monkeypatch.setattr("bertworks.runs.plan.measure_pace", lambda *_: seconds_per_token)
    options = more.pop("options", {"budget": 120.0})
    source = find_source("classify", train=str(table))
    return FinetuneJob.resolve(
        source, model=str(base_model), settings=parse_settings(settings, FINETUNE, option_settings(**options)), **more
    )


def test_a_short_budget_chooses_and_says_so(
    base_model: Path, long_texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = job(base_model, long_texts, seconds_per_token=0.01, monkeypatch=monkeypatch)
    assert (planned.config.data.max_length, planned.config.data.train_windows) == (64, 1)
    assert planned.config.data.overlap == 8
    assert planned.config.train.batch_size == MIN_BATCH_SIZE
    assert [remark.code for remark in planned.remarks].count("budget-plan") == 1


def test_a_budget_that_is_long_enough_changes_nothing(
    base_model: Path, long_texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = job(base_model, long_texts, seconds_per_token=1e-6, monkeypatch=monkeypatch)
    assert (planned.config.data.max_length, planned.config.data.train_windows) == (512, None)
    assert planned.config.train.batch_size == MIN_BATCH_SIZE, "the bound of a step: texts have some 1,500 tokens"


def test_what_the_user_set_stays(base_model: Path, long_texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["train.batch_size=32", "data.max_length=512"]
    planned = job(base_model, long_texts, *settings, seconds_per_token=0.01, monkeypatch=monkeypatch)
    assert (planned.config.data.max_length, planned.config.data.train_windows) == (512, None)
    assert planned.config.train.batch_size == 32
    assert "budget-plan" not in [remark.code for remark in planned.remarks]
    options = {"budget": 120.0, "on_long": "truncate"}
    truncated = job(base_model, long_texts, seconds_per_token=0.01, monkeypatch=monkeypatch, options=options)
    assert truncated.config.data.max_length == 512 and truncated.config.data.train_windows is None


def test_a_short_budget_is_not_spent_on_evaluations(
    base_model: Path, long_texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run has two, before the first step and after the last one."""
    options = {"budget": 30.0}
    planned = job(base_model, long_texts, seconds_per_token=0.001, monkeypatch=monkeypatch, options=options)
    seconds = 2 * planned.config.train.evaluate_tokens * 0.001 / EVALUATION_SPEED
    assert 20 * EVALUATION_SHARE < seconds < 30 * EVALUATION_SHARE
    began = time.monotonic() - 20.0  # as the command line has it, which imports and reads before it plans
    late = job(base_model, long_texts, seconds_per_token=0.001, monkeypatch=monkeypatch, options=options, began=began)
    assert late.config.train.evaluate_tokens < planned.config.train.evaluate_tokens / 2
    setting = "train.evaluate_tokens=5000"
    chosen = job(base_model, long_texts, setting, seconds_per_token=0.001, monkeypatch=monkeypatch, options=options)
    assert chosen.config.train.evaluate_tokens == 5000
    with refused("no-effect"):
        job(base_model, long_texts, setting, seconds_per_token=1, monkeypatch=monkeypatch, options={"epochs": 1})


def test_a_budget_for_no_step_says_what_is_needed(
    base_model: Path, long_texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remark(budget: float) -> Remark:
        options = {"budget": budget}
        planned = job(base_model, long_texts, seconds_per_token=0.02, monkeypatch=monkeypatch, options=options)
        return next(remark for remark in planned.remarks if remark.code.startswith("budget"))

    too_short = remark(10.0)
    assert too_short.code == "budget-too-short"
    assert remark(parse_duration(too_short.text.rpartition("--budget ")[2])).code == "budget-plan"


def test_a_run_trains_a_step_whatever_its_budget(base_model: Path, tmp_path: Path) -> None:
    run = bertworks.finetune(noisy_rows(30), model=base_model, out=tmp_path / "run", budget=0.01)
    (finished,) = events(run.folder, "end")
    assert finished["step"] == 1
    assert "no-step-taken" not in {event["code"] for event in events(run.folder, "remark")}


def test_seeds_share_a_budget(base_model: Path, long_texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, shared = (
        job(base_model, long_texts, seconds_per_token=0.002, monkeypatch=monkeypatch, n_seeds=n) for n in (1, 4)
    )
    assert shared.config.data.max_length < alone.config.data.max_length


def test_without_a_budget_nothing_is_measured(
    base_model: Path, long_texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = job(base_model, long_texts, seconds_per_token=9.0, monkeypatch=monkeypatch, options={"epochs": 1})
    assert planned.config.data.train_windows is None and planned.config.train.batch_size == MIN_BATCH_SIZE


def test_the_bound_of_a_step_is_for_what_it_reads(
    base_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole texts of 1,500 tokens would make steps of 8; one window of each has 512."""
    table = write_table(tmp_path / "rows.csv", [f"{n} {' '.join(WORDS * 150)}" for n in range(600)])
    planned = job(base_model, table, seconds_per_token=1e-4, monkeypatch=monkeypatch, options={"budget": 70.0})
    assert (planned.config.data.max_length, planned.config.data.train_windows) == (512, 1)
    assert planned.config.train.batch_size == 16


def test_the_pace_is_that_of_the_training(base_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same precision and the same embedding; one long text does not take the time of the training."""
    table = write_table(tmp_path / "rows.csv", [" ".join(WORDS * 100)] * 20)
    seen: list[tuple[int, type, bool]] = []
    forward = Classify.forward

    def watched_forward(self: Classify, batch: Any) -> Any:
        assert self.training
        embedding = type(self.model.encoder.token_embedding)
        seen.append((len(batch.ids), embedding, torch.is_autocast_enabled("cpu")))
        return forward(self, batch)

    monkeypatch.setattr(Classify, "forward", watched_forward)
    source = find_source("classify", train=str(table))
    for precision in ("float32", "bfloat16"):
        settings = {"train.precision": precision, "train.budget": 60.0}
        FinetuneJob.resolve(source, model=str(base_model), settings=settings)
    n_tokens, embeddings, autocast = zip(*seen, strict=True)
    assert max(n_tokens) <= PACE_TOKENS
    assert set(embeddings) == {PartialEmbedding}
    assert autocast == (False, False, True, True)


def test_the_pace_is_measured_on_the_device_of_the_training(base_model: Path, long_texts: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    source = find_source("classify", train=str(long_texts))
    with pytest.raises(Unsupported) as caught:
        FinetuneJob.resolve(source, model=str(base_model), settings={"train.budget": 60.0, "train.device": "cuda"})
    assert caught.value.code == "no-such-device"


def test_a_real_pace_is_measured_and_leaves_random_numbers_alone(base_model: Path, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    run = bertworks.finetune(noisy_rows(30), model=base_model, out=tmp_path / "run", budget=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    (finished,) = events(run.folder, "end")
    assert finished["epochs"] > 0 and finished["evaluation_seconds"] > 0


# ---------------------------------------------------------------------- some windows of a text


def test_each_epoch_reads_other_windows() -> None:
    task = small_task("bert-mini", "classify")
    features = task.features(synthetic_examples("classify", 4, length=40), sliding_windows(limit=12))
    n_windows = [len(item.windows) for item in features]
    assert min(n_windows) > 4
    examples = ShuffledExamples(features, 4, seed=0, max_windows=2)
    batches = [examples.epoch(number).gather(np.arange(4)) for number in (0, 0, 1, 2)]
    assert all(np.bincount(batch.owners).tolist() == [2, 2, 2, 2] for batch in batches)
    assert all(examples.lengths.sum() == len(batch.ids) for batch in batches)
    assert np.array_equal(batches[0].ids, batches[1].ids), "a batch is a function of its cursor"
    assert not np.array_equal(batches[0].ids, batches[2].ids) and not np.array_equal(batches[2].ids, batches[3].ids)
    whole = ShuffledExamples(features, 4, seed=0, max_windows=99).epoch(0).gather(np.arange(4))
    assert np.bincount(whole.owners).tolist() == n_windows


def test_predictions_read_whole_texts(base_model: Path, long_texts: Path, tmp_path: Path) -> None:
    settings = {"data.max_length": 64, "data.train_windows": 1, "train.evaluations": 1}
    run = bertworks.finetune(long_texts, model=base_model, out=tmp_path / "run", steps=2, settings=settings)
    assert events(run.folder, "train")[-1]["tokens"] <= 2 * 32 * 64
    predictions = run.predict([" ".join(WORDS * 20)])
    assert predictions.ledger.windowed_texts == 1 and predictions.ledger.cut_texts == 0
    again = bertworks.finetune(long_texts, model=base_model, out=tmp_path / "again", steps=2, settings=settings)
    assert digest(run.folder) == digest(again.folder)


@pytest.mark.parametrize("settings", [{"data.train_windows": 1, "data.on_long": "truncate"}])
def test_windows_to_sample_need_windows(
    base_model: Path, long_texts: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(BadConfig) as caught:
        bertworks.finetune(long_texts, model=base_model, out=tmp_path / "run", steps=2, settings=settings)
    assert caught.value.code == "no-effect" and caught.value.fields == ["data.train_windows"]


# ---------------------------------------------------------------------- texts that a model cannot read


def test_a_language_that_the_model_cannot_read_is_said(base_model: Path, tmp_path: Path) -> None:
    """By --show, in training, in the report, and by predictions; with a model to take instead."""
    from commands import run as run_command

    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"Это фильм номер {n},{'ab'[n % 2]}\n" for n in range(40)))
    shown = run_command("finetune", "classify", "--train", table, "--model", base_model, "--show")
    assert "xlm-roberta-base" in shown.stderr
    run = bertworks.finetune(table, model=base_model, out=tmp_path / "run", steps=2)
    assert {event["code"] for event in events(run.folder, "remark")} >= {"ledger"}
    report = run.report.read_text()
    assert report.count("xlm-roberta-base") >= 2, "in both languages"
    assert "xlm-roberta-base" in str(run.predict(["Это фильм"]).ledger)
    assert bertworks.Ledger(texts=1, tokens=100, unknown=5).unknown_advice[0].endswith("vocab check`")  # type: ignore[index]
    assert bertworks.Ledger(texts=1, tokens=1000, unknown=5).unknown_advice is None
