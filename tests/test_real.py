"""Real weights: all-MiniLM-L6-v2 from its package, and a trained ALBERT from the shared data."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bertworks
from bertworks.model import locate as locate_module
from bertworks.model.layout import Tokens
from bertworks.model.locate import locate
from bertworks.workbench import import_pickled
from refusals import refused

SENTENCES = [
    "A man is eating food.",
    "中国的首都是北京。",
    "Ünïcödé and emoji \U0001f600",
    "word " * 100,
    "x",
    "The quick brown fox jumps over the lazy dog, twice; then rests.",
]


@pytest.fixture(scope="module")
def minilm() -> bertworks.Workbench:
    return bertworks.load("minilm")


def test_minilm_matches_transformers(minilm: bertworks.Workbench) -> None:
    folder = locate("minilm")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder)
    vectors = minilm.encode(SENTENCES)
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        inputs = tokenizer(sentence, return_tensors="pt", truncation=False, padding=False)
        with torch.no_grad():
            expected = torch.nn.functional.normalize(model.eval()(**inputs).last_hidden_state.mean(1))[0]
        assert np.abs(vector - expected.numpy()).max() <= 1e-5
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_minilm_knows_its_limit(minilm: bertworks.Workbench) -> None:
    ledger = bertworks.Ledger()
    assert minilm.limit == 256 and minilm.config.encoder.n_positions == 512
    minilm.encode(["word " * 300], ledger=ledger)
    assert (ledger.limit, ledger.windowed_texts, ledger.windowed_tokens) == (254, 1, 300)


def test_saved_minilm_keeps_its_pooling(minilm: bertworks.Workbench, tmp_path: Path) -> None:
    minilm.save(tmp_path / "m")
    loaded = bertworks.load(tmp_path / "m")
    assert loaded.pooling == minilm.pooling and loaded.limit == 256
    assert np.array_equal(loaded.encode(SENTENCES), minilm.encode(SENTENCES))
    assert (tmp_path / "m" / "tokenizer.json").read_bytes() == (locate("minilm") / "tokenizer.json").read_bytes()


def test_minilm_similarities(minilm: bertworks.Workbench) -> None:
    cat, kitten, bank = minilm.encode(["The cat sleeps.", "A kitten is dozing.", "The bank raised its rates."])
    assert cat @ kitten > cat @ bank + 0.2


def test_token_states_depend_on_the_context(minilm: bertworks.Workbench) -> None:
    def bank_state(text: str) -> np.ndarray:
        return minilm.states(text)[minilm.tokenizer.pieces(text).pieces.index("bank")]

    money, loan, river = (
        bank_state(text) for text in ("the bank lent me money", "my bank gave a loan", "the river bank was muddy")
    )
    cosine = lambda a, b: float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))  # noqa: E731
    assert cosine(money, loan) > cosine(money, river) + 0.05


def test_changed_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate_module, "MINILM_SHA256", "0" * 64)
    with refused("checksum-mismatch") as error:
        bertworks.load("minilm")
    assert "53aa51172d14" in error.value.cause


def test_imported_albert_matches_transformers(shared: Path, tmp_path: Path) -> None:
    """Masked-LM logits and the top five tokens, on 50 random sequences."""
    source = shared / "weights" / "albert-rxnmapper"
    import_pickled(source).save(tmp_path / "rxn")
    bench = bertworks.load(tmp_path / "rxn")
    theirs = transformers.AlbertForMaskedLM.from_pretrained(source).eval()
    rng = random.Random(0)
    for _ in range(50):
        ids = torch.tensor([rng.randrange(5, 591) for _ in range(rng.randint(3, 120))])
        tokens = Tokens.ragged(ids, [len(ids)])
        with torch.no_grad():
            ours = bench.model.read("lm", bench.model.encoder(tokens).last, tokens.layout)
            expected = theirs(ids[None]).logits[0]
        assert float((ours - expected).abs().max()) <= 1e-4
        assert torch.equal(ours.topk(5).indices, expected.topk(5).indices)
    opened, report = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "rxn", output_loading_info=True)
    assert not report["missing_keys"]
    # The file has a pooler, which fine-tuning can use: it is kept, though AlbertForMaskedLM does not read it.
    assert set(report["unexpected_keys"]) == {"albert.pooler.weight", "albert.pooler.bias"}
    assert json.loads((tmp_path / "rxn" / "config.json").read_text())["architectures"] == [type(opened).__name__]


@pytest.mark.slow
def test_minilm_matches_sentence_transformers(minilm: bertworks.Workbench, shared: Path, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="the bench extra is not installed")
    lines = [line.split("\t")[0] for line in (shared / "tasks/glue/SST-2/train.tsv").read_text().splitlines()[1:501]]
    expected = sentence_transformers.SentenceTransformer(str(locate("minilm"))).encode(lines)
    difference = float(np.abs(minilm.encode(lines) - expected).max())
    print(f"\nworst difference to sentence-transformers over {len(lines)} sentences: {difference:.1e}")
    assert difference <= 1e-5
    minilm.save(tmp_path / "m")
    saved = sentence_transformers.SentenceTransformer(str(tmp_path / "m"))
    assert saved.max_seq_length == 256
    assert float(np.abs(saved.encode(lines) - expected).max()) <= 1e-6
