"""Tokenizers built from vocabulary files: BERT's WordPiece, byte-level BPE, and unigram, the last in two id layouts.

One builder per kind. They give the same ids as the tokenizers that `transformers` builds from the same files; a test
compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from bertworks.errors import BadConfig, NotFound, Remark, Unsupported
from bertworks.files import JsonObject, parse_json, read_json
from bertworks.text.sentencepiece import PieceType, SentencePieces, read_sentencepiece

SPECIAL = {  # the role of a special token -> its usual names
    "unk": ("[UNK]", "<unk>"),
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
}
FAIRSEQ_MODEL = "sentencepiece.bpe.model"  # of XLM-RoBERTa and CamemBERT; a unigram model, whatever its name
SAVE_WITH_TRANSFORMERS = "save the tokenizer with transformers, which writes a tokenizer.json"


def from_vocabulary(
    files: dict[str, bytes], config: JsonObject, added: JsonObject, folder: Path, family: str | None
) -> tuple[Backend, JsonObject, list[Remark]]:
    """The tokenizer of a folder without a tokenizer.json, the tokenizer_config.json for transformers, and what was
    assumed. `family`: of the model, if it is known."""
    remarks: list[Remark] = []
    if "vocab.txt" in files:
        vocab = _read_vocab(files["vocab.txt"], folder / "vocab.txt")
        _refuse_additions(vocab, config, added, folder)
        remarks += _set_case(vocab, config)
        return word_piece(vocab, config), {"tokenizer_class": "BertTokenizer", **config}, remarks
    if "vocab.json" in files and "merges.txt" in files:
        vocab = read_ids(files["vocab.json"], folder / "vocab.json")
        _refuse_additions(vocab, config, added, folder)
        backend = byte_bpe(vocab, _read_merges(files["merges.txt"], folder / "merges.txt"), config)
    elif "spiece.model" in files:
        model = read_sentencepiece(files["spiece.model"], folder / "spiece.model")
        _refuse_additions(dict(model.pieces), config, added, folder)
        remarks += _set_case((piece for piece, _ in model.pieces), config)
        backend = unigram(model, config)
    elif FAIRSEQ_MODEL in files:
        model = read_sentencepiece(files[FAIRSEQ_MODEL], folder / FAIRSEQ_MODEL)
        model = fairseq_layout(model, _is_camembert(config, family, folder))
        _refuse_additions(dict(model.pieces), config, added, folder)
        backend = fairseq_unigram(model, config)
    else:
        cause = f"no tokenizer.json, vocab.txt, vocab.json with merges.txt, spiece.model or {FAIRSEQ_MODEL} here"
        raise NotFound(cause, place=str(folder), code="no-tokenizer")
    return backend, fast_config(backend, config), remarks


def _set_case(pieces: Iterable[str], config: JsonObject) -> list[Remark]:
    """`do_lower_case` as the configuration says, else by the vocabulary, which is an assumption."""
    if config.get("do_lower_case") is not None:
        config["do_lower_case"] = bool(config["do_lower_case"])
        return []
    is_cased = _has_capitals(pieces)
    config["do_lower_case"] = not is_cased
    effect = (
        "has capital letters, so texts keep theirs" if is_cased else "has no capital letters: texts are lower-cased"
    )
    by_class = "transformers goes by the class alone: BERT and ALBERT lower-case, XLNet does not"
    return [Remark("case-assumed", f"no file says do_lower_case; the vocabulary {effect} ({by_class})")]


def fast_config(backend: Backend, config: JsonObject) -> JsonObject:
    """A tokenizer_config.json with which transformers uses tokenizer.json unchanged."""
    names = {f"{kind}_token": name for kind, name in special_names(backend, config).items()}
    has_segments = int(max(backend.encode("a", "a").type_ids, default=0)) > 0 and names.get("cls_token") != "<s>"
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if has_segments else ["input_ids", "attention_mask"]
    return {**config, **names, "tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}


def special_names(backend: Backend, config: JsonObject) -> dict[str, str]:
    """The special tokens by their role: as in the configuration, else by their usual names."""
    names = {}
    for kind, usual_names in SPECIAL.items():
        in_vocabulary = [
            name
            for name in (config.get(f"{kind}_token"), *usual_names)
            if isinstance(name, str) and backend.token_to_id(name) is not None
        ]
        if in_vocabulary:
            names[kind] = in_vocabulary[0]
    return names


def word_piece(vocab: dict[str, int], config: JsonObject) -> Backend:
    """BERT's tokenizer: clean the text, separate CJK characters, lower-case, split at spaces and punctuation, then
    match the longest piece first."""
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
    backend.post_processor = _bert_template(cls, sep, vocab)
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.add_special_tokens(_special_pieces(vocab, config))
    return backend


def byte_bpe(vocab: dict[str, int], merges: Sequence[tuple[str, str]], config: JsonObject) -> Backend:
    """GPT-2's and RoBERTa's tokenizer: bytes as letters, pairs merged in the order they were learned. RoBERTa's special
    tokens, `<s>` and `</s>`, are set if the vocabulary has them."""
    valid_merges = [pair for pair in merges if all(piece in vocab for piece in (*pair, "".join(pair)))]
    if len(valid_merges) < len(merges):
        cause = f"{len(merges) - len(valid_merges)} merges have pieces that are not in the vocabulary"
        raise BadConfig(cause, place="merges.txt", code="unknown-piece")
    backend = Backend(models.BPE(vocab, valid_merges, continuing_subword_prefix="", end_of_word_suffix=""))
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


def unigram(model: SentencePieces, config: JsonObject) -> Backend:
    """ALBERT's and XLNet's tokenizer: the most likely split of each word. Special tokens are set as in BERT if the
    vocabulary has `[CLS]`, and as in XLNet, at the end, if it has `<cls>`."""
    vocab = {piece: id for id, (piece, _) in enumerate(model.pieces)}
    backend = Backend(models.Unigram(model.pieces, unk_id=model.types.index(PieceType.UNKNOWN), byte_fallback=False))
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [normalizers.NFKC()] if config.get("keep_accents") else [normalizers.NFKD(), normalizers.StripAccents()]
    if config.get("do_lower_case"):
        steps.append(normalizers.Lowercase())
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    backend.normalizer = normalizers.Sequence(steps)
    _split_at_spaces(backend, "always")
    if "[CLS]" in vocab and "[SEP]" in vocab:
        config |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
        backend.post_processor = _bert_template("[CLS]", "[SEP]", vocab)
    elif "<cls>" in vocab and "<sep>" in vocab:
        config |= {"cls_token": "<cls>", "sep_token": "<sep>"}
        backend.post_processor = processors.TemplateProcessing(
            single="$A:0 <sep>:0 <cls>:2",
            pair="$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2",
            special_tokens=[(name, vocab[name]) for name in ("<sep>", "<cls>")],
        )
    _add_tokens(backend, model, config)
    return backend


def fairseq_layout(model: SentencePieces, is_camembert: bool) -> SentencePieces:
    """The pieces with the ids that fairseq gave them: its own special tokens first, `<mask>` last. CamemBERT has the
    special tokens of SentencePiece after those of fairseq, XLM-RoBERTa has them once."""
    if [piece for piece, _ in model.pieces[:3]] != ["<unk>", "<s>", "</s>"]:
        cause = f"{FAIRSEQ_MODEL} does not begin with <unk>, <s> and </s>, so the ids of its pieces are not known"
        raise Unsupported(cause, place=FAIRSEQ_MODEL, remedy=SAVE_WITH_TRANSFORMERS)
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    n_dropped = 3
    if is_camembert:
        specials = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"]
        n_dropped = 1
    types = [PieceType.UNKNOWN if name == "<unk>" else PieceType.NORMAL for name in specials]
    scores = [-100.0 if name == "<unk>NOTUSED" else 0.0 for name in specials]
    return SentencePieces(
        pieces=[*zip(specials, scores, strict=True), *model.pieces[n_dropped:], ("<mask>", 0.0)],
        types=[*types, *model.types[n_dropped:], PieceType.NORMAL],
        charsmap=model.charsmap,
    )


def fairseq_unigram(model: SentencePieces, config: JsonObject) -> Backend:
    """XLM-RoBERTa's and CamemBERT's tokenizer: the most likely split of each word, special tokens as in RoBERTa.
    `model` has the ids of `fairseq_layout`."""
    vocab = {piece: id for id, (piece, _) in enumerate(model.pieces)}
    backend = Backend(models.Unigram(model.pieces, unk_id=vocab["<unk>"], byte_fallback=False))
    if model.charsmap:
        backend.normalizer = normalizers.Precompiled(model.charsmap)
    _split_at_spaces(backend, "always" if config.get("add_prefix_space", True) else "never")
    backend.post_processor = processors.TemplateProcessing(
        single="<s>:0 $A:0 </s>:0",
        pair="<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0",
        special_tokens=[(name, vocab[name]) for name in ("<s>", "</s>")],
    )
    _add_tokens(backend, model, config)
    return backend


def _split_at_spaces(backend: Backend, prepend_scheme: str) -> None:
    """SentencePiece's words: a space is part of the word after it, as `▁`."""
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme=prepend_scheme)


