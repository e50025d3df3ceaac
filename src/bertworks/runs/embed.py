"""Vectors of a file, read and written in batches: memory stays flat, and an interrupted call is resumed.

    .OUT.partial        the vectors so far, after room for a header
    .OUT.partial.json   which model and file they are of, how many, and their ledger; replaced after each batch

At the end the header is written, and the file gets its name.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np

from bertworks.data.corpus import ReadProgress
from bertworks.datasets.columns import NamedColumns
from bertworks.datasets.inputs import INPUT_BATCH_SIZE, InputBatch, Inputs
from bertworks.datasets.schema import Schema
from bertworks.errors import BadText, BertworksError, SaveFailed
from bertworks.files import check_not_input, locked_file, read_json, save_errors, sync_tree, write_json
from bertworks.predictor import Embedder, Vectors
from bertworks.text.ledger import Ledger, OnLong
from bertworks.workbench import Workbench

HEADER_BYTES = 128  # numpy leaves room for any number of rows in it


@dataclass(frozen=True)
class EmbeddedFile:
    rows: int
    width: int
    resumed_at: int  # rows that an earlier, interrupted call had embedded
    ledger: Ledger


def text_inputs(file: str, out: Path, columns: NamedColumns | None = None, *, skip_bad: bool = False) -> Inputs:
    """A file of texts, to be embedded into `out`; both are checked before anything is computed."""
    with save_errors(out):  # such as a name that is too long
        _check_output(out, file)
    inputs = Inputs(file, Schema(), named=columns, skip_bad=skip_bad, every_line=True)
    if inputs.n_unplaced:
        cause = f"{inputs.n_unplaced:,} rows cannot be parsed, so the vectors after them would not stand at their rows"
        place = next(row.place for row in (*inputs.report.malformed, *inputs.report.bad))
        raise BadText(cause, place=place, remedy="correct them; `bertworks predict` names all", code="unplaced-rows")
    _check_encoding(inputs)
    return inputs


def _check_encoding(inputs: Inputs) -> None:
    """Of what has been read: a file as a whole, of standard input the batches so far."""
    if inputs.report.n_replaced and not inputs.skip_bad:
        remedy = "save it as UTF-8, or --skip-bad goes on with U+FFFD in their place"
        place = next(iter(inputs.report.undecodable), inputs.file)
        cause = f"{inputs.report.n_replaced:,} characters are not UTF-8"
        raise BadText(cause, place=place, remedy=remedy, code="not-utf8")


def embed_file(
    bench: Workbench,
    inputs: Inputs,
    out: Path,
    *,
    pooling: str | None = None,
    on_long: OnLong = "window",
    batch_tokens: int,
    progress: ReadProgress = lambda done, total: None,
) -> EmbeddedFile:
    """A vector for each line or row of the file, in its order; NaN where `inputs` skips an invalid one."""
    embedder = bench.embedder(pooling)
    identity = _identity(bench, embedder, inputs, on_long, batch_tokens) if inputs.file != "-" else None
    out = out.resolve()
    with locked_file(out), _PartialVectors.open(out, embedder.width, identity) as vectors:
        resumed_at = vectors.rows
        rows = 0
        for batch in inputs:
            _check_encoding(inputs)
            rows += len(batch.examples)
            if rows > vectors.rows:
                vectors.append(_embed(embedder, batch, on_long, batch_tokens, vectors.ledger))
            progress(rows, inputs.total)
        vectors.finish(out)
    return EmbeddedFile(vectors.rows, embedder.width, resumed_at, vectors.ledger)


def _embed(embedder: Embedder, batch: InputBatch, on_long: OnLong, batch_tokens: int, ledger: Ledger) -> Vectors:
    vectors = np.full((len(batch.examples), embedder.width), np.nan, np.float32)
    rows = [row for row, example in enumerate(batch.examples) if example is not None]
    if rows:
        texts = [example.texts[0] for example in batch.valid]
        places = [example.place for example in batch.valid]
        vectors[rows] = embedder.encode(texts, on_long=on_long, ledger=ledger, batch_tokens=batch_tokens, places=places)
    return vectors


def _identity(bench: Workbench, embedder: Embedder, inputs: Inputs, on_long: OnLong, batch_tokens: int) -> str:
    """A hash of everything that the vectors depend on."""
    digest = hashlib.sha256()
    for name, tensor in bench.model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    with Path(inputs.file).open("rb") as file:
        digest.update(hashlib.file_digest(file, "sha256").digest())
    tokenizer = bench.tokenizer.fingerprint
    settings = [tokenizer, repr(embedder.pooling), embedder.limit, on_long, batch_tokens, INPUT_BATCH_SIZE]
    columns = [str(remark) for remark in inputs.remarks]
    digest.update(json.dumps([settings, columns, inputs.skip_bad]).encode())
    return digest.hexdigest()


@dataclass
class _PartialVectors:
    """The unfinished file of vectors."""

    file: IO[bytes]
    state_file: Path
    width: int
    identity: str | None
    rows: int
    ledger: Ledger

    @classmethod
    def open(cls, out: Path, width: int, identity: str | None) -> _PartialVectors:
        """Positioned after the vectors of an interrupted call of the same identity, if there are any."""
        path = out.with_name(f".{out.name}.partial")
        state_file = out.with_name(f".{out.name}.partial.json")
        rows, ledger = _read_state(path, state_file, identity, width)
        with save_errors(out):
            if not rows:
                state_file.unlink(missing_ok=True)  # it is of vectors that are truncated now
            file = path.open("r+b" if rows else "wb")
            file.truncate(HEADER_BYTES + rows * width * 4)
            file.seek(0, os.SEEK_END)
        return cls(file, state_file, width, identity, rows, ledger)

    def __enter__(self) -> _PartialVectors:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()
        if self.identity is None:  # of standard input, which cannot be read again: nothing to resume
            Path(self.file.name).unlink(missing_ok=True)
            self.state_file.unlink(missing_ok=True)

    def append(self, vectors: Vectors) -> None:
        with save_errors(Path(self.file.name)):
            self.file.write(np.ascontiguousarray(vectors, "<f4").tobytes())
            self._sync()
        self.rows += len(vectors)
        write_json(self.state_file, {"identity": self.identity, "rows": self.rows, "ledger": asdict(self.ledger)})

    def finish(self, out: Path) -> None:
        with save_errors(out):
            self.file.seek(0)
            header: dict[str, object] = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.width)}
            np.lib.format.write_array_header_1_0(self.file, header)
            assert self.file.tell() == HEADER_BYTES
            self._sync()
            Path(self.file.name).replace(out)
            sync_tree(out.parent, deep=False)
        self.state_file.unlink(missing_ok=True)

    def _sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())


def _read_state(path: Path, state_file: Path, identity: str | None, width: int) -> tuple[int, Ledger]:
    """The number of rows so far, and their ledger; 0, if they are not of this identity."""
    if identity is None or not path.is_file() or not state_file.is_file():
        return 0, Ledger()
    try:
        values = read_json(state_file)
        rows = int(values["rows"])
        if values["identity"] == identity and path.stat().st_size >= HEADER_BYTES + rows * width * 4:
            return rows, Ledger(**values["ledger"])
    except (BertworksError, KeyError, TypeError, ValueError):  # damaged: start from the first row
        return 0, Ledger()
    return 0, Ledger()


def _check_output(out: Path, file: str) -> None:
    """Before anything is computed."""
    out = out.resolve()
    if out.exists() and not out.is_file():
        cause = "this is not a regular file"
        raise SaveFailed(cause, place=str(out), remedy="name a file, vectors.npy", code="not-a-file")
    check_not_input(out, file)
    if not out.parent.is_dir():
        raise SaveFailed("there is no such folder", place=str(out.parent), code="missing-folder")
    if not os.access(out.parent, os.W_OK):
        raise SaveFailed("this folder cannot be written to", place=str(out.parent), code="not-writable")
