"""Shapes of tasks: every family learns each of them, windows lose nothing, and what is saved says the same
elsewhere."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bertworks
from bertworks.config import OptimConfig, TaskArtifact, TaskConfig
from bertworks.datasets.example import Example, Span, is_blank
from bertworks.measure.calibration import calibration_error, reliability
from bertworks.model.model import Model
from bertworks.model.resize import use_partial_embedding, with_full_embedding
from bertworks.reports.finetune import _prediction_notes
from bertworks.runs.finetune import build_task
from bertworks.runs.settings import resolve_finetune
from bertworks.tasks.evaluation import Calibration, EvalResults, calibrate_and_score, metric_values
from bertworks.tasks.features import Features, TaskBatch, TokenCounts, Window, collate, token_ids
from bertworks.tasks.inference import BATCH_TOKENS, AnyTask, evaluation_mode, run_windows
from bertworks.tasks.multilabel import MultilabelPrediction
from bertworks.tasks.shapes import SHAPES, make_task, task_class, task_model_config
from bertworks.tasks.span import MAX_ANSWER_TOKENS, SpanPrediction, SpanTask, best_span
from bertworks.tasks.tag import Entity, Tag, TagPrediction, most_context_window
from bertworks.tasks.viterbi import ViterbiDecoder, observed_transitions
from bertworks.tasks.windows import SlidingWindows, WindowRanges, evenly_spaced
from bertworks.text.ledger import Ledger
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.optim import learning_rate, make_optimizer, set_learning_rate
from bertworks.workbench import Workbench
from refusals import refused
from texts import tiny_tokenizer

FAMILIES = ["bert-mini", "roberta-mini", "albert-mini", "electra-mini", "xlnet-mini", "distilbert-mini", "gpt-mini"]
SMALL = {"hidden_size": 64, "n_heads": 2, "ffn_size": 128, "n_layers": 2, "dropout": 0.0, "attention_dropout": 0.0}
WORDS = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru"]


def synthetic_examples(shape: str, count: int = 16, length: int = 8, seed: int = 0) -> list[Example]:
    """Examples whose answers can be learned from their words."""
    rng = random.Random(seed)
    examples = []
    for _ in range(count):
        words = rng.choices(WORDS, k=length)
        text = " ".join(words)
        first = rng.randrange(1, length - 2)
        match shape:
            case "classify":
                examples.append(Example((text,), "low" if words[0] < "go" else "high"))
            case "regress":
                examples.append(Example((text, words[1]), 100.0 + 20 * words.count("ba")))
            case "multilabel":
                examples.append(Example((text,), tuple(word for word in ("ba", "ku") if word in words)))
            case "tag":
                examples.append(Example(tuple(words), tuple("B-x" if word < "go" else "O" for word in words)))
            case "span":
                start = sum(len(word) + 1 for word in words[:first])
                examples.append(Example((words[first], text), (Span(start, f"{words[first]} {words[first + 1]}"),)))
            case "choice":
                examples.append(Example((text, *rng.sample(WORDS, k=rng.choice([2, 3]))), rng.randrange(2)))
    return examples


def config_of(shape: str) -> TaskConfig:
    labels = {"classify": ("high", "low"), "multilabel": ("ba", "ku"), "tag": ("B-x", "O")}.get(shape, ())
    scale = {"shift": 110.0, "scale": 20.0} if shape == "regress" else {}
    return TaskConfig(
        shape=shape, labels=labels, metric=task_class(shape).metrics[0].name, pairs=shape == "regress", **scale
    )


def small_sizes(preset: str) -> dict[str, Any]:
    return {
        **SMALL,
        **({} if preset == "xlnet-mini" else {"n_positions": 64}),
        **({"embedding_size": 32} if preset in ("albert-mini", "electra-mini") else {}),
        "init_range": 0.1,
    }


def small_task(preset: str, shape: str) -> AnyTask:
    return new_task(preset, shape, **small_sizes(preset))


def new_task(preset: str, shape: str, **overrides: Any) -> AnyTask:
    bench = bertworks.new(preset, tokenizer=tiny_tokenizer(), **overrides)
    config = task_model_config(bench.config, config_of(shape))
    return make_task(Model.fresh(config, [task_class(shape).head], seed=1), config_of(shape))


def sliding_windows(limit: int = 64, overlap: int = 4, on_long: Any = "window") -> SlidingWindows:
    return SlidingWindows(tiny_tokenizer(), limit, overlap, on_long)


def train_and_predict(task: AnyTask, examples: list[Example], steps: int = 80, lr: float = 3e-3) -> list[Any]:
    features = task.features(examples, sliding_windows())
    batch = collate(features, np.arange(len(features)))
    optimiser = torch.optim.Adam(task.parameters(), lr)
    task.train()
    for _ in range(steps):
        optimiser.zero_grad()
        counts = task.counts(batch)
        sum(term.weight * term.total / counts[term.name] for term in task(batch) if term.weight).backward()  # type: ignore[union-attr]
        optimiser.step()
    return predict(task, features, examples)


def predict(task: AnyTask, features: Sequence[Features], examples: Sequence[Example]) -> list[Any]:
    with evaluation_mode(task):
        return task.decode_all(run_windows(task, features), features, examples)


MAIN_METRIC = {
    "classify": "accuracy",
    "regress": "pearson",
    "multilabel": "f1",
    "tag": "entity_f1",
    "span": "f1",
    "choice": "accuracy",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preset", FAMILIES)
def test_sixteen_examples_are_memorised(preset: str, shape: str) -> None:
    torch.manual_seed(0)
    examples = synthetic_examples(shape)
    task = small_task(preset, shape)
    before = metric_values(task, predict(task, task.features(examples, sliding_windows()), examples), examples)[
        MAIN_METRIC[shape]
    ]
    after = metric_values(task, train_and_predict(task, examples), examples)[MAIN_METRIC[shape]]
    assert after > 0.95 and before < 0.9, (before, after)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preset", FAMILIES)
def test_sixteen_examples_are_memorised_in_full_size(preset: str, shape: str) -> None:
    torch.manual_seed(0)
    examples = synthetic_examples(shape)
    task = new_task(preset, shape, dropout=0.0, attention_dropout=0.0)
    after = metric_values(task, train_and_predict(task, examples, steps=300, lr=3e-4), examples)[MAIN_METRIC[shape]]
    assert after > 0.95


def test_partial_embedding_trains_as_the_full_one() -> None:
    """Against dense AdamW on the full embedding, in float64: rows that occur, rows that occur late, and never."""
    examples = synthetic_examples("classify", 12, seed=3)
    full = small_task("bert-mini", "classify").double().train()
    partial = small_task("bert-mini", "classify").double().train()
    features = full.features(examples, sliding_windows())
    use_partial_embedding(partial.model, torch.from_numpy(token_ids(features)))
    n_rows = len(partial.model.encoder.embed.tokens.weight)
    assert n_rows < 60 < full.model.config.encoder.vocab_size
    optim = OptimConfig(lr=1e-2, weight_decay=0.3, layer_decay=0.9)
    for task in (full, partial):
        optimiser = make_optimizer(task, optim)
        if task is full:
            table = full.model.encoder.embed.tokens.weight
            (group,) = (
                group for group in optimiser.param_groups if any(parameter is table for parameter in group["params"])
            )
            group["params"] = [parameter for parameter in group["params"] if parameter is not table]
            optimiser.add_param_group({"params": [table], "weight_decay": 0.0, "share": group["share"]})
        for step in range(30):
            members = np.arange(4) + (4 if step > 10 else 0) + (4 if step > 20 else 0)
            optimiser.zero_grad()
            torch.manual_seed(step)  # the head's dropout
            task(collate(features, members))[0].total.backward()
            set_learning_rate(optimiser, learning_rate(optim, step / 30))
            optimiser.step()
    expected = full.model.state_dict()
    actual = with_full_embedding(partial.model).state_dict()
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=0, atol=1e-10)
    with pytest.raises(IndexError):
        partial.model.encoder.embed.tokens(torch.tensor([full.model.config.encoder.vocab_size - 1]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preset", FAMILIES)
def test_all_trained_parameters_have_a_gradient(preset: str, shape: str) -> None:
    """In distributed training, the processes wait for the gradient of each of them."""
    bench = bertworks.new(preset, tokenizer=tiny_tokenizer(), **small_sizes(preset))
    config = resolve_finetune(bench, config_of(shape), settings={"train.steps": 1})
    examples = synthetic_examples(shape)
    task = build_task(config, bench, examples)
    batch = collate(task.features(examples, sliding_windows()), np.arange(16))
    sum(term.total for term in task(batch) if term.weight).backward()  # type: ignore[union-attr]
    assert not [
        name for name, parameter in task.named_parameters() if parameter.requires_grad and parameter.grad is None
    ]


# ---------------------------------------------------------------------- other tokenizers

SENTENCE = "In 1913 , naïve Peter de Ruiz moved to New York ; he liked it there ."


@pytest.mark.parametrize("name", ["gpt2", "roberta", "xlnet", "albert-base-v2", "bert-base-cased", "bert-base-chinese"])
def test_words_and_answers_are_aligned_with_any_tokenizer(name: str, shared: Path) -> None:
    tokenizer = Tokenizer.load(shared / "vocab" / name)
    words = SENTENCE.split()
    tag = small_task("bert-mini", "tag")
    span = small_task("bert-mini", "span")
    (features,) = tag.features([Example(tuple(words))], SlidingWindows(tokenizer, 64, 8, "window"))
    (window,) = features.windows
    pieces = [tokenizer.backend.decode([int(window.ids[i])]).strip().lower() for i in window.positions]
    assert len(pieces) == len(words)
    for piece, word in zip(pieces, words, strict=True):
        plain = word.lower().replace("ï", "i")
        assert plain.startswith(piece.replace("ï", "i")) or not piece.isalnum(), (piece, word)
    for answer in ("Peter de Ruiz", "York", "1913", "there"):
        example = Example(("Who?", SENTENCE), (Span(SENTENCE.index(answer), answer),))
        (features,) = span.features([example], SlidingWindows(tokenizer, 64, 8, "window"))
        (window,) = features.windows
        output = np.zeros((len(window.positions), 2))
        output[window.targets, [0, 1]] = 9
        prediction = span.decode([output], features, example)
        assert prediction.answer == answer and SENTENCE[prediction.start :].startswith(answer)


def test_gpt_separates_the_two_texts_of_a_pair(shared: Path) -> None:
    gpt = SlidingWindows(Tokenizer.load(shared / "vocab/gpt2"), 64, 8, "window")
    task = small_task("bert-mini", "regress")
    first, second = task.features([Example(("He plays", " tennis well")), Example(("He", " plays tennis well"))], gpt)
    assert first.windows[0].ids.tolist() != second.windows[0].ids.tolist()
    assert gpt.capacity(1) == 64 and gpt.capacity(2) == 63
    span = small_task("gpt-mini", "span")
    (features,) = span.features([Example(("Who?", "It was I."), ())], gpt)
    assert features.windows[0].positions[0] == len(features.windows[0].ids) - 1, (
        "the last token sees all that precede it"
    )


# ---------------------------------------------------------------------- windows


@given(st.text(st.characters(exclude_categories=["L", "N", "P", "Cs"]), min_size=1))
def test_text_that_is_not_blank_has_tokens(text: str) -> None:
    assert is_blank(text) or len(minilm().encode([text])[0])


@cache
def minilm() -> Tokenizer:
    return bertworks.load("minilm").tokenizer


@given(st.integers(1, 500), st.integers(1, 60), st.integers(0, 80))
def test_windows_cover_every_token(length: int, capacity: int, overlap: int) -> None:
    windows = evenly_spaced(length, capacity, overlap)
    assert {i for begin, end in windows for i in range(begin, end)} == set(range(length))
    assert all(0 < end - begin <= capacity for begin, end in windows)
    shared = min(overlap, capacity // 2)
    for (_, end), (begin, _) in pairwise(windows):
        assert end - begin >= shared


@given(st.integers(1, 200), st.integers(1, 200), st.integers(8, 40))
def test_windows_of_a_pair_cover_both_texts_and_repeat_the_shorter(a: int, b: int, limit: int) -> None:
    windows = sliding_windows(limit).ranges((a, b), "here")
    assert all(sum(end - begin for begin, end in window.texts) + 3 <= limit for window in windows)
    for text, length in enumerate((a, b)):
        assert {i for window in windows for i in range(*window.texts[text])} == set(range(length))
    if min(a, b) <= (limit - 3) // 2 and a + b + 3 > limit:
        shorter = int(b < a)
        assert all(window.texts[shorter] == (0, min(a, b)) for window in windows)


def test_windows_of_two_long_texts_do_not_grow_quadratically() -> None:
    """Short texts: each part of one with each part of the other. For books that would be millions of windows."""
    short, long = (sliding_windows(256, 64).ranges((length, length), "here") for length in (300, 20_000))
    sides = [{window.texts[text] for window in short} for text in (0, 1)]
    assert {window.texts for window in short} == set(product(*sides)) and len(short) > 4
    assert len(long) < 3 * 20_000 / (126 - 64)
    for text in (0, 1):
        assert {i for window in long for i in range(*window.texts[text])} == set(range(20_000))
        assert all(window.texts[text][1] - following.texts[text][0] >= 63 for window, following in pairwise(long))


@settings(max_examples=40)
@given(st.integers(1, 300), st.integers(4, 40), st.integers(0, 20))
def test_every_word_is_tagged_once(words: int, limit: int, overlap: int) -> None:
    task = Tag(small_task("bert-mini", "tag").model, config_of("tag"))
    rng = random.Random(words)
    example = Example(tuple("".join(rng.choices(WORDS, k=rng.randint(1, 3))) for _ in range(words)))
    (features,) = task.features([example], sliding_windows(limit, overlap))
    assert sorted(np.concatenate([window.origins for window in features.windows]).tolist()) == list(range(words))
    assert all(len(window.ids) <= limit for window in features.windows)
    for window in features.windows:  # the first piece of each word is the one that is classified
        for position, word in zip(window.positions, window.origins, strict=True):
            piece = sliding_windows().tokenizer.piece(int(window.ids[position]))
            assert piece is not None
            assert not piece.startswith("##")
            assert example.texts[word].startswith(piece)


def test_a_word_is_read_in_the_window_with_most_context() -> None:
    windows = [WindowRanges(((0, 10),)), WindowRanges(((5, 15),)), WindowRanges(((10, 20),))]
    assert most_context_window(np.array([0, 6, 7, 8, 12, 13, 19]), windows, 20).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert most_context_window(np.array([0, 9, 12]), windows[:1], 20).tolist() == [0, 0, -1]


def test_truncation_is_counted_and_refusal_names_the_place() -> None:
    task = small_task("bert-mini", "classify")
    long_example = Example((" ".join(WORDS * 10),), "low", "file.csv, line 7")
    (features,) = task.features([long_example], sliding_windows(32, on_long="truncate"))
    assert len(features.windows) == 1 and features.tokens == TokenCounts(100, lost=70)
    (features,) = task.features([long_example], sliding_windows(32))
    assert len(features.windows) == 4 and features.tokens.lost == 0
    with refused("too-long", place="file.csv, line 7"):
        task.features([long_example], sliding_windows(32, on_long="error"))
    with refused("no-tokens", place="file.csv, line 7"):
        task.features([Example(("\u200d",), "low", "file.csv, line 7")], sliding_windows())


@given(st.integers(0, 2**32 - 1), st.integers(24, 64), st.integers(0, 16))
def test_some_window_contains_the_answer(seed: int, limit: int, overlap: int) -> None:
    """For answers no longer than the overlap of neighbouring windows."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(WORDS, k=rng.randint(1, 3))) for _ in range(rng.randint(5, 80))]
    first = rng.randrange(len(words))
    answer = " ".join(words[first : first + 1])
    start = len(" ".join(words[:first])) + (first > 0)
    example = Example(("ba", " ".join(words)), (Span(start, answer),))
    task = small_task("bert-mini", "span")
    (features,) = task.features([example], sliding_windows(limit, max(3, overlap)))
    texts = set()
    for window in features.windows:
        a, b = window.targets
        if a:
            texts.add(example.texts[1][window.origins[a, 0] : window.origins[b, 1]])
    assert texts == {answer}


