"""Arguments of public calls, checked against their annotations: a wrong type is refused by name, before anything runs.

What a type does not tell, such as the range of a number or the texts in a list, the calls check themselves.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from bertworks.errors import BadConfig, NotFound, with_article

P = ParamSpec("P")
T = TypeVar("T")
NUMBERS = {int: Integral, float: Real}
NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    type(None): "None",
    Path: "a path",
    Sequence: "a list",
    Iterable: "a list",
    Mapping: "a dict",
    Callable: "a function",
}


def check_arguments(skip: Sequence[str] = ()) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator: an argument that is not of its annotated type is a `BadConfig`. `skip`: arguments that the call
    checks itself. As ever, Python refuses unknown names and missing arguments."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        declared = signature(function)
        stars = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        checked_names = [p.name for p in declared.parameters.values() if p.kind not in stars and p.name not in skip]

        @cache
        def hints() -> dict[str, Any]:
            return get_type_hints(function)  # not before the first call: a module may use a class that it has below

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            arguments = declared.bind(*args, **kwargs).arguments
            for name in checked_names:
                if name in arguments and name in hints():
                    _check(function.__qualname__, name, arguments[name], hints()[name])
            return function(*args, **kwargs)

        return checked

    return decorate


def _check(function: str, name: str, value: object, hint: Any) -> None:
    if fits(value, hint):
        if isinstance(value, str) and Path in get_args(hint):
            _check_path(name, value)
        return
    remedy = f"{name} must be {' or '.join(dict.fromkeys(_describe(hint)))}"
    choices = [member for member in (hint, *get_args(hint)) if get_origin(member) is Literal]
    if choices and isinstance(value, str):
        raise BadConfig(f"{name} = {value!r} is not known", remedy=remedy, code="unknown-value", fields=[name])
    cause = f"{function}: {name} is of type {type(value).__name__}"
    raise BadConfig(cause, remedy=remedy, code="wrong-type", fields=[name])


def _check_path(name: str, path: str) -> None:
    """Names have neither NUL nor half a character."""
    try:
        is_name = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        remedy = "name a file or folder"
        raise NotFound(f"{name} = {path!r} cannot be a path", remedy=remedy, code="not-a-path")


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of a type. The elements of a container are not looked at."""
    origin = get_origin(hint)
    kind = origin or hint
    if kind in (Union, types.UnionType):
        return any(fits(value, member) for member in get_args(hint))
    if kind is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if hint in NUMBERS:
        return isinstance(value, NUMBERS[hint]) and not isinstance(value, bool)
    if not isinstance(kind, type):  # Any, None, a type variable
        return value is None if kind is None else True
    if kind in (Iterable, Sequence):  # strings, mappings and numpy's scalars are iterable, too, but never meant
        is_other = isinstance(value, str | bytes | bytearray | Mapping) or getattr(value, "shape", None) == ()
        return isinstance(value, kind) and not is_other
    return isinstance(value, kind)


def _describe(hint: Any) -> list[str]:
    kind = get_origin(hint) or hint
    if kind in (Union, types.UnionType):
        return [part for member in get_args(hint) for part in _describe(member)]
    if kind is Literal:
        return [repr(value) for value in get_args(hint)]
    return [NAMES.get(kind) or with_article(kind.__name__)]
