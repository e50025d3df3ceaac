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
from bertworks.measure.calibration import calibration_error
from bertworks.model.model import Model
from bertworks.model.resize import use_partial_embedding, with_full_embedding
from bertworks.runs.finetune import build_task
from bertworks.runs.settings import resolve_finetune
from bertworks.tasks.evaluation import calibrate_and_score, metric_values
from bertworks.tasks.features import Features, TaskBatch, TokenCounts, Window, collate, token_ids
from bertworks.tasks.inference import BATCH_TOKENS, AnyTask, evaluation_mode, run_windows
from bertworks.tasks.multilabel import MultilabelPrediction
from bertworks.tasks.shapes import SHAPES, make_task, task_class, task_model_config
from bertworks.tasks.span import MAX_ANSWER_TOKENS, SpanPrediction, SpanTask, best_span
from bertworks.tasks.tag import Entity, Tag, TagPrediction, most_context_window
from bertworks.tasks.viterbi import ViterbiDecoder, observed_transitions
from bertworks.tasks.windows import SlidingWindows, WindowRanges, evenly_spaced
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.optim import learning_rate, make_optimizer, set_learning_rate
from bertworks.workbench import Workbench
from refusals import refused
from texts import tiny_tokenizer

FAMILIES = ["bert-mini", "roberta-mini", "albert-mini", "electra-mini", "xlnet-mini", "distilbert-mini", "gpt-mini"]
SMALL = {"hidden_size": 64, "n_heads": 2, "ffn_size": 128, "n_layers": 2, "dropout": 0.0, "attention_dropout": 0.0}
WORDS = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru"]


