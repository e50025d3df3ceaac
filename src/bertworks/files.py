"""Files: small ones read without trust, all of them written whole or not at all, folders with one writer at a time."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from bertworks.errors import BadConfig, NotFound, SaveFailed

MAX_BYTES = 256 * 2**20


def read_file(path: Path) -> bytes:
    try:
        if not path.exists():
            raise NotFound(
                f"no {path.name} in this folder",
                place=str(path.parent),
                remedy="a model folder has one",
                code="missing-file",
            )
        if not path.is_file():  # a pipe would wait for ever, a device never ends
            raise BadConfig("not a regular file", place=str(path), code="not-a-file")
        if path.stat().st_size > MAX_BYTES:
            raise BadConfig(
                f"{path.stat().st_size:,} bytes are too many for such a file", place=str(path), code="file-too-large"
            )
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
        raise BadConfig(f"not a JSON file: {str(error)[:200]}", place=str(path), code="not-json") from None
    return values


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name, synced to the disk, when all of it is written; until then the old one
    stays."""
    path = path.resolve()  # a link stays a link
    if path.exists() and not path.is_file():
        raise SaveFailed("this is not a regular file", place=str(path), remedy="name a file", code="not-a-file")
    new = path.with_name(f".{uuid4().hex}.new")
    try:
        with new.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync_tree(path.parent, deep=False)
    except OSError as error:
        raise SaveFailed(f"could not write: {error.strerror or error}", place=str(path)) from None
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder that appears under its name when all of it is written. What is there already is replaced in one step, or
    refused."""
    if not replace and folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise SaveFailed(
            "there is something of this name already",
            place=str(folder),
            remedy="name a new folder",
            code="already-exists",
        )
    new = folder.parent / f".{uuid4().hex}.new"
    try:
        new.mkdir(parents=True)
        yield new
        sync_tree(new)
        exchange(new, folder)
        sync_tree(folder.parent, deep=False)
    except OSError as error:
        raise SaveFailed(f"could not write: {error.strerror or error}", place=str(folder)) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def exchange(new: Path, folder: Path) -> None:
    """Give a folder its name; one that has it already is afterwards called `new`."""
    if not folder.exists():
        new.rename(folder)
        return
    if not _swap(new, folder):
        # No atomic exchange on this system: two renames, undone if the second fails.
        old = new.with_suffix(".old")
        folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:  # also when interrupted: the old folder must have its name again
            old.rename(folder)
            raise
        old.rename(new)


def _swap(a: Path, b: Path) -> bool:
    """Linux's renameat2 with RENAME_EXCHANGE: the two names change places in one step. False where there is no such
    call."""
    if os.name != "posix":  # other systems have no library of the process itself
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    at_cwd, exchange = -100, 2
    return renameat2 is not None and renameat2(at_cwd, os.fsencode(a), at_cwd, os.fsencode(b), exchange) == 0


def write_json(path: Path, values: Any) -> None:
    with whole_file(path) as file:
        file.write((json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode())


def sync_tree(folder: Path, *, deep: bool = True) -> None:
    """A new name is safe only when what it names, and the folder it stands in, are on the disk."""
    for path in [*(folder.rglob("*") if deep else ()), folder]:
        if path.is_symlink():
            continue
        if os.name != "posix" and path.is_dir():  # folders cannot be opened there
            continue
        handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time. The lock goes with the process, however that ends, so it is never stale."""
    with _locked(folder / ".lock", folder):
        yield


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """The same for a file; nothing is left of the lock afterwards."""
    lock = path.with_name(f".{path.name}.lock")
    with _locked(lock, path):
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()


@contextmanager
def _locked(lock_file: Path, place: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(lock_file, timeout=0, mode=0o644)
    try:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        cause = "another process is writing here"
        raise SaveFailed(cause, place=str(place), remedy="wait for it, or name another", code="in-use") from None
    except OSError as error:
        raise SaveFailed(f"cannot write here: {error.strerror}", place=str(place), code="not-writable") from None
    try:
        yield
    finally:
        lock.release()
