"""The real vocabularies give transformers' ids; those we train are the same every time, and AutoTokenizer reads them
alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import transformers

from bertworks.errors import BadConfig, NotFound, Unsupported
from bertworks.text.sentencepiece import PieceType, read_sentencepiece
from bertworks.text.tokenizer import Tokenizer
from bertworks.text.training import train_tokenizer
from bertworks.text.words import Sample
from refusals import figures, refused
from texts import NASTY, documents

CLASSES = {
    "bert-base-uncased": "BertTokenizer",
    "bert-base-cased": "BertTokenizer",
    "bert-base-chinese": "BertTokenizer",
    "roberta": "RobertaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "xlnet": "XLNetTokenizer",
    "albert-base-v2": "AlbertTokenizer",
}
SIZES = dict(zip(CLASSES, (30522, 28996, 21128, 50265, 50257, 32000, 30000), strict=True))
CORPORA = ("corpora/en/books_en_00.txt", "corpora/en/imdb_reviews.txt", "corpora/zh/peoples_daily_199801.txt")


def real_lines(shared: Path, count: int) -> list[str]:
    lines: list[str] = []
    for name in CORPORA:
        with (shared / name).open(encoding="utf-8") as file:
            lines += islice((line for line in file if line.strip()), count)
    return lines


def assert_ids_are_theirs(name: str, shared: Path, folder: Path, lines: list[str]) -> None:
    """Ours, transformers' from the same files, and AutoTokenizer's from what we saved."""
    options = {"do_lower_case": name == "bert-base-uncased"} if name.startswith("bert") else {}
    theirs = getattr(transformers, CLASSES[name]).from_pretrained(shared / "vocab" / name, **options)
    ours = Tokenizer.load(shared / "vocab" / name)
    assert len(theirs) == ours.vocab_size == SIZES[name]
    ours.save(folder)
    saved = transformers.AutoTokenizer.from_pretrained(folder)
    again = Tokenizer.load(folder)
    assert again.fingerprint == ours.fingerprint and again.special == ours.special
    ties = 0
    for start in range(0, len(lines), 1000):
        part = lines[start : start + 1000]
        ids = [encoding.ids for encoding in ours.backend.encode_batch(part)]
        assert ids == theirs(part)["input_ids"]
        ties += sum(one != other for one, other in zip(ids, saved(part)["input_ids"], strict=True))
    # The library reads its own JSON to the last but one digit: a true tie ("s***" as s * ** or s ** *) may fall the
    # other way.
    assert ties <= (1e-4 * len(lines) if ours.kind == "Unigram" else 0)
    assert ours.pieces("one text", "and another").ids == theirs("one text", "and another")["input_ids"]


@pytest.mark.parametrize("name", CLASSES)
def test_real_vocabularies(name: str, shared: Path, tmp_path: Path) -> None:
    assert_ids_are_theirs(name, shared, tmp_path, [*NASTY, *real_lines(shared, 100)])


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_real_vocabularies_on_all_lines(name: str, shared: Path, tmp_path: Path) -> None:
    lines = [*NASTY, *real_lines(shared, 60_000)]
    assert len(lines) > 100_000
    assert_ids_are_theirs(name, shared, tmp_path, lines)


def test_sentencepiece_agrees_with_the_library(shared: Path) -> None:
    import sentencepiece

    for name in ("xlnet", "albert-base-v2"):
        path = shared / "vocab" / name / "spiece.model"
        model = read_sentencepiece(path.read_bytes(), path)
        library = sentencepiece.SentencePieceProcessor(model_file=str(path))
        assert len(model.pieces) == library.get_piece_size()
        for id, ((piece, score), kind) in enumerate(zip(model.pieces, model.types, strict=True)):
            assert piece == library.id_to_piece(id) and score == library.get_score(id)
            assert (kind == PieceType.UNKNOWN) == library.is_unknown(id) and (
                kind == PieceType.CONTROL
            ) == library.is_control(id)


def test_damaged_sentencepiece_models(shared: Path, tmp_path: Path) -> None:
    whole = (shared / "vocab" / "xlnet" / "spiece.model").read_bytes()
    for content in (b"", b"\xff" * 100, whole[:1000], b"text, not a model", b"\x0a\xff\xff\xff\xff\x0f"):
        (tmp_path / "spiece.model").write_bytes(content)
        with pytest.raises((BadConfig, Unsupported)):
            Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("vocab", "merges", "code", "place", "numbers"),
    [
        ({"a": 0, "b": 0}, "", "shared-id", "vocab.json", {"0"}),
        ({"a": 0, "b": -1}, "", "not-a-vocabulary", "vocab.json", set()),
        ({"a": "0"}, "", "not-a-vocabulary", "vocab.json", set()),
        ([], "", "not-a-vocabulary", "vocab.json", set()),
        ({"a": 0, "b": 1}, "#version: 0.2\na b\n", "unknown-piece", "merges.txt", {"1"}),
        ({"a": 0, "b": 1, "ab": 2}, "a b c\n", "bad-line", "merges.txt", {"1"}),
        ({"a": 0, "b": 1, "ab": 2}, "ab\n", "bad-line", "merges.txt", {"1"}),
    ],
)
def test_bad_bpe_files(tmp_path: Path, vocab: object, merges: str, code: str, place: str, numbers: set[str]) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text(merges)
    with refused(code, place=place, kind=BadConfig) as error:
        Tokenizer.load(tmp_path)
    assert figures(error.value.cause) == numbers
    (tmp_path / "merges.txt").unlink()
    with refused("no-tokenizer", place=str(tmp_path), kind=NotFound) as error:
        Tokenizer.load(tmp_path)
    assert "vocab.json" in error.value.cause and "merges.txt" in error.value.cause


TEXT = [*documents(150, seed=3), "Über die naïve Café-Frage, 中国人民 and so on.", *NASTY] * 3


@pytest.mark.parametrize("cased", [True, False])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_what_we_train_opens_in_transformers(kind: str, cased: bool, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(Sample.of(TEXT, 10**9), kind, 500, cased=cased)  # type: ignore[arg-type]
    assert 300 <= tokenizer.vocab_size <= 500
    assert set(tokenizer.special) == {"unk", "pad", "cls", "sep", "mask"}
    tokenizer.save(tmp_path)
    theirs, again = transformers.AutoTokenizer.from_pretrained(tmp_path), Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert theirs.mask_token_id == tokenizer.id_of("mask") and theirs.cls_token_id == tokenizer.id_of("cls")
    for text in [*NASTY, *TEXT[:20], *(text.upper() for text in TEXT[:20])]:
        ids = tokenizer.pieces(text, "and a pair").ids
        assert ids == theirs(text, "and a pair")["input_ids"] == again.pieces(text, "and a pair").ids
    upper, lower = (tokenizer.pieces(text).ids for text in ("BADO FIKE", "bado fike"))
    assert (upper == lower) is not cased


TRAIN = """
import random, string
from bertworks.text.training import train_tokenizer
from bertworks.text.words import Sample
rng = random.Random(5)
words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(3000)]
text = [" ".join(rng.choices(words, k=20)) for _ in range(900)]
text += ["".join(map(chr, range(0x391, 0x3ff))), "".join(map(chr, range(0x430, 0x460)))]  # characters seen once
print([train_tokenizer(Sample.of(text, 10**9), kind, 900, cased=True).fingerprint for kind in ("wordpiece", "bpe", "unigram")])
"""


def test_training_does_not_depend_on_threads_or_on_chance() -> None:
    """In processes of their own, since hash tables are seeded per process."""
    found = set()
    for threads in ("1", "2", "1", "2"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", TRAIN], capture_output=True, text=True, env=environment, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_every_character_of_the_alphabet_has_a_piece() -> None:
    tokenizer = train_tokenizer(Sample.of(TEXT, 10**9), "wordpiece", 500, cased=False)
    unknown = tokenizer.id_of("unk")
    assert all(unknown not in tokenizer.pieces(text).ids for text in TEXT[:150])
    assert tokenizer.files["vocab.txt"].decode().split("\n")[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_nothing_to_learn_from() -> None:
    with refused("no-text"):
        train_tokenizer(Sample.of([" ", ""], 100), "bpe", 1000, cased=True)
    with refused("vocabulary-too-small") as error:
        train_tokenizer(Sample.of(["a"], 100), "bpe", 100, cased=True)
    assert figures(error.value.cause) == {"100", "300"}


def test_a_sample_is_fair_bounded_and_the_same_every_time() -> None:
    texts = [f"text {number} {'x' * (number % 50)}" for number in range(5000)]
    sample = Sample.of(texts, 20_000, seed=1)
    assert (
        8_000 < sample.sampled <= 20_000
        and sample.sampled == sum(map(len, sample.texts))
        and sample.seen == sum(map(len, texts))
    )
    assert Sample.of(texts, 20_000, seed=1).texts == sample.texts != Sample.of(texts, 20_000, seed=2).texts
    assert Sample.of(["the same line"] * 5000, 20_000).sampled > 8_000
    halves = [sum(1 for text in sample.texts if int(text.split()[1]) >= half * 2500) for half in (0, 1)]
    assert 0.35 < halves[1] / halves[0] < 0.65
    whole = Sample.of(["ab"], 9)
    assert whole.is_complete and figures(whole) == {"2"}
    assert not sample.is_complete and figures(sample) == {f"{sample.sampled:,}", f"{sample.seen:,}", "1"}, (
        "with the seed"
    )
