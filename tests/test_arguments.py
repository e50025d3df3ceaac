"""Wrong arguments of public calls: our errors, never a TypeError or an AttributeError from further down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertworks
from bertworks.arguments import check_arguments
from bertworks.errors import BadConfig, BertworksError
from refusals import refused
from test_front_door import SETTINGS, base_model, make_rows  # noqa: F401
from texts import tiny_tokenizer

WRONG = [None, 7, 2.5, True, b"ba", [["ba"]], [None, 3], np.array(3), np.zeros((2, 2)), {"ba": 1}, object(), "\ud83d"]


@pytest.fixture(scope="module")
def run(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> bertworks.Run:  # noqa: F811
    out = tmp_path_factory.mktemp("runs") / "run"
    return bertworks.finetune(make_rows(20), model=base_model, out=out, steps=1, settings=SETTINGS)


@pytest.fixture(scope="module")
def calls(
    run: bertworks.Run, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Calls that work, by name."""
    folder = tmp_path_factory.mktemp("calls")
    bench = run.model
    filler = bertworks.new("bert-tiny", tokenizer=tiny_tokenizer(), heads=["lm"], n_positions=48)
    inputs: dict[str, Any] = {"inputs": ["ba de"], "on_long": "window"}
    predicted = {**inputs, "on_bad": "skip", "min_confidence": 0.5, "logits": True, "ledger": None}
    return {
        "load": (bertworks.load, {"name": run.folder, "device": "cpu"}),
        "new": (bertworks.new, {"preset": "bert-tiny", "heads": ["lm"], "tokenizer": None, "seed": 1}),
        "Run": (bertworks.Run, {"folder": run.folder}),
        "evaluate": (run.evaluate, {"data": make_rows(4), "skip_bad": False, "device": "cpu", "text": "text"}),
        "encode": (bench.encode, {"texts": ["ba"], "pooling": "mean", "batch_tokens": 9, "on_long": "window"}),
        "embedder.encode": (bench.embedder().encode, {"texts": ["ba"], "ledger": None}),
        "embedder.prepare": (bench.embedder().prepare, {"texts": ["ba"], "on_long": "window"}),
        "states": (bench.states, {"text": ["ba"], "layer": 1}),
        "similarity": (bench.similarity, {"a": "ba", "b": ["de"], "pooling": None}),
        "attention": (bench.attention, {"a": "ba", "b": "de"}),
        "fill": (filler.fill, {"text": "ba [MASK]", "top_k": 2}),
        "predict": (bench.predict, predicted),
        "predictor.predict": (bench.predictor.predict, {**predicted, "on_bad": "error"}),
        "predictor.prepare": (bench.predictor.prepare, inputs),
        "save": (filler.save, {"folder": folder / "saved"}),
        "replace_tokenizer": (filler.replace_tokenizer, {"tokenizer": tiny_tokenizer(), "change": "other"}),
        "record_attention": (bertworks.record_attention, {"on_layer": None}),
    }


@pytest.mark.parametrize(
    "name",
    "load new Run evaluate encode embedder.encode embedder.prepare states similarity attention fill predict "
    "predictor.predict predictor.prepare save replace_tokenizer record_attention".split(),
)
def test_wrong_types_are_our_errors(name: str, calls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    call, arguments = calls[name]
    call(**arguments)
    for argument in arguments:
        refused_values = []
        for value in WRONG:
            try:
                call(**{**arguments, argument: value})
            except BertworksError:
                refused_values.append(value)
        n_valid = 3  # at most: None, and what is a number, a flag or a dict to this argument
        assert len(refused_values) >= len(WRONG) - n_valid, (argument, refused_values)


def test_a_string_is_no_list_but_series_and_arrays_are(calls: Any) -> None:
    """Each of its characters would be a text."""
    encode = calls["embedder.encode"][0]
    with refused("wrong-type"):
        encode("bade")
    with refused("wrong-type"):
        bertworks.new("bert-tiny", heads="lm")
    expected = encode(["ba", "de"])
    assert np.array_equal(encode(np.array(["ba", "de"])), expected)
    assert np.array_equal(encode(pytest.importorskip("pandas").Series(["ba", "de"])), expected)


NOWHERE = {"model": "no/where", "out": "out", "steps": 1, "device": "cpu", "settings": {}}
CORPUS = {"files": "text.txt", "out": "out", "column": None, "line_docs": False, "skip_bad": False}


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (bertworks.finetune, {"data": make_rows(4), "task": "classify", "text": "text", "label": "label", **NOWHERE}),
        (bertworks.pretrain, {"shards": "shards", "objective": "mlm", "masking": "word", **NOWHERE}),
        (bertworks.prepare, {"tokenizer": "no/where", "words": "auto", "workers": 1, "file_docs": False, **CORPUS}),
        (bertworks.train_vocabulary, {"kind": "bpe", "size": 9, "cased": False, "seed": 0, **CORPUS}),
    ],
)
def test_trainings_refuse_wrong_types(
    call: Callable[..., Any], arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are of what does not exist, so that nothing is trained, whatever is let through."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    for argument in arguments:
        for value in WRONG:
            with pytest.raises(BertworksError):
                call(**{**arguments, argument: value})


def test_what_a_type_error_says() -> None:
    with refused("wrong-type", kind=BadConfig) as error:
        bertworks.load(7)  # type: ignore[arg-type]
    assert error.value.fields == ["name"] and "int" in error.value.cause and "a string" in str(error.value.remedy)  # type: ignore[attr-defined]
    with refused("not-a-path"):
        bertworks.load("a\0b")

    @check_arguments(skip=("free",))
    def call(number: float, free: int = 0, *rest: int, flag: bool = False, **more: int) -> float:
        return number

    assert call(np.float32(1.5)) == 1.5 and call(2, "checked by the call", "rest") == 2  # type: ignore[arg-type]
    with refused("wrong-type") as error:
        call(1, flag=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        call()  # type: ignore[call-arg]


def test_dir_shows_the_api() -> None:
    assert {*bertworks.__all__} < {*dir(bertworks)}
    assert all(hasattr(bertworks, name) for name in dir(bertworks))
