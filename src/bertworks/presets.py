"""The published models by name, a table of functions that return a config, and how each family is pre-trained.

Every family also has a `-mini`, 4 layers x 256, for machines without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from bertworks.config import Family, HeadConfig, ModelConfig, TransformerConfig
from bertworks.errors import NotFound, nearest

Preset = Callable[[], ModelConfig]


def bert(hidden_size: int, n_layers: int, vocab_size: int = 30522) -> ModelConfig:
    """Devlin et al. 2019; the small sizes are Turc et al. 2019. Attention heads have 64 dimensions."""
    return ModelConfig(family="bert", encoder=TransformerConfig(**_size(hidden_size, n_layers), vocab_size=vocab_size))


def roberta(hidden_size: int, n_layers: int, *, family: Family = "roberta", vocab_size: int = 50265) -> ModelConfig:
    """Liu et al. 2019; of many languages, Conneau et al. 2020; French, Martin et al. 2020. Positions start after the
    padding id, 1."""
    encoder = TransformerConfig(
        **_size(hidden_size, n_layers), vocab_size=vocab_size, first_position=2, n_segments=1, norm_eps=1e-5
    )
    return ModelConfig(family=family, encoder=encoder)


xlm_roberta = partial(roberta, family="xlm-roberta", vocab_size=250002)
camembert = partial(roberta, family="camembert", vocab_size=32005)


def albert(hidden_size: int, n_layers: int, n_heads: int, dropout: float = 0.0) -> ModelConfig:
    """Lan et al. 2020, version 2: all layers share their parameters."""
    encoder = TransformerConfig(
        **_size(hidden_size, n_layers, n_heads),
        vocab_size=30000,
        embedding_size=128,
        sharing="all",
        activation="gelu_tanh",
        dropout=dropout,
        attention_dropout=dropout,
    )
    return ModelConfig(family="albert", encoder=encoder, heads=HeadConfig(lm_activation="gelu_tanh"))


def electra(hidden_size: int, n_layers: int, embedding_size: int | None, n_heads: int | None = None) -> ModelConfig:
    """Clark et al. 2020. Discriminator and generator differ in size only."""
    encoder = TransformerConfig(
        **_size(hidden_size, n_layers, n_heads), vocab_size=30522, embedding_size=embedding_size
    )
    return ModelConfig(family="electra", encoder=encoder, heads=HeadConfig(pooler=False, summary_activation="gelu"))


def xlnet(hidden_size: int, n_layers: int) -> ModelConfig:
    """Yang et al. 2019."""
    encoder = TransformerConfig(
        **_size(hidden_size, n_layers),
        vocab_size=32000,
        positions="none",
        n_positions=None,
        n_segments=0,
        attention="relative",
        attention_bias=False,
        embedding_norm=False,
        ffn_dropout=0.1,
    )
    return ModelConfig(
        family="xlnet", encoder=encoder, heads=HeadConfig(summary="last", pooler=False, lm_transform=False)
    )


def distilbert(hidden_size: int, n_layers: int) -> ModelConfig:
    """Sanh et al. 2019: BERT without segments and with half the layers."""
    encoder = TransformerConfig(**_size(hidden_size, n_layers), vocab_size=30522, n_segments=0)
    return ModelConfig(
        family="distilbert",
        encoder=encoder,
        heads=HeadConfig(pooler=False, summary_activation="relu", head_dropout=0.2),
    )


def gpt(hidden_size: int, n_layers: int, n_heads: int | None = None) -> ModelConfig:
    """Radford et al. 2019."""
    encoder = TransformerConfig(
        **_size(hidden_size, n_layers, n_heads),
        vocab_size=50257,
        n_positions=1024,
        n_segments=0,
        causal=True,
        norm_order="pre",
        norm_eps=1e-5,
        embedding_norm=False,
        activation="gelu_tanh",
    )
    heads = HeadConfig(
        summary="last", summary_activation=None, pooler=False, class_bias=False, lm_transform=False, lm_bias=False
    )
    return ModelConfig(family="gpt2", encoder=encoder, heads=heads)


def _size(hidden_size: int, n_layers: int, n_heads: int | None = None) -> dict[str, int]:
    return {
        "hidden_size": hidden_size,
        "n_layers": n_layers,
        "n_heads": n_heads or hidden_size // 64,
        "ffn_size": 4 * hidden_size,
    }


PRESETS: dict[str, Preset] = {
    "bert-tiny": partial(bert, 128, 2),
    "bert-mini": partial(bert, 256, 4),
    "bert-small": partial(bert, 512, 4),
    "bert-medium": partial(bert, 512, 8),
    "bert-base": partial(bert, 768, 12),
    "bert-large": partial(bert, 1024, 24),
    "bert-base-chinese": partial(bert, 768, 12, vocab_size=21128),
    "roberta-mini": partial(roberta, 256, 4),
    "roberta-base": partial(roberta, 768, 12),
    "roberta-large": partial(roberta, 1024, 24),
    "xlm-roberta-mini": partial(xlm_roberta, 256, 4),
    "xlm-roberta-base": partial(xlm_roberta, 768, 12),
    "xlm-roberta-large": partial(xlm_roberta, 1024, 24),
    "camembert-mini": partial(camembert, 256, 4),
    "camembert-base": partial(camembert, 768, 12),
    "camembert-large": partial(camembert, 1024, 24),
    "albert-mini": partial(albert, 256, 4, 4),
    "albert-base": partial(albert, 768, 12, 12),
    "albert-large": partial(albert, 1024, 24, 16),
    "albert-xlarge": partial(albert, 2048, 24, 16),
    "albert-xxlarge": partial(albert, 4096, 12, 64),
    "electra-mini": partial(electra, 256, 4, 128),
    "electra-small": partial(electra, 256, 12, 128),
    "electra-base": partial(electra, 768, 12, None),
    "electra-large": partial(electra, 1024, 24, None),
    "electra-mini-generator": partial(electra, 128, 4, None),
    "electra-small-generator": partial(electra, 256, 12, 128),
    "electra-base-generator": partial(electra, 256, 12, 768),
    "electra-large-generator": partial(electra, 256, 24, 1024),
    "xlnet-mini": partial(xlnet, 256, 4),
    "xlnet-base": partial(xlnet, 768, 12),
    "xlnet-large": partial(xlnet, 1024, 24),
    "distilbert-mini": partial(distilbert, 256, 4),
    "distilbert-base": partial(distilbert, 768, 6),
    "gpt-mini": partial(gpt, 256, 4),
    "gpt-small": partial(gpt, 768, 12),
    "gpt-medium": partial(gpt, 1024, 24),
    "gpt-large": partial(gpt, 1280, 36),
    "gpt-xl": partial(gpt, 1600, 48),
}


def preset(name: str) -> ModelConfig:
    """The config of a published model."""
    if name not in PRESETS:
        raise NotFound(f"unknown preset {name!r}", remedy=nearest(name, PRESETS), code="unknown-preset")
    return PRESETS[name]()


FAMILY_RECIPES: dict[Family, str] = {
    "bert": "mlm+nsp",
    "roberta": "mlm",
    "xlm-roberta": "mlm",
    "camembert": "mlm",
    "albert": "mlm+sop",
    "electra": "rtd",
    "xlnet": "plm",
    "distilbert": "mlm",
    "gpt2": "ltr",
    "bertworks": "mlm",
}
RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    "mlm": {"objective": {"name": "mlm"}, "data": {"pairs": "none"}},
    "mlm+nsp": {"objective": {"name": "mlm"}, "data": {"pairs": "nsp"}},
    "mlm+sop": {"objective": {"name": "mlm"}, "data": {"pairs": "sop", "masking": "ngram"}},
    "rtd": {"objective": {"name": "rtd"}, "data": {"pairs": "none", "mask_share": 0.85, "random_share": 0.0}},
    "plm": {"objective": {"name": "plm"}, "data": {"pairs": "none", "masking": "span", "mask_rate": 1 / 6}},
    "ltr": {"objective": {"name": "ltr"}, "data": {"pairs": "stream"}},
}


def recipe(
    config: ModelConfig, objective: str | None = None, *, trained: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """The pre-training settings of a model: for its family's objective, or another. `trained`: the heads that it has
    weights for; the learning rate is lower if the head of this objective is among them."""
    name = objective or FAMILY_RECIPES[config.family]
    if name not in RECIPES:
        raise NotFound(f"unknown objective {name!r}", remedy=nearest(name, RECIPES))
    # BERT-base was trained with 1e-4; narrower models tolerate more, about as 1 / width squared.
    lr = min(2e-3, 1e-3 * (256 / config.encoder.hidden_size) ** 2)
    head = "replaced" if name == "rtd" else "lm"
    lr *= 0.3 if head in trained else 1.0  # a new head needs the learning rate of a new model
    settings = {section: dict(values) for section, values in RECIPES[name].items()}
    settings["optim"] = {"lr": float(f"{lr:.1g}")}
    if name == "rtd":
        # A quarter of the width, in the paper. A generator narrower than 128 does not learn within minutes, and
        # neither does the discriminator that depends on it.
        settings["objective"]["generator_size"] = min(1.0, max(0.25, 128 / config.encoder.hidden_size))
    return settings
