"""The report of localcloud in the docs is of the suite as it is now, and without a failure."""

from __future__ import annotations

import re

from cloudprovider.testing.conformance import SCENARIOS
from tests.localcloud_report import PAGE


def test_every_scenario_is_on_the_page_and_none_has_failed() -> None:
    rows = re.findall(r"^\| ([A-Z]+\d+) \|.*\| (\w[\w ]*?)(?::[^|]*)? \|$", PAGE.read_text(), re.MULTILINE)
    results = dict(rows)
    assert results.keys() == SCENARIOS.keys(), "run `make conformance`"
    assert {result.partition(" ")[0] for result in results.values()} == {"passed", "skipped"}
    assert sum(result == "passed" for result in results.values()) > 100