def examples(shape: str, count: int = 16, length: int = 8, seed: int = 0) -> list[Example]:
    """Answers that follow from the words."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        words = draw.choices(WORDS, k=length)
        text, place = " ".join(words), draw.randrange(1, length - 2)
        match shape:
            case "classify":
                found.append(Example((text,), "low" if words[0] < "go" else "high"))
            case "regress":
                found.append(Example((text, words[1]), 100.0 + 20 * words.count("ba")))
            case "multilabel":
                found.append(Example((text,), tuple(word for word in ("ba", "ku") if word in words)))
            case "tag":
                found.append(Example(tuple(words), tuple("B-x" if word < "go" else "O" for word in words)))
            case "span":
                start = sum(len(word) + 1 for word in words[:place])
                found.append(Example((words[place], text), (Span(start, f"{words[place]} {words[place + 1]}"),)))
            case "choice":
                found.append(Example((text, *draw.sample(WORDS, k=draw.choice([2, 3]))), draw.randrange(2)))
    return found


def config_of(shape: str) -> TaskConfig:
    labels = {"classify": ("high", "low"), "multilabel": ("ba", "ku"), "tag": ("B-x", "O")}.get(shape, ())
    scale = {"shift": 110.0, "scale": 20.0} if shape == "regress" else {}
    return TaskConfig(
        shape=shape, labels=labels, metric=task_class(shape).metrics[0].name, pairs=shape == "regress", **scale
    )


def sizes(preset: str) -> dict[str, Any]:
    return {
        **SMALL,
        **({} if preset == "xlnet-mini" else {"n_positions": 64}),
        **({"embedding_size": 32} if preset in ("albert-mini", "electra-mini") else {}),
        "init_range": 0.1,
    }


def small(preset: str, shape: str) -> AnyTask:
    return fresh(preset, shape, **sizes(preset))


def fresh(preset: str, shape: str, **overrides: Any) -> AnyTask:
    bench = bertworks.new(preset, tokenizer=tiny_tokenizer(), **overrides)
    config = task_model_config(bench.config, config_of(shape))
    return make_task(Model.fresh(config, [task_class(shape).head], seed=1), config_of(shape))


def reader(limit: int = 64, overlap: int = 4, on_long: Any = "window") -> SlidingWindows:
    return SlidingWindows(tiny_tokenizer(), limit, overlap, on_long)


def learn(task: AnyTask, given_examples: list[Example], steps: int = 80, lr: float = 3e-3) -> list[Any]:
    features = task.features(given_examples, reader())
    batch = collate(features, np.arange(len(features)))
    optimiser = torch.optim.Adam(task.parameters(), lr)
    task.train()
    for _ in range(steps):
        optimiser.zero_grad()
        counts = task.counts(batch)
        sum(term.weight * term.total / counts[term.name] for term in task(batch) if term.weight).backward()  # type: ignore[union-attr]
        optimiser.step()
    return predict(task, features, given_examples)


def predict(task: AnyTask, features: Sequence[Features], given_examples: Sequence[Example]) -> list[Any]:
    with evaluation_mode(task):
        return task.decode_all(run_windows(task, features), features, given_examples)


MAIN = {
    "classify": "accuracy",
    "regress": "pearson",
    "multilabel": "f1",
    "tag": "entity_f1",
    "span": "f1",
    "choice": "accuracy",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preset", FAMILIES)
def test_sixteen_examples_are_learned_by_heart(preset: str, shape: str) -> None:
    torch.manual_seed(0)
    given_examples = examples(shape)
    task = small(preset, shape)
    before = metric_values(
        task, predict(task, task.features(given_examples, reader()), given_examples), given_examples
    )[MAIN[shape]]
    after = metric_values(task, learn(task, given_examples), given_examples)[MAIN[shape]]
    assert after > 0.95 and before < 0.9, (before, after)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preset", FAMILIES)
def test_sixteen_examples_are_learned_by_heart_in_full_size(preset: str, shape: str) -> None:
    torch.manual_seed(0)
    given_examples = examples(shape)
    task = fresh(preset, shape, dropout=0.0, attention_dropout=0.0)
    after = metric_values(task, learn(task, given_examples, steps=300, lr=3e-4), given_examples)[MAIN[shape]]
    assert after > 0.95


def test_few_rows_learn_as_all_rows_do() -> None:
    """Against dense AdamW on the whole table, in float64: rows that occur, rows that occur late, rows that never do."""
    given_examples = examples("classify", 12, seed=3)
    whole, few = small("bert-mini", "classify").double().train(), small("bert-mini", "classify").double().train()
    features = whole.features(given_examples, reader())
    use_partial_embedding(few.model, torch.from_numpy(token_ids(features)))
    n_rows = len(few.model.encoder.embed.tokens.weight)
    assert n_rows < 60 < whole.model.config.encoder.vocab_size
    optim = OptimConfig(lr=1e-2, weight_decay=0.3, layer_decay=0.9)
    for task in (whole, few):
        optimiser = make_optimizer(task, optim)
        if task is whole:
            table = whole.model.encoder.embed.tokens.weight
            (group,) = (group for group in optimiser.param_groups if any(one is table for one in group["params"]))
            group["params"] = [one for one in group["params"] if one is not table]
            optimiser.add_param_group({"params": [table], "weight_decay": 0.0, "share": group["share"]})
        for step in range(30):
            members = np.arange(4) + (4 if step > 10 else 0) + (4 if step > 20 else 0)
            optimiser.zero_grad()
            torch.manual_seed(step)  # the head's dropout
            task(collate(features, members))[0].total.backward()
            set_learning_rate(optimiser, learning_rate(optim, step / 30))
            optimiser.step()
    expected, found = whole.model.state_dict(), with_full_embedding(few.model).state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-10)
    with pytest.raises(IndexError):
        few.model.encoder.embed.tokens(torch.tensor([whole.model.config.encoder.vocab_size - 1]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preset", FAMILIES)
def test_all_that_learns_has_a_gradient(preset: str, shape: str) -> None:
    """Processes that train together wait for each of them."""
    start = bertworks.new(preset, tokenizer=tiny_tokenizer(), **sizes(preset))
    config = resolve_finetune(start, config_of(shape), options={"steps": 1})
    given_examples = examples(shape)
    task = build_task(config, start, given_examples)
    batch = collate(task.features(given_examples, reader()), np.arange(16))
    sum(term.total for term in task(batch) if term.weight).backward()  # type: ignore[union-attr]
    assert not [name for name, one in task.named_parameters() if one.requires_grad and one.grad is None]


# ---------------------------------------------------------------------- other tokenizers

SENTENCE = "In 1913 , naïve Peter de Ruiz moved to New York ; he liked it there ."


@pytest.mark.parametrize("name", ["gpt2", "roberta", "xlnet", "albert-base-v2", "bert-base-cased", "bert-base-chinese"])
def test_words_and_answers_are_found_with_any_tokenizer(name: str, shared: Path) -> None:
    tokenizer, words = Tokenizer.load(shared / "vocab" / name), SENTENCE.split()
    tag, span = small("bert-mini", "tag"), small("bert-mini", "span")
    (features,) = tag.features([Example(tuple(words))], SlidingWindows(tokenizer, 64, 8, "window"))
    (window,) = features.windows
    pieces = [tokenizer.backend.decode([int(window.ids[at])]).strip().lower() for at in window.positions]
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
        said = span.decode([output], features, example)
        assert said.answer == answer and SENTENCE[said.start :].startswith(answer)


def test_gpt_tells_two_texts_apart(shared: Path) -> None:
    gpt = SlidingWindows(Tokenizer.load(shared / "vocab/gpt2"), 64, 8, "window")
    task = small("bert-mini", "regress")
    one, other = task.features([Example(("He plays", " tennis well")), Example(("He", " plays tennis well"))], gpt)
    assert one.windows[0].ids.tolist() != other.windows[0].ids.tolist()
    assert gpt.capacity(1) == 64 and gpt.capacity(2) == 63
    span = small("gpt-mini", "span")
    (features,) = span.features([Example(("Who?", "It was I."), ())], gpt)
    assert features.windows[0].positions[0] == len(features.windows[0].ids) - 1, "the end sees all that is before it"


# ---------------------------------------------------------------------- windows


@given(st.text(st.characters(exclude_categories=["L", "N", "P", "Cs"]), min_size=1))
def test_what_is_not_blank_has_tokens(text: str) -> None:
    assert is_blank(text) or len(minilm().encode([text])[0])


@cache
def minilm() -> Tokenizer:
    return bertworks.load("minilm").tokenizer


@given(st.integers(1, 500), st.integers(1, 60), st.integers(0, 80))
def test_windows_hold_everything(length: int, room: int, overlap: int) -> None:
    windows = evenly_spaced(length, room, overlap)
    assert {at for begin, end in windows for at in range(begin, end)} == set(range(length))
    assert all(0 < end - begin <= room for begin, end in windows)
    shared = min(overlap, room // 2)
    for (_, end), (begin, _) in pairwise(windows):
        assert end - begin >= shared


@given(st.integers(1, 200), st.integers(1, 200), st.integers(8, 40))
def test_windows_of_a_pair_hold_every_token_and_the_shorter_text_meets_all_of_the_longer(
    a: int, b: int, limit: int
) -> None:
    cuts = reader(limit).ranges((a, b), "here")
    assert all(sum(end - begin for begin, end in cut.texts) + 3 <= limit for cut in cuts)
    for text, length in enumerate((a, b)):
        assert {at for cut in cuts for at in range(*cut.texts[text])} == set(range(length))
    if min(a, b) <= (limit - 3) // 2 and a + b + 3 > limit:
        shorter = int(b < a)
        assert all(cut.texts[shorter] == (0, min(a, b)) for cut in cuts)


def test_two_long_texts_are_not_squared() -> None:
    """Each part of one meets each of the other while they are few; books would take millions of windows."""
    few, many = (reader(256, 64).ranges((length, length), "here") for length in (300, 20_000))
    sides = [{cut.texts[text] for cut in few} for text in (0, 1)]
    assert {cut.texts for cut in few} == set(product(*sides)) and len(few) > 4
    assert len(many) < 3 * 20_000 / (126 - 64)
    for text in (0, 1):
        assert {at for cut in many for at in range(*cut.texts[text])} == set(range(20_000))
        assert all(one.texts[text][1] - other.texts[text][0] >= 63 for one, other in pairwise(many))


@settings(max_examples=40)
@given(st.integers(1, 300), st.integers(4, 40), st.integers(0, 20))
def test_every_word_is_tagged_once(words: int, limit: int, overlap: int) -> None:
    task = Tag(small("bert-mini", "tag").model, config_of("tag"))
    drawn = random.Random(words)
    example = Example(tuple("".join(drawn.choices(WORDS, k=drawn.randint(1, 3))) for _ in range(words)))
    (features,) = task.features([example], reader(limit, overlap))
    assert sorted(np.concatenate([window.origins for window in features.windows]).tolist()) == list(range(words))
    assert all(len(window.ids) <= limit for window in features.windows)
    for window in features.windows:  # what is read is the first piece of its word
        for place, word in zip(window.positions, window.origins, strict=True):
            piece = reader().tokenizer.piece(int(window.ids[place]))
            assert piece is not None and not piece.startswith("##") and example.texts[word].startswith(piece)


def test_a_word_is_read_where_most_is_seen_around_it() -> None:
    cuts = [WindowRanges(((0, 10),)), WindowRanges(((5, 15),)), WindowRanges(((10, 20),))]
    assert most_context_window(np.array([0, 6, 7, 8, 12, 13, 19]), cuts, 20).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert most_context_window(np.array([0, 9, 12]), cuts[:1], 20).tolist() == [0, 0, -1]


def test_cutting_is_counted_and_refusing_names_the_place() -> None:
    task = small("bert-mini", "classify")
    long = Example((" ".join(WORDS * 10),), "low", "file.csv, line 7")
    (features,) = task.features([long], reader(32, on_long="truncate"))
    assert len(features.windows) == 1 and features.tokens == TokenCounts(100, lost=70)
    (features,) = task.features([long], reader(32))
    assert len(features.windows) == 4 and features.tokens.lost == 0
    with refused("too-long", place="file.csv, line 7"):
        task.features([long], reader(32, on_long="error"))
    with refused("no-tokens", place="file.csv, line 7"):
        task.features([Example(("\u200d",), "low", "file.csv, line 7")], reader())


@given(st.integers(0, 2**32 - 1), st.integers(24, 64), st.integers(0, 16))
def test_an_answer_is_found_again_in_some_window(seed: int, limit: int, overlap: int) -> None:
    """Answers no longer than what neighbouring windows share."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(WORDS, k=draw.randint(1, 3))) for _ in range(draw.randint(5, 80))]
    first = draw.randrange(len(words))
    answer = " ".join(words[first : first + 1])
    start = len(" ".join(words[:first])) + (first > 0)
    example = Example(("ba", " ".join(words)), (Span(start, answer),))
    task = small("bert-mini", "span")
    (features,) = task.features([example], reader(limit, max(3, overlap)))
    texts = set()
    for window in features.windows:
        a, b = window.targets
        if a:
            texts.add(example.texts[1][window.origins[a, 0] : window.origins[b, 1]])
    assert texts == {answer}