def test_best_span_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 50, 200):
        table = rng.normal(size=(size, 2))
        table[:1, 0] += 9  # so that the best end is often too far away
        pairs = {
            (a, b): table[a, 0] + table[b, 1] for a in range(size) for b in range(a, min(size, a + MAX_ANSWER_TOKENS))
        }
        best = best_span(np.concatenate([[[99.0, 99.0]], table]), 3)  # the first row is "no answer here"
        assert (best.first - 1, best.last - 1) == max(pairs, key=pairs.__getitem__)
        assert best.score == pytest.approx(max(pairs.values()))
        assert best.window == 3


def test_no_answer_is_predicted_when_its_score_is_higher() -> None:
    task = small_task("bert-mini", "span")
    assert isinstance(task, SpanTask)
    example = Example(("ba", "de fi go"), ())
    (features,) = task.features([example], sliding_windows())
    output = [np.array([[5.0, 5.0], [1, 0], [0, 1], [0, 0]])]
    task.no_answer = 0.0
    assert task.decode(output, features, example).answer == ""
    task.no_answer = 9.0
    prediction = task.decode(output, features, example)
    assert prediction.answer == "de fi"
    assert prediction.start == 0
    assert prediction.margin == pytest.approx(8.0)


# ---------------------------------------------------------------------- predictions


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preset", FAMILIES)
def test_predictions_do_not_depend_on_the_rest_of_the_batch(preset: str, shape: str) -> None:
    task = small_task(preset, shape)
    examples = [*synthetic_examples(shape, 12, 8), *synthetic_examples(shape, 6, 40, seed=3)]
    features = task.features(examples, sliding_windows(32))
    alone = [predict(task, [feature], [example])[0] for feature, example in zip(features, examples, strict=True)]
    for expected, prediction in zip(alone, predict(task, features, examples), strict=True):
        assert np.allclose(np.array(_numbers(vars(expected))), np.array(_numbers(vars(prediction))), atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_text_is_read_in_several_batches(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts may have any length: their windows are run in several batches and joined in one prediction."""
    task = small_task("bert-mini", shape)
    batch_sizes: list[int] = []
    logits = task.logits

    def counting_logits(batch: TaskBatch) -> torch.Tensor:
        batch_sizes.append(len(batch.ids))
        return logits(batch)

    monkeypatch.setattr(task, "logits", counting_logits)
    book = synthetic_examples(shape, 1, 4000)
    features = task.features(book, sliding_windows(64))
    (prediction,) = predict(task, features, book)
    assert len(batch_sizes) > 1 and max(batch_sizes) <= BATCH_TOKENS
    monkeypatch.setattr("bertworks.tasks.inference.BATCH_TOKENS", 10**9)
    assert np.allclose(_numbers(vars(prediction)), _numbers(vars(predict(task, features, book)[0])), atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "abstains"), [*((shape, False) for shape in SHAPES if shape != "regress"), ("span", True)]
)
def test_confidences_are_calibrated_without_changing_predictions(
    shape: str, abstains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overconfident model is calibrated without a change of its predictions, and abstains below a threshold."""
    torch.manual_seed(0)
    task = small_task("bert-mini", shape)
    train_examples = synthetic_examples(shape, 16)
    dev_examples = synthetic_examples(shape, 80, 20 if shape == "tag" else 8, seed=1)
    if abstains:  # a question that is not in the passage
        train_examples, dev_examples = (
            [
                replace(example, texts=("?", example.texts[1]), answer=()) if i % 3 else example
                for i, example in enumerate(examples)
            ]
            for examples in (train_examples, dev_examples)
        )
        task = abstaining_task(task.model)
    train_and_predict(task, train_examples)
    logits = task.logits
    monkeypatch.setattr(task, "logits", lambda batch: 4 * logits(batch))
    features = task.features(dev_examples, sliding_windows())
    before = predict(task, features, dev_examples)
    results, changes = calibrate_and_score(task, features, dev_examples, TaskArtifact(task=config_of(shape)))
    after = predict(task, features, dev_examples)
    assert task.temperature == changes.temperature > 1.2
    calibration = results.calibration
    assert calibration is not None and calibration.error_after < calibration.error_before
    confidences, is_right = np.array(
        [pair for score in task.scores(after, dev_examples) for pair in score.confidences]
    ).T
    assert calibration.helps and calibration.bins == reliability(confidences, is_right > 0)
    assert abs(calibration.error_after - calibration_error(confidences, is_right > 0)) < 0.05, "cross-validated"
    assert 0.02 < is_right.mean() < 1 and abs(confidences.mean() - is_right.mean()) < 0.25
    field = {"classify": "label", "multilabel": "labels", "tag": "tags", "span": "answer", "choice": "choice"}[shape]
    if abstains:
        assert results.tuned == {"no_answer": task.no_answer}
        assert changes.no_answer == task.no_answer != 0
        assert {prediction.answer == "" for prediction in after} == {True, False}
    else:
        assert [getattr(prediction, field) for prediction in before] == [
            getattr(prediction, field) for prediction in after
        ]
    assert max(map(_lowest_confidence, after)) < max(map(_lowest_confidence, before))
    assert all(prediction.abstain_below(0.0) == prediction and not prediction.abstained for prediction in after)
    assert all(prediction.abstain_below(1.01).abstained for prediction in after)
    middle = sorted(map(_lowest_confidence, after))[40]
    abstained = [prediction.abstain_below(middle).abstained for prediction in after]
    assert abstained == [_lowest_confidence(prediction) < middle for prediction in after]
    assert any(abstained)
    assert not all(abstained)


def abstaining_task(model: Model) -> SpanTask:
    """A task that may predict "no answer"."""
    return SpanTask(model, TaskConfig(shape="span", no_answer=True))


def _lowest_confidence(prediction: Any) -> float:
    """The confidence of the least confident part of a prediction."""
    if hasattr(prediction, "confidence"):
        return float(prediction.confidence)
    confidences = (
        prediction.confidences
        if hasattr(prediction, "confidences")
        else [max(probability, 1 - probability) for probability in prediction.scores.values()]
    )
    return float(min(confidences))


@pytest.mark.parametrize("no_answer", [np.inf, -1e6])
def test_calibration_loss_is_the_log_loss_of_the_confidences(no_answer: float) -> None:
    task = abstaining_task(small_task("bert-mini", "span").model)
    examples = synthetic_examples("span", 12, 40)
    task.no_answer = no_answer
    examples = [replace(example, answer=()) if i % 3 == 0 else example for i, example in enumerate(examples)]
    features = task.features(examples, sliding_windows(32, 12))
    outputs = [[5 * table for table in tables] for tables in run_windows(task, features)]
    predictions = task.decode_all(outputs, features, examples)
    loss = task.calibration_loss(outputs, predictions, features, examples)
    for task.temperature in (0.7, 1.0, 5.0):
        confidences = np.array([prediction.confidence for prediction in task.decode_all(outputs, features, examples)])
        is_right = np.array([exact for score in task.scores(predictions, examples) for _, exact in score.confidences])
        smoothed = np.where(is_right, 13 / 14, 1 / 14)  # smoothed by one more error than was observed
        assert loss(task.temperature) == pytest.approx(
            -(smoothed * np.log(confidences) + (1 - smoothed) * np.log(1 - confidences)).sum(), rel=1e-6
        )
    assert any(is_right) == (no_answer < 0)


def test_temperature_does_not_change_the_decoded_tags() -> None:
    labels = ("B-x", "I-x", "E-x", "S-x", "O")
    transitions = observed_transitions([["B-x", "I-x", "E-x", "O", "S-x", "O", "B-x", "E-x", "S-x", "B-x", "E-x"]] * 9)
    task = Tag(small_task("bert-mini", "tag").model, TaskConfig(shape="tag", labels=labels, transitions=transitions))
    rng = np.random.default_rng(0)
    tags = []
    for scale in (1.0, 8.0, 60.0):
        logits = rng.normal(0, scale, (40, 5))
        window = Window(np.zeros(42, np.int64), np.zeros(42, np.int64), positions=np.arange(40), origins=np.arange(40))
        for task.temperature in (0.1, 1.0, 10.0):
            prediction = task.decode([logits], Features((window,), TokenCounts(40), 40), Example(("w",) * 40))
            tags.append(prediction.tags)
            probabilities = task.probabilities([logits], Features((window,), TokenCounts(), 40))
            marginals = ViterbiDecoder(labels, transitions).marginals(probabilities)
            assert prediction.confidences == pytest.approx(
                marginals[range(40), [labels.index(str(tag)) for tag in prediction.tags]]
            )
        assert tags[-1] == tags[-2] == tags[-3] != [labels[i] for i in logits.argmax(1)]


def test_the_no_answer_threshold_is_optimal() -> None:
    rng = np.random.default_rng(0)
    task = abstaining_task(small_task("bert-mini", "span").model)
    passage = "ba de fi"
    examples = []
    predictions = []
    for _ in range(60):
        answer = (Span(0, "ba"),) if rng.random() < 0.6 else ()
        span = ("ba", "de")[int(rng.random() < 0.3)]
        score, no_answer_score = rng.normal(0, 1, 2)
        examples.append(Example(("?", passage), answer))
        predictions.append(SpanPrediction("", -1, 0.5, score - 3 * bool(answer), no_answer_score, span))

    def f1(threshold: float) -> float:
        thresholded = [
            replace(prediction, answer="" if prediction.margin > threshold else prediction.best_span)
            for prediction in predictions
        ]
        return metric_values(task, thresholded, examples)["f1"]

    best_f1 = f1(task.best_threshold(predictions, examples))
    assert best_f1 == pytest.approx(max(map(f1, np.linspace(-9, 9, 4000)))) and best_f1 > f1(0.0)


def test_unknown_tokens_are_counted_once() -> None:
    """A question is read with each window of its passage."""
    for task, example in (
        (small_task("bert-mini", "span"), Example(("漢 ba", "de fi " * 80))),
        (small_task("bert-mini", "classify"), Example(("ba " * 60 + "漢 " * 2 + "de " * 60,))),
    ):
        (features,) = task.features([example], sliding_windows(32, 12))
        assert len(features.windows) > 3
        assert features.tokens.unknown == len(example.texts[0].split("漢")) - 1


@pytest.mark.parametrize("shape", ["classify", "tag", "span", "choice"])
def test_special_tokens_in_a_text_are_counted(shape: str) -> None:
    texts = ("de fi", "ba [MASK] ku")
    examples = [Example(tuple(text.replace("[MASK]", word) for text in texts)) for word in ("go", "[MASK]")]
    features = small_task("bert-mini", shape).features(examples, sliding_windows())
    assert [item.tokens.special for item in features] == [0, 1]
    ledgers = [Ledger(), Ledger()]
    for item, ledger in zip(features, ledgers, strict=True):
        item.add_to_ledger(ledger)
    assert str(ledgers[1]).startswith(f"{ledgers[0]}; 1 ")


def test_the_shared_text_of_choices_is_counted_once() -> None:
    task = small_task("bert-mini", "choice")
    example = Example(("ba " * 60, "de fi", "go", "ku de go"), 0)
    (windowed,), (truncated,) = (
        task.features([example], sliding_windows(32, 8, on_long)) for on_long in ("window", "truncate")
    )
    assert windowed.tokens == TokenCounts(66)
    assert truncated.tokens == TokenCounts(66, lost=60 - (32 - 3 - 1)), "tokens that no choice shows are lost"


def test_truncated_words_have_no_tag() -> None:
    example = Example(("ba",) * 40, ("B-x",) * 40)
    task = small_task("bert-mini", "tag")
    features = task.features([example], sliding_windows(12, on_long="truncate"))
    (prediction,) = predict(task, features, [example])
    assert None not in prediction.tags[:10]
    assert set(prediction.tags[10:]) == {None}
    assert not any(prediction.confidences[10:])
    assert metric_values(task, [prediction], [example])["tag_accuracy"] <= 0.25
    assert len(task.score(prediction, example.answer, example.texts).confidences) == 10


def test_abstaining_drops_only_what_is_below_the_threshold() -> None:
    entities = [Entity("x", "ba", 0, 0, 0.9), Entity("x", "ku", 2, 2, 0.4)]
    tag_prediction = TagPrediction(["ba", "de", "ku"], ["B-x", "O", "B-x"], [0.9, 0.8, 0.4], entities).abstain_below(
        0.5
    )
    assert tag_prediction.tags == ["B-x", "O", None] and tag_prediction.entities == entities[:1]
    multilabel_prediction = MultilabelPrediction(
        ["ba", "ku"], {"ba": 0.95, "ku": 0.6, "de": 0.3, "fi": 0.02}
    ).abstain_below(0.8)
    assert multilabel_prediction.labels == ["ba"]
    assert multilabel_prediction.undecided == ["ku", "de"]


def _numbers(values: Any) -> list[float]:
    if isinstance(values, dict):
        return [number for value in values.values() for number in _numbers(value)]
    if isinstance(values, list):
        return [number for value in values for number in _numbers(value)]
    return [float(values)] if isinstance(values, int | float) else []


HF_CLASSES = {
    "classify": "SequenceClassification",
    "regress": "SequenceClassification",
    "multilabel": "SequenceClassification",
}
HF_CLASSES |= {"tag": "TokenClassification", "span": "QuestionAnswering", "choice": "MultipleChoice"}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preset", ["bert-mini", "xlnet-mini", "gpt-mini"])
def test_a_saved_task_predicts_the_same_in_transformers(preset: str, shape: str, tmp_path: Path) -> None:
    import transformers

    task = small_task(preset, shape).eval()
    tokenizer = tiny_tokenizer()
    (example,) = synthetic_examples(shape, 1)
    features = task.features([example], sliding_windows())
    batch = collate(features, np.arange(1))
    model, remaining = task.exported(config_of(shape))
    folder = Workbench(model, tokenizer, bertworks.new("bert-mini").pooling, {}, [], []).save(tmp_path / "model")
    hf_config = json.loads((folder / "config.json").read_text())
    if hf_config["model_type"] == "bertworks":
        assert (preset, shape) == ("gpt-mini", "choice")  # they have no such class
        return
    name = hf_config["architectures"][0]
    assert name.endswith(f"For{HF_CLASSES[shape]}") or name == "XLNetForQuestionAnsweringSimple"
    theirs = getattr(transformers, name).from_pretrained(folder).eval()
    with torch.no_grad():
        ours = task.logits(batch)
        for i, window in enumerate(features[0].windows):
            ids, segments = (torch.from_numpy(values)[None] for values in (window.ids, window.segments))
            hf_inputs = {"input_ids": ids} | ({"token_type_ids": segments} if preset != "gpt-mini" else {})
            if shape == "choice":
                out = theirs(**{key: value[None] for key, value in hf_inputs.items()}).logits[0]
                assert torch.allclose(ours[batch.order.tolist().index(i)], out, atol=1e-5)
            elif shape == "span":
                hf_output = theirs(**hf_inputs)
                out = torch.stack([hf_output.start_logits[0], hf_output.end_logits[0]], -1)
                assert torch.allclose(ours, out[torch.from_numpy(window.positions)], atol=1e-5)
            else:
                out = theirs(**hf_inputs).logits[0]
                expected = out[torch.from_numpy(window.positions)] if shape == "tag" else out[None]
                scaled = ours * 20 + 110 if shape == "regress" else ours
                assert remaining.shift == (
                    110.0 if (preset, shape) == ("gpt-mini", "regress") else 0.0
                )  # their head has no bias
                assert torch.allclose(scaled, expected + remaining.shift, atol=1e-4 if shape == "regress" else 1e-5)


# ---------------------------------------------------------------------- which tag may follow which


def test_transitions_are_learned_from_the_examples() -> None:
    sentences = [["B-per", "E-per", "O", "S-loc"], ["O", "B-loc", "M-loc", "E-loc"]] * 1000
    transitions = observed_transitions([*sentences, ["M-loc", "O"]])  # a labelling error
    assert {
        ("O", "B", False),
        ("B", "E", True),
        ("B", "M", True),
        ("M", "E", True),
        ("E", "O", False),
        ("S", "O", False),
    } <= set(transitions)
    assert not {("O", "M", False), ("M", "O", False), ("B", "E", False), ("B", "O", False)} & set(transitions)
    sparse = observed_transitions([["O"] * 2000 + ["B-x", "I-x", "O"]] * 3)
    scores = np.array([[0.9, 0.1, 0], [0.1, 0.9, 0], [0.4, 0, 0.6]])
    assert ViterbiDecoder(("O", "B-x", "I-x"), sparse).decode(scores).tolist() == [0, 1, 2], (
        "a rare transition is not a labelling error"
    )
    few_examples = observed_transitions(
        [["O"] * 6 + ["B-x", "I-x", "O"]] * 30
    )  # too few to know that no name has three words, or follows another
    assert {("I", "I", True), ("B", "B", True)} <= set(few_examples)
    assert ("O", "I", False) not in few_examples
    bmes = observed_transitions(
        [["B-x", "E-x", *["O"] * 9, "S-y", "O"]] * 60
    )  # but a rule that is never broken is kept
    assert ("E", "B", True) in bmes
    assert not {
        ("B", "S", False),
        ("B", "B", True),
        ("S", "E", False),
        ("E", "E", True),
    } & set(bmes)
    inside = observed_transitions([["O", "I-per", "I-per", "I-loc"]])  # as CoNLL 2003 was first tagged
    assert ("O", "I", False) in inside and ("I", "I", False) in inside


LABELS = ("O", "B-x", "I-x", "B-y", "I-y")


@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(st.floats(0.01, 1), min_size=5, max_size=5), min_size=n, max_size=n)
    )
)
def test_viterbi_finds_the_best_path(rows: list[list[float]]) -> None:
    scores = np.array(rows) / np.array(rows).sum(1, keepdims=True)
    transitions = observed_transitions([["B-x", "I-x", "O", "B-y"], ["B-x", "B-y", "I-y"]])
    costs = ViterbiDecoder(LABELS, transitions).scores

    def probability(path: tuple[int, ...]) -> float:
        allowed = all(not costs[a, b] for a, b in pairwise((-1, *path, -1)))
        return float(np.prod(scores[range(len(path)), path])) if allowed else 0.0

    best = max(product(range(5), repeat=len(rows)), key=probability)
    decoded = tuple(ViterbiDecoder(LABELS, transitions).decode(np.log(scores)).tolist())
    assert probability(decoded) == pytest.approx(probability(best)) and probability(decoded) > 0
    paths = {path: probability(path) for path in product(range(5), repeat=len(rows))}
    marginals = ViterbiDecoder(LABELS, transitions).marginals(scores)
    for word, tag in product(range(len(rows)), range(5)):
        expected = sum(p for path, p in paths.items() if path[word] == tag) / sum(paths.values())
        assert marginals[word, tag] == pytest.approx(expected, abs=1e-9)


