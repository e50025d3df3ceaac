"""Small files, read without trust: regular files only, of bounded size, and never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertworks.errors import BadConfig, NotFound

MAX_BYTES = 256 * 2**20


def read_file(path: Path) -> bytes:
    try:
        if not path.exists():
            raise NotFound(f"no {path.name} in this folder", place=str(path.parent), remedy="a model folder has one")
        if not path.is_file():  # a pipe would wait for ever, a device never ends
            raise BadConfig("not a regular file", place=str(path))
        if path.stat().st_size > MAX_BYTES:
            raise BadConfig(f"{path.stat().st_size:,} bytes are too many for such a file", place=str(path))
        return path.read_bytes()
    except OSError as error:
        raise NotFound(f"cannot be read: {error.strerror}", place=str(path)) from None


def read_json(path: Path) -> dict[str, Any]:
    values = read_any_json(path)
    if not isinstance(values, dict):
        raise BadConfig("not a JSON object", place=str(path))
    return values


def read_any_json(path: Path) -> Any:
    return parse_json(read_file(path), path)


def parse_json(content: bytes, path: Path) -> Any:
    try:
        values = json.loads(content)
        json.dumps(values, ensure_ascii=False).encode()  # half characters could be read, but never written again
    except (ValueError, RecursionError) as error:
        raise BadConfig(f"not a JSON file: {str(error)[:200]}", place=str(path)) from None
    return values
