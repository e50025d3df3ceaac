"""`bertworks info`: what a model folder holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bertworks.cli.show import AsJson, console, show_json


def info(
    folder: Annotated[str, typer.Argument(help="A model folder, 'minilm', or a name on the Hub.")],
    as_json: AsJson = False,
) -> None:
    """Say what a model folder holds, how long a text it takes, and whether transformers opens it."""
    values = _describe(folder)
    if as_json:
        show_json(values)
        return
    out = console()
    for name, value in values.items():
        text = (
            ", ".join(map(str, value))
            if isinstance(value, list)
            else f"{value:,}"
            if type(value) is int
            else str(value)
        )
        if name == "opens_in_transformers_as" and value is None:
            text = "no: transformers cannot express this model, and refuses it by its model_type 'bertworks'"
        if text and text != "None":
            out.print(f"{name.replace('_', ' '):26} {text}", markup=False)


def _describe(folder: str) -> dict[str, Any]:
    from bertworks.model.count import count_parameters
    from bertworks.model.folder import describe
    from bertworks.workbench import load

    bench = load(folder)
    c, pooling = bench.config.encoder, bench.pooling
    theirs = describe(bench.model, bench.hf_config).get("architectures")
    limit, limit_from = bench.limit_and_source
    learned = bench.artifact
    if learned is not None:
        limit, limit_from = learned.data.max_length, "fine-tuning"
    return {
        "folder": folder,
        "family": bench.config.family,
        "layers": c.n_layers,
        "hidden_size": c.hidden_size,
        "heads_per_layer": getattr(c, "n_heads", None),
        "vocabulary": c.vocab_size,
        "parameters": count_parameters(bench.model).total,
        "heads": list(bench.model.heads),
        "task": learned.task.shape if learned is not None else None,
        "labels": list(bench.config.heads.labels) if {"sequence", "token"} & set(bench.model.heads) else [],
        "positions": c.n_positions,
        "limit": limit,
        "limit_from": limit_from,
        "pooling": f"not built here: {pooling.refusal}" if pooling.refusal else pooling.mode,
        "normalised": pooling.normalise,
        "pooling_from": "folder" if pooling.stated else "default",
        "tokenizer": bench.tokenizer.kind if bench.has_tokenizer else None,
        "opens_in_transformers_as": theirs[0] if theirs else None,
        "lineage": bench.lineage[:-1],
        "remarks": [str(remark) for remark in bench.remarks],
    }
