"""Text to tokens and back, on the `tokenizers` library: what a model folder says, with offsets into the user's own text.

A folder has a `tokenizer.json`, or a `vocab.txt` from which BERT's WordPiece is built. What the folder held is kept and
written back byte for byte, so a model saved again has the very same tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertworks.errors import BadConfig, BadText, BertworksError, NotFound, TooLong, Unsupported
from bertworks.files import parse_json, read_file
from bertworks.text.ledger import Ledger, OnLong

Ids = NDArray[np.int32]
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
SPECIAL = {
    "unk": ("[UNK]", "<unk>"),
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
PROBES = ("a", "A", "1", ".", "中")
LONGEST_STRETCH = 1_000_000  # characters without a space: not text
LONGEST_WORD = 10_000  # characters that one token may stand for
CHUNK = 4096  # texts whose tokens the library holds at once


@dataclass(frozen=True)
class Frame:
    """The special tokens around a text: ids and segments."""

    before: tuple[Ids, Ids]
    after: tuple[Ids, Ids]

    @property
    def size(self) -> int:
        return len(self.before[0]) + len(self.after[0])


@dataclass(frozen=True)
class Window:
    """A stretch of a text that fits into the model together with its special tokens."""

    text: int  # which text
    ids: Ids  # the text's own tokens


@dataclass(frozen=True)
class Pieces:
    """A text, or a pair, as the model sees it."""

    ids: list[int]
    pieces: list[str]
    segments: list[int]
    offsets: list[tuple[int, int]]  # into the text that the piece comes from; (0, 0) for special tokens
    special: list[bool]
    words: list[int | None]  # which word of its text a piece belongs to


class Tokenizer:
    """Text in, tokens out."""

    def __init__(self, backend: Backend, files: dict[str, bytes], special: dict[str, str], remarks: list[str]) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend, self.files, self.special, self.remarks = backend, files, special, remarks
        self.frame = self._probe_frame()

    @classmethod
    def load(cls, folder: Path) -> Self:
        files = {name: read_file(folder / name) for name in TOKENIZER_FILES if (folder / name).is_file()}
        config = {**_json(files, "special_tokens_map.json", folder), **_json(files, "tokenizer_config.json", folder)}
        config |= {key: value["content"] for key, value in config.items() if isinstance(value, dict) and "content" in value}
        remarks = []
        if config.pop("auto_map", None):
            remarks.append("tokenizer_config.json names code to run (auto_map); it is ignored")
            kept = _json(files, "tokenizer_config.json", folder)
            files["tokenizer_config.json"] = _dumps({key: value for key, value in kept.items() if key != "auto_map"})
        if "tokenizer.json" in files:
            try:
                backend = Backend.from_buffer(files["tokenizer.json"])
            except Exception as error:  # the library raises bare Exceptions
                raise BadConfig(f"not a tokenizer: {error}", place=str(folder / "tokenizer.json")) from None
        elif "vocab.txt" in files:
            vocab = _read_vocab(files["vocab.txt"], folder / "vocab.txt")
            _refuse_additions(vocab, config, _json(files, "added_tokens.json", folder), folder)
            config.setdefault("do_lower_case", not _has_capitals(vocab))
            backend = word_piece(vocab, config)
            files["tokenizer.json"] = backend.to_str(pretty=True).encode()
            files["tokenizer_config.json"] = _dumps({"tokenizer_class": "BertTokenizer", **config})
            files.pop("special_tokens_map.json", None)  # said in tokenizer_config.json, in plain strings
        else:
            raise NotFound("no tokenizer.json and no vocab.txt in this folder", place=str(folder))
        with _guarded(lambda reason: BadConfig(f"the tokenizer does not work: {reason}", place=str(folder))):
            return cls(backend, files, _special_names(backend, config), remarks)

    def save(self, folder: Path) -> None:
        for name, content in self.files.items():
            (folder / name).write_bytes(content)

    @property
    def kind(self) -> str:
        """WordPiece, BPE or Unigram."""
        return type(self.backend.model).__name__

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        ids: list[int] = [*self.backend.get_vocab(with_added_tokens=True).values(), *self.frame.before[0], *self.frame.after[0]]
        return int(max(ids)) + 1

    def id_of(self, kind: str) -> int:
        """The id of a special token: unk, pad, cls, sep, mask."""
        if kind not in self.special:
            raise Unsupported(f"this tokenizer has no {kind} token")
        found: int | None = self.backend.token_to_id(self.special[kind])
        assert found is not None  # _special_names has checked it
        return found

    def pieces(self, text: str, pair: str | None = None) -> Pieces:
        """A text or a pair with its special tokens, everything that can be known about each piece."""
        check_texts([text] if pair is None else [text, pair])
        with _guarded(_unreadable):
            encoded = self.backend.encode(text, pair)
        _check_widths(encoded.offsets, "the text")
        return Pieces(
            ids=encoded.ids,
            pieces=encoded.tokens,
            segments=encoded.type_ids,
            offsets=encoded.offsets,
            special=[bool(flag) for flag in encoded.special_tokens_mask],
            words=encoded.word_ids,
        )

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The tokens of each text, without special tokens."""
        check_texts(texts)
        ids: list[Ids] = []
        for start in range(0, len(texts), CHUNK):
            with _guarded(_unreadable):
                encoded = self.backend.encode_batch_fast(list(texts[start : start + CHUNK]), add_special_tokens=False)
            ids += [np.array(one.ids, dtype=np.int32) for one in encoded]
        for index, text in enumerate(texts):
            if len(text) > LONGEST_WORD:
                _check_widths(self.backend.encode(text, add_special_tokens=False).offsets, f"text {index}")
        return ids

    def windows(self, texts: Sequence[str], limit: int | None, on_long: OnLong, ledger: Ledger) -> Iterator[Window]:
        """Each text in as few windows, of even length, as the limit allows."""
        room = None if limit is None else limit - self.frame.size
        if room is not None and room < 1:
            raise BadConfig(f"a limit of {limit} tokens leaves no room for text beside {self.frame.size} special tokens")
        if on_long not in get_args(OnLong):
            raise BadConfig(f"on_long = {on_long!r} is not one of {', '.join(get_args(OnLong))}")
        ledger.limit = room
        for index, ids in enumerate(self.encode(texts)):
            if not len(ids):
                raise BadText(f"text {index} is empty to this tokenizer: it has no token for any of it", remedy="leave it out")
            ledger.texts += 1
            ledger.tokens += len(ids)
            parts = [ids]
            if room is not None and len(ids) > room:
                parts = _shorten(ids, room, on_long, ledger, index)
            yield from (Window(index, part) for part in parts)

    def framed(self, windows: Iterable[Window]) -> tuple[Ids, Ids, list[int]]:
        """The windows with their special tokens, flat: ids, segments, and the length of each."""
        (before, before_segments), (after, after_segments) = self.frame.before, self.frame.after
        ids, segments, lengths = [], [], []
        for window in windows:
            ids += [before, window.ids, after]
            segments += [before_segments, np.zeros_like(window.ids), after_segments]
            lengths.append(len(window.ids) + self.frame.size)
        return np.concatenate(ids), np.concatenate(segments), lengths

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.backend.decode(list(ids), skip_special_tokens=False)
        return text

    def _probe_frame(self) -> Frame:
        """What the tokenizer sets around a text, seen on a text that it has tokens for."""
        probe = next((text for text in PROBES if self.backend.encode(text, add_special_tokens=False).ids), PROBES[0])
        encoded, bare = self.backend.encode(probe), self.backend.encode(probe, add_special_tokens=False)
        ids, segments = np.array(encoded.ids, np.int32), np.array(encoded.type_ids, np.int32)
        own = np.flatnonzero(np.array(encoded.special_tokens_mask) == 0)
        first, last = (int(own[0]), int(own[-1]) + 1) if len(own) else (0, 0)
        if ids[first:last].tolist() != bare.ids or segments[first:last].any():
            raise Unsupported("the tokenizer does more than set special tokens around a text")
        return Frame((ids[:first], segments[:first]), (ids[last:], segments[last:]))


