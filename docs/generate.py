"""The pages of docs/reference that follow from the source: `python docs/generate.py` writes them, `--check` says which
are not what it would write.

It stands beside the pages it makes and is no part of the package: only `make docs` and a test need it.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import tokenize
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer.main
from annotated_types import Ge, Gt, Le, Lt, MinLen
from codes import Collection
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import bertworks
from bertworks.cli.main import app
from bertworks.config import ENCODER_CONFIGS, RENAMED, Frozen, HeadConfig, TaskConfig
from bertworks.errors import BertworksError
from bertworks.fill import Candidate, Filled
from bertworks.model.attention import AttentionLayer, Recording
from bertworks.model.count import count_config
from bertworks.predictor import Embedder, OnBad, Predictions, Predictor, PreparedInput
from bertworks.presets import FAMILY_RECIPES, PRESETS, RECIPES, preset, recipe
from bertworks.runs.finetune import Evaluation
from bertworks.runs.settings import (
    DEFAULT_BUDGET,
    FINETUNE,
    PRETRAIN,
    Sections,
    is_settable,
    resolve_finetune,
    setting_keys,
)
from bertworks.tasks.catalogue import CATALOGUE
from bertworks.tasks.classify import Classify
from bertworks.tasks.shapes import SHAPES
from bertworks.tasks.task import Prediction
from bertworks.text.ledger import OnLong
from bertworks.text.training import Kind
from bertworks.train import events
from bertworks.workbench import AttentionView

FOLDER = Path(__file__).parent / "reference"
PACKAGE = Path(bertworks.__file__).parent
MADE = "<!-- Made by docs/generate.py from the source. Edit the source, then: python docs/generate.py -->"
RECIPE_PARTS = ("objective", "data", "optim", "train")
WIDTHS = (256, 384, 768, 1024)
LONGEST_SIGNATURE = 90
Lines = Iterator[str]


# ---------------------------------------------------------------------- Markdown


def code(text: str) -> str:
    """In a table a bar would end the cell, in backticks too on some sites."""
    return f"<code>{escape(text, quote=False).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def cell(text: str) -> str:
    """Words, not markup."""
    return escape(" ".join(text.split()), quote=False).replace("|", "&#124;").replace("*", "&#42;")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    """Without columns in which nothing stands."""
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:])]
    head, *body = zip(*columns, strict=True)
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in body)
    yield ""


def sentence(text: str | None) -> str:
    text = (text or "").strip()
    return text + ("" if text.endswith((".", ":", "?")) or not text else ".")


# ---------------------------------------------------------------------- the command line


def cli() -> Lines:
    yield "# Command line"
    yield ""
    yield MADE
    yield ""
    yield "Every verb, as `bertworks VERB --help` has it. What a user can put right ends with exit code 2 and a message with"
    yield "a [code](errors.md), a place and a remedy; a training that diverged ends with 3."
    yield ""
    root = typer.main.get_command(app)
    commands = dict(_commands(root, "bertworks"))
    rows = [
        (f"[`{name}`](#{name.replace(' ', '-')})", cell(_first_sentence(command.help)))
        for name, command in commands.items()
        if not _inner(command)
    ]
    yield from table(("Verb", "What it does"), rows)
    for name, command in commands.items():
        yield f"{'#' * len(name.split())} {name}"
        yield ""
        yield from (*_paragraphs(command.help), "")
        if not _inner(command):
            yield from _usage(name, command)
    yield from _tables_and_data_sets()


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for key, inner in _inner(command).items():
        if not inner.hidden:
            yield f"{name} {key}", inner
            yield from _commands(inner, f"{name} {key}")


def _inner(command: Any) -> dict[str, Any]:
    return getattr(command, "commands", {})


def _usage(name: str, command: Any) -> Lines:
    shown = [one for one in command.params if not one.hidden]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    yield "```text"
    yield " ".join([name, *map(_argument, arguments), *(["[OPTIONS]"] if options else [])])
    yield "```"
    yield ""
    if arguments:
        yield from table(("Argument", "What it is"), [(code(_argument(one)), _help(one)) for one in arguments])
    if options:
        rows = [(_option(one), _default(one), _help(one)) for one in options]
        yield from table(("Option", "Default", "What it is"), rows)
    if any("--set" in one.opts for one in options):
        yield from ("The keys of `--set` are in [settings](settings.md).", "")


def _argument(one: Any) -> str:
    name = one.metavar or one.name.upper()
    name += "..." if one.nargs == -1 or one.multiple else ""
    return name if one.required else f"[{name}]"


def _option(one: Any) -> str:
    names = ", ".join(code(name) for name in [*one.opts, *one.secondary_opts])
    return names if one.is_flag else f"{names}&nbsp;{code(one.metavar or _value(one.type_descriptor.annotation))}"


def _value(annotation: Any) -> str:
    if get_origin(annotation) is list:
        return _value(get_args(annotation)[0])
    words = {int: "INTEGER", float: "NUMBER", Path: "PATH", str: "TEXT"}
    return "CHOICE" if get_origin(annotation) is Literal else words[annotation]


def _default(one: Any) -> str:
    if one.required:
        return "required"
    return "" if one.default is None or one.is_flag else code(str(one.default))


def _help(one: Any) -> str:
    annotation = one.type_descriptor.annotation
    parts = [cell(sentence(one.help))]
    if get_origin(annotation) is Literal:
        parts.append(f"One of {', '.join(code(str(value)) for value in get_args(annotation))}.")
    bounds = _range(ge=one.min, le=one.max)
    parts += [f"{bounds[0].upper()}{bounds[1:]}."] if bounds else []
    if one.param_type_name == "option" and one.multiple:
        parts.append("May be given several times.")
    return " ".join(parts)


def _first_sentence(text: str | None) -> str:
    text = " ".join((text or "").split())
    return text.partition(". ")[0].rstrip(".") + "."


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in (text or "").split("\n\n")]


def _tables_and_data_sets() -> Lines:
    yield "## Tables for fine-tuning"
    yield ""
    yield "Columns with the usual names are found; others are named with the options of `bertworks finetune`."
    yield ""
    rows = [row for task in SHAPES.values() for row in task.schema.table_help]
    yield from table(
        ("Task", "Usual columns", "A row"), [(code(name), cell(usual), cell(row)) for name, usual, row in rows]
    )
    yield "## Data sets"
    yield ""
    yield "Read from their official files. *By hand*: tried on files made by hand in that format, not on the official ones."
    yield ""
    rows = [
        (
            code(name),
            cell(row.description),
            ", ".join(code(names[0]) for names in row.files.values()),
            "official" if row.tested_on_official_files else "by hand",
        )
        for name, row in CATALOGUE.items()
    ]
    yield from table(("Name", "What is asked", "Files", "Tried on"), rows)


# ---------------------------------------------------------------------- settings


def settings() -> Lines:
    yield "# Settings"
    yield ""
    yield MADE
    yield ""
    yield "`--set KEY=VALUE` on the command line, `settings={KEY: VALUE}` in Python. Values are JSON where they can be"
    yield '(`true`, `null`, `1e-4`, `["no", "yes"]`), else text. `--show` prints the whole config of a run and stops.'
    yield "Keys of another objective, task or schedule, which would have no effect in a run, are refused by name."
    yield ""
    yield "## Pre-training"
    yield ""
    yield "Some defaults depend on the objective, or on the width of the model (`model.hidden_size`). If it is not named, the"
    yield "objective is the family's:"
    yield ""
    families = ((code(family), code(name)) for family, name in FAMILY_RECIPES.items())
    yield from table(("Family", "Objective"), families)
    yield from _sections(PRETRAIN, _pretrain_defaults())
    yield "## Fine-tuning"
    yield ""
    yield "`data.max_length` is the longest text that the model takes, but not above its default. Keys of `model` change a"
    yield "model that is there; without them it stays as it is."
    yield ""
    yield from _sections(FINETUNE, _finetune_defaults(), is_settable)
    yield "## Old keys"
    yield ""
    yield "Understood, and said to be old."
    yield ""
    yield from table(("Before 0.2", "Today"), ((code(old), code(new)) for old, new in RENAMED.items()))
    yield "## Presets"
    yield ""
    yield "Sizes for `--preset` and `bertworks.new`. Parameters are those of a model without heads."
    yield ""
    sizes = ((name, PRESETS[name]()) for name in PRESETS)
    header = ("Preset", "Layers", "Width", "Heads", "Vocabulary", "Longest text", "Parameters")
    yield from table(header, (_size_row(name, config) for name, config in sizes))


def _size_row(name: str, config: Any) -> tuple[str, ...]:
    encoder = config.encoder
    longest = "any" if encoder.n_positions is None else f"{encoder.n_positions:,}"
    numbers = (encoder.n_layers, encoder.hidden_size, getattr(encoder, "n_heads", 0), encoder.vocab_size)
    return code(name), *(f"{number:,}" for number in numbers), longest, f"{count_config(config).total / 1e6:,.1f} M"


def _sections(sections: Sections, defaults: Mapping[str, str], wanted: Callable[[str], bool] = bool) -> Lines:
    kind = "Pre-training" if sections is PRETRAIN else "Fine-tuning"
    parts = {**sections, "model": (*ENCODER_CONFIGS.values(), HeadConfig)}
    fields = {
        f"{section}.{name}": field
        for section, configs in parts.items()
        for config in configs
        for name, field in config.model_fields.items()
    }
    keys = [key for key in setting_keys(sections) if wanted(key)]
    for section, configs in parts.items():
        yield f"### {kind}: {section}"
        yield ""
        yield from (*_paragraphs(_widest(configs[0]).__doc__ if section != "model" else MODEL_NOTES[kind]), "")
        rows = [
            (code(key), _type(field), defaults.get(key, _plain_default(field)), cell(field.description or ""))
            for key, field in ((key, fields[key]) for key in keys if key.startswith(f"{section}."))
        ]
        yield from table(("Key", "Type", "Default", "What it is"), rows)


MODEL_NOTES = {
    "Pre-training": "A new model. Defaults are those of BERT-base; a preset has its own. Of a model that is there (`--model`), only "
    "what fine-tuning may change can be set.",
    "Fine-tuning": "What may change in a model that is there.",
}


def _widest(config: type[Frozen]) -> type[Frozen]:
    """The base that says what all of its kind have."""
    return next(base for base in reversed(config.__mro__) if issubclass(base, Frozen) and base is not Frozen)


def _pretrain_defaults() -> dict[str, str]:
    """Where they are not those of the fields: by objective, and by width."""
    base = {
        f"{section}.{name}": field
        for section in RECIPE_PARTS
        for name, field in PRETRAIN[section][0].model_fields.items()
    }
    by_value: dict[str, dict[str, list[str]]] = {}
    for objective, parts in RECIPES.items():
        for key, value in _flat(parts).items():
            if value != base[key].default and key != "objective.name":
                by_value.setdefault(key, {}).setdefault(_json(value), []).append(objective)
    defaults = {
        key: "<br>".join(
            [_plain_default(base[key]), *(f"{', '.join(names)}:&nbsp;{code(value)}" for value, names in values.items())]
        )
        for key, values in by_value.items()
    }
    rates = {width: recipe(_of_width(width), "mlm")["optim"]["lr"] for width in WIDTHS}
    sizes = {width: recipe(_of_width(width), "rtd")["objective"]["generator_size"] for width in WIDTHS}
    return defaults | {
        "objective.name": "the family's",
        "objective.generator_size": _by_width(sizes),
        "optim.lr": f"{_by_width(rates)}<br>lower where `--model` has its head already",
        "train.budget": f"{code(_json(DEFAULT_BUDGET))} if neither steps nor epochs are set",
        "model.vocab_size": "the tokenizer's",
    }


def _finetune_defaults() -> dict[str, str]:
    """Where they are not those of the fields: what a config is resolved to."""
    task = TaskConfig(shape=Classify.schema.shape, labels=("no", "yes"))
    configs = {}
    for width in WIDTHS:
        bench = bertworks.new("bert-base", vocab_size=8, hidden_size=width, n_heads=width // 64, n_layers=1)
        configs[width] = _flat(resolve_finetune(bench, task, settings={}).model_dump(mode="json"))
    base = configs[768]
    defaults = {key: code(_json(value)) for key, value in base.items() if not key.startswith(("model.", "task."))}
    defaults |= {key: "the model's" for key in setting_keys(FINETUNE) if key.startswith("model.")}
    defaults["optim.lr"] = _by_width({width: config["optim.lr"] for width, config in configs.items()})
    for name, shape in SHAPES.items():
        for key, value in shape.loop_defaults.items():
            defaults[f"train.{key}"] += f"<br>{name}:&nbsp;{code(_json(value))}"
    from_examples = {"task.labels": "those of the examples", "task.transitions": "those of the examples"}
    return defaults | from_examples | {"task.metric": "the task's"}


def _of_width(width: int) -> Any:
    return preset("bert-base").override(hidden_size=width, n_heads=width // 64)


def _by_width(values: Mapping[int, Any]) -> str:
    if len(set(values.values())) == 1:
        return code(_json(next(iter(values.values()))))
    return "<br>".join(f"width&nbsp;{width}:&nbsp;{code(_json(value))}" for width, value in values.items())


def _flat(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{section}.{name}": value for section, part in parts.items() for name, value in part.items()}


def _plain_default(field: FieldInfo) -> str:
    return "" if field.default is PydanticUndefined else code(_json(field.default))


def _json(value: Any) -> str:
    if isinstance(value, float) and not isinstance(value, bool) and value != round(value, 6):
        value = float(f"{value:.4g}")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _type(field: FieldInfo) -> str:
    metadata = list(field.metadata)
    said = _annotation(field.annotation, metadata)
    bounds = _bounds(metadata)
    return f"{said}, {bounds}" if bounds else said


def _annotation(annotation: Any, metadata: list[Any]) -> str:
    """Its words; bounds that are inside of it go to `metadata`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        metadata += inner[1:]
        return _annotation(inner[0], metadata)
    if origin in (Union, types.UnionType):
        others = [_annotation(one, metadata) for one in inner if one is not type(None)]
        return " or ".join([*others, *(["`null`"] if type(None) in inner else [])])
    if origin is Literal:
        return ", ".join(code(_json(one)) for one in inner)
    if origin is tuple:
        return "list"
    return {int: "integer", float: "number", str: "text", bool: "`true` or `false`"}[annotation]


