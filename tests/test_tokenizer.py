"""Text to tokens: offsets that point into the user's text, ids that are transformers', and clear words for what is no
text."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertworks.errors import BadConfig, BadText, NotFound, Unsupported
from bertworks.model.locate import locate
from bertworks.model.pooling import Pooling
from bertworks.predictor import Embedder
from bertworks.text.backends import word_piece
from bertworks.text.ledger import Ledger
from bertworks.text.tokenizer import Tokenizer
from refusals import figures, refused
from texts import NASTY

VOCAB = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s un ##aff ##able a b , 中 国 caf ##e".split()


@pytest.fixture(scope="module")
def minilm() -> Tokenizer:
    return Tokenizer.load(locate("minilm"))


@pytest.fixture(scope="module")
def theirs() -> transformers.PreTrainedTokenizerFast:
    return transformers.AutoTokenizer.from_pretrained(locate("minilm"))


def write_vocab(folder: Path, vocab: list[str] = VOCAB, **config: object) -> Path:
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def normalised(text: str) -> str:
    """The text as BERT's uncased normaliser returns it."""
    clean = "".join(
        c for c in text if c in "\t\n\r" or not (c in "\x00\ufffd" or unicodedata.category(c).startswith("C"))
    )
    return "".join(c for c in unicodedata.normalize("NFD", clean) if unicodedata.category(c) != "Mn").lower()


@settings(max_examples=300)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
@example("naïve cafe\u0301, 中国! \U0001f468\u200d\U0001f469")
@example("İ ŉ ǰ ΐ")
@example("써 한국어")
@example("a\u0300" * 30)
def test_offsets_point_into_the_text(minilm: Tokenizer, text: str) -> None:
    """Inside the text, monotone, and the slice normalises to the piece.

    One character can become several pieces (a Hangul syllable is two or three letters); they share its slice, and
    together they are what it normalises to.
    """
    if not text.strip():
        return
    pieces = minilm.pieces(text)
    groups: list[tuple[int, int, str]] = []
    for piece, (start, end), special in zip(pieces.pieces, pieces.offsets, pieces.special, strict=True):
        if special:
            continue
        assert 0 <= start <= end <= len(text)
        content = piece.removeprefix("##")
        if groups and start < groups[-1][1]:
            assert start >= groups[-1][0], "offsets go back"
            first, last, joined = groups.pop()
            start = first
            end = max(last, end)
            content = joined + content
        groups.append((start, end, content))
    for start, end, joined in groups:
        if "[UNK]" not in joined and joined != text[start:end]:  # the latter: special tokens written in the text
            assert normalised(text[start:end]) == joined, (joined, text[start:end])


@pytest.mark.parametrize("text", NASTY)
def test_ids_match_transformers(minilm: Tokenizer, theirs: transformers.PreTrainedTokenizerFast, text: str) -> None:
    encoded = theirs(text, "and a pair", return_offsets_mapping=True)
    pieces = minilm.pieces(text, "and a pair")
    assert pieces.ids == encoded["input_ids"]
    assert pieces.segments == encoded["token_type_ids"]
    assert pieces.offsets == [tuple(span) for span in encoded["offset_mapping"]]
    assert minilm.encode([text])[0].tolist() == theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased", "bert-base-chinese"])
@pytest.mark.parametrize("with_config", [True, False])
def test_real_vocabularies(name: str, with_config: bool, shared: Path, tmp_path: Path) -> None:
    """From vocab.txt alone; whether it is cased is read off the vocabulary when no file says so. AutoTokenizer agrees
    with what is saved."""
    cased = name != "bert-base-uncased"
    lower = not cased if with_config else None
    (tmp_path / "vocab.txt").write_bytes((shared / "vocab" / name / "vocab.txt").read_bytes())
    if lower is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.BertTokenizer.from_pretrained(shared / "vocab" / name, do_lower_case=not cased)
    assert (
        len(theirs)
        == ours.vocab_size
        == {"bert-base-uncased": 30522, "bert-base-cased": 28996, "bert-base-chinese": 21128}[name]
    )
    (tmp_path / "saved").mkdir()
    ours.save(tmp_path / "saved")
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in NASTY:
        ids = ours.pieces(text).ids
        assert ids == theirs(text)["input_ids"], text
        assert ids == auto(text)["input_ids"], text


def test_handmade_vocabulary(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write_vocab(tmp_path))
    pieces = tokenizer.pieces("Unaffable CATS, 中国", "the café")
    assert pieces.pieces == [
        "[CLS]",
        "un",
        "##aff",
        "##able",
        "cat",
        "##s",
        ",",
        "中",
        "国",
        "[SEP]",
        "the",
        "caf",
        "##e",
        "[SEP]",
    ]
    assert pieces.segments == [0] * 10 + [1] * 4
    assert pieces.offsets[1:4] == [(0, 2), (2, 5), (5, 9)]
    assert pieces.offsets[10:13] == [(0, 3), (4, 7), (7, 8)]
    assert pieces.words[1:6] == [0, 0, 0, 1, 1]
    assert tokenizer.decode(pieces.ids[1:4]) == "unaffable"
    assert [tokenizer.id_of(kind) for kind in ("pad", "unk", "cls", "sep", "mask")] == [0, 1, 2, 3, 4]
    assert tokenizer.pieces("a [MASK] b").ids == [2, 11, 4, 12, 3]


