"""Tests recognise an error by its code, not by its wording."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bertworks.errors import BertworksError


@contextmanager
def refused(
    code: str, *, place: str = "", kind: type[BertworksError] = BertworksError
) -> Iterator[pytest.ExceptionInfo[BertworksError]]:
    """Expects an error with this code, whose place contains this text."""
    with pytest.raises(kind) as error:
        yield error
    assert error.value.code == code, f"{error.value.code}: {error.value}"
    assert place in (error.value.place or ""), error.value.place


def figures(message: object) -> set[str]:
    """The numbers in a text, as they stand there: "20,000", "57.1%"."""
    return set(re.findall(r"\d+(?:[.,]\d+)*%?", str(message)))
