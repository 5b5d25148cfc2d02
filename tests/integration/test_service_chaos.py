"""Load balancers under everything at once, over both API servers: afterwards cluster and cloud
agree.

Users create, change, flip and delete Services, nodes come and go, the cloud fails before and after
it acted, throttles and builds halves, the network is cut, and the controller is replaced by its
successor. A fixed seed decides. Nobody strips finalizers here: a Service that vanishes without one
while nobody looks leaves an orphan, which is reported.
"""

from __future__ import annotations

import random
import time

import pytest

from cloudprovider import RetryError, Throttled
from cloudprovider.testing.fake import Action, FakeCloud, FakeConfig, answers, half_builds, hangs, raises
from cloudprovider.testing.waiting import eventually
from controllers.service.controller import ServiceController
from controllers.service.registration import ServiceOptions
from tests.integration.conftest import REAL, Cluster
from tests.support.api import NODES, Refused
from tests.support.marker import MARKER, pass_by
from tests.support.nodes import small_node
from tests.support.running import at_work
from tests.support.services import FINALIZER, SERVICES, lb_service

NAMES = [f"svc-{number:02d}" for number in range(12)]
FAULTS: list[tuple[str, float, Action]] = [
    ("*_load_balancer*", 0.15, raises()),
    ("ensure_load_balancer*", 0.1, raises(after=True)),
    ("*_load_balancer", 0.1, raises(RetryError("not yet", 0.2))),
    ("*_load_balancer*", 0.03, raises(Throttled("slow down", 0.1))),
    ("ensure_load_balancer", 0.1, half_builds()),
    ("ensure_load_balancer*", 0.03, hangs(0.5)),
    ("get_load_balancer", 0.1, answers(None)),
    ("ensure_load_balancer", 0.05, answers("junk")),
]
"""Methods, how likely it is, and what happens."""


def _now_and_then(dice: random.Random, probability: float, do: Action) -> Action:
    return lambda strike: do(strike) if dice.random() < probability else strike.proceed()


class Users:
    """What people and machines do to the cluster, as the dice say."""

    def __init__(self, api: Cluster, dice: random.Random) -> None:
        self.api = api
        self.dice = dice

    def act(self) -> None:
        """One thing; that it came too late for the server is their own affair."""
        try:
            self.dice.choices((self._create, self._port, self._flip, self._delete, self._node), (4, 3, 3, 3, 3))[0]()
        except Refused as refused:
            if refused.status not in (404, 409, 422):
                raise

    def _path(self) -> str:
        return f"{SERVICES}/{self.dice.choice(NAMES)}"

    def _create(self) -> None:
        self.api.create(SERVICES, lb_service(self.dice.choice(NAMES)))

    def _port(self) -> None:
        ports = [{"port": self.dice.randint(1, 999), "protocol": "TCP"}]
        self.api.patch(self._path(), {"spec": {"ports": ports}})

    def _flip(self) -> None:
        kind = self.dice.choice(("LoadBalancer", "ClusterIP", "NodePort"))
        self.api.patch(self._path(), {"spec": {"type": kind}})

    def _delete(self) -> None:
        """As it was seen: otherwise kube-apiserver removes an object at once although a finalizer
        came on after it looked for one."""
        path = self._path()
        if (seen := self.api.find(path)) is not None:
            self.api.delete(path, version=seen["metadata"]["resourceVersion"])

    def _node(self) -> None:
        name = f"node-{self.dice.randint(1, 6)}"
        if self.api.find(f"{NODES}/{name}") is not None:
            self.api.delete(f"{NODES}/{name}")
            return
        self.api.create(NODES, small_node(name, provider_id=f"fake://{name}"))


