"""Examples: nothing lost unsaid, pairs that are what their label says, no way from held-out text into training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bertworks.data.prepare
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
        patch.setattr(bertworks.data.prepare, "BLOCK_CHARACTERS", 6000)
        return make_shards(
            tmp_path_factory.mktemp("examples"), documents(400, seed=8, sentences=(1, 20), words=(1, 12))
        )


def plan(shards: Shards, seed: int = 0, epoch: int = 0, part: str = "train", **values: object) -> Plan:
    return make_plan(shards, check_data({"max_length": 48, **values}), part, seed, epoch)  # type: ignore[arg-type]


def document_of(shards: Shards, token: int) -> int:
    shard = int(np.searchsorted(shards.token_edges, token, side="right")) - 1
    sentence = int(np.searchsorted(shards[shard].sentences, token - shards.token_edges[shard], side="right"))
    return int(shards.document_edges[shard] + np.searchsorted(shards[shard].documents, sentence, side="right"))


def covered(found: Plan, total: int, *, own_only: bool) -> np.ndarray:
    """How often each token is in an example; `own_only` leaves out a B from another document."""
    times = np.zeros(total, dtype=int)
    for row in found.examples:
        times[row["a"] : row["a"] + row["a_size"]] += 1
        if not (own_only and row["label"] == NEGATIVE_PAIR):
            times[row["b"] : row["b"] + row["b_size"]] += 1
    return times


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("held_out", [0.0, 0.05])
@pytest.mark.parametrize("max_length", [16, 48, 512])
def test_tokens_in_are_tokens_out_and_said_losses(shards: Shards, pairs: str, held_out: float, max_length: int) -> None:
    found = plan(shards, pairs=pairs, held_out=held_out, max_length=max_length)
    tally, total = found.stats, shards.manifest.counts.tokens
    assert tally.tokens_in + tally.repeated == tally.tokens_out + tally.lost
    assert found.lengths.max() <= max_length and found.lengths.min() > found.n_special
    times = covered(found, total, own_only=pairs == "nsp")
    assert times.max() == 1, "a token is used once"
    assert times.sum() == tally.tokens_out - tally.repeated == tally.tokens_in - tally.lost
    if pairs in ("none", "stream"):
        assert tally.lost == tally.repeated == 0
    if not held_out:
        assert tally.tokens_in == total
    else:
        rest = plan(shards, pairs=pairs, held_out=held_out, max_length=max_length, part="held_out")
        assert rest.stats.tokens_in + tally.tokens_in == total
        assert 0.02 * total < rest.stats.tokens_in < 0.1 * total


@pytest.mark.parametrize("pairs", PAIRS)
def test_held_out_text_is_never_trained_on(shards: Shards, pairs: str) -> None:
    options = {"pairs": pairs, "held_out": 0.1}
    trained = covered(plan(shards, **options), shards.manifest.counts.tokens, own_only=False)
    held = covered(plan(shards, part="held_out", **options), shards.manifest.counts.tokens, own_only=pairs == "nsp")
    assert not (trained.astype(bool) & held.astype(bool)).any()
    other = covered(plan(shards, seed=5, epoch=3, **options), shards.manifest.counts.tokens, own_only=False)
    assert not (other.astype(bool) & held.astype(bool)).any(), "whatever the seed"


def test_every_document_but_one_held_out(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, ["Bado fike lumo.", "Rate sipa to."])
    ends = 0
    for seed in range(6):
        try:
            plan(shards, pairs="nsp", held_out=0.5, seed=seed)
        except BadText as error:
            ends += error.code == "too-few-documents"
    assert ends


def test_damaged_plans_are_made_again(shards: Shards, tmp_path: Path) -> None:
    config = DataConfig(pairs="nsp", max_length=48)
    first = make_plan(shards, config, "train", 0, 0, tmp_path)
    path, record = next(tmp_path.glob("*.plan")), next(tmp_path.glob("*.json"))
    whole, said, rows = path.read_bytes(), record.read_bytes(), first.examples.tobytes()
    for content in (whole[:-1], b"", whole[:100] + b"x" + whole[101:]):
        path.write_bytes(content)
        assert make_plan(shards, config, "train", 0, 0, tmp_path).examples.tobytes() == rows
    for text in (b"{}", b"[]", b"not json", b'{"tally": {"x": 1}, "sha256": 5}'):
        record.write_bytes(text)
        assert make_plan(shards, config, "train", 0, 0, tmp_path).examples.tobytes() == rows
        assert record.read_bytes() == said
    path.unlink()
    assert make_plan(shards, config, "train", 0, 0, tmp_path).examples.tobytes() == rows


def test_next_sentences(shards: Shards) -> None:
    found = plan(shards, pairs="nsp", short_seq_prob=0.1).examples
    labels = found["label"]
    assert len(labels) > 500 and abs((labels == NEGATIVE_PAIR).mean() - 0.5) < 4 * 0.5 / np.sqrt(len(labels))
    for row in found:
        a, b = document_of(shards, int(row["a"])), document_of(shards, int(row["b"]))
        assert row["a_size"] and row["b_size"]
        if row["label"] == NEGATIVE_PAIR:
            assert a != b, "from another document"
        else:
            assert a == b and row["b"] >= row["a"] + row["a_size"], "B follows A"
            assert document_of(shards, int(row["b"] + row["b_size"]) - 1) == a


def test_swapped_sentences(shards: Shards) -> None:
    found = plan(shards, pairs="sop").examples
    labels = found["label"]
    assert abs((labels == NEGATIVE_PAIR).mean() - 0.5) < 4 * 0.5 / np.sqrt(len(labels))
    for row in found:
        a, b = int(row["a"]), int(row["b"])
        first, second = (b, a) if row["label"] == NEGATIVE_PAIR else (a, b)
        size = int(row["b_size"] if row["label"] == NEGATIVE_PAIR else row["a_size"])
        assert first + size <= second and document_of(shards, a) == document_of(shards, b)


@settings(max_examples=40)
@given(
    max_length=st.integers(8, 200),
    cross=st.booleans(),
    pairs=st.sampled_from(["none", "stream"]),
    short=st.sampled_from([0.0, 0.3]),
)
def test_packing(shards: Shards, max_length: int, cross: bool, pairs: str, short: float) -> None:
    found = plan(shards, pairs=pairs, max_length=max_length, cross_documents=cross, short_seq_prob=short, held_out=0)
    assert covered(found, shards.manifest.counts.tokens, own_only=False).tolist() == [1] * shards.manifest.counts.tokens
    assert (found.examples["label"] == NO_LABEL).all() and (found.lengths <= max_length).all()
    for row in found.examples[:: max(1, len(found.examples) // 50)]:
        begin, end = int(row["a"]), int(row["a"] + row["a_size"])
        crossed = document_of(shards, end - 1) - document_of(shards, begin)
        follows = (
            pairs == "stream"
            and begin not in shards.token_edges
            and document_of(shards, begin - 1) != document_of(shards, begin)
        )
        assert crossed + follows == row["breaks"]
        if pairs == "none" and not cross:
            assert crossed == 0


def test_full_sentences_end_with_sentences(shards: Shards) -> None:
    ends = {int(end + shards.token_edges[index]) for index in range(len(shards)) for end in shards[index].sentences}
    found = plan(shards, pairs="none", max_length=256, short_seq_prob=0)
    assert all(int(row["a"] + row["a_size"]) in ends for row in found.examples)
    cut = plan(shards, pairs="none", max_length=10, short_seq_prob=0)
    assert any(int(row["a"] + row["a_size"]) not in ends for row in cut.examples), (
        "a sentence longer than the room is cut"
    )


def test_short_examples(shards: Shards) -> None:
    """Mostly as long as may be; sometimes anything."""
    lengths = {rate: plan(shards, pairs="none", short_seq_prob=rate).lengths for rate in (0.0, 1.0)}
    assert lengths[1.0].mean() < 0.75 * lengths[0.0].mean()
    assert set(range(6, 48)) <= set(lengths[1.0].tolist())


@pytest.mark.parametrize("pairs", PAIRS)
def test_a_plan_is_a_function_of_seed_and_epoch(shards: Shards, pairs: str, tmp_path: Path) -> None:
    def examples(seed: int, epoch: int, cache: Path) -> bytes:
        made: bytes = make_plan(
            shards, DataConfig(pairs=pairs, max_length=48), "train", seed, epoch, cache
        ).examples.tobytes()  # type: ignore[arg-type]
        return made

    first = examples(1, 2, tmp_path / "a")
    assert first == examples(1, 2, tmp_path / "b") == examples(1, 2, tmp_path / "a")
    drawn = pairs != "stream"
    assert (examples(1, 3, tmp_path / "a") != first) is drawn and (examples(2, 2, tmp_path / "a") != first) is drawn
    for epoch in range(40):
        examples(1, epoch, tmp_path / "a")
    assert len(list((tmp_path / "a").glob("*.plan"))) <= 32


def test_too_little_for_pairs(tmp_path: Path, shards: Shards) -> None:
    single = make_shards(tmp_path, ["Bado fike. Lumo."])
    with refused("single-document", place=str(single.folder), kind=BadText):
        plan(single, pairs="nsp")
    assert plan(single, pairs="sop", held_out=0).stats.examples == 1
    with refused("no-room", kind=BadConfig):
        make_plan(shards, DataConfig(pairs="nsp").model_copy(update={"max_length": 4}), "train", 0, 0)


@settings(max_examples=100)
@given(sentences=st.integers(1, 5000), share=st.sampled_from([0.0, 0.005, 0.01, 0.1, 0.35, 0.45, 0.5]))
def test_held_out_passages(sentences: int, share: float) -> None:
    held = HeldOut(sentences, share)
    flags, at = [], 0
    while at < sentences:
        flag, stop = held.lookup(at)
        assert stop > at
        flags += [flag] * (min(stop, sentences) - at)
        at = stop
    assert flags == [held.lookup(sentence)[0] for sentence in range(sentences)]
    if share == 0:
        assert not any(flags)
    elif sentences >= 2 / share:
        assert 0.5 * share * sentences - 1 <= sum(flags) <= 1.5 * share * sentences + held.passage
