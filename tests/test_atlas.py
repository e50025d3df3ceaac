"""An atlas of models whose heads are known: planted ones are named, random ones never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertworks
from bertworks.inspect.atlas import Atlas, atlas
from bertworks.inspect.naming import Thresholds
from bertworks.model.init import LOCAL_OFFSETS, init_local_attention
from bertworks.text.backends import word_piece
from bertworks.text.tokenizer import Tokenizer
from refusals import refused

N_WORDS = 400
NAMES = {1: "next", -1: "previous", 2: "next2", -2: "previous2"}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ENOUGH = Thresholds(min_types=40, min_documents=40)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    pieces = [*SPECIAL, ".", *(f"w{number}" for number in range(N_WORDS)), "x", "##x", "##y"]
    backend = word_piece({piece: number for number, piece in enumerate(pieces)}, {"do_lower_case": True})
    return Tokenizer.from_json(json.loads(backend.to_str()), {})


@pytest.fixture(scope="module")
def documents() -> list[str]:
    """Words as frequent as words are, that recur as they do in a text."""
    rng = np.random.default_rng(0)
    chances = 1 / (np.arange(N_WORDS) + 2.7)
    chances /= chances.sum()
    texts = []
    for _ in range(70):
        words: list[str] = []
        while len(words) < 120:
            is_repeated = len(words) > 8 and rng.random() < 0.2
            words.append(
                words[-int(rng.integers(5, min(len(words), 50)))]
                if is_repeated
                else f"w{rng.choice(N_WORDS, p=chances)}"
            )
        texts.append(" ".join(" ".join(words[at : at + 9]).capitalize() + "." for at in range(0, len(words), 9)))
    return texts


def small_model(tokenizer: Tokenizer, seed: int = 0, **changes: Any) -> bertworks.Workbench:
    sizes = {"hidden_size": 128, "n_heads": 4, "n_layers": 2, "ffn_size": 64, "n_positions": 128, **changes}
    return bertworks.new("bert-mini", tokenizer=tokenizer, seed=seed, **sizes)


def named(found: Atlas) -> dict[tuple[int, int], list[str]]:
    return {(row["layer"], row["head"]): row["names"] for row in found.rows if row["names"]}


@pytest.fixture(scope="module")
def planted(tokenizer: Tokenizer, documents: list[str]) -> Atlas:
    model = small_model(tokenizer)
    init_local_attention(model.model.encoder)
    return atlas(model, documents, sentences=60, thresholds=ENOUGH)


def test_planted_weights_are_read_back(planted: Atlas) -> None:
    """Three heads of four look at neighbours, one after the other; the words of this text are single pieces."""
    expected = iter(LOCAL_OFFSETS * 2)
    names = {(layer, head): [NAMES[next(expected)]] for layer in range(2) for head in range(3)}
    assert named(planted) == names
    for row in planted.rows:
        for evidence in row["evidence"].values():
            assert evidence["confirmed"] and evidence["numbers"]["kept when shuffled"] > 0.95


@pytest.mark.parametrize("gain", [1.0, 4.0, 16.0, 64.0])
def test_random_models_get_no_name(gain: float, tokenizer: Tokenizer, documents: list[str]) -> None:
    """Also peaked ones, on text where planted heads are named."""
    model = small_model(tokenizer, seed=int(gain))
    with torch.no_grad():
        for layer in model.model.encoder.layers():  # type: ignore[operator]
            for part in (layer.attention.attn.q, layer.attention.attn.k):
                part.weight.mul_(gain)
    found = atlas(model, documents, sentences=60, thresholds=ENOUGH)
    assert named(found) == {}
    assert found.findings.unseen.keys() <= {"related", "pieces"}


def test_a_head_that_looks_at_the_same_word_is_named_and_confirmed(tokenizer: Tokenizer, documents: list[str]) -> None:
    """Queries and keys are the embedding itself."""
    model = small_model(tokenizer, hidden_size=64, n_heads=2, n_layers=1)
    encoder: Any = model.model.encoder
    with torch.no_grad():
        encoder.embed.positions.weight.zero_()
        encoder.embed.segments.weight.zero_()
        encoder.embed.tokens.weight.normal_(0, 1, generator=torch.Generator().manual_seed(1))
        attention = encoder.attentions[0].attn
        for part in (attention.q, attention.k):
            part.weight.zero_()
            part.weight[:32, :32] = torch.eye(32) * 1.5
    found = atlas(model, documents, sentences=60, thresholds=ENOUGH)
    assert found.names(0, 0) == ["same"] and found.names(0, 1) == []
    (row, _) = found.rows
    evidence = row["evidence"]["same"]
    assert evidence["confirmed"] and evidence["numbers"]["planted twin"] > 20


def test_the_same_input_gives_the_same_bytes(
    planted: Atlas, tokenizer: Tokenizer, documents: list[str], tmp_path: Path
) -> None:
    model = small_model(tokenizer)
    init_local_attention(model.model.encoder)
    again = atlas(model, documents, sentences=60, thresholds=ENOUGH)
    assert again.save(tmp_path / "a.json").read_bytes() == planted.save(tmp_path / "b.json").read_bytes()
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["heads"][0]["names"] == ["previous"] and content["thresholds"]["z"] == 4.0
    assert content["passages"] == 60 and len(content["model"]) == len(content["corpus"]) == 64


def test_too_little_text_is_said(tokenizer: Tokenizer, documents: list[str]) -> None:
    model = small_model(tokenizer)
    init_local_attention(model.model.encoder)
    found = atlas(model, documents[:5], sentences=5)
    assert named(found) == {} and found.findings.unseen["next"] == "not enough text"
    with refused("no-passages"):
        atlas(model, [""])


def test_what_a_model_cannot_show(tokenizer: Tokenizer, documents: list[str]) -> None:
    """From left to right the next word is hidden, and there are no pairs."""
    sizes = {"hidden_size": 32, "n_heads": 2, "n_layers": 1, "ffn_size": 32, "n_positions": 128}
    model = bertworks.new("gpt-mini", tokenizer=tokenizer, **sizes)
    found = atlas(model, documents, sentences=45, thresholds=ENOUGH)
    assert {name for name, reason in found.findings.unseen.items() if "cannot be seen" in reason} == {
        "next",
        "next2",
        "across",
    }