def _bounds(metadata: Iterable[Any]) -> str:
    limits: dict[str, Any] = {}
    for one in metadata:
        if isinstance(one, FieldInfo):
            return _bounds(one.metadata)
        for kind, name in ((Ge, "ge"), (Gt, "gt"), (Le, "le"), (Lt, "lt")):
            if isinstance(one, kind):
                limits[name] = getattr(one, name)
        if isinstance(one, MinLen):
            return f"at least {one.min_length}"
    return _range(**limits)


def _range(ge: Any = None, le: Any = None, gt: Any = None, lt: Any = None) -> str:
    if ge is not None and le is not None:
        return f"{_number(ge)} to {_number(le)}"
    limits = (("at least", ge), ("above", gt), ("at most", le), ("below", lt))
    return ", ".join(f"{word} {_number(limit)}" for word, limit in limits if limit is not None)


def _number(value: float) -> str:
    if isinstance(value, int) and value >= 2**17 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    if value >= 1e6:
        return f"{value:.0e}".replace("e+0", "e")
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


# ---------------------------------------------------------------------- Python


USED = (
    Predictor,
    Embedder,
    Predictions,
    PreparedInput,
    Evaluation,
    AttentionView,
    Filled,
    Candidate,
    Recording,
    AttentionLayer,
)


