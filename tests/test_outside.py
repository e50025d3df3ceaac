"""What others add from outside of the package: a shape of task, in one file and one row, is trained, evaluated,
reported and asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import Field
from safetensors.torch import load_file
from torch import Tensor, nn

import bertworks
from bertworks.config import ENCODER_CONFIGS, EncoderConfig, ModelConfig, TaskConfig
from bertworks.data.tables import Row
from bertworks.datasets.columns import Columns, is_missing
from bertworks.datasets.example import Example, InvalidRow
from bertworks.datasets.schema import Schema
from bertworks.errors import BadConfig, Unsupported
from bertworks.measure.metrics import ACCURACY, Floats, MetricValues
from bertworks.model.count import count_parameters
from bertworks.model.encoder import Encoder, LayerGroup, States
from bertworks.model.layout import Tokens
from bertworks.model.loss import Loss, Term, accuracy
from bertworks.model.model import ENCODERS, Model
from bertworks.model.partial_embedding import PartialEmbedding
from bertworks.model.pooling import Pooling
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch
from bertworks.tasks.sequence import SequenceTask
from bertworks.tasks.shapes import SHAPES
from bertworks.tasks.task import Outputs, Prediction, Score
from bertworks.train.events import Evaluated
from refusals import refused
from texts import tiny_tokenizer


@dataclass(frozen=True)
class Verdict(Prediction):
    is_yes: bool
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
        is_right = prediction.is_yes == answer
        confidences = ((prediction.confidence, is_right),)
        return Score(
            (float(is_right),), not is_right, prediction.confidence, str(answer), str(prediction.is_yes), confidences
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        return {"accuracy": float(scores.mean())}


class BagConfig(EncoderConfig):
    kind: Literal["bag"] = "bag"
    decay: float = Field(0.5, ge=0, le=1, description="how much of the mean of its text a token's state is")


class Bag(Encoder):
    """A bag of words: each layer mixes the mean of the sequence into every token."""

    config: BagConfig

    def __init__(self, config: BagConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens: nn.Embedding | PartialEmbedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.mixers = nn.ModuleList(nn.Linear(config.hidden_size, config.hidden_size) for _ in range(config.n_layers))

    @property
    def token_embedding(self) -> nn.Embedding | PartialEmbedding:
        return self.tokens

    def groups(self) -> list[LayerGroup]:
        return [[self.tokens], *([mixer] for mixer in self.mixers), []]

    def forward(self, tokens: Tokens, keep_layers: bool = False) -> States:
        lengths = [length for rows, length, _ in tokens.layout.shapes for _ in range(rows)]
        states = [self.tokens(tokens.ids)]
        for mixer in self.mixers:
            means = [part.mean(0).expand_as(part) for part in torch.split(states[-1], lengths)]
            mixed = (1 - self.config.decay) * states[-1] + self.config.decay * torch.cat(means)
            states.append(torch.tanh(mixer(mixed)))
        return States(states[-1], tuple(states) if keep_layers else ())


@pytest.fixture
def bag() -> Iterator[None]:
    ENCODER_CONFIGS["bag"] = BagConfig
    ENCODERS["bag"] = Bag
    yield
    del ENCODER_CONFIGS["bag"], ENCODERS["bag"]


def new_bag(**changes: object) -> bertworks.Workbench:
    tokenizer = tiny_tokenizer()
    sizes = {"vocab_size": tokenizer.vocab_size, "hidden_size": 32, "n_layers": 2, "n_positions": 48, "init_range": 0.1}
    config = ModelConfig(family="bertworks", encoder=BagConfig(**{**sizes, **changes}))  # type: ignore[arg-type]
    return bertworks.Workbench(Model.fresh(config, ["lm"]).eval(), tokenizer, Pooling(), {}, ["new bag"], [])


def test_finetuning_a_custom_encoder(bag: None, tmp_path: Path) -> None:
    base_model = new_bag(decay=0.25).save(tmp_path / "start")
    loaded = bertworks.load(base_model)
    assert isinstance(loaded.config.encoder, BagConfig) and loaded.config.encoder.decay == 0.25
    assert loaded.encode(["de ba", "ku fi de"]).shape == (2, 32)
    assert len(loaded.states("de ba")) == 4
    rows = [{"text": f"de {'ba' if i % 2 else 'ku'} {'fi ' * (i % 4)}", "label": "ab"[i % 2]} for i in range(80)]
    settings = {"optim.lr": 1e-2, "train.batch_size": 16, "train.freeze": 0, "optim.layer_decay": 0.9}
    with refused("no-effect") as error:
        bertworks.finetune(rows, model=base_model, out=tmp_path / "run", settings={"train.attention_dropout": 0.1})
    assert error.value.fields == ["train.attention_dropout"]
    run = bertworks.finetune(rows, model=base_model, out=tmp_path / "run", steps=60, settings=settings)
    assert run.metrics["accuracy"] == 1.0
    assert [prediction.label for prediction in run.predict(["de ba", "ku fi"])] == ["b", "a"]
    assert bertworks.Run(tmp_path / "run").resume().metrics == run.metrics
    frozen = bertworks.finetune(
        rows, model=base_model, out=tmp_path / "frozen", steps=2, settings={**settings, "train.freeze": 1}
    )
    before = base_model / "model.safetensors"
    after = frozen.folder / "model" / "model.safetensors"
    weights = [load_file(path) for path in (before, after)]
    unchanged = {
        name for name in weights[0].keys() & weights[1].keys() if torch.equal(weights[0][name], weights[1][name])
    }
    assert unchanged == {"encoder.tokens.weight", "encoder.mixers.0.weight", "encoder.mixers.0.bias"}


def test_pretraining_a_custom_encoder(bag: None, tmp_path: Path) -> None:
    base_model = new_bag().save(tmp_path / "start")
    (tmp_path / "text.txt").write_text("\n\n".join(f"de ba ku fi {'de ' * (i % 7)}. ku ba." for i in range(400)))
    bertworks.prepare(tmp_path / "text.txt", tokenizer=base_model, out=tmp_path / "shards", workers=1)
    run = bertworks.pretrain(
        tmp_path / "shards",
        model=base_model,
        steps=30,
        out=tmp_path / "run",
        settings={"optim.lr": 1e-2, "train.batch_tokens": 256},
    )
    losses = [event.metrics["loss"] for event in run.events if isinstance(event, Evaluated)]
    assert losses[-1] < losses[0]
    assert isinstance(run.model.config.encoder, BagConfig)


@pytest.mark.parametrize("key", ["train.recompute"])
def test_unsupported_settings_of_a_custom_encoder_are_refused(key: str, bag: None, tmp_path: Path) -> None:
    base_model = new_bag().save(tmp_path / "start")
    rows = [{"text": f"de {'ba' if i % 2 else 'ku'}", "label": "ab"[i % 2]} for i in range(40)]
    with pytest.raises(Unsupported) as error:
        bertworks.finetune(rows, model=base_model, out=tmp_path / "run", steps=1, settings={key: True})
    assert error.value.code == "no-effect"


def test_parameter_table_and_attention_of_a_custom_encoder(bag: None) -> None:
    bench = new_bag()
    table = count_parameters(bench.model)
    assert table.rows["token embeddings"] == bench.config.encoder.vocab_size * 32
    assert table.total == sum(parameter.numel() for parameter in bench.model.parameters())
    with refused("no-attention"):
        bench.attention("de ba")


def test_left_to_right_needs_a_causal_encoder(bag: None, tmp_path: Path) -> None:
    """Bag mixes the mean of the text into every token, so it would see the token to predict."""
    base_model = new_bag(causal=True).save(tmp_path / "start")
    (tmp_path / "text.txt").write_text("\n\n".join(f"de ba ku fi {'de ' * (i % 7)}. ku ba." for i in range(50)))
    bertworks.prepare(tmp_path / "text.txt", tokenizer=base_model, out=tmp_path / "shards", workers=1)
    with refused("bad-config"):
        bertworks.pretrain(tmp_path / "shards", model=base_model, objective="ltr", steps=1, out=tmp_path / "run")


def test_encoders_with_buffers_are_refused(bag: None) -> None:
    class Buffered(Bag):
        def __init__(self, config: BagConfig) -> None:
            super().__init__(config)
            self.register_buffer("steps", torch.zeros(1))

    ENCODERS["bag"] = Buffered
    with refused("has-buffers"):
        new_bag()


def test_an_unknown_encoder_kind_is_refused(bag: None, tmp_path: Path) -> None:
    base_model = new_bag().save(tmp_path / "start")
    del ENCODER_CONFIGS["bag"]
    with pytest.raises(BadConfig, match="bag"):
        bertworks.load(base_model)
    ENCODER_CONFIGS["bag"] = BagConfig


@pytest.fixture
def verdict() -> Iterator[None]:
    SHAPES["verdict"] = VerdictTask
    yield
    del SHAPES["verdict"]


def test_a_custom_task_shape(verdict: None, tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "n_layers": 2, "n_heads": 4, "ffn_size": 64, "n_positions": 48, "init_range": 0.1}
    base_model = bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), **sizes).save(tmp_path / "start")
    rows = [
        {"text": f"de {'ba' if i % 2 else 'ku'} {'fi ' * (i % 4)}", "verdict": "yes" if i % 2 else "no"}
        for i in range(80)
    ]
    settings = {"optim.lr": 3e-3, "train.batch_size": 16}
    run = bertworks.finetune(rows, task="verdict", model=base_model, out=tmp_path / "run", steps=40, settings=settings)
    assert run.metrics == {"accuracy": 1.0} and "判断" in run.report.read_text()
    assert [prediction.is_yes for prediction in run.predict(["de ba", "ku fi"])] == [True, False]
    assert run.evaluate(rows[:9]).results.metrics["accuracy"] == 1.0
    assert bertworks.Run(tmp_path / "run").resume().metrics == run.metrics
