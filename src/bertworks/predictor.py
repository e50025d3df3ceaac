"""A trained model, ready to be asked: built once, in evaluation mode, never changed afterwards, safe to share between
threads.

Prediction has three stages, so that a server can put its queue between them:

    prepare(inputs)   -> prepared     no model: tokens of each input, in windows that fit
    run(windows)      -> rows         the model: logits, or a vector, of each window
    finish(prepared, rows)            what they mean

Offline the three are called in a row, so served and offline numbers are the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertworks.config import TaskArtifact, WindowConfig
from bertworks.datasets.example import Example
from bertworks.datasets.inputs import as_example
from bertworks.datasets.schema import Input
from bertworks.errors import BadConfig, BadText, Unsupported
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.model.weights import as_numpy
from bertworks.tasks.features import Features, Numbers, TokenCounts, Window
from bertworks.tasks.inference import BATCH_TOKENS, Progress, no_progress, run_windows, token_batches
from bertworks.tasks.shapes import restore_task
from bertworks.tasks.task import Outputs, Prediction
from bertworks.tasks.windows import SlidingWindows
from bertworks.text.ledger import Ledger, OnLong
from bertworks.text.tokenizer import Tokenizer, check_texts

Vectors = NDArray[np.float32]


class Predictions(list[Any]):
    """A prediction for each input, and what became of long ones."""

    def __init__(self, predictions: Iterable[Prediction], ledger: Ledger) -> None:
        super().__init__(predictions)
        self.ledger = ledger


@dataclass(frozen=True)
class PreparedInput:
    example: Example
    features: Features


class Predictor:
    """A fine-tuned model."""

    def __init__(self, model: Model, tokenizer: Tokenizer, artifact: TaskArtifact) -> None:
        self.artifact, self.tokenizer = artifact, tokenizer
        self.task = restore_task(model, artifact)

    def prepare(self, inputs: Iterable[Input | Example], on_long: OnLong | None = None) -> list[PreparedInput]:
        """An input is what the shape takes (`task.schema.input_help`), or an example, as files have them."""
        config = self.artifact.task
        examples = [
            given if isinstance(given, Example) else as_example(given, self.task.schema, config.pairs, at)
            for at, given in enumerate(inputs)
        ]
        windows = SlidingWindows.from_config(self.tokenizer, self.artifact.data, on_long)
        features = self.task.features(examples, windows)
        return [PreparedInput(*pair) for pair in zip(examples, features, strict=True)]

    def run(self, windows: Sequence[Features], progress: Progress = no_progress) -> list[Outputs]:
        """The logits of each window of each input."""
        if self.task.training or self.task.model.training:
            raise Unsupported(
                "the model is in training mode, with dropout", remedy="model.eval() first", code="training-mode"
            )
        return run_windows(self.task, windows, progress)

    def finish(
        self, prepared: Sequence[PreparedInput], outputs: Sequence[Outputs], min_confidence: float = 0.0
    ) -> list[Prediction]:
        """Where a model is less confident than `min_confidence`, it abstains."""
        decoded = [
            self.task.decode(logits, one.features, one.example) for logits, one in zip(outputs, prepared, strict=True)
        ]
        return [one.abstain_below(min_confidence) for one in decoded] if min_confidence else decoded

    def predict(
        self,
        inputs: Iterable[Input | Example],
        *,
        on_long: OnLong | None = None,
        min_confidence: float = 0.0,
        ledger: Ledger | None = None,
        progress: Progress = no_progress,
    ) -> Predictions:
        """A prediction for each input, and the ledger; one that was begun elsewhere, if there is one."""
        check_inputs(inputs)
        self.check_confidence(min_confidence)
        prepared = self.prepare(inputs, on_long)
        ledger = Ledger() if ledger is None else ledger
        for one in prepared:
            one.features.add_to_ledger(ledger)
        outputs = self.run([one.features for one in prepared], progress)
        return Predictions(self.finish(prepared, outputs, min_confidence), ledger)

    def check_confidence(self, min_confidence: float) -> None:
        if not 0 <= min_confidence <= 1:
            cause = f"min_confidence = {min_confidence!r} is not a number from 0 to 1"
            raise BadConfig(cause, code="out-of-range", fields=["min_confidence"])
        if min_confidence and not self.task.has_confidence:
            remedy = "leave --min-confidence out"
            raise Unsupported(
                f"{self.task.schema.shape}: predictions have no confidence", remedy=remedy, code="no-confidence"
            )


def check_inputs(inputs: object) -> None:
    """A list of inputs; a single text and a table look like one, and are not."""
    if isinstance(inputs, str):
        raise BadText("one text, where a list of texts is expected", remedy="predict([text])[0]", code="not-a-list")
    if isinstance(inputs, Mapping) or hasattr(inputs, "columns") or not isinstance(inputs, Iterable):
        remedy = "of a table: predict(list(table['text']))"
        raise BadText(f"a {type(inputs).__name__}, where a list of texts is expected", remedy=remedy, code="not-a-list")


class Embedder:
    """A model and how its folder makes one vector of a text."""

    def __init__(self, model: Model, tokenizer: Tokenizer, pooling: Pooling, limit: int) -> None:
        self.model, self.tokenizer, self.pooling, self.limit = model, tokenizer, pooling, limit

    @property
    def width(self) -> int:
        """Of a vector."""
        return self.model.config.encoder.hidden_size

    def prepare(
        self,
        texts: Sequence[str],
        on_long: OnLong = "window",
        ledger: Ledger | None = None,
        places: Sequence[str] | None = None,
    ) -> list[Features]:
        """`places`: how errors name the texts, such as a file and a line."""
        check_texts(texts)
        how = self.pooling
        encoded = self.tokenizer.encode([how.prompt + (text.lower() if how.lower_case else text) for text in texts])
        windows = SlidingWindows(self.tokenizer, self.limit, WindowConfig().overlap, on_long)
        places = places or [f"text {index}" for index in range(len(texts))]
        prepared = [
            self._features(ids.astype(np.int64), windows, place) for ids, place in zip(encoded, places, strict=True)
        ]
        if ledger is not None:
            for one in prepared:
                one.add_to_ledger(ledger)
        return prepared

    def _features(self, ids: Numbers, windows: SlidingWindows, place: str) -> Features:
        if not len(ids):
            raise BadText(
                "the tokenizer has no token for any of it", place=place, remedy="leave it out", code="no-tokens"
            )
        ranges = windows.ranges((len(ids),), place)
        made = []
        for one in ranges:
            framed, segments, _ = windows.with_special_tokens((ids,), one)
            made.append(Window(framed, segments, positions=np.empty(0, np.int64)))
        return Features(tuple(made), sum(windows.count((ids,), ranges), TokenCounts()), windows.capacity(1))

    @torch.inference_mode()
    def run(
        self, windows: Sequence[Window], *, batch_tokens: int = BATCH_TOKENS, progress: Progress = no_progress
    ) -> Vectors:
        """A vector for each window, (windows, hidden)."""
        if batch_tokens < 1:
            raise BadConfig(
                f"batch_tokens = {batch_tokens} is not a number of tokens", code="out-of-range", fields=["batch_tokens"]
            )
        if self.model.training:
            raise Unsupported(
                "the model is in training mode, with dropout", remedy="model.eval() first", code="training-mode"
            )
        vectors = np.empty((len(windows), self.width), np.float32)
        lengths = [len(window.ids) for window in windows]
        n_special = self.tokenizer.template.n_special
        done, total = 0, sum(lengths) - n_special * len(lengths)
        # Sorted by length, texts of equal length stand together and need neither padding nor masks.
        for members in token_batches(lengths, batch_tokens):
            tokens = self._tokens([windows[at] for at in members])
            vectors[members] = as_numpy(self.pooling.pool(self.model.encoder(tokens).last, tokens.layout))
            done += sum(lengths[at] - n_special for at in members)
            progress(done, total)
        return vectors

    def _tokens(self, windows: Sequence[Window]) -> Tokens:
        device = self.model.encoder.device
        ids, segments = (
            torch.from_numpy(np.concatenate(parts)).to(device)
            for parts in ([window.ids for window in windows], [window.segments for window in windows])
        )
        tokens = Tokens.ragged(ids, [len(window.ids) for window in windows], segments)
        check_segments(self.model, tokens)
        return tokens

    def finish(self, prepared: Sequence[Features], vectors: Vectors) -> Vectors:
        """The mean of each text's windows, weighted by their tokens, (texts, hidden)."""
        owners = [at for at, one in enumerate(prepared) for _ in one.windows]
        n_special = self.tokenizer.template.n_special
        sizes = np.array([len(window.ids) - n_special for one in prepared for window in one.windows], np.float32)
        sums, weights = (
            np.zeros((len(prepared), vectors.shape[1]), np.float32),
            np.zeros((len(prepared), 1), np.float32),
        )
        np.add.at(sums, owners, vectors * sizes[:, None])
        np.add.at(weights, owners, sizes[:, None])
        means: Vectors = sums / weights
        if self.pooling.normalise:
            means /= np.linalg.norm(means, axis=1, keepdims=True).clip(1e-12)
        return means

    def encode(
        self,
        texts: Sequence[str],
        *,
        on_long: OnLong = "window",
        ledger: Ledger | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress = no_progress,
        places: Sequence[str] | None = None,
    ) -> Vectors:
        prepared = self.prepare(texts, on_long, ledger, places)
        windows = [window for one in prepared for window in one.windows]
        return self.finish(prepared, self.run(windows, batch_tokens=batch_tokens, progress=progress))


def check_segments(model: Model, tokens: Tokens) -> None:
    n_segments, n_used = model.config.encoder.n_segments, int(tokens.layout.queries.segments.max()) + 1
    if 0 < n_segments < n_used:
        remedy = "this model does not read pairs"
        raise Unsupported(
            f"the tokenizer marks {n_used} segments, the model knows {n_segments}",
            remedy=remedy,
            code="too-many-segments",
        )
