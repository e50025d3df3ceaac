"""The config of a run, from a preset or a model, an objective or a task, and `--set key=value`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from bertworks.config import (
    ENCODER_CONFIGS,
    MAX_BUDGET,
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
from bertworks.train.policy import EVALUATION_SHARE, EVALUATION_SPEED
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
Settings = Mapping[str, object]
"""What the user has set, by key, such as `optim.lr`; from `parse_settings`, which knows the keys."""
# Fields that a trained model may change.
CHANGEABLE = ("n_positions", "n_segments", "dropout", "attention_dropout", "ffn_dropout", "head_dropout")
FROM_EXAMPLES = ("shape", "pairs", "counted_from", "shift", "scale")  # fields of a task that `--set` cannot change
SYNONYMS = {  # what others call a key, for suggestions
    **dict.fromkeys(("learning_rate", "rate", "peak_lr"), ("optim.lr",)),
    **dict.fromkeys(("decay", "wd", "l2"), ("optim.weight_decay",)),
    **dict.fromkeys(("warmup_ratio", "warmup_steps", "warmup_share"), ("optim.warmup",)),
    **dict.fromkeys(
        ("batch_size", "batch", "bs", "train_batch_size", "per_device_train_batch_size"),
        ("train.batch_size", "train.batch_tokens"),
    ),
    **dict.fromkeys(("num_train_epochs", "num_epochs", "n_epochs"), ("train.epochs",)),
    **dict.fromkeys(("max_steps", "num_steps", "n_steps"), ("train.steps",)),
    **dict.fromkeys(("max_len", "max_seq_length", "max_seq_len", "length"), ("data.max_length",)),
    **dict.fromkeys(("random_state", "random_seed"), ("train.seed",)),
}
DEFAULT_BUDGET = 600.0  # seconds
DEFAULT_EPOCHS = 4
UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


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
    """Whether a fine-tuning may set it: most fields of a trained model, and of a task, are fixed."""
    section, _, name = key.partition(".")
    return name in CHANGEABLE if section == "model" else not (section == "task" and name in FROM_EXAMPLES)


def parse_settings(settings: Iterable[str], sections: Sections, options: Settings | None = None) -> Settings:
    """`optim.lr=1e-3` and the like by key, beside `options`, from `option_settings`; each key once. Values are JSON
    where they can be, else text."""
    keys = setting_keys(sections)
    values = dict(options or {})
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            remedy = "for example --set optim.lr=1e-3"
            raise BadConfig(f"{setting!r} is not key=value", remedy=remedy, code="not-key-value")
        key = RENAMED.get(key, key)
        if key not in keys:
            settable = [other for other in keys if sections is not FINETUNE or is_settable(other)]
            remedy = _similar_key(key, settable)
            raise BadConfig(f"no such key: {key!r}", remedy=remedy, code="unknown-key", fields=[key])
        if key in values:
            _refuse_twice(key)
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return values


def _similar_key(key: str, keys: Sequence[str]) -> str:
    """A remedy: the key that is meant, else those of its section, else the sections."""
    section, _, name = key.rpartition(".")
    meant = [other for other in keys if other.rpartition(".")[2] == name or other in SYNONYMS.get(name, ())]
    if meant:
        return f"did you mean {meant[0]!r}?"
    in_section = [other for other in keys if other.startswith(f"{section}.")]
    if in_section or get_close_matches(key, keys, n=1):
        return nearest(key, in_section or keys)
    sections = dict.fromkeys(other.partition(".")[0] for other in keys)
    return f"a key is one of {', '.join(sections)}, a dot and a name, such as optim.lr"


def _refuse_twice(key: str) -> NoReturn:
    cause = f"given twice, by --set or by an option of its own: {key}"
    raise BadConfig(cause, remedy="give it once", code="given-twice", fields=[key])


def _by_section(settings: Settings, sections: Sections) -> dict[str, dict[str, Any]]:
    by_section: dict[str, dict[str, Any]] = {section: {} for section in (*sections, "model")}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        by_section[section][name] = value
    return by_section


def parse_duration(text: str) -> float:
    """`90`, `90s`, `10m`, `1.5h`, `1h30m` as seconds."""
    if not re.fullmatch(r"\d+(\.\d+)?|(\d+(\.\d+)?[smhd])+", text):
        raise BadConfig(f"{text!r} is not a time", remedy="for example 90s, 10m, 1.5h, 1h30m", code="bad-duration")
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    seconds = sum(float(number) * UNIT_SECONDS[unit or "s"] for number, unit in parts)
    if not 0 < seconds <= MAX_BUDGET:
        cause = f"{text!r}: not a time to train for, which is more than 0 and at most {MAX_BUDGET:,.0f} seconds"
        raise BadConfig(cause, remedy="for example 90s, 10m, 1.5h, 1h30m", code="bad-duration")
    return seconds


def option_settings(
    *,
    steps: int | None = None,
    epochs: int | None = None,
    budget: str | float | None = None,
    device: str | None = None,
    threads: int | None = None,
    masking: str | None = None,
    on_long: OnLong | None = None,
) -> Settings:
    """The keys that have command-line options of their own, where these were given."""
    values = {
        "train.steps": steps,
        "train.epochs": epochs,
        "train.budget": parse_duration(budget) if isinstance(budget, str) else budget,
        "train.device": device,
        "train.threads": threads,
        "data.masking": masking,
        "data.on_long": on_long,
    }
    return {key: value for key, value in values.items() if value is not None}


def resolve_pretrain(
    tokenizer: Tokenizer,
    *,
    preset: str | None = None,
    init: Workbench | None = None,
    objective: str | None = None,
    settings: Settings,
) -> PretrainConfig:
    """Without steps, epochs and budget a run takes ten minutes."""
    user_settings = _by_section(settings, PRETRAIN)
    for key in ("objective.name", "data.pairs"):  # that an objective stands for
        if objective is not None and key in settings:
            _refuse_twice(key)
    if preset is None and init is None:
        cause = "nothing to train: a pre-training needs a preset (new weights) or a model to start from"
        remedy = "bertworks pretrain SHARDS --preset bert-mini --out RUN, or --model MODEL in place of the preset"
        raise BadConfig(cause, remedy=remedy, code="preset-or-model")
    if preset is not None and init is not None:
        cause = "a preset and a model are both given: new weights, or a trained model's?"
        raise BadConfig(cause, remedy="leave out --preset to start from the model", code="preset-or-model")
    if init is not None:
        model = _override_trained(init, user_settings["model"])
    else:
        assert preset is not None
        model = fit_to(preset_config(preset), tokenizer)
        if objective == "ltr" and not model.encoder.causal:
            model = model.override(causal=True)
        model = model.override(**user_settings["model"])
    if model.encoder.vocab_size < tokenizer.vocab_size:
        cause = f"the tokenizer has {tokenizer.vocab_size} tokens, model.vocab_size is {model.encoder.vocab_size}"
        raise BadConfig(cause, code="vocabulary-too-large", fields=["model.vocab_size"])
    parts = recipe(model, objective, trained=list(init.model.heads) if init is not None else ())
    for section in ("objective", "data", "optim", "train"):
        parts[section] = {**parts.get(section, {}), **user_settings[section]}
    n_positions = model.encoder.n_positions
    if n_positions is not None and "max_length" not in user_settings["data"]:
        parts["data"]["max_length"] = min(n_positions, DataConfig().max_length)
    if not any(parts["train"].get(name) is not None for name in ("steps", "epochs", "budget")):
        parts["train"]["budget"] = DEFAULT_BUDGET
    if "dropout" not in user_settings["train"] and any(name.endswith("dropout") for name in user_settings["model"]):
        parts["train"]["dropout"] = None  # the model's own, since the user set it
    objective_type = objective_class(parts["objective"]["name"])
    unused = _unused_settings(user_settings, objective_type, parts["data"].get("pairs", DataConfig().pairs))
    if "cooldown" in user_settings["optim"] and parts["optim"].get("schedule") != "constant":
        unused.append("optim.cooldown")
    if "init" in user_settings["train"] and (init is not None or not can_init_local_attention(model.encoder)):
        unused.append("train.init")
    if unused:
        _refuse_unused(unused)
    config = check_pretrain({"model": model.model_dump(), **parts})
    objective_type.check(config)
    return config


def _unused_settings(
    user_settings: Mapping[str, Mapping[str, object]], objective_type: type[Objective], pairs: Pairs
) -> list[str]:
    """Settings that only other objectives use, or other kinds of sentence pairs."""
    of_corruptions = frozenset().union(*(other.corruption.uses for other in OBJECTIVES.values()))
    of_pairs = frozenset().union(*PAIR_OPTIONS.values())
    of_objectives = frozenset().union(*(other.options for other in OBJECTIVES.values()))
    unused = {
        "data": (of_corruptions - objective_type.corruption.uses) | (of_pairs - PAIR_OPTIONS.get(pairs, of_pairs)),
        "objective": of_objectives - objective_type.options,
    }
    return [
        f"{section}.{name}" for section, names in unused.items() for name in user_settings[section] if name in names
    ]


def _refuse_unused(keys: list[str], remedy: str = "leave it out") -> NoReturn:
    raise BadConfig(f"no effect in this run: {', '.join(keys)}", remedy=remedy, code="no-effect", fields=keys)


def resolve_finetune(
    init: Workbench,
    task: TaskConfig,
    *,
    settings: Settings,
    sizes: tuple[int, int] | None = None,
) -> FinetuneConfig:
    """The config of a fine-tuning: the task, defaults for a model of this width, and the user's settings. `sizes`: the
    number of examples of train and dev; a large dev is evaluated less often."""
    user_settings = _by_section(settings, FINETUNE)
    _check_task(task, user_settings["task"])
    task = task.model_copy(update={"labels": tuple(user_settings["task"].get("labels", task.labels))})
    model = task_model_config(_override_trained(init, user_settings["model"]), task)
    # BERT-base was fine-tuned with 2e-5 to 5e-5; narrower models stand higher learning rates.
    lr = 3e-5 * (768 / model.encoder.hidden_size) ** 1.5
    optim = {"lr": float(f"{lr:.1g}"), "warmup": 0.1, "beta2": 0.999, "layer_decay": 0.95, **user_settings["optim"]}
    n_positions = model.encoder.n_positions
    limits = (n_positions,) if "n_positions" in user_settings["model"] else (init.limit, n_positions, 512)
    max_length = min((limit for limit in limits if limit is not None), default=512)
    data = {"max_length": max_length, **user_settings["data"]}
    _check_overlap(user_settings["data"], data["max_length"])
    train = {**task_class(task.shape).loop_defaults, **user_settings["train"]}
    if "attention_dropout" in user_settings["model"]:
        train.setdefault("attention_dropout", None)  # the model's own, since the user set it
    if not any(train.get(name) is not None for name in ("steps", "epochs", "budget")):
        train["epochs"] = DEFAULT_EPOCHS
    if "attention_dropout" in user_settings["train"] and not hasattr(model.encoder, "attention_dropout"):
        _refuse_unused(["train.attention_dropout"])
    if "train_windows" in user_settings["data"] and not (
        task_class(task.shape).samples_windows and data.get("on_long", "window") == "window"
    ):
        _refuse_unused(["data.train_windows"])
    if "cooldown" in user_settings["optim"] and optim.get("schedule") != "constant":
        _refuse_unused(["optim.cooldown"], "leave it out, or optim.schedule=constant")
    if "evaluate_tokens" in user_settings["train"] and train.get("budget") is None:
        _refuse_unused(["train.evaluate_tokens"], "leave it out: without a time budget evaluations read all of dev")
    if train.get("patience") is not None and train.get("evaluations") == 0:
        _refuse_unused(["train.patience"], "leave it out, or train.evaluations=4")
    values = {"task": {**task.model_dump(), **user_settings["task"]}, "data": data, "optim": optim, "train": train}
    config = check_finetune({"model": model.model_dump(), **values})
    if sizes is None or "evaluations" in train or config.train.patience is not None:
        return config
    loop = config.train.model_copy(update={"evaluations": _n_evaluations(config.train, *sizes)})
    return config.model_copy(update={"train": loop})


def _check_overlap(user_settings: Mapping[str, object], max_length: object) -> None:
    """Windows overlap by at most half; the default overlap is for long ones and gives way in short ones."""
    overlap = user_settings.get("overlap")
    if isinstance(overlap, int) and isinstance(max_length, int) and overlap > max_length // 2:
        cause = f"data.overlap {overlap} is more than half of a window of {max_length} tokens (data.max_length)"
        remedy = f"at most {max_length // 2}"
        raise BadConfig(cause, remedy=remedy, code="overlap-too-large", fields=["data.overlap", "data.max_length"])


def _n_evaluations(loop: FinetuneLoop, n_train: int, n_dev: int) -> int:
    """As many as take a small share of the time."""
    if loop.epochs is None and loop.steps is None:
        return loop.evaluations
    n_trained = loop.epochs * n_train if loop.epochs is not None else (loop.steps or 0) * loop.batch_size
    return max(2, min(loop.evaluations, round(EVALUATION_SHARE * EVALUATION_SPEED * n_trained / n_dev)))


def _check_task(task: TaskConfig, user_settings: Mapping[str, object]) -> None:
    """What follows from the examples stays; the order of the labels may change: of two, F1 is that of the second."""
    fixed = [f"task.{name}" for name in FROM_EXAMPLES if name in user_settings]
    if fixed:
        cause = f"this follows from the examples: {', '.join(fixed)}"
        raise BadConfig(cause, remedy="leave it out", code="follows-from-examples", fields=fixed)
    shape = task_class(task.shape)
    of_shapes = frozenset().union(*(other.options for other in SHAPES.values()))
    unused = [f"task.{name}" for name in user_settings if name in of_shapes - shape.options]
    if unused:
        _refuse_unused(unused, f"leave it out: a {task.shape} task has no use for it")
    if user_settings.get("transitions", []) != []:
        cause = "task.transitions follow from the examples"
        remedy = "leave them out; [] lets any tag follow any other"
        raise BadConfig(cause, remedy=remedy, code="follows-from-examples", fields=["task.transitions"])
    labels = user_settings.get("labels", task.labels)
    if not isinstance(labels, list | tuple) or sorted(labels, key=str) != sorted(task.labels):
        remedy = f"the same in another order: {json.dumps(task.labels, ensure_ascii=False)}"
        raise BadConfig(f"task.labels = {labels!r}", remedy=remedy, code="different-labels", fields=["task.labels"])
    name = user_settings.get("metric", task.metric)
    names = [metric.name for metric in shape.metrics_for(task.labels) if metric.higher_is_better]
    if name not in names:
        remedy = f"known: {', '.join(names)}"
        raise BadConfig(f"task.metric = {name!r}", remedy=remedy, code="unknown-metric", fields=["task.metric"])


def _override_trained(init: Workbench, changes: Mapping[str, object]) -> ModelConfig:
    """The config of a trained model with those changes that leave its weights valid."""
    fixed = [name for name in changes if name not in CHANGEABLE]
    if fixed:
        cause = f"a trained model cannot change its {', '.join(fixed)}"
        remedy = f"it can: {', '.join(CHANGEABLE)}"
        raise BadConfig(cause, remedy=remedy, code="cannot-change", fields=[f"model.{name}" for name in fixed])
    return init.config.override(**changes)