def test_best_stretch_is_the_best_of_all() -> None:
    draw = np.random.default_rng(0)
    for size in (1, 2, 7, 50, 200):
        table = draw.normal(size=(size, 2))
        table[:1, 0] += 9  # so that the best end is often too far away
        pairs = {
            (a, b): table[a, 0] + table[b, 1] for a in range(size) for b in range(a, min(size, a + MAX_ANSWER_TOKENS))
        }
        found = best_span(np.concatenate([[[99.0, 99.0]], table]), 3)  # the first row is "not here"
        assert (found.first - 1, found.last - 1) == max(pairs, key=pairs.__getitem__) and found.score == pytest.approx(
            max(pairs.values())
        )
        assert found.window == 3


def test_no_answer_is_said_when_not_here_is_better() -> None:
    task = small("bert-mini", "span")
    assert isinstance(task, SpanTask)
    example = Example(("ba", "de fi go"), ())
    (features,) = task.features([example], reader())
    output = [np.array([[5.0, 5.0], [1, 0], [0, 1], [0, 0]])]
    task.no_answer = 0.0
    assert task.decode(output, features, example).answer == ""
    task.no_answer = 9.0
    said = task.decode(output, features, example)
    assert said.answer == "de fi" and said.start == 0 and said.margin == pytest.approx(8.0)