def test_a_sentence_without_an_allowed_path_is_still_tagged() -> None:
    assert ViterbiDecoder(("B-x", "O"), [("O", "O", True)]).decode(np.array([[0.9, 0.1], [0.9, 0.1]])).tolist() == [
        1,
        1,
    ]
    without_path = ViterbiDecoder(("B-x", "I-x"), [("B", "I", True)])
    probabilities = np.array([[0.1, 0.9], [0.9, 0.1]])
    assert len(without_path.decode(probabilities)) == 2
    assert np.isfinite(without_path.marginals(probabilities)).all()


def test_decoded_tags_follow_the_transitions() -> None:
    example = Example(("ba", "ku", "de", "fi"))
    model = small_task("bert-mini", "tag").model
    task = make_task(
        model, TaskConfig(shape="tag", labels=("B-x", "I-x", "O"), transitions=(("O", "B", False), ("B", "O", False)))
    )
    assert isinstance(task, Tag)
    features = task.features([example], sliding_windows())
    outputs = [np.log(np.array([[0.2, 0.7, 0.1], [0.1, 0.6, 0.3], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]))]
    prediction = task.decode(outputs, features[0], example)
    assert prediction.tags == ["B-x", "O", "B-x", "O"]
    # Words alone would say 0.2 and 0.3 of the first two; but hardly another sequence is allowed.
    assert all(confidence > 0.8 for confidence in prediction.confidences), prediction.confidences
    task.viterbi = None
    assert task.decode(outputs, features[0], example).tags == ["I-x", "I-x", "B-x", "O"]


@pytest.mark.parametrize(("after", "reason"), [(0.017, "less likely"), (0.03, "does not fall")])
def test_the_report_says_why_a_temperature_is_not_used(after: float, reason: str) -> None:
    """One reason, the one that applies."""
    calibration = Calibration(temperature=0.96, helps=False, error_before=0.024, error_after=after, bins=[])
    ((english, chinese),) = _prediction_notes(
        EvalResults({}, {}, calibration=calibration), small_task("bert-mini", "tag")
    )
    assert reason in english and ("less likely" in english) + ("does not fall" in english) == 1
    assert ("似然下降" in chinese) + ("没有降低" in chinese) == 1
