"""The same batch through our model and that of transformers; the parity and mutation tests compare the outputs."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertworks.model.folder import load_folder
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from zoo import MODEL_CLASSES, PAD, hf_folder, hf_model, padded, ragged_batch

TOLERANCE = 1e-5
HEADS_READ = {
    "base": (),
    "pretraining": ("lm", "pair", "replaced"),
    "masked": ("lm",),
    "causal": ("lm",),
    "next sentence": ("pair",),
    "sequence": ("sequence",),
    "token": ("token",),
    "question answering": ("span",),
    "choice": ("choice",),
}
WITHOUT_SEGMENTS = ("distilbert", "gpt2")


def our_tokens(family: str, ids: list[list[int]], segments: list[list[int]]) -> Tokens:
    flat_segments = None if family in WITHOUT_SEGMENTS else torch.tensor(list(chain(*segments)))
    return Tokens.ragged(torch.tensor(list(chain(*ids))), [len(row) for row in ids], flat_segments)


def our_outputs(model: Model, family: str, head: str, lowest: int = 3) -> list[Tensor]:
    tokens = our_tokens(family, *ragged_batch(lowest=lowest))
    with torch.no_grad():
        states = model.encoder(tokens).last
        if head == "base":
            return (
                [states]
                if model.summary is None
                else [states, model.summary(model.summary.select(states, tokens.layout))]
            )
        return [model.read(name, states, tokens.layout) for name in HEADS_READ[head] if name in model.heads]


def their_inputs(family: str, lowest: int = 3, pad: int = PAD) -> tuple[dict[str, Tensor], Tensor]:
    """The arguments of transformers, padded (XLNet on the left, since its last token is the summary), and the mask."""
    ids, segments = ragged_batch(lowest=lowest)
    input_ids, mask = padded(ids, left=family == "xlnet", pad=pad)
    inputs = {"input_ids": input_ids, "attention_mask": mask}
    if family not in WITHOUT_SEGMENTS:
        inputs["token_type_ids"] = padded(segments, left=family == "xlnet")[0]
    return inputs, mask.bool()


def their_outputs(model: Any, family: str, head: str, lowest: int = 3) -> list[Tensor]:
    inputs, is_token = their_inputs(family, lowest, model.config.pad_token_id)
    if head == "choice":
        with torch.no_grad():
            return [model(**{name: value[None] for name, value in inputs.items()}).logits.view(-1, 1)]
    with torch.no_grad():
        out = model(**inputs)
    if head == "base":
        pooled = getattr(out, "pooler_output", None)
        return [out.last_hidden_state[is_token], *([] if pooled is None else [pooled])]
    if head == "question answering":
        return [torch.stack([out.start_logits, out.end_logits], -1)[is_token]]
    if head in ("next sentence", "sequence"):
        return [out.logits]
    if head == "pretraining" and "prediction_logits" in out:
        pair = out.seq_relationship_logits if "seq_relationship_logits" in out else out.sop_logits
        return [out.prediction_logits[is_token], pair]
    return [out.logits[is_token]]


def difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest |a - b| / (1 + |b|): at most TOLERANCE means close with rtol = atol = TOLERANCE."""
    assert len(ours) == len(theirs) > 0
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape, (a.shape, b.shape)
        gap = float(((a - b).abs() / (1 + b.abs())).max())
        worst = max(worst, gap if gap == gap else float("inf"))
    return worst


def main() -> None:
    """The figures of the README: how many model classes agree, and how well."""
    with tempfile.TemporaryDirectory() as root:
        gaps = {}
        for family, head in MODEL_CLASSES:
            model = load_folder(hf_folder(family, head, Path(root))).model
            gaps[family, head] = difference(
                our_outputs(model, family, head), their_outputs(hf_model(family, head), family, head)
            )
    print(
        f"{len(gaps)} model classes, worst difference {max(gaps.values()):.1e} ({' '.join(max(gaps, key=lambda model_class: gaps[model_class]))})"
    )


if __name__ == "__main__":
    main()