# ---------------------------------------------------------------------- predictions


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preset", FAMILIES)
def test_predictions_do_not_depend_on_their_company(preset: str, shape: str) -> None:
    task = small(preset, shape)
    many = [*examples(shape, 12, 8), *examples(shape, 6, 40, seed=3)]
    features = task.features(many, reader(32))
    alone = [predict(task, [one], [example])[0] for one, example in zip(features, many, strict=True)]
    for one, other in zip(alone, predict(task, features, many), strict=True):
        a, b = (np.array(_numbers(vars(said))) for said in (one, other))
        assert np.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_book_goes_through_the_model_in_parts(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of any length may be asked: windows are read some at a time, and come together in the answer."""
    task = small("bert-mini", shape)
    sizes: list[int] = []
    logits = task.logits

    def counted(batch: TaskBatch) -> torch.Tensor:
        sizes.append(len(batch.ids))
        return logits(batch)

    monkeypatch.setattr(task, "logits", counted)
    book = examples(shape, 1, 4000)
    features = task.features(book, reader(64))
    (said,) = predict(task, features, book)
    assert len(sizes) > 1 and max(sizes) <= BATCH_TOKENS
    monkeypatch.setattr("bertworks.tasks.inference.BATCH_TOKENS", 10**9)
    assert np.allclose(_numbers(vars(said)), _numbers(vars(predict(task, features, book)[0])), atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "silent"), [*((shape, False) for shape in SHAPES if shape != "regress"), ("span", True)]
)
def test_every_answer_says_how_sure_it_is(shape: str, silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is too sure of itself is calmed, without a change of its answers; and gives none where it is not
    sure enough."""
    torch.manual_seed(0)
    task = small("bert-mini", shape)
    few, many = examples(shape, 16), examples(shape, 80, 20 if shape == "tag" else 8, seed=1)
    if silent:  # a question that is not in the passage
        few, many = (
            [replace(one, texts=("?", one.texts[1]), answer=()) if at % 3 else one for at, one in enumerate(e)]
            for e in (few, many)
        )
        task = silent_task(task.model)
    learn(task, few)
    logits = task.logits
    monkeypatch.setattr(task, "logits", lambda batch: 4 * logits(batch))
    features = task.features(many, reader())
    before = predict(task, features, many)
    results, changes = calibrate_and_score(task, features, many, TaskArtifact(task=config_of(shape)))
    after = predict(task, features, many)
    assert task.temperature == changes.temperature > 1.2
    found = results.calibration
    assert found is not None and found.error_after < found.error_before
    sure, right = np.array([one for score in task.scores(after, many) for one in score.confidences]).T
    assert found.error_after == pytest.approx(calibration_error(sure, right > 0)), (
        "that of the confidence that answers carry"
    )
    assert 0.02 < right.mean() < 1 and abs(sure.mean() - right.mean()) < 0.25
    said = {"classify": "label", "multilabel": "labels", "tag": "tags", "span": "answer", "choice": "choice"}[shape]
    if silent:
        assert results.tuned == {"no_answer": task.no_answer} and changes.no_answer == task.no_answer != 0
        assert {one.answer == "" for one in after} == {True, False}
    else:
        assert [getattr(one, said) for one in before] == [getattr(one, said) for one in after]
    assert max(map(_sureness, after)) < max(map(_sureness, before))
    assert all(one.abstain_below(0.0) == one and not one.abstained for one in after)
    assert all(one.abstain_below(1.01).abstained for one in after)
    middle = sorted(map(_sureness, after))[40]
    unsure = [one.abstain_below(middle).abstained for one in after]
    assert unsure == [_sureness(one) < middle for one in after] and any(unsure) and not all(unsure)


def silent_task(model: Model) -> SpanTask:
    """One that may say that there is no answer."""
    return SpanTask(model, TaskConfig(shape="span", no_answer=True))


def _sureness(answer: Any) -> float:
    """Of the least sure part of an answer."""
    if hasattr(answer, "confidence"):
        return float(answer.confidence)
    parts = (
        answer.confidences if hasattr(answer, "confidences") else [max(one, 1 - one) for one in answer.scores.values()]
    )
    return float(min(parts))


@pytest.mark.parametrize("no_answer", [np.inf, -1e6])
def test_what_a_temperature_costs_is_about_the_confidence_of_answers(no_answer: float) -> None:
    task, many = silent_task(small("bert-mini", "span").model), examples("span", 12, 40)
    task.no_answer = no_answer
    many = [replace(one, answer=()) if at % 3 == 0 else one for at, one in enumerate(many)]
    features = task.features(many, reader(32, 12))
    outputs = [[5 * table for table in tables] for tables in run_windows(task, features)]
    predictions = task.decode_all(outputs, features, many)
    cost = task.calibration_loss(outputs, predictions, features, many)
    for task.temperature in (0.7, 1.0, 5.0):
        sure = np.array([one.confidence for one in task.decode_all(outputs, features, many)])
        right = np.array([exact for score in task.scores(predictions, many) for _, exact in score.confidences])
        likely = np.where(right, 13 / 14, 1 / 14)  # an error more than was seen is reckoned with
        assert cost(task.temperature) == pytest.approx(
            -(likely * np.log(sure) + (1 - likely) * np.log(1 - sure)).sum(), rel=1e-6
        )
    assert any(right) == (no_answer < 0)


def test_no_temperature_changes_the_way_through_a_sentence() -> None:
    labels = ("B-x", "I-x", "E-x", "S-x", "O")
    usual = observed_transitions([["B-x", "I-x", "E-x", "O", "S-x", "O", "B-x", "E-x", "S-x", "B-x", "E-x"]] * 9)
    task = Tag(small("bert-mini", "tag").model, TaskConfig(shape="tag", labels=labels, transitions=usual))
    draw, tags = np.random.default_rng(0), []
    for scale in (1.0, 8.0, 60.0):
        logits = draw.normal(0, scale, (40, 5))
        window = Window(np.zeros(42, np.int64), np.zeros(42, np.int64), positions=np.arange(40), origins=np.arange(40))
        for task.temperature in (0.1, 1.0, 10.0):
            said = task.decode([logits], Features((window,), TokenCounts(40), 40), Example(("w",) * 40))
            tags.append(said.tags)
            assert said.confidences == pytest.approx(
                task.probabilities([logits], Features((window,), TokenCounts(), 40))[
                    range(40), [labels.index(str(t)) for t in said.tags]
                ]
            )
        assert tags[-1] == tags[-2] == tags[-3] != [labels[at] for at in logits.argmax(1)]


def test_the_threshold_of_no_answer_is_the_best_there_is() -> None:
    draw = np.random.default_rng(0)
    task = silent_task(small("bert-mini", "span").model)
    passage, given_examples, predictions = "ba de fi", [], []
    for _ in range(60):
        answer = (Span(0, "ba"),) if draw.random() < 0.6 else ()
        best, score, blank = ("ba", "de")[int(draw.random() < 0.3)], *draw.normal(0, 1, 2)
        given_examples.append(Example(("?", passage), answer))
        predictions.append(SpanPrediction("", -1, 0.5, score - 3 * bool(answer), blank, best))

    def f1(threshold: float) -> float:
        said = [replace(one, answer="" if one.margin > threshold else one.best_span) for one in predictions]
        return metric_values(task, said, given_examples)["f1"]

    found = f1(task.best_threshold(predictions, given_examples))
    assert found == pytest.approx(max(map(f1, np.linspace(-9, 9, 4000)))) and found > f1(0.0)


def test_what_is_unknown_is_counted_once() -> None:
    """A question is read with each window of its passage."""
    for task, example in (
        (small("bert-mini", "span"), Example(("漢 ba", "de fi " * 80))),
        (small("bert-mini", "classify"), Example(("ba " * 60 + "漢 " * 2 + "de " * 60,))),
    ):
        (features,) = task.features([example], reader(32, 12))
        assert len(features.windows) > 3 and features.tokens.unknown == len(example.texts[0].split("漢")) - 1


def test_what_ways_have_in_common_is_counted_once() -> None:
    task, example = small("bert-mini", "choice"), Example(("ba " * 60, "de fi", "go", "ku de go"), 0)
    (windows,), (cut,) = (task.features([example], reader(32, 8, on_long)) for on_long in ("window", "truncate"))
    assert windows.tokens == TokenCounts(66) and cut.tokens == TokenCounts(66, lost=60 - (32 - 3 - 1)), (
        "what no way shows is lost"
    )


def test_words_that_were_not_read_have_no_tag() -> None:
    example = Example(("ba",) * 40, ("B-x",) * 40)
    task = small("bert-mini", "tag")
    features = task.features([example], reader(12, on_long="truncate"))
    (said,) = predict(task, features, [example])
    assert None not in said.tags[:10] and set(said.tags[10:]) == {None} and not any(said.confidences[10:])
    assert metric_values(task, [said], [example])["tag_accuracy"] <= 0.25
    assert len(task.score(said, example.answer, example.texts).confidences) == 10


def test_of_what_is_not_sure_enough_only_that_is_left_out() -> None:
    found = [Entity("x", "ba", 0, 0, 0.9), Entity("x", "ku", 2, 2, 0.4)]
    tagged = TagPrediction(["ba", "de", "ku"], ["B-x", "O", "B-x"], [0.9, 0.8, 0.4], found).abstain_below(0.5)
    assert tagged.tags == ["B-x", "O", None] and tagged.entities == found[:1]
    marked = MultilabelPrediction(["ba", "ku"], {"ba": 0.95, "ku": 0.6, "de": 0.3, "fi": 0.02}).abstain_below(0.8)
    assert marked.labels == ["ba"] and marked.undecided == ["ku", "de"]


def _numbers(values: Any) -> list[float]:
    if isinstance(values, dict):
        return [number for value in values.values() for number in _numbers(value)]
    if isinstance(values, list):
        return [number for value in values for number in _numbers(value)]
    return [float(values)] if isinstance(values, int | float) else []


THEIRS = {
    "classify": "SequenceClassification",
    "regress": "SequenceClassification",
    "multilabel": "SequenceClassification",
}
THEIRS |= {"tag": "TokenClassification", "span": "QuestionAnswering", "choice": "MultipleChoice"}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preset", ["bert-mini", "xlnet-mini", "gpt-mini"])
def test_a_saved_task_says_the_same_in_transformers(preset: str, shape: str, tmp_path: Path) -> None:
    import transformers

    task = small(preset, shape).eval()
    tokenizer = tiny_tokenizer()
    (example,) = examples(shape, 1)
    features = task.features([example], reader())
    batch = collate(features, np.arange(1))
    model, left = task.exported(config_of(shape))
    folder = Workbench(model, tokenizer, bertworks.new("bert-mini").pooling, {}, [], []).save(tmp_path / "model")
    described = json.loads((folder / "config.json").read_text())
    if described["model_type"] == "bertworks":
        assert (preset, shape) == ("gpt-mini", "choice")  # they have no such class
        return
    name = described["architectures"][0]
    assert name.endswith(f"For{THEIRS[shape]}") or name == "XLNetForQuestionAnsweringSimple"
    theirs = getattr(transformers, name).from_pretrained(folder).eval()
    with torch.no_grad():
        ours = task.logits(batch)
        for at, window in enumerate(features[0].windows):
            ids, segments = (torch.from_numpy(values)[None] for values in (window.ids, window.segments))
            given_ids = {"input_ids": ids} | ({"token_type_ids": segments} if preset != "gpt-mini" else {})
            if shape == "choice":
                out = theirs(**{key: value[None] for key, value in given_ids.items()}).logits[0]
                assert torch.allclose(ours[batch.order.tolist().index(at)], out, atol=1e-5)
            elif shape == "span":
                found = theirs(**given_ids)
                out = torch.stack([found.start_logits[0], found.end_logits[0]], -1)
                assert torch.allclose(ours, out[torch.from_numpy(window.positions)], atol=1e-5)
            else:
                out = theirs(**given_ids).logits[0]
                expected = out[torch.from_numpy(window.positions)] if shape == "tag" else out[None]
                scaled = ours * 20 + 110 if shape == "regress" else ours
                assert left.shift == (
                    110.0 if (preset, shape) == ("gpt-mini", "regress") else 0.0
                )  # their head has no bias
                assert torch.allclose(scaled, expected + left.shift, atol=1e-4 if shape == "regress" else 1e-5)


# ---------------------------------------------------------------------- which tag may follow which


def test_what_follows_what_is_seen_in_the_examples() -> None:
    sentences = [["B-per", "E-per", "O", "S-loc"], ["O", "B-loc", "M-loc", "E-loc"]] * 1000
    usual = observed_transitions([*sentences, ["M-loc", "O"]])  # a slip
    assert {
        ("O", "B", False),
        ("B", "E", True),
        ("B", "M", True),
        ("M", "E", True),
        ("E", "O", False),
        ("S", "O", False),
    } <= set(usual)
    assert not {("O", "M", False), ("M", "O", False), ("B", "E", False), ("B", "O", False)} & set(usual)
    sparse = observed_transitions([["O"] * 2000 + ["B-x", "I-x", "O"]] * 3)
    scores = np.array([[0.9, 0.1, 0], [0.1, 0.9, 0], [0.4, 0, 0.6]])
    assert ViterbiDecoder(("O", "B-x", "I-x"), sparse).decode(scores).tolist() == [0, 1, 2], (
        "what is rare in the text is no slip"
    )
    few = observed_transitions(
        [["O"] * 6 + ["B-x", "I-x", "O"]] * 30
    )  # too few to know that no name has three words, or follows another
    assert {("I", "I", True), ("B", "B", True)} <= set(few) and ("O", "I", False) not in few
    ends = observed_transitions(
        [["B-x", "E-x", *["O"] * 9, "S-y", "O"]] * 60
    )  # nor do they say that what they never break is no rule
    assert ("E", "B", True) in ends and not {
        ("B", "S", False),
        ("B", "B", True),
        ("S", "E", False),
        ("E", "E", True),
    } & set(ends)
    inside = observed_transitions([["O", "I-per", "I-per", "I-loc"]])  # as CoNLL 2003 was first tagged
    assert ("O", "I", False) in inside and ("I", "I", False) in inside


LABELS = ("O", "B-x", "I-x", "B-y", "I-y")


@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(st.floats(0.01, 1), min_size=5, max_size=5), min_size=n, max_size=n)
    )
)
def test_the_best_way_is_the_best_of_all(rows: list[list[float]]) -> None:
    scores = np.array(rows) / np.array(rows).sum(1, keepdims=True)
    usual = observed_transitions([["B-x", "I-x", "O", "B-y"], ["B-x", "B-y", "I-y"]])
    costs = ViterbiDecoder(LABELS, usual).scores

    def chance(way: tuple[int, ...]) -> float:
        allowed = all(not costs[a, b] for a, b in pairwise((-1, *way, -1)))
        return float(np.prod(scores[range(len(way)), way])) if allowed else 0.0

    best = max(product(range(5), repeat=len(rows)), key=chance)
    found = tuple(ViterbiDecoder(LABELS, usual).decode(np.log(scores)).tolist())
    assert chance(found) == pytest.approx(chance(best)) and chance(found) > 0


