"""`bertworks pretrain`, `resume` and `verify-resume`: shards to a model, with exact resume."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from bertworks.cli.options import LoopDevice, Settings, Threads, say_old_keys, say_old_spelling
from bertworks.cli.show import AsJson, Quiet, console, exit_process, show_json, show_table, status
from bertworks.errors import BadConfig

OtherDevice = Annotated[str | None, typer.Option("--device", help="Another device than before: cpu, cuda, cuda:1, ...")]
OtherThreads = Annotated[
    int | None, typer.Option("--threads", min=1, max=1024, help="Another number of threads than before.")
]


class SettingsHelpCommand(TyperCommand):
    """A command whose help ends with every key of `--set`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        show_table(("key of --set", "what it is"), self.keys().items())

    def keys(self) -> dict[str, str]:
        from bertworks.runs.settings import PRETRAIN, setting_keys

        return setting_keys(PRETRAIN)


def pretrain(
    shards: Annotated[Path, typer.Argument(help="A folder that `bertworks prepare` wrote.")],
    out: Annotated[Path | None, typer.Option(help="The folder of the run.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="A size with random weights: bert-mini, electra-mini, gpt-mini, ...")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Or a model to start from: a folder, a run, 'minilm', a name on the Hub.")
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="mlm, mlm+nsp, mlm+sop, rtd, plm or ltr; the family's own if not given.")
    ] = None,
    masking: Annotated[
        Literal["token", "word", "ngram", "span"] | None,
        typer.Option(help="Masking unit: tokens, whole words, n-grams of words, or spans."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Stop after this time, learning rate at zero: 90s, 10m, 1.5h. Default 10m.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Or after this number of steps.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Or after this number of epochs.")] = None,
    settings: Settings = None,
    device: LoopDevice = None,
    threads: Threads = None,
    show: Annotated[bool, typer.Option("--show", help="Print the whole config and stop.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    init: Annotated[str | None, typer.Option("--init", hidden=True)] = None,
) -> None:
    """Pre-train a model on prepared text. `bertworks resume` continues an interrupted run."""
    from time import monotonic

    began = monotonic()
    from bertworks.cli.live import live_training
    from bertworks.data.shards import Shards
    from bertworks.runs.pretrain import PretrainJob
    from bertworks.runs.pretrain import pretrain as start_pretrain
    from bertworks.runs.settings import PRETRAIN, option_settings, parse_settings
    from bertworks.train.distributed import from_environment

    distributed = from_environment()
    if distributed.is_main:
        say_old_keys(settings)
    if init is not None:
        if model is not None:
            raise BadConfig("a model is named twice", remedy="leave --init out", code="given-twice", fields=["--init"])
        say_old_spelling(f"--model {init}")
        model = init
    options = option_settings(
        steps=steps, epochs=epochs, budget=budget, device=device, threads=threads, masking=masking
    )
    job = PretrainJob.resolve(
        Shards(shards),
        preset=preset,
        model=model,
        objective=objective,
        settings=parse_settings(settings or (), PRETRAIN, options),
    )
    if show:
        show_json(job.config.model_dump(mode="json"))
        return
    if out is None:
        raise BadConfig("a run needs a folder", remedy="--out RUN", code="missing-option")
    with live_training(out, distributed, began) as process:
        outcome = start_pretrain(job, out, process)
    exit_process(outcome.exit_code)


def resume(
    run: Annotated[Path, typer.Argument(help="The folder of an interrupted run.")],
    shards: Annotated[Path | None, typer.Option(help="Where the shards are now, if they were moved.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Another number of loader processes; the result is the same.")
    ] = None,
    device: OtherDevice = None,
    threads: OtherThreads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Continue a run from its newest intact checkpoint."""
    from time import monotonic

    began = monotonic()
    from bertworks.cli.live import live_training
    from bertworks.runs.run import resume_run
    from bertworks.train.distributed import from_environment

    with live_training(run, from_environment(), began, device, threads) as process:
        outcome = resume_run(run, process, shards=shards, workers=workers)
    exit_process(outcome.exit_code)


def verify_resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    steps: Annotated[int, typer.Option(min=2, help="Number of training steps.")] = 8,
    device: OtherDevice = None,
    threads: OtherThreads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Prove on a run's own configuration that a killed and resumed training ends with the same bits as an uninterrupted
    one."""
    from dataclasses import asdict

    from bertworks.runs.verify import verify_resume as verify

    out = console()
    with status("training twice in one process each, once uninterrupted and once killed half-way and resumed"):
        proof = verify(run, steps, device=device, threads=threads)
    if as_json:
        show_json({**asdict(proof), "same": proof.same})
        sys.exit(0 if proof.same else 1)
    out.print(f"uninterrupted        {proof.uninterrupted}", markup=False)
    out.print(f"killed and resumed   {proof.resumed}", markup=False)
    out.print(
        f"SHA-256 of weights and optimizer after {proof.steps} steps, killed after step {proof.killed_after}",
        style="dim",
    )
    if not proof.same:
        out.print("the two differ", style="red")
        sys.exit(1)
    out.print("the same bits", style="green")