def test_special_tokens_by_other_names(tmp_path: Path) -> None:
    vocab = ["<pad>", "<unk>", "<s>", "</s>", "[BLANK]", "a"]
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"cls_token": {"content": "<s>"}, "sep_token": {"content": "</s>"}})
    )
    config = {"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": {"content": "[BLANK]", "lstrip": False}}
    tokenizer = Tokenizer.load(write_vocab(tmp_path, vocab, **config))
    assert tokenizer.pieces("a [BLANK]").pieces == ["<s>", "a", "[BLANK]", "</s>"]
    assert tokenizer.id_of("mask") == 4 and tokenizer.id_of("pad") == 0
    (tmp_path / "saved").mkdir()
    tokenizer.save(tmp_path / "saved")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")("a [BLANK]")["input_ids"] == [2, 5, 4, 3]
    assert Tokenizer.load(tmp_path / "saved").pieces("a [BLANK]") == tokenizer.pieces("a [BLANK]")


def test_added_tokens_beside_vocab_txt_are_refused(tmp_path: Path) -> None:
    write_vocab(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"covid": 18}))
    with refused("added-tokens", place=str(tmp_path)) as error:
        Tokenizer.load(tmp_path)
    assert "'covid'" in error.value.cause


def test_remote_code_of_a_tokenizer_is_ignored_and_reported(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write_vocab(tmp_path, auto_map={"AutoTokenizer": "evil.Tokenizer"}, do_lower_case=True))
    assert [remark.code for remark in tokenizer.remarks] == ["remote-code-ignored"]
    assert "auto_map" in str(tokenizer.remarks[0])
    assert b"auto_map" not in tokenizer.files["tokenizer_config.json"]


def make_embedder(folder: Path, limit: int = 10) -> Embedder:
    """An embedder without a model: texts are prepared only."""
    return Embedder(None, Tokenizer.load(write_vocab(folder)), Pooling(), limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [1, 8, 9, 16, 17, 100])
