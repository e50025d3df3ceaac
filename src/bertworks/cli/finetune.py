"""`bertworks finetune`: a model and examples to a model that does a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bertworks.cli.options import (
    Choices,
    Context,
    Label,
    LoopDevice,
    OldPair,
    OnLongOption,
    Question,
    Settings,
    SkipBad,
    StartModel,
    Text,
    Text2,
    Threads,
    column_options,
    say_old_keys,
)
from bertworks.cli.pretrain import SettingsHelpCommand
from bertworks.cli.show import AsJson, Quiet, exit_process, say, show_json, show_table
from bertworks.errors import BadConfig


class TasksHelpCommand(SettingsHelpCommand):
    """Its help lists table layouts and data sets too."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        from bertworks.tasks.catalogue import CATALOGUE
        from bertworks.tasks.shapes import SHAPES

        layouts = [row for task in SHAPES.values() for row in task.schema.table_help]
        show_table(("own table", "usual columns (others: see the options)", "a row"), layouts)
        data_sets = [
            (name, row.description, ", ".join(names[0] for names in row.files.values()))
            for name, row in CATALOGUE.items()
        ]
        show_table(("data set", "task", "its files"), data_sets)
        untested = ", ".join(name for name, row in CATALOGUE.items() if not row.tested_on_official_files)
        typer.echo(f" Tested on handmade files in the official format, not on the official files: {untested}.")

    def keys(self) -> dict[str, str]:
        from bertworks.runs.settings import FINETUNE, is_settable, setting_keys

        return {key: text for key, text in setting_keys(FINETUNE).items() if is_settable(key)}


def finetune(
    task: Annotated[
        str,
        typer.Argument(
            help="A data set (sst2, mrpc, squad, ...), or classify, pair, regress, multilabel, tag, span, choice."
        ),
    ],
    model: StartModel,
    out: Annotated[Path | None, typer.Option(help="The folder of the run.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder with the files of a data set.")] = None,
    train: Annotated[
        str | None, typer.Option(help="Your own examples: .csv, .tsv, .jsonl, .json, .parquet; tag: also CoNLL.")
    ] = None,
    dev: Annotated[
        str | None, typer.Option(help="Examples to evaluate on; without it a part of --train is held out.")
    ] = None,
    text: Text = None,
    text2: Text2 = None,
    question: Question = None,
    context: Context = None,
    choices: Choices = None,
    label: Label = None,
    first: Annotated[
        int | None,
        typer.Option(
            min=1, help="Use only this number of rows, the first of train; without --dev, a part of them is held out."
        ),
    ] = None,
    skip_bad: SkipBad = False,
    on_long: OnLongOption = None,
    budget: Annotated[str | None, typer.Option(help="Stop after this time: 90s, 10m, 1.5h.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Or after this number of steps.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Or after this number of epochs.")] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds; with several, the mean and the standard deviation over them.")
    ] = 1,
    settings: Settings = None,
    device: LoopDevice = None,
    threads: Threads = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print how the examples are read and the whole config, and stop.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    pair: OldPair = None,
) -> None:
    """Fine-tune a model for a task. `bertworks resume` continues an interrupted run."""
    from time import monotonic

    began = monotonic()
    from bertworks.cli.live import live_training
    from bertworks.runs.finetune import FinetuneJob
    from bertworks.runs.run import start_finetune
    from bertworks.runs.settings import FINETUNE, option_settings, parse_settings
    from bertworks.tasks.source import find_source, schema_for
    from bertworks.train.distributed import from_environment

    distributed = from_environment()
    if distributed.is_main:
        say_old_keys(settings)
    if out is None and not show:
        raise BadConfig("a run needs a folder", remedy="--out RUN", code="missing-option")
    columns = column_options(
        schema_for(task), pair, text=text, text2=text2, question=question, context=context, choices=choices, label=label
    )
    options = option_settings(
        steps=steps, epochs=epochs, budget=budget, device=device, threads=threads, on_long=on_long
    )
    job = FinetuneJob.resolve(
        find_source(task, data=data, train=train, dev=dev, columns=columns, first=first, skip_bad=skip_bad),
        model=model,
        settings=parse_settings(settings or (), FINETUNE, options),
        n_seeds=seeds,
        began=began,
    )
    if distributed.is_main:
        for remark in job.remarks:
            say(str(remark))
    if show or out is None:
        show_json(job.config.model_dump(mode="json"))
        return
    with live_training(out, distributed, began) as process:
        outcome = start_finetune(job, out, process, seeds)
    exit_process(outcome.exit_code)
