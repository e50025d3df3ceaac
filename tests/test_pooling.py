"""Settings of sentence-transformers: read as that library reads them, written back, and refused where unsupported."""

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
MODULE_PREFIX = "sentence_transformers.models"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat query :".split()))
    return bertworks.new("bert-mini", tokenizer=Tokenizer.load(tmp_path), **SMALL).save(tmp_path / "m")


def write_sentence_transformers_config(
    folder: Path, pooling: dict[str, Any], *, normalise: bool = False, **files: Any
) -> Path:
    modules = [
        ("", f"{MODULE_PREFIX}.Transformer"),
        ("1_Pooling", f"{MODULE_PREFIX}.Pooling"),
        *([("2_Normalize", f"{MODULE_PREFIX}.Normalize")] if normalise else []),
    ]
    (folder / "modules.json").write_text(
        json.dumps([{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)])
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
def test_pooling_modes(folder: Path, settings: dict[str, Any], mode: str, normalise: bool, tmp_path: Path) -> None:
    bench = bertworks.load(write_sentence_transformers_config(folder, settings, normalise=normalise))
    plain = bertworks.load(folder)
    plain.pooling = Pooling().with_mode(mode)
    expected = plain.encode(["the cat sat"])
    if normalise:
        expected = expected / np.linalg.norm(expected)
    assert np.allclose(bench.encode(["the cat sat"]), expected, atol=1e-6)
    bench.save(tmp_path / "saved")
    assert bertworks.load(tmp_path / "saved").pooling == bench.pooling


def test_prompts_and_lower_case(folder: Path, tmp_path: Path) -> None:
    sentences = {"prompts": {"q": "query : ", "doc": ""}, "default_prompt_name": "q", "similarity_fn_name": "dot"}
    write_sentence_transformers_config(
        folder,
        {"pooling_mode": "mean"},
        config_sentence_transformers=sentences,
        sentence_bert_config={"do_lower_case": True},
    )
    bench = bertworks.load(folder)
    assert bench.pooling.prompt == "query : " and bench.pooling.lower_case
    plain = bertworks.load(folder)
    plain.pooling = Pooling()
    assert np.allclose(bench.encode(["The CAT"]), plain.encode(["query : the cat"]), atol=1e-6)
    bench.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config_sentence_transformers.json").read_text()) == sentences
    assert bertworks.load(tmp_path / "saved").pooling == bench.pooling


def test_source_of_the_length_limit(folder: Path) -> None:
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
    ("settings", "sentences", "code", "mentioned"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, {}, "unsupported-pooling", "mean + max"),
        ({"pooling_mode_weightedmean_tokens": True}, {}, "unsupported-pooling", "pooling_mode_weightedmean_tokens"),
        ({"pooling_mode": "mean", "include_prompt": False}, {}, "unsupported-pooling", "mean"),
        ({}, {}, "unsupported-pooling", ""),
        ({"pooling_mode": "mean"}, {"truncate_dim": 8}, "unsupported-truncation", "truncate_dim 8"),
    ],
)
def test_unsupported_pooling_is_refused_when_used(
    folder: Path, settings: dict[str, Any], sentences: dict[str, Any], code: str, mentioned: str
) -> None:
    """The folder still opens: only its own pooling is refused."""
    bench = bertworks.load(write_sentence_transformers_config(folder, settings, config_sentence_transformers=sentences))
    (refusal,) = bench.pooling.refusals
    assert refusal.code == code and mentioned in str(refusal)
    with refused("unsupported-pooling") as error:
        bench.encode(["the cat"])
    assert str(refusal) in error.value.cause
    assert bench.encode(["the cat"], "mean").shape == (1, 16)


def test_unsupported_and_malformed_modules(folder: Path) -> None:
    write_sentence_transformers_config(folder, {"pooling_mode": "mean"})
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*modules, {"path": "3_Dense", "type": f"{MODULE_PREFIX}.Dense"}]))
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
def test_malformed_limits_are_refused(folder: Path, content: str) -> None:
    (folder / "sentence_bert_config.json").write_text(content)
    with pytest.raises(BadConfig):
        bertworks.load(folder)


def test_a_limit_without_room_for_text_is_refused(folder: Path) -> None:
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 2}')
    with refused("no-room", kind=BadConfig):
        bertworks.load(folder).encode(["the"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mean", "cls", "max", "lasttoken"])
@pytest.mark.parametrize("normalise", [True, False])
def test_vectors_match_sentence_transformers(folder: Path, mode: str, normalise: bool, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="the bench extra is not installed")
    texts = ["the cat sat", "on the mat", "cat " * 8]
    prompts = {"prompts": {"q": "query : "}, "default_prompt_name": "q"}
    write_sentence_transformers_config(
        folder,
        {"word_embedding_dimension": 16, "pooling_mode": mode},
        normalise=normalise,
        config_sentence_transformers=prompts,
    )
    bench = bertworks.load(folder)
    expected = sentence_transformers.SentenceTransformer(str(folder)).encode(texts)
    assert np.allclose(bench.encode(texts), expected, atol=1e-5)
    bench.save(tmp_path / "saved")
    assert np.allclose(
        sentence_transformers.SentenceTransformer(str(tmp_path / "saved")).encode(texts), expected, atol=1e-6
    )
