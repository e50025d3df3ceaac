"""From what is asked to the task that answers it."""

from __future__ import annotations

from collections.abc import Sequence

from bertworks.config import HeadConfig, LearnedConfig, ModelConfig, ReadConfig, Shape, TaskConfig
from bertworks.errors import Unsupported
from bertworks.model.model import Model
from bertworks.tasks.choice import Choice
from bertworks.tasks.sequence import Classify, Multilabel, Regress
from bertworks.tasks.span import SpanTask
from bertworks.tasks.tag import Tag
from bertworks.tasks.task import Task

KINDS: dict[Shape, type[Task]] = {
    "classify": Classify,
    "regress": Regress,
    "multilabel": Multilabel,
    "tag": Tag,
    "span": SpanTask,
    "choice": Choice,
}
HEADS = {shape: kind.head for shape, kind in KINDS.items()}


def make_task(model: Model, config: TaskConfig, weights: Sequence[float] | None = None) -> Task:
    """`weights`: of each class, where some count more than others."""
    match config.shape:
        case "classify":
            return Classify(model, config.labels, smoothing=config.smoothing, weights=weights)
        case "regress":
            return Regress(model, shift=config.shift, scale=config.scale)
        case "multilabel":
            return Multilabel(model, config.labels)
        case "tag":
            return Tag(model, config.labels, transitions=config.transitions, smoothing=config.smoothing)
        case "span":
            return SpanTask(model, no_answer=0.0 if config.no_answer else float("inf"))
        case "choice":
            return Choice(model, counted_from=config.counted_from)


def ready_task(model: Model, learned: LearnedConfig) -> Task:
    """As it was fine-tuned, ready to be asked."""
    task = make_task(model, learned.task)
    task.temperature = learned.temperature
    if isinstance(task, SpanTask) and learned.task.no_answer:
        task.no_answer = learned.no_answer
    return task.eval()  # it shares the model with others, who do not want dropout


def guess_task(model: Model, problem: str | None, limit: int) -> LearnedConfig:
    """What a model that others fine-tuned is for: by its head, and what their config calls the problem."""
    shape = next((shape for shape, head in HEADS.items() if head in model.heads), None)
    labels = model.config.heads.labels
    if shape is None:
        remedy = "`bertworks finetune` makes one that was"
        raise Unsupported("this model was not fine-tuned for a task", remedy=remedy, code="not-fine-tuned")
    if shape == "classify":
        problems: dict[str | None, Shape] = {"regression": "regress", "multi_label_classification": "multilabel"}
        shape = "regress" if len(labels) == 1 else problems.get(problem, shape)
    pairs = None if HEADS[shape] == "sequence" else False  # their files do not say
    return LearnedConfig(task=TaskConfig(shape=shape, labels=labels, pairs=pairs), data=ReadConfig(max_length=limit))


def task_model(config: ModelConfig, task: TaskConfig) -> ModelConfig:
    """A model's config with the classes of a task; where it has none, not those of what the model did before."""
    return config.override(labels=("value",) if task.shape == "regress" else task.labels or HeadConfig().labels)
