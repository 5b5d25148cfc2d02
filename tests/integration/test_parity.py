"""The embedded API server answers as the real one does: every scenario of the parity table, sent to
both."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from tests.integration.parity import SCENARIOS
from tests.integration.parity.model import Scenario
from tests.integration.parity.runner import Runner, Server, differences
from tests.lab.envtest.server import RealAPIServer

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def embedded() -> Iterator[Server]:
    with EmbeddedAPIServer(anonymous=True) as server:
        yield Server(server.url, {"admin": server.token})


@pytest.fixture(scope="module")
def real(real_api_server: RealAPIServer) -> Server:
    return Server(real_api_server.url, {"admin": real_api_server.token}, real_api_server.ca_file)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2, thread_name_prefix="parity") as pool:
        yield pool


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_both_servers_answer_alike(
    scenario: Scenario, embedded: Server, real: Server, pool: ThreadPoolExecutor
) -> None:
    runners = [Runner(server) for server in (embedded, real)]
    ours, theirs = pool.map(lambda runner: runner.run(scenario), runners)  # at once, as some steps wait
    wrong = [
        f"step {at + 1} {step.method} {step.path}: {line}"
        for at, (step, one, other) in enumerate(zip(scenario.steps, ours, theirs, strict=True))
        for line in differences(one, other)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_table_is_large_enough() -> None:
    assert sum(len(scenario.steps) for scenario in SCENARIOS) >= 60
    names = [scenario.name for scenario in SCENARIOS]
    assert len(names) == len(set(names))
