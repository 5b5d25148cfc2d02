"""The report of localcloud in the docs is of the suite as it is now, and without a failure."""

from __future__ import annotations

import re

from cloudprovider.testing.conformance import SCENARIOS
from tests.localcloud_report import PAGE, page


def test_every_scenario_is_on_the_page_and_none_has_failed() -> None:
    rows = re.findall(r"^\| ([A-Z]+\d+) \|.*\| (\w[\w ]*?)(?::[^|]*)? \|$", PAGE.read_text(), re.MULTILINE)
    results = dict(rows)
    assert results.keys() == SCENARIOS.keys(), "run `make conformance`"
    assert {result.partition(" ")[0] for result in results.values()} == {"passed", "skipped"}
    assert sum(result == "passed" for result in results.values()) > 100


def test_the_page_says_how_it_was_made() -> None:
    made = page("# Conformance of localcloud\n\nAll passed.\n")
    assert made.startswith("# Conformance of localcloud\n\nThis page is written by `make conformance`")
    assert made.endswith("\n\nAll passed.\n")
