"""Which positions, what stands there, and that nothing of it depends on anything but seed, epoch and index."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import bertworks.data.parts
from bertworks.config import DataConfig, check_data
from bertworks.data.corruption import MaskForReplacement, MaskTokens, NoCorruption, PermuteTargets
from bertworks.data.loader import Loader, PretrainBatch
from bertworks.data.masking import choose_targets, mask_targets, prediction_order
from bertworks.data.rng import Stream, rng
from bertworks.data.shards import Shards
from bertworks.errors import BadConfig, BadShards, Unsupported
from bertworks.text.tokenizer import Tokenizer
from refusals import refused
from texts import documents, make_shards

UNITS = ("token", "word", "ngram", "span")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bertworks.data.parts, "BLOCK_CHARACTERS", 20_000)
        return make_shards(tmp_path_factory.mktemp("masking"), documents(300, seed=8, sentences=(3, 20)))


def random_sequence(seed: int, size: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens may be masked, and where words start."""
    rng = np.random.default_rng(seed)
    maskable = rng.random(size) > 0.05
    maskable[0] = maskable[-1] = False
    return maskable, rng.random(size) < 0.6


def words_of(maskable: np.ndarray, starts: np.ndarray) -> list[list[int]]:
    words: list[list[int]] = []
    for i in np.flatnonzero(maskable):
        if starts[i] or not maskable[i - 1]:
            words.append([])
        words[-1].append(int(i))
    return words


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("rate", [0.15, 0.4, 0.9])
def test_the_mask_rate_is_exact_on_average(unit: str, rate: float) -> None:
    """The mean over many sequences, within four of its own standard errors; also for short ones."""
    for size in (12, 60, 200):
        deviations = []
        for index in range(1500):
            maskable, starts = random_sequence(index, size)
            deviations.append(
                len(choose_targets(rng(3, Stream.TARGETS, 0, index), unit, rate, maskable, starts))
                - rate * maskable.sum()
            )  # type: ignore[arg-type]
        assert abs(np.mean(deviations)) < 4 * np.std(deviations) / np.sqrt(len(deviations)), (size, np.mean(deviations))


@settings(max_examples=200)
@given(seed=st.integers(0, 10**9), unit=st.sampled_from(UNITS), rate=st.floats(0, 1), size=st.integers(3, 150))
def test_special_tokens_are_never_masked_and_words_only_whole(seed: int, unit: str, rate: float, size: int) -> None:
    maskable, starts = random_sequence(seed, size)
    targets = choose_targets(rng(seed, Stream.TARGETS), unit, rate, maskable, starts)  # type: ignore[arg-type]
    assert maskable[targets].all() and (np.diff(targets) > 0).all()
    if unit == "token":
        assert abs(len(targets) - rate * maskable.sum()) <= 1
    else:
        chosen = set(targets.tolist())
        assert all(len(chosen & set(word)) in (0, len(word)) for word in words_of(maskable, starts))
    assert rate > 0 or not len(targets)
    if rate == 1.0:
        assert len(targets) == maskable.sum()


def test_every_token_is_equally_likely_to_be_masked() -> None:
    maskable = np.ones(40, dtype=bool)
    starts = np.ones(40, dtype=bool)
    counts = np.zeros(40)
    for index in range(4000):
        counts[choose_targets(rng(1, Stream.TARGETS, 0, index), "token", 0.15, maskable, starts)] += 1
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(
    ("unit", "weights"), [("ngram", [6 / 11, 3 / 11, 2 / 11]), ("span", [0.2 * 0.8**n for n in range(10)])]
)
def test_lengths_of_masked_ngrams_and_spans(unit: str, weights: list[float]) -> None:
    """Few spans in a long text: their lengths are distributed as in the papers."""
    size = 2000
    maskable = np.ones(size, dtype=bool)
    starts = np.ones(size, dtype=bool)
    counts = np.zeros(len(weights))
    for index in range(600):
        targets = choose_targets(rng(1, Stream.TARGETS, 0, index), unit, 0.02, maskable, starts)  # type: ignore[arg-type]
        runs = np.split(targets, np.flatnonzero(np.diff(targets) > 1) + 1)
        for run in runs:
            if len(run) <= len(counts):
                counts[len(run) - 1] += 1
    expected = np.array(weights) / sum(weights)
    assert np.abs(counts / counts.sum() - expected).max() < 0.05  # two adjacent spans look like a longer one


