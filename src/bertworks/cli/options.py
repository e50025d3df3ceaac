"""Options that several verbs share, under one name each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from bertworks.datasets.columns import NamedColumns
    from bertworks.datasets.schema import Schema

Text = Annotated[str | None, typer.Option(help="Column of the text; as in training, or guessed.")]
Text2 = Annotated[str | None, typer.Option(help="Column of the second text of a pair.")]
Question = Annotated[str | None, typer.Option(help="span: column of the question.")]
Context = Annotated[str | None, typer.Option(help="span: column of the passage with the answer.")]
Choices = Annotated[list[str] | None, typer.Option(help="choice: column of each choice, or the one that lists them.")]
Label = Annotated[
    list[str] | None, typer.Option(help="Column of the labels; several: one for each class (multilabel).")
]
Pair = Annotated[list[str] | None, typer.Option(hidden=True, help="Before 0.2: --text2, --question or --choices.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without invalid rows, and count them.")]
OnLongOption = Annotated[
    Literal["window", "truncate", "error"] | None, typer.Option("--on-long", help="Texts longer than the model.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...; auto: a GPU if there is one.")]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Threads to compute with; the cores there are, if not given.")
]


def column_options(
    schema: Schema,
    *,
    text: str | None,
    text2: str | None,
    question: str | None,
    context: str | None,
    choices: list[str] | None,
    label: list[str] | None = None,
    pair: list[str] | None,
) -> NamedColumns:
    """The columns that the user names. What --text and --pair meant before version 0.2 is understood, and said to be
    old."""
    from bertworks.datasets.columns import NamedColumns

    named = NamedColumns(
        text=text,
        text2=text2,
        question=question,
        context=context,
        choices=tuple(choices or ()),
        label=tuple(label or ()),
    )
    is_old = bool(pair) or (text is not None and "text" not in schema.column_options)
    if not is_old:
        return named
    before = schema.named_before(text, pair or (), None)
    new = " ".join(f"--{option} {column}" for option, columns in before.named().items() for column in columns)
    typer.echo(f"old spelling; since version 0.2 this is: {new}", err=True)
    return named.model_copy(update={"text": None, **{option: getattr(before, option) for option in before.named()}})


def say_old_keys(settings: list[str] | None) -> None:
    """Keys of --set in the words of before version 0.2 are understood, and said to be old."""
    from bertworks.config import renamed_keys

    for remark in renamed_keys(setting.partition("=")[0].strip() for setting in settings or ()):
        typer.echo(str(remark), err=True)


def use_threads(threads: int | None) -> None:
    """The process is ours."""
    from bertworks.train.runtime import set_threads

    set_threads(threads, 1)
