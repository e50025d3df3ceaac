"""What `load` and `new` return: a model with its tokenizer, ready for texts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from bertworks import __version__
from bertworks.arguments import check_arguments
from bertworks.config import ModelConfig, TaskArtifact, check_artifact
from bertworks.datasets.example import Example
from bertworks.datasets.schema import Input
from bertworks.errors import BadConfig, BadWeights, NotFound, Remark, TooLong, Unsupported
from bertworks.files import JsonObject, read_json
from bertworks.fill import Filled, Filler
from bertworks.inspect.view import AttentionView, check_length, inspect_text
from bertworks.model.encoder import States
from bertworks.model.fairseq import find_checkpoint, import_fairseq
from bertworks.model.folder import CONFIG, GENERATOR, LoadedModel, import_folder, load_folder, save_folder
from bertworks.model.layout import Tokens
from bertworks.model.locate import locate
from bertworks.model.model import Model
from bertworks.model.pooling import POOLING_FILES, Pooling
from bertworks.model.weights import PICKLE, as_numpy
from bertworks.predictor import (
    Embedder,
    OnBad,
    Predictions,
    Predictor,
    Vectors,
    check_segments,
)
from bertworks.presets import preset as preset_config
from bertworks.tasks.inference import BATCH_TOKENS, Progress, no_progress, token_batches
from bertworks.tasks.shapes import guess_artifact
from bertworks.text.fairseq import fairseq_tokenizer
from bertworks.text.ledger import Ledger, OnLong
from bertworks.text.tokenizer import TOKENIZER_FILES, Pieces, Tokenizer, has_tokenizer

Cosines = NDArray[np.float64]
OWN_FILE = "bertworks.json"
DEFAULT_LIMIT = 512  # of models without positions, such as XLNet: the length it was trained on
log = logging.getLogger("bertworks")


class Workbench:
    """A model with its tokenizer, its pooling and the config of its folder."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None,
        pooling: Pooling,
        hf_config: JsonObject,
        lineage: list[str],
        remarks: list[Remark],
    ) -> None:
        self.model = model
        self._tokenizer = tokenizer
        self.pooling = pooling
        self.hf_config = hf_config
        self.lineage = lineage
        self.remarks = remarks
        self.generator: Workbench | None = None  # of an ELECTRA discriminator
        self.artifact: TaskArtifact | None = None  # of a fine-tuned model

    def __repr__(self) -> str:
        encoder = self.config.encoder
        n_parameters = sum(parameter.numel() for parameter in self.model.parameters())
        parts = [self.config.family, f"{encoder.n_layers} layers of {encoder.hidden_size}"]
        parts += [f"{n_parameters:,} parameters"]
        parts += [f"heads: {' '.join(self.model.heads)}" if len(self.model.heads) else "no head"]
        return f"<Workbench: {', '.join(parts)}{'' if self.has_tokenizer else ', no tokenizer'}>"

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            remedy = "load a folder with one, or new(preset, tokenizer=...)"
            raise Unsupported("this model has no tokenizer", remedy=remedy, code="no-tokenizer")
        return self._tokenizer

    @property
    def has_tokenizer(self) -> bool:
        return self._tokenizer is not None

    @property
    def limit(self) -> int:
        """The maximum sequence length, special tokens included: the smaller of the folder's limit and the number of
        positions; 512, if there is neither."""
        return self.limit_and_source[0]

    @property
    def limit_and_source(self) -> tuple[int, str]:
        limits = (self.pooling.limit, self.pooling.limit_file), (self.config.encoder.n_positions, "positions")
        finite = [(limit, source) for limit, source in limits if limit is not None]
        return min(finite, default=(DEFAULT_LIMIT, "custom: the model has no positions"))

    @property
    def device(self) -> torch.device:
        return self.model.encoder.device

    @check_arguments()
    def encode(
        self,
        texts: str | Iterable[str],
        pooling: str | None = None,
        *,
        batch_tokens: int = BATCH_TOKENS,
        on_long: OnLong = "window",
        ledger: Ledger | None = None,
        progress: Progress = no_progress,
    ) -> Vectors:
        """One vector per text, (texts, hidden), or (hidden,) for a single text.

        Pooling and normalisation are the folder's own, else the mean. A text longer than the model is read in windows,
        as `predict` reads it, and its vector is their mean, weighted by tokens; `on_long="truncate"` cuts it, "error"
        refuses. `ledger` counts long and unknown parts. `progress(done, total)` is called with tokens.
        """
        text_list = _text_list(texts)
        vectors = self.embedder(pooling).encode(
            text_list, on_long=on_long, ledger=ledger, batch_tokens=batch_tokens, progress=progress
        )
        return vectors.reshape(-1) if isinstance(texts, str) else vectors

    @overload
    def similarity(self, a: str, b: str, pooling: str | None = None) -> float: ...  # type: ignore[overload-overlap]

    @overload
    def similarity(self, a: str | Iterable[str], b: str | Iterable[str], pooling: str | None = None) -> Cosines: ...

    @check_arguments()
    def similarity(self, a: str | Iterable[str], b: str | Iterable[str], pooling: str | None = None) -> float | Cosines:
        """The cosine of the vectors of two texts, from -1 to 1. Where `a` or `b` is a list, of each of its texts: two
        lists give an array (len(a), len(b)). Pooling is that of `encode`."""
        first, second = (_unit_vectors(self.encode(_text_list(texts), pooling)) for texts in (a, b))
        cosines = (first @ second.T).clip(-1, 1)
        if isinstance(a, str) and isinstance(b, str):
            return float(cosines[0, 0])
        return cosines[0] if isinstance(a, str) else cosines[:, 0] if isinstance(b, str) else cosines

    @check_arguments()
    def embedder(self, pooling: str | None = None) -> Embedder:
        """The embedder of this model, safe to share between threads; `pooling`: other than the folder's."""
        return Embedder(self.model, self.tokenizer, self.pooling.with_mode(pooling), self.limit)

    @overload
    def states(self, text: str, layer: int = -1) -> Vectors: ...  # type: ignore[overload-overlap]

    @overload
    def states(self, text: Iterable[str], layer: int = -1) -> list[Vectors]: ...

    @check_arguments()
    def states(self, text: str | Iterable[str], layer: int = -1) -> Vectors | list[Vectors]:
        """The state of each token, special ones included, (tokens, hidden); of several texts, a list of these. Layer 0
        is the embeddings, -1 the last."""
        n_layers = self.config.encoder.n_layers
        if not -n_layers - 1 <= layer <= n_layers:
            cause = f"layer {layer} of a model with {n_layers} layers"
            remedy = f"0 (embeddings) to {n_layers}, or counted from -1"
            raise BadConfig(cause, remedy=remedy, code="out-of-range", fields=["layer"])
        if isinstance(text, str):
            return as_numpy(self._run([self._pieces(text)], keep_layers=True).layers[layer])
        all_pieces = [self._pieces(item) for item in _text_list(text)]
        lengths = [len(pieces.ids) for pieces in all_pieces]
        states: list[Vectors] = [np.empty(0, np.float32)] * len(all_pieces)
        for members in token_batches(lengths, BATCH_TOKENS):
            batch = as_numpy(self._run([all_pieces[i] for i in members], keep_layers=True).layers[layer])
            ends = np.cumsum([lengths[i] for i in members])
            for i, text_states in zip(members.tolist(), np.split(batch, ends[:-1]), strict=True):
                states[i] = text_states
        return states

    @check_arguments()
    def attention(self, a: str, b: str | None = None) -> AttentionView:
        """The attention of every layer and head over a text or a pair."""
        texts = (a,) if b is None else (a, b)
        pieces = self.tokenizer.pieces(a, b)
        check_length(pieces, texts, self.limit, "the model")
        return inspect_text(self.model, pieces, texts)

    @check_arguments()
    def fill(self, text: str, top_k: int = 5) -> Filled:
        """The best tokens for each blank in the text; a blank is written as the tokenizer's mask token.

        ELECTRA's discriminator fills by its generator, XLNet by its query stream. A left-to-right model has no blanks:
        it continues the text, and each token that it adds counts as a blank.
        """
        if "lm" not in self.model.heads and self.generator is not None:
            return self.generator.fill(text, top_k)
        if "lm" not in self.model.heads:
            cause = "this model has no language-model head, so it cannot fill blanks"
            remedy = "use a folder with one (BertForMaskedLM, ...); `bertworks pretrain SHARDS --model FOLDER` adds one"
            raise Unsupported(cause, remedy=remedy, code="missing-head")
        if top_k < 1:
            raise BadConfig(f"top_k = {top_k} is not a number of candidates", code="out-of-range", fields=["top_k"])
        filler = Filler(self.model, self.tokenizer, self.limit)
        if self.config.encoder.causal:
            return filler.continue_text(text, top_k)
        return filler.fill(text, self._pieces(text), top_k)

    @cached_property
    def predictor(self) -> Predictor:
        """The predictor of this fine-tuned model, safe to share between threads."""
        artifact = self.artifact or guess_artifact(self.model, self.hf_config.get("problem_type"), self.limit)
        return Predictor(self.model, self.tokenizer, artifact)

    @check_arguments(skip=("inputs",))
    def predict(
        self,
        inputs: Iterable[Input | Example],
        *,
        on_long: OnLong | None = None,
        on_bad: OnBad = "error",
        min_confidence: float = 0.0,
        logits: bool = False,
        ledger: Ledger | None = None,
        progress: Progress = no_progress,
    ) -> Predictions:
        """What a fine-tuned model predicts for each input, and the ledger.

        An input is a text or a pair of texts (classify, regress, multilabel), a text or its words (tag), a question and
        a passage (span), or a text and its choices (choice); several texts are a tuple. A DataFrame, or a list of
        dicts, has an input in each row, in the columns that the model was trained on, or in those of the usual names.

        Long inputs are read in windows and counted, in your `ledger` if there is one. An invalid input is an error;
        with `on_bad="skip"` its prediction is None, and `remarks` of the result name it. Where a model is less
        confident than `min_confidence`, it abstains: None for a label, an answer, a choice, or the tag of a word; of
        several labels, which are undecided.

        Labels are text, also where those of the training were numbers or booleans: "1", "True".

        With `logits=True`, `logits` of the result has an array for each input, calibrated as the confidence is: of the
        classes (classify, multilabel, regress), of the choices (choice), of each word that was read (tag: words, tags),
        or of the first and the last token of an answer (span: rows, 2; each window has a row for "no answer", then one
        for each of its tokens of the passage).
        """
        return self.predictor.predict(
            inputs,
            on_long=on_long,
            on_bad=on_bad,
            min_confidence=min_confidence,
            logits=logits,
            ledger=ledger,
            progress=progress,
        )

    @check_arguments()
    def replace_tokenizer(self, tokenizer: Tokenizer, change: str) -> None:
        """`change`: its entry in the lineage."""
        _check_vocabulary(tokenizer, self.config, change)
        self._tokenizer = tokenizer
        self.lineage.append(change)

    @check_arguments()
    def save(self, folder: str | Path) -> Path:
        """As a Hugging Face folder, in one step: an interrupted save leaves the old folder."""
        path = Path(folder)
        own: dict[str, object] = {"format": 1, "written_by": f"bertworks {__version__}", "lineage": self.lineage}
        if self.artifact is not None:
            own["task"] = self.artifact.model_dump(mode="json")

        def write_other_files(new: Path) -> None:
            if self._tokenizer is not None:
                self._tokenizer.save(new, self.config.encoder.n_positions)
            self.pooling.save(new, self.config.encoder.hidden_size)
            if self.generator is not None:
                self.generator.save(new / GENERATOR)
            (new / OWN_FILE).write_text(json.dumps(own, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

        owned = {*TOKENIZER_FILES, *POOLING_FILES, OWN_FILE, GENERATOR}
        save_folder(self.model, path, hf_config=self.hf_config, files=write_other_files, owned=owned)
        return path

    def _pieces(self, text: str, text2: str | None = None) -> Pieces:
        """Of a text, or a pair, that must not be longer than the model's limit."""
        pieces = self.tokenizer.pieces(text, text2)
        if len(pieces.ids) > self.limit:
            remedy = "shorten the text; encode() can read it in windows"
            raise TooLong(f"{len(pieces.ids)} tokens, {self.limit} fit into the model", remedy=remedy)
        return pieces

    def _run(self, texts: Sequence[Pieces], *, keep_layers: bool = False) -> States:
        """Sorted by length: those of equal length are neighbours."""
        with torch.inference_mode():
            ids, segments = (
                torch.tensor([value for pieces in texts for value in getattr(pieces, name)], device=self.device)
                for name in ("ids", "segments")
            )
            tokens = Tokens.ragged(ids, [len(pieces.ids) for pieces in texts], segments)
            check_segments(self.model, tokens)
            states: States = self.model.encoder(tokens, keep_layers)
        return states


@check_arguments()
def load(
    name: str | Path,
    *,
    device: str | torch.device = "cpu",
    family: str | None = None,
    vocab: str | Path | None = None,
    strict: bool = False,
) -> Workbench:
    """A model by its folder, by the name `minilm`, or (with the hub extra) by its name on the Hub.

    `family` says what an old `config.json` does not; `vocab` is a vocabulary file, or a folder with one. Weights that
    nothing reads and heads without weights are left out and named in `remarks`; with `strict` they are refused.
    """
    folder = locate(name)
    if find_checkpoint(folder) is not None:
        raise BadWeights(
            "a checkpoint of fairseq, which is a pickle and can run code when it is read",
            place=str(folder),
            remedy=f"if you trust its source: bertworks import {folder} --out NEW",
            code="pickled-weights",
        )
    loaded = load_folder(folder, family=family, strict=strict)
    return _workbench(loaded, folder, str(name), device, _tokenizer(loaded, folder, vocab), strict)


def import_pickled(
    folder: str | Path, *, family: str | None = None, vocab: str | Path | None = None, strict: bool = False
) -> Workbench:
    """As `load`, also from `pytorch_model.bin` or a checkpoint of fairseq, for the import command alone: nothing else
    reads pickles."""
    path = locate(folder, extra_file=PICKLE)
    checkpoint = find_checkpoint(path)
    if checkpoint is None:
        loaded = import_folder(path, family=family, strict=strict)
        tokenizer = _tokenizer(loaded, path, vocab)
    else:
        loaded = import_fairseq(checkpoint, family=family, strict=strict)
        tokenizer = fairseq_tokenizer(path, _existing(vocab), loaded.model.config.family)
    return _workbench(loaded, path, str(folder), "cpu", tokenizer, strict)


@check_arguments()
def new(
    preset: str,
    *,
    heads: Iterable[str] = (),
    tokenizer: str | Path | Tokenizer | None = None,
    seed: int = 0,
    **overrides: Any,
) -> Workbench:
    """A model of a published size with random weights; overrides are config fields. A tokenizer may be named by its
    folder."""
    if not 0 <= seed < 2**63:
        raise BadConfig(f"seed = {seed} is not from 0 to 2**63 - 1", code="out-of-range", fields=["seed"])
    loaded = Tokenizer.load(locate(tokenizer)) if isinstance(tokenizer, str | Path) else tokenizer
    config = preset_config(preset) if loaded is None else fit_to(preset_config(preset), loaded)
    config = config.override(**overrides)
    _check_vocabulary(loaded, config, preset)
    model = Model.fresh(config, heads, seed=seed).eval()
    remarks = [] if loaded is None else loaded.remarks
    return Workbench(model, loaded, Pooling(), {}, [f"new {preset}"], list(remarks))


def _unit_vectors(vectors: Vectors) -> NDArray[np.float64]:
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    unit: NDArray[np.float64] = vectors / norms.clip(1e-12)
    return unit


def _text_list(texts: str | Iterable[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def fit_to(config: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """A preset with the vocabulary of a tokenizer."""
    changes = {"vocab_size": tokenizer.vocab_size}
    if config.encoder.positions_follow_padding:
        changes["first_position"] = tokenizer.id_of("pad") + 1
    return config.override(**changes)


def _tokenizer(loaded: LoadedModel, folder: Path, vocab: str | Path | None = None) -> Tokenizer | None:
    family = loaded.model.config.family
    if path := _existing(vocab):
        return Tokenizer.load_vocabulary(path, family)
    return Tokenizer.load(folder, family) if has_tokenizer(folder) else None


def _existing(vocab: str | Path | None) -> Path | None:
    if vocab is None:
        return None
    try:
        if Path(vocab).exists():
            return Path(vocab)
        reason = "no such file or folder"
    except (OSError, ValueError) as error:  # a name that cannot be
        reason = f"cannot be read: {error}"[:300]
    raise NotFound(reason, place=str(vocab)[:300], remedy="name a vocabulary file, or a folder with one")


def _workbench(
    loaded: LoadedModel,
    folder: Path,
    name: str,
    device: str | torch.device,
    tokenizer: Tokenizer | None,
    strict: bool,
) -> Workbench:
    _check_vocabulary(tokenizer, loaded.model.config, str(folder))
    own = read_json(folder / OWN_FILE) if (folder / OWN_FILE).is_file() else {}
    remarks = [*loaded.remarks, *(tokenizer.remarks if tokenizer else [])]
    for remark in remarks:
        log.warning("%s: %s", folder, remark)
    lineage = [*map(str, own["lineage"])] if isinstance(own.get("lineage"), list) else []
    if lineage[-1:] != [f"loaded {name}"]:
        lineage.append(f"loaded {name}")
    model = _to_device(loaded.model, device)
    bench = Workbench(model, tokenizer, Pooling.load(folder), loaded.hf_config, lineage, remarks)
    if own.get("task") is not None:
        bench.artifact = check_artifact(own["task"], str(folder / OWN_FILE))
    if (folder / GENERATOR / CONFIG).is_file():
        generator = load_folder(folder / GENERATOR, strict=strict)
        tokenizer = _tokenizer(generator, folder / GENERATOR)
        generator_name = f"{name}/{GENERATOR}"
        bench.generator = _workbench(generator, folder / GENERATOR, generator_name, device, tokenizer, strict)
    return bench


def _to_device(model: Model, device: str | torch.device) -> Model:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        cause = f"no such device on this machine: {device!s} ({reason})"
        raise Unsupported(cause, remedy="every machine has cpu", code="no-such-device") from None


def _check_vocabulary(tokenizer: Tokenizer | None, config: ModelConfig, place: str) -> None:
    if tokenizer is not None and tokenizer.vocab_size > config.encoder.vocab_size:
        raise BadConfig(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model {config.encoder.vocab_size}",
            place=place,
            remedy="tokenizer and model must belong together",
            code="vocabulary-too-large",
        )
