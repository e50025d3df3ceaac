"""The tokenizer of a model folder, on the `tokenizers` library: text to tokens, with offsets into the text, and back.

A folder has a `tokenizer.json`, or vocabulary files from which one is built. The files of the folder are kept and saved
byte for byte, so a model that is saved again has the same tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, decoders
from tokenizers import Tokenizer as Backend

from bertworks.errors import BadConfig, BadText, BertworksError, Remark, Unsupported, with_article
from bertworks.files import JsonObject, parse_json, read_file
from bertworks.text.backends import FAIRSEQ_MODEL, fast_config, from_vocabulary, special_names

Ids = NDArray[np.int32]
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    FAIRSEQ_MODEL,
)
PROBE_TEXTS = ("a", "A", "1", ".", "中")  # to find the special tokens around a text
MAX_UNSPACED_CHARACTERS = 1_000_000  # without a space; more is not text
MAX_TOKEN_CHARACTERS = 10_000  # of the text that one token covers
# A tokenizer needs one of them.
VOCABULARY_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", FAIRSEQ_MODEL)
TEXTS_AT_ONCE = 4096  # encoded in one call of the library, to bound its memory


@dataclass(frozen=True)
class SpecialTokenTemplate:
    """The special tokens around one text or two."""

    parts: tuple[tuple[Ids, Ids], ...]  # ids and segments: before, between and after the texts
    segments: tuple[int, ...]  # of each text

    @property
    def n_special(self) -> int:
        return sum(len(ids) for ids, _ in self.parts)


@dataclass(frozen=True)
class Pieces:
    """The tokens of a text or a pair, with special tokens."""

    ids: list[int]
    pieces: list[str]
    segments: list[int]
    offsets: list[tuple[int, int]]  # into the text of the piece; (0, 0) for special tokens
    special: list[bool]
    words: list[int | None]  # index of the word in its text; None for special tokens
    texts: list[int | None]  # 0 for the first text, 1 for the second; None for special tokens


class Tokenizer:
    """A tokenizer of the `tokenizers` library with its files, and what a model needs to know about it."""

    def __init__(self, backend: Backend, files: dict[str, bytes], config: JsonObject, remarks: list[Remark]) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.files = files  # file name -> content
        self.config = config
        self.remarks = remarks
        self.special = special_names(backend, config)
        self.template = self._probe_template(pair=False)

    @classmethod
    def load(cls, folder: Path, family: str | None = None) -> Self:
        """`family`: of the model, if the folder does not say it."""
        files = {name: read_file(folder / name) for name in TOKENIZER_FILES if (folder / name).is_file()}
        return cls.from_files(files, folder, family)

    @classmethod
    def load_vocabulary(cls, path: Path, family: str | None = None) -> Self:
        """From a folder, or from one vocabulary file with what is beside it. A file may have a prefix, as in
        `bert-base-uncased-vocab.txt`; files beside it belong to it if they have the same one."""
        if path.is_dir():
            return cls.load(path, family)
        name = next((name for name in VOCABULARY_FILES if path.name.endswith(name)), None)
        if name is None:
            cause = f"not the name of a vocabulary file: {path.name}"
            remedy = f"it must be called, or end in, {', '.join(VOCABULARY_FILES)}"
            raise BadConfig(cause, place=str(path), remedy=remedy, code="not-a-vocabulary")
        prefix = path.name.removesuffix(name)
        neighbours = {
            other: path.with_name(prefix + other) for other in TOKENIZER_FILES if other not in VOCABULARY_FILES
        }
        files = {other: read_file(file) for other, file in neighbours.items() if file.is_file()}
        return cls.from_files({**files, name: read_file(path)}, path.parent, family)

    @classmethod
    def from_files(cls, files: dict[str, bytes], folder: Path, family: str | None = None) -> Self:
        """From the files of a folder, by their names."""
        config = {**_json(files, "special_tokens_map.json", folder), **_json(files, "tokenizer_config.json", folder)}
        config |= {
            key: value["content"] for key, value in config.items() if isinstance(value, dict) and "content" in value
        }
        remarks = []
        if config.pop("auto_map", None):
            text = "tokenizer_config.json asks for remote code (auto_map), which is ignored"
            remarks.append(Remark("remote-code-ignored", text))
            safe_config = _json(files, "tokenizer_config.json", folder)
            safe_config.pop("auto_map", None)
            files["tokenizer_config.json"] = _dumps(safe_config)
        if "tokenizer.json" in files:
            try:
                backend = Backend.from_buffer(files["tokenizer.json"])
            except Exception as error:  # the library raises bare Exceptions
                raise BadConfig(f"not a tokenizer: {error}", place=str(folder / "tokenizer.json")) from None
        else:
            added = _json(files, "added_tokens.json", folder)
            with _library_errors(lambda reason: BadConfig(f"cannot build the tokenizer: {reason}", place=str(folder))):
                backend, config, assumed = from_vocabulary(files, config, added, folder, family)
            remarks += assumed
            files["tokenizer.json"] = backend.to_str(pretty=True).encode()
            files["tokenizer_config.json"] = _dumps(config)
            files.pop("special_tokens_map.json", None)  # tokenizer_config.json has them as plain strings
        with _library_errors(lambda reason: BadConfig(f"the tokenizer does not work: {reason}", place=str(folder))):
            return cls(backend, files, config, remarks)

    @classmethod
    def from_json(cls, tokenizer_json: JsonObject, config: JsonObject) -> Self:
        """A tokenizer that we trained or changed, with files that `transformers` opens as a `PreTrainedTokenizerFast`.

        `tokenizer_json` is the content of its tokenizer.json, and not a backend, since the library would write only one
        of two strings with the same id.
        """
        content = _dumps({**tokenizer_json, "padding": None, "truncation": None})
        with _library_errors(lambda reason: BadConfig(f"cannot build the tokenizer: {reason}")):
            backend = Backend.from_buffer(content)
        config = fast_config(backend, config)
        files = {"tokenizer.json": content, "tokenizer_config.json": _dumps(config)}
        vocab = tokenizer_json["model"]["vocab"]
        # A vocab.txt has one line per id: it can hold neither gaps nor aliases.
        if tokenizer_json["model"]["type"] == "WordPiece" and sorted(vocab.values()) == list(range(len(vocab))):
            files["vocab.txt"] = "".join(f"{piece}\n" for piece in sorted(vocab, key=vocab.__getitem__)).encode()
        return cls(backend, files, config, [])

    def save(self, folder: Path, n_positions: int | None = None) -> None:
        """`n_positions`: of the model. Other libraries truncate at `model_max_length`, which must not be larger."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        config = _json(self.files, "tokenizer_config.json", folder)
        if n_positions is not None and config.get("model_max_length", n_positions) > n_positions:
            (folder / "tokenizer_config.json").write_bytes(_dumps({**config, "model_max_length": n_positions}))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that determines the ids. Padding and truncation do not: we never use them."""
        tokenizer_json = json.loads(self.files["tokenizer.json"])
        tokenizer_json |= {"padding": None, "truncation": None}
        return hashlib.sha256(json.dumps(tokenizer_json, ensure_ascii=False, sort_keys=True).encode()).hexdigest()

    @property
    def kind(self) -> str:
        """WordPiece, BPE or Unigram."""
        return type(self.backend.model).__name__

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        ids: list[int] = [
            *self.backend.get_vocab(with_added_tokens=True).values(),
            *(id for ids, _ in self.template.parts for id in ids),
        ]
        return int(max(ids)) + 1

    def id_of(self, kind: str) -> int:
        """The id of a special token: unk, pad, cls, sep, mask."""
        if kind not in self.special:
            raise Unsupported(f"this tokenizer has no {kind} token", code="missing-special-token")
        id: int | None = self.backend.token_to_id(self.special[kind])
        assert id is not None  # special_names has checked it
        return id

    @property
    def unknown_id(self) -> int | None:
        """The id of the unknown token, if there is one."""
        return self.id_of("unk") if "unk" in self.special else None

    @cached_property
    def reserved_ids(self) -> Ids:
        """The special tokens but the unknown one, which ordinary text never has."""
        added = (id for id, token in self.backend.get_added_tokens_decoder().items() if token.special)
        ids = {*added, *(self.id_of(kind) for kind in self.special)} - {self.unknown_id}
        return np.array(sorted(ids), np.int32)

    def special_ids(self) -> NDArray[np.bool_]:
        """A flag for each id: True if it is a special token, or unused."""
        special = np.ones(self.vocab_size, dtype=np.bool_)
        special[list(self.backend.get_vocab(with_added_tokens=True).values())] = False
        special[[id for id, token in self.backend.get_added_tokens_decoder().items() if token.special]] = True
        special[[self.id_of(kind) for kind in self.special]] = True
        for ids, _ in self.template.parts:
            special[ids] = True
        return special

    def pieces(self, text: str, pair: str | None = None) -> Pieces:
        """The tokens of a text or a pair, with special tokens, offsets and words."""
        check_texts([text] if pair is None else [text, pair])
        with _library_errors(_tokenizer_failure):
            encoded = self.backend.encode(text, pair)
        _check_token_widths(encoded.offsets, "the text")
        return Pieces(
            ids=encoded.ids,
            pieces=encoded.tokens,
            segments=encoded.type_ids,
            offsets=encoded.offsets,
            special=[bool(flag) for flag in encoded.special_tokens_mask],
            words=encoded.word_ids,
            texts=encoded.sequence_ids,
        )

    def encode(self, texts: Sequence[str], places: Sequence[str] | None = None) -> list[Ids]:
        """The tokens of each text, without special tokens. `places`: how errors name the texts, such as a file and a
        line."""
        check_texts(texts, places)
        ids: list[Ids] = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            chunk = list(texts[start : start + TEXTS_AT_ONCE])
            with _library_errors(_tokenizer_failure):
                encodings = self.backend.encode_batch_fast(chunk, add_special_tokens=False)
            ids += [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        for index, text in enumerate(texts):
            if len(text) > MAX_TOKEN_CHARACTERS:
                place = places[index] if places is not None else f"text {index + 1}"
                _check_token_widths(self.backend.encode(text, add_special_tokens=False).offsets, place)
        return ids

    def encodings(self, texts: Sequence[str]) -> list[Encoding]:
        """The library's encodings of texts, without special tokens. The texts are not checked: they may be empty."""
        with _library_errors(_tokenizer_failure):
            encodings: list[Encoding] = self.backend.encode_batch(list(texts), add_special_tokens=False)
        return encodings

    def decode(self, ids: Sequence[int]) -> str:
        if not self.alias_forms:
            return str(self.backend.decode(list(ids), skip_special_tokens=False))
        return str(self.backend.decoder.decode([piece for piece in map(self.piece, ids) if piece is not None]))

    @property
    def spaces_all_words(self) -> bool:
        """Whether `decode` puts a space before every word, in Chinese before every character, as WordPiece does."""
        return isinstance(self.backend.decoder, decoders.WordPiece)

    def piece(self, id: int) -> str | None:
        piece: str | None = self.alias_forms.get(id) or self.backend.id_to_token(id)
        return piece

    @cached_property
    def alias_forms(self) -> dict[int, str]:
        """For each id with several strings, a form and its aliases, the form: the first one in the file."""
        vocab = json.loads(self.files["tokenizer.json"])["model"]["vocab"]
        if not isinstance(vocab, dict) or len(set(vocab.values())) == len(vocab):
            return {}
        forms: dict[int, str] = {}
        return {id: forms[id] for piece, id in vocab.items() if forms.setdefault(id, piece) != piece}

    def readable(self, id: int) -> str:
        """A piece for display: without `##`, `▁` and the byte encoding."""
        piece = self.piece(id)
        if piece is None:
            return f"#{id}"
        if isinstance(self.backend.decoder, decoders.ByteLevel) and piece not in self.special.values():
            return self.decode([id]).strip() or "␣"
        return piece.removeprefix("##").removeprefix("▁") or piece

    @cached_property
    def pair_template(self) -> SpecialTokenTemplate:
        return self._probe_template(pair=True)

    def _probe_template(self, pair: bool) -> SpecialTokenTemplate:
        """The special tokens that the tokenizer puts around one or two texts, found by encoding a text that it has
        tokens for."""
        probe = next(
            (text for text in PROBE_TEXTS if self.backend.encode(text, add_special_tokens=False).ids), PROBE_TEXTS[0]
        )
        probe_ids = self.backend.encode(probe, add_special_tokens=False).ids
        encoded = self.backend.encode(probe, probe if pair else None)
        ids = np.array(encoded.ids, np.int32)
        segments = np.array(encoded.type_ids, np.int32)
        n_texts = 2 if pair else 1
        text_positions = [np.flatnonzero([id == text for id in encoded.sequence_ids]) for text in range(n_texts)]
        edges = [
            edge
            for positions in text_positions
            if len(positions)
            for edge in (int(positions[0]), int(positions[-1]) + 1)
        ] or [0] * (2 * n_texts)
        texts = list(zip(edges[::2], edges[1::2], strict=True))
        for begin, end in texts:
            if ids[begin:end].tolist() != probe_ids or len(set(segments[begin:end].tolist())) > 1:
                raise Unsupported("the tokenizer changes a text beyond adding special tokens around it")
        if segments[texts[0][0] : texts[0][1]].any():
            raise Unsupported("the tokenizer gives the first text a segment other than 0")
        gaps = zip([0, *edges[1::2]], [*edges[::2], len(ids)], strict=True)
        parts = tuple((ids[begin:end], segments[begin:end]) for begin, end in gaps)
        return SpecialTokenTemplate(parts, tuple(int(segments[begin]) if end > begin else 0 for begin, end in texts))


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in VOCABULARY_FILES)


