"""Load balancers: idempotent, with addresses that stay, and drift that only an ensure repairs; over
both stores."""

from __future__ import annotations

import pytest

from cloudprovider import CloudProviderError, InvalidService, LoadBalancer, LoadBalancerKept, QuotaExceeded
from cloudprovider.testing.fake import BadRequest, FakeCloud, Port
from cloudprovider.testing.fake.loadbalancers import ADOPT, KEEP
from tests.support.there import there
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import nodes, service

MACHINES = [{"name": "a"}, {"name": "b"}]


def balancer(cloud: FakeCloud) -> LoadBalancer:
    found = cloud.load_balancer()
    assert found is not None
    return found


@pytest.fixture
def cloud(make_cloud: MakeCloud) -> FakeCloud:
    return make_cloud(instances=MACHINES)


def addresses(status: object) -> list[str]:
    return [entry.ip for entry in getattr(status, "ingress", ())]


def test_an_ensure_follows_the_service_and_repairs_what_hands_changed(cloud: FakeCloud) -> None:
    balancer(cloud).ensure_load_balancer("c", service(), nodes("a"))
    (made,) = cloud.console.load_balancers()
    ports = [{"port": 443, "nodePort": 30443, "name": "tls"}, {"port": 53, "protocol": "UDP"}]
    changed = service(ports=ports, loadBalancerSourceRanges=["10.0.0.0/8"])
    balancer(cloud).ensure_load_balancer("c", changed, nodes("a"))
    (record,) = cloud.console.load_balancers()
    assert record.ports == (Port(443, 30443, "TCP", "tls"), Port(53, 0, "UDP", ""))
    assert record.source_ranges == ("10.0.0.0/8",)
    assert record.ingress == made.ingress
    assert record.changes == 1
    cloud.console.change_load_balancer(record.name, backends=["nobody"], ports=[])
    assert cloud.console.load_balancer(record.name).backends == ("nobody",)
    balancer(cloud).ensure_load_balancer("c", changed, nodes("a"))
    (repaired,) = cloud.console.load_balancers()
    assert (repaired.backends, repaired.ports) == (record.backends, record.ports)


@pytest.mark.row("S31")
def test_one_that_is_kept_stays_and_is_listed_as_kept_until_it_is_built_again(cloud: FakeCloud) -> None:
    keeping = service()
    there(keeping.metadata).annotations = {KEEP: "true"}
    balancer(cloud).ensure_load_balancer_deleted("c", keeping)  # there is none
    status = balancer(cloud).ensure_load_balancer("c", keeping, nodes("a"))
    for _ in range(2):
        with pytest.raises(LoadBalancerKept):
            balancer(cloud).ensure_load_balancer_deleted("c", keeping)
    assert balancer(cloud).get_load_balancer("c", keeping) == status
    assert cloud.console.load_balancers()[0].kept
    balancer(cloud).ensure_load_balancer("c", keeping, nodes("a"))
    assert not cloud.console.load_balancers()[0].kept


@pytest.mark.row("S31")
def test_with_its_address_alone_kept_nothing_answers_until_a_service_adopts_it(cloud: FakeCloud) -> None:
    keeping = service()
    there(keeping.metadata).annotations = {KEEP: "address"}
    status = balancer(cloud).ensure_load_balancer("c", keeping, nodes("a"))
    with pytest.raises(LoadBalancerKept, match=ADOPT):
        balancer(cloud).ensure_load_balancer_deleted("c", keeping)
    (kept,) = cloud.console.load_balancers()
    assert (kept.kept, kept.ports, kept.backends) == (True, (), ())
    taker = service("shop", uid="2")
    there(taker.metadata).annotations = {ADOPT: kept.name}
    assert balancer(cloud).ensure_load_balancer("c", taker, nodes("b")) == status
    (adopted,) = cloud.console.load_balancers()
    assert (adopted.kept, adopted.service_uid, adopted.backends) == (False, "2", ("fake://i-b",))
    # Its former Service, should it want a load balancer again, has no part in it any more.
    assert balancer(cloud).get_load_balancer("c", keeping) is None
    with pytest.raises(CloudProviderError, match="in use by Service default/shop"):
        balancer(cloud).ensure_load_balancer("c", keeping, nodes("a"))
    balancer(cloud).ensure_load_balancer_deleted("c", keeping)
    assert len(cloud.console.load_balancers()) == 1


def test_what_is_named_must_be_there(cloud: FakeCloud) -> None:
    taker = service()
    there(taker.metadata).annotations = {ADOPT: "nothing"}
    with pytest.raises(InvalidService, match="this cluster has no load balancer of it"):
        balancer(cloud).ensure_load_balancer("c", taker, nodes("a"))


class TestAddresses:
    def test_the_same_service_gets_the_same_address_in_every_cloud(self, make_cloud: MakeCloud) -> None:
        one, other = make_cloud(), make_cloud()
        for name in ("x", "web"):
            balancer(other).ensure_load_balancer("c", service(name, uid="1" if name == "web" else ""), [])
        first = balancer(one).ensure_load_balancer("c", service(uid="2"), [])
        assert balancer(other).get_load_balancer("c", service(uid="1")) == first

    def test_a_small_range_is_used_up_and_given_back(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(load_balancers={"ipv4": "192.0.2.0/29"})
        taken = [addresses(balancer(cloud).ensure_load_balancer("c", service(f"s{n}"), []))[0] for n in range(6)]
        assert sorted(taken) == [f"192.0.2.{n}" for n in range(1, 7)]
        with pytest.raises(QuotaExceeded):
            balancer(cloud).ensure_load_balancer("c", service("more"), [])
        assert len(cloud.console.load_balancers()) == 6, "nothing half-made is left"
        balancer(cloud).ensure_load_balancer_deleted("c", service("s3"))
        assert addresses(balancer(cloud).ensure_load_balancer("c", service("more"), [])) == [taken[3]]

    def test_families(self, cloud: FakeCloud) -> None:
        both = addresses(balancer(cloud).ensure_load_balancer("c", service(ipFamilies=["IPv6", "IPv4"]), []))
        assert both[0].startswith("2001:db8:1b::")
        assert both[1].startswith("192.0.2.")
        assert addresses(balancer(cloud).ensure_load_balancer("c", service(ipFamilies=["IPv4"]), [])) == both[1:]
        assert addresses(balancer(cloud).ensure_load_balancer("c", service(ipFamilies=["IPv4", "IPv6"]), [])) == [
            both[1],
            both[0],
        ]

    def test_an_address_that_is_asked_for(self, cloud: FakeCloud) -> None:
        asked = service(loadBalancerIP="192.0.2.77")
        for _ in range(2):
            assert addresses(balancer(cloud).ensure_load_balancer("c", asked, [])) == ["192.0.2.77"]
        with pytest.raises(BadRequest, match="taken"):
            balancer(cloud).ensure_load_balancer("c", service("other", loadBalancerIP="192.0.2.77"), [])
        for wrong in ("10.0.0.1", "192.0.2.x"):
            with pytest.raises(BadRequest, match="range"):
                balancer(cloud).ensure_load_balancer("c", service("other", loadBalancerIP=wrong), [])
