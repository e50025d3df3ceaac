"""Our parameters and Hugging Face's, in both directions: names, and two reversible changes of shape.

"Ours" are names of bertworks, "theirs" those of Hugging Face. For a given model, `mapping` lists which of our tensors
each of theirs holds. Loading reads the list one way, saving the other, so a round trip is the identity by construction.
Most entries are one name for one name; GPT-2 keeps q, k and v in one transposed matrix, XLNet keeps its matrices as
three-dimensional kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bertworks.config import ModelConfig
from bertworks.model.model import Model


@dataclass(frozen=True)
class Entry:
    """One tensor of theirs, and the tensors of ours that it holds."""

    theirs: str
    ours: tuple[str, ...]
    join: Callable[[Sequence[Tensor]], Tensor] = lambda tensors: tensors[0]  # ours -> theirs
    split: Callable[[Tensor], Sequence[Tensor]] = lambda tensor: [tensor]  # theirs -> ours


def _conv1d(theirs: str, *ours: str, transposed: bool) -> Entry:
    """GPT-2's Conv1D keeps matrices as (in, out), and those of q, k and v in one."""

    def join(tensors: Sequence[Tensor]) -> Tensor:
        joined = torch.cat(list(tensors))
        return joined.t() if transposed else joined

    return Entry(theirs, ours, join, lambda tensor: (tensor.t() if transposed else tensor).chunk(len(ours)))


def _head_kernel(theirs: str, ours: str, n_heads: int, *, transposed: bool) -> Entry:
    """XLNet keeps matrices as (hidden, heads, size of a head)."""

    def join(tensors: Sequence[Tensor]) -> Tensor:
        matrix = tensors[0].t() if transposed else tensors[0]
        return matrix.reshape(len(matrix), n_heads, -1)

    return Entry(theirs, (ours,), join, lambda tensor: [tensor.flatten(1).t() if transposed else tensor.flatten(1)])


def _xlnet(config: ModelConfig) -> Iterator[Entry]:
    n_heads = config.transformer.n_heads
    yield Entry("transformer.mask_emb", ("encoder.mask_state",), lambda t: t[0].view(1, 1, -1), lambda t: [t.view(-1)])
    for layer in range(config.encoder.n_layers):
        theirs, ours = f"transformer.layer.{layer}.rel_attn.", f"encoder.attentions.{layer}.attn."
        for name, our_name in {"q": "q", "k": "k", "v": "v", "r": "distance"}.items():
            yield _head_kernel(theirs + name, f"{ours}{our_name}.weight", n_heads, transposed=True)
        yield _head_kernel(theirs + "o", f"{ours}out.weight", n_heads, transposed=False)
        yield Entry(theirs + "r_w_bias", (ours + "content_bias",))
        yield Entry(theirs + "r_r_bias", (ours + "distance_bias",))
        yield Entry(theirs + "r_s_bias", (ours + "segment_bias",))
        yield Entry(theirs + "seg_embed", (ours + "segments",))


def _gpt2(config: ModelConfig) -> Iterator[Entry]:
    for layer in range(config.encoder.n_layers):
        theirs, attn, ffn = f"transformer.h.{layer}.", f"encoder.attentions.{layer}.attn.", f"encoder.ffns.{layer}."
        yield _conv1d(theirs + "attn.c_attn.weight", *(f"{attn}{name}.weight" for name in "qkv"), transposed=True)
        yield _conv1d(theirs + "attn.c_attn.bias", *(f"{attn}{name}.bias" for name in "qkv"), transposed=False)
        yield _conv1d(theirs + "attn.c_proj.weight", attn + "out.weight", transposed=True)
        yield _conv1d(theirs + "mlp.c_fc.weight", ffn + "up.weight", transposed=True)
        yield _conv1d(theirs + "mlp.c_proj.weight", ffn + "down.weight", transposed=True)


