"""Problems met while reading files: invalid rows, malformed rows of official files, characters that are not UTF-8."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bertworks.errors import BadText, Remark

MAX_ROWS_SHOWN = 5  # in a message
# Above both, undecodable lines mean that the file is in another encoding.
MAX_UNDECODABLE_LINES = 5
MAX_UNDECODABLE_SHARE = 0.1  # lines per example


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be read as an example, and why."""

    code: str
    cause: str
    place: str


class BadRows(BadText):
    """There are invalid rows; `rows` is empty if the file had none at all."""

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
    """A `data.tables.ReadErrors` that collects what is reported to it."""

    bad: list[BadRow] = field(default_factory=list)
    malformed: list[BadRow] = field(default_factory=list)  # of official files, where skipping them is customary
    undecodable: list[str] = field(default_factory=list)  # places with characters that are not UTF-8
    n_replaced: int = 0  # characters
    notes: list[Remark] = field(default_factory=list)  # how the file was read

    def bad_row(self, cause: str, place: str, code: str = "bad-row") -> None:
        self.bad.append(BadRow(code, cause, place))

    def malformed_row(self, cause: str, place: str, code: str = "bad-row") -> None:
        self.malformed.append(BadRow(code, cause, place))

    def bad_characters(self, count: int, cause: str, place: str, code: str = "not-utf8") -> None:
        self.n_replaced += count
        if code == "not-utf8":
            self.undecodable.append(place)

    def remarks(self) -> list[Remark]:
        remarks = list(dict.fromkeys(self.notes))
        if self.bad:
            chinese = f"跳过了 {len(self.bad):,} 个无效行：{self._rows()}"
            remarks.append(Remark("bad-rows", f"skipped {self.summary()}", chinese))
        if self.malformed:
            first = self.malformed[0]
            cause = f"skipped {len(self.malformed):,} malformed rows, the first: {first.place}: {first.cause}"
            chinese = f"跳过了 {len(self.malformed):,} 个格式错误的行，第一处：{first.place}：{first.cause}"
            remarks.append(Remark("malformed-rows", cause, chinese))
        if self.n_replaced:
            cause = f"{self.n_replaced:,} characters could not be decoded and became U+FFFD"
            chinese = f"{self.n_replaced:,} 个字符无法解码，已换成 U+FFFD"
            if self.undecodable:
                cause += f", the first in {self.undecodable[0]}"
                chinese += f"，第一处在 {self.undecodable[0]}"
            remarks.append(Remark("replaced-characters", cause, chinese))
        return remarks

    def check_rows(self, *, skip: bool, columns: object = None) -> None:
        """Invalid rows are an error, unless they are to be skipped. `columns`: that were read, which may be wrong."""
        if self.bad and not skip:
            place = None if columns is None else f"columns {columns}"
            remedy = "correct them, or skip them: --skip-bad, in Python skip_bad=True"
            raise BadRows(self.summary(), self.bad, place=place, remedy=remedy)

    def check_encoding(self, n_examples: int) -> None:
        """A few undecodable lines are a remark; a file in another encoding is an error."""
        if len(self.undecodable) > max(MAX_UNDECODABLE_LINES, MAX_UNDECODABLE_SHARE * n_examples):
            cause = f"{self.n_replaced:,} characters that are not UTF-8"
            remedy = (
                "is it in another encoding? convert it: "
                "iconv -f CP1252 -t UTF-8 FILE > NEW (Excel's CSV), or -f GB18030 (Chinese)"
            )
            raise BadText(cause, place=self.undecodable[0], remedy=remedy, code="not-utf8")

    def summary(self) -> str:
        rows = "1 invalid row" if len(self.bad) == 1 else f"{len(self.bad):,} invalid rows"
        return f"{rows}:{self._rows()}"

    def frequent_causes(self, n_causes: int) -> list[tuple[str, int]]:
        return Counter(row.cause for row in self.bad).most_common(n_causes)

    def _rows(self) -> str:
        """Place and cause of the first invalid rows; if there are more, the most frequent causes."""
        lines = [f"{row.place}: {row.cause}" for row in self.bad[:MAX_ROWS_SHOWN]]
        if len(self.bad) > MAX_ROWS_SHOWN:
            frequent = "; ".join(f"{cause} ({n:,})" for cause, n in self.frequent_causes(MAX_ROWS_SHOWN))
            lines.append(f"and {len(self.bad) - MAX_ROWS_SHOWN:,} more; most frequent: {frequent}")
        return "".join(f"\n  {line}" for line in lines)