@pytest.mark.parametrize("shares", [(0.8, 0.1), (0.5, 0.5), (1.0, 0.0), (0.0, 0.0)])
def test_replacements_of_masked_tokens(shares: tuple[float, float]) -> None:
    n = 200_000
    mask = 4
    ordinary_ids = np.arange(5, 1005)
    ids = np.full(n, 500)
    targets = np.arange(0, n, 2)
    new = mask_targets(rng(9, Stream.REPLACEMENTS), ids, targets, mask, ordinary_ids, *shares)
    assert (new[1::2] == 500).all() and (ids == 500).all()
    replaced = new[targets]
    random_tokens = replaced[(replaced != mask) & (replaced != 500)]
    expected = np.array([shares[0], shares[1] * 999 / 1000, 1 - shares[0] - shares[1] * 999 / 1000]) * len(targets)
    observed = np.array([(replaced == mask).sum(), len(random_tokens), (replaced == 500).sum()])
    keep = expected > 0
    assert observed[~keep].sum() == 0
    assert keep.sum() == 1 or stats.chisquare(observed[keep], expected[keep]).pvalue > 1e-4
    if len(random_tokens):
        assert set(random_tokens) <= set(ordinary_ids)
        assert (
            stats.chisquare(np.bincount(random_tokens, minlength=1005)[ordinary_ids[ordinary_ids != 500]]).pvalue > 1e-4
        )


def test_prediction_orders_are_permutations() -> None:
    targets = np.array([2, 3, 7, 9])
    orders = set()
    for index in range(300):
        ranks = prediction_order(rng(0, Stream.RANKS, 0, index), targets, 12)
        assert sorted(ranks[targets]) == [0, 1, 2, 3] and (np.delete(ranks, targets) == -1).all()
        orders.add(tuple(ranks[targets]))
    assert len(orders) == 24


def test_rng_streams_are_independent() -> None:
    addresses = [
        (seed, stream, epoch, index)
        for seed in (0, 1)
        for stream in Stream
        for epoch in (0, 1, 2**40)
        for index in (0, 1, 2**40)
    ]
    assert len({rng(*address).bytes(16) for address in addresses}) == len(addresses)
    assert rng(5, Stream.REPLACEMENTS, 6, 7).bytes(16) == rng(5, Stream.REPLACEMENTS, 6, 7).bytes(16)


CORRUPTIONS = {
    "masked": MaskTokens(),
    "replaced": MaskForReplacement(),
    "permuted": PermuteTargets(),
    "nothing": NoCorruption(),
}


def make_loader(
    shards: Shards,
    corruption: str = "masked",
    split: str = "train",
    seed: int = 0,
    batch_tokens: int = 1000,
    **values: object,
) -> Loader:
    config = check_data({"max_length": 64, "pairs": "nsp", **values})
    return Loader(shards, config, corruption=CORRUPTIONS[corruption], split=split, seed=seed, batch_tokens=batch_tokens)  # type: ignore[arg-type]


def equal_batches(a: PretrainBatch, b: PretrainBatch) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in PretrainBatch.__dataclass_fields__
        if getattr(a, name) is not None
    )


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none", "stream"])
@pytest.mark.parametrize("corruption", ["masked", "replaced", "permuted", "nothing"])
def test_batches(shards: Shards, pairs: str, corruption: str) -> None:
    """Every example once, within the token budget, with special tokens and its own tokens, targets and labels."""
    epoch = make_loader(shards, corruption, pairs=pairs).epoch(0)
    tokenizer = shards.tokenizer
    examples = []
    cls, sep, mask = (tokenizer.id_of(kind) for kind in ("cls", "sep", "mask"))
    for index in range(len(epoch)):
        batch = epoch[index]
        assert len(batch.ids) == len(batch.segments) == batch.lengths.sum() <= 1000
        starts = np.cumsum(batch.lengths) - batch.lengths
        assert (batch.ids[starts] == cls).all()
        assert (batch.ids[starts + batch.lengths - 1] == sep).all()
        assert (batch.labels < tokenizer.vocab_size).all()
        assert not np.isin(batch.labels, [cls, sep]).any()
        assert (batch.pairs >= 0).all() == (pairs in ("nsp", "sop"))
        assert set(batch.segments.tolist()) == ({0, 1} if pairs in ("nsp", "sop") else {0})
        if corruption in ("masked", "replaced"):
            assert (batch.ids[batch.targets] == mask).any()
            assert (np.delete(batch.ids, batch.targets) != mask).all()
        if corruption == "replaced":
            assert batch.uniforms is not None
            assert batch.uniforms.shape == batch.targets.shape
            assert (batch.uniforms < 1).all()
        if corruption == "permuted":
            assert batch.ranks is not None
            assert (np.flatnonzero(batch.ranks >= 0) == batch.targets).all()
            assert (batch.ids[batch.targets] == batch.labels).all()
        assert (corruption == "nothing") == (len(batch.targets) == 0)
        examples += batch.examples.tolist()
    assert sorted(examples) == list(range(epoch.plan.stats.examples))
    with pytest.raises(IndexError):
        epoch[len(epoch)]


