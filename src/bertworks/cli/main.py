"""The command line: one file per verb. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from bertworks import __version__
from bertworks.cli.atlas import atlas
from bertworks.cli.compare_heads import compare_heads
from bertworks.cli.corpus import app as corpus
from bertworks.cli.embed import embed
from bertworks.cli.fill import fill
from bertworks.cli.finetune import TasksHelpCommand, finetune
from bertworks.cli.import_ import import_
from bertworks.cli.info import info
from bertworks.cli.inspect import inspect
from bertworks.cli.masks import masks
from bertworks.cli.options import InputCommand
from bertworks.cli.params import params
from bertworks.cli.predict import compare, evaluate, predict
from bertworks.cli.prepare import prepare
from bertworks.cli.pretrain import SettingsHelpCommand, pretrain, resume, verify_resume
from bertworks.cli.show import RemarkHandler, checked_output, exit_process, show_error
from bertworks.cli.tokenize import tokenize
from bertworks.cli.tour import tour
from bertworks.cli.vocab import app as vocab
from bertworks.cli.words import similar, words
from bertworks.errors import BertworksError, NotFound

MAKES_VECTORS = "`bertworks embed MODEL INPUT --out vectors.npy` makes vectors"
OTHER_VERBS = {  # what others call a verb, or what Python alone has: what to do
    "similarity": f"{MAKES_VECTORS}; in Python, `bertworks.load(MODEL).similarity(texts, texts)` compares texts",
    **dict.fromkeys(("encode", "vectors", "vectorize"), MAKES_VECTORS),
    "train": "`bertworks finetune` trains a model for a task, `bertworks pretrain` one on plain text",
    **dict.fromkeys(("infer", "run"), "`bertworks predict RUN INPUT` predicts with a fine-tuned model"),
    **dict.fromkeys(("test", "score"), "`bertworks evaluate RUN ROWS.csv` scores a fine-tuned model"),
}


@contextmanager
def _interrupt_said() -> Iterator[None]:
    """typer would exit without a word."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        exit_process(128 + signal.SIGINT)


class VerbGroup(TyperGroup):
    """Who names a task where a verb is expected is told the verb; typer itself suggests verbs. Ctrl-C is said, unless
    the verb has done so."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _interrupt_said():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _interrupt_said():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in OTHER_VERBS:
            raise NotFound(f"no verb {args[0]!r}", remedy=OTHER_VERBS[args[0]], code="unknown-verb")
        if not get_close_matches(args[0], self.commands, n=1):
            from bertworks.tasks.source import similar_task

            task = similar_task(args[0])
            if task is not None:
                remedy = f"did you mean `bertworks finetune {task}`?"
                raise NotFound(f"no verb {args[0]!r}", remedy=remedy, code="unknown-verb")
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=VerbGroup, add_completion=False, pretty_exceptions_enable=False)
# By stage, in the order of the work: the function of each verb, and how it is usually called.
STAGES: dict[str, dict[str, tuple[Callable[..., None] | typer.Typer, str]]] = {
    "First look": {"tour": (tour, "bertworks tour")},
    "Text to shards": {
        "corpus": (corpus, "bertworks corpus docs --out docs.jsonl"),
        "vocab": (vocab, "bertworks vocab train INPUT --size 8000 --out VOCAB"),
        "prepare": (prepare, "bertworks prepare INPUT --tokenizer VOCAB --out SHARDS"),
        "masks": (masks, "bertworks masks SHARDS"),
    },
    "Pre-training": {
        "pretrain": (pretrain, "bertworks pretrain SHARDS --preset bert-mini --budget 10m --out RUN"),
        "resume": (resume, "bertworks resume RUN"),
        "verify-resume": (verify_resume, "bertworks verify-resume RUN"),
    },
    "Fine-tuning": {
        "finetune": (finetune, "bertworks finetune classify --train ROWS.csv --model minilm --out RUN"),
        "evaluate": (evaluate, "bertworks evaluate RUN ROWS.csv"),
        "predict": (predict, "bertworks predict RUN INPUT --out PREDICTIONS.csv"),
        "compare": (compare, "bertworks compare RUN RUN"),
    },
    "Using a model": {
        "embed": (embed, "bertworks embed MODEL INPUT --out vectors.npy"),
        "fill": (fill, "bertworks fill MODEL 'a [MASK] of tea'"),
        "tokenize": (tokenize, "bertworks tokenize MODEL 'your text'"),
    },
    "Looking inside": {
        "inspect": (inspect, "bertworks inspect MODEL --text 'your text' --out attention.html"),
        "atlas": (atlas, "bertworks atlas MODEL --corpus FILE --out atlas.html"),
        "compare-heads": (compare_heads, "bertworks compare-heads MODEL MODEL --corpus FILE"),
        "words": (words, "bertworks words MODEL bank --corpus FILE --out words.html"),
        "similar": (similar, "bertworks similar MODEL 'a text' 'another'"),
    },
    "Models": {
        "info": (info, "bertworks info MODEL"),
        "params": (params, "bertworks params bert-base"),
        "import": (import_, "bertworks import FOLDER --out MODEL"),
    },
}
VERBS = {name: verb for verbs in STAGES.values() for name, (verb, _) in verbs.items()}
COMMAND_CLASSES = {  # with other help than usual
    "pretrain": SettingsHelpCommand,
    "finetune": TasksHelpCommand,
    **dict.fromkeys(("embed", "fill", "tokenize"), InputCommand),
}
for stage, verbs in STAGES.items():
    for name, (verb, _) in verbs.items():
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name, rich_help_panel=stage)
        else:
            app.command(name, cls=COMMAND_CLASSES.get(name), rich_help_panel=stage)(verb)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"bertworks {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def main(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """One workbench for the BERT family: text in; tokenizers, models and predictions out."""
    if ctx.invoked_subcommand is None:
        _print_overview()


def _print_overview() -> None:
    """The verbs in the order of the work."""
    typer.echo(f"bertworks {__version__}: one workbench for the BERT family\n")
    for stage, verbs in STAGES.items():
        for title, (_, usage) in zip((stage, *[""] * len(verbs)), verbs.values(), strict=False):
            typer.echo(f"  {title:16} {usage}")
    typer.echo("\n`bertworks VERB --help` explains one; a MODEL is a folder, a run, 'minilm' or a name on the Hub.")


def run() -> None:
    """The `bertworks` command. An error that the user can correct is explained, with exit code 2 (3: a training
    diverged); there is no traceback."""
    logger = logging.getLogger("bertworks")
    logger.addHandler(RemarkHandler())
    logger.propagate = False
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")  # a terminal that cannot show a character shows a question mark
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout = checked_output(sys.stdout)
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # an error of the interpreter's own flush, at its end, could not be explained
    except BrokenPipeError:
        exit_process(1)
    except BertworksError as error:
        show_error(error)
        exit_process(error.exit_code)
