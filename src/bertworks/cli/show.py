"""Printing: tables for people, JSON for programs, progress on a terminal only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from bertworks.errors import BertworksError

if TYPE_CHECKING:
    from rich.console import Console

_json_requested: ContextVar[bool] = ContextVar("json_requested", default=False)
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


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


def status(text: str) -> AbstractContextManager[object]:
    """A spinner, on a terminal."""
    return nullcontext() if is_quiet() else console().status(text)


def show_json(values: object) -> None:
    typer.echo(json.dumps(values, ensure_ascii=False, indent=2))


def show_error(error: BertworksError) -> None:
    if is_json_requested():
        typer.echo(json.dumps({"error": error.as_dict()}, ensure_ascii=False), err=True)
        return
    typer.secho(f"error ({error.code}): {error.cause}", fg="red", err=True)
    for title, text in (("where", error.place), ("what to do", error.remedy)):
        if text:
            typer.echo(f"  {title}: {text}", err=True)


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
def progress_bar(title: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """`advance(done, total)`, drawn on standard error if that is a terminal; bytes with their speed."""
    from rich import progress as bars
    from rich.console import Console

    amount = (bars.DownloadColumn(), bars.TransferSpeedColumn()) if in_bytes else (bars.MofNCompleteColumn(),)
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), *amount, bars.TimeRemainingColumn())
    progress = bars.Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # what is printed there may go to a file
        redirect_stderr=False,
        disable=is_quiet() or sys.stderr is None or not sys.stderr.isatty(),
    )
    with progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def show_table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=None, header_style="bold", padding=(0, 2, 0, 1))
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console().print(table)
