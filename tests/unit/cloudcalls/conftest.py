"""The bench of these tests: `CloudCalls` around a provider that has nothing; others are made with
`support.world`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.cloudcalls.support import Provider, World, world


@pytest.fixture
def w() -> Iterator[World]:
    with world(Provider()) as made:
        yield made