ALIASES = {  # names that signatures use
    "Rows": "a list of dicts, or a DataFrame of pandas or polars",
    "OnLong": ", ".join(code(one) for one in get_args(OnLong)),
    "OnBad": ", ".join(code(one) for one in get_args(OnBad)),
    "Kind": ", ".join(code(one) for one in get_args(Kind)),
    "Vectors": "numpy array of float32",
    "Cosines": "numpy array of float64",
    "EventHandler": "called with each [event](events.md)",
    "Progress": "called with (done, of how many)",
    "OnLayer": "called with each [AttentionLayer](#attentionlayer)",
}


def python() -> Lines:
    yield "# Python"
    yield ""
    yield MADE
    yield ""
    yield "What `import bertworks` offers, and what its calls return. A call leaves its process as it is: no signal handlers,"
    yield "no threads set, nothing printed. The import sets how threads wait, if torch is not imported yet"
    yield "([a busy machine](../guides/several-processes.md#a-busy-machine)). Errors are in [errors](errors.md), events in"
    yield "[events](events.md)."
    yield ""
    offered = [getattr(bertworks, name) for name in bertworks.__all__]
    functions = [one for one in offered if not inspect.isclass(one)]
    yield from table(("Type", "What it is"), [(code(name), text) for name, text in ALIASES.items()])
    yield "## Functions"
    yield ""
    for one in functions:
        yield from _callable(f"bertworks.{one.__name__}", one)
    for one in (one for one in offered if inspect.isclass(one)):
        yield from _class(one, f"bertworks.{one.__name__}")
    for one in USED:
        yield from _class(one, one.__name__)
    yield "## Predictions of each task"
    yield ""
    yield from _doc(Prediction)
    yield from _members(Prediction)
    for shape, task in SHAPES.items():
        kind = _prediction_of(task)
        yield f"### {kind.__name__}"
        yield ""
        yield f"Of {code(shape)}."
        yield ""
        yield from _fields(kind)
        yield from _members(kind, level=4, beside=Prediction)


