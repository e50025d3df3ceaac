"""Cached words give the tokenizer's ids; texts are split into sentences; Chinese text is segmented into words."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertworks.errors import Unsupported
from bertworks.text.cached_encoder import CachedEncoder
from bertworks.text.sentences import MAX_SENTENCE_CHARACTERS, split_sentences
from bertworks.text.tokenizer import Tokenizer
from refusals import refused
from test_vocabularies import CLASSES, real_lines
from texts import NASTY, documents, tiny_tokenizer

CHINESE_SENTENCE = "使用语言模型来预测下一个词的probability"


@pytest.fixture(scope="module", params=CLASSES)
def tokenizer(request: pytest.FixtureRequest, shared: Path) -> Tokenizer:
    return Tokenizer.load(shared / "vocab" / request.param)


@pytest.fixture(scope="module")
def encoder(tokenizer: Tokenizer) -> CachedEncoder:
    return CachedEncoder(tokenizer, "char")


def tokenizer_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.backend.encode(" ".join(text.split()), add_special_tokens=False).ids
    return ids


def test_cached_words_match_the_tokenizer(tokenizer: Tokenizer, shared: Path) -> None:
    encoder = CachedEncoder(tokenizer)
    assert encoder.by_word
    for text in [*NASTY, *real_lines(shared, 60)]:
        encoded = encoder.encode([text], [True])
        assert encoded.ids.tolist() == tokenizer_ids(tokenizer, text), text
        assert len(encoded.word_starts) == len(encoded.ids) == encoded.lengths.sum()
        assert not len(encoded.word_starts) or encoded.word_starts[0]


CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"]), st.sampled_from("ab1.,-' \u0301\u0308\u200d中国é\t(ñ)ﬁ¨½▁Ġ")
)


@settings(max_examples=150)
@given(st.text(alphabet=CHARACTERS, max_size=25))
@example("a \u0301b")
@example("\u0308")
@example("a\x1cb \x85 c")
def test_any_text_is_encoded_as_by_the_tokenizer(tokenizer: Tokenizer, encoder: CachedEncoder, text: str) -> None:
    assert encoder.encode([text], [True]).ids.tolist() == tokenizer_ids(tokenizer, text)


def test_later_sentences_keep_their_leading_space(shared: Path) -> None:
    """Byte-level BPE: a document encoded sentence by sentence has the tokens of the whole document."""
    for name in ("roberta", "gpt2", "bert-base-uncased", "albert-base-v2"):
        tokenizer = Tokenizer.load(shared / "vocab" / name)
        text = "Hello there. It is I, the naïve one! Is it? Yes."
        sentences = split_sentences(text)
        assert len(sentences) == 4
        encoded = CachedEncoder(tokenizer).encode(sentences, [True, False, False, False])
        assert encoded.ids.tolist() == tokenizer_ids(tokenizer, text)
        assert encoded.lengths.tolist() == [
            len(sentence_ids) for sentence_ids in np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1])
        ]


def test_the_cache_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertworks.text.cached_encoder.CACHE_SIZE", 50)
    tokenizer = tiny_tokenizer()
    encoder = CachedEncoder(tokenizer)
    for text in documents(60, seed=1):
        assert encoder.encode([text], [True]).ids.tolist() == tokenizer_ids(tokenizer, text)
        assert len(encoder.index) < 50 + 200
    punctuated = "zu-fo." * 10
    for text in (punctuated, "zu fo", punctuated, "fo. zu-"):
        assert encoder.encode([text], [True]).ids.tolist() == tokenizer_ids(tokenizer, text)
    long_word = "ba" * 40
    assert encoder.encode([long_word, "ba", long_word], [True, False, False]).ids.tolist() == tokenizer_ids(
        tokenizer, f"{long_word} ba {long_word}"
    )
    assert long_word not in encoder.index and len(encoder.ids) == encoder.row_offsets[-1]


def test_tokenizers_that_merge_across_spaces_get_whole_sentences(shared: Path) -> None:
    import json

    tokenizer = Tokenizer.load(shared / "vocab" / "albert-base-v2")
    layout = json.loads(tokenizer.files["tokenizer.json"])
    layout["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    unsplit = Tokenizer.from_json(layout, tokenizer.config)
    encoder = CachedEncoder(unsplit)
    assert not encoder.by_word
    for text in (*NASTY, "of the in the to the"):
        assert encoder.encode([text, text], [True, False]).ids.tolist() == tokenizer_ids(unsplit, text) * 2


@pytest.mark.parametrize("name", CLASSES)
def test_punctuation_marks_are_words(name: str, shared: Path) -> None:
    """In transformers' whole-word masking, "hello," is one word."""
    tokenizer = Tokenizer.load(shared / "vocab" / name)
    encoded = CachedEncoder(tokenizer).encode(["well, hello, unbelievably!"], [True])
    pieces = [tokenizer.readable(id) for id in encoded.ids.tolist()]
    words = ["".join(pieces[begin:end]) for begin, end in zip(*_word_ranges(encoded.word_starts), strict=True)]
    assert words == ["well", ",", "hello", ",", "unbelievably", "!"]


