"""From a preset or a model, an objective and `--set key=value` to the config of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from bertworks.config import (
    ENCODER_CONFIGS,
    RENAMED,
    DataConfig,
    FinetuneConfig,
    FinetuneLoop,
    Frozen,
    HeadConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimConfig,
    Pairs,
    PretrainConfig,
    PretrainLoop,
    TaskConfig,
    WindowConfig,
    check_finetune,
    check_pretrain,
)
from bertworks.data.examples import PAIR_OPTIONS
from bertworks.errors import BadConfig, nearest
from bertworks.model.init import can_init_local_attention
from bertworks.objectives.objective import Objective
from bertworks.objectives.table import OBJECTIVES, objective_class
from bertworks.presets import preset as preset_config
from bertworks.presets import recipe
from bertworks.tasks.shapes import SHAPES, task_class, task_model_config
from bertworks.text.ledger import OnLong
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.policy import EVALUATION_SHARE
from bertworks.workbench import Workbench, fit_to

Sections = Mapping[str, tuple[type[Frozen], ...]]
"""Section of `--set` -> the configs that have its keys; `model` is in all of them."""
PRETRAIN: Sections = {
    "objective": (ObjectiveConfig,),
    "data": (DataConfig,),
    "optim": (OptimConfig,),
    "train": (PretrainLoop,),
}
FINETUNE: Sections = {
    "task": (TaskConfig,),
    "data": (WindowConfig,),
    "optim": (OptimConfig,),
    "train": (FinetuneLoop,),
}
CHANGEABLE = (
    "n_positions",
    "n_segments",
    "dropout",
    "attention_dropout",
    "ffn_dropout",
    "head_dropout",
)  # of a trained model
FROM_EXAMPLES = ("shape", "pairs", "counted_from", "shift", "scale")  # of a task
DEFAULT_BUDGET = 600.0  # seconds
DEFAULT_EPOCHS = 4
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def setting_keys(sections: Sections) -> dict[str, str]:
    """Every key that `--set` knows, and what it means."""
    configs: Sections = {**sections, "model": (*ENCODER_CONFIGS.values(), HeadConfig)}
    fields = (
        (f"{section}.{name}", field)
        for section, parts in configs.items()
        for part in parts
        for name, field in part.model_fields.items()
    )
    return {key: field.description or "" for key, field in fields if key != "model.kind"}


def is_settable(key: str) -> bool:
    """Whether a fine-tuning may set it: of a model that is there, and of a task that the examples show, most is
    fixed."""
    section, _, name = key.partition(".")
    return name in CHANGEABLE if section == "model" else not (section == "task" and name in FROM_EXAMPLES)


def parse_settings(settings: Iterable[str], sections: Sections) -> dict[str, dict[str, Any]]:
    """`optim.lr=1e-3` and the like, by section. Values are JSON where they can be, else text."""
    known = setting_keys(sections)
    values_by_section: dict[str, dict[str, Any]] = {section: {} for section in (*sections, "model")}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise BadConfig(
                f"{setting!r} is not key=value", remedy="for example --set optim.lr=1e-3", code="not-key-value"
            )
        key = RENAMED.get(key, key)
        if key not in known:
            same = [name for name in known if name.rpartition(".")[2] == key.rpartition(".")[2]]
            remedy = f"did you mean {same[0]!r}?" if same else nearest(key, known)
            raise BadConfig(f"no such key: {key!r}", remedy=remedy, code="unknown-key", fields=[key])
        section, _, name = key.partition(".")
        try:
            values_by_section[section][name] = json.loads(value)
        except ValueError:
            values_by_section[section][name] = value
    return values_by_section


def parse_duration(text: str) -> float:
    """`90`, `90s`, `10m`, `1.5h`, `1h30m` as seconds."""
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd]?)+", text):
        raise BadConfig(f"{text!r} is not a time", remedy="for example 90s, 10m, 1.5h, 1h30m", code="bad-duration")
    return sum(float(number) * UNITS[unit or "s"] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text))


def loop_options(
    *,
    steps: int | None = None,
    epochs: int | None = None,
    budget: str | float | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Keys of the training loop that were given by options of their own."""
    seconds = parse_duration(budget) if isinstance(budget, str) else budget
    values = {"steps": steps, "epochs": epochs, "budget": seconds, "device": device, "threads": threads}
    return {name: value for name, value in values.items() if value is not None}


