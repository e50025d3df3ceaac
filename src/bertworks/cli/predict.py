"""`bertworks predict`, `evaluate` and `compare`: what a fine-tuned model predicts, how good it is, and whether another
is better."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertworks.cli.options import (
    Choices,
    Context,
    Device,
    Label,
    OldPair,
    OnLongOption,
    Question,
    SkipBad,
    Text,
    Text2,
    Threads,
    column_options,
    load_model,
    say_old_spelling,
)
from bertworks.cli.show import (
    AsJson,
    AsJsonLines,
    Quiet,
    metric_title,
    progress_bar,
    say,
    show_json,
    show_table,
    write_results,
)
from bertworks.errors import BadConfig, BadText

if TYPE_CHECKING:
    from bertworks.predictor import Predictor
    from bertworks.tasks.evaluation import EvalResults

FILE_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}$")


def predict(
    run: Annotated[
        str, typer.Argument(metavar="MODEL", help="A run of `bertworks finetune`, or a folder with a fine-tuned model.")
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="A table, a file with a text on each line, or a text; - for standard input."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write to this file: .csv and .tsv beside the columns of the table, or .jsonl.")
    ] = None,
    text: Text = None,
    text2: Text2 = None,
    question: Question = None,
    context: Context = None,
    choices: Choices = None,
    min_confidence: Annotated[
        float,
        typer.Option(min=0, max=1, help="Abstain where the model is less confident than this; tag: ? for the word."),
    ] = 0.0,
    raw: Annotated[
        bool, typer.Option("--raw", help="Tables: keep cells that a spreadsheet would run as formulas as they are.")
    ] = False,
    on_long: OnLongOption = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    threads: Threads = None,
    json: AsJsonLines = False,
    quiet: Quiet = False,
    pair: OldPair = None,
) -> None:
    """Predictions of a fine-tuned model, one for each text."""
    from bertworks.datasets.tables import check_file
    from bertworks.runs.predictions import check_output, inputs_for, open_output, predict_file
    from bertworks.runs.results import remarks_on_model

    if not file.strip():
        raise BadText("empty text", remedy="name a file, or give a text; - for standard input", code="empty-text")
    is_text = _is_text(file)
    check_output(out, "-" if is_text else file, as_json=json, raw=raw)
    predictor = load_model(run, device, threads).predictor
    predictor.check_confidence(min_confidence)
    columns = column_options(
        predictor.task.schema, pair, text=text, text2=text2, question=question, context=context, choices=choices
    )
    if is_text:
        _check_text(file, run, predictor)
    elif file != "-":
        check_file(Path(file), f"a text itself is piped in: echo {shlex.quote(file)} | bertworks predict {run} -")
    inputs = inputs_for(predictor, file, named=columns, skip_bad=skip_bad, is_text=is_text)
    output = open_output(out, inputs.header, write_results, as_json=json, raw=raw)
    with progress_bar("predictions") as advance, output as write:
        ledger, n_abstained = predict_file(
            predictor, inputs, write, on_long=on_long, min_confidence=min_confidence, progress=advance
        )
    for remark in (*remarks_on_model(Path(run)), *inputs.remarks, *write.remarks):
        say(str(remark))
    if n_abstained:
        say(f"{n_abstained:,} of {ledger.texts:,} {predictor.task.abstained_help.format(min_confidence)}")
    say(str(ledger))


def _is_text(argument: str) -> bool:
    """Whether it is a text to predict for: no file has this name, and it does not look like one's."""
    from bertworks.data.tables import table_format

    if argument == "-" or os.access(argument, os.F_OK):
        return False
    if any(map(str.isspace, argument)):
        return table_format(Path(argument)) is None
    return "/" not in argument and os.sep not in argument and FILE_SUFFIX.search(argument) is None


