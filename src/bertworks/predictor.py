"""Inference with a trained model: built once, in evaluation mode, never changed afterwards, safe to share between
threads.

Prediction has three stages, so that a server can put its queue between them:

    prepare(inputs)   -> prepared     without the model: tokens of each input, in windows
    run(windows)      -> outputs      the model: logits, or a vector, of each window
    finish(prepared, outputs)         predictions, or a vector for each text

Offline the three are called one after the other, so served and offline numbers are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertworks.arguments import check_arguments, fits
from bertworks.config import TaskArtifact, WindowConfig
from bertworks.datasets.example import Example
from bertworks.datasets.inputs import as_example, row_examples, table_rows
from bertworks.datasets.report import ReadReport
from bertworks.datasets.schema import Input
from bertworks.errors import BadConfig, BadText, Remark, TooLong, Unsupported, with_article
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.model.weights import as_numpy
from bertworks.tasks.features import Array, Features, Numbers, TokenCounts, Window
from bertworks.tasks.inference import BATCH_TOKENS, Progress, no_progress, run_windows, token_batches
from bertworks.tasks.shapes import restore_task
from bertworks.tasks.task import Outputs, Prediction
from bertworks.tasks.windows import SlidingWindows
from bertworks.text.ledger import Ledger, OnLong
from bertworks.text.tokenizer import Tokenizer, check_texts

Vectors = NDArray[np.float32]
OnBad = Literal["error", "skip"]


class Predictions(list[Any]):
    """A prediction for each input, None for one that was skipped; `ledger` counts long texts and unknown tokens,
    `remarks` name what was skipped, and `logits` has those of each input, if they were asked for."""

    def __init__(
        self,
        predictions: Iterable[Prediction | None],
        ledger: Ledger,
        remarks: Sequence[Remark] = (),
        logits: Sequence[Array | None] | None = None,
    ) -> None:
        super().__init__(predictions)
        self.ledger = ledger
        self.remarks = list(remarks)
        self.logits = None if logits is None else list(logits)


@dataclass(frozen=True)
class PreparedInput:
    example: Example
    features: Features


class Predictor:
    """A fine-tuned model."""

    def __init__(self, model: Model, tokenizer: Tokenizer, artifact: TaskArtifact) -> None:
        self.artifact = artifact
        self.tokenizer = tokenizer
        self.task = restore_task(model, artifact)

    @check_arguments(skip=("inputs",))
    def prepare(self, inputs: Iterable[Input | Example], on_long: OnLong | None = None) -> list[PreparedInput]:
        """An input is what the shape takes (`task.schema.input_help`), or an example, as files have them; a DataFrame
        has one in each row."""
        prepared = self._prepare(inputs, on_long, "error", ReadReport())
        return [item for item in prepared if item is not None]  # all of them: an invalid one was raised

    def _prepare(
        self, inputs: Iterable[Input | Example], on_long: OnLong | None, on_bad: OnBad, report: ReadReport
    ) -> list[PreparedInput | None]:
        """None, where an input is invalid, which is reported, or raised."""
        check_inputs(inputs)
        windows = SlidingWindows.from_config(self.tokenizer, self.artifact.data, on_long)
        examples = self._examples(inputs, on_bad, report)
        valid = [example for example in examples if example is not None]
        features = iter(self._features(valid, windows, on_bad, report))
        prepared: list[PreparedInput | None] = []
        for example in examples:
            item = next(features) if example is not None else None
            prepared.append(PreparedInput(example, item) if example is not None and item is not None else None)
        return prepared

    def _examples(self, inputs: Iterable[Input | Example], on_bad: OnBad, report: ReadReport) -> list[Example | None]:
        schema, pairs = self.task.schema, self.artifact.task.pairs
        items = inputs if hasattr(inputs, "columns") else list(inputs)
        rows = table_rows(items)
        if rows is not None:
            examples = row_examples(rows, schema, pairs, self.artifact.columns, report)
            if report.bad and on_bad == "error":
                row = report.bad[0]
                raise BadText(row.cause, place=row.place, remedy="leave it out, or on_bad='skip'", code=row.code)
            return examples
        examples = []
        for number, item in enumerate(items, start=1):
            try:
                examples.append(item if isinstance(item, Example) else as_example(item, schema, pairs, number))
            except BadText as error:
                if on_bad == "error":
                    raise
                report.bad_row(error.cause, f"input {number}", error.code)
                examples.append(None)
        return examples

    def _features(
        self, examples: Sequence[Example], windows: SlidingWindows, on_bad: OnBad, report: ReadReport
    ) -> list[Features | None]:
        try:
            return [*self.task.features(examples, windows)]
        except (BadText, TooLong) as error:
            if on_bad == "error":
                raise
            if len(examples) == 1:
                report.bad_row(error.cause, examples[0].place, error.code)
                return [None]
        return [item for example in examples for item in self._features([example], windows, on_bad, report)]

    def run(self, windows: Sequence[Features], progress: Progress = no_progress) -> list[Outputs]:
        """The logits of each window of each input."""
        _check_evaluation_mode(self.task)
        _check_evaluation_mode(self.task.model)
        return run_windows(self.task, windows, progress)

    def finish(
        self, prepared: Sequence[PreparedInput], outputs: Sequence[Outputs], min_confidence: float = 0.0
    ) -> list[Prediction]:
        """Where a model is less confident than `min_confidence`, it abstains."""
        predictions = [
            self.task.decode(logits, item.features, item.example)
            for logits, item in zip(outputs, prepared, strict=True)
        ]
        if min_confidence:
            return [prediction.abstain_below(min_confidence) for prediction in predictions]
        return predictions

    def logits(self, prepared: Sequence[PreparedInput], outputs: Sequence[Outputs]) -> list[Array]:
        """The logits of each input, calibrated: their softmax is the confidence."""
        return [
            self.task.example_logits(logits, item.features) / self.task.temperature
            for logits, item in zip(outputs, prepared, strict=True)
        ]

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
        """A prediction for each input, counted in your `ledger` if there is one."""
        self.check_confidence(min_confidence)
        report = ReadReport()
        prepared = self._prepare(inputs, on_long, on_bad, report)
        valid = [item for item in prepared if item is not None]
        ledger = Ledger() if ledger is None else ledger
        for item in valid:
            item.features.add_to_ledger(ledger)
        outputs = self.run([item.features for item in valid], progress)
        predictions = iter(self.finish(valid, outputs, min_confidence))
        valid_logits = iter(self.logits(valid, outputs) if logits else ())
        return Predictions(
            [None if item is None else next(predictions) for item in prepared],
            ledger,
            report.remarks(),
            [None if item is None else next(valid_logits) for item in prepared] if logits else None,
        )

    def check_confidence(self, min_confidence: float) -> None:
        if not 0 <= min_confidence <= 1:
            cause = f"min_confidence = {min_confidence!r} is not a number from 0 to 1"
            raise BadConfig(cause, code="out-of-range", fields=["min_confidence"])
        if min_confidence and not self.task.has_confidence:
            cause = f"{self.task.schema.shape}: predictions have no confidence"
            raise Unsupported(cause, remedy="leave --min-confidence out", code="no-confidence")


def _check_evaluation_mode(module: nn.Module) -> None:
    if module.training:
        cause = "the model is in training mode, with dropout"
        raise Unsupported(cause, remedy="model.eval() first", code="training-mode")


def check_inputs(inputs: object) -> None:
    """A list of inputs, or a DataFrame. A single text and a dict are iterable, too, but not lists of inputs."""
    if isinstance(inputs, str):
        raise BadText("one text, where a list of texts is expected", remedy="predict([text])[0]", code="not-a-list")
    if not fits(inputs, Iterable) and not hasattr(inputs, "to_dicts"):
        remedy = "a list of texts, or a DataFrame"
        cause = f"{with_article(type(inputs).__name__)}, where a list of texts is expected"
        raise BadText(cause, remedy=remedy, code="not-a-list")


class Embedder:
    """Makes a vector of a text, with a model and the pooling of its folder."""

    def __init__(self, model: Model, tokenizer: Tokenizer, pooling: Pooling, limit: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.limit = limit

    @property
    def width(self) -> int:
        """Of a vector."""
        return self.model.config.encoder.hidden_size

    @check_arguments()
    def prepare(
        self,
        texts: Iterable[str],
        on_long: OnLong = "window",
        ledger: Ledger | None = None,
        places: Sequence[str] | None = None,
    ) -> list[Features]:
        """`places`: how errors name the texts, such as a file and a line."""
        texts = list(texts)
        check_texts(texts, places)
        prompt = self.pooling.prompt
        prompted = [prompt + (text.lower() if self.pooling.lower_case else text) for text in texts]
        encoded = self.tokenizer.encode(prompted, places)
        windows = SlidingWindows(self.tokenizer, self.limit, WindowConfig().overlap, on_long)
        places = places or [f"text {number}" for number in range(1, len(texts) + 1)]
        prepared = [
            self._features(ids.astype(np.int64), windows, place) for ids, place in zip(encoded, places, strict=True)
        ]
        if ledger is not None:
            for features in prepared:
                features.add_to_ledger(ledger)
        return prepared

    def _features(self, ids: Numbers, sliding: SlidingWindows, place: str) -> Features:
        if not len(ids):
            cause = "the tokenizer has no token for any of it"
            raise BadText(cause, place=place, remedy="leave it out", code="no-tokens")
        ranges = sliding.ranges((len(ids),), place)
        windows = []
        for window_range in ranges:
            window_ids, segments, _ = sliding.with_special_tokens((ids,), window_range)
            windows.append(Window(window_ids, segments, positions=np.empty(0, np.int64)))
        return Features(tuple(windows), sum(sliding.count((ids,), ranges), TokenCounts()), sliding.capacity(1))

    @torch.inference_mode()
    def run(
        self, windows: Sequence[Window], *, batch_tokens: int = BATCH_TOKENS, progress: Progress = no_progress
    ) -> Vectors:
        """A vector for each window, (windows, hidden)."""
        if batch_tokens < 1:
            cause = f"batch_tokens = {batch_tokens} is not a number of tokens"
            raise BadConfig(cause, code="out-of-range", fields=["batch_tokens"])
        _check_evaluation_mode(self.model)
        vectors = np.empty((len(windows), self.width), np.float32)
        lengths = [len(window.ids) for window in windows]
        n_special = self.tokenizer.template.n_special
        n_tokens = sum(lengths) - n_special * len(lengths)
        n_done = 0
        # Sorted by length, windows of equal length are neighbours and need neither padding nor masks.
        for members in token_batches(lengths, batch_tokens):
            tokens = self._tokens([windows[index] for index in members])
            vectors[members] = as_numpy(self.pooling.pool(self.model.encoder(tokens).last, tokens.layout))
            n_done += sum(lengths[index] - n_special for index in members)
            progress(n_done, n_tokens)
        return vectors

    def _tokens(self, windows: Sequence[Window]) -> Tokens:
        device = self.model.encoder.device
        ids = torch.from_numpy(np.concatenate([window.ids for window in windows])).to(device)
        segments = torch.from_numpy(np.concatenate([window.segments for window in windows])).to(device)
        tokens = Tokens.ragged(ids, [len(window.ids) for window in windows], segments)
        check_segments(self.model, tokens)
        return tokens

    def finish(self, prepared: Sequence[Features], vectors: Vectors) -> Vectors:
        """The mean of each text's windows, weighted by their tokens, (texts, hidden)."""
        owners = [index for index, features in enumerate(prepared) for _ in features.windows]
        n_special = self.tokenizer.template.n_special
        n_tokens = np.array([len(window.ids) - n_special for window in _all_windows(prepared)], np.float32)
        sums = np.zeros((len(prepared), vectors.shape[1]), np.float32)
        weights = np.zeros((len(prepared), 1), np.float32)
        np.add.at(sums, owners, vectors * n_tokens[:, None])
        np.add.at(weights, owners, n_tokens[:, None])
        means: Vectors = sums / weights
        if self.pooling.normalise:
            means /= np.linalg.norm(means, axis=1, keepdims=True).clip(1e-12)
        return means

    @check_arguments()
    def encode(
        self,
        texts: Iterable[str],
        *,
        on_long: OnLong = "window",
        ledger: Ledger | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress = no_progress,
        places: Sequence[str] | None = None,
    ) -> Vectors:
        prepared = self.prepare(texts, on_long, ledger, places)
        vectors = self.run(_all_windows(prepared), batch_tokens=batch_tokens, progress=progress)
        return self.finish(prepared, vectors)


def _all_windows(prepared: Sequence[Features]) -> list[Window]:
    return [window for features in prepared for window in features.windows]


def check_segments(model: Model, tokens: Tokens) -> None:
    n_segments = model.config.encoder.n_segments
    n_used = int(tokens.layout.queries.segments.max()) + 1
    if 0 < n_segments < n_used:
        cause = f"the tokenizer uses {n_used} segments, the model has {n_segments}"
        raise Unsupported(cause, remedy="this model does not read pairs", code="too-many-segments")
