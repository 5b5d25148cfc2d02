"""Evidence that nothing happens to Services, without a sleep: another one, to which something must
happen."""

from __future__ import annotations

from typing import Final

from cloudprovider.testing.fake import FakeCloud
from cloudprovider.testing.waiting import eventually
from tests.support.api import API
from tests.support.services import SERVICES, lb_service

MARKER: Final = "default/the-marker"
"""The Service's key, as calls of the cloud have it."""


def pass_by(api: API, cloud: FakeCloud) -> None:
    """Create a Service, change it twice, and delete it, each when the cloud has done the one
    before.

    What the controller had to do for others when this began has been done by then: it was queued
    earlier, and nobody waits longer than the marker, which is made to rest between its calls.
    """
    name = MARKER.rpartition("/")[2]
    path = f"{SERVICES}/{name}"

    def ports() -> list[int]:
        found = [one for one in cloud.console.load_balancers() if one.service == MARKER]
        return [port.port for one in found for port in one.ports]

    def has(port: int) -> None:
        eventually(lambda: ports() == [port], 60, lambda: f"the marker has ports {ports()}, not {port}")

    api.create(SERVICES, lb_service(name, 1))
    has(1)
    for port in (2, 3):
        eventually(lambda: api.get(path)["status"].get("loadBalancer", {}).get("ingress"))
        api.patch(path, {"spec": {"ports": [{"port": port, "protocol": "TCP"}]}})
        has(port)
    api.delete(path)
    eventually(lambda: api.find(path) is None, 60)