def _disagreement(api: Cluster, cloud: FakeCloud) -> str:
    """What is wrong between cluster and cloud; empty when nothing is."""
    services = {service["metadata"]["uid"]: service for service in api.items(SERVICES)}
    balancers = {balancer.service_uid: balancer for balancer in cloud.console.load_balancers()}
    nodes = sorted(node["spec"]["providerID"] for node in api.items(NODES))
    wrong = [
        f"{one.service} ({one.name}) has no Service" for one in balancers.values() if one.service_uid not in services
    ]
    if len(balancers) != len(cloud.console.load_balancers()):
        wrong.append("a Service has two load balancers")
    for uid, service in services.items():
        name, finalizers = service["metadata"]["name"], service["metadata"].get("finalizers", [])
        if "deletionTimestamp" in service["metadata"]:
            wrong.append(f"{name} is still there")
        elif service["spec"]["type"] != "LoadBalancer":
            if uid in balancers or FINALIZER in finalizers or service["status"].get("loadBalancer"):
                wrong.append(f"{name} wants none, and has finalizers {finalizers}, status {service['status']}")
        elif name != "kubernetes":
            found = balancers.get(uid)
            shown = [point["ip"] for point in service["status"].get("loadBalancer", {}).get("ingress", [])]
            if found is None or not shown or shown != list(found.ingress) or finalizers != [FINALIZER]:
                wrong.append(f"{name} shows {shown}, finalizers {finalizers}, the cloud has {found}")
            elif [port.port for port in found.ports] != [port["port"] for port in service["spec"]["ports"]]:
                wrong.append(f"{name} has ports {found.ports}")
            elif list(found.backends) != nodes:
                wrong.append(f"{name} has backends {found.backends}, not {nodes}")
    return "\n".join(wrong)


def _history(api: Cluster, cloud: FakeCloud) -> str:
    """What was asked of the cloud, and the Services as they are."""
    calls = [
        f"{one.sequence}-{one.finished} {one.method} {one.keys} {one.effect} {one.error}" for one in cloud.calls.log()
    ]
    return "\n".join([*calls, *(str(one) for one in api.items(SERVICES))])


def _calls_while_a_marker_passes(api: Cluster, cloud: FakeCloud) -> list[object]:
    """What is still done for others; the last retries of the storm may come after all agree."""
    before = len(cloud.calls.log("ensure_load_balancer", "update_load_balancer"))
    pass_by(api, cloud)
    later = cloud.calls.log("ensure_load_balancer", "update_load_balancer")[before:]
    return [call for call in later if MARKER not in call.keys]


@pytest.mark.row("S3")
@pytest.mark.row("S13")
@pytest.mark.parametrize(
    ("api", "seed"), [("embedded", 1), pytest.param("real", 2, marks=REAL.marks)], indirect=["api"]
)
def test_cluster_and_cloud_agree_when_the_storm_is_over(api: Cluster, seed: int) -> None:
    dice = random.Random(seed)
    options = ServiceOptions(cluster_name="storm", node_sync_window=0.05, drift_check_period=600.0)
    settings = {"log": "all", "on_demand": {}, "latency": {"*": 0.01}}
    with FakeCloud(FakeConfig.model_validate(settings)) as cloud, api.proxied() as (proxy, kubeconfig):
        users = Users(api, dice)
        for _ in range(6):
            users.act()
        for method, probability, do in FAULTS:
            cloud.faults.on(method, _now_and_then(random.Random(f"{seed}{method}{probability}"), probability, do))
        for _ in range(3):
            with at_work(ServiceController, kubeconfig, cloud, options):
                for step in range(40):
                    users.act()
                    if step % 15 == 10:
                        proxy.cut()
                    time.sleep(dice.random() * 0.04)
        cloud.faults.clear()
        with at_work(ServiceController, kubeconfig, cloud, options):
            eventually(
                lambda: not _disagreement(api, cloud),
                90,
                message=lambda: f"{_disagreement(api, cloud)}\n{_history(api, cloud)}",
            )
            eventually(lambda: not _calls_while_a_marker_passes(api, cloud), 60, message="no rest")
            assert not _disagreement(api, cloud)
        assert not cloud.calls.overlaps()