def check_texts(texts: Sequence[str], places: Sequence[str] | None = None) -> None:
    for index, text in enumerate(texts):
        place = places[index] if places is not None else f"text {index + 1}"
        if not isinstance(text, str):
            cause = f"{with_article(type(text).__name__)}, not a string"
            raise BadText(cause, place=place, remedy="texts are strings", code="not-a-string")
        if not text.strip():
            raise BadText("empty text", place=place, remedy="leave empty texts out", code="empty-text")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadText(
                f"lone surrogate U+{ord(text[error.start]):04X} (half a character)",
                place=f"{place}, character {error.start}",
                remedy='text.encode("utf-8", "replace").decode() puts a question mark there',
                code="lone-surrogate",
            ) from None
        if len(text) > MAX_UNSPACED_CHARACTERS and max(map(len, text.split())) > MAX_UNSPACED_CHARACTERS:
            raise BadText(
                f"more than {MAX_UNSPACED_CHARACTERS:,} characters without a space",
                place=place,
                remedy="is this text? split it, or leave it out",
                code="no-spaces",
            )


def _check_token_widths(offsets: Sequence[tuple[int, int]], place: str) -> None:
    """Refuse a text in which one token, an unknown one usually, covers a very long word."""
    start, end = max(offsets, key=lambda span: span[1] - span[0], default=(0, 0))
    if end - start > MAX_TOKEN_CHARACTERS:
        raise BadText(
            f"a word of {end - start:,} characters without a space, which would become one token",
            place=f"{place}, characters {start:,} to {end:,}",
            remedy="is this text? split it, or leave it out",
            code="word-too-long",
        )


def _json(files: dict[str, bytes], name: str, folder: Path) -> JsonObject:
    values = parse_json(files.get(name, b"{}"), folder / name)
    return values if isinstance(values, dict) else {}


def _dumps(values: dict[str, object]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def _tokenizer_failure(reason: str) -> BertworksError:
    return BadText(f"the tokenizer could not encode this text: {reason}")


@contextmanager
def _library_errors(make_error: Callable[[str], BertworksError]) -> Iterator[None]:
    """Turn exceptions of the `tokenizers` library into ours."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, BertworksError):
        raise
    except BaseException as error:  # a panic in the Rust code is not an Exception
        raise make_error(str(error)[:200]) from None
