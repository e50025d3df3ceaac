"""Examples: nothing lost unsaid, pairs that are what their label says, no way from held-out text into training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bertworks.data.parts
from bertworks.config import DataConfig, check_data
from bertworks.data.examples import NEGATIVE_PAIR, NO_LABEL, HeldOut, Plan, make_plan
from bertworks.data.shards import Shards
from bertworks.errors import BadConfig, BadText
from refusals import refused
from texts import documents, make_shards

PAIRS = ("nsp", "sop", "none", "stream")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bertworks.data.parts, "BLOCK_CHARACTERS", 6000)
        return make_shards(
            tmp_path_factory.mktemp("examples"), documents(400, seed=8, sentences=(1, 20), words=(1, 12))
        )


def make_test_plan(shards: Shards, seed: int = 0, epoch: int = 0, split: str = "train", **values: object) -> Plan:
    return make_plan(shards, check_data({"max_length": 48, **values}), split, seed, epoch)  # type: ignore[arg-type]


def document_of(shards: Shards, token: int) -> int:
    shard = int(np.searchsorted(shards.token_edges, token, side="right")) - 1
    sentence = int(np.searchsorted(shards[shard].sentences, token - shards.token_edges[shard], side="right"))
    return int(shards.document_edges[shard] + np.searchsorted(shards[shard].documents, sentence, side="right"))


def token_counts(plan: Plan, total: int, *, own_only: bool) -> np.ndarray:
    """How often each token is in an example; `own_only` leaves out a B from another document."""
    counts = np.zeros(total, dtype=int)
    for row in plan.examples:
        counts[row["a"] : row["a"] + row["a_size"]] += 1
        if not (own_only and row["label"] == NEGATIVE_PAIR):
            counts[row["b"] : row["b"] + row["b_size"]] += 1
    return counts


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("held_out", [0.0, 0.05])
@pytest.mark.parametrize("max_length", [16, 48, 512])
def test_tokens_in_are_tokens_out_and_counted_losses(
    shards: Shards, pairs: str, held_out: float, max_length: int
) -> None:
    plan = make_test_plan(shards, pairs=pairs, held_out=held_out, max_length=max_length)
    stats = plan.stats
    total = shards.manifest.counts.tokens
    assert stats.tokens_in + stats.repeated == stats.tokens_out + stats.lost
    assert plan.lengths.max() <= max_length and plan.lengths.min() > plan.n_special
    counts = token_counts(plan, total, own_only=pairs == "nsp")
    assert counts.max() == 1, "every token is used at most once"
    assert counts.sum() == stats.tokens_out - stats.repeated == stats.tokens_in - stats.lost
    if pairs in ("none", "stream"):
        assert stats.lost == stats.repeated == 0
    if not held_out:
        assert stats.tokens_in == total
    else:
        held_out_plan = make_test_plan(shards, pairs=pairs, held_out=held_out, max_length=max_length, split="held_out")
        assert held_out_plan.stats.tokens_in + stats.tokens_in == total
        assert 0.02 * total < held_out_plan.stats.tokens_in < 0.1 * total


@pytest.mark.parametrize("pairs", PAIRS)
def test_held_out_text_is_never_trained_on(shards: Shards, pairs: str) -> None:
    options = {"pairs": pairs, "held_out": 0.1}
    trained = token_counts(make_test_plan(shards, **options), shards.manifest.counts.tokens, own_only=False)
    held_out = token_counts(
        make_test_plan(shards, split="held_out", **options), shards.manifest.counts.tokens, own_only=pairs == "nsp"
    )
    assert not (trained.astype(bool) & held_out.astype(bool)).any()
    other_seed = token_counts(
        make_test_plan(shards, seed=5, epoch=3, **options), shards.manifest.counts.tokens, own_only=False
    )
    assert not (other_seed.astype(bool) & held_out.astype(bool)).any(), "whatever the seed"


def test_too_few_documents_are_left_for_training(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, ["Bado fike lumo.", "Rate sipa to."])
    n_refused = 0
    for seed in range(6):
        try:
            make_test_plan(shards, pairs="nsp", held_out=0.5, seed=seed)
        except BadText as error:
            n_refused += error.code == "too-few-documents"
    assert n_refused


def test_damaged_plans_are_rebuilt(shards: Shards, tmp_path: Path) -> None:
    config = DataConfig(pairs="nsp", max_length=48)
    first = make_plan(shards, config, "train", 0, 0, tmp_path)
    path = next(tmp_path.glob("*.plan"))
    record = next(tmp_path.glob("*.json"))
    plan_content = path.read_bytes()
    record_content = record.read_bytes()
    rows = first.examples.tobytes()
    for content in (plan_content[:-1], b"", plan_content[:100] + b"x" + plan_content[101:]):
        path.write_bytes(content)
        assert make_plan(shards, config, "train", 0, 0, tmp_path).examples.tobytes() == rows
    for text in (b"{}", b"[]", b"not json", b'{"tally": {"x": 1}, "sha256": 5}'):
        record.write_bytes(text)
        assert make_plan(shards, config, "train", 0, 0, tmp_path).examples.tobytes() == rows
        assert record.read_bytes() == record_content
    path.unlink()
    assert make_plan(shards, config, "train", 0, 0, tmp_path).examples.tobytes() == rows


def test_next_sentence_pairs(shards: Shards) -> None:
    examples = make_test_plan(shards, pairs="nsp", short_seq_prob=0.1).examples
    labels = examples["label"]
    assert len(labels) > 500
    assert abs((labels == NEGATIVE_PAIR).mean() - 0.5) < 4 * 0.5 / np.sqrt(len(labels))
    for row in examples:
        a = document_of(shards, int(row["a"]))
        b = document_of(shards, int(row["b"]))
        assert row["a_size"] and row["b_size"]
        if row["label"] == NEGATIVE_PAIR:
            assert a != b, "from another document"
        else:
            assert a == b and row["b"] >= row["a"] + row["a_size"], "B follows A"
            assert document_of(shards, int(row["b"] + row["b_size"]) - 1) == a


def test_sentence_order_pairs(shards: Shards) -> None:
    examples = make_test_plan(shards, pairs="sop").examples
    labels = examples["label"]
    assert abs((labels == NEGATIVE_PAIR).mean() - 0.5) < 4 * 0.5 / np.sqrt(len(labels))
    for row in examples:
        a = int(row["a"])
        b = int(row["b"])
        first, second = (b, a) if row["label"] == NEGATIVE_PAIR else (a, b)
        size = int(row["b_size"] if row["label"] == NEGATIVE_PAIR else row["a_size"])
        assert first + size <= second and document_of(shards, a) == document_of(shards, b)


@settings(max_examples=40)
@given(
    max_length=st.integers(8, 200),
    cross_documents=st.booleans(),
    pairs=st.sampled_from(["none", "stream"]),
    short_seq_prob=st.sampled_from([0.0, 0.3]),
)
def test_packing(shards: Shards, max_length: int, cross_documents: bool, pairs: str, short_seq_prob: float) -> None:
    plan = make_test_plan(
        shards,
        pairs=pairs,
        max_length=max_length,
        cross_documents=cross_documents,
        short_seq_prob=short_seq_prob,
        held_out=0,
    )
    assert (
        token_counts(plan, shards.manifest.counts.tokens, own_only=False).tolist()
        == [1] * shards.manifest.counts.tokens
    )
    assert (plan.examples["label"] == NO_LABEL).all() and (plan.lengths <= max_length).all()
    for row in plan.examples[:: max(1, len(plan.examples) // 50)]:
        begin = int(row["a"])
        end = int(row["a"] + row["a_size"])
        crossed = document_of(shards, end - 1) - document_of(shards, begin)
        starts_after_break = (
            pairs == "stream"
            and begin not in shards.token_edges
            and document_of(shards, begin - 1) != document_of(shards, begin)
        )
        assert crossed + starts_after_break == row["breaks"]
        if pairs == "none" and not cross_documents:
            assert crossed == 0


def test_examples_end_at_sentence_boundaries(shards: Shards) -> None:
    ends = {int(end + shards.token_edges[index]) for index in range(len(shards)) for end in shards[index].sentences}
    plan = make_test_plan(shards, pairs="none", max_length=256, short_seq_prob=0)
    assert all(int(row["a"] + row["a_size"]) in ends for row in plan.examples)
    short_plan = make_test_plan(shards, pairs="none", max_length=10, short_seq_prob=0)
    assert any(int(row["a"] + row["a_size"]) not in ends for row in short_plan.examples), (
        "a sentence longer than the limit is cut"
    )


def test_short_examples(shards: Shards) -> None:
    """Mostly of full length, sometimes of any length."""
    lengths = {rate: make_test_plan(shards, pairs="none", short_seq_prob=rate).lengths for rate in (0.0, 1.0)}
    assert lengths[1.0].mean() < 0.75 * lengths[0.0].mean()
    assert set(range(6, 48)) <= set(lengths[1.0].tolist())


@pytest.mark.parametrize("pairs", PAIRS)
def test_a_plan_is_a_function_of_seed_and_epoch(shards: Shards, pairs: str, tmp_path: Path) -> None:
    def plan_bytes(seed: int, epoch: int, cache: Path) -> bytes:
        content: bytes = make_plan(
            shards, DataConfig(pairs=pairs, max_length=48), "train", seed, epoch, cache
        ).examples.tobytes()  # type: ignore[arg-type]
        return content

    first = plan_bytes(1, 2, tmp_path / "a")
    assert first == plan_bytes(1, 2, tmp_path / "b") == plan_bytes(1, 2, tmp_path / "a")
    is_random = pairs != "stream"
    assert (plan_bytes(1, 3, tmp_path / "a") != first) is is_random
    assert (plan_bytes(2, 2, tmp_path / "a") != first) is is_random
    for epoch in range(40):
        plan_bytes(1, epoch, tmp_path / "a")
    assert len(list((tmp_path / "a").glob("*.plan"))) <= 32


def test_too_little_text_for_pairs(tmp_path: Path, shards: Shards) -> None:
    single = make_shards(tmp_path, ["Bado fike. Lumo."])
    with refused("single-document", place=str(single.folder), kind=BadText):
        make_test_plan(single, pairs="nsp")
    assert make_test_plan(single, pairs="sop", held_out=0).stats.examples == 1
    with refused("no-room", kind=BadConfig):
        make_plan(shards, DataConfig(pairs="nsp").model_copy(update={"max_length": 4}), "train", 0, 0)


@settings(max_examples=100)
@given(sentences=st.integers(1, 5000), rate=st.sampled_from([0.0, 0.005, 0.01, 0.1, 0.35, 0.45, 0.5]))
def test_held_out_passages(sentences: int, rate: float) -> None:
    held_out = HeldOut(sentences, rate)
    flags, sentence = [], 0
    while sentence < sentences:
        flag, stop = held_out.lookup(sentence)
        assert stop > sentence
        flags += [flag] * (min(stop, sentences) - sentence)
        sentence = stop
    assert flags == [held_out.lookup(sentence)[0] for sentence in range(sentences)]
    if rate == 0:
        assert not any(flags)
    elif sentences >= 2 / rate:
        assert 0.5 * rate * sentences - 1 <= sum(flags) <= 1.5 * rate * sentences + held_out.passage