def _prediction_of(task: type) -> type[Prediction]:
    """What its class is generic over."""
    for base in getattr(task, "__orig_bases__", ()):
        for one in get_args(base):
            if inspect.isclass(one) and issubclass(one, Prediction):
                return one
    raise TypeError(f"{task.__name__} does not say what it predicts")


def _class(one: type, name: str) -> Lines:
    yield f"## {name}"
    yield ""
    if name == "bertworks.Run":  # the only one of them that callers make themselves
        yield from _fence(_signature(one.__name__, one))
    yield from _doc(one)
    yield from _fields(one)
    yield from _members(one)


def _members(one: type, *, level: int = 3, beside: type = object) -> Lines:
    """Public properties and methods; not those that `beside` has already."""
    own = {name: member for name, member in vars(one).items() if not name.startswith("_") and not hasattr(beside, name)}
    made = {name: getattr(member, "fget", None) or getattr(member, "func", None) for name, member in own.items()}
    rows = [
        (code(name), code(str(inspect.signature(maker).return_annotation)), cell(inspect.getdoc(maker) or ""))
        for name, maker in made.items()
        if maker is not None
    ]
    if rows:
        yield from table(("Property", "Type", "What it is"), rows)
    for name, member in own.items():
        if inspect.isfunction(member):
            yield from _callable(f"{one.__name__}.{name}", member, level=level)