def _word_ranges(starts: np.ndarray) -> tuple[list[int], list[int]]:
    begins = np.flatnonzero(starts).tolist()
    return begins, [*begins[1:], len(starts)]


@pytest.mark.parametrize("name", ["bert-base-chinese", "bert-base-uncased", "roberta", "xlnet"])
def test_chinese_words_are_segmented(name: str, shared: Path) -> None:
    tokenizer = Tokenizer.load(shared / "vocab" / name)
    encoding = tokenizer.backend.encode(CHINESE_SENTENCE, add_special_tokens=False)
    encoded = CachedEncoder(tokenizer).encode([CHINESE_SENTENCE], [True])
    assert encoded.ids.tolist() == encoding.ids
    words = [
        CHINESE_SENTENCE[encoding.offsets[begin][0] : encoding.offsets[end - 1][1]]
        for begin, end in zip(*_word_ranges(encoded.word_starts), strict=True)
    ]
    assert "".join(words) == CHINESE_SENTENCE and words[-1] == "probability"
    if name.startswith("bert"):
        assert words == ["使用", "语言", "模型", "来", "预测", "下", "一个", "词", "的", "probability"]
    by_character = CachedEncoder(tokenizer, "char").encode([CHINESE_SENTENCE], [True])
    if name == "bert-base-chinese":
        assert by_character.word_starts.sum() == 15
        assert by_character.ids.tolist() == encoded.ids.tolist()


def test_without_rjieba(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    tokenizer = Tokenizer.load(shared / "vocab" / "bert-base-chinese")
    assert len(CachedEncoder(tokenizer).encode(["no Chinese here"], [True]).ids) > 2
    with refused("missing-extra", kind=Unsupported) as error:
        CachedEncoder(tokenizer).encode([CHINESE_SENTENCE], [True])
    assert "rjieba" in error.value.cause and CHINESE_SENTENCE[:2] in error.value.cause
    assert "pip install 'bertworks[zh]'" in error.value.remedy
    assert "--words char" in error.value.remedy
    assert CachedEncoder(tokenizer, "char").encode([CHINESE_SENTENCE], [True]).word_starts.any()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Mr. Smith met Dr. J. Doe. He left.", ["Mr. Smith met Dr. J. Doe.", "He left."]),
        ("It cost 3.50 dollars, i.e. little. e.g. this", ["It cost 3.50 dollars, i.e. little. e.g. this"]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("Wait... What? (Really!) Yes.", ["Wait...", "What?", "(Really!)", "Yes."]),
        ("So it was I. You know.", ["So it was I.", "You know."]),
        (
            "你好。他说：“走吧！”然后走了。真的？是……也许",
            ["你好。", "他说：“走吧！”", "然后走了。", "真的？", "是……", "也许"],
        ),
        ("中文。English follows. 再来中文！", ["中文。", "English follows.", "再来中文！"]),
        ("Ein Satz. Über alles. «Voilà!» Non.", ["Ein Satz.", "Über alles.", "«Voilà!»", "Non."]),
        ("   ", []),
        ("", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@settings(max_examples=200)
@given(st.text(alphabet=st.sampled_from("ab .!?…。！？”\"'A中\n\t"), max_size=60))
def test_splitting_loses_nothing(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_very_long_sentences_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "word " * 10_000
    parts = split_sentences(words)
    assert max(map(len, parts)) <= MAX_SENTENCE_CHARACTERS
    assert "".join(parts).replace(" ", "") == words.replace(" ", "")
    assert all(part.startswith("word") and part.endswith("word") for part in parts)
    assert sum(map(len, split_sentences("x" * 1_000_000))) == 1_000_000
