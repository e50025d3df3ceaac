"""The Python API of trainings, and a run as an object. The command line calls the same functions below these.

A call leaves its process as it is: no signal handlers, no threads set, nothing printed; events go to `on_event`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from bertworks.arguments import check_arguments
from bertworks.data.corpus import Corpus, ReadOptions
from bertworks.data.prepare import prepare as prepare_corpus
from bertworks.data.shards import Shards
from bertworks.datasets.columns import NamedColumns
from bertworks.datasets.inputs import table_rows
from bertworks.datasets.report import BadRows
from bertworks.errors import BadConfig, BadText, BertworksError, SaveFailed, Unsupported, with_article
from bertworks.model.locate import RUN, locate
from bertworks.predictor import Predictions
from bertworks.reports.page import REPORT
from bertworks.runs import finetune as finetuning
from bertworks.runs import pretrain as pretraining
from bertworks.runs import seeds as several_seeds
from bertworks.runs.context import Outcome, ProcessContext
from bertworks.runs.finetune import FinetuneJob
from bertworks.runs.pretrain import PretrainJob
from bertworks.runs.record import FINETUNE, PRETRAIN, RunRecord
from bertworks.runs.results import RESULTS
from bertworks.runs.settings import FINETUNE as FINETUNE_SECTIONS
from bertworks.runs.settings import PRETRAIN as PRETRAIN_SECTIONS
from bertworks.runs.settings import option_settings, parse_settings
from bertworks.runs.vocabulary import train_on_corpus
from bertworks.tasks.catalogue import CATALOGUE
from bertworks.tasks.classify import Classify
from bertworks.tasks.source import find_source
from bertworks.text.cached_encoder import Words
from bertworks.text.ledger import OnLong
from bertworks.text.tokenizer import Tokenizer
from bertworks.text.training import Kind
from bertworks.train.events import METRICS, Event, EventHandler, Finished, ignore, last, read_events
from bertworks.workbench import Workbench, load

Rows = Sequence[Mapping[str, Any]]
"""Rows; or a DataFrame of pandas or polars."""
COLUMN_ARGUMENTS = tuple(NamedColumns.model_fields)


class Run:
    """A training's folder: resume it, evaluate and use its model."""

    @check_arguments()
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        self.record = RunRecord.read(self.folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @cached_property
    def model(self) -> Workbench:
        """The best model so far."""
        return load(self.folder)

    @property
    def report(self) -> Path:
        """An HTML page with curves, metrics and errors."""
        return self.folder / REPORT

    @property
    def events(self) -> list[Event]:
        return read_events(self.folder / METRICS)

    @property
    def is_finished(self) -> bool:
        return last(self.events, Finished) is not None or (self.folder / RESULTS).is_file()

    @property
    def metrics(self) -> dict[str, float]:
        """Of the best model: on dev; of a pre-training, on held-out text. Of several seeds, the mean."""
        if self.record.kind == PRETRAIN:
            return pretraining.best_metrics(self.folder)
        results = several_seeds.finished_results(self.folder)
        return dict(results["seeds"]["mean"] if results.get("seeds") else results["metrics"])

    @property
    def results(self) -> dict[str, Any]:
        """Of a fine-tuning: everything that its report shows."""
        return several_seeds.finished_results(self.folder)

    @check_arguments()
    def resume(self, *, device: str | None = None, on_event: EventHandler = ignore) -> Run:
        """Continue from the newest intact checkpoint; on another `device` than before, if it is named."""
        resume_run(self.folder, ProcessContext.library(on_event, device))
        return Run(self.folder)

    @check_arguments(skip=("data",))
    def evaluate(
        self,
        data: str | Path | Rows,
        *,
        skip_bad: bool = False,
        on_long: OnLong | None = None,
        device: str = "cpu",
        **columns: str | Sequence[str],
    ) -> finetuning.Evaluation:
        """Of a fine-tuning: on other examples with labels."""
        named_columns = _named_columns(columns)
        rows: dict[str, Path] = {}
        with TemporaryDirectory() as temporary, _named_rows(rows):
            path = Path(_split_file(data, "data", Path(temporary), rows))
            return finetuning.evaluate(
                self.folder, path, columns=named_columns, skip_bad=skip_bad, on_long=on_long, device=device
            )

    def predict(self, inputs: Iterable[Any], **options: Any) -> Predictions:
        """See `Workbench.predict`."""
        return self.model.predict(inputs, **options)


@check_arguments(skip=("data", "dev"))
def finetune(
    data: str | Path | Rows,
    *,
    task: str = Classify.schema.shape,
    model: str | Path = "minilm",
    out: str | Path,
    dev: str | Path | Rows | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    budget: str | float | None = None,
    seeds: int = 1,
    first: int | None = None,
    skip_bad: bool = False,
    on_long: OnLong | None = None,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_event: EventHandler = ignore,
    **columns: str | Sequence[str],
) -> Run:
    """Fine-tune a model on a file, on rows, on a DataFrame, or on the folder of a data set (`task="sst2"`).

    `columns` names columns that are not called as usual: `text=`, `text2=`, `question=`, `context=`, `choices=`,
    `label=`. `settings` are the keys of `--set`, such as `{"optim.lr": 1e-4}`. Rows are kept in the run's folder, so
    that it can be resumed.

    Labels are names: those that are numbers or booleans are written as text, 1 and 1.0 as "1", True as "True", and
    predictions have them so (`int(prediction.label)`).
    """
    _check_single_process()
    folder = Path(out)
    counts = {"epochs": epochs, "steps": steps, "seeds": seeds, "first": first}
    if too_low := [name for name, count in counts.items() if count is not None and count < 1]:
        cause = f"{too_low[0]} = {counts[too_low[0]]}: it counts from 1"
        raise BadConfig(cause, code="out-of-range", fields=too_low)
    named_columns = _named_columns(columns)
    options = option_settings(steps=steps, epochs=epochs, budget=budget, device=device, on_long=on_long)
    settings_by_key = parse_settings(_assignments(settings), FINETUNE_SECTIONS, options)
    if (folder / RUN).is_file():
        remedy = f"Run({str(folder)!r}).resume() continues it; or name another"
        raise SaveFailed("there is a run here already", place=str(folder), remedy=remedy, code="run-exists")
    rows: dict[str, Path] = {}
    with TemporaryDirectory() as temporary, _named_rows(rows):
        train_path = _split_file(data, "train", Path(temporary), rows)
        is_data_set = task in CATALOGUE
        source = find_source(
            task,
            data=Path(train_path) if is_data_set else None,
            train=None if is_data_set else train_path,
            dev=None if dev is None else _split_file(dev, "dev", Path(temporary), rows),
            columns=named_columns,
            first=first,
            skip_bad=skip_bad,
        )
        job = FinetuneJob.resolve(source, model=str(model), settings=settings_by_key, n_seeds=seeds)
        start_finetune(replace(job, rows=rows), folder, ProcessContext.library(on_event), seeds)
    return Run(folder)


def start_finetune(job: FinetuneJob, out: Path, process: ProcessContext, seeds: int = 1) -> Outcome:
    """A new run, of one seed or several."""
    if seeds > 1:
        return several_seeds.finetune_seeds(job, out, process, seeds)
    return finetuning.finetune(job, out, process)


@check_arguments()
def pretrain(
    shards: str | Path,
    *,
    out: str | Path,
    preset: str | None = None,
    model: str | Path | None = None,
    objective: str | None = None,
    masking: str | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    budget: str | float | None = None,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_event: EventHandler = ignore,
) -> Run:
    """Pre-train a model on prepared text: of a `preset` size from scratch, or starting from a `model`."""
    _check_single_process()
    options = option_settings(steps=steps, epochs=epochs, budget=budget, device=device, masking=masking)
    job = PretrainJob.resolve(
        Shards(shards),
        preset=preset,
        model=None if model is None else str(model),
        objective=objective,
        settings=parse_settings(_assignments(settings), PRETRAIN_SECTIONS, options),
    )
    pretraining.pretrain(job, Path(out), ProcessContext.library(on_event))
    return Run(out)


def resume_run(
    folder: Path, process: ProcessContext, *, shards: Path | None = None, workers: int | None = None
) -> Outcome:
    """Continue a run of any kind."""
    kind = RunRecord.read(folder).kind
    if kind == PRETRAIN:
        return pretraining.resume(folder, process, shards=shards, workers=workers)
    if shards is not None or workers is not None:
        remedy = "leave --shards and --workers out"
        raise BadConfig("a fine-tuning has no shards and no loader processes", remedy=remedy, code="no-effect")
    return finetuning.resume(folder, process) if kind == FINETUNE else several_seeds.resume(folder, process)


@check_arguments()
def prepare(
    files: str | Path | Sequence[str | Path],
    *,
    tokenizer: str | Path | Tokenizer,
    out: str | Path,
    workers: int | None = None,
    words: Words = "auto",
    column: str | None = None,
    line_docs: bool = False,
    file_docs: bool = False,
    skip_bad: bool = False,
) -> Shards:
    """Tokenize files of text once for every objective. In a text file documents are separated by blank lines, unless
    every line is one, or every file."""
    corpus = Corpus(_paths(files), ReadOptions(column, line_docs, skip_bad, file_docs))
    loaded = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.load(locate(tokenizer))
    prepare_corpus(corpus, loaded, Path(out), words=words, workers=workers)
    return Shards(out)


@check_arguments()
def train_vocabulary(
    files: str | Path | Sequence[str | Path],
    *,
    size: int = 30_522,
    kind: Kind = "wordpiece",
    cased: bool = False,
    out: str | Path,
    seed: int = 0,
    max_characters: int = 100_000_000,
    column: str | None = None,
    line_docs: bool = False,
    skip_bad: bool = False,
) -> Tokenizer:
    """Learn a vocabulary from files of text; of more than `max_characters`, from a random sample."""
    corpus = Corpus(_paths(files), ReadOptions(column, line_docs, skip_bad))
    train_on_corpus(corpus, Path(out), kind=kind, size=size, cased=cased, max_characters=max_characters, seed=seed)
    return Tokenizer.load(Path(out))


# ---------------------------------------------------------------------- arguments of the caller


def _check_single_process() -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        remedy = "torchrun --nproc-per-node 2 -m bertworks pretrain ..."
        raise Unsupported("a Python call trains in one process", remedy=remedy, code="several-processes")


def _paths(files: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]


def _assignments(settings: Mapping[str, object] | None) -> list[str]:
    return [f"{key}={json.dumps(_json_value(value))}" for key, value in (settings or {}).items()]


def _named_columns(columns: Mapping[str, str | Sequence[str]]) -> NamedColumns:
    unknown = [name for name in columns if name not in COLUMN_ARGUMENTS]
    if unknown:
        raise TypeError(f"unexpected argument {unknown[0]!r}; columns are named by {', '.join(COLUMN_ARGUMENTS)}")
    values = {
        name: (value,) if name in ("choices", "label") and isinstance(value, str) else value
        for name, value in columns.items()
    }
    try:
        return NamedColumns.model_validate(values)
    except ValidationError as error:
        fields = [str(detail["loc"][0]) for detail in error.errors()]
        cause = f"{fields[0]} = {columns[fields[0]]!r} is not the name of a column"
        raise BadConfig(cause, remedy="columns are named by strings", code="wrong-type", fields=fields) from None


def _split_file(data: str | Path | Rows, split: str, folder: Path, rows: dict[str, Path]) -> str:
    """The path of a split; rows are written to a file in `folder`, which is added to `rows`."""
    if isinstance(data, str | Path):
        return str(data)
    rows[split] = folder / f"{split}.jsonl"
    _write_rows(data, rows[split])
    return str(rows[split])


@contextmanager
def _named_rows(files: Mapping[str, Path]) -> Iterator[None]:
    """Errors that name the caller's rows, instead of the files that these were written to."""

    def with_names(text: str) -> str:
        for name, file in files.items():
            text = text.replace(f"{file}, line ", f"{name}, row ").replace(str(file), name)
        return text

    try:
        yield
    except BertworksError as error:
        error.cause = with_names(error.cause)
        error.place = error.place and with_names(error.place)
        if isinstance(error, BadRows):
            error.rows = [replace(row, place=with_names(row.place)) for row in error.rows]
        raise


def _write_rows(data: Rows, file: Path) -> None:
    rows = table_rows(data)
    if rows is None:
        cause = f"{with_article(type(data).__name__)}, where rows are expected"
        raise BadText(cause, remedy="a list of dicts, or a DataFrame", code="not-rows")
    if not rows:
        raise BadText("no rows", remedy="a list of dicts, or a DataFrame", code="no-rows")
    with file.open("wb") as target:
        for number, row in enumerate(rows, start=1):
            cells = {str(key): _json_value(cell) for key, cell in row.items()}
            try:
                target.write(json.dumps(cells, ensure_ascii=False).encode() + b"\n")
            except UnicodeEncodeError:
                raise BadText("half a surrogate pair", place=f"row {number}", code="lone-surrogate") from None


def _json_value(value: Any) -> object:
    """A cell as JSON: NaN is null, as are pandas' own missing values; numpy scalars are numbers."""
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, bytes):
        raise BadText("bytes, where text is expected", remedy="decode them", code="not-text")
    if hasattr(value, "item") and not isinstance(value, str | bytes) and getattr(value, "shape", ()) == ():
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple) or hasattr(value, "tolist"):
        return [_json_value(item) for item in (value.tolist() if hasattr(value, "tolist") else value)]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
