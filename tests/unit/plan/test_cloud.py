"""The gateway of a plan: nothing is called that changes the cloud, and reads show what was
answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import InstanceState, InvalidService, Route, Throttled
from cloudprovider.testing.fake import FakeCloud, FakeConfig, raises
from cloudprovider.testing.fake.loadbalancers import FakeLoadBalancers
from controllers.plan.cloud import Evidence, PlannedCalls, PlannedLoadBalancers
from controllers.plan.rows import ASSIGNED_LATER, Change, Kind, Plan
from controllers.service.changes import APPLIED, Note
from controllers.service.targets import targets
from tests.support.clock import FakeClock
from tests.support.sshkeys import OTHER, PUBLIC, fingerprint, leaks
from tests.unit.cloudcalls.support import node, service


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    with FakeCloud(FakeConfig.model_validate({"instances": [{"name": "a"}, {"name": "b"}]})) as made:
        yield made


class Stage:
    """The gateway of a plan before a cloud, its plan, and what the Service tells."""

    def __init__(self, cloud: FakeCloud) -> None:
        self.plan = Plan()
        self.clock = FakeClock()
        self.web = service()
        assert self.web.metadata is not None
        self.web.metadata.uid = "11111111-2222-3333-4444-555555555555"
        self.cloud = cloud
        self.evidence = Evidence(self.clock)
        self.calls = PlannedCalls(
            cloud,
            plan=self.plan,
            evidence=self.evidence,
            original=lambda _key: None,
            nodes=lambda: (node("a"), node("b")),
            clock=self.clock,
        )

    @property
    def balancers(self) -> PlannedLoadBalancers:
        found = self.calls.load_balancers
        assert found is not None
        return found

    def built_with(self, *names: str) -> None:
        """The Service tells that this program built its load balancer, with these targets."""
        assert self.web.metadata is not None
        digest = targets([node(name) for name in names], ready_only=False).digest
        self.web.metadata.annotations = {APPLIED: str(Note(str(self.web.metadata.uid), nodes=digest))}

    def ensure(self, *names: str) -> V1LoadBalancerStatus:
        return self.balancers.ensure("c", self.web, [node(name) for name in names])

    def update(self, *names: str) -> None:
        self.balancers.update("c", self.web, [node(name) for name in names])

    def there(self) -> V1LoadBalancerStatus:
        """The load balancer is in the cloud."""
        balancers = self.cloud.load_balancer()
        assert balancers is not None
        return balancers.ensure_load_balancer("c", self.web, [node("a")])

    def rows(self) -> list[tuple[str, str, tuple[Change, ...]]]:
        return [(str(row.subject), row.action, row.changes) for row in self.plan.rows()]


@pytest.fixture
def stage(cloud: FakeCloud) -> Stage:
    return Stage(cloud)


def test_a_load_balancer_that_is_not_there_is_created_with_its_last_targets(stage: Stage) -> None:
    [point] = stage.ensure("a").ingress or []
    assert point.hostname == ASSIGNED_LATER
    assert stage.balancers.get("c", stage.web) == V1LoadBalancerStatus(ingress=[point])
    stage.update("a", "b")
    assert stage.rows() == [
        ("service/default/web", "create load balancer", (Change("targets", None, ("a", "b")),)),
    ]
    assert stage.cloud.console.load_balancers() == []


def test_one_that_is_there_is_changed_or_may_stay_as_it_is(stage: Stage) -> None:
    status = stage.there()
    assert stage.ensure("a") == status
    [row] = stage.plan.rows()
    assert (row.action, row.certain) == ("ensure load balancer", False)
    ours = Stage(stage.cloud)
    ours.built_with("a")
    assert ours.ensure("a", "b") == status
    [row] = ours.plan.rows()
    assert (row.action, row.certain) == ("change load balancer", True)
    assert row.changes == (Change("targets", ("a",), ("a", "b")),)


def test_what_the_provider_refuses_is_said_in_place_of_its_creation(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: object, _service: object) -> None:
        raise InvalidService("no UDP", "no port 80")

    monkeypatch.setattr(FakeLoadBalancers, "check_service", refuse)
    with pytest.raises(InvalidService):
        stage.ensure("a")
    [row] = stage.plan.rows()
    assert (row.kind, row.action, row.note) == (Kind.HELD_BACK, "refused", "no UDP; no port 80")


def test_other_targets_and_those_that_come_back(stage: Stage) -> None:
    stage.built_with("a", "b")
    stage.update("a")
    assert stage.rows() == [("service/default/web", "retarget load balancer", (Change("targets", ("a", "b"), ("a",)),))]
    stage.update("a", "b")
    assert stage.rows() == []


def test_a_deleted_one_is_gone_from_every_read(stage: Stage) -> None:
    stage.there()
    [owned] = stage.balancers.owned("c")
    assert owned.service == "default/web"
    stage.balancers.ensure_deleted("c", stage.web)
    assert stage.balancers.get("c", stage.web) is None
    assert stage.balancers.owned("c") == ()
    assert [(row.action, row.note) for row in stage.plan.rows()] == [("delete load balancer", "")]
    assert len(stage.cloud.console.load_balancers()) == 1
    other = Stage(stage.cloud)
    other.web = V1Service.model_validate({"metadata": {"name": "x", "namespace": "default", "uid": "other"}})
    other.balancers.ensure_deleted("c", other.web)
    assert [row.note for row in other.plan.rows()] == ["the cloud shows none"]


def test_what_the_provider_raises_passes(stage: Stage) -> None:
    stage.cloud.faults.on("get_load_balancer", raises(Throttled))
    with pytest.raises(Throttled):
        stage.ensure("a")
    assert stage.rows() == []


def test_routes_are_overlaid_and_one_that_comes_and_goes_is_no_row(stage: Stage) -> None:
    old, hole = (Route(name=f"to-{at}", target_node="a", destination_cidr=f"10.0.{at}.0/24") for at in (1, 2))
    new = Route(name="", target_node="b", destination_cidr="10.0.3.0/24")
    there = stage.cloud.routes()
    assert there is not None
    for route in (old, hole):
        there.create_route("c", "hint", route)
    stage.cloud.console.remove_instance("a")
    routes = stage.calls.routes
    assert routes is not None
    old, hole = routes.list("c")
    routes.create("c", "hint", new)
    routes.delete("c", old)
    routes.delete("c", hole)
    assert routes.list("c") == (new,)
    gone = "(none: a blackhole)" if old.blackhole else "a"
    assert stage.rows() == [
        ("route/10.0.1.0/24", "delete route", (Change("target", gone, None),)),
        ("route/10.0.2.0/24", "delete route", (Change("target", gone, None),)),
        ("route/10.0.3.0/24", "create route", (Change("target", None, "b"),)),
    ]
    routes.delete("c", new)
    assert routes.list("c") == ()
    assert [action for _, action, _ in stage.rows()] == ["delete route", "delete route"]
    assert "delete_route" not in {call.method for call in stage.cloud.calls.log()}


def test_a_key_is_shown_by_its_fingerprint_and_other_calls_by_their_name(stage: Stage) -> None:
    keys = stage.calls.ssh_keys
    assert keys is not None
    for key in (PUBLIC, OTHER):
        keys.add("core", f"{key} someone".encode())
    called: list[str] = []
    paint: Callable[[str], None] = called.append
    assert stage.calls.call("paint_instance", paint, "blue", key="node/a", mutating=True) is None
    assert called == []
    assert stage.calls.call("see", lambda: "blue", key="node/a") == "blue"
    rows = stage.plan.rows()
    added = [row for row in rows if row.action == "add SSH key"]
    assert {row.subject.name for row in added} == {fingerprint(PUBLIC), fingerprint(OTHER)}
    assert {(row.changes, row.certain) for row in added} == {((Change("user", None, "core"),), False)}
    assert leaks(repr(rows)) == []
    assert [str(row.subject) for row in rows if row.action == "paint instance"] == ["node/a"]


def test_evidence_is_an_unbroken_row_of_answers(stage: Stage) -> None:
    def ask() -> str:
        stage.calls.fetch_state([node("a")], lambda _name, _answer: None)
        return stage.evidence.of("a")

    assert ask() == ""
    stage.cloud.console.remove_instance("a")
    assert ask().startswith("the cloud said that its instance is gone, 1 times: ")
    stage.clock.advance(5.0)
    assert ask().startswith("the cloud said that its instance is gone, 2 times: ")
    stage.evidence.stated("a", InstanceState.RUNNING)
    assert stage.evidence.of("a") == ""
