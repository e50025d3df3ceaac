"""Printing: tables for people, JSON for programs, progress on a terminal only. Names, labels and texts are other
people's: whatever is printed here is made `harmless`."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Protocol, TextIO, TypeVar

import typer

from bertworks.errors import BertworksError, SaveFailed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console

    from bertworks.data.corpus import Corpus

_json_requested: ContextVar[bool] = ContextVar("json_requested", default=False)
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
# Control characters but tab and line feed, and those that make text run in the other direction.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _note_json(requested: bool) -> bool:
    """Errors are printed as JSON too. The parsed option decides: in sys.argv, `--json` may also be a text, or the value
    of another option."""
    _json_requested.set(requested)
    return requested


def _note_quiet(requested: bool) -> bool:
    _quiet.set(requested)
    return requested


AsJson = Annotated[bool, typer.Option("--json", callback=_note_json, is_eager=True, help="Print JSON, for programs.")]
AsJsonLines = Annotated[
    bool,
    typer.Option(
        "--json", callback=_note_json, is_eager=True, help="Print JSON lines, with every field of a prediction."
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", callback=_note_quiet, is_eager=True, help="No progress and no remarks; errors are printed."
    ),
]


def is_json_requested() -> bool:
    return _json_requested.get()


def is_quiet() -> bool:
    return _quiet.get()


def harmless(text: str) -> str:
    """Characters that a terminal would obey, written as escapes; in JSON, which has the same ones, nothing changes."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def say(text: str) -> None:
    """A remark for people, on standard error."""
    if not is_quiet():
        typer.echo(harmless(text), err=True)


def report(text: str) -> None:
    """What a verb did, for people, on standard output."""
    if not is_quiet():
        typer.echo(harmless(text))


class RemarkHandler(logging.Handler):
    """Remarks of the library, which come by `logging` since it may run in somebody else's process."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # a closed terminal is no reason to stop
            say(record.getMessage())


def write_results(text: str) -> None:
    """To standard output: as it is where a program reads it, harmless on a terminal."""
    if sys.stdout is not None:
        sys.stdout.write(harmless(text) if _is_terminal(sys.stdout) else text)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def console(*, stderr: bool = False) -> Console:
    from bertworks.cli.console import HarmlessConsole

    return HarmlessConsole(
        stderr=stderr, highlight=False, emoji=False, soft_wrap=not stderr and not _is_terminal(sys.stdout)
    )


def status(text: str) -> AbstractContextManager[object]:
    """A spinner, on a terminal."""
    return nullcontext() if is_quiet() else console().status(text)


def metric_title(name: str) -> str:
    return "mean of pearson and spearman" if name == "pearson_spearman" else name.replace("_", " ")


def show_json(values: object) -> None:
    typer.echo(harmless(json.dumps(values, ensure_ascii=False, indent=2)))


def show_error(error: BertworksError) -> None:
    if is_json_requested():
        typer.echo(harmless(json.dumps({"error": error.as_dict()}, ensure_ascii=False)), err=True)
        return
    typer.secho(harmless(f"error ({error.code}): {error.cause}"), fg="red", err=True)
    for title, text in (("where", error.place), ("what to do", error.remedy)):
        if text:
            typer.echo(harmless(f"  {title}: {text}"), err=True)


class _CheckedFile(FileIO):
    """Standard output. Its first error is ours, since an OSError does not say which file is meant; what is written
    after that is lost."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.is_terminal = self.isatty()
        self.failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return len(memoryview(data)) if self.failed else super().write(data)
        except BrokenPipeError:  # the reader has seen enough, as `head` has
            self.failed = True
            raise
        except OSError as error:
            self.failed = True
            if self.is_terminal:  # closed: nobody is listening any more
                return len(memoryview(data))
            remedy = "make room there, or redirect it elsewhere"
            cause = f"could not write: {error.strerror}"
            raise SaveFailed(cause, place="standard output", remedy=remedy, code="output-failed") from None


def checked_output(stream: TextIOWrapper) -> TextIOWrapper:
    """The same standard output with errors of ours; what a terminal cannot show is a question mark."""
    file = BufferedWriter(_CheckedFile(stream.fileno()))
    by_line = stream.line_buffering or stream.write_through  # of python -u
    return TextIOWrapper(file, stream.encoding, errors="replace", line_buffering=by_line)


def exit_process(code: int) -> NoReturn:
    """End the process. Gloo's threads outlive their group once DistributedDataParallel has used it; if one of them
    releases a tensor while the interpreter shuts down, the process aborts, with all its work done. So processes of
    torchrun skip the shutdown."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody may be listening any more
            stream.flush()
    os._exit(code)


@contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C in a verb that keeps its finished parts."""
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted; what is finished is kept: the same command continues")
        exit_process(128 + signal.SIGINT)


@contextmanager
def progress_bar(title: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """`advance(done, total)`, drawn on standard error if that is a terminal; bytes with their speed."""
    from rich import progress as bars

    amount = (bars.DownloadColumn(), bars.TransferSpeedColumn()) if in_bytes else (bars.MofNCompleteColumn(),)
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), *amount, bars.TimeRemainingColumn())
    progress = bars.Progress(
        *columns,
        console=console(stderr=True),
        transient=True,
        redirect_stdout=False,  # what is printed there may go to a file
        redirect_stderr=False,
        disable=is_quiet() or not _is_terminal(sys.stderr),
    )
    with progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def corpus_progress(corpus: Corpus | None, title: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar for what is made of a corpus; then what was skipped or replaced in it, and which column was taken.
    None: there is no corpus."""
    with progress_bar(title) as progress:
        yield progress
    for remark in [] if corpus is None else corpus.stats.remarks():
        say(str(remark))


class Result(Protocol):
    """What a verb makes of a model, as JSON and as a file."""

    def as_dict(self) -> dict[str, Any]: ...

    @property
    def save(self) -> Callable[..., Path]: ...


SomeResult = TypeVar("SomeResult", bound=Result)


def show_result(
    result: SomeResult,
    print_tables: Callable[[SomeResult], None],
    *,
    as_json: bool,
    out: Path | None,
    title: str,
    **names: object,
) -> None:
    """As JSON or as tables; then as a file, whose path is said after its title. `names`: of models, for the file."""
    if as_json:
        show_json(result.as_dict())
    else:
        print_tables(result)
    if out is not None:
        result.save(out, **names)
        say(f"{title:<9} {out}")


def show_table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 1))
    for title in header:
        table.add_column(Text(title))
    for row in rows:
        table.add_row(*(Text(harmless(str(cell))) for cell in row))
    console().print(table)
