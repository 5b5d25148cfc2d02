"""Some faults of the catalogue in their short form. `make faults` runs all, and mutants that they
must find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.envtest.build import assets
from tests.lab.faults.catalogue import BY_ID
from tests.lab.faults.run import FAST, run
from tests.support.failover.stage import Ground, ground
from tests.support.tiers import need

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("faults")]

SHORT = ("F9", "F28")
"""One that a mend was made for, and one in which users and the controller act at once. Each takes
20 s; all: `make faults`."""


@pytest.fixture(scope="module")
def where() -> Iterator[Ground]:
    need("the real API server", assets)
    with ground() as found:
        yield found


@pytest.mark.parametrize("name", SHORT)
def test_nothing_is_lost(where: Ground, tmp_path: Path, name: str) -> None:
    outcome = run(BY_ID[name], "ours", where, tmp_path, FAST)
    print(outcome)
    assert not outcome.problems, outcome