def resolve_pretrain(
    tokenizer: Tokenizer,
    *,
    preset: str | None = None,
    init: Workbench | None = None,
    objective: str | None = None,
    settings: Iterable[str] = (),
    options: Mapping[str, Any],
    masking: str | None = None,
) -> PretrainConfig:
    """`options`: keys of the loop that have options of their own; without steps, epochs and budget, ten minutes."""
    asked = parse_settings(settings, PRETRAIN)
    given = [f"train.{name}" for name in options] + ["data.masking"] * (masking is not None)
    _check_once(given + ["objective.name", "data.pairs"] * (objective is not None), asked)
    if (preset is None) == (init is None):
        raise BadConfig(
            "a run starts from a preset or from a model",
            remedy="name one of --preset and --model",
            code="preset-or-init",
        )
    if init is not None:
        model = _changed(init, asked["model"])
    else:
        assert preset is not None
        model = fit_to(preset_config(preset), tokenizer)
        if objective is not None and not model.encoder.causal and objective == "ltr":
            model = model.override(causal=True)
        model = model.override(**asked["model"])
    if model.encoder.vocab_size < tokenizer.vocab_size:
        cause = f"the tokenizer has {tokenizer.vocab_size} tokens, model.vocab_size is {model.encoder.vocab_size}"
        raise BadConfig(cause, code="vocabulary-too-large", fields=["model.vocab_size"])
    parts = recipe(model, objective, trained=list(init.model.heads) if init is not None else ())
    for section in ("objective", "data", "optim", "train"):
        parts[section] = {**parts.get(section, {}), **asked[section]}
    parts["data"] |= {"masking": masking} if masking else {}
    longest = model.encoder.n_positions
    if longest is not None and "max_length" not in asked["data"]:
        parts["data"]["max_length"] = min(longest, DataConfig().max_length)
    parts["train"] |= options
    if not any(parts["train"].get(name) is not None for name in ("steps", "epochs", "budget")):
        parts["train"]["budget"] = DEFAULT_BUDGET
    if "dropout" not in asked["train"] and any(name.endswith("dropout") for name in asked["model"]):
        parts["train"]["dropout"] = None  # whoever sets the model's own wants it
    kind = objective_class(parts["objective"]["name"])
    named = {**asked, "data": {**asked["data"], **({"masking": masking} if masking else {})}}
    idle = _unused(named, kind, parts["data"].get("pairs", DataConfig().pairs))
    idle += ["optim.cooldown"] * ("cooldown" in asked["optim"] and parts["optim"].get("schedule") != "constant")
    idle += ["train.init"] * (
        "init" in asked["train"] and (init is not None or not can_init_local_attention(model.encoder))
    )
    if idle:
        raise BadConfig(
            f"no effect in this run: {', '.join(idle)}", remedy="leave it out", code="no-effect", fields=idle
        )
    config = check_pretrain({"model": model.model_dump(), **parts})
    kind.check(config)
    return config


def _unused(asked: Mapping[str, Mapping[str, Any]], kind: type[Objective], pairs: Pairs) -> list[str]:
    """Settings that only other objectives use, or other ways to make examples."""
    of_corruptions = frozenset().union(*(other.corruption.uses for other in OBJECTIVES.values()))
    of_pairs = frozenset().union(*PAIR_OPTIONS.values())
    of_objectives = frozenset().union(*(other.options for other in OBJECTIVES.values()))
    data = (of_corruptions - kind.corruption.uses) | (of_pairs - PAIR_OPTIONS.get(pairs, of_pairs))
    idle = [f"data.{name}" for name in asked["data"] if name in data]
    return idle + [f"objective.{name}" for name in asked["objective"] if name in of_objectives - kind.options]


