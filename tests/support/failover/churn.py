"""What users and machines do while managers come and go: nodes join and leave, Services come,
change and go."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

from typing_extensions import override

from cloudprovider.testing.fake import FakeCloud
from tests.support.api import API, NODES, STRATEGIC, Refused
from tests.support.nodes import small_node
from tests.support.repeating import Repeating
from tests.support.services import SERVICES, lb_service

POD_RANGE: Final = "10.128.0.0/9"
_SERVICE_NAMES: Final = 20

JSON = dict[str, Any]


def node(name: str, number: int, ready: str = "True") -> JSON:
    """A Node as its kubelet registers it, with a pod CIDR; `number` must not come twice."""
    return small_node(name, cidrs=[f"10.{128 + (number >> 8)}.{number & 255}.0/24"], ready=ready)


class ServiceChurn(Repeating):
    """Acts `rate` times a second while it is entered, as dice of `seed` say.

    What the API server refuses because it came too late, or because the server is away, is not
    tried again. Any other error is raised at the end. What joins and leaves is the subclass's.
    """

    def __init__(self, api: API, *, seed: int, rate: float = 5.0) -> None:
        super().__init__(self.act, every=1 / rate, name="churn")
        self.api = api
        self.dice = random.Random(seed)
        self.acts = 0

    def act(self) -> None:
        """Do one thing."""
        act = self.dice.choices((self.join, self.leave, self._serve, self._port, self._end), (3, 2, 3, 3, 2))[0]
        try:
            act()
        except Refused as refused:
            if refused.status not in (404, 409, 422, 500, 503):
                raise
        except OSError:
            return  # the API server is away
        self.acts += 1

    def join(self) -> None:
        """A machine comes."""
        raise NotImplementedError

    def leave(self) -> None:
        """A machine goes."""
        raise NotImplementedError

    def _service_path(self) -> str:
        return f"{SERVICES}/svc-{self.dice.randrange(_SERVICE_NAMES)}"

    def _serve(self) -> None:
        name = self._service_path().rpartition("/")[2]
        self.api.create(SERVICES, lb_service(name))

    def _port(self) -> None:
        ports = [{"port": self.dice.randint(1, 999), "protocol": "TCP"}]
        self.api.patch(self._service_path(), {"spec": {"ports": ports}})

    def _end(self) -> None:
        # As it was seen, see test_service_chaos.py.
        path = self._service_path()
        if (seen := self.api.find(path)) is not None:
            self.api.delete(path, version=seen["metadata"]["resourceVersion"])


class Churn(ServiceChurn):
    """Nodes join and leave with instances of a fake cloud; `first` is the number of the next.

    When `most` have joined, one leaves in place of another one that joins.
    """

    def __init__(
        self, api: API, cloud: FakeCloud, first: int, *, seed: int, rate: float = 5.0, most: float = math.inf
    ) -> None:
        super().__init__(api, seed=seed, rate=rate)
        self._cloud = cloud
        self._number = first
        self._most = most
        self._joined: list[str] = []

    @override
    def join(self) -> None:
        if len(self._joined) >= self._most:
            self.leave()
            return
        name = f"late-{self._number}"
        number, self._number = self._number, self._number + 1
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        self._cloud.console.add_instance(name, addresses={"InternalIP": address})
        self._insist(lambda: self.api.create(NODES, node(name, number)))
        self._joined.append(name)

    @override
    def leave(self) -> None:
        """An instance vanishes; its kubelet is silent then, and the cluster says so.

        Not one that has no provider ID yet: ours never deletes a node that may be another cloud's.
        """
        if not self._joined:
            return
        name = self.dice.choice(self._joined)
        if not self.api.get(f"{NODES}/{name}")["spec"].get("providerID"):
            return
        self._joined.remove(name)
        self._cloud.console.remove_instance(name)
        conditions = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
        body = {"status": {"conditions": conditions}}
        self._insist(lambda: self.api.patch(f"{NODES}/{name}/status", body, STRATEGIC))

    def _insist(self, act: Callable[[], object]) -> None:
        """What a machine does it does until the API server has it."""
        while not self.over.is_set():
            try:
                act()
            except OSError:
                self.over.wait(0.5)
                continue
            except Refused as refused:
                if refused.status >= 500:
                    self.over.wait(0.5)
                    continue
                if refused.status not in (404, 409):
                    raise
            return


def names(nodes: Iterable[JSON]) -> set[str]:
    """The names of these objects."""
    return {str(one["metadata"]["name"]) for one in nodes}