def _shorten(ids: Ids, room: int, on_long: OnLong, ledger: Ledger, index: int) -> list[Ids]:
    if on_long == "error":
        raise TooLong(
            f"text {index} has {len(ids)} tokens, {room} fit into the model",
            remedy='on_long="window" reads it in windows, "truncate" cuts it',
        )
    if on_long == "truncate":
        ledger.cut_texts += 1
        ledger.cut_tokens += len(ids) - room
        return [ids[:room]]
    ledger.windowed_texts += 1
    ledger.windowed_tokens += len(ids)
    return np.array_split(ids, -(-len(ids) // room))


def word_piece(vocab: dict[str, int], config: dict[str, Any]) -> Backend:
    """BERT's own tokenizer: clean, split CJK characters, lower-case, split at spaces and punctuation, longest piece first."""
    unk, cls, sep = (config.get(f"{kind}_token") or SPECIAL[kind][0] for kind in ("unk", "cls", "sep"))
    missing = [str(name) for name in (unk, cls, sep) if not isinstance(name, str) or name not in vocab]
    if not missing and not all(re.fullmatch(r"[^\s:$]+", name) for name in (cls, sep)):
        raise BadConfig(f"{cls!r} and {sep!r} cannot be special tokens", place="vocab.txt")
    if missing:
        raise BadConfig(f"the vocabulary has no {', '.join(missing)}", place="vocab.txt")
    backend = Backend(models.WordPiece(vocab, unk_token=unk, max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=None if config.get("strip_accents") is None else bool(config["strip_accents"]),
        lowercase=bool(config.get("do_lower_case", True)),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
    )
    backend.decoder = decoders.WordPiece(prefix="##")
    named = [config[f"{kind}_token"] for kind in SPECIAL if isinstance(config.get(f"{kind}_token"), str)]
    backend.add_special_tokens([name for name in dict.fromkeys([*named, *chain(*SPECIAL.values())]) if name in vocab])
    return backend


def check_texts(texts: Sequence[str]) -> None:
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise BadText(f"text {index} is a {type(text).__name__}, not a string", remedy="texts are strings")
        if not text.strip():
            raise BadText(f"text {index} is empty", remedy="leave empty texts out")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadText(
                f"text {index} has half a character (a lone surrogate, U+{ord(text[error.start]):04X})",
                place=f"character {error.start}",
                remedy='text.encode("utf-8", "replace").decode() puts a question mark there',
            ) from None
        if len(text) > LONGEST_STRETCH and max(map(len, text.split())) > LONGEST_STRETCH:
            raise BadText(
                f"text {index} has more than {LONGEST_STRETCH:,} characters without a space",
                remedy="is this text at all? split it, or leave it out",
            )


def _check_widths(offsets: Sequence[tuple[int, int]], which: str) -> None:
    start, end = max(offsets, key=lambda span: span[1] - span[0], default=(0, 0))
    if end - start > LONGEST_WORD:
        raise BadText(
            f"one token would stand for {end - start:,} characters of {which}, a word without a space",
            place=f"characters {start:,} to {end:,}",
            remedy="is this text at all? split it, or leave it out",
        )


def _special_names(backend: Backend, config: dict[str, Any]) -> dict[str, str]:
    found = {}
    for kind, usual in SPECIAL.items():
        known = [name for name in (config.get(f"{kind}_token"), *usual) if isinstance(name, str) and backend.token_to_id(name) is not None]
        if known:
            found[kind] = known[0]
    return found


def _refuse_additions(vocab: dict[str, int], config: dict[str, Any], added: dict[str, Any], folder: Path) -> None:
    """Tokens outside vocab.txt, which only tokenizer.json can describe."""
    decoder = config.pop("added_tokens_decoder", None)
    listed = decoder.values() if isinstance(decoder, dict) else []
    names = [*added, *(str(entry.get("content")) for entry in listed if isinstance(entry, dict))]
    unknown = [name for name in names if name not in vocab]
    if unknown:
        remedy = "save the tokenizer with transformers, which writes a tokenizer.json"
        raise Unsupported(f"added tokens beside vocab.txt: {', '.join(map(repr, unknown[:5]))}", place=str(folder), remedy=remedy)


def _has_capitals(vocab: Iterable[str]) -> bool:
    """A vocabulary with capital letters was not made for lower-cased text."""
    return any(piece != piece.lower() for piece in vocab if not (piece.startswith("[") and piece.endswith("]")))


def _read_vocab(content: bytes, path: Path) -> dict[str, int]:
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise BadConfig(f"not UTF-8 at byte {error.start}", place=str(path)) from None
    vocab: dict[str, int] = {}
    for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines):
        piece = line.rstrip("\r")
        if piece in vocab:
            raise BadConfig(f"the piece {piece!r} stands on line {vocab[piece] + 1} and on line {number + 1}", place=str(path))
        vocab[piece] = number
    return vocab


def _json(files: dict[str, bytes], name: str, folder: Path) -> dict[str, Any]:
    values = parse_json(files.get(name, b"{}"), folder / name)
    return values if isinstance(values, dict) else {}


def _dumps(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def _unreadable(reason: str) -> BertworksError:
    return BadText(f"the tokenizer could not read this text: {reason}")


@contextmanager
def _guarded(wrong: Callable[[str], BertworksError]) -> Iterator[None]:
    """The library's own failures, as ours."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, BertworksError):
        raise
    except BaseException as error:  # a panic in the Rust code is not an Exception
        raise wrong(str(error)[:200]) from None
