"""What the mutation run changes, and what it leaves alone."""

from __future__ import annotations

import ast

from tests.mutants.__main__ import ROOT, TARGETS
from tests.mutants.operators import mutants

SOURCE = '''
"""A docstring of 3 words."""
def f(a: int = 1, *, b: bool = True) -> int:
    if a < 2 and not b:
        log.info("a line %d", 5)
        g(a, key=b)
    return a
'''


def test_each_mutant_changes_one_thing() -> None:
    found = {mutant.what for mutant in mutants(SOURCE)}
    assert found == {
        "1 -> 2",
        "True -> False",
        "2 -> 3",
        "Lt -> LtE: a < 2",
        "and <-> or: a < 2 and (not b)",
        "without not: not b",
        "removed: g(a, key=b)",
        "without key=: g(a, key=b)",
    }
    sources = {mutant.source for mutant in mutants(SOURCE)}
    assert len(sources) == len(found)
    assert ast.unparse(ast.parse(SOURCE)) not in sources


def test_the_modules_are_there_with_their_tests() -> None:
    for path, tests in TARGETS.values():
        assert (ROOT / path).exists()
        assert all((ROOT / test).exists() for test in tests)