def _is_camembert(config: JsonObject, family: str | None, folder: Path) -> bool:
    """As `transformers` decides: by the class of the tokenizer, else by the family of the model."""
    if isinstance(config.get("tokenizer_class"), str):
        return "Camembert" in config["tokenizer_class"]
    if family is None and (folder / "config.json").is_file():
        family = read_json(folder / "config.json").get("model_type")
    return family == "camembert"


def _add_tokens(backend: Backend, model: SentencePieces, config: JsonObject) -> None:
    """Tell the tokenizer which pieces are special tokens, and which are never split."""
    typed_pieces = [(piece, piece_type) for (piece, _), piece_type in zip(model.pieces, model.types, strict=True)]
    special = _special_pieces((piece for piece, _ in typed_pieces), config)
    control_types = (PieceType.UNKNOWN, PieceType.CONTROL)
    control = [piece for piece, piece_type in typed_pieces if piece_type in control_types]
    backend.add_special_tokens(list(dict.fromkeys([*special, *control])))
    user_defined = [piece for piece, piece_type in typed_pieces if piece_type == PieceType.USER_DEFINED]
    backend.add_tokens([AddedToken(piece, normalized=False) for piece in user_defined if piece not in special])


def _bert_template(cls: str, sep: str, vocab: dict[str, int]) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
    )


