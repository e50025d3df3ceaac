"""Texts in, vectors and words out: what load() and new() return."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bertworks
from bertworks import Ledger, Workbench
from bertworks.errors import NotFound, TooLong, Unsupported
from bertworks.model.layout import Tokens
from bertworks.text.cached_encoder import HAN
from bertworks.text.tokenizer import Tokenizer
from refusals import figures, refused
from texts import tiny_tokenizer

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "red", "big"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
SMALL = {"hidden_size": 16, "n_heads": 2, "ffn_size": 24, "n_layers": 3, "n_positions": 12, "init_range": 0.3}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("\n".join(VOCAB))
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def bench(tokenizer: Tokenizer) -> Workbench:
    return bertworks.new("bert-mini", heads=["lm"], tokenizer=tokenizer, seed=4, **SMALL)


def states_of(bench: Workbench, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return bench.model.encoder(Tokens.ragged(torch.tensor(ids), [len(ids)])).last


def test_vocabulary_size_comes_from_the_tokenizer(bench: Workbench, tmp_path: Path) -> None:
    assert bench.config.encoder.vocab_size == len(VOCAB)
    bench.tokenizer.save(tmp_path)
    for folder in (tmp_path, str(tmp_path)):
        named = bertworks.new("bert-mini", tokenizer=folder, **SMALL)
        assert named.tokenizer.fingerprint == bench.tokenizer.fingerprint
        assert named.config.encoder.vocab_size == len(VOCAB)
    with refused("not-found", kind=NotFound):
        bertworks.new("bert-mini", tokenizer="./nowhere", **SMALL)


@pytest.mark.parametrize("pooling", [None, "mean", "first", "last", "max"])
@pytest.mark.parametrize("batch_tokens", [1, 7, 10_000])
def test_encode_is_pooling_of_states(bench: Workbench, pooling: str | None, batch_tokens: int) -> None:
    texts = ["the cat sat", "a dog", "red", "the big red dog ran on the mat", "a cat"]
    vectors = bench.encode(texts, pooling, batch_tokens=batch_tokens)
    assert vectors.shape == (5, 16) and vectors.dtype == np.float32
    for text, vector in zip(texts, vectors, strict=True):
        states = states_of(bench, bench.tokenizer.pieces(text).ids)
        expected = {"first": states[0], "last": states[-1], "max": states.amax(0)}.get(
            pooling or "mean", states.mean(0)
        )
        assert np.allclose(vector, expected.numpy(), atol=1e-5)


def test_one_text_gives_one_vector(bench: Workbench) -> None:
    assert np.allclose(bench.encode("the cat"), bench.encode(["the cat"])[0])
    assert bench.encode("the cat").shape == (16,)
    assert bench.encode([]).shape == (0, 16)


def test_long_texts_are_window_means_weighted_by_tokens(bench: Workbench) -> None:
    # 10 fit beside [CLS] and [SEP]; neighbouring windows share at least half of that: they start at 0, 4, 8, 13.
    words = (WORDS * 3)[:23]
    ledger = Ledger()
    vector = bench.encode([" ".join(words), "red"], ledger=ledger)[0]
    ids = bench.tokenizer.encode([" ".join(words)])[0].tolist()
    windows = [ids[start : start + 10] for start in (0, 4, 8, 13)]
    means = [states_of(bench, [2, *window, 3]).mean(0).numpy() * len(window) for window in windows]
    assert np.allclose(vector, sum(means) / 40, atol=1e-5)
    assert (ledger.texts, ledger.tokens, ledger.windowed_texts, ledger.windowed_tokens) == (2, 24, 1, 23)
    assert ledger.limit == 10 and (ledger.cut_texts, ledger.cut_tokens) == (0, 0)
    assert figures(ledger) >= {"1", "23", "10"}


def test_a_workbench_says_what_it_is() -> None:
    bench = bertworks.new("bert-tiny", tokenizer=tiny_tokenizer(), heads=["sequence"], n_positions=48)
    n_parameters = sum(parameter.numel() for parameter in bench.model.parameters())
    assert repr(bench) == f"<Workbench: bert, 2 layers of 128, {n_parameters:,} parameters, heads: sequence>"
    assert repr(bertworks.new("bert-tiny", heads=[])).endswith("no head, no tokenizer>")


def test_long_texts_are_truncated_or_refused_on_request(bench: Workbench) -> None:
    text = " ".join(WORDS * 2)
    ledger = Ledger()
    truncated = bench.encode([text], on_long="truncate", ledger=ledger)
    assert np.allclose(truncated, bench.encode([" ".join(WORDS)]), atol=1e-6)
    assert (ledger.cut_texts, ledger.cut_tokens) == (1, 10)
    with refused("too-long", place="text 2") as error:
        bench.encode(["red", text], on_long="error")
    assert figures(error.value.cause) == {"20", "10"}


def test_models_without_a_position_limit_use_windows_of_512(tokenizer: Tokenizer) -> None:
    bench = bertworks.new("xlnet-mini", tokenizer=tokenizer, hidden_size=16, n_heads=2, ffn_size=24, n_layers=2)
    ledger = Ledger()
    assert bench.limit == 512
    assert bench.encode([" ".join(WORDS * 51), " ".join(WORDS * 52)], ledger=ledger).shape == (2, 16)
    assert (ledger.windowed_texts, ledger.windowed_tokens, ledger.cut_texts) == (1, 520, 0)


def test_progress_counts_tokens(bench: Workbench) -> None:
    calls: list[tuple[int, int]] = []
    bench.encode(
        ["the cat", "a dog sat", "red"], batch_tokens=4, progress=lambda done, total: calls.append((done, total))
    )
    assert calls == [(1, 6), (3, 6), (6, 6)]


def test_wrong_arguments(bench: Workbench) -> None:
    with refused("unknown-pooling") as error:
        bench.encode(["the"], "median")
    assert "'median'" in error.value.cause
    with refused("out-of-range") as error:
        bench.encode(["the"], batch_tokens=0)
    assert error.value.fields == ["batch_tokens"] and "batch_tokens" in error.value.cause
    with refused("empty-text", place="text 2"):
        bench.encode(["the", ""])
    with refused("unknown-value") as error:
        bench.encode(["the"], on_long="trunc")  # type: ignore[arg-type]
    assert error.value.fields == ["on_long"] and "'trunc'" in error.value.cause
    with refused("out-of-range") as error:
        bench.states("the cat", layer=9)
    assert error.value.fields == ["layer"] and "9" in figures(error.value.cause)
    with refused("too-long"):
        bench.states(" ".join(WORDS * 2))


def test_states_of_each_layer(bench: Workbench) -> None:
    ids = bench.tokenizer.pieces("the cat sat").ids
    assert np.allclose(bench.states("the cat sat"), states_of(bench, ids).numpy(), atol=1e-6)
    layers = [bench.states("the cat sat", layer) for layer in range(4)]
    assert all(layer.shape == (5, 16) for layer in layers)
    assert np.array_equal(layers[3], bench.states("the cat sat", -1))
    assert np.array_equal(layers[0], bench.states("the cat sat", -4))
    assert not np.allclose(layers[0], layers[1])


def test_states_of_several_texts(bench: Workbench) -> None:
    texts = ["the cat sat", "a", "the cat", "a dog sat on the mat"]
    for layer in (0, -1):
        states = bench.states(iter(texts), layer)
        assert [len(text_states) for text_states in states] == [5, 3, 4, 8]
        for text, text_states in zip(texts, states, strict=True):
            assert np.allclose(text_states, bench.states(text, layer), atol=1e-6)
    assert bench.states([]) == []
    with refused("too-long"):
        bench.states(["the", " ".join(WORDS * 2)])


def test_similarity_is_the_cosine(bench: Workbench) -> None:
    a, b = ["the cat", "a dog"], ["the cat", "red", "sat on the mat"]
    first, second = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in map(bench.encode, (a, b)))
    table = bench.similarity(a, b)
    assert np.allclose(table, first @ second.T, atol=1e-6) and table[0, 0] == pytest.approx(1)
    assert np.allclose(bench.similarity(a[0], b), table[0]) and np.allclose(bench.similarity(a, b[1]), table[:, 1])
    value = bench.similarity(a[1], b[1])
    assert isinstance(value, float) and value == pytest.approx(table[1, 1])
    assert bench.similarity(a[0], b[1], "first") != pytest.approx(table[0, 1])


def test_attention_of_a_pair(bench: Workbench) -> None:
    view = bench.attention("the cat", "a dog sat")
    assert view.tokens.pieces == ["[CLS]", "the", "cat", "[SEP]", "a", "dog", "sat", "[SEP]"]
    assert view.tokens.segments == [0] * 4 + [1] * 4
    assert view.probabilities.shape == (3, 2, 8, 8)
    assert view.queries.shape == view.keys.shape == (3, 2, 8, 8)
    assert np.allclose(view.probabilities.sum(-1), 1, atol=1e-5)
    scores = np.einsum("lhqd,lhkd->lhqk", view.queries, view.keys) / np.sqrt(8)
    assert np.allclose(np.exp(scores) / np.exp(scores).sum(-1, keepdims=True), view.probabilities, atol=1e-5)


def test_pairs_need_segments(tokenizer: Tokenizer) -> None:
    single = bertworks.new("bert-mini", tokenizer=tokenizer, n_segments=1, **SMALL)
    assert single.attention("the cat").probabilities.shape[0] == 3
    with refused("too-many-segments") as error:
        single.attention("the cat", "a dog")
    assert figures(error.value.cause) == {"2", "1"}


def test_fill_independently_and_jointly(bench: Workbench) -> None:
    text = "the [MASK] sat on [MASK]"
    filled = bench.fill(text, top_k=3)
    ids = bench.tokenizer.pieces(text).ids
    blanks = [i for i, id in enumerate(ids) if id == 4]

    def probabilities(ids: list[int]) -> torch.Tensor:
        states = states_of(bench, ids)
        with torch.no_grad():
            return bench.model.read("lm", states, Tokens.ragged(torch.tensor(ids), [len(ids)]).layout).softmax(-1)

    independent = probabilities(ids)
    for blank, candidates in zip(blanks, filled.blanks, strict=True):
        values, indices = independent[blank].topk(3)
        assert [candidate.id for candidate in candidates] == indices.tolist()
        assert [candidate.piece for candidate in candidates] == [VOCAB[i] for i in indices]
        assert np.allclose([candidate.probability for candidate in candidates], values.numpy(), atol=1e-6)
    most_confident = max(blanks, key=lambda blank: float(independent[blank].max()))
    other = next(blank for blank in blanks if blank != most_confident)
    ids[most_confident] = int(independent[most_confident].argmax())
    ids[other] = int(probabilities(ids)[other].argmax())
    assert [candidate.id for candidate in filled.joint_pieces] == [ids[blank] for blank in blanks]
    assert filled.joint == bench.tokenizer.decode(ids[1:-1])


@pytest.mark.parametrize(
    ("text", "piece", "filled"),
    [
        ("The CAT [MASK]  on", "sat", "The CAT sat  on"),
        ("I play [MASK] it", "##ing", "I playing it"),
        ("the cat [MASK]", ".", "the cat."),
        ("the[MASK]mat, [MASK]!", "on", "the on mat, on!"),
        ("今[MASK]气好", "天", "今天气好"),
        ("[MASK]天，气好。", "今", "今天，气好。"),
        ("今天 [MASK][MASK] good", "好", "今天 好好 good"),
        ("BERT[MASK]", "好", "BERT好"),
    ],
)
def test_filled_texts_are_written_as_they_were_given(text: str, piece: str, filled: str, tmp_path: Path) -> None:
    vocabulary = [*VOCAB, *"今天气好，。.,!", "play", "##ing", "good", "bert"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))

    def with_one_answer(preset: str) -> Workbench:
        bench = bertworks.new(preset, heads=["lm"], tokenizer=tmp_path, **{**SMALL, "lm_bias": True})
        with torch.no_grad():
            bench.model.heads["lm"].bias[vocabulary.index(piece)] = 1e4  # type: ignore[index, operator]
        return bench

    bert = with_one_answer("bert-mini")
    assert bert.fill(text).independent == bert.fill(text).joint == filled
    continued = with_one_answer("gpt-mini").fill("BERT 天").independent
    assert continued.startswith("BERT 天") and (HAN.fullmatch(piece) is None or set(continued[6:]) == {piece})


def test_joint_and_independent_fill_can_differ(tokenizer: Tokenizer) -> None:
    """Otherwise joint filling would be useless."""
    benches = (bertworks.new("bert-mini", heads=["lm"], tokenizer=tokenizer, seed=seed, **SMALL) for seed in range(20))
    filled = [bench.fill("the [MASK] [MASK] on [MASK] mat") for bench in benches]
    assert any(result.joint != result.independent for result in filled)
    assert any(result.joint == result.independent for result in filled)


def test_fill_with_the_query_stream_of_xlnet(tokenizer: Tokenizer) -> None:
    bench = bertworks.new(
        "xlnet-mini",
        heads=["lm"],
        tokenizer=tokenizer,
        hidden_size=16,
        n_heads=2,
        ffn_size=24,
        n_layers=2,
        init_range=0.3,
    )
    filled = bench.fill("the [MASK] sat")
    ids = bench.tokenizer.pieces("the [MASK] sat").ids
    changed_ids = list(ids)
    changed_ids[2] = 7  # the query stream must not see the token in the blank
    tokens = torch.tensor(changed_ids)
    ranks = torch.tensor([-1, -1, 0, -1, -1])
    target = torch.tensor([2])
    with torch.no_grad():
        states = bench.model.encoder.two_stream(Tokens.ragged(tokens, [5]), ranks, target, [1])
        expected = bench.model.read("lm", states, Tokens.ragged(tokens, [5]).layout).softmax(-1)[0]
    assert filled.blanks[0][0].id == int(expected.argmax())
    assert filled.blanks[0][0].probability == pytest.approx(float(expected.max()), abs=1e-6)


def test_fill_errors(bench: Workbench, tokenizer: Tokenizer) -> None:
    with refused("out-of-range") as error:
        bench.fill("the [MASK]", top_k=0)
    assert error.value.fields == ["top_k"] and figures(error.value.cause) == {"0"}
    with refused("no-blank") as error:
        bench.fill("the cat sat")
    assert "[MASK]" in error.value.remedy
    with refused("missing-head"):
        bertworks.new("bert-mini", tokenizer=tokenizer, **SMALL).fill("the [MASK]")
    with refused("no-room", kind=TooLong):
        bertworks.new("gpt-mini", heads=["lm"], tokenizer=tokenizer, **SMALL).fill("the cat " * 50)
    with refused("no-tokenizer", kind=Unsupported):
        bertworks.new("bert-mini", heads=["lm"], vocab_size=15, **SMALL).fill("the [MASK]")


def test_save_and_load_round_trip(bench: Workbench, tmp_path: Path) -> None:
    bench.save(tmp_path / "m")
    loaded = bertworks.load(tmp_path / "m")
    texts = ["the cat sat", "a big dog ran on the mat"]
    assert np.array_equal(loaded.encode(texts), bench.encode(texts))
    assert loaded.fill("the [MASK]") == bench.fill("the [MASK]")
    assert loaded.lineage[:2] == ["new bert-mini", f"loaded {tmp_path / 'm'}"]
    assert json.loads((tmp_path / "m" / "bertworks.json").read_text())["lineage"] == ["new bert-mini"]


def test_the_same_seed_gives_the_same_weights() -> None:
    first, repeated, other = (
        bertworks.new("bert-tiny", seed=seed, vocab_size=50).model.state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], repeated[name]) for name in first)
    assert not torch.equal(first["encoder.embed.tokens.weight"], other["encoder.embed.tokens.weight"])


def test_a_run_folder_is_loaded_as_its_model(bench: Workbench, tmp_path: Path) -> None:
    bench.save(tmp_path / "run" / "model")
    (tmp_path / "run" / "run.json").write_text("{}")
    assert bertworks.load(tmp_path / "run").config == bench.config


def test_a_tokenizer_larger_than_the_model_is_refused(bench: Workbench, tmp_path: Path) -> None:
    bench.save(tmp_path / "m")
    (tmp_path / "m" / "tokenizer.json").unlink()
    (tmp_path / "m" / "vocab.txt").write_text("\n".join([*VOCAB, "extra"]))
    with refused("vocabulary-too-large", place=str(tmp_path / "m")) as error:
        bertworks.load(tmp_path / "m")
    assert figures(error.value.cause) == {"16", "15"}


def test_hub_names_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with refused("not-on-hub"):
        bertworks.load("somebody/some-model")
    with refused("not-on-hub") as error:
        bertworks.load("minilmm")
    assert "'minilm'" in error.value.remedy
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with refused("missing-extra", kind=NotFound) as error:
        bertworks.load("somebody/some-model")
    assert "pip install 'bertworks[hub]'" in error.value.remedy
    with refused("is-a-preset"):
        bertworks.load("bert-base")
    for name in ("../../etc/passwd", "/nowhere/at/all", "a/b/c", "~/x", "x\0y", ""):
        with pytest.raises(NotFound):
            bertworks.load(name)


def test_roberta_positions_start_after_the_padding_id(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The padding id is 0 here, not 1: saved with the wrong one, transformers would shift every position."""
    bench = bertworks.new("roberta-mini", tokenizer=tokenizer, **SMALL)
    assert bench.config.encoder.first_position == 1
    bench.save(tmp_path / "m")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "m").eval()
    ids = torch.tensor(bench.tokenizer.pieces("the [UNK] cat sat").ids)
    with torch.no_grad():
        assert np.allclose(theirs(ids[None]).last_hidden_state[0].numpy(), bench.states("the [UNK] cat sat"), atol=1e-5)


