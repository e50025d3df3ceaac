"""One family of errors: what is wrong, where, and what to do about it.

Every error that a user can cause is a `BertworksError`. It has a short stable `code` for programs, a `cause` in plain
words, the `place` (file, field, row, character) and a `remedy`. The command line prints it without a traceback and
exits with 2, or with a code of its own where a program that waits for the run should know the reason. The class says
what kind of thing is wrong, the code may say more exactly what. What is no error, but should be known, is a `Remark`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Remark:
    """Something worth saying that is no error: a stable code for programs, and the words for people."""

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


class BertworksError(Exception):
    """Something the user can put right."""

    code = "error"
    exit_code = 2

    def __init__(
        self, cause: str, *, place: str | None = None, remedy: str | None = None, code: str | None = None
    ) -> None:
        self.cause, self.place, self.remedy = cause, place, remedy
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
    """A file, folder, package or name that is not there."""

    code = "not-found"


class BadConfig(BertworksError):
    """A configuration that describes no model we can build. `fields`: the names of those that are wrong, where it is
    about fields."""

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
    """A weights file that is damaged, hostile, or made for another model."""

    code = "bad-weights"


class BadShards(BertworksError):
    """Prepared text that is damaged, unfinished, or made for another tokenizer."""

    code = "bad-shards"


class BadCheckpoint(BertworksError):
    """A checkpoint that is damaged, or of another model."""

    code = "bad-checkpoint"


class Diverged(BertworksError):
    """A training whose numbers are no longer finite."""

    code = "diverged"
    exit_code = 3


class BadText(BertworksError):
    """A text that cannot be read as text."""

    code = "bad-text"


class TooLong(BertworksError):
    """A text longer than the model, where cutting or windowing was not allowed."""

    code = "too-long"


class Unsupported(BertworksError):
    """Understood, but not something this model or installation can do."""

    code = "unsupported"


class SaveFailed(BertworksError):
    """Nothing was written; what was there before is still there."""

    code = "save-failed"


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint with the closest known name, or with all of them when none is close."""
    known = sorted(names)
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known names: {', '.join(known)}"
