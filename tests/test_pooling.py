"""Settings of sentence-transformers: read as that library reads them, written back, and refused where not built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertworks
from bertworks.errors import BadConfig
from bertworks.model.pooling import Pooling
from bertworks.text.tokenizer import Tokenizer
from refusals import refused

SMALL = {"hidden_size": 16, "n_heads": 2, "ffn_size": 24, "n_layers": 2, "n_positions": 12, "init_range": 0.3}
OLD = "sentence_transformers.models"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat query :".split()))
    return bertworks.new("bert-mini", tokenizer=Tokenizer.load(tmp_path), **SMALL).save(tmp_path / "m")


def settle(folder: Path, pooling: dict[str, Any], *, normalise: bool = False, **files: Any) -> Path:
    kinds = [
        ("", f"{OLD}.Transformer"),
        ("1_Pooling", f"{OLD}.Pooling"),
        *([("2_Normalize", f"{OLD}.Normalize")] if normalise else []),
    ]
    (folder / "modules.json").write_text(
        json.dumps([{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(kinds)])
    )
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
@pytest.mark.parametrize("normalise", [True, False])
def test_modes(folder: Path, settings: dict[str, Any], mode: str, normalise: bool, tmp_path: Path) -> None:
    bench = bertworks.load(settle(folder, settings, normalise=normalise))
    bare = bertworks.load(folder)
    bare.pooling = Pooling().with_mode(mode)
    expected = bare.encode(["the cat sat"])
    if normalise:
        expected = expected / np.linalg.norm(expected)
    assert np.allclose(bench.encode(["the cat sat"]), expected, atol=1e-6)
    bench.save(tmp_path / "again")
    assert bertworks.load(tmp_path / "again").pooling == bench.pooling


def test_prompts_and_lower_case(folder: Path, tmp_path: Path) -> None:
    sentences = {"prompts": {"q": "query : ", "doc": ""}, "default_prompt_name": "q", "similarity_fn_name": "dot"}
    settle(
        folder,
        {"pooling_mode": "mean"},
        config_sentence_transformers=sentences,
        sentence_bert_config={"do_lower_case": True},
    )
    bench = bertworks.load(folder)
    assert bench.pooling.prompt == "query : " and bench.pooling.lower_case
    bare = bertworks.load(folder)
    bare.pooling = Pooling()
    assert np.allclose(bench.encode(["The CAT"]), bare.encode(["query : the cat"]), atol=1e-6)
    bench.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config_sentence_transformers.json").read_text()) == sentences
    assert bertworks.load(tmp_path / "again").pooling == bench.pooling


def test_where_the_limit_is_said(folder: Path) -> None:
    assert bertworks.load(folder).limit_and_source == (12, "positions")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 7}')
    assert bertworks.load(folder).limit_and_source == (7, "sentence_bert_config.json")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 4096}')
    assert bertworks.load(folder).limit_and_source == (12, "positions")
    (folder / "sentence_bert_config.json").write_text("{}")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 9}))
    assert bertworks.load(folder).limit_and_source == (9, "tokenizer_config.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 10**30}))
    assert bertworks.load(folder).limit_and_source == (12, "positions")


@pytest.mark.parametrize(
    ("settings", "sentences", "code", "named"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, {}, "unsupported-pooling", "mean + max"),
        ({"pooling_mode_weightedmean_tokens": True}, {}, "unsupported-pooling", "pooling_mode_weightedmean_tokens"),
        ({"pooling_mode": "mean", "include_prompt": False}, {}, "unsupported-pooling", "mean"),
        ({}, {}, "unsupported-pooling", ""),
        ({"pooling_mode": "mean"}, {"truncate_dim": 8}, "unsupported-truncation", "truncate_dim 8"),
    ],
)
def test_what_is_not_built_is_refused_when_asked_for(
    folder: Path, settings: dict[str, Any], sentences: dict[str, Any], code: str, named: str
) -> None:
    """The folder opens all the same: only its own pooling cannot be had."""
    bench = bertworks.load(settle(folder, settings, config_sentence_transformers=sentences))
    (refusal,) = bench.pooling.refusals
    assert refusal.code == code and named in str(refusal)
    with refused("unsupported-pooling") as error:
        bench.encode(["the cat"])
    assert str(refusal) in error.value.cause
    assert bench.encode(["the cat"], "mean").shape == (1, 16)


def test_strange_modules(folder: Path) -> None:
    settle(folder, {"pooling_mode": "mean"})
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*modules, {"path": "3_Dense", "type": f"{OLD}.Dense"}]))
    assert [refusal.code for refusal in bertworks.load(folder).pooling.refusals] == ["unsupported-module"]
    with refused("unsupported-pooling") as error:
        bertworks.load(folder).encode(["the"])
    assert "Dense" in error.value.cause
    outside = ('[{"type": "a.Pooling", "path": "../../etc"}]', '[{"type": "x", "path": "/etc"}]')
    for content in ("[5]", '[{"type": 3}]', "[" * 100_000, *outside):
        (folder / "modules.json").write_text(content)
        with pytest.raises(BadConfig):
            bertworks.load(folder)


@pytest.mark.parametrize(
    "content", ['{"max_seq_length": "many"}', '{"max_seq_length": 0}', '{"max_seq_length": true}', "[]", "x"]
)
def test_strange_limits(folder: Path, content: str) -> None:
    (folder / "sentence_bert_config.json").write_text(content)
    with pytest.raises(BadConfig):
        bertworks.load(folder)


def test_a_limit_without_room(folder: Path) -> None:
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 2}')
    with refused("no-room", kind=BadConfig):
        bertworks.load(folder).encode(["the"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mean", "cls", "max", "lasttoken"])
@pytest.mark.parametrize("normalise", [True, False])
def test_sentence_transformers_agrees(folder: Path, mode: str, normalise: bool, tmp_path: Path) -> None:
    peers = pytest.importorskip("sentence_transformers", reason="the bench extra is not installed")
    texts = ["the cat sat", "on the mat", "cat " * 8]
    prompts = {"prompts": {"q": "query : "}, "default_prompt_name": "q"}
    settle(
        folder,
        {"word_embedding_dimension": 16, "pooling_mode": mode},
        normalise=normalise,
        config_sentence_transformers=prompts,
    )
    bench = bertworks.load(folder)
    expected = peers.SentenceTransformer(str(folder)).encode(texts)
    assert np.allclose(bench.encode(texts), expected, atol=1e-5)
    bench.save(tmp_path / "again")
    assert np.allclose(peers.SentenceTransformer(str(tmp_path / "again")).encode(texts), expected, atol=1e-6)