def _callable(name: str, function: Any, *, level: int = 3) -> Lines:
    yield f"{'#' * level} {name}"
    yield ""
    yield from _fence(_signature(name.rpartition(".")[2], function))
    yield from _doc(function)


def _doc(one: Any) -> Lines:
    """What dataclass writes where nothing is written is not worth showing."""
    text = inspect.getdoc(one) or ""
    if text and not text.startswith(f"{one.__name__}("):
        yield from (text, "")


def _fence(text: str) -> Lines:
    yield "```py"  # not "python": blocks in that language are programs, and a test runs them
    yield text
    yield "```"
    yield ""


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    parts, seen_star = [], False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not seen_star:
            parts.append("*")
        seen_star = seen_star or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        parts.append(_parameter(one))
    returns = "" if signature.return_annotation in (signature.empty, "None") else f" -> {signature.return_annotation}"
    if hasattr(function, "__wrapped__"):  # @contextmanager
        returns = returns.replace("Iterator", "AbstractContextManager")
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) <= LONGEST_SIGNATURE:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returns}"])


def _parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    annotation = "" if one.annotation is one.empty else f": {one.annotation}"
    if one.default is one.empty:
        return f"{stars}{one.name}{annotation}"
    default = one.default.__name__ if inspect.isfunction(one.default) else repr(one.default)
    return f"{stars}{one.name}{annotation} = {default}"


def _fields(one: type) -> Lines:
    if is_dataclass(one):
        rows = [(code(name), code(kind), cell(comment)) for name, kind, comment in _written_fields(one)]
        if rows:
            yield from table(("Field", "Type", "What it is"), rows)


