"""The same batch through a model of ours and of Hugging Face's; the parity and the mutation tests compare what comes
out."""

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
from zoo import CELLS, PAD, hf_folder, hf_model, padded, ragged_batch

TOLERANCE = 1e-5
READS = {
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


def our_outputs(model: Model, family: str, job: str, lowest: int = 3) -> list[Tensor]:
    tokens = our_tokens(family, *ragged_batch(lowest=lowest))
    with torch.no_grad():
        states = model.encoder(tokens).last
        if job == "base":
            return (
                [states]
                if model.summary is None
                else [states, model.summary(model.summary.select(states, tokens.layout))]
            )
        return [model.read(head, states, tokens.layout) for head in READS[job] if head in model.heads]


def their_inputs(family: str, lowest: int = 3, pad: int = PAD) -> tuple[dict[str, Tensor], Tensor]:
    """Their arguments, padded (XLNet on the left, where its last token is the summary), and the mask of real tokens."""
    ids, segments = ragged_batch(lowest=lowest)
    input_ids, mask = padded(ids, left=family == "xlnet", pad=pad)
    inputs = {"input_ids": input_ids, "attention_mask": mask}
    if family not in WITHOUT_SEGMENTS:
        inputs["token_type_ids"] = padded(segments, left=family == "xlnet")[0]
    return inputs, mask.bool()


def their_outputs(model: Any, family: str, job: str, lowest: int = 3) -> list[Tensor]:
    inputs, real = their_inputs(family, lowest, model.config.pad_token_id)
    if job == "choice":
        with torch.no_grad():
            return [model(**{name: value[None] for name, value in inputs.items()}).logits.view(-1, 1)]
    with torch.no_grad():
        out = model(**inputs)
    if job == "base":
        pooled = getattr(out, "pooler_output", None)
        return [out.last_hidden_state[real], *([] if pooled is None else [pooled])]
    if job == "question answering":
        return [torch.stack([out.start_logits, out.end_logits], -1)[real]]
    if job in ("next sentence", "sequence"):
        return [out.logits]
    if job == "pretraining" and "prediction_logits" in out:
        pair = out.seq_relationship_logits if "seq_relationship_logits" in out else out.sop_logits
        return [out.prediction_logits[real], pair]
    return [out.logits[real]]


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
        for family, job in CELLS:
            model = load_folder(hf_folder(family, job, Path(root))).model
            gaps[family, job] = difference(
                our_outputs(model, family, job), their_outputs(hf_model(family, job), family, job)
            )
    print(
        f"{len(gaps)} model classes, worst difference {max(gaps.values()):.1e} ({' '.join(max(gaps, key=lambda cell: gaps[cell]))})"
    )


if __name__ == "__main__":
    main()
