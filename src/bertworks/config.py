"""Configs of models and trainings, frozen and validated.

`EncoderConfig` has the fields of every kind of encoder, `TransformerConfig` those in which the BERT family differs,
`HeadConfig` those of the heads; `ModelConfig` joins encoder and heads. `family` only tells whose file layout a folder
uses ("bertworks": only ours); no computation depends on it. `DataConfig`, `ObjectiveConfig`, `OptimConfig` and
`PretrainLoop` are for pre-training, `TaskConfig`, `WindowConfig` and `FinetuneLoop` for fine-tuning; `PretrainConfig`
and `FinetuneConfig` are whole runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from bertworks.errors import BadConfig, Remark, Unsupported, nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Family = Literal[
    "bert", "roberta", "xlm-roberta", "camembert", "albert", "electra", "xlnet", "distilbert", "gpt2", "bertworks"
]
Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]
Pairs = Literal["nsp", "sop", "none", "stream"]
MaskUnit = Literal["token", "word", "ngram", "span"]
CountedFrom = Literal[0, 1, "A"]
Size = Annotated[int, Field(ge=1, le=2**17)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
MAX_BUDGET = 1e9  # seconds of a training
Trigram = Annotated[str, Field(min_length=3, max_length=3)]
Count = Annotated[int, Field(ge=1)]


class FieldConflict(ValueError):
    """Fields that contradict each other, by their names relative to the config that raises it."""

    def __init__(self, cause: str, *fields: str) -> None:
        super().__init__(cause)
        self.fields = fields


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


ConfigT = TypeVar("ConfigT", bound=Frozen)


class EncoderConfig(Frozen):
    """The fields of every kind of encoder. A kind is a subclass and a row of `ENCODER_CONFIGS`; its module is a row of
    `ENCODERS` in `model/model.py`."""

    kind: str = Field(description="kind of encoder: a row of ENCODER_CONFIGS")
    vocab_size: int = Field(ge=1, le=2**24, description="number of different tokens")
    hidden_size: Size = Field(768, description="width of the hidden states")
    n_layers: int = Field(12, ge=1, le=1024, description="number of layers")
    n_positions: int | None = Field(512, ge=1, le=2**20, description="longest sequence; null: no limit")
    n_segments: int = Field(2, ge=0, le=1024, description="segment types (sentence A, B, ...); 0: no segment embedding")
    causal: bool = Field(False, description="left-to-right: a token sees only itself and what is left of it")
    norm_eps: float = Field(1e-12, gt=0, lt=1, description="epsilon of every layer norm")
    activation: Activation = Field("gelu", description="activation of the feed-forward part")
    dropout: Rate = Field(0.1, description="dropout on embeddings and on the output of each part")
    init_range: float = Field(0.02, gt=0, lt=10, description="standard deviation of new weights")

    @property
    def embedding_width(self) -> int:
        """Of the token table, which a language-model head shares."""
        return self.hidden_size

    @property
    def widest_layer(self) -> int:
        """The number of outputs of its largest linear layer, for measuring the speed of a machine."""
        return self.hidden_size

    @property
    def can_be_causal(self) -> bool:
        """Whether `causal` keeps its states from seeing what follows."""
        return False

    @property
    def has_two_streams(self) -> bool:
        """Whether it has a query stream beside the content stream, for permutation language modelling."""
        return False

    @property
    def positions_follow_padding(self) -> bool:
        """Whether `first_position` is the row after the padding id, as in RoBERTa."""
        return False

    @property
    def residual_init_range(self) -> float:
        """Of the last linear layer before a residual sum."""
        return self.init_range

    @property
    def unused_fields(self) -> tuple[str, ...]:
        """Fields that have no effect, given the others."""
        return ()

    def shares_weights_across(self, n_layers: int) -> bool:
        """Whether the first `n_layers` share weights with those above them."""
        return False


class TransformerConfig(EncoderConfig):
    """The fields in which the transformers of the BERT family differ."""

    kind: Literal["transformer"] = "transformer"
    n_heads: int = Field(12, ge=1, le=1024, description="attention heads per layer")
    ffn_size: Size = Field(3072, description="inner width of the feed-forward part")
    embedding_size: Size | None = Field(
        None, description="width of the embeddings before a projection to hidden_size; null: no projection"
    )
    positions: Literal["learned", "sinusoidal", "none"] = Field("learned", description="position embedding")
    first_position: int = Field(0, ge=0, le=1024, description="row of the position table that the first token uses")
    attention: Literal["dot", "additive", "relative"] = Field("dot", description="how queries are compared with keys")
    attention_bias: bool = Field(True, description="biases in the attention's linear layers")
    reach: tuple[Annotated[int, Field(ge=1)] | None, ...] = Field(
        (),
        description="local attention: how many tokens to either side each layer sees, null: all; []: all, everywhere",
    )
    norm_order: Literal["post", "pre"] = Field("post", description="layer norm after or before each part")
    norm_bias: bool = Field(True, description="the encoder's layer norms have a bias")
    embedding_norm: bool = Field(True, description="layer norm on the sum of the embeddings")
    ffn: Literal["plain", "gated"] = Field("plain", description="feed-forward part; gated: activation(gate(x)) * up(x)")
    sharing: Literal["none", "all", "attention", "ffn"] = Field(
        "none", description="which parts the layers of a group share"
    )
    n_groups: int = Field(1, ge=1, le=1024, description="groups of consecutive layers that share parts")
    layers_per_group: int = Field(
        1, ge=1, le=1024, description="different layers inside a group, run one after the other"
    )
    attention_dropout: Rate = Field(0.1, description="dropout on attention probabilities")
    ffn_dropout: Rate = Field(0.0, description="dropout inside the feed-forward part")

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.hidden_size % self.n_heads:
            cause = f"hidden_size {self.hidden_size} is not divisible by n_heads {self.n_heads}"
            raise FieldConflict(cause, "hidden_size", "n_heads")
        if self.positions != "none" and self.n_positions is None:
            cause = f"n_positions is needed with positions={self.positions!r}"
            raise FieldConflict(cause, "n_positions", "positions")
        if self.attention == "relative" and self.positions != "none":
            cause = "attention='relative' carries the positions itself: use positions='none'"
            raise FieldConflict(cause, "attention", "positions")
        if self.positions == "sinusoidal" and self.embedding_width % 2:
            width = "hidden_size" if self.embedding_size is None else "embedding_size"
            cause = f"sinusoids come in pairs: a width of {self.embedding_width} is odd"
            raise FieldConflict(cause, "positions", width)
        if self.attention == "relative" and self.hidden_size % 2:
            cause = f"sinusoids come in pairs: hidden_size {self.hidden_size} is odd"
            raise FieldConflict(cause, "attention", "hidden_size")
        if self.sharing != "none" and self.n_layers % self.layers_per_group:
            cause = f"n_layers {self.n_layers} is not a multiple of layers_per_group {self.layers_per_group}"
            raise FieldConflict(cause, "n_layers", "layers_per_group")
        if self.sharing != "none" and self.n_groups > self.n_layers // self.layers_per_group:
            cause = f"n_groups {self.n_groups} is more than n_layers {self.n_layers} can fill"
            raise FieldConflict(cause, "n_groups", "n_layers")
        if self.reach and len(self.reach) != self.n_layers:
            cause = f"reach has {len(self.reach)} entries, n_layers is {self.n_layers}"
            raise FieldConflict(cause, "reach", "n_layers")
        return self

    @property
    def embedding_width(self) -> int:
        return self.embedding_size or self.hidden_size

    @property
    def widest_layer(self) -> int:
        return self.ffn_size

    @property
    def can_be_causal(self) -> bool:
        return True

    @property
    def has_two_streams(self) -> bool:
        return self.attention == "relative"

    @property
    def residual_init_range(self) -> float:
        """As in GPT-2 (Radford et al. 2019, section 2.3)."""
        return self.init_range / math.sqrt(2 * self.n_layers) if self.norm_order == "pre" else self.init_range

    @property
    def unused_fields(self) -> tuple[str, ...]:
        return ("n_groups", "layers_per_group") if self.sharing == "none" else ()

    def order(self, part: Literal["attention", "ffn"]) -> tuple[int, ...]:
        """For each layer, which of the unique parts it uses: (0, 0, 0, ...) where all layers share one."""
        if self.sharing not in ("all", part):
            return tuple(range(self.n_layers))
        n_passes = self.n_layers // self.layers_per_group  # through the layers of a group
        groups = [int(index / (n_passes / self.n_groups)) for index in range(n_passes)]
        return tuple(
            group * self.layers_per_group + layer for group in groups for layer in range(self.layers_per_group)
        )

    def shares_weights_across(self, n_layers: int) -> bool:
        orders = self.order("attention"), self.order("ffn")
        return any(set(order[:n_layers]) & set(order[n_layers:]) for order in orders)

    @property
    def positions_follow_padding(self) -> bool:
        return self.first_position > 0


ENCODER_CONFIGS: dict[str, type[EncoderConfig]] = {"transformer": TransformerConfig}


class HeadConfig(Frozen):
    """How heads read the states. One summary vector serves every head for whole sequences."""

    summary: Literal["first", "last"] = Field("first", description="token whose state summarises the sequence")
    summary_activation: Activation | None = Field(
        "tanh", description="activation of the summary layer (pooler); null: no such layer"
    )
    pooler: bool = Field(True, description="a model without heads has a summary layer too (BERT's pooler)")
    class_bias: bool = Field(True, description="bias in the sequence head")
    lm_transform: bool = Field(True, description="dense layer, activation and norm before the tied output embedding")
    lm_activation: Activation = Field("gelu", description="activation of that dense layer")
    lm_bias: bool = Field(True, description="a bias per vocabulary entry")
    head_dropout: Rate = Field(0.1, description="dropout before the classification layer")
    labels: tuple[str, ...] = Field(("LABEL_0", "LABEL_1"), min_length=1, description="names of the classes")


class ModelConfig(Frozen):
    """An encoder, its heads, and whose folder layout it is saved in."""

    family: Family
    encoder: SerializeAsAny[EncoderConfig]
    heads: HeadConfig = HeadConfig()

    @field_validator("encoder", mode="before")
    @classmethod
    def _check_encoder(cls, values: object) -> object:
        """By its kind; configs of before version 0.2 have none and are transformers."""
        if not isinstance(values, Mapping):
            return values
        kind = values.get("kind", "transformer")
        if not isinstance(kind, str) or kind not in ENCODER_CONFIGS:
            cause = f"no such kind of encoder: {kind!r}; {nearest(str(kind), ENCODER_CONFIGS)}"
            raise FieldConflict(cause, "kind")
        return ENCODER_CONFIGS[kind].model_validate(values)

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.family != "bertworks" and not isinstance(self.encoder, TransformerConfig):
            cause = f"family {self.family} is a transformer's; an encoder of kind {self.encoder.kind} has 'bertworks'"
            raise FieldConflict(cause, "family", "encoder.kind")
        if not self.heads.lm_transform and self.encoder.embedding_width != self.encoder.hidden_size:
            cause = "lm_transform=False needs embeddings as wide as the states"
            raise FieldConflict(cause, "lm_transform", "embedding_size")
        return self

    @property
    def transformer(self) -> TransformerConfig:
        """The config of the encoder, which must be a transformer."""
        if not isinstance(self.encoder, TransformerConfig):
            raise Unsupported(f"for transformers only; this encoder is of kind {self.encoder.kind}", code="other-kind")
        return self.encoder

    def override(self, **changes: object) -> ModelConfig:
        """The same model with other values; fields of encoder and heads are named without a prefix."""
        parts: dict[str, dict[str, object]] = {"encoder": self.encoder.model_dump(), "heads": self.heads.model_dump()}
        for name, value in changes.items():
            owner = next((part for part in parts if name in parts[part]), None)
            if owner is None:
                remedy = nearest(name, [*parts["encoder"], *parts["heads"]])
                raise BadConfig(f"no such config field: {name!r}", remedy=remedy, code="unknown-key", fields=[name])
            parts[owner][name] = value
        config = check_config({"family": self.family, **parts})
        if unused := [name for name in changes if name in config.encoder.unused_fields]:
            cause = f"no effect in this model: {', '.join(unused)}"
            raise BadConfig(cause, remedy="leave it out, or sharing=all", code="no-effect", fields=unused)
        return config


class DataConfig(Frozen):
    """How shards become training examples."""

    pairs: Pairs = Field(
        "none",
        description="sentence pairs: nsp (next or random), sop (in order or swapped), none (full sentences), stream",
    )
    max_length: int = Field(128, ge=8, le=2**20, description="maximum sequence length, special tokens included")
    cross_documents: bool = Field(True, description="a sequence may continue into the next document, after a separator")
    short_seq_prob: float = Field(
        0.1, ge=0, le=1, description="share of sequences made shorter than max_length on purpose"
    )
    masking: MaskUnit = Field(
        "token", description="masking unit: token, word, ngram (1 to 3 words) or span (up to 10 words)"
    )
    mask_rate: float = Field(0.15, ge=0, le=1, description="share of tokens to be predicted")
    mask_share: float = Field(0.8, ge=0, le=1, description="share of the targets replaced by the mask token")
    random_share: float = Field(
        0.1, ge=0, le=1, description="share of the targets replaced by a random token; the rest is unchanged"
    )
    mask_epochs: int = Field(
        0,
        ge=0,
        description="0: dynamic masking; 1: static, the same masks in every epoch; k: masks repeat after k epochs",
    )
    held_out: float = Field(0.01, ge=0, le=0.5, description="share of the text held out for evaluation")

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.mask_share + self.random_share > 1 + 1e-9:
            cause = f"mask_share {self.mask_share} and random_share {self.random_share} are more than 1 together"
            raise FieldConflict(cause, "mask_share", "random_share")
        return self


class ObjectiveConfig(Frozen):
    """What the model learns to predict."""

    name: str = Field(
        "mlm", description="mlm: masked LM; rtd: replaced token detection; plm: permutation LM; ltr: left-to-right LM"
    )
    replaced_weight: float = Field(
        50.0, ge=0, le=1e6, description="rtd: weight of the discriminator's loss; the generator's has 1"
    )
    generator_size: float = Field(
        0.25, gt=0, le=1, description="rtd: width of the generator, relative to the discriminator's"
    )


class OptimConfig(Frozen):
    """AdamW and its learning rate schedule."""

    lr: float = Field(1e-3, gt=0, lt=10, allow_inf_nan=False, description="peak learning rate")
    schedule: Literal["linear", "cosine", "constant"] = Field(
        "linear", description="decay of the learning rate after the warm-up; constant: decays in the cool-down only"
    )
    warmup: float = Field(0.06, ge=0, le=1, description="share of the run for linear warm-up")
    cooldown: float = Field(
        0.2, ge=0, le=1, description="schedule constant: share of the run for linear decay, at the end"
    )
    beta1: Rate = Field(0.9, description="Adam beta1")
    beta2: Rate = Field(0.98, description="Adam beta2")
    eps: float = Field(1e-6, gt=0, lt=1, description="Adam epsilon")
    weight_decay: float = Field(0.01, ge=0, lt=10, description="decoupled weight decay, not on norms and biases")
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="layer-wise learning rate decay: of each layer, relative to the one above"
    )
    max_grad_norm: float = Field(1.0, gt=0, description="gradient clipping: maximum norm")


class LoopConfig(Frozen):
    """The training loop. Exactly one of steps, epochs and budget sets its length."""

    seed: int = Field(0, ge=0, lt=2**63, description="random seed of new weights, order of the data, masks and dropout")
    steps: int | None = Field(None, ge=1, le=2**40, description="number of optimizer steps")
    epochs: int | None = Field(None, ge=1, le=2**30, description="number of epochs")
    budget: float | None = Field(
        None,
        gt=0,
        le=MAX_BUDGET,
        description="time budget in seconds; steps are planned so that the schedule ends with it",
    )
    micro_tokens: int | None = Field(
        None, ge=8, description="tokens of a micro-batch (gradient accumulation), about; null: the whole batch at once"
    )
    checkpoint_every: int = Field(100, ge=1, description="steps between checkpoints")
    keep_checkpoints: int = Field(2, ge=1, description="number of newest checkpoints to keep, beside the best one")
    evaluations: int = Field(10, ge=0, description="number of evaluations, spread over the run; the last is at the end")
    log_every: int = Field(
        10, ge=1, description="steps between training lines in metrics.jsonl; more often where steps are slow"
    )
    bad_steps: int = Field(
        10, ge=1, description="consecutive steps with a loss or gradient that is not finite, after which the run stops"
    )
    threads: int | None = Field(None, ge=1, le=1024, description="threads per process; null: all its cores")
    device: str = Field("auto", description="cpu, cuda, cuda:1, ...; auto: a GPU if there is one")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="autocast precision of matrix products; weights stay float32"
    )
    recompute: bool = Field(
        False, description="gradient checkpointing: layers are recomputed in the backward pass to save memory"
    )

    @model_validator(mode="after")
    def _check_one_limit(self) -> Self:
        limits = [name for name in ("steps", "epochs", "budget") if getattr(self, name) is not None]
        if len(limits) != 1:
            cause = "exactly one of steps, epochs and budget is needed"
            raise FieldConflict(cause, *(limits or ("steps", "epochs", "budget")))
        return self


class PretrainLoop(LoopConfig):
    """The loop of a pre-training."""

    init: Literal["local", "random"] = Field(
        "local", description="attention of a new model: local (heads attend to neighbours) or random, as in the papers"
    )
    batch_tokens: int = Field(4096, ge=8, le=2**26, description="tokens of a batch, over all processes")
    dropout: Rate | None = Field(
        0.0, description="dropout while pre-training; null: the model's own, for many epochs over little text"
    )
    evaluate_tokens: int = Field(32768, ge=1, description="held-out tokens that an evaluation reads")
    workers: int = Field(
        0, ge=0, le=256, description="data loader processes; 0: in the training process; the result is the same"
    )


class PretrainConfig(Frozen):
    """A whole pre-training run."""

    model: ModelConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    data: DataConfig = DataConfig()
    optim: OptimConfig = OptimConfig()
    train: PretrainLoop

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        n_positions = self.model.encoder.n_positions
        if n_positions is not None and self.data.max_length > n_positions:
            cause = f"data.max_length {self.data.max_length} is more than model.n_positions {n_positions}"
            raise FieldConflict(cause, "data.max_length", "model.n_positions")
        if self.train.micro_tokens is not None and self.train.micro_tokens < self.data.max_length:
            cause = f"train.micro_tokens {self.train.micro_tokens} is less than data.max_length {self.data.max_length}"
            raise FieldConflict(cause, "train.micro_tokens", "data.max_length")
        return self


class TaskConfig(Frozen):
    """What a fine-tuned model predicts."""

    shape: str = Field(description="what a prediction looks like: a row of tasks/shapes.py")
    labels: tuple[str, ...] = Field((), description="names of the classes or tags")
    metric: str = Field("accuracy", description="metric by which models are compared on dev")
    pairs: bool | None = Field(
        False, description="classify, regress, multilabel: inputs are pairs of texts; null: pairs or single texts"
    )
    no_answer: bool = Field(False, description="span: questions may be unanswerable (SQuAD 2.0)")
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="classify: loss weights of the classes; balanced: inverse to their frequency"
    )
    label_smoothing: Rate = Field(0.0, description="classify, tag: label smoothing")
    counted_from: CountedFrom = Field(0, description="choice: label of the first choice: 0, 1 or A")
    transitions: tuple[tuple[str, str, bool], ...] = Field(
        (), description="tag: allowed transitions: two prefixes such as B and I, and whether their types agree; []: all"
    )
    shift: float = Field(
        0.0, allow_inf_nan=False, description="regress: mean of the targets, which the head learns as 0"
    )
    scale: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="regress: standard deviation of the targets, which the head learns as 1",
    )


class WindowConfig(Frozen):
    """How texts become windows."""

    max_length: int = Field(256, ge=8, le=2**20, description="maximum length of a window, special tokens included")
    overlap: int = Field(
        64,
        ge=0,
        description="minimum overlap of neighbouring windows, in tokens (span: at least 64); at most half a window",
    )
    on_long: Literal["window", "truncate", "error"] = Field(
        "window", description="texts longer than max_length: window (read all), truncate, or error"
    )
    train_windows: int | None = Field(
        None,
        ge=1,
        description="classify, regress, multilabel: windows of a long text that an epoch of training reads, drawn anew "
        "for each; null: all. Evaluation and prediction read all",
    )


class FinetuneLoop(LoopConfig):
    """The loop of a fine-tuning."""

    batch_size: int = Field(32, ge=1, le=2**16, description="examples of a batch, over all processes; 8 for choice")
    micro_tokens: int | None = Field(
        4096,
        ge=8,
        description="tokens of a micro-batch (gradient accumulation), about, of whole examples; null: the whole batch",
    )
    evaluate_tokens: int = Field(
        65_536,
        ge=1,
        description="with a time budget: tokens of dev that an evaluation on the way reads; a short budget has fewer",
    )
    patience: int | None = Field(
        None, ge=1, description="early stopping: evaluations without improvement before the run stops; null: none"
    )
    freeze: int = Field(
        0, ge=0, description="number of lower layers to freeze, with the embeddings; 0: nothing is frozen"
    )
    reinit: int = Field(0, ge=0, description="number of upper layers to reinitialise")
    attention_dropout: Rate | None = Field(
        0.0, description="dropout on attention probabilities while fine-tuning; null: the model's own"
    )


class WordRule(Frozen):
    """How texts with spans are split: at all but letters and digits, and where this says so."""

    by_character: bool = Field(description="at every character, as in Chinese")
    digits_apart: bool = Field(description="between letters and digits, where spans of the training data begin or end")


class WordCounts(Frozen):
    """What a splitter of texts into words has learned; see `text/word_splitter.py`."""

    trigrams: dict[Trigram, Count] = Field(
        min_length=1, description="three successive kinds of characters -> how often words have them"
    )
    words: dict[str, Count] = Field(description="words that the trigrams alone may split -> occurrences")
    from_texts: bool = Field(False, description="the training data had texts with spans, not words with tags")


class TaskArtifact(Frozen):
    """What a fine-tuned model needs beside its weights."""

    task: TaskConfig
    data: WindowConfig = WindowConfig()
    dataset: str | None = Field(None, description="data set whose official files it was trained on and can read")
    columns: tuple[str, ...] = Field((), description="text columns of the table it was trained on")
    words: WordCounts | WordRule | None = Field(
        None, description="tag: how texts are split into words, as in training; null: by the rule of older models"
    )
    temperature: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="temperature of calibration: logits are divided by it"
    )
    temperature_in_head: bool = Field(False, description="the weights of the head are divided by it already")
    no_answer: float = Field(
        0.0,
        allow_inf_nan=False,
        description="span: threshold on the score of 'no answer' minus that of the best answer",
    )


class FinetuneConfig(Frozen):
    """A whole fine-tuning run."""

    model: ModelConfig
    task: TaskConfig
    data: WindowConfig = WindowConfig()
    optim: OptimConfig = OptimConfig()
    train: FinetuneLoop

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        n_positions = self.model.encoder.n_positions
        n_layers = self.model.encoder.n_layers
        if n_positions is not None and self.data.max_length > n_positions:
            cause = f"data.max_length {self.data.max_length} is more than the model's {n_positions} positions"
            raise FieldConflict(cause, "data.max_length", "model.n_positions")
        if self.train.freeze + self.train.reinit > n_layers:
            counts = f"train.freeze {self.train.freeze} and train.reinit {self.train.reinit}"
            raise FieldConflict(f"{counts} are more than {n_layers} layers", "train.freeze", "train.reinit")
        for name, boundary in (("freeze", self.train.freeze), ("reinit", n_layers - self.train.reinit)):
            if self.model.encoder.shares_weights_across(boundary):
                cause = f"train.{name}: layers below and above layer {boundary} of this model share their weights"
                raise FieldConflict(cause, f"train.{name}", "model.sharing")
        return self


OPTIONS = {  # keys that have an option of their own
    "train.steps": "--steps",
    "train.epochs": "--epochs",
    "train.budget": "--budget",
    "train.device": "--device",
    "train.threads": "--threads",
    "data.masking": "--masking",
    "data.on_long": "--on-long",
}
REQUIREMENTS = {  # what pydantic calls an error -> what a value must be
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list"),
    "string_type": "must be a text",
    "extra_forbidden": "there is no such field",
    "missing": "is missing",
}
RENAMED = {  # keys before version 0.2 -> today's
    "train.keep": "train.keep_checkpoints",
    "train.start": "train.init",
    "optim.clip": "optim.max_grad_norm",
    "data.short_rate": "data.short_seq_prob",
    "task.measure": "task.metric",
    "task.smoothing": "task.label_smoothing",
}


def renamed_keys(keys: Iterable[str]) -> list[Remark]:
    """A remark for each key that has a new name."""
    return [Remark("old-key", f"{key} is called {RENAMED[key]} since version 0.2") for key in keys if key in RENAMED]


def with_new_keys(values: object) -> object:
    """A config, or a section of one, with today's keys; what is not an object is left to be refused."""
    if not isinstance(values, Mapping):
        return values
    renamed = {name: dict(section) if isinstance(section, Mapping) else section for name, section in values.items()}
    for old_key, new_key in RENAMED.items():
        section_name, _, old_name = old_key.partition(".")
        section = renamed.get(section_name)
        if isinstance(section, dict) and old_name in section:
            section.setdefault(new_key.partition(".")[2], section.pop(old_name))
    return renamed


