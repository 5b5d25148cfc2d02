from __future__ import annotations

import pytest

from tests.unit.runtime.election.support import LeaseServer


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer()
