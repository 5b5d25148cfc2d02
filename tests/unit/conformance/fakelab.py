"""The lab over a fake cloud: its console makes and stops machines, its faults break it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider import CloudConfig, CloudProviderError, RetryError, Throttled
from cloudprovider.errors import QuotaExceeded
from cloudprovider.helpers import provider_id_of
from cloudprovider.testing.conformance import BadAnswer, BalancerFacts, Lab, new_node
from cloudprovider.testing.fake import Action, FakeCloud, FakeConfig, Strike, half_builds, hangs, raises
from cloudprovider.testing.fake.config import CAPABILITIES
from cloudprovider.testing.fake.loadbalancers import ADOPT, KEEP
from tests.unit.fake.objects import volume

SECRET = "hunter2-hunter2"
LOCAL = "local-1"
"""The machine that the program runs on, by the configuration of the fake cloud."""


STATE = "fake.cloud/state"
"""A label of machines: the state in which a test brought one."""
UNLISTED = "fake.cloud/unlisted"
"""A label of machines that a listing lacks, should the provider make one."""


class Refused(CloudProviderError):
    """The cloud answered badly."""

    status = 0


class Ambiguous(CloudProviderError):
    """Several machines have the name."""


class Building(RetryError):
    """The cloud is still at work."""


def refused(answer: BadAnswer) -> CloudProviderError:
    """What a right client makes of an answer."""
    if answer.status == 429:
        return Throttled(answer.what, float(answer.headers["Retry-After"]) if answer.headers else None)
    error = Refused(answer.what)
    error.status = answer.status
    return error


class ConsoleLab(Lab):
    """Over any fake cloud, by its console and its faults."""

    deadline = 0.02
    poll = 0.01
    patience = 1.0
    page = 8
    states = ("building", "error", "deleting")

    def __init__(self, cloud: FakeCloud) -> None:
        self.cloud = cloud
        cloud.console.add_cluster("one", "192.0.2.1")

    def create_machine(self, name: str) -> V1Node:
        number = len(self.cloud.console.instances())
        ranges = [f"10.240.{number}.0/24", f"2001:db8:{number:x}::/64"]
        self.cloud.console.add_instance(
            name, addresses=[("InternalIP", "10.0.0.1")], zone="zone-a", region="region-1", pod_cidrs=ranges
        )
        return new_node(name)

    def rename_machine(self, node: V1Node, name: str) -> None:
        machine = next(one for one in self.cloud.console.instances() if provider_id_of(node) == f"fake://{one.id}")
        self.cloud.console.rename_instance(machine.name, name)

    def stop_machine(self, node: V1Node) -> None:
        self.cloud.console.set_shutdown(_name(node))

    def start_machine(self, node: V1Node) -> None:
        self.cloud.console.set_shutdown(_name(node), shutdown=False)

    def delete_machine(self, node: V1Node) -> None:
        machines = {f"fake://{one.id}": one.name for one in self.cloud.console.instances()}
        self.cloud.console.remove_instance(machines.get(provider_id_of(node), _name(node)))

    def ssh_keys(self, node: V1Node, user: str) -> Collection[bytes]:
        return [line.encode() for name, line in self.cloud.console.ssh_keys(_name(node)) if name == user]

    @contextmanager
    def outage(self, after: int = 0) -> Iterator[None]:
        # one call is one request; building is two, and the second may fail: it leaves a half-built
        # load balancer
        others = ("[!e]*", "ensure_*_deleted", "external_id")
        faults = self.cloud.faults
        with (
            faults.on(others, _later(after, raises())),
            faults.on("ensure_load_balancer", _later(after, half_builds())),
        ):
            yield

    @contextmanager
    def unlisted(self, node: V1Node) -> Iterator[None]:
        self.cloud.console.change_instance(_name(node), labels={UNLISTED: "true"})
        yield
        self.cloud.console.change_instance(_name(node), labels={})

    def hang(self) -> Any:
        return self.cloud.faults.on("*", hangs(soft=True))

    def bad_answers(self, answer: BadAnswer) -> Any:
        return self.cloud.faults.on("*", raises(refused(answer)))

    def end_tokens(self) -> None:
        asked = set[str]()

        def once_each(strike: Strike) -> Any:
            if strike.method in asked:
                return strike.proceed()
            asked.add(strike.method)
            raise refused(BadAnswer("401", 401))

        self.cloud.faults.on(("instance_exists", "list_routes"), once_each)

    def quota(self) -> Any:
        return self.cloud.faults.on(("create_route", "ensure_load_balancer"), raises(QuotaExceeded))

    @contextmanager
    def builds_slowly(self) -> Iterator[None]:
        faults = self.cloud.faults
        with (
            faults.on("ensure_load_balancer", _begins),
            faults.on("ensure_load_balancer_deleted", raises(Building("still deleting", 0.01))),
        ):
            yield

    def set_state(self, node: V1Node, state: str) -> None:
        self.cloud.console.change_instance(_name(node), labels={STATE: state})

    def create_twin(self, node: V1Node) -> V1Node:
        name = _name(node)

        def find(strike: Strike) -> Any:
            found = strike.arguments[0]
            bare = [one for one in (found if strike.request.method.batch else [found]) if not provider_id_of(one)]
            if not bare:
                return strike.proceed()
            error = Ambiguous(f"two machines are named {name}")
            if not strike.request.method.batch:
                raise error
            return {**strike.proceed(), **{_name(one): error for one in bare}}

        self.cloud.faults.on("instance*", find, key=name)
        twin = self.create_machine(f"{name}-of-the-same-name")
        return new_node(name, f"fake://{self.cloud.console.instance(_name(twin)).id}")

    def placement(self, node: V1Node) -> tuple[str, str]:
        found = self.cloud.console.instance(_name(node))
        return found.zone, found.region

    def resources(self) -> Collection[str]:
        return [balancer.name for balancer in self.cloud.console.load_balancers()]

    def load_balancer(self, name: str) -> BalancerFacts | None:
        found = next((one for one in self.cloud.console.load_balancers() if one.name == name), None)
        if found is None:
            return None
        ports = frozenset((port.port, port.protocol, port.node_port) for port in found.ports)
        return BalancerFacts(ports, found.backends, found.source_ranges or ("0.0.0.0/0",), found.health_check)

    def kept_annotations(self) -> Mapping[str, str]:
        return {KEEP: "true"}

    def adopting_annotations(self, name: str) -> Mapping[str, str]:
        return {ADOPT: name}

    def create_owned_resource(self, cluster_name: str) -> str:
        return self.cloud.console.add_resource(
            f"sg-{len(self.cloud.console.resources())}-{cluster_name}", cluster_name
        ).id

    def local_machine(self) -> V1Node:
        if not any(one.name == LOCAL for one in self.cloud.console.instances()):
            self.create_machine(LOCAL)
        return new_node(LOCAL)

    def create_volume(self) -> V1PersistentVolume:
        self.cloud.console.add_volume("disk-1", zones=["zone-a", "zone-b"], region="region-1")
        return volume("pv-1", "disk-1")

    def delete_volume(self, volume: V1PersistentVolume) -> None:
        self.cloud.console.remove_volume("disk-1")


class FakeLab(ConsoleLab):
    """Over a cloud that is shared, so that a second provider of the same configuration reaches it
    as well."""

    secrets = (SECRET,)

    def __init__(self, path: Path) -> None:
        settings = {"machine": LOCAL, "routes": {"strict_targets": True}, "capabilities": CAPABILITIES}
        super().__init__(FakeCloud(FakeConfig.model_validate(settings)))
        self._text = f"# token: {SECRET}\n{self.cloud.share(path).read_text()}"

    def config(self) -> CloudConfig:
        return CloudConfig(path="cloud.yaml", data=self._text.encode())  # JSON with a comment is YAML


def _begins(strike: Strike) -> Any:
    try:
        half_builds()(strike)
    except CloudProviderError as error:
        raise Building("still building", 0.01) from error


def _later(after: int, do: Action) -> Action:
    """So many calls pass first."""
    passed = count()
    return lambda strike: strike.proceed() if next(passed) < after else do(strike)


def _name(node: V1Node) -> str:
    assert node.metadata is not None
    assert node.metadata.name is not None
    return node.metadata.name
