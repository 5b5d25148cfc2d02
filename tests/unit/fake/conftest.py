"""Clouds of some settings, closed at the end of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig

MakeCloud = Callable[..., FakeCloud]


@pytest.fixture
def make_cloud() -> Iterator[MakeCloud]:
    """Makes clouds from fields of the configuration."""
    with ExitStack() as ends:
        yield lambda **fields: ends.enter_context(FakeCloud(FakeConfig.model_validate(fields)))
