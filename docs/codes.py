"""The codes of errors and remarks, collected from the source by reading it: what is raised, and what is said with it.

A code that cannot be found this way stops the collection, so that the list is whole.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT_ERROR = "BertworksError"
CODE_POSITIONS = {  # calls that take a code by position: where the code is, and where the words are
    "Remark": (0, 1),
    "InvalidRow": (1, 0),
    "bad_row": (2, 0),
    "malformed_row": (2, 0),
    "bad_characters": (3, 1),
}
ROWS = ("InvalidRow", "bad_row", "malformed_row", "bad_characters")
NOT_FIXED = {("text/coverage.py", "script")}  # not a message: the group a word is counted in, named by its script
Scope = ast.FunctionDef | ast.Module


@dataclass(frozen=True)
class Use:
    code: str
    kind: str  # the class of the error; "Remark"; "row" for what makes a row invalid
    sample: str  # the words, with ... where a value stands


@dataclass(frozen=True)
class ErrorClass:
    name: str
    code: str
    exit_code: int
    doc: str


@dataclass(frozen=True)
class Source:
    path: str
    tree: ast.Module


@dataclass(frozen=True)
class Call:
    name: str
    node: ast.Call
    scopes: list[Scope]  # innermost first
    source: Source


class Collection:
    def __init__(self, folder: Path) -> None:
        paths = sorted(folder.rglob("*.py"))
        self.sources = [
            Source(path.relative_to(folder).as_posix(), ast.parse(path.read_text("utf-8"))) for path in paths
        ]
        self.classes = self._error_classes()
        self.constants = {  # of any module, since they are imported by others
            target.id: node.value.value
            for source in self.sources
            for node in source.tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self.calls = [call for source in self.sources for call in _calls(source.tree, [source.tree], source)]

    def uses(self) -> list[Use]:
        found = {use: None for call in self.calls for use in self._uses_in(call)}
        return sorted(found, key=lambda use: use.code)

    def _error_classes(self) -> dict[str, ErrorClass]:
        nodes = [node for source in self.sources for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
        classes: dict[str, ErrorClass] = {}
        n_known = -1
        while n_known != len(classes):  # a class may stand before the one that it derives from
            n_known = len(classes)
            for node in nodes:
                bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
                if (bases or node.name == ROOT_ERROR) and node.name not in classes:
                    base = bases[0] if bases else ErrorClass("", "", 0, "")
                    values = {
                        target.id: statement.value.value
                        for statement in node.body
                        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
                        for target in statement.targets
                        if isinstance(target, ast.Name)
                    }
                    code, exit_code = values.get("code", base.code), values.get("exit_code", base.exit_code)
                    classes[node.name] = ErrorClass(node.name, code, exit_code, ast.get_docstring(node) or "")
        return classes

    def _uses_in(self, call: Call) -> Iterator[Use]:
        keywords = {keyword.arg: keyword.value for keyword in call.node.keywords}
        if call.name in self.classes:
            position, words, kind = None, 0, call.name
        elif call.name in CODE_POSITIONS:
            position, words = CODE_POSITIONS[call.name]
            kind = "row" if call.name in ROWS else call.name
        elif call.name == "Remarked":
            position, words, kind = None, None, "Remark"
        else:
            return
        code = _argument(call.node, position, keywords, "code")
        text = _argument(call.node, words, keywords, "text" if kind == "Remark" else "cause")
        codes = [self.classes[call.name].code] if code is None and call.name in self.classes else []
        codes += self._values(code, call) if code is not None else []
        texts = _branches(text, call.scopes) if text is not None else []
        texts_before = [one for one in texts if one.lineno <= (call.node.end_lineno or 0)]
        texts_before.sort(key=lambda one: one.lineno)
        # A name may be assigned several times: what was assigned last before the call, for each of its codes.
        samples = [_sample(one) for one in texts_before[-len(codes) :]]
        for at, one in enumerate(codes):
            yield Use(one, kind, samples[min(at, len(samples) - 1)] if samples else "")

    def _values(self, expression: ast.expr, call: Call) -> list[str]:
        """What it may be."""
        if isinstance(expression, ast.Name) and (call.source.path, expression.id) in NOT_FIXED:
            return []
        found = []
        for one in _branches(expression, call.scopes):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                found.append(one.value)
            elif isinstance(one, ast.Name) and one.id in self.constants:
                found.append(self.constants[one.id])
            elif isinstance(one, ast.Name):
                found += self._handed_over(one.id, call)
            elif not (isinstance(one, ast.Attribute) and one.attr == "code"):  # passed on
                raise ValueError(f"{call.source.path}:{one.lineno}: a code that is not written out: {ast.unparse(one)}")
        return found

    def _handed_over(self, name: str, call: Call) -> list[str]:
        """A parameter: its default, and what its callers give."""
        for scope in call.scopes:
            if not isinstance(scope, ast.FunctionDef):
                continue
            given = scope.args
            plain = [argument.arg for argument in [*given.posonlyargs, *given.args]]
            if name not in plain + [argument.arg for argument in given.kwonlyargs]:
                continue
            if scope.name in CODE_POSITIONS or scope.name == "__init__":
                return []  # their callers are looked at anyway
            position = plain.index(name) - (plain[0] in ("self", "cls")) if name in plain else None
            found = []
            for caller in self.calls:
                if caller.name == scope.name:
                    keywords = {keyword.arg: keyword.value for keyword in caller.node.keywords}
                    value = _argument(caller.node, position, keywords, name)
                    found += self._values(value, caller) if value is not None else []
            if found:
                return found
        raise ValueError(f"{call.source.path}:{call.node.lineno}: nobody says what {name!r} is")


def _calls(node: ast.AST, scopes: list[Scope], source: Source) -> Iterator[Call]:
    for child in ast.iter_child_nodes(node):
        inner = [child, *scopes] if isinstance(child, ast.FunctionDef) else scopes
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name | ast.Attribute):
            name = child.func.id if isinstance(child.func, ast.Name) else child.func.attr
            yield Call(name, child, scopes, source)
        yield from _calls(child, inner, source)


def _argument(call: ast.Call, position: int | None, keywords: dict[str | None, ast.expr], name: str) -> ast.expr | None:
    if name in keywords:
        return keywords[name]
    return call.args[position] if position is not None and position < len(call.args) else None


def _branches(expression: ast.expr, scopes: list[Scope]) -> list[ast.expr]:
    """Both sides of a condition; of a name, what is assigned to it."""
    if isinstance(expression, ast.IfExp):
        return [*_branches(expression.body, scopes), *_branches(expression.orelse, scopes)]
    if isinstance(expression, ast.Name):
        assigned = [value for scope in scopes for value in _assigned(expression.id, scope, scopes)]
        return [one for value in assigned for one in _branches(value, scopes)] or [expression]
    return [expression]


def _assigned(name: str, scope: Scope, scopes: list[Scope]) -> Iterator[ast.expr]:
    for node in ast.walk(scope) if isinstance(scope, ast.FunctionDef) else scope.body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Name) and target.id == name:
                yield node.value
            elif isinstance(target, ast.Tuple):
                names = [one.id if isinstance(one, ast.Name) else "" for one in target.elts]
                yield from _elements(node.value, names.index(name), scopes) if name in names else ()


def _elements(value: ast.expr, at: int, scopes: list[Scope]) -> Iterator[ast.expr]:
    """Of a value that is taken apart."""
    for one in _branches(value, scopes):
        if isinstance(one, ast.Tuple):
            yield one.elts[at]
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "next":
            rows, otherwise = one.args  # the first that fits, of a table that is written out in the same file
            tables = (node for node in ast.walk(rows) if isinstance(node, ast.Name) and node.id.isupper())
            for table in (found for name in tables for found in _branches(name, scopes) if isinstance(found, ast.Dict)):
                for row in table.values:
                    yield from _elements(row, at, scopes)
            yield from _elements(otherwise, at, scopes)
        else:
            yield one


def _sample(expression: ast.expr) -> str:
    """Its first line, with ... where a value stands."""
    if isinstance(expression, ast.Constant):
        text = str(expression.value)
    elif isinstance(expression, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in expression.values)
    elif isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        text = _sample(expression.left) + _sample(expression.right)
    else:
        text = ""
    return text.partition("\n")[0].rstrip(":")