def _check_text(text: str, run: str, predictor: Predictor) -> None:
    """A text alone is not an input of every model."""
    schema, pairs = predictor.task.schema, predictor.artifact.task.pairs
    if "\t" not in text and schema.parse(text, pairs) is None:
        columns = "\\t".join(schema.input_columns(pairs))
        remedy = f"printf '{columns}\\n' | bertworks predict {run} -  (the texts of an input are separated by tabs)"
        cause = f"one text, but this model expects {schema.expects(pairs)}"
        raise BadText(cause, place=text[:60], remedy=remedy, code="wrong-input")


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run of `bertworks finetune`.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="INPUT", help="Examples with labels: a file like that of the training, or a data set's folder."
        ),
    ] = None,
    text: Text = None,
    text2: Text2 = None,
    question: Question = None,
    context: Context = None,
    choices: Choices = None,
    label: Label = None,
    on_long: OnLongOption = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    threads: Threads = None,
    json: AsJson = False,
    quiet: Quiet = False,
    pair: OldPair = None,
    old_data: Annotated[Path | None, typer.Option("--data", hidden=True)] = None,
) -> None:
    """How good a fine-tuned model is on other examples, with 95 % confidence intervals."""
    from bertworks.runs.finetune import evaluate as evaluate_run
    from bertworks.runs.record import FINETUNE, SEEDS, RunRecord
    from bertworks.runs.results import remarks_on_model
    from bertworks.tasks.source import Source
    from bertworks.train.runtime import choose_device, set_threads

    if old_data is not None and data is not None:
        raise BadConfig("examples are named twice", remedy="leave --data out", code="given-twice")
    if old_data is not None:
        say_old_spelling(f"bertworks evaluate {run} {old_data}")
        data = old_data
    if data is None:
        remedy = "bertworks evaluate RUN FILE"
        raise BadConfig("evaluate takes a run and examples", remedy=remedy, code="missing-argument")
    set_threads(threads, 1)
    schema = Source.model_validate(RunRecord.read(run, FINETUNE, SEEDS).source).row_schema
    columns = column_options(
        schema, pair, text=text, text2=text2, question=question, context=context, choices=choices, label=label
    )
    with progress_bar("examples") as advance:
        evaluation = evaluate_run(
            run,
            data,
            columns=columns,
            skip_bad=skip_bad,
            on_long=on_long,
            device=str(choose_device(device)),
            progress=advance,
        )
    results = evaluation.results
    if json:
        extra = {split: _scores(split_results) for split, split_results in results.extra_eval.items()}
        show_json({**_scores(results), "ledger": vars(evaluation.ledger), "extra_eval": extra})
    else:
        rows = _score_rows("", results)
        for split, split_results in results.extra_eval.items():
            rows += _score_rows(f"{split}: ", split_results)
        show_table(("metric", "value", f"95 % CI, n={len(results.example_scores):,}"), rows)
    for remark in (*remarks_on_model(run), *evaluation.remarks, evaluation.ledger):
        say(str(remark))


def compare(
    first: Annotated[Path, typer.Argument(help="A run of `bertworks finetune`, of one seed or several.")],
    second: Annotated[Path, typer.Argument(help="Another, evaluated on the same examples.")],
    json: AsJson = False,
) -> None:
    """Whether two fine-tuned models differ significantly."""
    from bertworks.runs.compare import compare as compare_runs

    comparison = compare_runs(first, second)
    if json:
        metrics = {
            metric.metric.name: {
                "first": metric.first,
                "second": metric.second,
                "interval": metric.interval,
                "significant": metric.significant,
            }
            for metric in comparison.metrics
        }
        show_json({"metrics": metrics, "seeds": comparison.n_seeds, "remarks": list(map(str, comparison.remarks))})
        return
    rows = [
        (
            metric_title(metric.metric.name),
            f"{metric.first:.4f}",
            f"{metric.second:.4f}",
            f"{metric.second - metric.first:+.4f}",
            _format_interval(metric.interval, "+"),
            "significant" if metric.significant else "not significant",
        )
        for metric in comparison.metrics
    ]
    show_table(("metric", *_short_names(first, second), "difference", "95 % CI", ""), rows)
    for remark in comparison.remarks:
        say(str(remark))


def _short_names(first: Path, second: Path) -> tuple[str, str]:
    """Of two folders: as much of their paths as tells them apart, so that a table fits on the screen."""
    first, second = first.resolve(), second.resolve()
    if first.name != second.name or first == second:
        return first.name, second.name
    shared = os.path.commonpath([first, second])
    return str(first.relative_to(shared)), str(second.relative_to(shared))


def _scores(results: EvalResults) -> dict[str, object]:
    return {"metrics": results.metrics, "intervals": results.intervals}


def _score_rows(prefix: str, results: EvalResults) -> list[tuple[str, str, str]]:
    return [
        (prefix + metric_title(name), f"{value:.4f}", _format_interval(results.intervals[name]))
        for name, value in results.metrics.items()
    ]


def _format_interval(interval: tuple[float, float], sign: str = "") -> str:
    low, high = interval
    return f"{low:{sign}.4f} to {high:{sign}.4f}"
