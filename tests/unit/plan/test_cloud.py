"""The cloud's stand-in: nothing is called that changes the cloud, and reads show what was
answered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import InstanceState, OwnedLoadBalancer, Route, Throttled
from cloudprovider.testing.fake import FakeCloud, FakeConfig, raises
from controllers.catalog import CATALOG
from controllers.plan.cloud import CloudStandIn
from controllers.plan.rows import Plan
from controllers.registration.plan import ASSIGNED_LATER, Change, Planning
from controllers.service.changes import APPLIED, Note
from controllers.service.targets import targets
from tests.support.clock import FakeClock
from tests.support.sshkeys import OTHER, PUBLIC, fingerprint, leaks
from tests.unit.cloudcalls.support import node, service

KEY = "service/default/web"


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    with FakeCloud(FakeConfig.model_validate({"instances": [{"name": "a"}, {"name": "b"}]})) as made:
        yield made


class Stage:
    """The stand-in before a cloud, its plan, and what the Service tells."""

    def __init__(self, cloud: FakeCloud) -> None:
        self.plan = Plan()
        self.clock = FakeClock()
        self.web = service()
        assert self.web.metadata is not None
        self.web.metadata.uid = "11111111-2222-3333-4444-555555555555"
        self.cloud = cloud
        planning = Planning(
            record=self.plan.record,
            provider=cloud,
            original=lambda _kind, _key: None,
            nodes=lambda: (node("a"), node("b")),
        )
        planned = [entry.planned_calls(planning) for entry in CATALOG if entry.planned_calls is not None]
        self.stand_in = CloudStandIn(self.plan, planned, self.clock)

    def built_with(self, *names: str) -> None:
        """The Service tells that this program built its load balancer, with these targets."""
        assert self.web.metadata is not None
        digest = targets([node(name) for name in names], ready_only=False).digest
        self.web.metadata.annotations = {APPLIED: str(Note(str(self.web.metadata.uid), nodes=digest))}

    def ensure(self, *names: str) -> V1LoadBalancerStatus:
        answer = self.stand_in.answer("ensure_load_balancer", KEY, ("c", self.web, [node(name) for name in names]))
        assert isinstance(answer, V1LoadBalancerStatus)
        return answer

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
    shown = stage.stand_in.shown("get_load_balancer", KEY, None)
    assert shown == V1LoadBalancerStatus(ingress=[point])
    stage.stand_in.answer("update_load_balancer", KEY, ("c", stage.web, [node("a"), node("b")]))
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


def test_other_targets_and_those_that_come_back(stage: Stage) -> None:
    stage.built_with("a", "b")
    stage.stand_in.answer("update_load_balancer", KEY, ("c", stage.web, [node("a")]))
    assert stage.rows() == [("service/default/web", "retarget load balancer", (Change("targets", ("a", "b"), ("a",)),))]
    stage.stand_in.answer("update_load_balancer", KEY, ("c", stage.web, [node("a"), node("b")]))
    assert stage.rows() == []


def test_a_deleted_one_is_gone_from_every_read(stage: Stage) -> None:
    status = stage.there()
    stage.stand_in.answer("ensure_load_balancer_deleted", KEY, ("c", stage.web))
    assert stage.stand_in.shown("get_load_balancer", KEY, status) is None
    owned: tuple[OwnedLoadBalancer, ...] = (
        OwnedLoadBalancer(name="x", service="default/web"),
        OwnedLoadBalancer(name="y", service="default/other"),
    )
    assert stage.stand_in.shown("owned_load_balancers", "load-balancers", owned) == owned[1:]
    assert [(row.action, row.note) for row in stage.plan.rows()] == [("delete load balancer", "")]
    assert len(stage.cloud.console.load_balancers()) == 1
    other = Stage(stage.cloud)
    other.web = V1Service.model_validate({"metadata": {"name": "x", "namespace": "default", "uid": "other"}})
    other.stand_in.answer("ensure_load_balancer_deleted", "service/default/x", ("c", other.web))
    assert [row.note for row in other.plan.rows()] == ["the cloud shows none"]


def test_what_the_provider_raises_passes(stage: Stage) -> None:
    stage.cloud.faults.on("get_load_balancer", raises(Throttled))
    with pytest.raises(Throttled):
        stage.ensure("a")
    assert stage.rows() == []


def test_routes_are_overlaid_and_one_that_comes_and_goes_is_no_row(stage: Stage) -> None:
    old = Route(name="old", target_node="a", destination_cidr="10.0.1.0/24")
    hole = Route(name="hole", destination_cidr="10.0.2.0/24", blackhole=True, target_node="")
    new = Route(name="", target_node="b", destination_cidr="10.0.3.0/24")
    answer = stage.stand_in.answer
    listed: tuple[Route, ...] = (old, hole)
    answer("create_route", "route/10.0.3.0/24", ("c", "hint", new))
    answer("delete_route", "route/10.0.1.0/24", ("c", old))
    answer("delete_route", "route/10.0.2.0/24", ("c", hole))
    assert stage.stand_in.shown("list_routes", "routes/c", listed) == (new,)
    assert stage.rows() == [
        ("route/10.0.1.0/24", "delete route", (Change("target", "a", None),)),
        ("route/10.0.2.0/24", "delete route", (Change("target", "(none: a blackhole)", None),)),
        ("route/10.0.3.0/24", "create route", (Change("target", None, "b"),)),
    ]
    answer("delete_route", "route/10.0.3.0/24", ("c", new))
    assert stage.stand_in.shown("list_routes", "routes/c", listed) == ()
    assert [action for _, action, _ in stage.rows()] == ["delete route", "delete route"]


def test_a_key_is_shown_by_its_fingerprint_and_other_calls_by_their_name(stage: Stage) -> None:
    for key in (PUBLIC, OTHER):
        stage.stand_in.answer("add_ssh_key_to_all_instances", "ssh-keys", ("core", f"{key} someone".encode()))
    assert stage.stand_in.answer("paint_instance", "node/a", ("blue",)) is None
    rows = stage.plan.rows()
    keys = [row for row in rows if row.action == "add SSH key"]
    assert {row.subject.name for row in keys} == {fingerprint(PUBLIC), fingerprint(OTHER)}
    assert {(row.changes, row.certain) for row in keys} == {((Change("user", None, "core"),), False)}
    assert leaks(repr(rows)) == []
    assert [str(row.subject) for row in rows if row.action == "paint instance"] == ["node/a"]


def test_evidence_is_an_unbroken_row_of_answers(stage: Stage) -> None:
    stage.stand_in.stated("a", InstanceState.GONE)
    stage.stand_in.stated("a", InstanceState.RUNNING)
    assert stage.stand_in.evidence("a") == ""
    stage.stand_in.stated("a", InstanceState.GONE)
    stage.clock.advance(5.0)
    stage.stand_in.stated("a", InstanceState.GONE)
    assert stage.stand_in.evidence("a").startswith("the cloud said that its instance is gone, 2 times: ")