def check_config(values: Mapping[str, object], place: str | None = None) -> ModelConfig:
    """A `ModelConfig`, or a `BadConfig` that names every invalid field."""
    return _check(ModelConfig, values, place)


def check_data(values: Mapping[str, object], place: str | None = None) -> DataConfig:
    return _check(DataConfig, values, place)


def check_finetune(values: Mapping[str, object], place: str | None = None) -> FinetuneConfig:
    return _check(FinetuneConfig, values, place)


def check_artifact(values: Mapping[str, object], place: str | None = None) -> TaskArtifact:
    return _check(TaskArtifact, values, place)


def check_pretrain(values: Mapping[str, object], place: str | None = None) -> PretrainConfig:
    return _check(PretrainConfig, values, place)


def _check(config_type: type[ConfigT], values: Mapping[str, object], place: str | None) -> ConfigT:
    try:
        return config_type.model_validate(with_new_keys(values))
    except ValidationError as error:
        field_errors = error.errors()
        cause = "; ".join(map(_message, field_errors))
        fields = [name for field_error in field_errors for name in _fields(field_error) if name]
        named = ", ".join(f"{name} ({OPTIONS[name]})" if name in OPTIONS else name for name in fields)
        remedy = f"correct {named}" if named and place is None else "correct these config fields"
        raise BadConfig(cause, place=place, remedy=remedy, fields=fields) from None


def _message(detail: ErrorDetails) -> str:
    value = detail["input"]
    conflict = detail.get("ctx", {}).get("error")
    if isinstance(conflict, FieldConflict):
        values = value if isinstance(value, Mapping) else {}
        names = zip(conflict.fields, _fields(detail), strict=True)
        assignments = [f"{field} = {values[name]!r}" if name in values else field for name, field in names]
        return f"{', '.join(assignments)}: {conflict}"
    field = _field(detail["loc"])
    message = REQUIREMENTS.get(detail["type"], detail["msg"].removeprefix("Value error, "))
    message = message.format_map(detail.get("ctx", {})) if detail["type"] in REQUIREMENTS else message
    return f"{field} = {value!r}: {message}" if field else message


def _fields(detail: ErrorDetails) -> list[str]:
    conflict = detail.get("ctx", {}).get("error")
    if isinstance(conflict, FieldConflict):
        return [_field((*detail["loc"], name)) for name in conflict.fields]
    return [_field(detail["loc"])]


def _field(location: Iterable[str | int]) -> str:
    """As `--set` names it."""
    return ".".join(str(part) for part in location if part not in ("encoder", "heads"))