def _special_pieces(vocab: Iterable[str], config: JsonObject) -> list[str]:
    """The special tokens that a vocabulary has: those of the configuration, and the usual ones."""
    configured = [config[f"{kind}_token"] for kind in SPECIAL if isinstance(config.get(f"{kind}_token"), str)]
    pieces = set(vocab)
    return [name for name in dict.fromkeys([*configured, *chain(*SPECIAL.values())]) if name in pieces]


def _refuse_additions(vocab: Iterable[str], config: JsonObject, added: JsonObject, folder: Path) -> None:
    """Refuse added tokens that are not in the vocabulary file: only tokenizer.json can describe them."""
    decoder = config.pop("added_tokens_decoder", None)
    entries = decoder.values() if isinstance(decoder, dict) else []
    names = [*added, *(str(entry.get("content")) for entry in entries if isinstance(entry, dict))]
    pieces = set(vocab)
    missing = [name for name in names if name not in pieces]
    if missing:
        cause = f"added tokens that are not in the vocabulary: {', '.join(map(repr, missing[:5]))}"
        raise Unsupported(cause, place=str(folder), remedy=SAVE_WITH_TRANSFORMERS, code="added-tokens")


def _has_capitals(vocab: Iterable[str]) -> bool:
    """Whether a vocabulary is cased: one with capital letters was not made for lower-cased text."""
    return any(piece != piece.lower() for piece in vocab if not (piece.startswith("[") and piece.endswith("]")))


def read_lines(content: bytes, path: Path) -> list[str]:
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise BadConfig(f"not UTF-8 at byte {error.start}", place=str(path), code="not-utf8") from None
    return [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def _read_vocab(content: bytes, path: Path) -> dict[str, int]:
    vocab: dict[str, int] = {}
    for number, piece in enumerate(read_lines(content, path)):
        if piece in vocab:
            cause = f"duplicate piece {piece!r} on lines {vocab[piece] + 1} and {number + 1}"
            raise BadConfig(cause, place=str(path), code="given-twice")
        vocab[piece] = number
    return vocab


def read_ids(content: bytes, path: Path) -> dict[str, int]:
    vocab = parse_json(content, path)
    if not isinstance(vocab, dict) or not all(type(id) is int and 0 <= id < 2**31 for id in vocab.values()):
        raise BadConfig(
            "not a vocabulary: expected a JSON object from pieces to ids", place=str(path), code="not-a-vocabulary"
        )
    piece_of_id: dict[int, str] = {}
    for piece, id in vocab.items():
        if piece_of_id.setdefault(id, piece) != piece:
            cause = f"the pieces {piece_of_id[id]!r} and {piece!r} have the same id {id}"
            raise BadConfig(cause, place=str(path), code="shared-id")
    return vocab


def _read_merges(content: bytes, path: Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(read_lines(content, path), start=1):
        if line.startswith("#version") or not line.strip():
            continue
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise BadConfig(f"line {number} is not a pair of pieces", place=str(path), code="bad-line")
        merges.append((left, right))
    return merges