@dataclass(frozen=True)
class HFNames:
    """Hugging Face's names of a family's modules. `{a}` and `{f}` count unique attentions and feed-forwards."""

    prefix: str  # of the encoder; the class without heads leaves it out
    encoder: Mapping[str, str]  # our module -> their module, after "encoder." and the prefix
    heads: Mapping[str, Mapping[str, str]]  # head -> our module or parameter -> theirs
    summary: Mapping[str, str]  # head -> their module for the summary layer; "" for every other case
    architectures: Mapping[str, frozenset[str]]  # class -> its heads; where two have the same, the first is written
    tied: Mapping[str, str] = field(default_factory=dict)  # a second name -> the tensor it is a copy of
    sized_by_labels: frozenset[str] = frozenset({"span"})  # heads with as many outputs as labels, where we have two
    reshaped: Callable[[ModelConfig], Iterator[Entry]] = lambda config: iter(())
    # Ends of the names of buffers, which hold no weights.
    buffers: tuple[str, ...] = ("embeddings.position_ids", "embeddings.token_type_ids")


def _classes(name: str, **heads: str) -> dict[str, frozenset[str]]:
    return {f"{name}{ending}": frozenset(head_names.split()) for ending, head_names in heads.items()}


BERT_ENCODER = {
    "embed.tokens": "embeddings.word_embeddings",
    "embed.positions": "embeddings.position_embeddings",
    "embed.segments": "embeddings.token_type_embeddings",
    "embed.norm": "embeddings.LayerNorm",
    "attentions.{a}.attn.q": "encoder.layer.{a}.attention.self.query",
    "attentions.{a}.attn.k": "encoder.layer.{a}.attention.self.key",
    "attentions.{a}.attn.v": "encoder.layer.{a}.attention.self.value",
    "attentions.{a}.attn.out": "encoder.layer.{a}.attention.output.dense",
    "attentions.{a}.post": "encoder.layer.{a}.attention.output.LayerNorm",
    "ffns.{f}.up": "encoder.layer.{f}.intermediate.dense",
    "ffns.{f}.down": "encoder.layer.{f}.output.dense",
    "ffns.{f}.post": "encoder.layer.{f}.output.LayerNorm",
}
ALBERT_LAYER = "encoder.albert_layer_groups.{group}.albert_layers.{inner}."
CLASSIFIERS = {
    "sequence": {"out": "classifier"},
    "choice": {"out": "classifier"},
    "token": {"out": "classifier"},
    "span": {"out": "qa_outputs"},
}
CLASSIFIER_CLASSES = {
    "ForSequenceClassification": "sequence",
    "ForMultipleChoice": "choice",
    "ForTokenClassification": "token",
}