def resolve_finetune(
    init: Workbench,
    task: TaskConfig,
    *,
    settings: Iterable[str] = (),
    options: Mapping[str, Any],
    on_long: OnLong | None = None,
    sizes: tuple[int, int] | None = None,
) -> FinetuneConfig:
    """The config of a fine-tuning: what the task is, how models of this width like to learn it, and what the user wants
    otherwise. `sizes`: how many examples train and dev have; if dev is large, it is looked at less often."""
    asked = parse_settings(settings, FINETUNE)
    _check_once([f"train.{name}" for name in options] + ["data.on_long"] * (on_long is not None), asked)
    _check_task(task, asked["task"])
    task = task.model_copy(update={"labels": tuple(asked["task"].get("labels", task.labels))})
    model = task_model_config(_changed(init, asked["model"]), task)
    lr = (
        3e-5 * (768 / model.encoder.hidden_size) ** 1.5
    )  # BERT-base was fine-tuned with 2e-5 to 5e-5; narrower models bear more
    optim = {"lr": float(f"{lr:.1g}"), "warmup": 0.1, "beta2": 0.999, "layer_decay": 0.95, **asked["optim"]}
    limits = (
        (model.encoder.n_positions,)
        if "n_positions" in asked["model"]
        else (init.limit, model.encoder.n_positions, 512)
    )
    longest = [n for n in limits if n is not None]
    data = {"max_length": min(longest, default=512), **asked["data"], **({"on_long": on_long} if on_long else {})}
    train = {**task_class(task.shape).loop_defaults, **asked["train"], **options}
    if "attention_dropout" in asked["model"]:
        train.setdefault("attention_dropout", None)  # whoever sets the model's own wants it
    if not any(train.get(name) is not None for name in ("steps", "epochs", "budget")):
        train["epochs"] = DEFAULT_EPOCHS
    if "cooldown" in asked["optim"] and optim.get("schedule") != "constant":
        cause, remedy = "without effect in this run: optim.cooldown", "leave it out, or optim.schedule=constant"
        raise BadConfig(cause, remedy=remedy, code="no-effect", fields=["optim.cooldown"])
    if train.get("patience") is not None and train.get("evaluations") == 0:
        cause, remedy = "without effect in this run: train.patience", "leave it out, or train.evaluations=4"
        raise BadConfig(cause, remedy=remedy, code="no-effect", fields=["train.patience"])
    values = {"task": {**task.model_dump(), **asked["task"]}, "data": data, "optim": optim, "train": train}
    config = check_finetune({"model": model.model_dump(), **values})
    if sizes is None or "evaluations" in train or config.train.patience is not None:
        return config
    return config.model_copy(
        update={"train": config.train.model_copy(update={"evaluations": _n_evaluations(config.train, *sizes)})}
    )


def _n_evaluations(train: FinetuneLoop, n_train: int, n_dev: int) -> int:
    """So many that they take a small part of the time; to learn from an example takes three times as long as to look at
    one."""
    if train.epochs is None and train.steps is None:
        return train.evaluations
    learned = train.epochs * n_train if train.epochs is not None else (train.steps or 0) * train.batch_size
    return max(2, min(train.evaluations, round(EVALUATION_SHARE * 3 * learned / n_dev)))


def _check_task(task: TaskConfig, asked: Mapping[str, Any]) -> None:
    """What follows from the examples stays; the order of the labels may change: of two, F1 is about the second."""
    fixed = [f"task.{name}" for name in FROM_EXAMPLES if name in asked]
    if fixed:
        cause = f"this follows from the examples: {', '.join(fixed)}"
        raise BadConfig(cause, remedy="leave it out", code="follows-from-examples", fields=fixed)
    shape = task_class(task.shape)
    of_some = frozenset().union(*(other.options for other in SHAPES.values()))
    idle = [f"task.{name}" for name in asked if name in of_some - shape.options]
    if idle:
        raise BadConfig(
            f"no effect with {task.shape}: {', '.join(idle)}", remedy="leave it out", code="no-effect", fields=idle
        )
    if asked.get("transitions", []) != []:
        cause, remedy = "task.transitions follow from the examples", "leave them out; [] lets anything follow anything"
        raise BadConfig(cause, remedy=remedy, code="follows-from-examples", fields=["task.transitions"])
    labels = asked.get("labels", task.labels)
    if not isinstance(labels, list | tuple) or sorted(labels, key=str) != sorted(task.labels):
        remedy = f"the same in another order: {json.dumps(task.labels, ensure_ascii=False)}"
        raise BadConfig(f"task.labels = {labels!r}", remedy=remedy, code="different-labels", fields=["task.labels"])
    metric = asked.get("metric", task.metric)
    known = [one.name for one in shape.metrics_for(task.labels) if one.higher_is_better]
    if metric not in known:
        raise BadConfig(
            f"task.metric = {metric!r}",
            remedy=f"known: {', '.join(known)}",
            code="unknown-metric",
            fields=["task.metric"],
        )


def _check_once(options: Iterable[str], asked: Mapping[str, Mapping[str, Any]]) -> None:
    """Options that `--set` gives too."""
    twice = [key for key in options if key.partition(".")[2] in asked[key.partition(".")[0]]]
    if twice:
        cause = f"given twice, as an option and by --set: {', '.join(twice)}"
        raise BadConfig(cause, remedy="give it once", code="given-twice", fields=twice)


def _changed(init: Workbench, asked: Mapping[str, Any]) -> ModelConfig:
    wrong = [name for name in asked if name not in CHANGEABLE]
    if wrong:
        cause, remedy = f"a trained model cannot change its {', '.join(wrong)}", f"it can: {', '.join(CHANGEABLE)}"
        raise BadConfig(cause, remedy=remedy, code="cannot-change", fields=[f"model.{name}" for name in wrong])
    return init.config.override(**asked)
