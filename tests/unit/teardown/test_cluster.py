"""Whether a manager still works is seen by watching its Lease, with a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.runtime.api import NotFound
from controllers.teardown.run import leader
from tests.support.clock import FakeClock


class Server:
    """An API server's answers about one Lease, the last of them for ever; and the stop signal,
    whose waits pass the time."""

    def __init__(self, *specs: dict[str, Any] | None) -> None:
        self.clock = FakeClock()
        self.specs = list(specs)
        self.waited = 0.0
        self.stopped = False

    def rest(self, name: str) -> Server:
        return self

    def get(self, path: str) -> dict[str, Any]:
        assert path == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm"
        spec = self.specs.pop(0) if len(self.specs) > 1 else self.specs[0]
        if spec is None:
            raise NotFound("no such lease", method="GET", path=path)
        return {"spec": spec}

    def is_set(self) -> bool:
        return self.stopped

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waited += timeout
        self.clock.advance(timeout)
        return self.stopped

    def leader(self) -> str:
        clients: Any = self
        return leader(clients, "kube-system", "ccm", self.clock, self)


def held(renewed: str, holder: str = "ccm-0", seconds: object = 15) -> dict[str, Any]:
    return {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed}


@pytest.mark.parametrize("spec", [None, {}, held("t0", "")])
def test_without_a_holder_nobody_works(spec: dict[str, Any] | None) -> None:
    server = Server(spec)
    assert server.leader() == ""
    assert server.waited == 0.0


def test_one_that_is_renewed_is_held_whatever_its_time_says() -> None:
    server = Server(held("1999"), held("1999"), held("2000"))
    assert server.leader() == "ccm-0"
    assert server.waited == 2.0


def test_one_that_is_not_renewed_for_its_duration_is_nobodys() -> None:
    server = Server(held("9999"))
    assert server.leader() == ""
    assert server.waited == 16.0


def test_one_that_changes_hands_is_the_new_holders_and_one_that_is_released_nobodys() -> None:
    assert Server(held("t0"), held("t1", "ccm-1")).leader() == "ccm-1"
    assert Server(held("t0"), held("t1", "")).leader() == ""
    assert Server(held("t0"), None).leader() == ""


@pytest.mark.parametrize("seconds", ["soon", -1, 10**9, None, float("nan")])
def test_a_duration_that_a_hand_wrote_holds_nothing_up(seconds: object) -> None:
    server = Server(held("t0", seconds=seconds))
    assert server.leader() == ""
    assert server.waited <= 61.0


def test_a_signal_ends_the_wait() -> None:
    server = Server(held("t0"))
    server.stopped = True
    assert server.leader() == ""
    assert server.waited == 1.0
