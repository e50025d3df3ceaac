"""Our config and Hugging Face's `config.json`, in both directions. Their words appear in this file and in `hf_names.py` only.

A family is a row: how its fields are called there, and what is true of every model of that family. Reading fills our config
from both; writing is the same table run backwards. A config can be expressed there if and only if writing it and reading it
again gives the same config, so nothing is ever saved that would open elsewhere with other numbers. Rates that matter in
training only (XLNet has one dropout, we have three) are no reason to refuse: what is left unsaid goes under a key of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bertworks.config import HeadConfig, ModelConfig, check_config
from bertworks.errors import BadConfig, Unsupported

OURS = "bertworks"
Values = dict[str, Any]
RATES = {"dropout", "attention_dropout", "ffn_dropout", "head_dropout", "init_range"}

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu", "tanh": "tanh"}

BERT_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "n_positions": "max_position_embeddings",
    "n_segments": "type_vocab_size",
    "norm_eps": "layer_norm_eps",
    "init_range": "initializer_range",
    "head_dropout": "classifier_dropout",
}
BERT_DEFAULTS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
    "classifier_dropout": None,
    "is_decoder": False,
}


def _nothing(values: Values, hf: Mapping[str, Any]) -> None:
    pass


def _lm_as_ffn(values: Values, hf: Mapping[str, Any]) -> None:
    values["lm_activation"] = values["activation"]


def _decoder(values: Values, hf: Mapping[str, Any]) -> None:
    values["causal"] = bool(hf["is_decoder"])


def _bert(values: Values, hf: Mapping[str, Any]) -> None:
    _decoder(values, hf)
    _lm_as_ffn(values, hf)


def _roberta(values: Values, hf: Mapping[str, Any]) -> None:
    _decoder(values, hf)
    values["first_position"] = hf["pad_token_id"] + 1
    values["n_positions"] -= values["first_position"]


def _albert(values: Values, hf: Mapping[str, Any]) -> None:
    _lm_as_ffn(values, hf)
    values["n_layers"] *= hf["inner_group_num"]


def _electra(values: Values, hf: Mapping[str, Any]) -> None:
    _decoder(values, hf)
    if values["embedding_size"] == values["hidden_size"]:
        values["embedding_size"] = None


def _gpt2(values: Values, hf: Mapping[str, Any]) -> None:
    values["ffn_size"] = values["ffn_size"] or 4 * values["hidden_size"]


def _xlnet(values: Values, hf: Mapping[str, Any]) -> None:
    values["causal"] = hf["attn_type"] == "uni"
    values["attention_dropout"] = values["ffn_dropout"] = values["dropout"]


@dataclass(frozen=True)
class HFFamily:
    """How a family is written down there."""

    fields: Mapping[str, str]  # ours -> theirs
    defaults: Mapping[str, Any]  # theirs, where config.json is silent
    axes: Mapping[str, Any]  # ours, true of every model of the family
    read: Callable[[Values, Mapping[str, Any]], None] = _nothing  # what is not one field for one field
    write: Callable[[ModelConfig], Values] = field(default=lambda config: {})
    only: Mapping[str, Any] = field(default_factory=dict)  # theirs: other values change the numbers and are not built here


def _write_decoder(config: ModelConfig) -> Values:
    return {"is_decoder": True} if config.encoder.causal else {}


def _write_roberta(config: ModelConfig) -> Values:
    c = config.encoder
    positions = (c.n_positions or 0) + c.first_position
    return {**_write_decoder(config), "max_position_embeddings": positions, "pad_token_id": c.first_position - 1}


def _write_albert(config: ModelConfig) -> Values:
    return {"num_hidden_layers": config.encoder.n_layers // config.encoder.layers_per_group}


def _write_electra(config: ModelConfig) -> Values:
    return {**_write_decoder(config), "embedding_size": config.encoder.embedding_width}


def _write_xlnet(config: ModelConfig) -> Values:
    return {"attn_type": "uni"} if config.encoder.causal else {}


NO_CROSS = {"add_cross_attention": False, "tie_word_embeddings": True, "position_embedding_type": "absolute"}

HF_FAMILIES: dict[str, HFFamily] = {
    "bert": HFFamily(
        fields=BERT_FIELDS,
        defaults=BERT_DEFAULTS,
        axes={},
        read=_bert,
        write=_write_decoder,
        only=NO_CROSS,
    ),
    "roberta": HFFamily(
        fields=BERT_FIELDS,
        defaults={**BERT_DEFAULTS, "vocab_size": 50265, "pad_token_id": 1},
        axes={},
        read=_roberta,
        write=_write_roberta,
        only=NO_CROSS,
    ),
    "albert": HFFamily(
        fields={
            **BERT_FIELDS,
            "embedding_size": "embedding_size",
            "n_groups": "num_hidden_groups",
            "layers_per_group": "inner_group_num",
            "head_dropout": "classifier_dropout_prob",
        },
        defaults={
            **BERT_DEFAULTS,
            "vocab_size": 30000,
            "embedding_size": 128,
            "hidden_size": 4096,
            "num_attention_heads": 64,
            "intermediate_size": 16384,
            "num_hidden_groups": 1,
            "inner_group_num": 1,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "classifier_dropout_prob": 0.1,
        },
        axes={"sharing": "all"},
        read=_albert,
        write=_write_albert,
        only=NO_CROSS,
    ),
    "electra": HFFamily(
        fields={**BERT_FIELDS, "embedding_size": "embedding_size"},
        defaults={
            **BERT_DEFAULTS,
            "embedding_size": 128,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
        axes={"pooler": False, "summary_activation": "gelu"},
        read=_electra,
        write=_write_electra,
        only={**NO_CROSS, "summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
    ),
    "distilbert": HFFamily(
        fields={
            "vocab_size": "vocab_size",
            "hidden_size": "dim",
            "n_layers": "n_layers",
            "n_heads": "n_heads",
            "ffn_size": "hidden_dim",
            "activation": "activation",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "n_positions": "max_position_embeddings",
            "init_range": "initializer_range",
            "head_dropout": "seq_classif_dropout",
        },
        defaults={
            "vocab_size": 30522,
            "dim": 768,
            "n_layers": 6,
            "n_heads": 12,
            "hidden_dim": 3072,
            "activation": "gelu",
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "max_position_embeddings": 512,
            "initializer_range": 0.02,
            "seq_classif_dropout": 0.2,
        },
        axes={"n_segments": 0, "pooler": False, "summary_activation": "relu"},
        read=_lm_as_ffn,
        only={"tie_word_embeddings": True},
    ),
    "xlnet": HFFamily(
        fields={
            "vocab_size": "vocab_size",
            "hidden_size": "d_model",
            "n_layers": "n_layer",
            "n_heads": "n_head",
            "ffn_size": "d_inner",
            "activation": "ff_activation",
            "dropout": "dropout",
            "norm_eps": "layer_norm_eps",
            "init_range": "initializer_range",
            "head_dropout": "summary_last_dropout",
        },
        defaults={
            "vocab_size": 32000,
            "d_model": 1024,
            "n_layer": 24,
            "n_head": 16,
            "d_inner": 4096,
            "ff_activation": "gelu",
            "dropout": 0.1,
            "layer_norm_eps": 1e-12,
            "initializer_range": 0.02,
            "summary_last_dropout": 0.1,
            "attn_type": "bi",
        },
        axes={
            "positions": "none",
            "n_positions": None,
            "n_segments": 0,
            "attention": "relative",
            "attention_bias": False,
            "embedding_norm": False,
            "summary": "last",
            "pooler": False,
            "lm_transform": False,
        },
        read=_xlnet,
        write=_write_xlnet,
        only={
            "tie_word_embeddings": True,
            "clamp_len": -1,
            "same_length": False,
            "bi_data": False,
            "summary_type": "last",
            "summary_use_proj": True,
            "summary_activation": "tanh",
        },
    ),
    "gpt2": HFFamily(
        fields={
            "vocab_size": "vocab_size",
            "hidden_size": "n_embd",
            "n_layers": "n_layer",
            "n_heads": "n_head",
            "ffn_size": "n_inner",
            "activation": "activation_function",
            "dropout": "resid_pdrop",
            "attention_dropout": "attn_pdrop",
            "n_positions": "n_positions",
            "norm_eps": "layer_norm_epsilon",
            "init_range": "initializer_range",
            "head_dropout": "classifier_dropout",
        },
        defaults={
            "classifier_dropout": None,
            "vocab_size": 50257,
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_inner": None,
            "activation_function": "gelu_new",
            "resid_pdrop": 0.1,
            "attn_pdrop": 0.1,
            "n_positions": 1024,
            "layer_norm_epsilon": 1e-5,
            "initializer_range": 0.02,
        },
        axes={
            "n_segments": 0,
            "causal": True,
            "norm_order": "pre",
            "embedding_norm": False,
            "summary": "last",
            "summary_activation": None,
            "pooler": False,
            "class_bias": False,
            "lm_transform": False,
            "lm_bias": False,
        },
        read=_gpt2,
        write=lambda config: {"embd_pdrop": config.encoder.dropout},
        only={
            "tie_word_embeddings": True,
            "add_cross_attention": False,
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
        },
    ),
}


def from_hf(hf: Mapping[str, Any], place: str = "config.json") -> ModelConfig:
    """Our config for a `config.json`."""
    kind = hf.get("model_type")
    if kind == OURS:
        return check_config(hf.get(OURS, {}), place)
    if kind not in HF_FAMILIES:
        known = ", ".join([*HF_FAMILIES, OURS])
        raise Unsupported(f"model_type {kind!r} is not of the family", place=place, remedy=f"families that open here: {known}")
    family = HF_FAMILIES[kind]
    for name, value in family.only.items():
        if hf.get(name, value) != value:
            raise Unsupported(f"{name} = {hf[name]!r} is not built here, only {value!r}", place=place)
    theirs = {**family.defaults, **hf}
    try:
        values = {ours: theirs[name] for ours, name in family.fields.items()}
        values["activation"] = _activation(values["activation"], place)
        family.read(values, theirs)
    except TypeError as error:
        raise BadConfig(f"a field of the wrong type: {error}", place=place) from None
    values |= family.axes
    values["labels"] = _labels(hf, place)
    if values.get("head_dropout") is None:
        values["head_dropout"] = values["dropout"]
    ours = hf.get(OURS)
    values |= {name: ours[name] for name in RATES & ours.keys()} if isinstance(ours, dict) else {}
    return _split(kind, values, place)


def to_hf(config: ModelConfig) -> Values | None:
    """The `config.json` fields for our config, or None where they cannot say what it is."""
    family = HF_FAMILIES[config.family]
    flat = {**config.encoder.model_dump(), **config.heads.model_dump()}
    hf: Values = {"model_type": config.family}
    hf |= {theirs: flat[ours] for ours, theirs in family.fields.items()}
    hf |= {theirs: THEIR_ACTIVATIONS[flat["activation"]] for ours, theirs in family.fields.items() if ours == "activation"}
    hf |= family.write(config)
    hf["id2label"] = {str(i): label for i, label in enumerate(config.heads.labels)}
    hf["label2id"] = {label: i for i, label in enumerate(config.heads.labels)}
    try:
        read = from_hf(hf)
    except (BadConfig, Unsupported):
        return None
    heard = {**read.encoder.model_dump(), **read.heads.model_dump()}
    unsaid = {name: value for name, value in flat.items() if heard[name] != value}
    if unsaid.keys() - RATES:
        return None
    return {**hf, OURS: unsaid} if unsaid else hf


def own_config(config: ModelConfig) -> Values:
    """A `config.json` that only we open: others refuse it by its model_type."""
    return {"model_type": OURS, OURS: config.model_dump(mode="json")}


def _split(kind: str, values: Values, place: str) -> ModelConfig:
    heads = {name: values.pop(name) for name in HeadConfig.model_fields if name in values}
    return check_config({"family": kind, "encoder": values, "heads": heads}, place)


def _activation(name: Any, place: str) -> str:
    if name not in ACTIVATION_NAMES:
        raise Unsupported(f"activation {name!r} is not built here", place=place, remedy=f"known: {', '.join(ACTIVATION_NAMES)}")
    return ACTIVATION_NAMES[name]


def _labels(hf: Mapping[str, Any], place: str) -> tuple[str, ...]:
    names = hf.get("id2label")
    if not names:
        return tuple(f"LABEL_{i}" for i in range(int(hf.get("num_labels", 2))))
    try:
        return tuple(str(names[key]) for key in sorted(names, key=int))
    except (ValueError, TypeError, AttributeError):
        raise BadConfig(f"id2label must map numbers to names, not {names!r}", place=place) from None
