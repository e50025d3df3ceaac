"""Words looked up once give what the tokenizer gives; sentences end where people end them; Chinese words are whole."""

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

GOLDEN = "使用语言模型来预测下一个词的probability"


@pytest.fixture(scope="module", params=CLASSES)
def tokenizer(request: pytest.FixtureRequest, shared: Path) -> Tokenizer:
    return Tokenizer.load(shared / "vocab" / request.param)


@pytest.fixture(scope="module")
def speller(tokenizer: Tokenizer) -> CachedEncoder:
    return CachedEncoder(tokenizer, "char")


def whole(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.backend.encode(" ".join(text.split()), add_special_tokens=False).ids
    return ids


def test_words_looked_up_are_the_tokenizers(tokenizer: Tokenizer, shared: Path) -> None:
    speller = CachedEncoder(tokenizer)
    assert speller.by_word
    for text in [*NASTY, *real_lines(shared, 60)]:
        spelled = speller.encode([text], [True])
        assert spelled.ids.tolist() == whole(tokenizer, text), text
        assert len(spelled.word_starts) == len(spelled.ids) == spelled.lengths.sum()
        assert not len(spelled.word_starts) or spelled.word_starts[0]


CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"]), st.sampled_from("ab1.,-' \u0301\u0308\u200d中国é\t(ñ)ﬁ¨½▁Ġ")
)


@settings(max_examples=150)
@given(st.text(alphabet=CHARACTERS, max_size=25))
@example("a \u0301b")
@example("\u0308")
@example("a\x1cb \x85 c")
def test_any_text_is_spelled_as_the_tokenizer_does(tokenizer: Tokenizer, speller: CachedEncoder, text: str) -> None:
    assert speller.encode([text], [True]).ids.tolist() == whole(tokenizer, text)


def test_sentences_that_follow_others_keep_their_space(shared: Path) -> None:
    """Byte-level BPE: a document read sentence by sentence has the tokens of the document read at once."""
    for name in ("roberta", "gpt2", "bert-base-uncased", "albert-base-v2"):
        tokenizer = Tokenizer.load(shared / "vocab" / name)
        text = "Hello there. It is I, the naïve one! Is it? Yes."
        sentences = split_sentences(text)
        assert len(sentences) == 4
        spelled = CachedEncoder(tokenizer).encode(sentences, [True, False, False, False])
        assert spelled.ids.tolist() == whole(tokenizer, text)
        assert spelled.lengths.tolist() == [
            len(part) for part in np.split(spelled.ids, np.cumsum(spelled.lengths)[:-1])
        ]


def test_memory_of_words_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertworks.text.cached_encoder.CACHE_SIZE", 50)
    tokenizer = tiny_tokenizer()
    speller = CachedEncoder(tokenizer)
    for text in documents(60, seed=1):
        assert speller.encode([text], [True]).ids.tolist() == whole(tokenizer, text)
        assert len(speller.index) < 50 + 200
    marked = "zu-fo." * 10
    for text in (marked, "zu fo", marked, "fo. zu-"):
        assert speller.encode([text], [True]).ids.tolist() == whole(tokenizer, text)
    long = "ba" * 40
    assert speller.encode([long, "ba", long], [True, False, False]).ids.tolist() == whole(
        tokenizer, f"{long} ba {long}"
    )
    assert long not in speller.index and len(speller.ids) == speller.row_offsets[-1]


def test_a_tokenizer_that_looks_across_spaces_is_asked_for_sentences(shared: Path) -> None:
    import json

    tokenizer = Tokenizer.load(shared / "vocab" / "albert-base-v2")
    layout = json.loads(tokenizer.files["tokenizer.json"])
    layout["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    across = Tokenizer.from_json(layout, tokenizer.config)
    speller = CachedEncoder(across)
    assert not speller.by_word
    for text in (*NASTY, "of the in the to the"):
        assert speller.encode([text, text], [True, False]).ids.tolist() == whole(across, text) * 2


@pytest.mark.parametrize("name", CLASSES)
def test_marks_are_words_of_their_own(name: str, shared: Path) -> None:
    """transformers' whole-word masking takes "hello," for one word."""
    tokenizer = Tokenizer.load(shared / "vocab" / name)
    spelled = CachedEncoder(tokenizer).encode(["well, hello, unbelievably!"], [True])
    pieces = [tokenizer.readable(id) for id in spelled.ids.tolist()]
    words = ["".join(pieces[a:b]) for a, b in zip(*_edges(spelled.word_starts), strict=True)]
    assert words == ["well", ",", "hello", ",", "unbelievably", "!"]


def _edges(starts: np.ndarray) -> tuple[list[int], list[int]]:
    begins = np.flatnonzero(starts).tolist()
    return begins, [*begins[1:], len(starts)]


@pytest.mark.parametrize("name", ["bert-base-chinese", "bert-base-uncased", "roberta", "xlnet"])
def test_chinese_words_are_whole(name: str, shared: Path) -> None:
    tokenizer = Tokenizer.load(shared / "vocab" / name)
    encoding = tokenizer.backend.encode(GOLDEN, add_special_tokens=False)
    spelled = CachedEncoder(tokenizer).encode([GOLDEN], [True])
    assert spelled.ids.tolist() == encoding.ids
    words = [
        GOLDEN[encoding.offsets[a][0] : encoding.offsets[b - 1][1]]
        for a, b in zip(*_edges(spelled.word_starts), strict=True)
    ]
    assert "".join(words) == GOLDEN and words[-1] == "probability"
    if name.startswith("bert"):
        assert words == ["使用", "语言", "模型", "来", "预测", "下", "一个", "词", "的", "probability"]
    single = CachedEncoder(tokenizer, "char").encode([GOLDEN], [True])
    if name == "bert-base-chinese":
        assert single.word_starts.sum() == 15 and single.ids.tolist() == spelled.ids.tolist()


def test_without_rjieba(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    tokenizer = Tokenizer.load(shared / "vocab" / "bert-base-chinese")
    assert len(CachedEncoder(tokenizer).encode(["no Chinese here"], [True]).ids) > 2
    with refused("missing-extra", kind=Unsupported) as error:
        CachedEncoder(tokenizer).encode([GOLDEN], [True])
    assert "rjieba" in error.value.cause and GOLDEN[:2] in error.value.cause
    assert "pip install 'bertworks[zh]'" in error.value.remedy and "--words char" in error.value.remedy
    assert CachedEncoder(tokenizer, "char").encode([GOLDEN], [True]).word_starts.any()


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


def test_endless_sentences_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "word " * 10_000
    parts = split_sentences(words)
    assert max(map(len, parts)) <= MAX_SENTENCE_CHARACTERS and "".join(parts).replace(" ", "") == words.replace(" ", "")
    assert all(part.startswith("word") and part.endswith("word") for part in parts)
    assert sum(map(len, split_sentences("x" * 1_000_000))) == 1_000_000
