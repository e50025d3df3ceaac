"""Arguments and options that several verbs share, under one name each: `bertworks VERB MODEL INPUT --out OUT`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from bertworks.cli.show import say
from bertworks.errors import BadConfig

if TYPE_CHECKING:
    from bertworks.data.corpus import Corpus
    from bertworks.datasets.columns import NamedColumns
    from bertworks.datasets.schema import Schema
    from bertworks.workbench import Workbench

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model folder, a run, 'minilm', a name on the Hub.")
]
StartModel = Annotated[str, typer.Option("--model", help="Start from it: a model folder, a run, 'minilm', a Hub name.")]
Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT", help="Text, JSON lines, CSV, TSV or Parquet, folders of them; - for standard input."
    ),
]
Column = Annotated[str | None, typer.Option(help="Column of the text, in tables; guessed and reported if not given.")]
LineDocs = Annotated[bool, typer.Option("--line-docs", help="Every line of a text file is a document.")]
FileDocs = Annotated[bool, typer.Option("--file-docs", help="Every text file is a document.")]
Text = Annotated[str | None, typer.Option(help="Column of the text; as in training, or guessed.")]
Text2 = Annotated[str | None, typer.Option(help="Column of the second text of a pair.")]
Question = Annotated[str | None, typer.Option(help="span: column of the question.")]
Context = Annotated[str | None, typer.Option(help="span: column of the passage with the answer.")]
Choices = Annotated[list[str] | None, typer.Option(help="choice: column of each choice, or the one that lists them.")]
Label = Annotated[
    list[str] | None, typer.Option(help="Column of the labels; several: one for each class (multilabel).")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip invalid rows, and count them.")]
OnLongOption = Annotated[
    Literal["window", "truncate", "error"] | None,
    typer.Option("--on-long", help="Texts longer than the model: read in windows, cut, or refused."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...; auto: a GPU if there is one.")]
LoopDevice = Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1, ...; a GPU if there is one.")]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Threads to compute with; all cores if not given.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="key=value; the keys are listed below.")]

# Spellings before version 0.2.
OldModel = Annotated[str | None, typer.Option("--model", hidden=True)]
OldPair = Annotated[list[str] | None, typer.Option("--pair", hidden=True)]
OldStrict = Annotated[bool, typer.Option("--strict", hidden=True)]


class InputCommand(TyperCommand):
    """`VERB MODEL INPUT`, whose input may be left out only in the spelling before version 0.2: help shows it as
    needed."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return [piece if piece == "[OPTIONS]" else piece.replace("[", "{").replace("]", "}") for piece in pieces]


def model_and_input(
    verb: str, model: str, text_or_file: str | None, old_model: str | None, metavar: Literal["TEXT", "FILE"]
) -> tuple[str, str]:
    """`VERB MODEL INPUT`; before version 0.2 it was `VERB INPUT --model MODEL`."""
    if old_model is not None and text_or_file is None:
        say_old_spelling(f"bertworks {verb} {old_model} {metavar}")
        return old_model, model
    if old_model is not None:
        raise BadConfig("a model is named twice", remedy="leave --model out", code="given-twice", fields=["--model"])
    if text_or_file is None:
        remedy = f"bertworks {verb} MODEL {metavar}"
        raise BadConfig(f"{verb} takes a model and a {metavar.lower()}", remedy=remedy, code="missing-argument")
    return model, text_or_file


def column_options(schema: Schema, pair: list[str] | None, **columns: str | list[str] | None) -> NamedColumns:
    """The columns that the user names, by option. --text and --pair as they were before version 0.2 are understood,
    with a remark."""
    from bertworks.datasets.columns import NamedColumns

    named = NamedColumns.model_validate({option: names for option, names in columns.items() if names is not None})
    is_legacy = bool(pair) or (named.text is not None and "text" not in schema.column_options)
    if not is_legacy:
        return named
    legacy = schema.legacy_named_columns(named.text, pair or (), None)
    say_old_spelling(" ".join(f"--{option} {name}" for option, names in legacy.by_option().items() for name in names))
    return named.model_copy(update={"text": None, **{option: getattr(legacy, option) for option in legacy.by_option()}})


def say_old_spelling(new_spelling: str) -> None:
    say(f"old spelling; since version 0.2 this is: {new_spelling}")


def say_old_keys(settings: list[str] | None) -> None:
    """A remark on keys of --set that were renamed in version 0.2; they go on working."""
    from bertworks.config import renamed_keys

    for remark in renamed_keys(setting.partition("=")[0].strip() for setting in settings or ()):
        say(str(remark))


def open_corpus(
    sources: list[str],
    column: str | None = None,
    line_docs: bool = False,
    skip_bad: bool = False,
    old_strict: bool = False,
    file_docs: bool = False,
) -> Corpus:
    from bertworks.data.corpus import Corpus, ReadOptions

    if old_strict:
        say("--strict is the default since version 0.2; --skip-bad skips invalid rows")
    return Corpus(sources, ReadOptions(column, line_docs, skip_bad, file_docs))


def load_model(name: str, device: str, threads: int | None) -> Workbench:
    """On a device as `--device` names it. Threads may be set, since a verb has its process for itself."""
    from bertworks.train.runtime import choose_device, set_threads
    from bertworks.workbench import load

    set_threads(threads, 1)
    return load(name, device=choose_device(device))
