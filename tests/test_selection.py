"""Which model of a fine-tuning is kept, what it is worth on new examples, its baseline and its calibration."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertworks
from bertworks.config import TaskArtifact
from bertworks.datasets.example import Example
from bertworks.errors import NotFound
from bertworks.measure.selection import (
    best,
    by_metric,
    cross_fitted,
    jackknife,
    latest_near_best,
    standard_error,
    value_in_choice,
)
from bertworks.runs.compare import compare
from bertworks.runs.evaluations import (
    EVALUATIONS,
    History,
    discard_later,
    earlier_scores,
    read_scores,
    write_scores,
)
from bertworks.runs.finetune import CHOICE_ERROR, DevEvaluation
from bertworks.tasks.evaluation import baseline_metrics, calibrate
from bertworks.tasks.task import softmax
from bertworks.train.checkpoint import CHECKPOINTS, State
from bertworks.train.events import BEST_MODEL_LOST, Evaluated, Log, Remarked
from bertworks.train.policy import EvaluationPolicy
from commands import run as run_command
from refusals import refused
from test_tasks import WORDS, config_of, predict, sliding_windows, small_task, synthetic_examples
from texts import tiny_tokenizer
from training import digest, events

SETTINGS = {"train.batch_size": 8, "train.evaluations": 4, "optim.lr": 3e-3, "train.checkpoint_every": 2}


def noisy_rows(count: int, seed: int = 0) -> list[dict[str, str]]:
    """A label that the first word tells in three cases of four; two thirds are "high"."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        words = draw.choices(WORDS, k=6)
        truth = words[0] > "fa"
        rows.append({"text": " ".join(words), "label": "high" if truth == (draw.random() < 0.75) else "low"})
    return rows


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes: dict[str, Any] = {"n_layers": 2, "hidden_size": 32, "n_heads": 2, "ffn_size": 64, "n_positions": 48}
    bench = bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), init_range=0.1, seed=3, **sizes)
    return bench.save(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="module")
