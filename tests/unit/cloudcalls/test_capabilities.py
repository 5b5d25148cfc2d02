"""The typed wrappers: which method, whose key, what is refused."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_status import V1ServiceStatus

from cloudprovider import InvalidAnnotations, InvalidService, LoadBalancerKept, Route, SSHKeys, current_call
from cloudprovider.internal.readonly import ReadOnlyObject
from controllers.cloudcalls import PRIORITY_SWEEP, CallFailed, CallOverdue, CloudCalls, InvalidAnswer
from controllers.runtime.queue import retry_after_of
from tests.support.there import there
from tests.unit.cloudcalls.support import LIMIT, Capability, Hang, Provider, Task, World, node, nodes, service, world

STATUS = V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip="1.2.3.4")])
ROUTE = Route("r", "n1", "10.0.0.0/24")


def balancers() -> Capability:
    return Capability(
        get_load_balancer=lambda *_: None,
        get_load_balancer_name=lambda *_: "a1b2",
        ensure_load_balancer=lambda *_: STATUS,
        update_load_balancer=lambda *_: None,
        ensure_load_balancer_deleted=lambda *_: None,
    )


def test_load_balancers() -> None:
    lb = balancers()
    with world(Provider(load_balancer=lb)) as w:
        calls, svc = there(w.calls.load_balancers), service()
        assert calls.get("c", svc) is None
        assert calls.name("c", svc) == "a1b2"
        assert calls.ensure("c", svc, [node("n1")]) == STATUS
        calls.update("c", svc, [])
        calls.ensure_deleted("c", svc)
        assert [name for name, _ in lb.calls] == [
            "get_load_balancer",
            "get_load_balancer_name",
            "get_load_balancer_name",  # for the log line, as before the deletion
            "ensure_load_balancer",
            "update_load_balancer",
            "get_load_balancer_name",
            "ensure_load_balancer_deleted",
        ]
        _, (cluster, vendors, vendor_nodes) = lb.calls[3]
        assert cluster == "c"
        assert vendors == svc
        assert vendors is not svc, "a copy"
        assert [n.metadata.name for n in vendor_nodes] == ["n1"]


@pytest.mark.row("S33")
def test_hooks_that_a_provider_leaves_alone_cost_no_call() -> None:
    lb = balancers()
    with world(Provider(load_balancer=lb)) as w:
        calls = w.balancers
        assert not calls.has_hook("depends_on")
        assert calls.depends_on(service()) == ""
        assert calls.target_traits([node("n1"), node("n2")]) == ["", ""]
        assert lb.calls == []


@pytest.mark.row("S33")
def test_hooks_run_in_the_providers_thread_and_a_node_s_failure_is_its_own() -> None:
    here, ran = threading.get_ident(), set()

    class Hooked(Capability):
        def depends_on(self, service: V1Service) -> str:
            ran.add(threading.get_ident())
            raise KeyError("team")

        def target_traits(self, node: V1Node) -> Any:
            ran.add(threading.get_ident())
            return {"n1": "edge", "n2": None, "n3": ""}[node.metadata.name]  # type: ignore[union-attr, index]

    with world(Provider(load_balancer=Hooked())) as w:
        assert w.balancers.has_hook("depends_on")
        with pytest.raises(CallFailed, match="depends_on failed: KeyError: 'team'"):
            w.balancers.depends_on(service())
        first, wrong, nothing, unknown = w.balancers.target_traits([node(f"n{number}") for number in range(1, 5)])
        assert (first, nothing) == ("edge", "")
        assert isinstance(wrong, CallFailed)
        assert isinstance(unknown, CallFailed)
        assert "target_traits failed: KeyError: 'n4'" in str(unknown)
    assert ran
    assert here not in ran


def test_a_service_that_its_owner_must_change_is_told_so_but_never_kept_from_being_deleted() -> None:
    def refuse(*_: Any) -> Any:
        raise InvalidAnnotations("acme.example/internal: 'yes' cannot be used")

    lb = Capability(ensure_load_balancer=refuse, ensure_load_balancer_deleted=refuse)
    with world(Provider(load_balancer=lb)) as w:
        calls = w.balancers
        with pytest.raises(InvalidAnnotations) as asked:
            calls.ensure("c", service(), [])
        assert retry_after_of(asked.value) == 3600
        with pytest.raises(CallFailed, match="'yes' cannot be used") as caught:
            calls.ensure_deleted("c", service())
        assert retry_after_of(caught.value) is None


def test_capabilities_that_the_provider_lacks_are_none(w: World) -> None:
    calls = w.calls
    for name in ("load_balancers", "routes", "pv_labeler", "ssh_keys"):
        assert getattr(calls, name) is None
    assert not calls.has_instances
    assert calls.max_batch == 1


def test_accessors_are_asked_once_and_not_counted() -> None:
    asked: list[str] = []

    class Counting(Provider):
        def routes(self) -> Any:
            asked.append("routes")
            return Capability(list_routes=lambda cluster: [])

    with world(Counting()) as w:
        assert w.calls.routes is w.calls.routes
        assert asked == ["routes"]
        assert w.requests("routes", "success") == 0


@pytest.mark.row("N5")
def test_a_list_of_what_is_owned_that_hangs_keeps_no_service_from_being_worked_on() -> None:
    hang = Hang(())

    class Hooked(Capability):
        def target_traits(self, node: V1Node) -> str:
            return "edge"

    lb = Hooked(owned_load_balancers=hang, load_balancer_revision=lambda: "v2")
    with world(Provider(load_balancer=lb)) as w:
        task = Task(lambda: w.balancers.owned("c"))
        w.time_out(hang)
        with pytest.raises(CallOverdue):
            task.result()
        assert (w.balancers.revision(), w.balancers.target_traits([node("n1")])) == ("v2", ["edge"])
        hang.release()


def test_a_service_with_an_overdue_call_gets_no_other_call_of_any_method() -> None:
    hang = Hang(STATUS)
    lb = Capability(ensure_load_balancer=hang, ensure_load_balancer_deleted=lambda *a: None)
    with world(Provider(load_balancer=lb), build_timeout=60) as w:
        calls = w.balancers
        task = Task(lambda: calls.ensure("c", service("web"), []))
        w.time_out(hang)
        with pytest.raises(CallOverdue) as caught:
            task.result()
        assert set(w.calls.parked()) == {"service/default/web"}
        with pytest.raises(CallOverdue):
            calls.ensure_deleted("c", service("web"))
        assert lb.count("ensure_load_balancer_deleted") == 0, "ensure still runs: deleting now would leave an orphan"
        calls.ensure_deleted("c", service("other"))
        hang.release()
        caught.value.until.result(LIMIT)
        calls.ensure_deleted("c", service("web"))


def test_what_changes_the_cloud_passes_the_guard_and_what_reads_does_not() -> None:
    guarded: list[str] = []
    lb = balancers()
    routes = Capability(list_routes=lambda c: [ROUTE], create_route=lambda *a: None, delete_route=lambda *a: None)
    instances = Capability(add_ssh_key_to_all_instances=lambda *a: None)
    provider = Provider(load_balancer=lb, routes=routes, instances=instances)
    with world(provider, guard=guarded.append) as w:
        c: CloudCalls = w.calls
        assert c.load_balancers
        assert c.routes
        assert c.ssh_keys
        c.load_balancers.get("c", service())
        c.load_balancers.name("c", service())
        assert c.routes.list("c") == (ROUTE,)
        assert guarded == []
        c.load_balancers.ensure("c", service(), [])
        c.load_balancers.update("c", service(), [])
        c.load_balancers.ensure_deleted("c", service())
        c.routes.create("c", "hint", ROUTE)
        c.routes.delete("c", ROUTE)
        c.ssh_keys.add("u", b"ssh-ed25519 AAAA")
        assert guarded == [
            "ensure_load_balancer",
            "update_load_balancer",
            "ensure_load_balancer_deleted",
            "create_route",
            "delete_route",
            "add_ssh_key_to_all_instances",
        ]


def test_ssh_keys_are_those_of_the_instances_that_have_them() -> None:
    """Of `InstancesV2`, or `InstancesBatch`, or else of the older `Instances`, which may be there
    beside them."""

    class Keyed(Capability, SSHKeys):
        def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
            self.added = (user, key_data)

    keyed, older = Keyed(), Capability(add_ssh_key_to_all_instances=lambda *a: None)
    for provider in (
        Provider(instances_v2=keyed, instances_batch=Capability(), instances=older),
        Provider(instances_v2=Capability(), instances_batch=keyed, instances=older),
    ):
        with world(provider) as w:
            assert w.calls.ssh_keys
            w.calls.ssh_keys.add("ada", b"ssh-ed25519 AAAA")
            assert keyed.added == ("ada", b"ssh-ed25519 AAAA")
    assert older.count("add_ssh_key_to_all_instances") == 0
    with world(Provider(instances_v2=Capability(), instances=older)) as w:
        assert w.calls.ssh_keys
        w.calls.ssh_keys.add("ada", b"ssh-ed25519 AAAA")
        assert older.count("add_ssh_key_to_all_instances") == 1
    with world(Provider(instances_v2=Capability())) as w:
        assert w.calls.ssh_keys is None


def test_the_provider_itself() -> None:
    stop = threading.Event()
    seen: list[Any] = []

    class Whole(Provider):
        def initialize(self, client_builder: Any, stop: Any) -> None:
            seen.append((client_builder, stop))

        def set_informers(self, informers: Any) -> None:
            seen.append(informers)

        def has_cluster_id(self) -> bool:
            return False

    builder: Any = object()
    listers: Any = object()
    with world(Whole()) as w:
        w.calls.provider.initialize(builder, stop)
        assert seen == [(builder, stop)]
        assert w.calls.provider.set_informers(listers) is True
        assert seen[1] is listers
        assert w.calls.provider.has_cluster_id() is False
        assert w.calls.provider_id_prefixes == ("test://",)
    with world(Provider()) as w:
        assert w.calls.provider.set_informers(listers) is False


@pytest.mark.row("N8")
@pytest.mark.parametrize("size", [0, -1, "100", None, True, 2.5])
def test_a_batch_size_that_is_none(size: Any) -> None:
    with (
        world(Provider(instances_batch=Capability(max_batch=size))) as w,
        pytest.raises(InvalidAnswer, match="max_batch"),
    ):
        _ = w.calls.max_batch


def test_an_accessor_that_raises_fails_its_callers_until_it_works() -> None:
    working: list[bool] = []

    class Flaky(Provider):
        def routes(self) -> Any:
            if not working:
                raise OSError("not yet")
            return Capability(list_routes=lambda c: [])

    with world(Flaky()) as w:
        with pytest.raises(Exception, match="not yet"):
            _ = w.calls.routes
        working.append(True)
        assert w.calls.routes is not None


@pytest.mark.row("O4")
def test_each_load_balancer_built_changed_and_deleted_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    lb = balancers()
    with world(Provider(load_balancer=lb)) as w, caplog.at_level("INFO"):
        calls = w.balancers
        new = service()
        calls.ensure("c", new, nodes(2))
        served = service()
        served.status = V1ServiceStatus(load_balancer=STATUS)
        calls.ensure("c", served, nodes(2))
        calls.ensure("c", served, nodes(2), priority=PRIORITY_SWEEP)
        calls.update("c", served, nodes(2))
        calls.ensure_deleted("c", served)
    assert [record.getMessage() for record in caplog.records] == [
        "built the load balancer a1b2 of Service default/web in 0 s: 1.2.3.4",
        "changed the load balancer a1b2 of Service default/web in 0 s: 1.2.3.4",
        "changed the load balancer of Service default/web in 0 s: targets for 2 nodes",
        "deleted the load balancer a1b2 of Service default/web in 0 s",
    ]
    fields = vars(caplog.records[0])
    assert (fields["service"], fields["provider"], fields["duration"]) == ("default/web", "test", 0.0)


@pytest.mark.row("P1")
def test_what_the_provider_refuses_is_not_built() -> None:
    built: list[Any] = []
    refused: list[Exception] = []

    class Checking(Capability):
        def check_service(self, service: Any) -> None:
            for error in refused:
                raise error

    def build(*given: Any) -> V1LoadBalancerStatus:
        built.append(given)
        return STATUS

    lb = Checking(get_load_balancer_name=lambda *_: "a1b2", ensure_load_balancer=build)
    with world(Provider(load_balancer=lb)) as w:
        w.balancers.ensure("c", service(), nodes(1))
        w.balancers.check(service())
        assert len(built) == 1
        refused.append(InvalidService("no port 80", "no UDP"))
        calls: tuple[Callable[[], object], ...] = (
            lambda: w.balancers.ensure("c", service(), nodes(1)),
            lambda: w.balancers.check(service()),
        )
        for call in calls:
            with pytest.raises(InvalidService) as caught:
                call()
            assert caught.value.problems == ("no port 80", "no UDP")
        refused[:] = [KeyError("spec")]
        with pytest.raises(CallFailed, match="KeyError"):
            w.balancers.ensure("c", service(), nodes(1))
        assert len(built) == 1


@pytest.mark.row("S31")
def test_one_that_is_kept_is_not_said_to_be_deleted(caplog: pytest.LogCaptureFixture) -> None:
    def keep(*_: object) -> None:
        raise LoadBalancerKept("a1b2 has deletion protection")

    lb = Capability(get_load_balancer_name=lambda *_: "a1b2", ensure_load_balancer_deleted=keep)
    with world(Provider(load_balancer=lb)) as w, caplog.at_level("INFO"), pytest.raises(LoadBalancerKept):
        w.balancers.ensure_deleted("c", service())
    assert [record.getMessage() for record in caplog.records] == [
        "kept the load balancer a1b2 of Service default/web in 0 s: a1b2 has deletion protection"
    ]


def test_the_provider_finds_the_service_as_it_was_last_built() -> None:
    found: list[Any] = []

    def noted(*_: object) -> V1LoadBalancerStatus:
        found.append(current_call().former)
        return STATUS

    lb = Capability(
        get_load_balancer_name=lambda *_: "a1b2",
        ensure_load_balancer=noted,
        ensure_load_balancer_deleted=lambda *_: found.append(current_call().former),
        get_load_balancer=noted,
    )
    former = service()
    with world(Provider(load_balancer=lb)) as w:
        w.balancers.ensure("c", service(), nodes(1))
        w.balancers.ensure("c", service(), nodes(1), former=former)
        w.balancers.ensure_deleted("c", service(), former=former)
        w.balancers.get("c", service())
    assert found == [None, former, former, None]
    with pytest.raises(ReadOnlyObject):
        found[1].spec.type = "ClusterIP"
