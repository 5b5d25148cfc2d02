"""The fixture of these tests."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.unit.cloudprovider.http.cloud import Cloud, serving


@pytest.fixture
def cloud() -> Generator[Cloud]:
    with serving() as cloud:
        yield cloud
