"""The page of callers is complete, current and true: who is named calls, and what changes the cloud is fenced."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

import pytest

from cloudprovider.testing.fake.methods import METHODS
from tests.unit.docs.callers import CALLS, HOST, SOURCES, SWITCHES, Call, contract, methods_of, mutates, page, root

ROWS = [
    pytest.param(kind, method, call, id=f"{kind.__name__}.{method}-{call.who.strip('`')}")
    for kind, rows in CALLS.items()
    for method, calls in rows.items()
    for call in calls
]


def test_the_page_is_current() -> None:
    assert (root() / "docs" / "reference" / "callers.md").read_text() == page(), "run: make generate"


def test_every_method_of_the_contract_has_its_row() -> None:
    assert set(contract()) == CALLS.keys() | set(HOST)
    assert SOURCES.keys() <= SWITCHES.keys(), "each caller has a row that says what turns it on"
    assert {kind: set(rows) for kind, rows in CALLS.items()} == {kind: methods_of(kind) for kind in CALLS}


@pytest.mark.parametrize(("kind", "method", "call"), ROWS)
def test_who_is_named_makes_the_call(kind: type, method: str, call: Call) -> None:
    found = seen(call.who)
    assert call.code in found, f"{call.who} does not call {call.code}: in {', '.join(SOURCES[call.who])}"
    if method not in call.code:  # it calls the gateway, which calls the method
        assert f'"{method}"' in seen("the gateway"), f"the gateway does not call {kind.__name__}.{method}"


def test_whom_nobody_calls_nobody_calls() -> None:
    """A method without a caller gets its row as soon as a controller or a command uses it."""
    lonely = {method for rows in CALLS.values() for method, calls in rows.items() if not calls} - {"max_batch"}
    for who in SOURCES.keys() - {"the gateway"}:
        used = {f"{receiver}.{method}" for receiver in ("cloud", "provider", "calls") for method in lonely}
        assert used & seen(who) == set(), who


def test_what_changes_the_cloud_passes_the_fence() -> None:
    fenced = set()
    for tree in trees("controllers/cloudcalls/capabilities.py"):
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if any(keyword.arg == "mutating" and ast.unparse(keyword.value) == "True" for keyword in call.keywords):
                fenced.add(ast.unparse(call.args[0]))
    methods = {method for rows in CALLS.values() for method in rows if mutates(method)}
    assert methods == {method.name for method in METHODS.values() if method.mutating}
    assert {word.strip("'") for word in fenced if word != "method"} <= methods
    assert len(fenced) >= 4, fenced


@functools.cache
def seen(who: str) -> frozenset[str]:
    """What a caller's code has: "receiver.attribute" of each attribute, and each text in double quotes."""
    return frozenset(code for source in SOURCES[who] for tree in trees(source) for code in codes(tree))


def trees(source: str) -> Iterator[ast.Module]:
    path = root() / source
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        yield ast.parse(file.read_text())


def codes(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            receiver = ast.unparse(node.value).rpartition(".")[2].lstrip("_")
            yield f"{receiver}.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f'"{node.value}"'
