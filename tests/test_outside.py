"""What others add from outside of the package: a shape of task, in one file and one row, is trained, evaluated,
reported and asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch.nn.functional as F
from torch import Tensor

import bertworks
from bertworks.config import TaskConfig
from bertworks.data.tables import Row
from bertworks.datasets.columns import Columns, is_missing
from bertworks.datasets.example import Example, InvalidRow
from bertworks.datasets.schema import Schema
from bertworks.measure.metrics import ACCURACY, Floats, MetricValues
from bertworks.model.loss import Loss, Term, accuracy
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch
from bertworks.tasks.sequence import SequenceTask
from bertworks.tasks.shapes import SHAPES
from bertworks.tasks.task import Outputs, Prediction, Score
from texts import tiny_tokenizer


@dataclass(frozen=True)
class Verdict(Prediction):
    is_so: bool
    confidence: float


class VerdictSchema(Schema):
    shape = "verdict"
    label_names = ("verdict",)
    table_help = (("verdict", "text, verdict", "it rains, yes"),)

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> bool:
        value = row[columns.labels[0]]
        if is_missing(value) or str(value) not in ("yes", "no"):
            raise InvalidRow(f"{value!r} is neither yes nor no", "not-a-verdict")
        return str(value) == "yes"


class VerdictTask(SequenceTask[bool, Verdict]):
    """Yes or no, by one logit."""

    schema = VerdictSchema()
    terms = {"verdict": ("verdicts", "判断")}
    metrics = (ACCURACY,)

    @classmethod
    def head_labels(cls, config: TaskConfig) -> tuple[str, ...]:
        return ("yes",)

    def target(self, example: Example) -> Array:
        return np.array(bool(example.answer), np.float32)

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        return {"verdict": len(batch.targets), "verdict_accuracy": len(batch.targets)}

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        scores, targets = self.mean_of_windows(logits, batch)[:, 0], self.tensor(batch.targets)
        total = F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
        return Term("verdict", total), accuracy("verdict", ((scores.detach() > 0) == (targets > 0)).sum())

    def class_logits(self, outputs: Outputs, features: Features) -> Array:
        logit = super().class_logits(outputs, features).item()
        return np.array([[0.0, logit]])

    def targets(self, features: Features) -> Numbers:
        return np.array([int(np.asarray(features.target))])

    def decode(self, outputs: Outputs, features: Features, example: Example) -> Verdict:
        no, yes = self.probabilities(outputs, features)[0].tolist()
        return Verdict(yes > no, max(yes, no))

    def score(self, prediction: Verdict, answer: bool, texts: tuple[str, ...]) -> Score:
        is_right = prediction.is_so == answer
        confidences = ((prediction.confidence, is_right),)
        return Score(
            (float(is_right),), not is_right, prediction.confidence, str(answer), str(prediction.is_so), confidences
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        return {"accuracy": float(scores.mean())}


@pytest.fixture
def verdict() -> Iterator[None]:
    SHAPES["verdict"] = VerdictTask
    yield
    del SHAPES["verdict"]


def test_a_shape_of_others(verdict: None, tmp_path: Path) -> None:
    small = {"hidden_size": 32, "n_layers": 2, "n_heads": 4, "ffn_size": 64, "n_positions": 48, "init_range": 0.1}
    start = bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), **small).save(tmp_path / "start")
    rows = [
        {"text": f"de {'ba' if at % 2 else 'ku'} {'fi ' * (at % 4)}", "verdict": "yes" if at % 2 else "no"}
        for at in range(80)
    ]
    settings = {"optim.lr": 3e-3, "train.batch_size": 16}
    run = bertworks.finetune(rows, task="verdict", model=start, out=tmp_path / "run", steps=40, settings=settings)
    assert run.metrics == {"accuracy": 1.0} and "判断" in run.report.read_text()
    assert [one.is_so for one in run.predict(["de ba", "ku fi"])] == [True, False]
    assert run.evaluate(rows[:9]).results.metrics["accuracy"] == 1.0
    assert bertworks.Run(tmp_path / "run").resume().metrics == run.metrics
