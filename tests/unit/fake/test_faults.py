"""Faults: which calls they strike, how often, and what the caller then sees; over both stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cloudprovider import (
    CloudProviderError,
    DiskNotFound,
    InstanceMetadata,
    InstanceNotFound,
    InstanceState,
    InstancesV2,
    RetryError,
    Throttled,
    Zone,
)
from cloudprovider.testing.fake import (
    CredentialsExpired,
    ExpiredCredentials,
    FakeCloud,
    FakeConfigError,
    HalfBuilt,
    Junk,
    LoadBalancerState,
    Partial,
    Raise,
    Throttle,
    Wrong,
)
from cloudprovider.testing.fake.config import CAPABILITIES
from cloudprovider.testing.fake.junk import fitting_junk
from cloudprovider.testing.fake.methods import METHODS, Returns
from tests.support.clock import FakeClock
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import node, nodes, service, volume

NAMES = [f"n{number}" for number in range(10)]


@pytest.fixture
def cloud(make_both: MakeCloud) -> FakeCloud:
    return make_both(
        instances=[{"name": name, "addresses": {"InternalIP": "10.0.0.1"}} for name in NAMES],
        capabilities=CAPABILITIES,
        clusters=[{"name": "c", "master": "m"}],
        volumes=[{"id": "v", "zones": ["z"]}],
        zone="z",
        machine="n1",
    )


def v2(cloud: FakeCloud) -> InstancesV2:
    found = cloud.instances_v2()
    assert found is not None
    return found


def states(cloud: FakeCloud, *names: str) -> Mapping[str, InstanceState | CloudProviderError]:
    batch = cloud.instances_batch()
    assert batch is not None
    return batch.instances_state(nodes(*(names or NAMES)))


def metadata(cloud: FakeCloud, *names: str) -> Mapping[str, Any]:
    batch = cloud.instances_batch()
    assert batch is not None
    return batch.instances_metadata(nodes(*(names or NAMES)))


def outcomes(ask: Callable[[], object], times: int) -> str:
    """A letter for each of so many calls: "." it answered, "x" it raised."""
    letters = ""
    for _ in range(times):
        try:
            ask()
            letters += "."
        except CloudProviderError:
            letters += "x"
    return letters


class TestWhichCalls:
    def test_method_and_key_patterns(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Raise(method=("instance_e*", "get_zone"), key=("n[12]", "fake://i-n5")))
        for name, letter in (("n1", "x"), ("n2", "x"), ("n3", "."), ("n5", ".")):
            assert outcomes(lambda name=name: v2(cloud).instance_exists(node(name)), 1) == letter  # type: ignore[misc]
            assert outcomes(lambda name=name: v2(cloud).instance_metadata(node(name)), 1) == "."  # type: ignore[misc]
        assert outcomes(lambda: v2(cloud).instance_exists(node("n5", "fake://i-n5")), 1) == "x"
        zones = cloud.zones()
        assert zones is not None
        assert outcomes(zones.get_zone, 1) == ".", "it is about no key"

    def test_every_name_that_something_is_known_by(self, cloud: FakeCloud) -> None:
        balancer, labeler = cloud.load_balancer(), cloud.pv_labeler()
        assert balancer is not None
        assert labeler is not None
        for key, ask in (
            ("default/web", lambda: balancer.get_load_balancer("c", service())),
            ("auidweb", lambda: balancer.get_load_balancer("c", service())),
            ("v", lambda: labeler.get_labels_for_volume(volume("pv", "v"))),
            ("pv", lambda: labeler.get_labels_for_volume(volume("pv", "v"))),
        ):
            cloud.faults.add(Raise(name="f", key=key))
            assert outcomes(ask, 1) == "x"
        cloud.faults.add(Raise(name="f", key="nothing of the kind"))
        assert outcomes(lambda: balancer.get_load_balancer("c", service()), 1) == "."

    def test_times_and_skip(self, cloud: FakeCloud) -> None:
        name = cloud.faults.add(Raise(times=2, skip=3))
        assert outcomes(lambda: v2(cloud).instance_exists(node("n1")), 8) == "...xx..."
        (active,) = cloud.faults.list()
        assert (active.matched, active.struck, cloud.faults.struck(name)) == (8, 2, 2)
        cloud.faults.add(Raise(name=name, times=1))
        assert outcomes(lambda: v2(cloud).instance_exists(node("n1")), 2) == "x.", "one put in its place counts anew"

    def test_a_window_of_time(self, cloud: FakeCloud, clock: FakeClock) -> None:
        cloud.faults.add(Raise(start=10, stop=20))
        letters = ""
        for _ in range(5):
            letters += outcomes(lambda: v2(cloud).instance_exists(node("n1")), 1)
            clock.advance(5)
        assert letters == "..xx."

    def test_probability_follows_the_seed_and_not_the_order(self, make_cloud: MakeCloud) -> None:
        def drawn(seed: int, order: list[str]) -> dict[str, str]:
            cloud = make_cloud(seed=seed, faults=[{"action": "raise", "name": "f", "probability": 0.5}])
            found = dict.fromkeys(order, "")
            for _ in range(20):
                for name in order:
                    found[name] += outcomes(lambda name=name: v2(cloud).instance_exists(node(name)), 1)  # type: ignore[misc]
            return found

        once = drawn(1, NAMES)
        assert once == drawn(1, NAMES[::-1])
        assert once != drawn(2, NAMES)
        assert 60 < "".join(once.values()).count("x") < 140
        assert len(set(once.values())) > 5

    def test_callers(self, make_both: MakeCloud) -> None:
        cloud = make_both(caller="ccm-a")
        cloud.faults.add(Raise(name="f", caller="ccm-b"))
        assert outcomes(lambda: v2(cloud).instance_exists(node("n")), 1) == "."
        cloud.faults.add(Raise(name="f", caller=("ccm-b", "ccm-a*")))
        assert outcomes(lambda: v2(cloud).instance_exists(node("n")), 1) == "x"
        cloud.faults.add(Raise(name="f", caller=str(cloud.calls.caller().process)))
        assert outcomes(lambda: v2(cloud).instance_exists(node("n")), 1) == "x"

    def test_removing_clearing_and_bad_mappings(self, cloud: FakeCloud) -> None:
        name = cloud.faults.add({"action": "raise"})
        cloud.faults.add({"action": "raise", "name": "other"})
        assert [active.fault.name for active in cloud.faults.list()] == [name, "other"]
        assert cloud.faults.remove(name)
        assert not cloud.faults.remove(name)
        assert outcomes(lambda: v2(cloud).instance_exists(node("n")), 1) == "x"
        cloud.faults.clear()
        assert outcomes(lambda: v2(cloud).instance_exists(node("n")), 1) == "."
        with pytest.raises(FakeConfigError, match=r"fault\.action: is required"):
            cloud.faults.add({})
        with pytest.raises(FakeConfigError, match=r"fault\.times"):
            cloud.faults.add({"action": "raise", "times": "x"})


class TestRaising:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            ("CloudProviderError", CloudProviderError), ("InstanceNotFound", InstanceNotFound),
            ("DiskNotFound", DiskNotFound), ("TimeoutError", TimeoutError), ("SystemExit", SystemExit),
            ("CredentialsExpired", CredentialsExpired),
        ],
    )  # fmt: skip
    def test_kinds(self, cloud: FakeCloud, error: Any, kind: type[BaseException]) -> None:
        cloud.faults.add(Raise(error=error, message="the cloud is tired"))
        with pytest.raises(kind, match="tired") as caught:
            v2(cloud).instance_exists(node("n1"))
        assert type(caught.value) is kind

    def test_delays(self, cloud: FakeCloud) -> None:
        for fault, kind, delay in (
            (Raise(name="f", error="RetryError", retry_after=7), RetryError, 7),
            (Raise(name="f", error="Throttled"), Throttled, None),
            (Throttle(name="f", retry_after=0.5), Throttled, 0.5),
            (Throttle(name="f"), Throttled, None),
        ):
            cloud.faults.add(fault)
            with pytest.raises(kind) as caught:
                v2(cloud).instance_exists(node("n1"))
            assert getattr(caught.value, "retry_after") == delay  # noqa: B009 - of either class
        cloud.faults.add(ExpiredCredentials(name="f"))
        with pytest.raises(CredentialsExpired, match="expired"):
            v2(cloud).instance_exists(node("n1"))

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_before_nothing_and_after_everything_is_done(self, cloud: FakeCloud, when: Any) -> None:
        routes = cloud.routes()
        assert routes is not None
        from cloudprovider import Route

        cloud.faults.add(Raise(method="create_route", when=when, times=1))
        assert outcomes(lambda: routes.create_route("c", "h", Route("", "n1", "10.0.0.0/24")), 2) == "x."
        first, second = cloud.calls.log("create_route")
        assert (first.error, first.effect) == ("CloudProviderError", "created" if when == "after" else "")
        assert second.effect == ("unchanged" if when == "after" else "created")
        assert len(cloud.console.routes()) == 1

    def test_a_half_built_load_balancer_exists_and_is_completed(self, cloud: FakeCloud) -> None:
        balancer = cloud.load_balancer()
        assert balancer is not None
        cloud.faults.add(HalfBuilt(key="default/web", times=2))
        balancer.ensure_load_balancer("c", service("other"), nodes("n1"))
        for _ in range(2):
            with pytest.raises(CloudProviderError):
                balancer.ensure_load_balancer("c", service(), nodes("n1"))
        (_, half) = sorted(cloud.console.load_balancers(), key=lambda one: one.service)
        assert (half.state, half.ingress, half.backends) == (LoadBalancerState.HALF_BUILT, (), ())
        status = balancer.get_load_balancer("c", service())
        assert status is not None
        assert not status.ingress
        assert balancer.ensure_load_balancer("c", service(), nodes("n1")).ingress
        log = cloud.calls.log("ensure*", key="default/web")
        assert [call.effect for call in log] == ["created", "", "updated"]
        cloud.faults.add(HalfBuilt())
        with pytest.raises(CloudProviderError):
            balancer.ensure_load_balancer("c", service(), nodes("n2"))
        whole = cloud.console.load_balancer(half.name)
        assert (whole.state, whole.backends) == (LoadBalancerState.ACTIVE, ("fake://i-n1",)), "it is not torn down"
        balancer.ensure_load_balancer_deleted("c", service())
        with pytest.raises(CloudProviderError):
            balancer.ensure_load_balancer("c", service(), nodes("n2"))
        balancer.ensure_load_balancer_deleted("c", service())
        assert len(cloud.console.load_balancers()) == 1, "a half-built one can be deleted"


class TestBatches:
    def test_a_key_costs_only_its_name(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Throttle(method="instances_state", key="n[12]", retry_after=3))
        answers = states(cloud)
        struck = {name for name, answer in answers.items() if isinstance(answer, Throttled)}
        assert struck == {"n1", "n2"}
        assert set(answers) == set(NAMES)
        assert cloud.calls.errors() == {}

    def test_a_call_fails_whole_for_one_poisonous_name(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Raise(method="instances_state", key="n1", scope="call"))
        with pytest.raises(CloudProviderError):
            states(cloud)
        assert states(cloud, "n2", "n3") == dict.fromkeys(("n2", "n3"), InstanceState.RUNNING)
        cloud.faults.add(Raise(name="all"))
        with pytest.raises(CloudProviderError):
            states(cloud, "n2")

    def test_an_exception_from_outside_the_contract_becomes_one_of_it(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Raise(error="RuntimeError", key="n1", message="boom"))
        answer = states(cloud)["n1"]
        assert type(answer) is CloudProviderError
        assert str(answer) == "boom"

    def test_times_count_names(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Raise(scope="key", times=3))
        assert sum(isinstance(answer, CloudProviderError) for answer in states(cloud).values()) == 3
        assert sum(isinstance(answer, CloudProviderError) for answer in states(cloud).values()) == 0

    def test_partial_answers(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Partial(name="f"))
        first = set(states(cloud))
        assert len(first) == 5
        assert set(states(cloud)) != first, "not always the same half"
        cloud.faults.add(Partial(name="f", drop=0.01))
        assert len(states(cloud)) == 9
        cloud.faults.add(Partial(name="f", key=("n1", "n2"), method="instances_metadata"))
        assert set(metadata(cloud)) == set(NAMES) - {"n1", "n2"}
        assert len(states(cloud)) == 10
        cloud.faults.add(Partial(name="f", times=1))
        assert [len(states(cloud)), len(states(cloud))] == [5, 10]

    def test_the_first_fault_that_fails_a_name_decides(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Raise(key="n1", message="first"))
        cloud.faults.add(Raise(key="n1", message="second"))
        assert str(states(cloud)["n1"]) == "first"


class TestNotFound:
    def test_every_question_has_its_own_way_to_say_it(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Wrong(answer="not-found"))
        assert not v2(cloud).instance_exists(node("n1"))
        for ask in (v2(cloud).instance_metadata, v2(cloud).instance_shutdown):
            with pytest.raises(InstanceNotFound):
                ask(node("n1"))
        assert set(states(cloud).values()) == {InstanceState.GONE}
        assert all(isinstance(answer, InstanceNotFound) for answer in metadata(cloud).values())
        instances, zones, routes = cloud.instances(), cloud.zones(), cloud.routes()
        balancer, labeler, clusters = cloud.load_balancer(), cloud.pv_labeler(), cloud.clusters()
        assert instances and zones and routes and balancer and labeler and clusters  # noqa: PT018 - all are there
        assert not instances.instance_exists_by_provider_id("fake://i-n1")
        with pytest.raises(InstanceNotFound):
            instances.instance_type("n1")
        with pytest.raises(InstanceNotFound):
            zones.get_zone_by_node_name("n1")
        with pytest.raises(DiskNotFound):
            labeler.get_labels_for_volume(volume("v"))
        with pytest.raises(CloudProviderError):
            clusters.master("c")
        assert balancer.ensure_load_balancer("c", service(), []).ingress, "it is no question"
        assert balancer.get_load_balancer("c", service()) is None
        assert routes.list_routes("c") == ()
        assert clusters.list_clusters() == ()

    def test_in_a_batch_only_the_matching_names(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Wrong(answer="not-found", key="n3"))
        gone = {name for name, state in states(cloud).items() if state is InstanceState.GONE}
        assert gone == {"n3"}
        cloud.faults.clear()
        cloud.faults.add(Wrong(answer="not-found", key="n3", scope="call"))
        assert set(states(cloud).values()) == {InstanceState.GONE}


class TestStale:
    def test_what_was_true_before_the_last_change(self, cloud: FakeCloud) -> None:
        cloud.console.add_instance("new")
        cloud.console.remove_instance("n1")
        cloud.console.set_shutdown("n2")
        balancer = cloud.load_balancer()
        assert balancer is not None
        balancer.ensure_load_balancer("c", service(), [])
        cloud.faults.add(Wrong(answer="stale"))
        assert not v2(cloud).instance_exists(node("new"))
        assert v2(cloud).instance_exists(node("n1", "fake://i-n1"))
        found = states(cloud, "new", "n1", "n2", "n3")
        assert isinstance(found.pop("new"), InstanceNotFound)  # type: ignore[attr-defined]
        assert set(found.values()) == {InstanceState.RUNNING}
        assert balancer.get_load_balancer("c", service()) is None, "create, then get: not there"
        assert balancer.ensure_load_balancer("c", service(), []).ingress
        assert len(cloud.console.load_balancers()) == 1

    def test_only_of_young_changes(self, cloud: FakeCloud, clock: FakeClock) -> None:
        cloud.console.remove_instance("n1")
        clock.advance(3)
        cloud.console.remove_instance("n2")
        cloud.faults.add(Wrong(answer="stale", age=2))
        assert not v2(cloud).instance_exists(node("n1"))
        assert v2(cloud).instance_exists(node("n2"))
        clock.advance(3)
        assert not v2(cloud).instance_exists(node("n2"))


def questions(cloud: FakeCloud) -> dict[str, Callable[[], Any]]:
    """A call of each method that answers something."""
    instances, zones, routes = cloud.instances(), cloud.zones(), cloud.routes()
    balancer, labeler, clusters = cloud.load_balancer(), cloud.pv_labeler(), cloud.clusters()
    chosen = cloud.pod_cidrs()
    assert instances and zones and routes and balancer and labeler and clusters and chosen  # noqa: PT018 - all are there
    asked, local = node("n1"), cloud.local_instance()
    assert local is not None
    return {
        "instance_exists": lambda: v2(cloud).instance_exists(asked),
        "instance_shutdown": lambda: v2(cloud).instance_shutdown(asked),
        "instance_metadata": lambda: v2(cloud).instance_metadata(asked),
        "instances_metadata": lambda: metadata(cloud),
        "instances_state": lambda: states(cloud),
        "node_addresses": lambda: instances.node_addresses("n1"),
        "node_addresses_by_provider_id": lambda: instances.node_addresses_by_provider_id("fake://i-n1"),
        "instance_id": lambda: instances.instance_id("n1"),
        "external_id": lambda: instances.external_id("n1"),
        "instance_type": lambda: instances.instance_type("n1"),
        "instance_type_by_provider_id": lambda: instances.instance_type_by_provider_id("fake://i-n1"),
        "current_node_name": lambda: instances.current_node_name("n1"),
        "instance_exists_by_provider_id": lambda: instances.instance_exists_by_provider_id("fake://i-n1"),
        "instance_shutdown_by_provider_id": lambda: instances.instance_shutdown_by_provider_id("fake://i-n1"),
        "get_zone": zones.get_zone,
        "get_zone_by_provider_id": lambda: zones.get_zone_by_provider_id("fake://i-n1"),
        "get_zone_by_node_name": lambda: zones.get_zone_by_node_name("n1"),
        "get_load_balancer": lambda: balancer.get_load_balancer("c", service()),
        "ensure_load_balancer": lambda: balancer.ensure_load_balancer("c", service(), nodes("n1")),
        "owned_load_balancers": lambda: balancer.owned_load_balancers("c"),  # type: ignore[attr-defined]
        "list_routes": lambda: routes.list_routes("c"),
        "pod_cidrs": lambda: chosen.pod_cidrs(nodes(*NAMES)),
        "get_labels_for_volume": lambda: labeler.get_labels_for_volume(volume("v")),
        "local_metadata": local.local_metadata,
        "local_node_name": lambda: local.local_node_name("n1"),
        "list_clusters": clusters.list_clusters,
        "master": lambda: clusters.master("c"),
    }


class TestJunk:
    def test_every_method_with_every_junk_that_fits_it(self, make_cloud: MakeCloud) -> None:
        """No junk equals the truth, every one comes out as an answer, and it is over when the fault is."""
        cloud = make_cloud(
            instances=[
                {"name": name, "addresses": {"InternalIP": "10.0.0.1"}, "pod_cidrs": [f"10.244.{number}.0/24"]}
                for number, name in enumerate(NAMES)
            ],
            capabilities=CAPABILITIES,
            clusters=[{"name": "c", "master": "m"}],
            volumes=[{"id": "v", "zones": ["z"]}],
            zone="z",
            machine="n1",
            routes={"existing": [{"name": "r", "destination_cidr": "10.0.0.0/8"}]},
        )
        asked = questions(cloud)
        answering = {name for name, method in METHODS.items() if method.returns is not Returns.NOTHING}
        assert set(asked) == answering - {"get_load_balancer_name", "load_balancer_revision"}
        asked["ensure_load_balancer"]()
        for name, ask in asked.items():
            truth = ask()
            for junk in fitting_junk(METHODS[name]):
                cloud.faults.add(Wrong(name="f", method=name, answer="junk", junk=junk))
                answer = ask()
                assert junk is Junk.MUTATED or answer != truth, f"{name}, {junk}"
                assert cloud.faults.struck("f") > 0
                cloud.faults.clear()
                same = ask()
                assert same == truth or METHODS[name].batch, f"{name} after {junk}"

    def test_metadata(self, cloud: FakeCloud) -> None:
        def junk(kind: Junk) -> Any:
            cloud.faults.add(Wrong(name="f", answer="junk", junk=kind))
            return v2(cloud).instance_metadata(node("n1"))

        true = v2(cloud).instance_metadata(node("n1"))
        assert junk(Junk.NONE) is None
        assert not isinstance(junk(Junk.TYPE), InstanceMetadata)
        assert junk(Junk.EMPTY) == InstanceMetadata()
        assert "://" not in junk(Junk.PROVIDER_ID).provider_id
        assert junk(Junk.OTHER_PROVIDER_ID).provider_id.startswith("fake://")
        assert junk(Junk.OTHER_PROVIDER_ID).provider_id != true.provider_id
        assert "node.kubernetes.io/mine" in junk(Junk.LABELS).additional_labels
        assert " " in junk(Junk.PLACES).zone
        assert {address.type for address in junk(Junk.ADDRESSES).node_addresses} == {"InternalIP", "Satellite"}

    def test_batches(self, cloud: FakeCloud) -> None:
        def junk(kind: Junk, **more: Any) -> Any:
            cloud.faults.add(Wrong(name="f", answer="junk", junk=kind, **more))
            return states(cloud)

        assert junk(Junk.NONE, key="n1")["n1"] is None
        assert junk(Junk.NONE, key="n1")["n2"] is InstanceState.RUNNING
        assert isinstance(junk(Junk.ERRORS)["n1"], ValueError)
        assert set(junk(Junk.UNASKED)) == {*NAMES, "unasked-1", "unasked-2"}
        assert junk(Junk.UNASKED)["unasked-1"] is InstanceState.GONE
        assert set(junk(Junk.KEYS)) == {f"fake://{name}" for name in NAMES}
        batch = cloud.instances_batch()
        assert batch is not None
        assert batch.instances_state([node("n1", "fake://i-n1")]) == {"fake://i-n1": InstanceState.RUNNING}
        assert junk(Junk.NONE, scope="call") is None
        assert isinstance(junk(Junk.TYPE, scope="call"), list)
        assert states(cloud)
        cloud.faults.add(Wrong(name="f", answer="junk", junk=Junk.EMPTY, scope="call"))
        assert metadata(cloud) == {}

    def test_scribbling_on_arguments(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Wrong(answer="junk", junk=Junk.MUTATED))
        given, batch, balancer = node("n1"), cloud.instances_batch(), cloud.load_balancer()
        assert batch is not None
        assert balancer is not None
        assert v2(cloud).instance_exists(given)
        assert given.metadata is not None
        assert given.metadata.resource_version == "0"
        several = nodes("n1", "n2")
        batch.instances_state(several)
        web = service()
        balancer.ensure_load_balancer("c", web, several)
        for metadata in (*(one.metadata for one in several), web.metadata):
            assert metadata is not None
            assert metadata.labels == {"fake.example/scribbled": "true"}

    def test_a_kind_is_drawn_where_none_is_named(self, make_cloud: MakeCloud) -> None:
        def drawn(seed: int) -> list[Any]:
            cloud = make_cloud(seed=seed, instances=[{"name": name} for name in NAMES])
            cloud.faults.add(Wrong(name="f", answer="junk"))
            return list(metadata(cloud).values())

        first = drawn(5)
        assert repr(first) == repr(drawn(5))
        assert repr(first) != repr(drawn(6))

    def test_what_does_not_fit_leaves_the_truth(self, cloud: FakeCloud) -> None:
        cloud.faults.add(Wrong(answer="junk", junk=Junk.LABELS))
        assert v2(cloud).instance_exists(node("n1"))
        assert cloud.zones() is not None
        assert questions(cloud)["get_zone"]() == Zone("z", "")


def test_faults_of_the_configuration_are_there_from_the_beginning(make_both: MakeCloud) -> None:
    cloud = make_both(faults=[{"action": "throttle", "method": "initialize", "times": 1}])
    with pytest.raises(Throttled):
        cloud.initialize(None, None)  # type: ignore[arg-type]  # it looks at neither
    cloud.initialize(None, None)  # type: ignore[arg-type]
    assert cloud.calls.counts() == {"initialize": 2}
