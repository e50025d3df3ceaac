"""The attention of a text as arrays and as a page: against dense references, and with hostile tokens."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertworks
from bertworks.errors import TooLong, Unsupported
from bertworks.inspect.numbers import root_code, thumbnails
from bertworks.inspect.page import attention_page, token_texts
from bertworks.inspect.view import AttentionView
from bertworks.model.layout import Tokens
from refusals import refused
from texts import tiny_tokenizer

A, B = "ba defi ku. Go!", "de ba, ku"
FAMILIES = ("bert-mini", "roberta-mini", "albert-mini", "electra-mini", "xlnet-mini", "distilbert-mini", "gpt-mini")
SMALL = {"hidden_size": 32, "n_heads": 4, "n_layers": 3, "ffn_size": 48, "init_range": 0.3}


def bench(preset: str = "bert-mini", **changes: Any) -> bertworks.Workbench:
    sizes = {**SMALL, **({"embedding_size": 24} if preset.startswith(("albert", "electra")) else {}), **changes}
    return bertworks.new(preset, tokenizer=tiny_tokenizer(), **sizes)


@pytest.fixture(scope="module")
def view() -> AttentionView:
    return bench().attention(A, B)


@pytest.mark.parametrize("preset", FAMILIES)
def test_the_view_of_every_family(preset: str) -> None:
    """Scores are what the probabilities are made of; parts of the scores add up; rows sum to one in every form."""
    model = bench(preset)
    pair = None if preset in ("gpt-mini", "roberta-mini") else B  # the tokenizer's pairs have two segments
    seen = model.attention(A, pair)
    n = len(seen.tokens.ids)
    assert seen.probabilities.shape == seen.scores.shape == (3, 4, n, n)
    visible = np.tril(np.ones((n, n), bool)) if preset == "gpt-mini" else np.ones((n, n), bool)
    softmax = torch.from_numpy(np.where(visible, seen.scores, -np.inf)).softmax(-1).numpy()
    assert np.abs(softmax - seen.probabilities).max() < 1e-5
    content = np.einsum("lhqd,lhkd->lhqk", seen.queries, seen.keys, dtype=np.float64) / np.sqrt(seen.queries.shape[-1])
    parts = content + sum(seen.position_terms.values(), np.zeros(()))
    assert (np.abs(parts - seen.scores) / (1 + np.abs(seen.scores))).max() < 1e-5
    assert bool(seen.position_terms) == (preset == "xlnet-mini")
    for rows in (seen.probabilities, seen.words(), seen.contributions(), seen.rollout()):
        assert np.allclose(rows.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("preset", FAMILIES)
def test_norms_mixing_and_rollout_against_a_dense_reference(preset: str) -> None:
    """Vector by vector, with the residual and the norm written out."""
    model = bench(preset)
    seen = model.attention(A)
    encoder: Any = model.model.encoder
    n = len(seen.tokens.ids)
    flow = np.eye(n)
    with torch.no_grad():
        states = encoder(Tokens.single(seen.tokens.ids, seen.tokens.segments, encoder.device), keep_layers=True).layers
        for number, layer in enumerate(encoder.layers()):
            attention, x = layer.attention.attn, states[number]
            values = attention.v(layer.attention.pre(x)).view(n, 4, -1)
            sent = torch.einsum("khd,ehd->hke", values, attention.out.weight.view(32, 4, -1))  # by each key, by head
            added = torch.einsum("hqk,hke->qke", torch.from_numpy(seen.probabilities[number]), sent)
            own = added[range(n), range(n)]
            kept = own + x + (0 if attention.out.bias is None else attention.out.bias)
            lengths = []
            for part in (added.sum(1) - own, kept):
                if isinstance(layer.attention.post, torch.nn.LayerNorm):
                    part = (part - part.mean(-1, keepdim=True)) * layer.attention.post.weight
                lengths.append(part.norm(dim=-1))
            share = (lengths[0] / (lengths[0] + lengths[1])).numpy()[:, None]
            assert np.allclose(seen.mixing[number], share[:, 0], atol=1e-5)
            assert np.allclose(seen.norms[number], sent.norm(dim=-1).numpy(), rtol=1e-4)
            mixed = np.einsum("hqk,hk->qk", seen.probabilities[number], seen.norms[number])
            np.fill_diagonal(mixed, 0)
            mixed /= np.maximum(mixed.sum(1, keepdims=True), 1e-30)
            flow = share * (mixed @ flow) + (1 - share) * flow
            assert np.allclose(seen.rollout()[number], flow, atol=1e-5)


def test_the_strongest_links_are_between_words(view: AttentionView) -> None:
    links = view.top(7)
    weights = [link.weight for link in links]
    assert len(links) == 7 and weights == sorted(weights, reverse=True)
    for link in links:
        assert view.probabilities[link.layer, link.head, link.from_token, link.to_token] == pytest.approx(link.weight)
        assert not view.tokens.special[link.from_token] and not view.tokens.special[link.to_token]


def test_root_codes_keep_rows_of_small_weights() -> None:
    """A linear byte would lose a row of 512 equal weights."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.full((1, 512), 1 / 512), rng.dirichlet(np.full(512, 0.1), 50)]).astype(np.float32)
    decoded = (root_code(rows) / 255.0) ** 2
    assert np.abs(decoded - rows).max() < 0.004 and np.abs(decoded.sum(1) - 1).max() < 0.06
    linear = np.round(255 * rows) / 255
    assert linear[0].sum() == 0


