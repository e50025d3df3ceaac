"""`bertworks pretrain`, `resume` and `verify-resume`: shards to a model, and on after a pause."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from bertworks.cli.show import console, leave, show_json, show_table


class WithKeys(TyperCommand):
    """A command whose help ends with every key of `--set`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        show_table(("key of --set", "what it is"), self.keys().items())

    def keys(self) -> dict[str, str]:
        from bertworks.runs.settings import PRETRAIN, keys

        return keys(PRETRAIN)


def pretrain(
    shards: Annotated[Path, typer.Argument(help="A folder that `bertworks prepare` wrote.")],
    out: Annotated[Path | None, typer.Option(help="The folder of the run.")] = None,
    preset: Annotated[str | None, typer.Option(help="A size with random weights: bert-mini, electra-mini, gpt-mini, ...")] = None,
    init: Annotated[str | None, typer.Option(help="Or a model to go on from: a folder, a run, 'minilm', a name on the Hub.")] = None,
    objective: Annotated[
        Literal["mlm", "mlm+nsp", "mlm+sop", "rtd", "plm", "ltr"] | None,
        typer.Option(help="What is learned; the family's own if not given."),
    ] = None,
    masking: Annotated[Literal["token", "word", "ngram", "span"] | None, typer.Option(help="What is masked together.")] = None,
    budget: Annotated[str | None, typer.Option(help="Stop after this time, learning rate at zero: 90s, 10m, 1.5h. Default 10m.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Or after so many steps.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Or after so many passes over the text.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value; the keys are listed below.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the whole config and stop.")] = False,
) -> None:
    """Pre-train a model on prepared text. A run that was stopped goes on with `bertworks resume`."""
    from time import monotonic

    began = monotonic()
    from bertworks.cli.live import watching
    from bertworks.data.shards import Shards
    from bertworks.errors import BadConfig
    from bertworks.runs.pretrain import pretrain as run
    from bertworks.runs.settings import parse_duration, settle
    from bertworks.train.ranks import from_environment
    from bertworks.workbench import load

    limits = {"steps": steps, "epochs": epochs, "budget": parse_duration(budget) if budget is not None else None}
    limit = {name: value for name, value in limits.items() if value is not None}
    text = Shards(shards)
    start = load(init) if init is not None else None
    if start is not None:
        text.check_tokenizer(start.tokenizer, str(init))
    config = settle(text.tokenizer, preset=preset, init=start, objective=objective, settings=settings or (), limit=limit, masking=masking)
    if show:
        show_json(config.model_dump(mode="json"))
        return
    if out is None:
        raise BadConfig("a run needs a folder", remedy="--out RUN", code="missing-option")
    ranks = from_environment()
    with watching(out, quiet=not ranks.first) as watch:
        outcome = run(config, text, out, init=init, preset=preset, ranks=ranks, watch=watch, began=began)
    leave(outcome.exit_code)


def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    shards: Annotated[Path | None, typer.Option(help="Where the shards are now, if they were moved.")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Other loader processes than before; the result is the same.")] = None,
) -> None:
    """Go on with a run from its newest whole checkpoint."""
    from time import monotonic

    began = monotonic()
    from bertworks.cli.live import watching
    from bertworks.errors import BadConfig
    from bertworks.runs import finetune, pretrain, seeds
    from bertworks.runs.folder import read_run
    from bertworks.train.ranks import from_environment

    ranks, kind = from_environment(), read_run(run)["kind"]
    if kind in finetune.KINDS and (shards is not None or workers is not None):
        raise BadConfig("a fine-tuning has no shards and no loader processes", remedy="leave --shards and --workers out")
    with watching(run, quiet=not ranks.first) as watch:
        if kind == finetune.KIND:
            outcome = finetune.resume(run, ranks=ranks, watch=watch, began=began)
        elif kind == finetune.SEEDS:
            outcome = seeds.resume(run, ranks=ranks, watch=watch)
        else:
            outcome = pretrain.resume(run, shards=shards, workers=workers, ranks=ranks, watch=watch, began=began)
    leave(outcome.exit_code)


def verify_resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    steps: Annotated[int, typer.Option(min=2, help="How many steps to try.")] = 8,
) -> None:
    """Prove on a run's own configuration that a killed and resumed training ends with the same bits as an undisturbed one."""
    from bertworks.runs.verify import verify_resume as verify

    out = console()
    with out.status("training twice in one process each, once undisturbed and once with a kill in the middle"):
        proof = verify(run, steps)
    out.print(f"undisturbed          {proof.undisturbed}", markup=False)
    out.print(f"killed and resumed   {proof.resumed}", markup=False)
    out.print(f"SHA-256 of weights and optimiser after {proof.steps} steps, killed after step {proof.killed_after}", style="dim")
    if not proof.same:
        out.print("the two differ", style="red")
        sys.exit(1)
    out.print("the same bits", style="green")
