"""Our config and Hugging Face's `config.json`, in both directions. Their field names appear here only.

"Ours" are names and values of bertworks, "theirs" those of Hugging Face. A family is a row: their names of its fields,
and values that every model of that family has. Reading fills our config from both; writing is the same table run
backwards. A config can be expressed in `config.json` if and only if writing it and reading it again gives the same
config, so nothing is ever saved that would open elsewhere with other numbers. Rates that matter in training only (XLNet
has one dropout, we have three) are no reason to refuse: those that would be lost go under a key of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bertworks.config import HeadConfig, ModelConfig, check_config
from bertworks.errors import BadConfig, Unsupported
from bertworks.files import JsonObject

OURS = "bertworks"  # our model_type, and the key of our own fields in their config.json
Values = dict[str, Any]
MAX_LABELS = 2**20
TRAINING_RATES = {"dropout", "attention_dropout", "ffn_dropout", "head_dropout", "init_range"}

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

Fields = Mapping[str, tuple[str, object]]
"""Our field -> their field, and its default where config.json does not have it."""

BERT_FIELDS: Fields = {
    "vocab_size": ("vocab_size", 30522),
    "hidden_size": ("hidden_size", 768),
    "n_layers": ("num_hidden_layers", 12),
    "n_heads": ("num_attention_heads", 12),
    "ffn_size": ("intermediate_size", 3072),
    "activation": ("hidden_act", "gelu"),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "n_positions": ("max_position_embeddings", 512),
    "n_segments": ("type_vocab_size", 2),
    "norm_eps": ("layer_norm_eps", 1e-12),
    "init_range": ("initializer_range", 0.02),
    "head_dropout": ("classifier_dropout", None),
}


@dataclass(frozen=True)
class HFFamily:
    """The `config.json` of a family."""

    fields: Fields
    # Where it is not one field for one field: (our values so far, theirs) -> our further values.
    read: Callable[[Values, JsonObject], Values]
    write: Callable[[ModelConfig], Values] = lambda config: {}  # the same, backwards
    fixed: Mapping[str, object] = field(default_factory=dict)  # our values of every model of the family
    # Their fields of which one value is supported: any other changes the numbers.
    required: Mapping[str, object] = field(default_factory=dict)


def _read_bert(ours: Values, hf: JsonObject) -> Values:
    return {"causal": hf.get("is_decoder", False), "lm_activation": ours["activation"]}


def _read_roberta(ours: Values, hf: JsonObject) -> Values:
    first = hf.get("pad_token_id", 1) + 1
    return {"causal": hf.get("is_decoder", False), "first_position": first, "n_positions": ours["n_positions"] - first}


def _read_albert(ours: Values, hf: JsonObject) -> Values:
    return {"n_layers": ours["n_layers"] * ours["layers_per_group"], "lm_activation": ours["activation"]}


def _read_electra(ours: Values, hf: JsonObject) -> Values:
    projected = ours["embedding_size"] != ours["hidden_size"]
    return {"causal": hf.get("is_decoder", False), "embedding_size": ours["embedding_size"] if projected else None}


def _read_distilbert(ours: Values, hf: JsonObject) -> Values:
    return {"lm_activation": ours["activation"]}


def _read_xlnet(ours: Values, hf: JsonObject) -> Values:
    causal = {"bi": False, "uni": True}.get(hf.get("attn_type", "bi"), "neither bi nor uni")
    return {"causal": causal, "attention_dropout": ours["dropout"], "ffn_dropout": ours["dropout"]}


def _read_gpt2(ours: Values, hf: JsonObject) -> Values:
    return {"ffn_size": ours["ffn_size"] or 4 * ours["hidden_size"]}


def _write_bert(config: ModelConfig) -> Values:
    return {"is_decoder": config.encoder.causal}


def _write_roberta(config: ModelConfig) -> Values:
    c = config.transformer
    return {
        "is_decoder": c.causal,
        "max_position_embeddings": (c.n_positions or 0) + c.first_position,
        "pad_token_id": c.first_position - 1,
    }


def _write_albert(config: ModelConfig) -> Values:
    return {"num_hidden_layers": config.encoder.n_layers // config.transformer.layers_per_group}


def _write_electra(config: ModelConfig) -> Values:
    return {"is_decoder": config.encoder.causal, "embedding_size": config.encoder.embedding_width}


def _write_xlnet(config: ModelConfig) -> Values:
    return {"attn_type": "uni" if config.encoder.causal else "bi"}


def _write_gpt2(config: ModelConfig) -> Values:
    return {"embd_pdrop": config.encoder.dropout}


TIED = {"tie_word_embeddings": True}
REQUIRED_OF_BERT = {**TIED, "add_cross_attention": False, "position_embedding_type": "absolute"}

HF_FAMILIES: dict[str, HFFamily] = {
    "bert": HFFamily(fields=BERT_FIELDS, read=_read_bert, write=_write_bert, required=REQUIRED_OF_BERT),
    "roberta": HFFamily(
        fields={**BERT_FIELDS, "vocab_size": ("vocab_size", 50265)},
        read=_read_roberta,
        write=_write_roberta,
        required=REQUIRED_OF_BERT,
    ),
    **dict.fromkeys(
        ("xlm-roberta", "camembert"),
        HFFamily(fields=BERT_FIELDS, read=_read_roberta, write=_write_roberta, required=REQUIRED_OF_BERT),
    ),
    "albert": HFFamily(
        fields={
            **BERT_FIELDS,
            "vocab_size": ("vocab_size", 30000),
            "embedding_size": ("embedding_size", 128),
            "hidden_size": ("hidden_size", 4096),
            "n_heads": ("num_attention_heads", 64),
            "ffn_size": ("intermediate_size", 16384),
            "n_groups": ("num_hidden_groups", 1),
            "layers_per_group": ("inner_group_num", 1),
            "activation": ("hidden_act", "gelu_new"),
            "dropout": ("hidden_dropout_prob", 0.0),
            "attention_dropout": ("attention_probs_dropout_prob", 0.0),
            "head_dropout": ("classifier_dropout_prob", 0.1),
        },
        read=_read_albert,
        write=_write_albert,
        fixed={"sharing": "all"},
        required=REQUIRED_OF_BERT,
    ),
    "electra": HFFamily(
        fields={
            **BERT_FIELDS,
            "embedding_size": ("embedding_size", 128),
            "hidden_size": ("hidden_size", 256),
            "n_heads": ("num_attention_heads", 4),
            "ffn_size": ("intermediate_size", 1024),
        },
        read=_read_electra,
        write=_write_electra,
        fixed={"pooler": False, "summary_activation": "gelu"},
        required={**REQUIRED_OF_BERT, "summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
    ),
    "distilbert": HFFamily(
        fields={
            "vocab_size": ("vocab_size", 30522),
            "hidden_size": ("dim", 768),
            "n_layers": ("n_layers", 6),
            "n_heads": ("n_heads", 12),
            "ffn_size": ("hidden_dim", 3072),
            "activation": ("activation", "gelu"),
            "dropout": ("dropout", 0.1),
            "attention_dropout": ("attention_dropout", 0.1),
            "n_positions": ("max_position_embeddings", 512),
            "init_range": ("initializer_range", 0.02),
            "head_dropout": ("seq_classif_dropout", 0.2),
        },
        read=_read_distilbert,
        fixed={"n_segments": 0, "pooler": False, "summary_activation": "relu"},
        required=TIED,
    ),
    "xlnet": HFFamily(
        fields={
            "vocab_size": ("vocab_size", 32000),
            "hidden_size": ("d_model", 1024),
            "n_layers": ("n_layer", 24),
            "n_heads": ("n_head", 16),
            "ffn_size": ("d_inner", 4096),
            "activation": ("ff_activation", "gelu"),
            "dropout": ("dropout", 0.1),
            "norm_eps": ("layer_norm_eps", 1e-12),
            "init_range": ("initializer_range", 0.02),
            "head_dropout": ("summary_last_dropout", 0.1),
        },
        read=_read_xlnet,
        write=_write_xlnet,
        fixed={
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
        required={
            **TIED,
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
            "vocab_size": ("vocab_size", 50257),
            "hidden_size": ("n_embd", 768),
            "n_layers": ("n_layer", 12),
            "n_heads": ("n_head", 12),
            "ffn_size": ("n_inner", None),
            "activation": ("activation_function", "gelu_new"),
            "dropout": ("resid_pdrop", 0.1),
            "attention_dropout": ("attn_pdrop", 0.1),
            "n_positions": ("n_positions", 1024),
            "norm_eps": ("layer_norm_epsilon", 1e-5),
            "init_range": ("initializer_range", 0.02),
            "head_dropout": ("classifier_dropout", None),
        },
        read=_read_gpt2,
        write=_write_gpt2,
        fixed={
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
        required={
            **TIED,
            "add_cross_attention": False,
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
        },
    ),
}


def from_hf(hf: JsonObject, place: str = "config.json") -> ModelConfig:
    """Our config for a `config.json`."""
    kind = hf.get("model_type")
    if kind == OURS:
        return check_config(hf.get(OURS, {}), place)
    if not isinstance(kind, str) or kind not in HF_FAMILIES:
        remedy = f"supported families: {', '.join([*HF_FAMILIES, OURS])}"
        raise Unsupported(f"model_type {kind!r} is not of the BERT family", place=place, remedy=remedy)
    family = HF_FAMILIES[kind]
    for name, value in family.required.items():
        if hf.get(name, value) != value:
            raise Unsupported(f"{name} = {hf[name]!r} is not supported, only {value!r}", place=place)
    values = {ours: hf.get(theirs, default) for ours, (theirs, default) in family.fields.items()}
    values["activation"] = _activation(values["activation"], place)
    try:
        values |= family.read(values, hf)
    except TypeError as error:
        raise BadConfig(f"a field of the wrong type: {error}", place=place) from None
    values |= family.fixed
    values["labels"] = _labels(hf, place)
    if values.get("head_dropout") is None:
        values["head_dropout"] = values["dropout"]
    own_fields = hf.get(OURS)
    if isinstance(own_fields, dict):
        values |= {name: own_fields[name] for name in TRAINING_RATES & own_fields.keys()}
    heads = {name: values.pop(name) for name in HeadConfig.model_fields if name in values}
    return check_config({"family": kind, "encoder": values, "heads": heads}, place)


def to_hf(config: ModelConfig) -> Values | None:
    """The `config.json` fields for our config, or None where they cannot express it."""
    if config.family not in HF_FAMILIES:
        return None
    family = HF_FAMILIES[config.family]
    flat = {**config.encoder.model_dump(), **config.heads.model_dump()}
    hf: Values = {"model_type": config.family}
    hf |= {theirs: flat[ours] for ours, (theirs, _) in family.fields.items()}
    hf[family.fields["activation"][0]] = THEIR_ACTIVATIONS[config.transformer.activation]
    hf |= family.write(config)
    hf["id2label"] = {str(i): label for i, label in enumerate(config.heads.labels)}
    hf["label2id"] = {label: i for i, label in enumerate(config.heads.labels)}
    try:
        read_back = from_hf(hf)
    except (BadConfig, Unsupported):
        return None
    flat_back = {**read_back.encoder.model_dump(), **read_back.heads.model_dump()}
    lost_fields = {name: value for name, value in flat.items() if flat_back[name] != value}
    if lost_fields.keys() - TRAINING_RATES:
        return None
    return {**hf, OURS: lost_fields} if lost_fields else hf


def own_config(config: ModelConfig) -> Values:
    """A `config.json` that only bertworks opens: other libraries refuse it by its model_type."""
    return {"model_type": OURS, OURS: config.model_dump(mode="json")}


def _activation(name: object, place: str) -> str:
    if not isinstance(name, str) or name not in ACTIVATION_NAMES:
        remedy = f"known: {', '.join(ACTIVATION_NAMES)}"
        raise Unsupported(f"activation {name!r} is not supported", place=place, remedy=remedy)
    return ACTIVATION_NAMES[name]


def _labels(hf: JsonObject, place: str) -> tuple[str, ...]:
    names = hf.get("id2label")
    if not names:
        count = hf.get("num_labels", 2)
        if type(count) is not int or not 1 <= count <= MAX_LABELS:
            raise BadConfig(f"num_labels = {count!r} is not a number of classes", place=place)
        return tuple(f"LABEL_{i}" for i in range(count))
    ids = [str(i) for i in range(len(names))] if isinstance(names, dict) else []
    if not ids or names.keys() != set(ids) or not all(isinstance(name, str) for name in names.values()):
        cause = f"id2label must map 0, 1, 2, ... to names, not {str(names)[:200]}"
        raise BadConfig(cause, place=place, fields=["id2label"])
    return tuple(names[id] for id in ids)