def _written_fields(one: type) -> Iterator[tuple[str, str, str]]:
    """Name, type with its default, and the comment, as they stand in the source."""
    source = inspect.getsource(one)
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = ast.unparse(node.annotation)
            if not kind.startswith("ClassVar"):
                default = node.value if not isinstance(node.value, ast.Call) else None
                shown = f"{kind} = {ast.unparse(default)}" if default is not None else kind
                yield node.target.id, shown, comments.get(node.end_lineno or 0, "")


# ---------------------------------------------------------------------- events, errors


def event_page() -> Lines:
    yield "# Events"
    yield ""
    yield MADE
    yield ""
    yield "What happens in a run. Each event is a line of `metrics.jsonl` in the run's folder, a JSON object with `kind` and the"
    yield "fields below; `on_event=` in Python hears them as they happen, and `Run(folder).events` reads them back. JSON has no"
    yield "NaN: a number that is not finite is `null`."
    yield ""
    yield "Every event has:"
    yield ""
    yield from _fields(events.Event)
    rows = [(f"[`{kind}`](#{one.__name__.lower()})", code(one.__name__)) for kind, one in events.KINDS.items()]
    yield from table(("`kind`", "Class"), rows)
    for kind, one in events.KINDS.items():
        yield f"## {one.__name__}"
        yield ""
        yield from (f"`kind` is {code(kind)}.", "")
        yield from _doc(one)
        yield from _fields(one)


def errors() -> Lines:
    found = Collection(PACKAGE)
    uses = found.uses()
    yield "# Errors and remarks"
    yield ""
    yield MADE
    yield ""
    yield "Everything that a user can cause is a `bertworks.errors.BertworksError` with `code`, `cause`, `place` and `remedy`;"
    yield "`as_dict()` gives the four. Codes are for programs and stay; the words may change. The command line prints"
    yield "`error (CODE): CAUSE` without a traceback, and ends with the exit code of the class."
    yield ""
    yield "## Classes"
    yield ""
    rows = [
        (code(one.name), code(one.code), str(one.exit_code), cell(one.doc.partition("\n\n")[0]))
        for one in found.classes.values()
    ]
    yield from table(("Class", "Code, if no other", "Exit code", "What is wrong"), rows)
    yield "## Codes of errors"
    yield ""
    yield "With the words of one or two of the places that raise it; … stands for a value."
    yield ""
    kinds = [BertworksError.__name__, *found.classes]
    yield from _codes([use for use in uses if use.kind in kinds], with_class=True)
    yield "## Codes of invalid rows"
    yield ""
    yield "Why a row of a table is no example. Rows are counted and named; where bad rows are not allowed, an error follows."
    yield ""
    yield from _codes([use for use in uses if use.kind == "row"], with_class=False)
    yield "## Codes of remarks"
    yield ""
    yield "Worth saying, and no error: `bertworks.errors.Remark`, events of the kind `remark`."
    yield ""
    yield from _codes([use for use in uses if use.kind == "Remark"], with_class=False)


def _codes(uses: Sequence[Any], *, with_class: bool) -> Lines:
    by_code: dict[str, list[Any]] = {}
    for use in uses:
        by_code.setdefault(use.code, []).append(use)
    rows = []
    for name, same in by_code.items():
        kinds = ", ".join(code(kind) for kind in dict.fromkeys(use.kind for use in same))
        samples = "<br>".join([cell(use.sample) for use in same if use.sample.strip("… ,:;")][:2])
        rows.append((code(name), *((kinds,) if with_class else ()), samples))
    yield from table(("Code", *(("Class",) if with_class else ()), "Words"), rows)


PAGES: dict[str, Callable[[], Lines]] = {
    "cli.md": cli,
    "settings.md": settings,
    "python.md": python,
    "events.md": event_page,
    "errors.md": errors,
}


def main() -> int:
    stale = []
    for name, page in PAGES.items():
        path, text = FOLDER / name, "\n".join(page()).rstrip("\n") + "\n"
        if not path.is_file() or path.read_text("utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv[1:]:
                path.write_text(text, encoding="utf-8")
    if "--check" in sys.argv[1:] and stale:
        print(f"not what docs/generate.py makes now: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
