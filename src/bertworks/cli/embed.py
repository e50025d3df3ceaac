"""`bertworks embed`: one vector for each line of a file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bertworks.cli.options import Device, Threads, use_threads
from bertworks.cli.show import AsJson, ModelName, progress_bar, show_json
from bertworks.errors import BadText, NotFound, SaveFailed, TooLong
from bertworks.files import whole_file
from bertworks.text.ledger import Ledger, OnLong


def embed(
    file: Annotated[str, typer.Argument(help="A text file, one text per line; - for standard input.")],
    model: ModelName,
    out: Annotated[Path, typer.Option("--out", help="Where the vectors go: a .npy file, (lines, hidden).")],
    pooling: Annotated[
        str | None, typer.Option(help="mean, first, last or max; the folder's own if not given.")
    ] = None,
    on_long: Annotated[OnLong, typer.Option(help="What to do with texts longer than the model.")] = "window",
    batch_tokens: Annotated[int, typer.Option(help="Tokens in a batch.")] = 2048,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Turn each line of a file into a vector. Nothing is cut in silence: long lines are read in windows, and
    counted."""
    from dataclasses import asdict

    import numpy as np

    from bertworks.text.tokenizer import check_texts
    from bertworks.train.runtime import choose_device
    from bertworks.workbench import load

    out = out.resolve()
    _check_target(out, file)
    lines = _read_lines(file)
    with _lines_named(file):
        check_texts(lines)
    use_threads(threads)
    bench, ledger = load(model, device=choose_device(device)), Ledger()
    with progress_bar("tokens") as advance, _lines_named(file):
        vectors = bench.encode(
            lines, pooling, on_long=on_long, batch_tokens=batch_tokens, ledger=ledger, progress=advance
        )
    with whole_file(out) as target:
        np.save(target, vectors)
    if as_json:
        show_json({"out": str(out), "shape": list(vectors.shape), "ledger": asdict(ledger)})
    else:
        typer.echo(f"{vectors.shape[0]:,} vectors of {vectors.shape[1]} numbers written to {out}")
        typer.echo(str(ledger))


def _read_lines(file: str) -> list[str]:
    if file == "-" and sys.stdin is None:
        raise NotFound("standard input is closed", place=file, code="no-stdin")
    if file != "-" and Path(file).is_char_device():
        raise NotFound("this is a device, not a file", place=file, code="not-a-file")
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except FileNotFoundError:
        raise NotFound("no such file", place=file) from None
    except OSError as error:
        raise NotFound(f"cannot read it: {error.strerror}", place=file, code="unreadable") from None
    lines = []
    for number, raw in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            lines.append(raw.decode("utf-8").rstrip("\r"))
        except UnicodeDecodeError as error:
            raise BadText(
                f"not UTF-8 at byte {error.start} of the line", place=f"{file}, line {number}", code="not-utf8"
            ) from None
    return lines


@contextmanager
def _lines_named(file: str) -> Iterator[None]:
    """What is said of a text by its number is said of a line."""
    try:
        yield
    except (BadText, TooLong) as error:
        match = re.match(r"text (\d+)", error.place or "")
        if match is None:
            raise
        place = f"{file}, line {int(match[1]) + 1}{match.string[match.end() :]}"
        raise type(error)(error.cause, place=place, remedy=error.remedy, code=error.code) from None


def _check_target(out: Path, file: str) -> None:
    """Before the work, not after it."""
    if out.exists() and not out.is_file():
        raise SaveFailed(
            "this is not a regular file", place=str(out), remedy="name a file, vectors.npy", code="not-a-file"
        )
    if out.exists() and file != "-" and out == Path(file).resolve():
        raise SaveFailed(
            "this is the file with the texts", place=str(out), remedy="name another file", code="would-replace-input"
        )
    if not out.parent.is_dir():
        raise SaveFailed("there is no such folder", place=str(out.parent), code="missing-folder")
    if not os.access(out.parent, os.W_OK):
        raise SaveFailed("this folder cannot be written to", place=str(out.parent), code="not-writable")