def run(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> bertworks.Run:
    out = tmp_path_factory.mktemp("selection") / "run"
    return bertworks.finetune(
        noisy_rows(60), dev=noisy_rows(40, seed=1), model=base_model, out=out, steps=16, settings=SETTINGS
    )


# ---------------------------------------------------------------------- the choice of the best evaluation


def share(scores: np.ndarray) -> float:
    return float(scores.mean())


def accuracy(scores: np.ndarray) -> dict[str, float]:
    return {"accuracy": share(scores)}


def test_cross_fitting_is_unbiased_where_the_best_evaluation_is_not() -> None:
    """Ten models that are equally good: the best of them on 100 examples seems 8 points better."""
    generator = np.random.default_rng(0)
    best_errors, cross_fitted_errors = [], []
    for _ in range(150):
        evaluations = [(generator.random((100, 1)) < 0.6).astype(float) for _ in range(10)]
        best_errors.append(share(evaluations[best(share, evaluations)]) - 0.6)
        cross_fitted_errors.append(cross_fitted(accuracy, "accuracy", evaluations)["accuracy"] - 0.6)
    noise = float(np.std(cross_fitted_errors)) / np.sqrt(len(cross_fitted_errors))
    assert np.mean(best_errors) > 0.05
    assert abs(np.mean(cross_fitted_errors)) < 3 * noise < 0.02


def test_examples_without_a_part_in_the_choice_count_as_they_are() -> None:
    chosen = [np.zeros((20, 1)), np.ones((20, 1))]
    others = np.array([[0.0], [0.0], [1.0], [0.0]])
    assert cross_fitted(accuracy, "accuracy", chosen, others) == {"accuracy": 21 / 24}


def test_few_examples_tell_nothing_about_a_choice() -> None:
    """Of two examples, the model that is right on one is judged by the other."""
    assert cross_fitted(accuracy, "accuracy", [np.eye(2)[:, :1], np.eye(2)[:, 1:]]) == {}


def table_of(n_right: int, n: int = 100) -> np.ndarray:
    """Scores of `n` examples, of which so many are right: the same ones, and more."""
    return (np.random.default_rng(7).permutation(n) < n_right).astype(float)[:, None]


def test_of_equal_evaluations_the_latest_is_the_best() -> None:
    assert best(share, [table_of(n) for n in (50, 70, 70, 60)]) == 2


def test_the_jackknife_agrees_with_the_error_of_a_mean_difference() -> None:
    generator = np.random.default_rng(0)
    first, second = ((generator.random((400, 1)) < rate).astype(float) for rate in (0.8, 0.6))
    differences = first - second
    expected = differences.std(ddof=1) / np.sqrt(len(differences))
    assert standard_error(jackknife(share, first) - jackknife(share, second)) == pytest.approx(expected, rel=0.4)
    assert standard_error(jackknife(share, first[:1])) == float("inf")


def test_a_lead_within_one_standard_error_does_not_keep_an_earlier_model() -> None:
    early, late, far_behind = table_of(90), np.roll(table_of(89), 3), table_of(60)
    assert latest_near_best(share, [early, late]) == 1
    assert latest_near_best(share, [early, late, far_behind]) == 1
    assert latest_near_best(share, [early, far_behind]) == 0
    assert latest_near_best(share, [far_behind, early]) == 1
    # A long way down, each step of which is small: compared with the best, not with the one before.
    steps = [table_of(n) for n in range(90, 40, -1)]
    assert latest_near_best(share, steps) < 5


@pytest.mark.parametrize("seed", range(5))
def test_a_run_keeps_what_the_rule_chooses(seed: int) -> None:
    """Step by step, keeping the latest of equal values, a run comes to the choice among all."""
    generator = np.random.default_rng(seed)
    evaluations = [(generator.random((60, 1)) < rate).astype(float) for rate in generator.uniform(0.5, 0.9, 12)]
    values: list[float] = []
    kept = 0
    for index, scores in enumerate(evaluations):
        values.append(value_in_choice(share, evaluations[:index], scores))
        kept = index if values[-1] >= max(values) else kept
    assert kept == latest_near_best(share, evaluations)


def test_a_sampled_dev_chooses_the_latest_near_the_best(base_model: Path, tmp_path: Path) -> None:
    """What the run kept, by its rule from the scores that it wrote."""
    settings = {**SETTINGS, "train.evaluate_tokens": 200, "train.evaluations": 20, "train.checkpoint_every": 20}
    run = bertworks.finetune(
        noisy_rows(80), dev=noisy_rows(120, seed=1), model=base_model, out=tmp_path / "run", budget=6, settings=settings
    )
    selection = run.results["selection"]
    kept = read_scores(run.folder)
    criterion = by_metric(run.model.predictor.task.metric_values, "accuracy")
    assert selection["step"] == list(kept)[latest_near_best(criterion, list(kept.values()))]
    assert selection["sampled_examples"] == len(kept[0]) < 120
    assert events(run.folder, "end")[0]["sampled_examples"] == selection["sampled_examples"]
    for index, (event, scores) in enumerate(zip(events(run.folder, "eval"), kept.values(), strict=True)):
        value = value_in_choice(criterion, list(kept.values())[:index], scores)
        assert event["metrics"]["choice_error"] == 1 - value
        assert event["metrics"]["error"] == 1 - event["metrics"]["accuracy"]


@pytest.mark.parametrize("restarted_at", [None, 1, 2, 3])
def test_a_choice_goes_on_in_a_new_process(tmp_path: Path, restarted_at: int | None) -> None:
    """Evaluations of planted models; from one of them on by an object that knows of earlier ones by their files."""
    task = small_task("bert-mini", "classify")
    examples = synthetic_examples("classify", 100)
    features = task.features(examples, sliding_windows())
    answers = [prediction.label for prediction in predict(task, features, examples)]
    rights = [90, 88, 60, 87]  # of 100 answers, as the labels are chosen for it; the last is near the best, and kept
    log = Log(tmp_path, lambda event: None, since=0)
    policy = EvaluationPolicy(lambda step: {}, lambda: None, monitor=CHOICE_ERROR)
    evaluation, state = None, State()
    for step, n_right in enumerate(rights):
        if evaluation is None or step == restarted_at:
            evaluation = DevEvaluation(
                task, features, examples, "accuracy", is_sampled=True, run=tmp_path, keeps_scores=True
            )
        order = np.random.default_rng(step).permutation(100)
        evaluation.examples = [
            Example(example.texts, answer if place < n_right else {"high": "low", "low": "high"}[answer])
            for example, answer, place in zip(examples, answers, order.tolist(), strict=True)
        ]
        metrics = evaluation(step)
        log.write(Evaluated(step=step, metrics=metrics))
        state = policy.update(replace(state, step=step), metrics)
    log.close()
    assert [event["metrics"]["accuracy"] for event in events(tmp_path, "eval")] == [0.9, 0.88, 0.6, 0.87]
    assert (state.best_step, state.best) == (3, pytest.approx(0.1))


def test_models_that_are_lost_have_no_part_in_the_choice(tmp_path: Path) -> None:
    write_scores(tmp_path, 1, table_of(90))
    write_scores(tmp_path, 2, table_of(60))
    log = Log(tmp_path, lambda event: None, since=0)
    log.write(Evaluated(step=1, metrics={"accuracy": 0.9}))
    assert [scores.mean() for scores in earlier_scores(tmp_path, 3)] == [0.9]
    log.write(Remarked(step=1, code=BEST_MODEL_LOST, text="lost"))
    log.write(Evaluated(step=2, metrics={"accuracy": 0.6}))
    log.close()
    assert [scores.mean() for scores in earlier_scores(tmp_path, 3)] == [0.6]
    assert earlier_scores(tmp_path, 2) == []
    assert History.read(tmp_path, 2, range(100)).steps == [2]


def test_results_say_how_the_model_was_chosen(run: bertworks.Run) -> None:
    evaluated = events(run.folder, "eval")
    best = max(evaluated, key=lambda event: (event["metrics"]["accuracy"], event["step"]))
    selection = run.results["selection"]
    assert (selection["step"], selection["n_evaluations"]) == (best["step"], 4)
    assert run.metrics["accuracy"] == best["metrics"]["accuracy"]
    assert selection["last"] == {name: evaluated[-1]["metrics"][name] for name in run.metrics}
    tables = [np.load(path) for path in sorted((run.folder / EVALUATIONS).iterdir())]
    task = run.model.predictor.task
    assert selection["cross_fitted"] == cross_fitted(task.metric_values, "accuracy", tables)
    assert selection["cross_fitted"]["accuracy"] <= run.metrics["accuracy"]
    low, high = run.results["intervals"]["accuracy"]
    assert low < selection["cross_fitted"]["accuracy"] < high
    (finished,) = events(run.folder, "end")
    for name, value in selection.items():
        assert finished[{"step": "best_step"}.get(name, name)] == value
    assert finished["baseline"] == run.results["baseline"]
    assert finished["epochs"] == 2.0


def test_the_baseline_is_the_majority_class(run: bertworks.Run) -> None:
    majority = Counter(row["label"] for row in noisy_rows(60)).most_common(1)[0][0]
    share = sum(row["label"] == majority for row in noisy_rows(40, seed=1)) / 40
    assert run.results["baseline"]["accuracy"] == share
    assert run.results["baseline"]["matthews"] == 0.0


@pytest.mark.parametrize("shape", ["classify", "regress", "multilabel", "tag", "choice"])
def test_every_shape_but_span_has_a_baseline(shape: str) -> None:
    task = small_task("bert-mini", shape)
    train, dev = synthetic_examples(shape, 31), synthetic_examples(shape, 30, seed=1)
    values = baseline_metrics(task, train, task.features(dev, sliding_windows()), dev)
    assert values.keys() == {metric.name for metric in task.metrics}
    if shape == "regress":
        mean = np.mean([example.answer for example in train])
        assert values["mae"] == pytest.approx(np.mean([abs(example.answer - mean) for example in dev]), rel=1e-5)
    if shape == "choice":
        most_frequent = Counter(example.answer for example in train).most_common(1)[0][0]
        assert values["accuracy"] == np.mean([example.answer == most_frequent for example in dev])


def test_a_resumed_run_has_the_same_evaluations(run: bertworks.Run, tmp_path: Path) -> None:
    """From a checkpoint in the middle, with evaluations after it and a stray one that will not come again."""
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    (copy / "results.json").unlink()
    for step in sorted((copy / CHECKPOINTS).iterdir())[1:]:
        shutil.rmtree(step)
    (kept,) = (copy / CHECKPOINTS).iterdir()
    assert int(kept.name.removeprefix("step-")) < 16, "the best model is not the last one"
    np.save(copy / EVALUATIONS / "step-00000015.npy", np.zeros((40, 2)))
    resumed = bertworks.Run(copy).resume()
    assert digest(copy) == digest(run.folder)
    assert sorted(path.name for path in (copy / EVALUATIONS).iterdir()) == [
        f"step-{step:08}.npy" for step in (4, 8, 12, 16)
    ]
    assert resumed.results["selection"] == run.results["selection"]


def test_evaluations_after_a_checkpoint_are_discarded(tmp_path: Path) -> None:
    (tmp_path / EVALUATIONS).mkdir()
    for step in (4, 8, 12):
        np.save(tmp_path / EVALUATIONS / f"step-{step:08}.npy", np.zeros((1, 1)))
    discard_later(tmp_path, 8)
    assert sorted(path.name for path in (tmp_path / EVALUATIONS).iterdir()) == [
        "step-00000004.npy",
        "step-00000008.npy",
    ]


# ---------------------------------------------------------------------- a resumed run without its best model


@pytest.fixture(scope="module")
def early_best(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> bertworks.Run:
    """Its first evaluation is the best, its last checkpoint is another; it is not finished."""
    evaluate = DevEvaluation.__call__

    def worse_and_worse(self: DevEvaluation, step: int) -> dict[str, float]:
        return {**evaluate(self, step), "error": step / 100}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DevEvaluation, "__call__", worse_and_worse)
        patch.setattr("bertworks.runs.finetune.finalise", stop)
        out = tmp_path_factory.mktemp("early") / "run"
        with pytest.raises(Stopped):
            bertworks.finetune(noisy_rows(60), model=base_model, out=out, steps=16, settings=SETTINGS)
    return bertworks.Run(out)


class Stopped(Exception):
    pass


def stop(*args: Any, **options: Any) -> None:
    raise Stopped


def resume_to_the_end(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("bertworks.runs.finetune.finalise", stop)
        bertworks.Run(folder).resume()


def model_file(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("damage", ["missing", "config.json", "model.safetensors"])
def test_a_lost_model_is_written_from_the_checkpoint_of_the_best_evaluation(
    damage: str, early_best: bertworks.Run, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(early_best.folder, copy)
    if damage == "missing":
        shutil.rmtree(copy / "model")
    else:
        (copy / "model" / damage).write_text("{")
    resume_to_the_end(copy)
    assert model_file(copy) == model_file(early_best.folder)
    assert digest(copy) == digest(early_best.folder)


def test_a_best_model_that_is_gone_is_not_claimed(early_best: bertworks.Run, tmp_path: Path) -> None:
    """Without its checkpoint, the run has the last model, says so, and remembers that."""
    copy = tmp_path / "copy"
    shutil.copytree(early_best.folder, copy)
    shutil.rmtree(copy / "model")
    shutil.rmtree(copy / CHECKPOINTS / "step-00000004")
    for _ in range(2):
        resume_to_the_end(copy)
        assert [event["code"] for event in events(copy, "remark")].count("best-model-lost") == 1
        state = json.loads((copy / CHECKPOINTS / "step-00000016" / "state.json").read_text())["state"]
        assert (state["best"], state["best_step"]) == (None, None)
    assert model_file(copy) != model_file(early_best.folder)
    assert digest(copy) == digest(early_best.folder)
    assert bertworks.Run(copy).resume().results["selection"] is None


def test_a_model_that_may_not_be_read_is_left_alone(
    early_best: bertworks.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(early_best.folder, copy)
    read_bytes = Path.read_bytes

    def forbidden(path: Path) -> bytes:
        if path.parent == copy / "model":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    with refused("unreadable", place="config.json", kind=NotFound):
        bertworks.Run(copy).resume()
    monkeypatch.undo()
    assert model_file(copy) == model_file(early_best.folder) and not (copy / "damaged-model").exists()


@pytest.mark.parametrize("failing", ["folder", "file"])
def test_a_full_disk_at_an_evaluation_does_not_stop_the_training(
    failing: str, run: bertworks.Run, base_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is as good; only the estimate for new examples is missing."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    mkdir, save = Path.mkdir, np.save

    def full_mkdir(path: Path, *args: Any, **options: Any) -> None:
        if path.name == EVALUATIONS:
            raise full
        mkdir(path, *args, **options)

    def full_save(file: Any, table: Any) -> None:
        raise full

    monkeypatch.setattr(Path, "mkdir", full_mkdir if failing == "folder" else mkdir)
    monkeypatch.setattr(np, "save", full_save if failing == "file" else save)
    again = bertworks.finetune(
        noisy_rows(60), dev=noisy_rows(40, seed=1), model=base_model, out=tmp_path / "run", steps=16, settings=SETTINGS
    )
    assert digest(again.folder) == digest(run.folder) and again.metrics == run.metrics
    remarks = [event for event in events(again.folder, "remark") if event["code"] == "scores-not-saved"]
    assert [remark["step"] for remark in remarks] == [4, 8, 12, 16]
    assert (again.results["selection"]["n_evaluations"], again.results["selection"]["cross_fitted"]) == (4, {})


def test_runs_without_kept_evaluations_have_no_estimate(run: bertworks.Run, tmp_path: Path) -> None:
    """As of runs that an older version began."""
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    (copy / "results.json").unlink()
    next((copy / EVALUATIONS).iterdir()).unlink()
    selection = bertworks.Run(copy).resume().results["selection"]
    assert (selection["n_evaluations"], selection["cross_fitted"], selection["last"]) == (4, {}, {})


@pytest.fixture(scope="module")
def seeds_run(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> bertworks.Run:
    return bertworks.finetune(
        noisy_rows(40),
        dev=noisy_rows(30, seed=1),
        model=base_model,
        out=tmp_path_factory.mktemp("seeds") / "run",
        steps=4,
        seeds=2,
        settings=SETTINGS,
    )


def test_seeds_have_the_mean_of_their_estimates(seeds_run: bertworks.Run) -> None:
    seeds = [json.loads((seeds_run.folder / f"seed-{seed}" / "results.json").read_text()) for seed in (0, 1)]
    for key in ("cross_fitted", "last"):
        mean = np.mean([results["selection"][key]["accuracy"] for results in seeds])
        assert seeds_run.results["seeds"][key]["accuracy"] == pytest.approx(mean)


def test_the_report_of_several_seeds_shows_what_its_intervals_are_around(seeds_run: bertworks.Run) -> None:
    page = (seeds_run.folder / "report.html").read_text()
    table = page[page.index("All seeds") : page.index("The best seed")]
    seeds = seeds_run.results["seeds"]
    low, high = seeds["intervals"]["accuracy"]
    cells = [f"{seeds[key]['accuracy']:.1%}" for key in ("mean", "std", "cross_fitted")]
    row = "".join(f"<td[^>]*>{re.escape(cell)}</td>" for cell in (*cells, f"{low:.1%} – {high:.1%}"))
    assert re.search(row, table) and "on new examples" in table and "cross-fitting" in table


@pytest.mark.parametrize("n_seeds", [1, 2])
def test_a_run_without_evaluations_claims_no_choice(base_model: Path, tmp_path: Path, n_seeds: int) -> None:
    for split, count in (("train", 24), ("dev", 30)):
        rows = [f"{row['text']},{row['label']}" for row in noisy_rows(count)]
        (tmp_path / f"{split}.csv").write_text("\n".join(["text,label", *rows]))
    files = ["--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--model", base_model]
    length = ["--steps", "2", "--set", "train.evaluations=0", "--seeds", str(n_seeds)]
    output = run_command("finetune", "classify", *files, *length, "--out", tmp_path / "run").stdout
    page = (tmp_path / "run/report.html").read_text()
    assert f"n={30}" in output and "accuracy" in output
    for shown in (output, page):
        assert not re.search(r"best (of|evaluation)|^best ", shown, re.MULTILINE)


# ---------------------------------------------------------------------- calibration


def outputs_of(logits: np.ndarray) -> list[list[np.ndarray]]:
    return [[row[None]] for row in logits]


def drawn_examples(logits: np.ndarray, generator: np.random.Generator) -> list[Example]:
    """Labels drawn from the probabilities of these logits."""
    labels = config_of("classify").labels
    return [Example(("ba ku",), labels[int(generator.random() > row[0])]) for row in softmax(logits)]


def test_a_temperature_is_used_only_where_it_helps() -> None:
    """A model whose confidence is right on average, and one that is overconfident, on dev sets of 30 examples."""
    task = small_task("bert-mini", "classify")
    generator = np.random.default_rng(0)
    n_used = {1.0: 0, 5.0: 0}
    for _ in range(20):
        for factor in n_used:
            logits = generator.normal(0, 1.5, (30, 2))
            examples = drawn_examples(logits, generator)
            features = task.features(examples, sliding_windows())
            calibration = calibrate(task, outputs_of(factor * logits), features, examples)
            n_used[factor] += calibration.helps
            assert task.temperature == 1.0
            if calibration.helps:
                assert calibration.error_after < calibration.error_before
    assert n_used[5.0] >= 18 > 10 >= n_used[1.0]


def test_the_softmax_of_transformers_is_our_confidence(run: bertworks.Run) -> None:
    """The temperature is folded into the weights of the head."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    artifact = run.model.artifact
    assert artifact is not None
    calibration = run.results["calibration"]
    assert artifact.temperature_in_head == calibration["helps"] == (artifact.temperature != 1.0)
    texts = [row["text"] for row in noisy_rows(6, seed=2)]
    model = AutoModelForSequenceClassification.from_pretrained(run.folder / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(run.folder / "model")
    with torch.no_grad():
        theirs = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.softmax(-1).numpy()
    ours = np.array([list(prediction.scores.values()) for prediction in run.predict(texts)])
    assert np.abs(ours - theirs).max() < 1e-6


@pytest.mark.parametrize("shape", ["classify", "multilabel", "tag", "span", "choice"])
def test_a_temperature_in_the_head_changes_no_prediction(shape: str) -> None:
    task = small_task("bert-mini", shape).eval()
    examples = synthetic_examples(shape, 8)
    features = task.features(examples, sliding_windows())
    task.temperature = 2.5
    predictor = _predictions(task, features, examples)
    artifact = TaskArtifact(task=config_of(shape), temperature=2.5)
    moved = task.move_temperature_to_head(artifact)
    assert moved.temperature_in_head and task.temperature == 1.0
    task.restore(moved)
    assert task.temperature == 1.0
    for before, after in zip(predictor, _predictions(task, features, examples), strict=True):
        assert after == pytest.approx(before, rel=1e-4)


def test_the_threshold_of_no_answer_moves_with_the_temperature() -> None:
    """Between two margins, so that without it an answer would be given or withheld."""
    from bertworks.tasks.inference import run_windows

    task = small_task("bert-mini", "span").eval()
    examples = synthetic_examples("span", 8)
    features = task.features(examples, sliding_windows())
    task.temperature = 2.5

    def predict() -> list[Any]:
        return task.decode_all(run_windows(task, features), features, examples)

    margins = sorted(prediction.margin for prediction in predict())
    threshold = (margins[3] + margins[4]) / 2
    assert abs(threshold) > 1e-3
    task.no_answer = threshold  # type: ignore[attr-defined]
    before = [prediction.answer for prediction in predict()]
    assert before.count("") == 4
    moved = task.move_temperature_to_head(TaskArtifact(task=config_of("span"), temperature=2.5, no_answer=threshold))
    assert [prediction.answer for prediction in predict()] == before
    assert moved.no_answer == pytest.approx(threshold / 2.5)


def test_a_run_that_was_killed_before_its_results_ends_with_the_same_bits(
    run: bertworks.Run, base_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temperature is in the saved head already."""
    out = tmp_path / "run"
    monkeypatch.setattr("bertworks.runs.finetune.write_finetune_report", stop)
    with pytest.raises(Stopped):
        bertworks.finetune(
            noisy_rows(60), dev=noisy_rows(40, seed=1), model=base_model, out=out, steps=16, settings=SETTINGS
        )
    monkeypatch.undo()
    assert json.loads((out / "model/bertworks.json").read_text())["task"]["temperature_in_head"]
    results = bertworks.Run(out).resume().results
    assert model_file(out) == model_file(run.folder)
    assert parts(results) == parts(run.results)


def test_resuming_a_finished_run_changes_nothing(run: bertworks.Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    bertworks.Run(copy).resume()
    for name in ("model/model.safetensors", "results.json", "report.html"):
        assert (copy / name).read_bytes() == (run.folder / name).read_bytes(), name
    assert [event["metrics"] for event in events(copy, "end")] == [run.metrics] * 2


def test_the_model_of_several_seeds_is_that_of_the_best(base_model: Path, tmp_path: Path) -> None:
    run = bertworks.finetune(
        noisy_rows(60),
        dev=noisy_rows(40, seed=1),
        model=base_model,
        out=tmp_path / "run",
        steps=16,
        seeds=2,
        settings=SETTINGS,
    )
    best = run.folder / f"seed-{run.results['seeds']['best']}"
    assert run.model.artifact is not None and run.model.artifact.temperature_in_head
    assert model_file(run.folder) == model_file(best)
    assert run.results["artifact"] == bertworks.Run(best).results["artifact"]
    before = parts(run.results)
    again = run.resume()
    assert model_file(again.folder) == model_file(best)
    assert parts(again.results) == before


def parts(results: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on the folders of the examples."""
    return {key: results[key] for key in ("metrics", "calibration", "artifact", "selection", "example_scores")}


def _predictions(task: Any, features: Any, examples: Any) -> list[list[float]]:
    from bertworks.tasks.inference import run_windows

    predictions = task.decode_all(run_windows(task, features), features, examples)
    return [[confidence for confidence, _ in score.confidences] for score in task.scores(predictions, examples)]


def test_comparisons_say_that_one_run_had_more_choice(run: bertworks.Run, base_model: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "train.evaluations": 2}
    other = bertworks.finetune(
        noisy_rows(60), dev=noisy_rows(40, seed=1), model=base_model, out=tmp_path / "run", steps=4, settings=settings
    )
    codes = [remark.code for remark in compare(run.folder, other.folder).remarks]
    assert "different-evaluations" in codes
    assert "different-evaluations" not in [remark.code for remark in compare(run.folder, run.folder).remarks]
