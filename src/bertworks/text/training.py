"""One's own vocabulary: WordPiece, byte-level BPE or unigram, trained by the `tokenizers` library.

The library's results depend on the order of its hash tables in two places, and we take that away. Its WordPiece trainer
(which is BPE with a `##` prefix) numbers continuing characters as it meets them, and ties between merges go by number:
we number them beforehand. Its unigram trainer gives rare characters scores in chance order: we give them in the order
of the characters, and round.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import accumulate
from typing import Any, Literal

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from bertworks.errors import BadConfig, BadText
from bertworks.text.backends import byte_bpe, unigram, word_piece
from bertworks.text.sentencepiece import PieceType, SentencePieces
from bertworks.text.tokenizer import Tokenizer
from bertworks.text.words import Sample, count_words

Kind = Literal["wordpiece", "bpe", "unigram"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
ALBERT_SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
COVERAGE = 0.99999  # of all characters, by those that get a piece of their own
SMALLEST = {"wordpiece": 100, "bpe": 300, "unigram": 100}
SCORE_DIGITS = 6


def train_tokenizer(sample: Sample, kind: Kind, size: int, *, cased: bool) -> Tokenizer:
    if size < SMALLEST[kind]:
        raise BadConfig(
            f"a vocabulary of {size} is too small; at least {SMALLEST[kind]} for {kind}", code="vocabulary-too-small"
        )
    if not any(text and not text.isspace() for text in sample.texts):
        raise BadText("there is no text to learn a vocabulary from", code="no-text")
    config = {"do_lower_case": not cased, "keep_accents": cased}
    trained = {"wordpiece": _train_word_piece, "bpe": _train_bpe, "unigram": _train_unigram}[kind](sample, size, config)
    return Tokenizer.from_layout(json.loads(trained.to_str()), config)


def _train_word_piece(sample: Sample, size: int, config: dict[str, Any]) -> Backend:
    scratch = word_piece({piece: id for id, piece in enumerate(BERT_SPECIAL)}, config)
    words = count_words(scratch, sample.texts)
    letters = _alphabet(words, size)
    inner = sorted({letter for word in words for letter in word[1:]} & set(letters))
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[*BERT_SPECIAL, *("##" + letter for letter in inner)],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    blank = Backend(models.WordPiece(unk_token="[UNK]"))
    blank.normalizer, blank.pre_tokenizer = scratch.normalizer, scratch.pre_tokenizer
    blank.train_from_iterator(sample.texts, trainer)
    return word_piece(blank.get_vocab(), config)


def _train_bpe(sample: Sample, size: int, config: dict[str, Any]) -> Backend:
    scratch = byte_bpe({}, [], config)
    blank = Backend(models.BPE())
    blank.pre_tokenizer = scratch.pre_tokenizer
    if scratch.normalizer is not None:
        blank.normalizer = scratch.normalizer
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=ROBERTA_SPECIAL, initial_alphabet=letters, show_progress=False
    )
    blank.train_from_iterator(sample.texts, trainer)
    model = json.loads(blank.to_str())["model"]
    return byte_bpe(model["vocab"], [tuple(pair) for pair in model["merges"]], config)


def _train_unigram(sample: Sample, size: int, config: dict[str, Any]) -> Backend:
    types = [PieceType.CONTROL] * len(ALBERT_SPECIAL)
    types[ALBERT_SPECIAL.index("<unk>")] = PieceType.UNKNOWN
    scratch = unigram(SentencePieces([(piece, 0.0) for piece in ALBERT_SPECIAL], types, b""), dict(config))
    words = count_words(scratch, sample.texts)
    blank = Backend(models.Unigram())
    blank.normalizer, blank.pre_tokenizer = scratch.normalizer, scratch.pre_tokenizer
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=ALBERT_SPECIAL,
        unk_token="<unk>",
        initial_alphabet=_alphabet(words, size),
        show_progress=False,
    )
    blank.train_from_iterator(sample.texts, trainer)
    learned = [
        (piece, score) for piece, score in json.loads(blank.to_str())["model"]["vocab"] if piece not in ALBERT_SPECIAL
    ]
    pieces = [(piece, 0.0) for piece in ALBERT_SPECIAL] + _settled(learned)
    return unigram(SentencePieces(pieces, [*types, *[PieceType.NORMAL] * len(learned)], b""), config)


def _alphabet(words: Counter[str], size: int) -> list[str]:
    """The most frequent characters, so many that all but a very few occurrences are covered; at most half the
    vocabulary."""
    letters: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            letters[letter] += count
    ranked = sorted(letters, key=lambda letter: (-letters[letter], letter))
    enough = COVERAGE * letters.total()
    covering = sum(1 for covered in accumulate((letters[letter] for letter in ranked), initial=0) if covered < enough)
    return sorted(ranked[: max(1, min(covering, size // 2))])


def _settled(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Scores rounded, those of rare characters given in the order of the characters, best piece first."""
    lowest, step = min(score for _, score in pieces), 0.0001  # the library's step between rare characters
    singles = [(piece, score) for piece, score in pieces if len(piece) == 1]
    rare = [(piece, score) for piece, score in singles if score < lowest + step * (len(singles) + 1)]
    scores = dict(pieces) | dict(
        zip(sorted(piece for piece, _ in rare), sorted(score for _, score in rare), strict=True)
    )
    rounded = [(piece, round(score, SCORE_DIGITS)) for piece, score in scores.items()]
    return sorted(rounded, key=lambda entry: (-entry[1], entry[0]))
