"""A clock, stores and clouds of both kinds, and the cluster's objects that the cloud is asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.fake import FakeCloud, parse_config
from cloudprovider.testing.fake.store import MemoryStore, Store
from cloudprovider.testing.fake.store_sqlite import SQLiteStore
from tests.support.clock import FakeClock

MakeCloud = Callable[..., FakeCloud]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    """Where the state lives; a test that asks for it runs over both."""
    kind: str = request.param
    return kind


@pytest.fixture
def store(kind: str, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    store = MemoryStore(clock.time) if kind == "memory" else SQLiteStore(tmp_path / "state", clock.time)
    yield store
    store.close()


@pytest.fixture
def make_cloud(clock: FakeClock) -> Iterator[MakeCloud]:
    """Makes clouds from fields of the configuration, by the test's clock, and closes them."""
    made: list[FakeCloud] = []

    def make(caller: str | None = None, **fields: Any) -> FakeCloud:
        made.append(FakeCloud(parse_config(fields), caller=caller, clock=clock))
        return made[-1]

    yield make
    for cloud in made:
        cloud.close()


@pytest.fixture
def make_both(kind: str, make_cloud: MakeCloud, tmp_path: Path) -> MakeCloud:
    """The same over both kinds of state; every cloud made shares the one file."""
    where = {} if kind == "memory" else {"state": str(tmp_path / "cloud")}
    return lambda **fields: make_cloud(**where, **fields)
