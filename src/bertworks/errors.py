"""The exceptions of bertworks: what is wrong, where, and what to do about it.

Every error that a user can cause is a `BertworksError`. It has a short stable `code` for programs, a `cause` in plain
words, the `place` (file, field, row, character) and a `remedy`. The command line prints it without a traceback and
exits with 2, or with an exit code of its own where a calling program should know the reason. The class is the general
kind of error, the code may be more specific. What is no error, but should be known, is a `Remark`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Remark:
    """A notice that is no error: a stable code for programs, and a text for people; in Chinese too, where reports show
    it."""

    code: str
    text: str
    chinese: str | None = None

    def __str__(self) -> str:
        return self.text


class BertworksError(Exception):
    """An error that the user can fix."""

    code = "error"
    exit_code = 2

    def __init__(
        self, cause: str, *, place: str | None = None, remedy: str | None = None, code: str | None = None
    ) -> None:
        self.cause = cause
        self.place = place
        self.remedy = remedy
        self.code = code or type(self).code
        super().__init__(str(self))

    def __str__(self) -> str:
        parts = [self.cause]
        if self.place:
            parts.append(f"where: {self.place}")
        if self.remedy:
            parts.append(f"what to do: {self.remedy}")
        return "\n".join(parts)

    def as_dict(self) -> dict[str, str | None]:
        return {"code": self.code, "cause": self.cause, "place": self.place, "remedy": self.remedy}


class NotFound(BertworksError):
    """A file, folder, package or name that does not exist or cannot be read."""

    code = "not-found"


class BadConfig(BertworksError):
    """An invalid configuration. `fields`: the names of the invalid fields, if it is about fields."""

    code = "bad-config"

    def __init__(
        self,
        cause: str,
        *,
        place: str | None = None,
        remedy: str | None = None,
        code: str | None = None,
        fields: Iterable[str] = (),
    ) -> None:
        self.fields = list(fields)
        super().__init__(cause, place=place, remedy=remedy, code=code)


class BadWeights(BertworksError):
    """A weights file that is corrupt, malicious, or of another model."""

    code = "bad-weights"


class BadShards(BertworksError):
    """Shards that are corrupt, unfinished, or made with another tokenizer."""

    code = "bad-shards"


class BadCheckpoint(BertworksError):
    """A checkpoint that is corrupt, or of another model."""

    code = "bad-checkpoint"


class Diverged(BertworksError):
    """A training whose loss or gradients are no longer finite."""

    code = "diverged"
    exit_code = 3


class BadText(BertworksError):
    """Text or table data that is invalid."""

    code = "bad-text"


class TooLong(BertworksError):
    """A text longer than the model's maximum length, where neither truncation nor windows were allowed."""

    code = "too-long"


class Unsupported(BertworksError):
    """A valid request that this model or installation cannot do."""

    code = "unsupported"


class SaveFailed(BertworksError):
    """A failed write: nothing was changed, the old content is still there."""

    code = "save-failed"


def nearest(name: str, names: Iterable[str]) -> str:
    """A remedy with the closest valid name, or with all of them if none is close."""
    valid_names = sorted(names)
    close_matches = get_close_matches(name, valid_names, n=1, cutoff=0.6)
    return f"did you mean {close_matches[0]!r}?" if close_matches else f"known names: {', '.join(valid_names)}"


def counted(n: int, noun: str) -> str:
    """`1 thread`, `2 threads`, `2 processes`."""
    return f"1 {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith('s') else 's'}"


def with_article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"
