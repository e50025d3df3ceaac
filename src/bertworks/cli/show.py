"""Printing: tables for people, JSON for programs, progress on a terminal only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from bertworks.errors import BertworksError

if TYPE_CHECKING:
    from rich.console import Console

_json_wanted: ContextVar[bool] = ContextVar("json_wanted", default=False)
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def _note_json(wanted: bool) -> bool:
    """What `--json` was parsed as is what errors go by: the same word may be a text, or the value of another option."""
    _json_wanted.set(wanted)
    return wanted


def _note_quiet(wanted: bool) -> bool:
    _quiet.set(wanted)
    return wanted


AsJson = Annotated[bool, typer.Option("--json", callback=_note_json, is_eager=True, help="Print JSON, for programs.")]
AsJsonLines = Annotated[
    bool,
    typer.Option(
        "--json", callback=_note_json, is_eager=True, help="Print JSON lines, with all that is known of a prediction."
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", callback=_note_quiet, is_eager=True, help="No progress and no remarks; errors are printed."
    ),
]


def is_json_wanted() -> bool:
    return _json_wanted.get()


def is_quiet() -> bool:
    return _quiet.get()


def say(text: str) -> None:
    """A remark for people, on standard error."""
    if not is_quiet():
        typer.echo(text, err=True)


def report(text: str) -> None:
    """What a verb did, for people, on standard output."""
    if not is_quiet():
        typer.echo(text)


def console() -> Console:
    from rich.console import Console

    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return Console(highlight=False, emoji=False, soft_wrap=not on_terminal)


def status(text: str) -> AbstractContextManager[Any]:
    """A spinner, on a terminal."""
    return nullcontext() if is_quiet() else console().status(text)


def show_json(values: Any) -> None:
    typer.echo(json.dumps(values, ensure_ascii=False, indent=2))


def show_error(error: BertworksError) -> None:
    if is_json_wanted():
        typer.echo(json.dumps({"error": error.as_dict()}, ensure_ascii=False), err=True)
        return
    typer.secho(f"error ({error.code}): {error.cause}", fg="red", err=True)
    for title, text in (("where", error.place), ("what to do", error.remedy)):
        if text:
            typer.echo(f"  {title}: {text}", err=True)


def exit_process(code: int) -> NoReturn:
    """End the process. Gloo's threads outlive their group once DistributedDataParallel has used it; if the interpreter
    were taken down while one of them lets go of a tensor, the process would abort, with all its work done. So processes
    of torchrun just stop."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody may be listening any more
            stream.flush()
    os._exit(code)


@contextmanager
def progress_bar(title: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """`advance(done, total)`, drawn on standard error if that is a terminal; bytes with their speed."""
    from rich import progress as bars
    from rich.console import Console

    amount = (bars.DownloadColumn(), bars.TransferSpeedColumn()) if in_bytes else (bars.MofNCompleteColumn(),)
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), *amount, bars.TimeRemainingColumn())
    silent = is_quiet() or sys.stderr is None or not sys.stderr.isatty()
    # Standard output is not the bar's: what is printed there may go to a file.
    still: dict[str, Any] = {"redirect_stdout": False, "redirect_stderr": False}
    with bars.Progress(*columns, console=Console(stderr=True), transient=True, disable=silent, **still) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def show_table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(*head, box=None, header_style="bold", padding=(0, 2, 0, 1))
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console().print(table)
