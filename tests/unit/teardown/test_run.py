"""A teardown over the fake cloud, without an API server: what is shown, what is deleted, what is
refused, and the exit code."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from attrs import evolve
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import (
    LoadBalancer,
    LoadBalancerKept,
    NotImplementedByProvider,
    OwnedLoadBalancer,
    OwnedLoadBalancers,
    Pending,
    Route,
)
from cloudprovider.helpers import parse_network
from cloudprovider.testing.conformance import new_node, new_service
from cloudprovider.testing.fake import FakeCloud, FakeConfig, raises
from cloudprovider.testing.fake.loadbalancers import ADOPT, KEEP
from controllers.catalog import CATALOG
from controllers.cloudcalls import CloudCalls
from controllers.flags.parse import parse
from controllers.manager.provider_host import ManagerError
from controllers.teardown.items import Lister
from controllers.teardown.options import TeardownOptions
from controllers.teardown.run import Teardown
from tests.support.there import there

CLUSTER = "blue"


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    with FakeCloud(FakeConfig.model_validate({"instances": [{"name": "a"}]})) as made:
        yield made


def build(cloud: FakeCloud, name: str, cluster: str = CLUSTER, **annotations: str) -> str:
    service = new_service(name, f"uid-{cluster}-{name}", annotations=annotations)
    balancers = there(cloud.load_balancer())
    balancers.ensure_load_balancer(cluster, service, [new_node("a")])
    return balancers.get_load_balancer_name(cluster, service)


def keep(cloud: FakeCloud, name: str) -> str:
    made = build(cloud, name, **{KEEP: "true"})
    with pytest.raises(LoadBalancerKept):
        there(cloud.load_balancer()).ensure_load_balancer_deleted(
            CLUSTER, new_service(name, f"uid-{CLUSTER}-{name}", annotations={KEEP: "true"})
        )
    return made


def teardown(cloud: FakeCloud, *flags: str, cidrs: Sequence[str] = (), cluster: str = CLUSTER) -> tuple[int, str]:
    argv = ["--cloud-provider=fake", f"--cluster-name={cluster}", *flags]
    parsed = parse(argv, CATALOG, flags=(TeardownOptions,))
    assert parsed.options is not None, parsed.problems
    out = io.StringIO()
    run = Teardown(parsed.options, cloud, cidrs=[parse_network(one) for one in cidrs])
    return run.print_to(out, threading.Event()), out.getvalue()


def changes(cloud: FakeCloud) -> int:
    return len(cloud.calls.log())


def test_without_yes_it_shows_and_changes_nothing(cloud: FakeCloud) -> None:
    build(cloud, "web")
    there(cloud.routes()).create_route(CLUSTER, "hint", Route("", "a", "10.244.1.0/24"))
    cloud.console.add_resource("sg-1", CLUSTER, name="k8s-elb")
    before = changes(cloud)
    code, shown = teardown(cloud, cidrs=["10.244.0.0/16"])
    assert code == 3
    assert [line.split()[0] for line in shown.splitlines()[1:4]] == ["load", "route", "security"]
    assert "Service default/web" in shown
    assert "10.244.1.0/24 to a" in shown
    assert shown.endswith("3 things to delete. Nothing was changed. The same command with --yes deletes them.\n")
    assert changes(cloud) == before


def test_with_yes_all_of_this_cluster_goes_and_nothing_of_another(cloud: FakeCloud) -> None:
    build(cloud, "web")
    build(cloud, "adopted", **{ADOPT: keep(cloud, "kept")})
    other = build(cloud, "web", "green")
    there(cloud.routes()).create_route(CLUSTER, "hint", Route("", "a", "10.244.1.0/24"))
    cloud.console.add_resource("sg-1", CLUSTER)
    cloud.console.add_resource("sg-2", "green")
    cloud.console.add_route("vpn", "192.168.0.0/16")
    code, shown = teardown(cloud, "--yes", cidrs=["10.244.0.0/16"])
    assert code == 0
    assert shown.endswith("Deleted 4 things. Nothing is left that was to be deleted.\n")
    assert [one.name for one in cloud.console.load_balancers()] == [other]
    assert [one.name for one in cloud.console.routes()] == ["vpn"]
    assert [one.id for one in cloud.console.resources()] == ["sg-2"]
    for flags, said in ((("--yes",), "Deleted 0 things. Nothing is left"), ((), "has nothing to delete in the cloud.")):
        code, shown = teardown(cloud, *flags, cidrs=["10.244.0.0/16"])
        assert code == 0
        assert said in shown


@pytest.mark.row("S31")
def test_a_kept_one_stays_unless_it_is_asked_for(cloud: FakeCloud) -> None:
    kept = keep(cloud, "web")
    code, shown = teardown(cloud, "--yes")
    assert code == 0
    assert "stays: kept on purpose; --also-kept deletes it" in shown
    assert [one.name for one in cloud.console.load_balancers()] == [kept]
    assert teardown(cloud, "--yes", "--also-kept")[0] == 0
    assert cloud.console.load_balancers() == []


def test_a_route_without_proof_goes_only_within_the_clusters_range(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    there(cloud.routes()).create_route(CLUSTER, "hint", Route("", "a", "10.99.1.0/24"))
    for owned, cidrs, code, left, said in (
        (None, ["10.244.0.0/16"], 0, 1, "outside --cluster-cidr"),
        (None, [], 1, 1, "no mark says whose it is; --cluster-cidr deletes those within"),
        (False, ["10.99.0.0/16"], 0, 1, "Deleted 0 things"),
        (True, [], 0, 0, "Deleted 1 thing"),
    ):
        found = [evolve(one, owned=owned) for one in there(cloud.routes()).list_routes(CLUSTER)]
        with monkeypatch.context() as patch:
            routes = type(there(cloud.routes()))
            listed = routes.list_routes

            def lists(self: Any, name: str, listed: Any = listed, owned: bool | None = owned) -> list[Route]:
                return [evolve(one, owned=owned) for one in listed(self, name)]

            patch.setattr(routes, "list_routes", lists)
            ended, shown = teardown(cloud, "--yes", "--wait=2s", cidrs=cidrs)
        assert ended == code, (found, shown)
        assert said in shown
        assert len(cloud.console.routes()) == left


def test_what_is_left_is_said_with_the_clouds_words(cloud: FakeCloud) -> None:
    name = build(cloud, "web")
    cloud.console.add_resource("sg-1", CLUSTER)
    cloud.faults.on("ensure_load_balancer_deleted", raises(Pending("still deleting", 0.2)))
    code, shown = teardown(cloud, "--yes", "--wait=1s")
    assert code == 1
    left = shown.partition("\nLEFT\n")[2]
    assert name in left
    assert "not deleted: still deleting" in left
    assert "not deleted: the time was over" in left, "the group waits for the load balancer"
    assert "2 things left. The same command goes on where this one ended." in left


def test_a_cluster_of_the_default_name_needs_its_identity(cloud: FakeCloud) -> None:
    build(cloud, "web", "kubernetes")
    code, shown = teardown(cloud, cluster="kubernetes")
    assert code == 3
    assert "It would be refused: kubernetes is the name of every cluster that was given none" in shown
    code, shown = teardown(cloud, "--yes", cluster="kubernetes")
    assert code == 1
    assert "Nothing was changed: kubernetes is the name" in shown
    assert len(cloud.console.load_balancers()) == 1
    assert teardown(cloud, "--yes", "--cluster-identity=u-1", cluster="kubernetes")[0] == 0
    assert cloud.console.load_balancers() == []


def test_the_provider_gets_the_clusters_name_and_identity_and_no_client(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def initialize(self: FakeCloud, clients: Any, stop: Any) -> None:
        seen.extend([clients.cluster_name(), clients.cluster_identity()])
        clients.client("acme")

    monkeypatch.setattr(FakeCloud, "initialize", initialize)
    with pytest.raises(ManagerError, match="teardown gives a provider no access to the cluster"):
        teardown(cloud, "--cluster-identity=u-1")
    assert seen == [CLUSTER, "u-1"]


def test_dry_run_among_the_managers_arguments_changes_nothing(cloud: FakeCloud) -> None:
    build(cloud, "web")
    code, shown = teardown(cloud, "--yes", "--dry-run")
    assert code == 3
    assert shown.endswith("Nothing was changed. The same command without --dry-run deletes them.\n")
    assert len(cloud.console.load_balancers()) == 1


def test_a_name_in_the_cloud_cannot_pass_for_a_row(cloud: FakeCloud) -> None:
    cloud.console.add_resource("sg-1\nload balancer  all  \x1b[2J", CLUSTER, name="a\nb")
    _, shown = teardown(cloud)
    assert len(shown.splitlines()) == 3
    assert "\x1b" not in shown


def test_one_whose_service_is_not_known_is_not_deleted_by_an_empty_uid() -> None:
    asked: list[object] = []

    class Acme(LoadBalancer, OwnedLoadBalancers):
        def get_load_balancer(self, cluster_name: str, service: V1Service) -> None: ...
        def ensure_load_balancer(self, *_: object) -> V1LoadBalancerStatus:
            raise AssertionError

        def update_load_balancer(self, *_: object) -> None: ...
        def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
            asked.append(service)

        def owned_load_balancers(self, cluster_name: str) -> list[OwnedLoadBalancer]:
            return [OwnedLoadBalancer("lb-7", "default/web")]

    balancers = Acme()
    with pytest.raises(NotImplementedByProvider, match="does not know the UID of the Service of lb-7"):
        balancers.delete_owned_load_balancer(CLUSTER, balancers.owned_load_balancers(CLUSTER)[0])
    assert asked == []


def test_a_provider_that_cannot_list_leaves_it_unknown() -> None:
    config = FakeConfig.model_validate({"instances": [{"name": "a"}], "capabilities": ["load_balancer"]})
    with FakeCloud(config) as cloud:
        build(cloud, "web")
        for flags in ((), ("--yes",)):
            code, shown = teardown(cloud, *flags)
            assert code == 1
            assert "UNKNOWN: load balancers: the provider has no OwnedLoadBalancers; look into the cloud" in shown


def test_a_list_that_fails_does_nothing(cloud: FakeCloud) -> None:
    build(cloud, "web")
    with cloud.faults.on("list_routes", raises()):
        before = changes(cloud)
        with pytest.raises(ManagerError, match="what cluster 'blue' owns is not known, nothing was done"):
            teardown(cloud, "--yes")
        assert changes(cloud) == before


def test_items_name_what_they_are_for(cloud: FakeCloud) -> None:
    build(cloud, "web")
    calls = CloudCalls(cloud)
    try:
        [item] = Lister(calls, CLUSTER).found().items
    finally:
        calls.close()
    assert (item.kind, item.what_for) == ("load balancer", "Service default/web")
