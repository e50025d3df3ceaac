"""The table of shapes, and tasks built from a config."""

from __future__ import annotations

from collections.abc import Sequence

from bertworks.config import ModelConfig, TaskArtifact, TaskConfig, WindowConfig
from bertworks.datasets.example import Example
from bertworks.errors import NotFound, Unsupported, nearest
from bertworks.model.model import Model
from bertworks.tasks.choice import Choice
from bertworks.tasks.classify import Classify
from bertworks.tasks.inference import AnyTask
from bertworks.tasks.multilabel import Multilabel
from bertworks.tasks.regress import Regress
from bertworks.tasks.span import SpanTask
from bertworks.tasks.tag import Tag

TaskClass = type[AnyTask]
SHAPES: dict[str, TaskClass] = {
    task.schema.shape: task for task in (Classify, Regress, Multilabel, Tag, SpanTask, Choice)
}


def task_class(name: str) -> TaskClass:
    if name not in SHAPES:
        raise NotFound(f"unknown task {name!r}", remedy=nearest(name, SHAPES), code="unknown-task")
    return SHAPES[name]


def make_task(model: Model, config: TaskConfig, train: Sequence[Example] = ()) -> AnyTask:
    """A task on a model; `train`: the examples that it will be trained on."""
    task = task_class(config.shape)(model, config)
    task.fit(train)
    return task


def restore_task(model: Model, artifact: TaskArtifact) -> AnyTask:
    """A fine-tuned task, in evaluation mode."""
    task = make_task(model, artifact.task)
    task.restore(artifact)
    return task.eval()


def guess_artifact(model: Model, problem_type: str | None, limit: int) -> TaskArtifact:
    """The task of a model that was fine-tuned elsewhere, from its head and the `problem_type` of its config."""
    labels = model.config.heads.labels
    candidates = [
        task
        for task in SHAPES.values()
        if task.head in model.heads and task.fits_problem_type(problem_type, len(labels))
    ]
    if not candidates:
        remedy = "fine-tune it with `bertworks finetune`"
        raise Unsupported("this model is not fine-tuned for a task", remedy=remedy, code="not-fine-tuned")
    task = candidates[0]
    pairs = None if task.reads_pairs else False  # None: their files do not tell
    return TaskArtifact(
        task=TaskConfig(shape=task.schema.shape, labels=labels, pairs=pairs), data=WindowConfig(max_length=limit)
    )


def task_model_config(config: ModelConfig, task: TaskConfig) -> ModelConfig:
    """A model's config with the labels of a task."""
    return config.override(labels=task_class(task.shape).head_labels(task))
