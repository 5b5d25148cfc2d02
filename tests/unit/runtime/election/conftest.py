from __future__ import annotations

import pytest

from tests.support.clock import FakeClock
from tests.unit.runtime.election.support import LeaseServer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer()