def test_windows_cover_every_token_and_overlap(tmp_path: Path, length: int) -> None:
    ledger = Ledger()
    (features,) = make_embedder(tmp_path).prepare(["a b " * (length // 2) + "a" * (length % 2)], ledger=ledger)
    rows = [window.ids.tolist() for window in features.windows]
    assert all(len(row) <= 10 and row[0] == 2 and row[-1] == 3 for row in rows)
    assert not any(window.segments.any() for window in features.windows)
    if length > 8:
        assert {len(row) for row in rows} == {10}
        assert len(rows) > -(-length // 8) - 1, "all windows are as long as the model allows"
    assert rows[0][1:-1] == ([11, 12] * length)[: min(8, length)]
    assert rows[-1][-2] == (11 if length % 2 else 12)
    assert (ledger.texts, ledger.tokens, ledger.windowed_texts) == (1, length, int(length > 8))
    assert ledger.windowed_tokens == (length if length > 8 else 0) and ledger.cut_tokens == 0


def test_truncation_is_counted_and_refusal_names_the_text(tmp_path: Path) -> None:
    ledger = Ledger()
    prepared = make_embedder(tmp_path).prepare(["a", "a " * 20], "truncate", ledger)
    assert [len(window.ids) - 2 for features in prepared for window in features.windows] == [1, 8]
    assert (ledger.cut_texts, ledger.cut_tokens, ledger.tokens) == (1, 12, 21)
    assert figures(ledger) >= {"12", "57.1%"}
    with refused("unknown-value") as error:
        make_embedder(tmp_path).prepare(["a"], "trunc")  # type: ignore[arg-type]
    assert error.value.fields == ["on_long"]
    assert all(name in str(error.value) for name in ("on_long", "'trunc'", "window", "truncate", "error"))
    with refused("no-room", kind=BadConfig):
        make_embedder(tmp_path, 2).prepare(["a"])
    with refused("no-tokens", kind=BadText, place="text 2"):
        make_embedder(tmp_path).prepare(["a", "\u200b\x07"])
    with refused("too-long", place="text 2") as error:
        make_embedder(tmp_path).prepare(["a", "a " * 20], "error")
    assert figures(error.value.cause) == {"20", "8"}


@pytest.mark.parametrize(
    ("texts", "code", "mentioned"),
    [
        (["fine", ""], "empty-text", ""),
        (["fine", " \n\t\u3000"], "empty-text", ""),
        (["ok", "half \ud83d here"], "lone-surrogate", "U+D83D"),
        (["ok", None], "not-a-string", "NoneType"),
        (["ok", 3.5], "not-a-string", "a float"),
        (["ok", 3], "not-a-string", "an int"),
        (["ok", b"bytes"], "not-a-string", "bytes"),
    ],
)
def test_inputs_that_are_not_texts_are_refused(minilm: Tokenizer, texts: list[str], code: str, mentioned: str) -> None:
    with refused(code, place="text 2", kind=BadText) as error:
        minilm.encode(texts)
    assert mentioned in error.value.cause


def test_ten_megabytes_without_a_space(minilm: Tokenizer) -> None:
    for text in ("x" * 10_000_000, "!" * 10_000_000, "http://a.b/" * 1_000_000):
        with refused("no-spaces", place="text 2") as error:
            minilm.encode(["fine", text])
        assert figures(error.value.cause) == {"1,000,000"}
        with refused("no-spaces") as error:
            minilm.pieces(text)
        assert "1,000,000" in figures(error.value.cause)
    with refused("word-too-long", place="text 2, characters 15 to 20,015", kind=BadText) as error:
        minilm.encode(["fine", "some words and " + "x" * 20_000])
    assert figures(error.value.cause) == {"20,000"}
    assert len(minilm.encode(["中" * 100_000])[0]) == 100_000  # no spaces there, and none needed


def test_tokenizer_files_that_fail_in_use_are_refused(minilm: Tokenizer, tmp_path: Path) -> None:
    """Well-formed files that fail when first used, or that add special tokens in an unsupported way."""
    layout = json.loads(minilm.files["tokenizer.json"])

    def with_template(**changes: Any) -> dict[str, Any]:
        return {**layout, "post_processor": {**layout["post_processor"], **changes}}

    sep = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
    bad_layouts = [
        with_template(special_tokens={}),
        with_template(single=[{"Sequence": {"id": "A", "type_id": 1}}, sep]),
        {**layout, "model": {**layout["model"], "vocab": {"zz": 0}, "unk_token": "?"}, "added_tokens": []},
    ]
    for values in bad_layouts:
        (tmp_path / "tokenizer.json").write_text(json.dumps(values))
        with pytest.raises((BadConfig, Unsupported)):
            Tokenizer.load(tmp_path)
    special_tokens = {
        **layout["post_processor"]["special_tokens"],
        "[SEP]": {"id": "[SEP]", "ids": [99_999], "tokens": ["[SEP]"]},
    }
    far_id = with_template(special_tokens=special_tokens)
    (tmp_path / "tokenizer.json").write_text(json.dumps(far_id))
    assert Tokenizer.load(tmp_path).vocab_size == 100_000  # so that no model of 30,522 accepts it


@pytest.mark.parametrize("name", ["$A", "c:1", "[C LS]"])
def test_special_tokens_with_unsupported_characters(tmp_path: Path, name: str) -> None:
    with refused("bad-special-token", place="vocab.txt") as error:
        Tokenizer.load(write_vocab(tmp_path, ["[UNK]", "[SEP]", name, "a"], cls_token=name))
    assert repr(name) in error.value.cause


def test_bad_tokenizer_files(tmp_path: Path) -> None:
    with refused("no-tokenizer", place=str(tmp_path), kind=NotFound) as error:
        Tokenizer.load(tmp_path)
    assert "tokenizer.json" in error.value.cause and "vocab.txt" in error.value.cause
    with refused("given-twice", place="vocab.txt") as error:
        Tokenizer.load(write_vocab(tmp_path, ["a", "a"]))
    assert "'a'" in error.value.cause and figures(error.value.cause) == {"1", "2"}
    with refused("missing-special-token", place="vocab.txt", kind=BadConfig) as error:
        Tokenizer.load(write_vocab(tmp_path, ["a", "b"]))
    assert all(name in error.value.cause for name in ("[UNK]", "[CLS]", "[SEP]"))
    (tmp_path / "vocab.txt").write_bytes(b"ok\n\xff\xfe\n")
    with refused("not-utf8", place="vocab.txt", kind=BadConfig) as error:
        Tokenizer.load(tmp_path)
    assert "3" in figures(error.value.cause)
    for content in (b"", b"{}", b"[" * 100_000, b'{"version": "1.0"}', b"\xff"):
        (tmp_path / "tokenizer.json").write_bytes(content)
        with pytest.raises(BadConfig):
            Tokenizer.load(tmp_path)


def test_padding_and_truncation_of_the_file_do_not_apply(minilm: Tokenizer) -> None:
    """MiniLM's tokenizer.json pads and truncates to 128."""
    assert "truncation" in json.loads(minilm.files["tokenizer.json"])
    assert len(minilm.pieces("word " * 300).ids) == 302
    assert len(minilm.pieces("word").ids) == 3


def test_word_piece_needs_no_folder() -> None:
    backend = word_piece({piece: i for i, piece in enumerate(VOCAB)}, {"do_lower_case": False})
    assert backend.encode("cats Cat").tokens == ["[CLS]", "cat", "##s", "[UNK]", "[SEP]"]