def test_a_sentence_without_a_usual_way_is_tagged_all_the_same() -> None:
    assert ViterbiDecoder(("B-x", "O"), [("O", "O", True)]).decode(np.array([[0.9, 0.1], [0.9, 0.1]])).tolist() == [
        1,
        1,
    ]
    assert len(ViterbiDecoder(("B-x", "I-x"), [("B", "I", True)]).decode(np.array([[0.1, 0.9], [0.9, 0.1]]))) == 2


def test_tags_keep_to_what_is_usual() -> None:
    words = Example(("ba", "ku", "de", "fi"))
    model = small("bert-mini", "tag").model
    task = make_task(
        model, TaskConfig(shape="tag", labels=("B-x", "I-x", "O"), transitions=(("O", "B", False), ("B", "O", False)))
    )
    assert isinstance(task, Tag)
    features = task.features([words], reader())
    outputs = [np.log(np.array([[0.2, 0.7, 0.1], [0.1, 0.6, 0.3], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]))]
    said = task.decode(outputs, features[0], words)
    assert said.tags == ["B-x", "O", "B-x", "O"] and said.confidences == pytest.approx([0.2, 0.3, 0.6, 0.7])
    task.viterbi = None
    assert task.decode(outputs, features[0], words).tags == ["I-x", "I-x", "B-x", "O"]
