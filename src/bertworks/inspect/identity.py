"""Which model an atlas is of: the hash of its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from bertworks.errors import BadConfig
from bertworks.files import read_json
from bertworks.model.model import Model


def model_hash(model: Model) -> str:
    """SHA-256 of names and weights, in single precision."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def check_atlas_model(path: Path, model: Model) -> None:
    """Refuse the atlas of other weights: what their heads do, nobody has measured of these. An atlas that does not say
    which model it is of passes."""
    content = read_json(path)
    recorded_model_hash = content.get("model") if isinstance(content, Mapping) else None
    if isinstance(recorded_model_hash, str) and recorded_model_hash != model_hash(model):
        cause = "an atlas of another model: its names are of other weights, even if these have been trained from them"
        remedy = "the atlas of this model: `bertworks atlas MODEL --corpus FILE --out atlas.json`"
        raise BadConfig(cause, place=str(path), remedy=remedy, code="not-comparable", fields=["atlas"])
