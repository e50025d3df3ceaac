"""`bertworks predict`, `evaluate` and `compare`: what a fine-tuned model says, how good it is, and whether another is better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bertworks.cli.show import AsJson, AsJsonLines, show_json, show_table

if TYPE_CHECKING:
    from bertworks.runs.results import Results

Text = Annotated[str | None, typer.Option(help="Column of the text; as in training, or guessed.")]
Pair = Annotated[list[str] | None, typer.Option(help="Column of the second text; of each way to go on (choice).")]
UNSURE = {  # what becomes of answers in several parts
    "tag": "texts have words that are less sure than {}: their tag is ?",
    "multilabel": "texts have classes that are less sure than {}: these are undecided",
}
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without rows that are no examples, and count them.")]


def predict(
    run: Annotated[str, typer.Argument(help="A run of `bertworks finetune`, or a folder with a fine-tuned model.")],
    file: Annotated[str, typer.Argument(help="A table, or a file with a text on each line; '-' for standard input.")],
    out: Annotated[Path | None, typer.Option(help="Write to this file: .csv and .tsv beside the columns of the table, or .jsonl.")] = None,
    text: Text = None,
    pair: Pair = None,
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Where the model is less sure than this, no answer; tag: ? for the word.")
    ] = 0.0,
    on_long: Annotated[Literal["window", "truncate", "error"] | None, typer.Option(help="Texts longer than the model.")] = None,
    skip_bad: SkipBad = False,
    json: AsJsonLines = False,
) -> None:
    """Answers of a fine-tuned model, one for each text."""
    from bertworks.cli.show import progress_bar
    from bertworks.runs.answers import answer_all, check_out, opened_out
    from bertworks.runs.results import unfinished
    from bertworks.tasks.inputs import Inputs
    from bertworks.workbench import load

    check_out(out, file, as_json=json)
    bench = load(run)
    learned, _ = bench.task()
    inputs = Inputs(file, learned, text=text, pair=pair or (), skip_bad=skip_bad)
    with progress_bar("answers") as advance, opened_out(out, inputs.header, as_json=json) as write:
        ledger, silent = answer_all(bench, inputs, write, on_long=on_long, min_confidence=min_confidence, progress=advance)
    what = UNSURE.get(learned.task.shape, "less sure than {}: no answer")
    said = [f"{silent:,} of {ledger.texts:,} {what.format(min_confidence)}"] if min_confidence else []
    for remark in (*unfinished(Path(run)), *inputs.remarks, *said, str(ledger)):
        typer.echo(remark, err=True)


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run of `bertworks finetune`.")],
    data: Annotated[Path, typer.Option(help="Examples with labels: a file like the one it was trained on, or a data set's folder.")],
    text: Text = None,
    pair: Pair = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Column of the labels; of each class (multilabel). As in training, or guessed.")
    ] = None,
    skip_bad: SkipBad = False,
    json: AsJson = False,
) -> None:
    """How good a fine-tuned model is on other examples, with 95 % intervals."""
    from bertworks.cli.show import progress_bar
    from bertworks.runs.finetune import evaluate as look
    from bertworks.runs.results import unfinished

    with progress_bar("examples") as advance:
        named = ",".join(label) if label else None
        results, ledger, remarks = look(run, data, text=text, pair=tuple(pair or ()), label=named, skip_bad=skip_bad, progress=advance)
    if json:
        others = {split: {"measures": other.measures, "intervals": other.intervals} for split, other in results.others.items()}
        show_json({"measures": results.measures, "intervals": results.intervals, "ledger": vars(ledger), "others": others})
    else:
        show_table(
            ("measure", "value", "95 % interval"),
            _measured("", results) + [row for one in results.others.items() for row in _measured(*one)],
        )
    for remark in (*unfinished(run), *remarks, str(ledger)):
        typer.echo(remark, err=True)


def compare(
    first: Annotated[Path, typer.Argument(help="A run of `bertworks finetune`, of one seed or several.")],
    second: Annotated[Path, typer.Argument(help="Another, judged by the same examples.")],
    json: AsJson = False,
) -> None:
    """Whether two fine-tuned models differ by more than chance."""
    from bertworks.runs.seeds import compare as find

    found, seeds, remarks = find(first, second)
    if json:
        measures = {one.name: {**vars(one), "beyond_noise": one.beyond_noise} for one in found}
        show_json({"measures": measures, "seeds": seeds, "remarks": list(map(str, remarks))})
        return
    rows = [
        (
            _name(one.name),
            f"{one.first:.4f}",
            f"{one.second:.4f}",
            f"{one.second - one.first:+.4f}",
            _interval(one.interval, "+"),
            "more than noise" if one.beyond_noise else "inside the noise",
        )
        for one in found
    ]
    show_table(("measure", str(first), str(second), "difference", "95 % interval", ""), rows)
    for remark in remarks:
        typer.echo(remark, err=True)


def _measured(split: str, results: Results) -> list[tuple[str, str, str]]:
    of = f"{split}: " if split else ""
    return [(of + _name(name), f"{value:.4f}", _interval(results.intervals[name])) for name, value in results.measures.items()]


def _name(measure: str) -> str:
    return measure.replace("_", " ")


def _interval(edges: tuple[float, float], sign: str = "") -> str:
    low, high = edges
    return f"{low:{sign}.4f} to {high:{sign}.4f}"
