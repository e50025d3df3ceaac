"""`bertworks info`: what a model folder holds."""

from __future__ import annotations

from typing import Annotated

import typer

from bertworks.cli.show import AsJson, console, show_json


def info(
    folder: Annotated[str, typer.Argument(help="A model folder, 'minilm', or a name on the Hub.")],
    as_json: AsJson = False,
) -> None:
    """Describe a model folder: sizes, heads, the longest text it reads, and whether transformers opens it."""
    values = _describe(folder)
    if as_json:
        show_json(values)
        return
    out = console()
    for name, value in values.items():
        if name == "opens_in_transformers_as" and value is None:
            value = "no: transformers cannot express this model, and refuses it by its model_type 'bertworks'"
        if value not in (None, "", []):
            out.print(f"{name.replace('_', ' '):26} {_format(value)}", markup=False)


def _format(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if type(value) is int else str(value)


def _describe(folder: str) -> dict[str, object]:
    from bertworks.model.count import count_parameters
    from bertworks.model.folder import config_values
    from bertworks.workbench import load

    bench = load(folder)
    encoder = bench.config.encoder
    pooling = bench.pooling
    architectures = config_values(bench.model, bench.hf_config).get("architectures")
    limit, limit_from = bench.limit_and_source
    artifact = bench.artifact
    if artifact is not None:
        limit, limit_from = artifact.data.max_length, "fine-tuning"
    return {
        "folder": folder,
        "family": bench.config.family,
        "kind": encoder.kind,
        "layers": encoder.n_layers,
        "hidden_size": encoder.hidden_size,
        "heads_per_layer": getattr(encoder, "n_heads", None),
        "vocabulary": encoder.vocab_size,
        "parameters": count_parameters(bench.model).total,
        "heads": list(bench.model.heads),
        "task": artifact.task.shape if artifact is not None else None,
        "labels": list(bench.config.heads.labels) if {"sequence", "token"} & set(bench.model.heads) else [],
        "positions": encoder.n_positions,
        "limit": limit,
        "limit_from": limit_from,
        "pooling": f"not supported: {pooling.refusal}" if pooling.refusal else pooling.mode,
        "normalised": pooling.normalise,
        "pooling_from": "folder" if pooling.stated else "default",
        "tokenizer": bench.tokenizer.kind if bench.has_tokenizer else None,
        "opens_in_transformers_as": architectures[0] if architectures else None,
        "lineage": bench.lineage[:-1],
        "remarks": [str(remark) for remark in bench.remarks],
    }