def test_a_new_model_smaller_than_its_tokenizer_is_refused(tokenizer: Tokenizer) -> None:
    with refused("vocabulary-too-large", place="bert-mini") as error:
        bertworks.new("bert-mini", tokenizer=tokenizer, vocab_size=9, **SMALL)
    assert figures(error.value.cause) == {"15", "9"}


def test_bfloat16(bench: Workbench, tokenizer: Tokenizer, tmp_path: Path) -> None:
    bfloat16 = bertworks.new("bert-mini", heads=["lm"], tokenizer=tokenizer, seed=4, **SMALL)
    bfloat16.model.bfloat16()
    assert np.allclose(bfloat16.encode(["the cat"]), bench.encode(["the cat"]), atol=0.1)
    bfloat16.save(tmp_path / "m")
    assert json.loads((tmp_path / "m" / "config.json").read_text())["dtype"] == "bfloat16"


def test_missing_devices_are_refused(bench: Workbench, tmp_path: Path) -> None:
    bench.save(tmp_path / "m")
    for device in ("gpu", "cuda" if not torch.cuda.is_available() else "nowhere"):
        with refused("no-such-device") as error:
            bertworks.load(tmp_path / "m", device=device)
        assert device in error.value.cause


def test_texts_as_any_iterable(bench: Workbench) -> None:
    expected = bench.encode(["the cat", "a dog"])
    for texts in (("the cat", "a dog"), iter(["the cat", "a dog"]), np.array(["the cat", "a dog"])):
        assert np.array_equal(bench.encode(texts), expected)


def test_invalid_lineage_is_ignored(bench: Workbench, tmp_path: Path) -> None:
    bench.save(tmp_path / "m")
    (tmp_path / "m" / "bertworks.json").write_text('{"lineage": 5}')
    assert bertworks.load(tmp_path / "m").lineage == [f"loaded {tmp_path / 'm'}"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_results_are_refused(tokenizer: Tokenizer, value: float) -> None:
    bench = bertworks.new("bert-mini", heads=["lm"], tokenizer=tokenizer, **SMALL)
    bench.model.encoder.embed.tokens.weight.data[:] = value
    for compute in (
        lambda: bench.encode(["the"]),
        lambda: bench.states("the"),
        lambda: bench.fill("[MASK]"),
        lambda: bench.attention("the"),
    ):
        with refused("not-finite"):
            compute()
