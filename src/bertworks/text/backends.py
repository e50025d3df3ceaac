"""Vocabularies made into tokenizers: WordPiece as BERT has it, byte-level BPE, and unigram.

One builder per kind. What `transformers` builds from the same vocabulary files gives the same ids; a test holds them
together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from bertworks.errors import BadConfig, NotFound, Unsupported
from bertworks.files import parse_json
from bertworks.text.sentencepiece import PieceType, SentencePieces, read_sentencepiece

SPECIAL = {
    "unk": ("[UNK]", "<unk>"),
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
}
Config = dict[str, Any]
SAVE_ELSEWHERE = "save the tokenizer with transformers, which writes a tokenizer.json"


def from_vocabulary(files: dict[str, bytes], config: Config, added: Config, folder: Path) -> tuple[Backend, Config]:
    """The tokenizer of a folder without a tokenizer.json, and the configuration under which transformers opens it."""
    lower = config.get("do_lower_case")
    if "vocab.txt" in files:
        vocab = _read_vocab(files["vocab.txt"], folder / "vocab.txt")
        _refuse_additions(vocab, config, added, folder)
        config["do_lower_case"] = not _has_capitals(vocab) if lower is None else bool(lower)
        return word_piece(vocab, config), {"tokenizer_class": "BertTokenizer", **config}
    if "vocab.json" in files and "merges.txt" in files:
        vocab = _read_ids(files["vocab.json"], folder / "vocab.json")
        _refuse_additions(vocab, config, added, folder)
        backend = byte_bpe(vocab, _read_merges(files["merges.txt"], folder / "merges.txt"), config)
    elif "spiece.model" in files:
        model = read_sentencepiece(files["spiece.model"], folder / "spiece.model")
        _refuse_additions(dict(model.pieces), config, added, folder)
        config["do_lower_case"] = (
            not _has_capitals(piece for piece, _ in model.pieces) if lower is None else bool(lower)
        )
        backend = unigram(model, config)
    else:
        cause = "no tokenizer.json, vocab.txt, vocab.json with merges.txt, or spiece.model in this folder"
        raise NotFound(cause, place=str(folder), code="no-tokenizer")
    return backend, fast_config(backend, config)


def fast_config(backend: Backend, config: Config) -> Config:
    """A tokenizer_config.json under which transformers takes tokenizer.json as it is."""
    names = {f"{kind}_token": name for kind, name in special_names(backend, config).items()}
    segments = int(max(backend.encode("a", "a").type_ids, default=0)) > 0 and names.get("cls_token") != "<s>"
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if segments else ["input_ids", "attention_mask"]
    return {**config, **names, "tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}


def special_names(backend: Backend, config: Config) -> dict[str, str]:
    """Which piece plays which part: what the configuration says, or else the usual names."""
    found = {}
    for kind, usual in SPECIAL.items():
        known = [
            name
            for name in (config.get(f"{kind}_token"), *usual)
            if isinstance(name, str) and backend.token_to_id(name) is not None
        ]
        if known:
            found[kind] = known[0]
    return found


def word_piece(vocab: dict[str, int], config: Config) -> Backend:
    """BERT's own tokenizer: clean, split CJK characters, lower-case, split at spaces and punctuation, longest piece
    first."""
    unk, cls, sep = (config.get(f"{kind}_token") or SPECIAL[kind][0] for kind in ("unk", "cls", "sep"))
    missing = [str(name) for name in (unk, cls, sep) if not isinstance(name, str) or name not in vocab]
    if not missing and not all(re.fullmatch(r"[^\s:$]+", name) for name in (cls, sep)):
        raise BadConfig(f"{cls!r} and {sep!r} cannot be special tokens", place="vocab.txt", code="bad-special-token")
    if missing:
        raise BadConfig(f"the vocabulary has no {', '.join(missing)}", place="vocab.txt", code="missing-special-token")
    backend = Backend(models.WordPiece(vocab, unk_token=unk, max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=None if config.get("strip_accents") is None else bool(config["strip_accents"]),
        lowercase=bool(config.get("do_lower_case", True)),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = _bert_frame(cls, sep, vocab)
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.add_special_tokens(_special_pieces(vocab, config))
    return backend


def byte_bpe(vocab: dict[str, int], merges: Sequence[tuple[str, str]], config: Config) -> Backend:
    """GPT-2's and RoBERTa's: bytes as letters, pairs merged in the order they were learned. `<s>` and `</s>` frame a
    text."""
    known = [pair for pair in merges if all(piece in vocab for piece in (*pair, "".join(pair)))]
    if len(known) < len(merges):
        cause = f"{len(merges) - len(known)} merges name pieces that are not in the vocabulary"
        raise BadConfig(cause, place="merges.txt", code="unknown-piece")
    backend = Backend(models.BPE(vocab, known, continuing_subword_prefix="", end_of_word_suffix=""))
    if config.get("do_lower_case"):
        backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(config.get("add_prefix_space", False)))
    backend.decoder = decoders.ByteLevel()
    if "<s>" in vocab and "</s>" in vocab:
        backend.post_processor = processors.RobertaProcessing(
            ("</s>", vocab["</s>"]), ("<s>", vocab["<s>"]), add_prefix_space=bool(config.get("add_prefix_space", False))
        )
    else:
        backend.post_processor = processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    backend.add_special_tokens(_special_pieces(vocab, config))
    return backend


def unigram(model: SentencePieces, config: Config) -> Backend:
    """ALBERT's and XLNet's: the likeliest split of each word. `[CLS]` frames a text as BERT does, `<cls>` as XLNet
    does, at the end."""
    vocab = {piece: id for id, (piece, _) in enumerate(model.pieces)}
    backend = Backend(models.Unigram(model.pieces, unk_id=model.types.index(PieceType.UNKNOWN), byte_fallback=False))
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [normalizers.NFKC()] if config.get("keep_accents") else [normalizers.NFKD(), normalizers.StripAccents()]
    if config.get("do_lower_case"):
        steps.append(normalizers.Lowercase())
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    if "[CLS]" in vocab and "[SEP]" in vocab:
        config |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
        backend.post_processor = _bert_frame("[CLS]", "[SEP]", vocab)
    elif "<cls>" in vocab and "<sep>" in vocab:
        config |= {"cls_token": "<cls>", "sep_token": "<sep>"}
        backend.post_processor = processors.TemplateProcessing(
            single="$A:0 <sep>:0 <cls>:2",
            pair="$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2",
            special_tokens=[(name, vocab[name]) for name in ("<sep>", "<cls>")],
        )
    control = {PieceType.UNKNOWN, PieceType.CONTROL}
    marked = [piece for (piece, _), kind in zip(model.pieces, model.types, strict=True) if kind in control]
    backend.add_special_tokens(list(dict.fromkeys([*_special_pieces(vocab, config), *marked])))
    defined = [
        piece for (piece, _), kind in zip(model.pieces, model.types, strict=True) if kind == PieceType.USER_DEFINED
    ]
    backend.add_tokens(
        [AddedToken(piece, normalized=False) for piece in defined if piece not in _special_pieces(vocab, config)]
    )
    return backend


def _bert_frame(cls: str, sep: str, vocab: dict[str, int]) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
    )


def _special_pieces(vocab: Iterable[str], config: Config) -> list[str]:
    named = [config[f"{kind}_token"] for kind in SPECIAL if isinstance(config.get(f"{kind}_token"), str)]
    known = set(vocab)
    return [name for name in dict.fromkeys([*named, *chain(*SPECIAL.values())]) if name in known]


def _refuse_additions(vocab: Iterable[str], config: Config, added: Config, folder: Path) -> None:
    """Tokens outside the vocabulary file, which only tokenizer.json can describe."""
    decoder = config.pop("added_tokens_decoder", None)
    listed = decoder.values() if isinstance(decoder, dict) else []
    names = [*added, *(str(entry.get("content")) for entry in listed if isinstance(entry, dict))]
    known = set(vocab)
    unknown = [name for name in names if name not in known]
    if unknown:
        cause = f"added tokens beside the vocabulary: {', '.join(map(repr, unknown[:5]))}"
        raise Unsupported(cause, place=str(folder), remedy=SAVE_ELSEWHERE, code="added-tokens")


def _has_capitals(vocab: Iterable[str]) -> bool:
    """A vocabulary with capital letters was not made for lower-cased text."""
    return any(piece != piece.lower() for piece in vocab if not (piece.startswith("[") and piece.endswith("]")))


def _read_lines(content: bytes, path: Path) -> list[str]:
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise BadConfig(f"not UTF-8 at byte {error.start}", place=str(path), code="not-utf8") from None
    return [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def _read_vocab(content: bytes, path: Path) -> dict[str, int]:
    vocab: dict[str, int] = {}
    for number, piece in enumerate(_read_lines(content, path)):
        if piece in vocab:
            cause = f"the piece {piece!r} stands on line {vocab[piece] + 1} and on line {number + 1}"
            raise BadConfig(cause, place=str(path), code="given-twice")
        vocab[piece] = number
    return vocab


def _read_ids(content: bytes, path: Path) -> dict[str, int]:
    vocab = parse_json(content, path)
    if not isinstance(vocab, dict) or not all(type(id) is int and 0 <= id < 2**31 for id in vocab.values()):
        raise BadConfig(
            "not a vocabulary: pieces with whole numbers are expected", place=str(path), code="not-a-vocabulary"
        )
    owner: dict[int, str] = {}
    for piece, id in vocab.items():
        if owner.setdefault(id, piece) != piece:
            raise BadConfig(
                f"the pieces {owner[id]!r} and {piece!r} share the id {id}", place=str(path), code="shared-id"
            )
    return vocab


def _read_merges(content: bytes, path: Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(_read_lines(content, path), start=1):
        if line.startswith("#version") or not line.strip():
            continue
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise BadConfig(f"line {number} is not two pieces", place=str(path), code="bad-line")
        merges.append((left, right))
    return merges
