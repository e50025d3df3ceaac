"""More words in a vocabulary: in its model, counted where they change others, opened alike by transformers, with a
model that grows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import bertworks
from bertworks.errors import BadConfig
from bertworks.model.locate import locate
from bertworks.runs.vocabulary import extend_model
from bertworks.text.aliases import pre_tokenizer_keeping, read_aliases
from bertworks.text.backends import word_piece
from bertworks.text.coverage import Coverage, measure_coverage, script_of
from bertworks.text.extension import Extension, compare_splits, extend
from bertworks.text.tokenizer import Tokenizer
from refusals import figures, refused
from texts import NASTY, documents

TEXT = [
    "Strawberries and cytokines: the cytokine storm, again.",
    "Cytokine levels rose; interleukin fell. Strawberry fields.",
] * 5
NAMES = ("bert-base-uncased", "bert-base-cased", "roberta", "albert-base-v2", "xlnet", "gpt2")


def make_tokenizer(pieces: str) -> Tokenizer:
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces.split()]
    backend = word_piece({piece: id for id, piece in enumerate(vocab)}, {"do_lower_case": True})
    return Tokenizer.from_json(json.loads(backend.to_str()), {"do_lower_case": True})


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.backend.encode(text, add_special_tokens=False).ids
    return ids


def extend_tokenizer(
    tokenizer: Tokenizer, texts: list[str], add: int, aliases: dict[str, str] | None = None
) -> tuple[Extension, Coverage]:
    coverage = measure_coverage(tokenizer, texts)
    return extend(tokenizer, coverage, add, aliases), coverage


def test_coverage() -> None:
    tokenizer = make_tokenizer("the cat ##s un ##aff ##able , 中 1 ##9")
    coverage = measure_coverage(tokenizer, ["The cats, unaffable!", "the CATS 中国 \U0001f600 199"])
    assert {word: (use.count, len(use.ids)) for word, use in coverage.uses.items()} == {
        "the": (2, 1), "cats": (2, 2), ",": (1, 1), "unaffable": (1, 3), "!": (1, 1),
        "中": (1, 1), "国": (1, 1), "\U0001f600": (1, 1), "199": (1, 3),
    }  # fmt: skip
    assert {kind.code: count for kind, count in coverage.unknown_kinds().items()} == {"signs": 1, "cjk": 1, "emoji": 1}
    scripts = coverage.scripts(worst=5)
    assert scripts["latin"].pieces_per_word == (2 + 4 + 3) / 5
    assert [word for word, _ in scripts["latin"].worst] == [
        "cats",
        "unaffable",
    ]
    assert scripts["cjk"].unknown == 1 and scripts["digits"].pieces == 3
    assert [script_of(word) for word in ("word", "слово", "中", "かな", "42", "!?")] == [
        "latin",
        "cyrillic",
        "cjk",
        "hiragana",
        "digits",
        "signs",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_new_words_are_one_piece_and_transformers_agrees(name: str, shared: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(shared / "vocab" / name)
    result, before = extend_tokenizer(tokenizer, TEXT, 20)
    assert result.words and "cytokine" in [word.lower().lstrip("▁") for word in result.words]
    for word in result.words:
        assert len(before.uses[word].ids) > 1
    new = result.tokenizer
    after = measure_coverage(new, TEXT)
    assert all(len(after.uses[word].ids) == 1 for word in result.words)
    assert after.pieces_per_word < before.pieces_per_word
    assert new.vocab_size == tokenizer.vocab_size + len(result.rows)
    assert not json.loads(new.files["tokenizer.json"]).get("truncation")
    assert len(json.loads(new.files["tokenizer.json"])["added_tokens"]) == len(
        json.loads(tokenizer.files["tokenizer.json"])["added_tokens"]
    )
    new.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    reloaded = Tokenizer.load(tmp_path)
    for text in [*NASTY, *TEXT[:2], *documents(10)]:
        assert theirs(text, "pair")["input_ids"] == new.pieces(text, "pair").ids == reloaded.pieces(text, "pair").ids
    for text in [*NASTY, *documents(30, seed=4)]:
        assert (ids_of(new, text) == ids_of(tokenizer, text)) or max(ids_of(new, text)) >= tokenizer.vocab_size


def test_longer_splits_are_weighed_by_occurrences() -> None:
    """WordPiece is greedy: with "strawb", strawberries (straw ##berries) becomes strawb ##er ##ries."""
    tokenizer = make_tokenizer("straw ##berries ##b ##er ##ries ##un")
    protected, _ = extend_tokenizer(tokenizer, ["strawb " * 10 + "strawberries " * 11], 2)
    assert protected.words == ["strawberries", "strawb"]
    assert not protected.skipped, "the longer word keeps one piece if it has an entry of its own"
    longer = "strawberries" + "un" * 25  # too long for an entry
    texts = ["strawb " * 10 + f"{longer} " * 11]
    result, before = extend_tokenizer(tokenizer, texts, 2)
    assert result.words == [] and result.skipped == ["strawb"], "11 occurrences worse, 10 better"
    more_texts = [texts[0] + " strawb" * 5]
    result, before = extend_tokenizer(tokenizer, more_texts, 2)
    assert result.words == ["strawb"] and not result.skipped
    changes = compare_splits(before, measure_coverage(result.tokenizer, more_texts), result.words)
    assert (changes.words, changes.occurrences, changes.longer, changes.shorter) == (
        1,
        11,
        11,
        0,
    )
    assert changes.examples == [longer]


def test_words_after_a_space_are_not_those_after_a_bracket(shared: Path) -> None:
    for name in ("roberta", "xlnet", "albert-base-v2"):
        tokenizer = Tokenizer.load(shared / "vocab" / name)
        result, _ = extend_tokenizer(tokenizer, ["the zorblax " * 9 + "(zorblax) " * 2], 1)
        assert result.words == ["▁zorblax"]
        assert len(ids_of(result.tokenizer, "a zorblax here")) == len(ids_of(tokenizer, "a cat here"))


def test_old_files_with_merges_as_strings(shared: Path) -> None:
    tokenizer = Tokenizer.load(shared / "vocab" / "gpt2")
    layout = json.loads(tokenizer.files["tokenizer.json"])
    layout["model"]["merges"] = [" ".join(pair) for pair in layout["model"]["merges"]]
    old = Tokenizer.from_json(layout, {})
    assert len(extend_tokenizer(old, TEXT, 3)[0].words) == 3


def test_very_long_words_do_not_slow_down_extension() -> None:
    tokenizer = make_tokenizer("straw ##b ##er")
    assert extend_tokenizer(tokenizer, ["strawb " * 3 + "strawb" + "er" * 100_000], 2)[0].words == ["strawb"]


def test_aliases(tmp_path: Path, shared: Path) -> None:
    (tmp_path / "a.tsv").write_text(
        "colour\tcolor\nColr\tcolor\n# a remark\n\nNew York City\tnyc\nN.Y.C.\tnyc\n北大\t北京大学\ncafé au lait\tcoffee\n:-)\tsmile\n",
        encoding="utf-8",
    )
    aliases = read_aliases(tmp_path / "a.tsv")
    tokenizer = Tokenizer.load(shared / "vocab" / "bert-base-uncased")
    result, _ = extend_tokenizer(tokenizer, TEXT, 3, aliases)
    new = result.tokenizer
    assert result.aliases == 7 and result.forms == ["北京大学"] and result.freed == 1, result
    texts = {
        "The COLOUR of it": "the color of it",
        "colr, colours": "color, colours",
        "in New York City, now": "in nyc, now",
        "(N.Y.C.)": "(nyc)",
        "我在北大读书": "我在北京大学读书",
        "a Café au lait please": "a coffee please",
        "ok :-) fine": "ok smile fine",
    }
    (tmp_path / "x").mkdir()
    new.save(tmp_path / "x")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")
    for variant, form in texts.items():
        assert (
            new.pieces(variant).ids == new.pieces(form).ids == theirs(variant)["input_ids"] == theirs(form)["input_ids"]
        ), variant
    for text in [
        *NASTY,
        "new york",
        "new yorkcity",
        "new york cityscape",
        "york city",
        "北 大",
        "colouring",
        "n.y.c",
        "a:-)b",
    ]:
        assert new.pieces(text).ids == theirs(text)["input_ids"]
        if not any(part in text for part in ("北", "n.y", ":-")):
            assert new.pieces(text).ids == tokenizer.pieces(text).ids or "colou" in text, text
    pieces = new.pieces("in New York City, now")
    index = pieces.ids.index(new.pieces("nyc").ids[1])
    assert pieces.offsets[index] == (3, 16), "offsets point into the user's text"
    reloaded = Tokenizer.load(tmp_path / "x")
    for _ in range(2):
        assert reloaded.piece(new.pieces("color").ids[1]) == "color"
        assert reloaded.decode(new.pieces("colour").ids[1:-1]) == "color"


def test_an_aliased_vocabulary_can_be_extended_again(shared: Path) -> None:
    first, _ = extend_tokenizer(Tokenizer.load(shared / "vocab" / "bert-base-uncased"), TEXT, 1, {"colour": "color"})
    second, _ = extend_tokenizer(first.tokenizer, TEXT, 1)
    assert ids_of(second.tokenizer, "colour") == ids_of(second.tokenizer, "color")
    assert len(ids_of(second.tokenizer, second.words[0])) == len(ids_of(second.tokenizer, first.words[0])) == 1
    assert "vocab.txt" not in second.tokenizer.files, "one line per id cannot express aliases"


@settings(max_examples=300)
@given(st.text(max_size=30))
def test_the_pattern_splits_as_bert_does(text: str) -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers

    bert = Backend(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    layout = json.loads(bert.to_str())
    layout["pre_tokenizer"] = pre_tokenizer_keeping(["zz qq"])
    pattern = Backend.from_str(json.dumps(layout))
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert pattern.pre_tokenizer.pre_tokenize_str(text) == bert.pre_tokenizer.pre_tokenize_str(text)


def test_the_pattern_agrees_on_every_character() -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers

    layout = json.loads(Backend(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")).to_str())
    layout["pre_tokenizer"] = pre_tokenizer_keeping(["zz qq", "zz", "a.b"])
    pattern = Backend.from_str(json.dumps(layout)).pre_tokenizer
    bert = pre_tokenizers.BertPreTokenizer()
    differing = []
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000:
            text = f"x{chr(code)}y"
            if pattern.pre_tokenize_str(text) != bert.pre_tokenize_str(text):
                differing.append(hex(code))
    assert not differing, differing[:20]


@pytest.mark.parametrize(
    ("content", "code", "line", "mentioned"),
    [
        ("colour color\n", "bad-line", 1, []),
        ("colour\t\n", "bad-line", 1, []),
        ("a\tb\tc\n", "bad-line", 1, []),
        ("colour\tcolor\ncolour\tcollar\n", "conflicting-alias", 2, ["'colour'", "'color'", "'collar'"]),
    ],
)
def test_bad_alias_files(tmp_path: Path, content: str, code: str, line: int, mentioned: list[str]) -> None:
    (tmp_path / "a.tsv").write_text(content)
    with refused(code, place=f"a.tsv, line {line}") as error:
        read_aliases(tmp_path / "a.tsv")
    assert all(name in error.value.cause for name in mentioned)


def test_impossible_aliases_are_refused(shared: Path) -> None:
    uncased, roberta = (Tokenizer.load(shared / "vocab" / name) for name in ("bert-base-uncased", "roberta"))
    for aliases, code, mentioned in (
        ({"a1": "b1", "b1": "c1"}, "chained-alias", "'b1'"),
        ({"A": "b1", "B1": "c1"}, "chained-alias", "'b1'"),
        ({"Colour": "color", "colour": "colore"}, "conflicting-alias", "'colore'"),
        ({"[MASK]": "foo"}, "special-token-in-alias", "[MASK]"),
        ({"foo": "a [SEP] b"}, "special-token-in-alias", "[SEP]"),
        ({"x" * 150: "b1"}, "word-too-long", "100"),
        ({"a " * 3000: "b1"}, "word-too-long", "100"),
        ({"\u200b": "b1"}, "no-tokens", "'b1'"),
    ):
        with refused(code, kind=BadConfig) as error:
            extend_tokenizer(uncased, TEXT, 1, aliases)
        assert mentioned in error.value.cause
    with refused("needs-wordpiece") as error:
        extend_tokenizer(roberta, TEXT, 1, {"a": "b"})
    assert roberta.kind in error.value.cause


@pytest.mark.parametrize("preset", ["bert-tiny", "albert-mini", "distilbert-mini"])
def test_the_model_grows_with_its_vocabulary(preset: str, tmp_path: Path) -> None:
    """New rows are means of old ones, also in the bias of the language head; all else is unchanged, and the model opens
    in transformers."""
    tokenizer = make_tokenizer("straw ##berry the ##s cyto ##kine a b c")
    bench = bertworks.new(preset, heads=["lm"], tokenizer=tokenizer, n_layers=2, hidden_size=16, n_heads=2, ffn_size=32)
    torch.nn.init.normal_(bench.model.heads["lm"].bias)
    bench.save(tmp_path / "old")
    result = extend_model(
        str(tmp_path / "old"),
        ["the cytokine strawberry"],
        5,
        {"cytokin": "cytokine"},
        tmp_path / "new",
        max_characters=1000,
    )
    assert sorted(result.extension.words) == ["cytokine", "strawberry"]
    assert result.extension.aliases == 1
    new = bertworks.load(tmp_path / "new")
    old_rows, rows = (each.model.encoder.embed.tokens.weight for each in (bench, new))
    old_bias, bias = (each.model.heads["lm"].bias for each in (bench, new))
    assert rows.shape[0] == old_rows.shape[0] + 2 == bias.shape[0] == new.config.encoder.vocab_size
    assert torch.equal(rows[: len(old_rows)], old_rows)
    assert torch.equal(bias[: len(old_bias)], old_bias)
    for word in ("cytokine", "strawberry"):
        (id,) = ids_of(new.tokenizer, word)
        old_ids = ids_of(tokenizer, word)
        assert torch.allclose(rows[id], old_rows[old_ids].mean(0))
        assert torch.allclose(bias[id], old_bias[old_ids].mean(0))
    assert ids_of(new.tokenizer, "cytokin") == ids_of(new.tokenizer, "cytokine")
    assert np.array_equal(new.encode("the a b c"), bench.encode("the a b c")), "ids unchanged, vectors unchanged"
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "new")
    assert theirs.get_input_embeddings().weight.shape == rows.shape
    assert figures(json.loads((tmp_path / "new" / "bertworks.json").read_text())["lineage"][-1]) == {"2", "1"}, (
        "entries and aliases"
    )
    with refused("already-exists", place=str(tmp_path / "new")):
        extend_model(str(tmp_path / "old"), ["the"], 1, {}, tmp_path / "new", max_characters=1000)


def test_extended_minilm_keeps_its_vectors_and_modules(tmp_path: Path) -> None:
    extend_model("minilm", TEXT, 4, {}, tmp_path / "new", max_characters=10**6)
    before = bertworks.load("minilm")
    after = bertworks.load(tmp_path / "new")
    unchanged_texts = ["The cat is asleep on the sofa.", "We sat on the bank of the river."]
    assert np.array_equal(before.encode(unchanged_texts), after.encode(unchanged_texts))
    assert not np.array_equal(before.encode("a cytokine storm"), after.encode("a cytokine storm"))
    assert {path.name for path in locate("minilm").iterdir()} >= {"modules.json"}
    assert (tmp_path / "new" / "modules.json").is_file()
