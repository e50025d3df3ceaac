"""An encoder with the heads that read it: what is trained, saved and loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from bertworks.config import ModelConfig, TransformerConfig
from bertworks.errors import BadConfig, Unsupported, nearest
from bertworks.model.encoder import Encoder
from bertworks.model.fused_cross_entropy import LMLoss
from bertworks.model.heads import HEADS, SUMMARY_HEADS, LanguageHead, Summary
from bertworks.model.init import initialise
from bertworks.model.layout import Layout
from bertworks.model.transformer import Transformer
from bertworks.model.two_stream import TwoStreamTransformer


def _transformer(config: TransformerConfig) -> Encoder:
    return TwoStreamTransformer(config) if config.has_two_streams else Transformer(config)


ENCODERS: dict[str, Callable[..., Encoder]] = {"transformer": _transformer}  # by the kind of their config


class Model(nn.Module):
    """`encoder(tokens)` gives states; `read(head, states)` gives a head's logits."""

    def __init__(self, config: ModelConfig, heads: Iterable[str] = (), *, summary: bool | None = None) -> None:
        """`summary`: with a summary layer; None: where a head reads it, or where the headless family has one."""
        super().__init__()
        self.config = config
        names = tuple(heads)
        for name in names:
            if not isinstance(name, str) or name not in HEADS:
                raise Unsupported(f"no such head: {name!r}", remedy=nearest(str(name), HEADS))
        self.encoder = ENCODERS[config.encoder.kind](config.encoder)
        buffers = [name for name, _ in self.encoder.named_buffers()]
        if buffers:
            cause = f"an encoder with buffers cannot be saved or resumed: {', '.join(buffers)}"
            raise Unsupported(cause, remedy="make them parameters, or compute them in forward", code="has-buffers")
        if summary is None:
            summary = config.heads.pooler and not names
        self.summary = Summary(config) if summary or SUMMARY_HEADS & set(names) else None
        self.heads = nn.ModuleDict({name: HEADS[name](config) for name in HEADS if name in names})

    @classmethod
    def fresh(cls, config: ModelConfig, heads: Iterable[str] = (), *, seed: int = 0) -> Model:
        """With new random weights."""
        names = tuple(heads)
        with torch.device("meta"):
            n_bytes = sum(parameter.nbytes for parameter in cls(config, names).parameters())
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else n_bytes
        if n_bytes > memory:
            cause = f"this model takes {n_bytes / 2**30:,.0f} GiB, this machine has {memory / 2**30:,.0f}"
            raise BadConfig(cause, code="model-too-large")
        model = cls(config, names)
        initialise(model, config.encoder, torch.Generator().manual_seed(seed))
        return model

    def read(self, head: str, states: Tensor, layout: Layout | None = None) -> Tensor:
        """A head's logits for each state. Heads for whole sequences read one state of each: with a `layout` it is
        selected among all states, without one `states` are those already."""
        if head not in self.heads:
            heads = ", ".join(self.heads) or "no heads"
            remedy = f"load a folder with one, or new(preset, heads=[{head!r}])"
            raise Unsupported(f"this model has no {head!r} head; it has {heads}", remedy=remedy, code="missing-head")
        if head == "lm":
            return self.heads["lm"](states, self.encoder.token_table)  # type: ignore[no-any-return]
        if head in SUMMARY_HEADS:
            assert self.summary is not None  # __init__ made it together with the head
            states = self.summary(states if layout is None else self.summary.select(states, layout))
        return self.heads[head](states)  # type: ignore[no-any-return]

    def lm_loss(self, states: Tensor, labels: Tensor, uniforms: Tensor | None = None) -> LMLoss:
        """The loss of the `lm` head with labels (M,): the cross-entropy of `read("lm", ...)`, without a table of
        logits."""
        head = self.heads["lm"]
        assert isinstance(head, LanguageHead)
        return head.loss(states, self.encoder.token_table, labels, uniforms)
