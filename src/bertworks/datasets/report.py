"""What reading users' files found: invalid rows, malformed ones of official files, characters that are not UTF-8."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bertworks.errors import BadText, Remark

ROWS_SHOWN = 5  # in a message
FEW_DAMAGED, MOST_DAMAGED = 5, 0.1  # lines with damaged characters: so many may be, or so many for each example


@dataclass(frozen=True)
class BadRow:
    """A row that is no example, and why."""

    code: str
    cause: str
    place: str


class BadRows(BadText):
    """Rows that are no examples; none, where there was nothing to read."""

    code = "bad-rows"

    def __init__(
        self,
        cause: str,
        rows: Sequence[BadRow],
        *,
        place: str | None = None,
        remedy: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(cause, place=place, remedy=remedy, code=code)
        self.rows = list(rows)


@dataclass
class ReadReport:
    """A `data.tables.ReadErrors` that keeps what it is told."""

    bad: list[BadRow] = field(default_factory=list)
    malformed: list[BadRow] = field(default_factory=list)  # of official files: everybody leaves them out
    damaged: list[str] = field(default_factory=list)  # places with characters that are not UTF-8
    replaced: int = 0
    notes: list[Remark] = field(default_factory=list)  # how it was read

    def bad_row(self, cause: str, place: str, code: str = "bad-row") -> None:
        self.bad.append(BadRow(code, cause, place))

    def malformed_row(self, cause: str, place: str, code: str = "bad-row") -> None:
        self.malformed.append(BadRow(code, cause, place))

    def bad_characters(self, count: int, cause: str, place: str, code: str = "not-utf8") -> None:
        self.replaced += count
        if code == "not-utf8":
            self.damaged.append(place)

    def remarks(self) -> list[Remark]:
        remarks = list(dict.fromkeys(self.notes))
        if self.bad:
            remarks.append(Remark("bad-rows", f"skipped {self.summary()}"))
        if self.malformed:
            first = self.malformed[0]
            cause = f"skipped {len(self.malformed):,} malformed rows, the first: {first.place}: {first.cause}"
            remarks.append(Remark("malformed-rows", cause))
        if self.replaced:
            where = f", the first in {self.damaged[0]}" if self.damaged else ""
            remarks.append(
                Remark(
                    "replaced-characters", f"{self.replaced:,} characters could not be decoded and became U+FFFD{where}"
                )
            )
        return remarks

    def check_rows(self, *, skip: bool) -> None:
        """Invalid rows are an error, unless they may be left out."""
        if self.bad and not skip:
            raise BadRows(self.summary(), self.bad, remedy="correct them, or --skip-bad goes on without them")

    def check_encoding(self, n_examples: int) -> None:
        """A few damaged characters are a remark; a file in another encoding is an error."""
        if len(self.damaged) > max(FEW_DAMAGED, MOST_DAMAGED * n_examples):
            remedy = "is it in another encoding? convert it: iconv -f CP1252 -t UTF-8 FILE > NEW (Excel's CSV), or -f GB18030 (Chinese)"
            raise BadText(
                f"{self.replaced:,} characters that are not UTF-8",
                place=self.damaged[0],
                remedy=remedy,
                code="not-utf8",
            )

    def summary(self) -> str:
        """The invalid rows: where the first of them are and why, and if there are many, how many for which reason."""
        lines = [f"{row.place}: {row.cause}" for row in self.bad[:ROWS_SHOWN]]
        if len(self.bad) > ROWS_SHOWN:
            causes = Counter(row.cause for row in self.bad).most_common(ROWS_SHOWN)
            most = "; ".join(f"{cause} ({n:,})" for cause, n in causes)
            lines.append(f"and {len(self.bad) - ROWS_SHOWN:,} more; most often: {most}")
        rows = "1 invalid row" if len(self.bad) == 1 else f"{len(self.bad):,} invalid rows"
        return f"{rows}:" + "".join(f"\n  {line}" for line in lines)
