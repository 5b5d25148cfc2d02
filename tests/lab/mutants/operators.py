"""Pure: the source of a module in, its one-line mutants out."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from attrs import frozen

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_LOGGERS = frozenset({"log", "logger", "logging", "warnings"})


@frozen
class Mutant:
    """A module with one thing changed."""

    line: int
    what: str
    source: str


def mutants(source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines. Comments are lost, as they say nothing to
    a test."""
    count = len(list(_changes(ast.parse(source))))
    found = []
    for index in range(count):
        tree = ast.parse(source)
        line, what, change = list(_changes(tree))[index]
        change()
        found.append(Mutant(line, what, ast.unparse(ast.fix_missing_locations(tree))))
    return sorted(found, key=lambda mutant: mutant.line)


def _changes(tree: ast.Module) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """Where something can be changed, what, and the function that does it."""
    skipped = _skipped(tree)
    for parent in ast.walk(tree):
        if parent in skipped:
            continue
        yield from _of_statements(parent)
        if isinstance(parent, ast.Compare):
            for place, op in enumerate(parent.ops):
                other = _COMPARE[type(op)]
                what = f"{type(op).__name__} -> {other.__name__}: {ast.unparse(parent)}"
                yield parent.lineno, what, lambda n=parent, p=place, o=other: n.ops.__setitem__(p, o())  # type: ignore[misc]
        elif isinstance(parent, ast.BoolOp):
            swapped = ast.Or() if isinstance(parent.op, ast.And) else ast.And()
            what = f"and <-> or: {ast.unparse(parent)}"
            yield parent.lineno, what, lambda n=parent, o=swapped: setattr(n, "op", o)  # type: ignore[misc]
        elif isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            # "not x" becomes "not not x", which is x wherever it is asked
            what = f"without not: {ast.unparse(parent)}"
            negated = ast.UnaryOp(ast.Not(), parent.operand)
            yield parent.lineno, what, lambda n=parent, o=negated: setattr(n, "operand", o)  # type: ignore[misc]
        elif isinstance(parent, ast.Constant) and isinstance(parent.value, int):
            value = not parent.value if isinstance(parent.value, bool) else parent.value + 1
            what = f"{parent.value!r} -> {value!r}"
            yield parent.lineno, what, lambda n=parent, v=value: setattr(n, "value", v)  # type: ignore[misc]
        elif isinstance(parent, ast.If | ast.While | ast.IfExp) and isinstance(parent.test, ast.Name | ast.Call):
            test = ast.UnaryOp(ast.Not(), parent.test)
            what = f"negated: {ast.unparse(parent.test)}"
            yield parent.lineno, what, lambda n=parent, t=test: setattr(n, "test", t)  # type: ignore[misc]
        elif isinstance(parent, ast.Call):
            for keyword in parent.keywords:
                what = f"without {keyword.arg}=: {ast.unparse(parent)[:80]}"
                yield parent.lineno, what, lambda n=parent, k=keyword: n.keywords.remove(k)  # type: ignore[misc]


def _of_statements(parent: ast.AST) -> Iterator[tuple[int, str, Callable[[], None]]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if not isinstance(block, list) or isinstance(parent, ast.Module | ast.ClassDef):
            continue
        for place, statement in enumerate(block):
            call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            stored = isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Name | ast.Tuple)
            if (call and not _is_log(statement)) or stored or isinstance(statement, ast.AugAssign | ast.Continue):
                what = f"removed: {ast.unparse(statement)[:80]}"
                yield statement.lineno, what, lambda b=block, p=place: b.__setitem__(p, ast.Pass())  # type: ignore[misc]


def _is_log(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    function = call.func if isinstance(call, ast.Call) else None
    owner = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in _LOGGERS


def _skipped(tree: ast.Module) -> set[ast.AST]:
    """What no test should be asked about: log lines, annotations, decorators, imports for type
    checkers."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if typing_only or (isinstance(node, ast.stmt) and _is_log(node)):
            roots.append(node)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            roots += node.decorator_list
            roots += [node.returns] if isinstance(node, ast.FunctionDef) and node.returns else []
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            roots.append(node.annotation)
    return {inner for root in roots for inner in ast.walk(root)}
