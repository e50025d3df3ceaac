"""`bertworks finetune`: a model and examples to a model that does a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertworks.cli.pretrain import WithKeys
from bertworks.cli.show import leave, show_json, show_table

# Of a table: its columns, and a row.
TABLES = (
    ("classify", "text, label", "I loved it, good"),
    ("pair", "sentence1, sentence2, label", "A man sleeps., Someone rests., yes"),
    ("regress", "text, score", "I loved it, 4.5"),
    ("multilabel", "text, labels; or a column of 0 and 1 for each class", "the bill is wrong, money|complaint"),
    ("tag", "words, tags: lists, or with spaces between; or CoNLL", "Anna lives in Bonn, B-PER O O B-LOC"),
    ("span", "question, context, answer [, answer_start]; or SQuAD", "Who sleeps?, A man sleeps., A man"),
    ("choice", "text, choice0, choice1, ..., label: number, letter or text", "He opened the, door, moon, 0"),
)


class WithTasks(WithKeys):
    """What tables look like, and the data sets too."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        from bertworks.tasks.datasets import TASKS

        show_table(("own table", "usual columns (others: --text, --pair, --label)", "a row"), TABLES)
        rows = [(name, row.said, ", ".join(names[0] for names in row.files.values())) for name, row in TASKS.items()]
        show_table(("data set", "what is asked", "its files"), rows)
        unseen = ", ".join(name for name, row in TASKS.items() if not row.seen)
        typer.echo(f" Tried on files made by hand in the official format, not on the official ones: {unseen}.")

    def keys(self) -> dict[str, str]:
        from bertworks.runs.settings import FINETUNE, is_free, keys

        return {key: said for key, said in keys(FINETUNE).items() if is_free(key)}


def finetune(
    task: Annotated[
        str, typer.Argument(help="A data set (sst2, mrpc, squad, ...), or classify, pair, regress, multilabel, tag, span, choice.")
    ],
    model: Annotated[str, typer.Option(help="What to start from: a folder, a run, 'minilm', a name on the Hub.")],
    out: Annotated[Path | None, typer.Option(help="The folder of the run.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder with the files of a data set.")] = None,
    train: Annotated[str | None, typer.Option(help="Your own examples: .csv, .tsv, .jsonl, .json, .parquet; tag: also CoNLL.")] = None,
    dev: Annotated[str | None, typer.Option(help="Examples to compare models on; without it a part of --train is kept for that.")] = None,
    text: Annotated[str | None, typer.Option(help="Column of the text; guessed if not given.")] = None,
    pair: Annotated[list[str] | None, typer.Option(help="Column of the second text; of each way to go on (choice).")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Column of the labels; of each class (multilabel). Guessed if not given.")] = None,
    first: Annotated[
        int | None, typer.Option(min=1, help="Only so many rows of train; without --dev, a part of them is kept as dev.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out rows that are no examples, and count them.")] = False,
    on_long: Annotated[Literal["window", "truncate", "error"] | None, typer.Option(help="Texts longer than the model.")] = None,
    budget: Annotated[str | None, typer.Option(help="Stop after this time: 90s, 10m, 1.5h.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Or after so many steps.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Or after so many passes over the examples.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train with so many seeds and say how much is luck.")] = 1,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value; the keys are listed below.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Say how the examples are read, print the whole config, and stop.")] = False,
) -> None:
    """Fine-tune a model for a task. A run that was stopped goes on with `bertworks resume`."""
    from time import monotonic

    began = monotonic()
    from bertworks.cli.live import watching
    from bertworks.errors import BadConfig
    from bertworks.runs.finetune import finetune as run
    from bertworks.runs.seeds import finetune_seeds
    from bertworks.runs.settings import parse_duration, settle_task
    from bertworks.tasks.source import describe_task, find_source, read_data
    from bertworks.train.ranks import from_environment
    from bertworks.workbench import load

    named: dict[str, Any] = {"text": text, "pair": tuple(pair or ()), "label": ",".join(label) if label else None}
    source = find_source(task, data=data, train=train, dev=dev, first=first, skip_bad=skip_bad, **named)
    ranks = from_environment()
    limits = {"steps": steps, "epochs": epochs, "budget": parse_duration(budget) if budget is not None else None}
    limit = {name: value for name, value in limits.items() if value is not None}
    if out is None and not show:
        raise BadConfig("a run needs a folder", remedy="--out RUN", code="missing-option")
    if seeds > 1 and ranks.world > 1:
        raise BadConfig("several seeds in several processes", remedy="without torchrun, or one seed at a time: --set train.seed=1")
    examples = read_data(source)
    if ranks.first:
        for remark in [f"{len(examples.train):,} examples to learn from, {len(examples.dev):,} to be judged by", *examples.remarks]:
            typer.echo(remark, err=True)
    about: dict[str, Any] = {"settings": settings or (), "limit": limit, "on_long": on_long}
    config = settle_task(load(model), describe_task(examples, source), sizes=(len(examples.train), len(examples.dev)), **about)
    if show or out is None:
        show_json(config.model_dump(mode="json"))
        return
    with watching(out, quiet=not ranks.first) as watch:
        if seeds > 1:
            outcome = finetune_seeds(config, examples, source, out, init=model, n_seeds=seeds, watch=watch)
        else:
            outcome = run(config, examples, source, out, init=model, ranks=ranks, watch=watch, began=began)
    leave(outcome.exit_code)
