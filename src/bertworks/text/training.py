"""Train a vocabulary with the `tokenizers` library: WordPiece, byte-level BPE or unigram.

The library's results depend on the order of its hash tables in two places; we make them deterministic. Its WordPiece
trainer (which is BPE with a `##` prefix) numbers continuing characters in the order of their first use, and breaks ties
between merges by number: we number them beforehand. Its unigram trainer gives rare characters their scores in random
order: we reassign these in the order of the characters, and round.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import accumulate
from typing import Literal

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from bertworks.errors import BadConfig, BadText
from bertworks.files import JsonObject
from bertworks.text.backends import byte_bpe, unigram, word_piece
from bertworks.text.sentencepiece import PieceType, SentencePieces
from bertworks.text.tokenizer import Tokenizer
from bertworks.text.words import Sample, count_words

Kind = Literal["wordpiece", "bpe", "unigram"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
ALBERT_SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
CHARACTER_COVERAGE = 0.99999  # share of the text's characters that get a piece of their own
MIN_VOCAB_SIZE = {"wordpiece": 100, "bpe": 300, "unigram": 100}
SCORE_DIGITS = 6


def train_tokenizer(sample: Sample, kind: Kind, size: int, *, cased: bool) -> Tokenizer:
    if size < MIN_VOCAB_SIZE[kind]:
        cause = f"vocabulary size {size} is too small; {kind} needs at least {MIN_VOCAB_SIZE[kind]}"
        raise BadConfig(cause, code="vocabulary-too-small")
    if not any(text and not text.isspace() for text in sample.texts):
        raise BadText("no text to train a vocabulary on", code="no-text")
    config = {"do_lower_case": not cased, "keep_accents": cased}
    train = {"wordpiece": _train_word_piece, "bpe": _train_bpe, "unigram": _train_unigram}[kind]
    return Tokenizer.from_json(json.loads(train(sample, size, config).to_str()), config)


def _train_word_piece(sample: Sample, size: int, config: JsonObject) -> Backend:
    untrained = word_piece({piece: id for id, piece in enumerate(BERT_SPECIAL)}, config)
    words = count_words(untrained, sample.texts)
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
    trainee = Backend(models.WordPiece(unk_token="[UNK]"))
    trainee.normalizer = untrained.normalizer
    trainee.pre_tokenizer = untrained.pre_tokenizer
    trainee.train_from_iterator(sample.texts, trainer)
    return word_piece(trainee.get_vocab(), config)


def _train_bpe(sample: Sample, size: int, config: JsonObject) -> Backend:
    untrained = byte_bpe({}, [], config)
    trainee = Backend(models.BPE())
    trainee.pre_tokenizer = untrained.pre_tokenizer
    if untrained.normalizer is not None:
        trainee.normalizer = untrained.normalizer
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=ROBERTA_SPECIAL, initial_alphabet=letters, show_progress=False
    )
    trainee.train_from_iterator(sample.texts, trainer)
    model = json.loads(trainee.to_str())["model"]
    return byte_bpe(model["vocab"], [tuple(pair) for pair in model["merges"]], config)


def _train_unigram(sample: Sample, size: int, config: JsonObject) -> Backend:
    types = [PieceType.CONTROL] * len(ALBERT_SPECIAL)
    types[ALBERT_SPECIAL.index("<unk>")] = PieceType.UNKNOWN
    untrained = unigram(SentencePieces([(piece, 0.0) for piece in ALBERT_SPECIAL], types, b""), dict(config))
    words = count_words(untrained, sample.texts)
    trainee = Backend(models.Unigram())
    trainee.normalizer = untrained.normalizer
    trainee.pre_tokenizer = untrained.pre_tokenizer
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=ALBERT_SPECIAL,
        unk_token="<unk>",
        initial_alphabet=_alphabet(words, size),
        show_progress=False,
    )
    trainee.train_from_iterator(sample.texts, trainer)
    learned = [
        (piece, score) for piece, score in json.loads(trainee.to_str())["model"]["vocab"] if piece not in ALBERT_SPECIAL
    ]
    pieces = [(piece, 0.0) for piece in ALBERT_SPECIAL] + _deterministic_scores(learned)
    return unigram(SentencePieces(pieces, [*types, *[PieceType.NORMAL] * len(learned)], b""), config)


def _alphabet(words: Counter[str], size: int) -> list[str]:
    """The most frequent characters that together reach `CHARACTER_COVERAGE`, at most half of the vocabulary."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    by_frequency = sorted(counts, key=lambda character: (-counts[character], character))
    needed = CHARACTER_COVERAGE * counts.total()
    covered = accumulate((counts[character] for character in by_frequency), initial=0)
    n_characters = sum(1 for total in covered if total < needed)
    return sorted(by_frequency[: max(1, min(n_characters, size // 2))])


def _deterministic_scores(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Pieces by descending score, rounded; the scores of rare characters are reassigned in the order of the
    characters."""
    step = 0.0001  # the library's difference between the scores of rare characters
    lowest = min(score for _, score in pieces)
    singles = [(piece, score) for piece, score in pieces if len(piece) == 1]
    rare = [(piece, score) for piece, score in singles if score < lowest + step * (len(singles) + 1)]
    scores = dict(pieces) | dict(
        zip(sorted(piece for piece, _ in rare), sorted(score for _, score in rare), strict=True)
    )
    rounded = [(piece, round(score, SCORE_DIGITS)) for piece, score in scores.items()]
    return sorted(rounded, key=lambda entry: (-entry[1], entry[0]))
