"""`bertworks finetune`: a model and examples to a model that does a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bertworks.cli.options import (
    Choices,
    Context,
    Label,
    OnLongOption,
    Pair,
    Question,
    SkipBad,
    Text,
    Text2,
    Threads,
    column_options,
    say_old_keys,
)
from bertworks.cli.pretrain import WithKeys
from bertworks.cli.show import exit_process, show_json, show_table


class WithTasks(WithKeys):
    """What tables look like, and the data sets too."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        from bertworks.tasks.catalogue import CATALOGUE
        from bertworks.tasks.shapes import SHAPES

        tables = [row for task in SHAPES.values() for row in task.schema.table_help]
        show_table(("own table", "usual columns (others: see the options)", "a row"), tables)
        rows = [
            (name, row.description, ", ".join(names[0] for names in row.files.values()))
            for name, row in CATALOGUE.items()
        ]
        show_table(("data set", "what is asked", "its files"), rows)
        unseen = ", ".join(name for name, row in CATALOGUE.items() if not row.tested_on_official_files)
        typer.echo(f" Tried on files made by hand in the official format, not on the official ones: {unseen}.")

    def keys(self) -> dict[str, str]:
        from bertworks.runs.settings import FINETUNE, is_settable, setting_keys

        return {key: said for key, said in setting_keys(FINETUNE).items() if is_settable(key)}


def finetune(
    task: Annotated[
        str,
        typer.Argument(
            help="A data set (sst2, mrpc, squad, ...), or classify, pair, regress, multilabel, tag, span, choice."
        ),
    ],
    model: Annotated[str, typer.Option(help="What to start from: a folder, a run, 'minilm', a name on the Hub.")],
    out: Annotated[Path | None, typer.Option(help="The folder of the run.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder with the files of a data set.")] = None,
    train: Annotated[
        str | None, typer.Option(help="Your own examples: .csv, .tsv, .jsonl, .json, .parquet; tag: also CoNLL.")
    ] = None,
    dev: Annotated[
        str | None, typer.Option(help="Examples to compare models on; without it a part of --train is kept for that.")
    ] = None,
    text: Text = None,
    text2: Text2 = None,
    question: Question = None,
    context: Context = None,
    choices: Choices = None,
    label: Label = None,
    pair: Pair = None,
    first: Annotated[
        int | None,
        typer.Option(min=1, help="Only so many rows of train; without --dev, a part of them is kept as dev."),
    ] = None,
    skip_bad: SkipBad = False,
    on_long: OnLongOption = None,
    budget: Annotated[str | None, typer.Option(help="Stop after this time: 90s, 10m, 1.5h.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Or after so many steps.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Or after so many epochs.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train with so many seeds and measure the seed noise.")] = 1,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value; the keys are listed below.")] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, ...; a GPU if there is one, if not given.")
    ] = None,
    threads: Threads = None,
    show: Annotated[
        bool, typer.Option("--show", help="Say how the examples are read, print the whole config, and stop.")
    ] = False,
) -> None:
    """Fine-tune a model for a task. A run that was stopped goes on with `bertworks resume`."""
    from time import monotonic

    began = monotonic()
    from bertworks.cli.live import live_view
    from bertworks.errors import BadConfig
    from bertworks.runs.context import Host
    from bertworks.runs.finetune import finetune as run
    from bertworks.runs.seeds import finetune_seeds
    from bertworks.runs.settings import loop_options, resolve_finetune
    from bertworks.tasks.source import describe_task, find_source, read_data, schema_for
    from bertworks.train.distributed import from_environment
    from bertworks.train.runtime import own_process
    from bertworks.workbench import load

    named = {"text": text, "text2": text2, "question": question, "context": context}
    columns = column_options(schema_for(task), **named, choices=choices, label=label, pair=pair)
    source = find_source(task, data=data, train=train, dev=dev, columns=columns, first=first, skip_bad=skip_bad)
    distributed = from_environment()
    if distributed.is_main:
        say_old_keys(settings)
    if out is None and not show:
        raise BadConfig("a run needs a folder", remedy="--out RUN", code="missing-option")
    if seeds > 1 and distributed.world_size > 1:
        raise BadConfig(
            "several seeds in several processes", remedy="without torchrun, or one seed at a time: --set train.seed=1"
        )
    examples = read_data(source)
    if distributed.is_main:
        for remark in [f"train: {len(examples.train):,} examples, dev: {len(examples.dev):,}", *examples.remarks]:
            typer.echo(str(remark), err=True)
    config = resolve_finetune(
        load(model),
        describe_task(examples, source),
        settings=settings or (),
        options=loop_options(steps=steps, epochs=epochs, budget=budget, device=device, threads=threads),
        on_long=on_long,
        sizes=(len(examples.train), len(examples.dev)),
    )
    if show or out is None:
        show_json(config.model_dump(mode="json"))
        return
    with own_process(began) as runtime, live_view(out, quiet=not distributed.is_main) as on_event:
        host = Host(runtime, distributed, on_event)
        if seeds > 1:
            outcome = finetune_seeds(config, examples, source, out, init=model, n_seeds=seeds, host=host)
        else:
            outcome = run(config, examples, source, out, init=model, host=host)
    exit_process(outcome.exit_code)