def test_thumbnails_keep_diagonals() -> None:
    diagonal = np.eye(200, dtype=np.float32)[None, None]
    small = thumbnails(diagonal, 64)
    assert small.shape == (1, 1, 64, 64) and (small[0, 0].diagonal() == 1).all()
    assert np.array_equal(thumbnails(diagonal[:, :, :9, :9], 9), diagonal[:, :, :9, :9])


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: dict[str, str] = {}
        self.tokens: list[str] = []
        self.policy = ""
        self.links: list[str] = []
        self._script: str | None = None
        self._in_tokens = self._in_item = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "script":
            self._script = named.get("id") or "module"
            self.scripts[self._script] = ""
        if tag == "meta" and named.get("http-equiv"):
            self.policy = str(named["content"])
        self.links += [str(named[name]) for name in ("href", "src") if name in named]
        self._in_tokens = self._in_tokens or named.get("id") == "tokens"
        if tag == "li" and self._in_tokens:
            self.tokens.append("")
            self._in_item = True

    def handle_endtag(self, tag: str) -> None:
        self._script = None if tag == "script" else self._script
        self._in_item = self._in_item and tag != "li"
        self._in_tokens = self._in_tokens and tag != "ol"

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts[self._script] += data
        elif self._in_item:
            self.tokens[-1] += data


def test_names_of_layers_that_are_not_in_a_page_are_not_either(view: AttentionView) -> None:
    names = {(0, 1): [{"name": "next"}], (2, 0): [{"name": "same"}]}
    page = Page(attention_page(view, names=names, layers=[2]))
    assert list(json.loads(page.scripts["meta"])["names"]) == ["2-0"]


def test_a_page_has_its_tokens_as_text_and_its_numbers_as_bytes(view: AttentionView) -> None:
    page = Page(attention_page(replace(view, model="a <model>")))
    assert page.tokens == token_texts(view)
    n = len(view.tokens.ids)
    for layer in range(3):
        codes = np.frombuffer(zlib.decompress(b64decode(page.scripts[f"layer-{layer}"])), np.uint8)
        assert np.array_equal(codes.reshape(4, n, n), root_code(view.probabilities[layer]))
    script = page.scripts["module"]
    digest = sha256(script.encode()).digest()
    assert f"script-src 'sha256-{bertworks.page.modules.b64encode(digest).decode()}'" in page.policy  # type: ignore[attr-defined]
    assert "unsafe-eval" not in page.policy and page.policy.startswith("default-src 'none'")
    assert not page.links and not re.search(r"https?://(?!www\.w3\.org/2000/svg)", script)
    for forbidden in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", ".style ="):
        assert forbidden not in script


@pytest.mark.parametrize(
    "text", ["</script><b>", "<!-- ba -->", "]]> ba", "ba\u2028de", "ba\u202ede", "ba\x00de", "&lt;ba"]
)
def test_hostile_tokens_stay_text(text: str) -> None:
    model = bench()
    page = Page(attention_page(model.attention(text)))
    assert len(page.tokens) == len(model.attention(text).tokens.ids)
    assert set(page.scripts) >= {"module", "meta", "layer-0", "layer-2"}
    assert not any(character in "".join(page.tokens) for character in "\u2028\u202e\x00")


def test_models_that_cannot_be_compared(view: AttentionView, tmp_path: Path) -> None:
    other = bench(n_layers=2).attention(A, B)
    with refused("not-comparable", kind=Unsupported):
        view.save(tmp_path / "page.html", other=other)
    assert not (tmp_path / "page.html").exists()
    same = bench(hidden_size=64).attention(A, B)
    assert '"other":{"pieces":[0,1,2' in view.save(tmp_path / "page.html", other=same).read_text("utf-8")


def test_a_text_too_long_for_a_page(tmp_path: Path) -> None:
    long = bench(n_positions=1200).attention("ba " * 1100)
    with pytest.raises(TooLong) as error:
        long.save(tmp_path / "page.html")
    assert "3,065 characters" in str(error.value.remedy)  # 1,022 words of two letters, and the spaces between them
