"""The page of metrics has each family that the code names.

What a running manager serves is compared in tests/integration/test_monitoring.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "metrics.md"
MAKERS = {"counter", "gauge", "histogram"}


def named() -> Iterator[tuple[str, str]]:
    """Each family that is made under a literal name, and where that is."""
    for path in sorted((ROOT / "controllers").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in MAKERS:
                name = call.args[0]
                if isinstance(name, ast.Constant):
                    yield str(name.value), f"{path.relative_to(ROOT)}:{call.lineno}"


def test_each_metric_is_on_the_page() -> None:
    found = dict(named())
    assert len(found) > 60, "else calls are not recognised any more"
    rows = set(re.findall(r"`([a-z_]+)", PAGE.read_text()))
    assert {name: place for name, place in found.items() if name not in rows} == {}


def test_the_page_names_no_metric_that_is_nowhere() -> None:
    """The process's own are the library's; those about users share a name with a gap."""
    code = "".join(path.read_text() for path in (ROOT / "controllers").rglob("*.py"))
    ours, _, _ = PAGE.read_text().partition("## Beside the Go manager's")
    rows = re.findall(r"`((?!process_|apiserver_delegated_)[a-z]+_[a-z_]+)\b", ours)
    assert len(rows) > 70
    assert [name for name in rows if f'"{name.removesuffix("_total")}' not in code] == []
