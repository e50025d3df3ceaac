"""fairseq's own RoBERTa checkpoints, as the `config.json` and the tensors that Hugging Face has for the same model.

Such a file is a pickle with the options of the training beside the tensors: a Namespace, or a config of OmegaConf. The
classes of both are replaced by inert objects, of which only numbers and names are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import torch

from bertworks.errors import BadConfig, BadWeights, Unsupported
from bertworks.files import JsonObject
from bertworks.model.folder import CONFIG, LoadedModel, assemble
from bertworks.model.weights import Inert, StoredTensor, load_pickle, stored_tensors

CHECKPOINTS = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
SENTENCEPIECE = "sentencepiece.bpe.model"  # of fairseq's XLM-R; its RoBERTa has byte-level BPE
KNOWN_NAMES = {"argparse.Namespace", "collections.defaultdict", "numpy.dtype"}
KNOWN_NAMES |= {f"numpy.{core}.multiarray.scalar" for core in ("core", "_core")}
KNOWN_NAMES |= {f"builtins.{name}" for name in ("dict", "list", "tuple", "str", "int", "float", "bool")}
KNOWN_MODULES = ("fairseq.", "omegaconf.", "typing.")
BUFFERS = (".version", "._float_tensor")
PAD = 1
# Their modules -> Hugging Face's; the embedding's norm has an old and a new name.
EMBEDDING = {
    "embed_tokens": "embeddings.word_embeddings",
    "embed_positions": "embeddings.position_embeddings",
    "emb_layer_norm": "embeddings.LayerNorm",
    "layernorm_embedding": "embeddings.LayerNorm",
}
LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}
PACKED = re.compile(r"(layers\.\d+\.self_attn\.)in_proj_(weight|bias)")


def find_checkpoint(folder: Path) -> Path | None:
    """fairseq's checkpoint in a folder that is not one of Hugging Face's, if there is one."""
    if (folder / CONFIG).exists():
        return None
    for name in CHECKPOINTS:
        if (folder / name).exists():
            return folder / name
    paths = sorted(folder.glob("checkpoint*.pt"))
    if len(paths) > 1:
        cause = f"several checkpoints: {', '.join(path.name for path in paths[:5])}"
        remedy = f"call the one that is meant {CHECKPOINTS[0]}"
        raise BadWeights(cause, place=str(folder), remedy=remedy, code="several-checkpoints")
    return paths[0] if paths else None


def import_fairseq(path: Path, *, family: str | None = None, strict: bool = False) -> LoadedModel:
    """The model of a checkpoint; `family` is RoBERTa's, or XLM-R's where its tokenizer is, if it is not given."""
    content = load_pickle(path, lambda name: name in KNOWN_NAMES or name.startswith(KNOWN_MODULES))
    if not isinstance(content, dict) or "model" not in content:
        cause = "not a checkpoint of fairseq: no model in it"
        raise BadWeights(cause, place=str(path), remedy="fairseq's have model and args, or cfg", code="not-fairseq")
    stored: dict[str, StoredTensor] = {}
    for name, tensor in _hf_tensors(stored_tensors(content["model"], path), path):
        if name in stored:
            raise BadWeights(f"{name} is stored twice, by an old and a new name", place=str(path), code="stored-twice")
        stored[name] = tensor
    hf = _hf_config(_model_options(content, path), stored, path)
    hf["model_type"] = family or ("xlm-roberta" if (path.parent / SENTENCEPIECE).exists() else "roberta")
    return assemble(hf, stored, path.parent, family=family, strict=strict)


def _model_options(content: Mapping[str, object], path: Path) -> dict[str, object]:
    """The options of the model: `args` until 2020, then `cfg.model`."""
    options = _fields(content.get("args")) or _fields(_fields(content.get("cfg")).get("model"))
    if not options:
        cause = "no options of the model in this checkpoint: neither args nor cfg.model"
        raise BadWeights(cause, place=str(path), code="not-fairseq")
    return {name: _value(option) for name, option in options.items()}


def _fields(config: object) -> dict[str, object]:
    """What a Namespace, a dataclass, a config of OmegaConf or a dict holds."""
    config = _value(config)
    fields = config.state if isinstance(config, Inert) else config
    fields = fields.get("_content", fields) if isinstance(fields, dict) else {}
    return fields if isinstance(fields, dict) else {}


def _value(node: object) -> object:
    """What a node of OmegaConf holds; anything else is a value itself."""
    if isinstance(node, Inert) and isinstance(node.state, dict) and "_val" in node.state:
        return node.state["_val"]
    return node


def _hf_config(options: Mapping[str, object], stored: Mapping[str, StoredTensor], path: Path) -> JsonObject:
    """Sizes are those of the options, so that tensors which contradict them are refused."""
    required = {"activation_fn": "gelu", "pooler_activation_fn": "tanh"}
    for name, value in required.items():
        if options.get(name, value) != value:
            cause = f"{name} = {options[name]!r} is not supported, only {value!r}"
            raise Unsupported(cause, place=str(path))
    names = {
        "hidden_size": "encoder_embed_dim",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "intermediate_size": "encoder_ffn_embed_dim",
    }
    for name in names.values():
        if type(options.get(name)) is not int:
            cause = f"{name} = {options.get(name)!r} in the checkpoint's options is not a number"
            raise BadConfig(cause, place=str(path), fields=[name])
    tables = {
        "vocab_size": "roberta.embeddings.word_embeddings.weight",
        "max_position_embeddings": "roberta.embeddings.position_embeddings.weight",
    }
    for name in tables.values():
        if name not in stored or len(stored[name].shape) != 2:
            raise BadWeights(f"no {name} in this checkpoint", place=str(path), code="not-fairseq")
    return {
        **{hf_key: options[name] for hf_key, name in names.items()},
        **{hf_key: stored[name].shape[0] for hf_key, name in tables.items()},
        "hidden_dropout_prob": options.get("dropout", 0.1),
        "attention_probs_dropout_prob": options.get("attention_dropout", 0.1),
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "pad_token_id": PAD,
        "eos_token_id": 2,
    }


def _hf_tensors(tensors: Mapping[str, StoredTensor], path: Path) -> Iterator[tuple[str, StoredTensor]]:
    classifiers = {match[1] for name in tensors if (match := re.match(r"classification_heads\.([^.]+)\.", name))}
    for name, tensor in tensors.items():
        # Until 2020 the encoder was called decoder.
        part, _, rest = re.sub(r"^(encoder|decoder)\.", "", name).partition(".")
        if name.endswith(BUFFERS):
            continue
        if part == "sentence_encoder":
            yield from _encoder_tensors(rest, tensor, path)
        elif part == "lm_head":
            yield f"lm_head.{'decoder.weight' if rest == 'weight' else rest}", tensor
        elif part == "classification_heads" and len(classifiers) == 1:
            yield f"classifier.{rest.partition('.')[2]}", tensor
        else:
            yield name, tensor


def _encoder_tensors(name: str, tensor: StoredTensor, path: Path) -> Iterator[tuple[str, StoredTensor]]:
    if name.startswith("layer_norm."):
        raise Unsupported("layer norms before each part (encoder_normalize_before) are not supported", place=str(path))
    if (packed := PACKED.fullmatch(name)) and tensor.shape:
        shape = (tensor.shape[0] // 3, *tensor.shape[1:])
        for i, projection in enumerate(("q_proj", "k_proj", "v_proj")):
            chunk = StoredTensor(shape, tensor.is_float, partial(_third, tensor, i))
            yield from _encoder_tensors(f"{packed[1]}{projection}.{packed[2]}", chunk, path)
        return
    module, _, leaf = name.rpartition(".")
    if layer := re.fullmatch(r"layers\.(\d+)\.(.+)", module):
        module = f"encoder.layer.{layer[1]}.{LAYER.get(layer[2], layer[2])}"
    yield f"roberta.{EMBEDDING.get(module, module)}.{leaf}", tensor
    if name == "embed_tokens.weight" and len(tensor.shape) == 2:
        # Hugging Face's RoBERTa has one segment, fairseq's has none.
        zeros = partial(torch.zeros, 1, tensor.shape[1])
        yield "roberta.embeddings.token_type_embeddings.weight", StoredTensor((1, tensor.shape[1]), True, zeros)


def _third(packed: StoredTensor, index: int) -> torch.Tensor:
    return packed.read().chunk(3)[index]
