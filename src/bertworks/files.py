"""Files: untrusted small ones read with checks, atomic writes, and folders locked for one writer at a time."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from bertworks.errors import BadConfig, NotFound, SaveFailed

LOCK = ".lock"
JsonObject = dict[str, Any]  # read from a file: whoever uses a value checks it
MAX_FILE_BYTES = 256 * 2**20  # of a file that is read into memory: configs, vocabularies, records


def read_file(path: Path) -> bytes:
    """The content of a regular file of bounded size."""
    try:
        if not path.exists():
            raise NotFound(
                f"no {path.name} in this folder",
                place=str(path.parent),
                remedy="a model folder has one",
                code="missing-file",
            )
        if not path.is_file():  # reading a pipe could block for ever, a device may never end
            raise BadConfig("not a regular file", place=str(path), code="not-a-file")
        if path.stat().st_size > MAX_FILE_BYTES:
            cause = f"file too large: {path.stat().st_size:,} bytes, at most {MAX_FILE_BYTES:,} are read"
            raise BadConfig(cause, place=str(path), code="file-too-large")
        return path.read_bytes()
    except OSError as error:
        raise NotFound(f"cannot be read: {error.strerror}", place=str(path), code="unreadable") from None


def read_json(path: Path) -> JsonObject:
    values = read_any_json(path)
    if not isinstance(values, dict):
        raise BadConfig("not a JSON object", place=str(path))
    return values


def read_any_json(path: Path) -> Any:
    return parse_json(read_file(path), path)


class DuplicateKey(ValueError):
    """A JSON object has a key twice: which of the two values was meant cannot be told."""


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """For `json.loads` as `object_pairs_hook`, which by itself would take the last of several values."""
    values = dict(pairs)
    if len(values) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise DuplicateKey(f"the key {key!r} occurs twice in one object")
    return values


def parse_json(content: bytes, path: Path) -> Any:
    try:
        values = json.loads(content, object_pairs_hook=unique_keys)
        json.dumps(values, ensure_ascii=False).encode()  # lone surrogates can be parsed, but not encoded again
    except DuplicateKey as error:
        raise BadConfig(str(error), place=str(path), remedy="remove one of the two", code="duplicate-key") from None
    except (ValueError, RecursionError) as error:
        raise BadConfig(f"not a JSON file: {str(error)[:200]}", place=str(path), code="not-json") from None
    return values


@contextmanager
def save_errors(path: Path, remedy: str | None = None) -> Iterator[None]:
    """Errors of the system, such as a full disk, as a `SaveFailed` that names what was to be written."""
    try:
        yield
    except OSError as error:
        cause = f"could not write: {error.strerror or error}"
        raise SaveFailed(cause, place=str(path), remedy=remedy) from None


def check_not_input(out: Path, source: str) -> None:
    """Before anything is computed: whether `out` would replace the file or folder that is read. `-`: standard input."""
    # Not Path.exists, which raises for names that cannot be.
    if source != "-" and os.path.exists(out) and out.resolve() == Path(source).resolve():  # noqa: PTH110
        cause = "output would overwrite the input"
        raise SaveFailed(cause, place=str(out), remedy="name another with --out", code="would-replace-input")


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` once it is written and synced; until then the old content stays."""
    path = path.resolve()  # write through a symbolic link instead of replacing it
    temporary = path.with_name(f".{uuid4().hex}.new")
    try:
        with save_errors(path):
            if path.exists() and not path.is_file():
                remedy = "give the path of a file"
                raise SaveFailed("not a regular file", place=str(path), remedy=remedy, code="not-a-file")
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_tree(path.parent, deep=False)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_new_folder(folder: Path) -> None:
    """Whether `new_folder` can write there, for callers that compute for long before they do."""
    with save_errors(folder, "give another path"):  # such as a name that is too long
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            cause = "this path exists already"
            raise SaveFailed(cause, place=str(folder), remedy="give the path of a new folder", code="already-exists")
        existing = next(parent for parent in folder.absolute().parents if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        remedy = "give another path"
        raise SaveFailed("cannot write here", place=str(existing), remedy=remedy, code="not-writable")


@contextmanager
def new_folder(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` once it is written and synced. An existing folder is
    replaced in one step if `replace`, else refused; an empty one may always be filled."""
    if not replace:
        check_new_folder(folder)
    temporary = folder.parent / f".{uuid4().hex}.new"
    try:
        with save_errors(folder):
            temporary.mkdir(parents=True)
            yield temporary
            sync_tree(temporary)
            exchange(temporary, folder)
            sync_tree(folder.parent, deep=False)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def exchange(new: Path, folder: Path) -> None:
    """Rename `new` to `folder`. If `folder` exists, the two swap names: the old content is afterwards in `new`."""
    if not folder.exists():
        new.rename(folder)
        return
    if not _swap(new, folder):
        # No atomic swap on this system: two renames, undone if the second fails.
        old = new.with_suffix(".old")
        folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:  # also on Ctrl-C: the old folder must get its name back
            old.rename(folder)
            raise
        old.rename(new)


def _swap(a: Path, b: Path) -> bool:
    """Swap two paths atomically with Linux's renameat2 and RENAME_EXCHANGE. False where there is no such call."""
    if os.name != "posix":  # ctypes.CDLL(None) needs dlopen
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    at_fdcwd = -100
    rename_exchange = 2
    return renameat2 is not None and renameat2(at_fdcwd, os.fsencode(a), at_fdcwd, os.fsencode(b), rename_exchange) == 0


def write_json(path: Path, values: object) -> None:
    with atomic_write(path) as file:
        file.write((json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode())


def sync_tree(folder: Path, *, deep: bool = True) -> None:
    """fsync a folder, and with `deep` everything below it: a rename is durable only once the files and the folder that
    holds them are on the disk."""
    for path in [*(folder.rglob("*") if deep else ()), folder]:
        if path.is_symlink():
            continue
        if os.name != "posix" and path.is_dir():  # folders cannot be opened there
            continue
        descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock file; the folder is created, and removed again if nothing was written into it."""
    with _locked(folder / LOCK, folder):
        yield


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """The same for a file."""
    with _locked(path.with_name(f".{path.name}{LOCK}"), path):
        yield


@contextmanager
def _locked(lock_file: Path, place: Path) -> Iterator[None]:
    """The lock file is removed afterwards. That of a killed process stays, but the system has released it."""
    from filelock import FileLock, Timeout

    lock = FileLock(lock_file, timeout=0, mode=0o644)
    try:
        is_new = not lock_file.parent.exists()
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        cause = "another process is writing here"
        raise SaveFailed(cause, place=str(place), remedy="wait for it, or use another name", code="in-use") from None
    except OSError as error:
        raise SaveFailed(f"cannot write here: {error.strerror}", place=str(place), code="not-writable") from None
    try:
        yield
    finally:
        with suppress(OSError):
            lock_file.unlink()
        lock.release()
        if is_new:
            with suppress(OSError):  # it is not empty
                lock_file.parent.rmdir()
