"""What users hand to a fine-tuned model, as examples without an answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bertworks.config import TaskConfig
from bertworks.errors import BadText
from bertworks.tasks.example import Example

Input = str | Sequence[str] | tuple[str, Sequence[str]]
SIGN = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # Chinese and Japanese: each is a word
WORD = re.compile(rf"[{SIGN}]|[^\W{SIGN}]+(?:[-'’.][^\W{SIGN}]+)*|[^\w\s]")
EXPECTED = {
    "classify": "a text",
    "regress": "a text",
    "multilabel": "a text",
    "tag": "a text, or a list of words",
    "span": "a question and a passage",
    "choice": "a text and a list of at least two ways to go on",
}


def as_example(given: Input, task: TaskConfig, at: int) -> Example:
    place, texts = f"input {at}", _texts(given, task)
    wanted = "two texts" if task.pairs else EXPECTED[task.shape]
    if texts is None:
        raise BadText(f"not what this model takes: {wanted}", place=place)
    if any(not text.strip() for text in texts):
        raise BadText("an empty text", place=place, remedy="leave it out")
    return Example(texts, None, place)


def _texts(given: Input, task: TaskConfig) -> tuple[str, ...] | None:
    """None: these are not the texts that the task takes."""
    if task.shape == "tag":
        words = tuple(WORD.findall(given)) if isinstance(given, str) else _strings(given)
        return words or None
    if task.shape == "choice":
        if isinstance(given, str) or len(given) < 2:
            return None
        first, rest = given[0], given[1] if len(given) == 2 and not isinstance(given[1], str) else given[1:]
        found = _strings([first, *rest])
        return found if found is not None and len(found) > 2 else None
    found = (given,) if isinstance(given, str) else _strings(given)
    wanted = 2 if task.pairs or task.shape == "span" else 1
    return found if found is not None and len(found) == wanted else None


def _strings(given: Sequence[object]) -> tuple[str, ...] | None:
    found = tuple(one for one in given if isinstance(one, str))
    return found if len(found) == len(given) else None
