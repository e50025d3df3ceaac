"""The command line: one file per verb. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import TextIOWrapper

import typer

from bertworks import __version__
from bertworks.cli.corpus import app as corpus
from bertworks.cli.embed import embed
from bertworks.cli.fill import fill
from bertworks.cli.finetune import WithTasks, finetune
from bertworks.cli.import_ import import_
from bertworks.cli.info import info
from bertworks.cli.masks import masks
from bertworks.cli.params import params
from bertworks.cli.predict import compare, evaluate, predict
from bertworks.cli.prepare import prepare
from bertworks.cli.pretrain import WithKeys, pretrain, resume, verify_resume
from bertworks.cli.show import exit_process, show_error
from bertworks.cli.tokenize import tokenize
from bertworks.cli.tour import tour
from bertworks.cli.vocab import app as vocab
from bertworks.errors import BertworksError

app = typer.Typer(
    help="One workbench for the BERT family.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
VERBS: dict[str, Callable[..., None]] = {
    "tour": tour,
    "prepare": prepare,
    "masks": masks,
    "pretrain": pretrain,
    "resume": resume,
    "verify-resume": verify_resume,
    "finetune": finetune,
    "evaluate": evaluate,
    "predict": predict,
    "compare": compare,
    "embed": embed,
    "fill": fill,
    "tokenize": tokenize,
    "info": info,
    "params": params,
    "import": import_,
}
GROUPS = {"corpus": corpus, "vocab": vocab}
for name, verb in VERBS.items():
    app.command(name, cls={"pretrain": WithKeys, "finetune": WithTasks}.get(name))(verb)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bertworks {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """One workbench for the BERT family."""


def run() -> None:
    """The `bertworks` command. What the user can put right is said in plain words, with exit code 2 (3: a training
    diverged)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign shows a question mark
    try:
        app()
    except BertworksError as error:
        show_error(error)
        exit_process(error.exit_code)
