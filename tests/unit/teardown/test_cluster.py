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


@pytest.mark.parametrize(
    ("seen", "leader", "waited"),
    [
        ([None], "", 0.0),
        ([{}], "", 0.0),
        ([held("t0", "")], "", 0.0),
        ([held("1999"), held("1999"), held("2000")], "ccm-0", 2.0),
        ([held("9999")], "", 16.0),
        ([held("t0"), held("t1", "ccm-1")], "ccm-1", 1.0),
        ([held("t0"), held("t1", "")], "", 1.0),
        ([held("t0"), None], "", 1.0),
    ],
    ids=[
        "no Lease", "an empty one", "without a holder", "renewed: held, whatever its time says",
        "not renewed for its duration: nobody's", "it changes hands", "released", "deleted",
    ],
)  # fmt: skip
def test_who_works(seen: list[dict[str, Any] | None], leader: str, waited: float) -> None:
    server = Server(*seen)
    assert server.leader() == leader
    assert server.waited == waited


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