def _roberta(class_name: str) -> HFNames:
    """RoBERTa; other families have its tensors under classes of their own."""
    return HFNames(
        prefix="roberta",
        encoder=BERT_ENCODER,
        heads={
            "lm": {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head.bias"},
            **CLASSIFIERS,
            "sequence": {"out": "classifier.out_proj"},
        },
        summary={"": "roberta.pooler.dense", "sequence": "classifier.dense"},
        architectures=_classes(
            class_name, Model="", ForMaskedLM="lm", ForCausalLM="lm", ForQuestionAnswering="span", **CLASSIFIER_CLASSES
        ),
        tied={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
    )


HF_NAMES: dict[str, HFNames] = {
    "bert": HFNames(
        prefix="bert",
        encoder=BERT_ENCODER,
        heads={
            "lm": {
                "dense": "cls.predictions.transform.dense",
                "norm": "cls.predictions.transform.LayerNorm",
                "bias": "cls.predictions.bias",
            },
            "pair": {"out": "cls.seq_relationship"},
            **CLASSIFIERS,
        },
        summary={"": "bert.pooler.dense"},
        architectures=_classes(
            "Bert",
            Model="",
            ForPreTraining="lm pair",
            ForMaskedLM="lm",
            LMHeadModel="lm",
            ForNextSentencePrediction="pair",
            ForQuestionAnswering="span",
            **CLASSIFIER_CLASSES,
        ),
        tied={
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
    ),
    "roberta": _roberta("Roberta"),
    "xlm-roberta": _roberta("XLMRoberta"),
    "camembert": _roberta("Camembert"),
    "albert": HFNames(
        prefix="albert",
        encoder={
            "embed.tokens": "embeddings.word_embeddings",
            "embed.positions": "embeddings.position_embeddings",
            "embed.segments": "embeddings.token_type_embeddings",
            "embed.norm": "embeddings.LayerNorm",
            "project": "encoder.embedding_hidden_mapping_in",
            "attentions.{a}.attn.q": ALBERT_LAYER + "attention.query",
            "attentions.{a}.attn.k": ALBERT_LAYER + "attention.key",
            "attentions.{a}.attn.v": ALBERT_LAYER + "attention.value",
            "attentions.{a}.attn.out": ALBERT_LAYER + "attention.dense",
            "attentions.{a}.post": ALBERT_LAYER + "attention.LayerNorm",
            "ffns.{f}.up": ALBERT_LAYER + "ffn",
            "ffns.{f}.down": ALBERT_LAYER + "ffn_output",
            "ffns.{f}.post": ALBERT_LAYER + "full_layer_layer_norm",
        },
        heads={
            "lm": {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "bias": "predictions.bias"},
            "pair": {"out": "sop_classifier.classifier"},
            **CLASSIFIERS,
        },
        summary={"": "albert.pooler"},
        sized_by_labels=frozenset({"span", "pair"}),
        architectures=_classes(
            "Albert",
            Model="",
            ForPreTraining="lm pair",
            ForMaskedLM="lm",
            ForQuestionAnswering="span",
            **CLASSIFIER_CLASSES,
        ),
        tied={
            "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
            "predictions.decoder.bias": "predictions.bias",
        },
    ),
    "electra": HFNames(
        prefix="electra",
        encoder={**BERT_ENCODER, "project": "embeddings_project"},
        heads={
            "lm": {
                "dense": "generator_predictions.dense",
                "norm": "generator_predictions.LayerNorm",
                "bias": "generator_lm_head.bias",
            },
            "replaced": {
                "dense": "discriminator_predictions.dense",
                "out": "discriminator_predictions.dense_prediction",
            },
            **CLASSIFIERS,
            "sequence": {"out": "classifier.out_proj"},
        },
        summary={"sequence": "classifier.dense", "choice": "sequence_summary.summary"},
        architectures=_classes(
            "Electra",
            Model="",
            ForPreTraining="replaced",
            ForMaskedLM="lm",
            ForCausalLM="lm",
            ForQuestionAnswering="span",
            **CLASSIFIER_CLASSES,
        ),
        tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    ),
    "distilbert": HFNames(
        prefix="distilbert",
        encoder={
            "embed.tokens": "embeddings.word_embeddings",
            "embed.positions": "embeddings.position_embeddings",
            "embed.norm": "embeddings.LayerNorm",
            "attentions.{a}.attn.q": "transformer.layer.{a}.attention.q_lin",
            "attentions.{a}.attn.k": "transformer.layer.{a}.attention.k_lin",
            "attentions.{a}.attn.v": "transformer.layer.{a}.attention.v_lin",
            "attentions.{a}.attn.out": "transformer.layer.{a}.attention.out_lin",
            "attentions.{a}.post": "transformer.layer.{a}.sa_layer_norm",
            "ffns.{f}.up": "transformer.layer.{f}.ffn.lin1",
            "ffns.{f}.down": "transformer.layer.{f}.ffn.lin2",
            "ffns.{f}.post": "transformer.layer.{f}.output_layer_norm",
        },
        heads={
            "lm": {"dense": "vocab_transform", "norm": "vocab_layer_norm", "bias": "vocab_projector.bias"},
            **CLASSIFIERS,
        },
        summary={"": "pre_classifier"},
        architectures=_classes(
            "DistilBert", Model="", ForMaskedLM="lm", ForQuestionAnswering="span", **CLASSIFIER_CLASSES
        ),
        tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    ),
    "xlnet": HFNames(
        prefix="transformer",
        encoder={
            "embed.tokens": "word_embedding",
            "attentions.{a}.post": "layer.{a}.rel_attn.layer_norm",
            "ffns.{f}.up": "layer.{f}.ff.layer_1",
            "ffns.{f}.down": "layer.{f}.ff.layer_2",
            "ffns.{f}.post": "layer.{f}.ff.layer_norm",
        },
        heads={
            "lm": {"bias": "lm_loss.bias"},
            "sequence": {"out": "logits_proj"},
            "choice": {"out": "logits_proj"},
            "token": {"out": "classifier"},
            "span": {"out": "qa_outputs"},
        },
        summary={"": "sequence_summary.summary"},
        architectures=_classes(
            "XLNet", Model="", LMHeadModel="lm", ForQuestionAnsweringSimple="span", **CLASSIFIER_CLASSES
        ),
        tied={"lm_loss.weight": "transformer.word_embedding.weight"},
        reshaped=_xlnet,
    ),
    "gpt2": HFNames(
        prefix="transformer",
        encoder={
            "embed.tokens": "wte",
            "embed.positions": "wpe",
            "attentions.{a}.pre": "h.{a}.ln_1",
            "attentions.{a}.attn.out": "h.{a}.attn.c_proj",
            "ffns.{f}.pre": "h.{f}.ln_2",
            "ffns.{f}.up": "h.{f}.mlp.c_fc",
            "ffns.{f}.down": "h.{f}.mlp.c_proj",
            "norm": "ln_f",
        },
        heads={"lm": {}, "sequence": {"out": "score"}, "token": {"out": "classifier"}, "span": {"out": "qa_outputs"}},
        summary={},
        architectures=_classes(
            "GPT2",
            Model="",
            LMHeadModel="lm",
            ForSequenceClassification="sequence",
            ForTokenClassification="token",
            ForQuestionAnswering="span",
        ),
        tied={"lm_head.weight": "transformer.wte.weight"},
        reshaped=_gpt2,
        buffers=(".attn.bias", ".attn.masked_bias"),
    ),
}


CAUSAL_ENDINGS = ("LMHeadModel", "ForCausalLM")


def find_architecture(model: Model) -> str | None:
    """Their class that has just these heads, or None; for a left-to-right model a causal one, if there is one."""
    architectures = HF_NAMES[model.config.family].architectures
    fitting = [name for name, heads in architectures.items() if heads == frozenset(model.heads)]
    causal = [name for name in fitting if name.endswith(CAUSAL_ENDINGS)] if model.config.encoder.causal else []
    return next(iter([*causal, *fitting]), None)


def mapping(model: Model) -> list[Entry]:
    """Every tensor of the model (which may be on the meta device), as it is stored in their files."""
    names = HF_NAMES[model.config.family]
    entries = list(names.reshaped(model.config))
    mapped = {name for entry in entries for name in entry.ours}
    modules = _encoder_modules(model.config)
    modules |= {f"heads.{head}.{ours}": theirs for head in model.heads for ours, theirs in names.heads[head].items()}
    modules["summary.dense"] = _summary_module(names, model.heads) or ""
    for name in model.state_dict():
        if name not in mapped:
            module, _, leaf = name.rpartition(".")
            entries.append(Entry(modules.get(name) or f"{modules[module]}.{leaf}", (name,)))
    return entries


def current_names(config: ModelConfig, keys: Iterable[str]) -> dict[str, str]:
    """Names in a file -> the names that `mapping` uses; old spellings are understood, buffers left out."""
    names = HF_NAMES[config.family]
    roots = {theirs.partition(".")[0] for theirs in [*names.encoder.values(), "pooler", "mask_emb"]}
    current = {}
    for key in keys:
        if key.endswith(names.buffers):
            continue
        name = re.sub(r"\.(gamma|beta)$", lambda m: {"gamma": ".weight", "beta": ".bias"}[m[1]], key)
        current[key] = f"{names.prefix}.{name}" if name.partition(".")[0] in roots else name
    return current


def families_of_classes(architectures: Iterable[str]) -> list[str]:
    """The families that have one of these classes."""
    classes = set(architectures)
    return [family for family, names in HF_NAMES.items() if classes & names.architectures.keys()]


def families_of_tensors(keys: Iterable[str]) -> list[str]:
    """The families whose encoder has these names; one, if they tell it."""
    modules = {key.rpartition(".")[0] for key in keys}
    fitting = [family for family in HF_NAMES if modules >= _first_layer(family, HF_NAMES[family].prefix + ".")]
    if len({HF_NAMES[family].prefix for family in fitting}) == 1:
        return fitting[:1]  # RoBERTa, or a family with its tensors and its numbers
    return fitting or [family for family in HF_NAMES if modules >= _first_layer(family, prefix="")]


def _first_layer(family: str, prefix: str) -> set[str]:
    """Their modules in embedding and first layer that every model of the family has."""
    indices = dict.fromkeys(("a", "f", "group", "inner"), 0)
    encoder = HF_NAMES[family].encoder
    return {prefix + theirs.format(**indices) for ours, theirs in encoder.items() if ours != "project"}


def declared_heads(config: ModelConfig, architectures: Sequence[str]) -> frozenset[str]:
    """The heads of the first class that is known."""
    classes = HF_NAMES[config.family].architectures
    return next((classes[name] for name in architectures if name in classes), frozenset())


def find_heads(config: ModelConfig, keys: Set[str], architectures: Sequence[str]) -> list[str]:
    """Which heads a file with these `keys` holds. Where the keys do not decide, the class name does."""
    names = HF_NAMES[config.family]
    keys = keys | {name for copy_name, name in names.tied.items() if copy_name in keys}
    declared = declared_heads(config, architectures)
    heads: list[str] = []
    claimed: set[str] = set()
    # Token, sequence and choice heads may have the same name: the declared one first, then the one with more modules.
    for head in sorted(names.heads, key=lambda head: (head not in declared, -len(_head_modules(names, head)))):
        modules = _head_modules(names, head)
        head_keys = {key for key in keys if key.rpartition(".")[0] in modules or key in modules}
        complete = all(
            module in head_keys or any(key.startswith(module + ".") for key in head_keys) for module in modules
        )
        if complete and (modules or head in declared or keys & set(names.tied)) and not head_keys & claimed:
            heads.append(head)
            claimed |= head_keys
    return heads


def has_summary(config: ModelConfig, heads: Iterable[str], keys: Set[str]) -> bool:
    """Whether a file with these `keys` holds the summary layer of a model with these heads."""
    module = _summary_module(HF_NAMES[config.family], heads)
    return keys >= {f"{module}.weight", f"{module}.bias"}


def pooler_names(config: ModelConfig) -> set[str]:
    """The names of a headless model's summary layer: old files of other classes hold one that nothing reads."""
    module = HF_NAMES[config.family].summary.get("", "")
    return {f"{module}.weight", f"{module}.bias"}


def _head_modules(names: HFNames, head: str) -> set[str]:
    """The modules and parameters by which a head is recognised."""
    own = set(names.heads[head].values())
    return own | {names.summary[head]} if head in names.summary else own


def _encoder_modules(config: ModelConfig) -> dict[str, str]:
    names = HF_NAMES[config.family]
    modules = {}
    for ours, theirs in names.encoder.items():
        for index in range(config.encoder.n_layers if "{" in ours else 1):
            group, inner = divmod(index, config.transformer.layers_per_group)
            indices = {"a": index, "f": index, "group": group, "inner": inner}
            modules["encoder." + ours.format(**indices)] = f"{names.prefix}.{theirs.format(**indices)}"
    return modules


def _summary_module(names: HFNames, heads: Iterable[str]) -> str | None:
    """Their module that holds the summary layer of a model with these heads."""
    return next((names.summary[head] for head in heads if head in names.summary), names.summary.get(""))