def test_batches_hold_examples_of_similar_length(shards: Shards) -> None:
    epoch = make_loader(shards, pairs="none", short_seq_prob=0.5).epoch(0)
    spread = np.mean([np.std(epoch[index].lengths) for index in range(len(epoch))])
    assert spread < 0.35 * epoch.plan.lengths.std()
    batch_sizes = [len(epoch[index].ids) for index in range(len(epoch))]
    assert np.mean(batch_sizes) > 0.9 * 1000


def test_the_mask_of_an_example_does_not_depend_on_its_batch(shards: Shards) -> None:
    """In any order, in any batch."""
    epoch = make_loader(shards).epoch(4)
    other_epoch = make_loader(shards, batch_tokens=300).epoch(4)
    alone = {index: epoch.gather([index]) for index in range(0, epoch.plan.stats.examples, 7)}
    for index, batch in alone.items():
        together = other_epoch.gather([0, index, 1])
        begin = together.lengths[0]
        assert together.ids[begin : begin + together.lengths[1]].tolist() == batch.ids.tolist()
    assert equal_batches(make_loader(shards).epoch(4)[len(epoch) // 2], epoch[len(epoch) // 2]), (
        "batches can be read in any order"
    )


def test_masks_repeat_every_mask_epochs(shards: Shards) -> None:
    def masked_ids(mask_epochs: int, epoch: int, seed: int = 0) -> list[int]:
        ids: list[int] = (
            make_loader(shards, seed=seed, mask_epochs=mask_epochs).epoch(epoch).gather([3, 4, 5]).ids.tolist()
        )
        return ids

    assert masked_ids(1, 0) == masked_ids(1, 1) == masked_ids(1, 17), "static masking"
    assert masked_ids(3, 0) == masked_ids(3, 3) == masked_ids(3, 30) != masked_ids(3, 1) != masked_ids(3, 2)
    assert len({tuple(masked_ids(0, epoch)) for epoch in range(8)}) == 8, "masks never repeat"
    assert masked_ids(1, 0) != masked_ids(1, 0, seed=1)
    orders = [make_loader(shards, mask_epochs=1).epoch(epoch).order.tolist() for epoch in (0, 1)]
    assert orders[0] != orders[1], "the order of examples is new all the same"


def test_evaluation_masks_are_fixed(shards: Shards) -> None:
    """Whatever training uses: 15 %, all replaced by [MASK], one seed."""
    default = make_loader(shards, split="held_out", held_out=0.1, pairs="none").epoch(0)
    unusual = make_loader(
        shards, split="held_out", held_out=0.1, pairs="none", seed=9, masking="span", mask_rate=0.4, mask_share=0.5
    ).epoch(7)
    assert len(default) == len(unusual)
    assert all(equal_batches(default[index], unusual[index]) for index in range(len(default)))
    batches = [default[index] for index in range(len(default))]
    maskable = sum(len(batch.ids) - 2 * len(batch.lengths) for batch in batches)
    assert abs(sum(len(batch.targets) for batch in batches) / maskable - 0.15) < 0.02
    mask = shards.tokenizer.id_of("mask")
    assert all((batch.ids[batch.targets] == mask).all() for batch in batches), "no target is left to be copied"


def test_loader_errors(shards: Shards, shared: Path, tmp_path: Path) -> None:
    with refused("batch-too-small", kind=BadConfig) as error:
        make_loader(shards, batch_tokens=10)
    assert re.findall(r"batch_tokens|max_length|\d+", error.value.cause) == ["batch_tokens", "10", "max_length", "64"]
    with pytest.raises(BadConfig) as config_error:
        check_data({"mask_share": 0.9, "random_share": 0.2})
    assert config_error.value.fields == ["mask_share", "random_share"]
    gpt = make_shards(tmp_path / "gpt", ["Some text. More of it."], Tokenizer.load(shared / "vocab" / "gpt2"))
    with refused("missing-special-token", kind=Unsupported) as error:
        Loader(gpt, DataConfig(held_out=0))
    assert re.search(r"\bmask\b", error.value.cause)
    assert len(Loader(gpt, DataConfig(held_out=0, pairs="stream"), corruption=NoCorruption()).epoch(0)) == 1
    chinese = Tokenizer.load(shared / "vocab" / "bert-base-chinese")
    char_shards = make_shards(tmp_path / "char", ["使用语言模型来预测。下一个词。"], chinese, words="char")
    with refused("no-word-boundaries", place=str(char_shards.folder), kind=BadShards):
        Loader(char_shards, DataConfig(masking="word"))
    assert Loader(char_shards, DataConfig(masking="token", held_out=0)).epoch(0)[0].lengths.tolist() == [17]


CHINESE_SENTENCE = "使用语言模型来预测下一个词的probability"


@pytest.mark.parametrize("name", ["bert-base-uncased", "roberta", "xlnet", "albert-base-v2"])
def test_special_tokens_in_the_text_are_never_predicted_nor_sampled(name: str, shared: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(shared / "vocab" / name)
    strings = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values() if token.special]
    shards = make_shards(tmp_path, [f"Some text {string} and more of it." for string in strings] * 2, tokenizer)
    ids = {tokenizer.backend.token_to_id(string) for string in strings}
    assert ids & set(np.concatenate([shards[index].tokens for index in range(len(shards))]).tolist())
    loader = Loader(shards, DataConfig(held_out=0, mask_rate=1.0, mask_share=0.0, random_share=1.0))
    batch = loader.epoch(0)[0]
    assert not ids & set(batch.labels.tolist())
    assert not ids & set(loader.vocabulary.ordinary_ids.tolist())
    assert not ids & set(batch.ids[batch.targets].tolist())


def test_chinese_words_are_masked_whole_or_not_at_all(shared: Path, tmp_path: Path) -> None:
    shards = make_shards(tmp_path, [CHINESE_SENTENCE], Tokenizer.load(shared / "vocab" / "bert-base-chinese"))
    pieces = [shards.tokenizer.readable(id) for id in shards[0].tokens.tolist()]
    text = "".join(pieces)
    assert text == CHINESE_SENTENCE
    edges = np.cumsum([0, *map(len, pieces)])
    spans = {word: (text.index(word), text.index(word) + len(word)) for word in ("语言", "模型", "预测", "probability")}
    masked = dict.fromkeys(spans, 0)
    for seed in range(150):
        batch = Loader(shards, DataConfig(masking="word", mask_rate=0.3, held_out=0), seed=seed).epoch(0).gather([0])
        targets = set((batch.targets - 1).tolist())
        for word, (begin, end) in spans.items():
            pieces_of_word = {i for i in range(len(pieces)) if begin <= edges[i] < end}
            assert len(pieces_of_word) > 1
            assert len(pieces_of_word & targets) in (0, len(pieces_of_word)), (
                word,
                targets,
            )
            masked[word] += bool(pieces_of_word & targets)
    assert all(20 < count < 80 for count in masked.values()), masked


def test_special_tokens_of_every_family(shared: Path, tmp_path: Path) -> None:
    """A pair in the loader has the special tokens that the tokenizer gives to a pair."""
    texts = ["A cat sat here. It slept all day long.", "Dogs run. They bark at night, often."]
    for name in ("bert-base-uncased", "roberta", "xlnet", "albert-base-v2", "gpt2"):
        tokenizer = Tokenizer.load(shared / "vocab" / name)
        shards = make_shards(tmp_path / name, texts, tokenizer)
        if name == "gpt2":
            with refused("no-pair-separator", kind=Unsupported):
                Loader(shards, DataConfig(pairs="sop"), corruption=NoCorruption())
            continue
        epoch = Loader(shards, DataConfig(pairs="sop", held_out=0, short_seq_prob=0), corruption=NoCorruption()).epoch(
            0
        )
        for index in range(epoch.plan.stats.examples):
            example = epoch.example(index)
            row = epoch.plan.examples[index]
            a, b = (shards.token_range(int(row[side]), int(row[f"{side}_size"])).ids for side in "ab")
            probe = tokenizer.backend.encode("x", "x")
            bare = tokenizer.backend.encode("x", add_special_tokens=False).ids
            expected: list[int] = []
            texts_left = [a.tolist(), b.tolist()]
            for id, text_index in zip(probe.ids, probe.sequence_ids, strict=True):
                expected += [id] if text_index is None else texts_left[text_index]
            assert len(bare) == 1 and example.ids.tolist() == expected
            assert example.maskable.sum() == len(a) + len(b)
            assert len(set(example.segments.tolist())) == len(set(probe.type_ids))
