"""`bertworks pretrain`, `resume` and `verify-resume`: shards to a model, and on after a pause."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from bertworks.cli.options import Threads, say_old_keys
from bertworks.cli.show import console, exit_process, show_json, show_table


class WithKeys(TyperCommand):
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
    init: Annotated[
        str | None, typer.Option(help="Or a model to go on from: a folder, a run, 'minilm', a name on the Hub.")
    ] = None,
    objective: Annotated[
        Literal["mlm", "mlm+nsp", "mlm+sop", "rtd", "plm", "ltr"] | None,
        typer.Option(help="What is learned; the family's own if not given."),
    ] = None,
    masking: Annotated[
        Literal["token", "word", "ngram", "span"] | None, typer.Option(help="What is masked together.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Stop after this time, learning rate at zero: 90s, 10m, 1.5h. Default 10m.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Or after so many steps.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Or after so many epochs.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value; the keys are listed below.")] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, ...; a GPU if there is one, if not given.")
    ] = None,
    threads: Threads = None,
    show: Annotated[bool, typer.Option("--show", help="Print the whole config and stop.")] = False,
) -> None:
    """Pre-train a model on prepared text. A run that was stopped goes on with `bertworks resume`."""
    from time import monotonic

    began = monotonic()
    from bertworks.cli.live import live_view
    from bertworks.data.shards import Shards
    from bertworks.errors import BadConfig
    from bertworks.runs.context import Host
    from bertworks.runs.pretrain import pretrain as run
    from bertworks.runs.settings import loop_options, resolve_pretrain
    from bertworks.train.distributed import from_environment
    from bertworks.train.runtime import own_process
    from bertworks.workbench import load

    distributed = from_environment()
    if distributed.is_main:
        say_old_keys(settings)
    text = Shards(shards)
    start = load(init) if init is not None else None
    if start is not None:
        text.check_tokenizer(start.tokenizer, str(init))
    config = resolve_pretrain(
        text.tokenizer,
        preset=preset,
        init=start,
        objective=objective,
        settings=settings or (),
        options=loop_options(steps=steps, epochs=epochs, budget=budget, device=device, threads=threads),
        masking=masking,
    )
    if show:
        show_json(config.model_dump(mode="json"))
        return
    if out is None:
        raise BadConfig("a run needs a folder", remedy="--out RUN", code="missing-option")
    with own_process(began) as runtime, live_view(out, quiet=not distributed.is_main) as on_event:
        outcome = run(config, text, out, init=init, preset=preset, host=Host(runtime, distributed, on_event))
    exit_process(outcome.exit_code)


def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    shards: Annotated[Path | None, typer.Option(help="Where the shards are now, if they were moved.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Other loader processes than before; the result is the same.")
    ] = None,
) -> None:
    """Go on with a run from its newest whole checkpoint."""
    from time import monotonic

    began = monotonic()
    from bertworks.cli.live import live_view
    from bertworks.errors import BadConfig
    from bertworks.runs.context import Host
    from bertworks.runs.record import PRETRAIN, RunRecord
    from bertworks.runs.run import resume_run
    from bertworks.train.distributed import from_environment
    from bertworks.train.runtime import own_process

    distributed = from_environment()
    if RunRecord.read(run).kind != PRETRAIN and (shards is not None or workers is not None):
        remedy = "leave --shards and --workers out"
        raise BadConfig("a fine-tuning has no shards and no loader processes", remedy=remedy, code="no-effect")
    with own_process(began) as runtime, live_view(run, quiet=not distributed.is_main) as on_event:
        outcome = resume_run(run, Host(runtime, distributed, on_event), shards=shards, workers=workers)
    exit_process(outcome.exit_code)


def verify_resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    steps: Annotated[int, typer.Option(min=2, help="How many steps to try.")] = 8,
) -> None:
    """Prove on a run's own configuration that a killed and resumed training ends with the same bits as an undisturbed
    one."""
    from bertworks.runs.verify import verify_resume as verify

    out = console()
    with out.status("training twice in one process each, once undisturbed and once with a kill in the middle"):
        proof = verify(run, steps)
    out.print(f"undisturbed          {proof.undisturbed}", markup=False)
    out.print(f"killed and resumed   {proof.resumed}", markup=False)
    out.print(
        f"SHA-256 of weights and optimiser after {proof.steps} steps, killed after step {proof.killed_after}",
        style="dim",
    )
    if not proof.same:
        out.print("the two differ", style="red")
        sys.exit(1)
    out.print("the same bits", style="green")
