"""The tokenizer of a folder of fairseq: `dict.txt` has the ids of what a BPE or a SentencePiece model splits."""

from __future__ import annotations

import json
from pathlib import Path

from bertworks.errors import BadConfig, NotFound
from bertworks.files import read_file
from bertworks.text.backends import FAIRSEQ_MODEL, read_ids, read_lines
from bertworks.text.tokenizer import Tokenizer

DICTIONARY = "dict.txt"
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # before the lines of dict.txt; <mask> is after them


def fairseq_tokenizer(folder: Path, vocab: Path | None = None, family: str | None = None) -> Tokenizer | None:
    """`vocab`: a folder, or a file in it, with what `folder` does not have. Without a `dict.txt` there is none."""
    folders = [folder] if vocab is None else [vocab if vocab.is_dir() else vocab.parent, folder]
    dictionary = _find(folders, DICTIONARY)
    if dictionary is None:
        return None if vocab is None else Tokenizer.load_vocabulary(vocab, family)
    symbols = _read_symbols(dictionary)
    if model := _find(folders, FAIRSEQ_MODEL):
        tokenizer = Tokenizer.load_vocabulary(model, family)
        pieces = [tokenizer.piece(id) for id in range(len(SPECIALS), tokenizer.vocab_size - 1)]
        if pieces != symbols:
            raise _mismatch(dictionary, model)
        return tokenizer
    encoder = _find(folders, "encoder.json", "vocab.json")
    merges = _find(folders, "vocab.bpe", "merges.txt")
    if encoder is None or merges is None:
        raise NotFound(
            f"{DICTIONARY} has the ids of BPE tokens, and there are no BPE files with their texts",
            place=str(folder),
            remedy="--vocab encoder.json, with vocab.bpe beside it: GPT-2's, which fairseq offers apart",
            code="missing-file",
        )
    vocabulary = _vocabulary(symbols, encoder)
    if len(vocabulary) != len(SPECIALS) + len(symbols) + 1:
        raise _mismatch(dictionary, encoder)
    files = {"vocab.json": json.dumps(vocabulary, ensure_ascii=False).encode(), "merges.txt": read_file(merges)}
    return Tokenizer.from_files(files, folder)


def _mismatch(dictionary: Path, vocabulary: Path) -> BadConfig:
    cause = f"{dictionary.name} does not have the pieces of {vocabulary.name}, in the order of their ids"
    return BadConfig(cause, place=str(dictionary), remedy="both must be the model's own", code="other-vocabulary")


def _find(folders: list[Path], *names: str) -> Path | None:
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


def _read_symbols(path: Path) -> list[str]:
    """A symbol on each line, with its count and perhaps a flag."""
    lines = [line.removesuffix(" #fairseq:overwrite") for line in read_lines(read_file(path), path)]
    for number, line in enumerate(lines, start=1):
        if not line.rpartition(" ")[0]:
            raise BadConfig(f"line {number} is not a symbol with its count", place=str(path), code="bad-line")
    return [line.rpartition(" ")[0] for line in lines]


def _vocabulary(symbols: list[str], encoder: Path) -> dict[str, int]:
    """From pieces to the model's ids: its dictionary counts BPE tokens, named by the ids that `encoder` gives them."""
    pieces = read_ids(read_file(encoder), encoder)
    if "<s>" in pieces:  # RoBERTa's own vocabulary, with the model's ids
        return pieces
    piece_of = {str(id): piece for piece, id in pieces.items()}
    vocabulary: dict[str, int] = {}
    for piece in (*SPECIALS, *(piece_of.get(symbol, symbol) for symbol in symbols), "<mask>"):
        vocabulary.setdefault(piece, len(vocabulary))
    return vocabulary
