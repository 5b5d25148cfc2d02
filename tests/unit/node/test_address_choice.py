"""Which addresses the operator leaves out, and which family comes first: by flag, for any cloud."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider.helpers import AddressChoice, parse_network
from cloudprovider.wellknown import ANNOTATION_PROVIDED_NODE_IP
from controllers.node.addresses import AddressesExcluded, NoIPAddress
from controllers.node.registration import CloudNodeOptions
from tests.unit.node.test_addresses import EX, EX6, IN, IN6, NAME, Pair, joined, of, refreshed
from tests.unit.node.world import PERIOD, World

DNS = ("InternalDNS", "n1.example")
VIP = ("InternalIP", "10.0.0.9")
BOTH = (IN, IN6, EX, NAME)


def choice(families: str = "", exclude: Sequence[str] = ()) -> AddressChoice:
    return AddressChoice(tuple(filter(None, families.split(","))), tuple(map(parse_network, exclude)))


def chosen(wanted: AddressChoice, *offered: Pair) -> list[Pair]:
    addresses = [V1NodeAddress(type=kind, address=value) for kind, value in offered]
    return [(one.type, one.address) for one in wanted.of(addresses)]


@pytest.mark.parametrize(
    ("wanted", "result"),
    [
        (choice(), [IN, EX, IN6, NAME, EX6, DNS]),
        (choice("ipv4"), [IN, EX, NAME, DNS]),
        (choice("ipv6"), [IN6, NAME, EX6, DNS]),
        (choice("ipv4,ipv6"), [IN, EX, IN6, NAME, EX6, DNS]),
        (choice("ipv6,ipv4"), [IN6, EX6, IN, NAME, EX, DNS]),
        (choice(exclude=["10.0.0.0/8", "2001:db8::/32"]), [EX, IN6, NAME, DNS]),
        (choice("ipv6", ["fd00::1/128"]), [NAME, EX6, DNS]),
    ],
    ids=str,
)
def test_families_are_ordered_and_ranges_are_left_out(wanted: AddressChoice, result: list[Pair]) -> None:
    assert chosen(wanted, IN, EX, IN6, NAME, EX6, DNS) == result


_OFFERED = st.lists(st.sampled_from([IN, IN6, VIP, EX, EX6, NAME, DNS, ("Hostname", "10.0.0.1")]), max_size=8)
_CHOICES = st.builds(
    choice,
    st.sampled_from(["", "ipv4", "ipv6", "ipv4,ipv6", "ipv6,ipv4"]),
    st.lists(st.sampled_from(["10.0.0.9/32", "10.0.0.0/8", "2001:db8::/32", "::/0", "0.0.0.0/0"]), max_size=2),
)


@given(wanted=_CHOICES, offered=_OFFERED)
def test_the_choice_only_leaves_out_and_orders_within_a_type(wanted: AddressChoice, offered: list[Pair]) -> None:
    result = chosen(wanted, *offered)
    assert chosen(wanted, *result) == result, "twice changes nothing more"
    taken = [one for one in offered if wanted.takes(V1NodeAddress(type=one[0], address=one[1]))]
    assert sorted(result) == sorted(taken)
    assert [kind for kind, _ in result] == [kind for kind, _ in taken], "types keep their places"
    assert [one for one in result if not one[0].endswith("IP")] == [one for one in offered if not one[0].endswith("IP")]
    if not wanted.families and not wanted.exclude:
        assert result == offered
    for kind in ("InternalIP", "ExternalIP"):
        versions = ["ipv6" if ":" in address else "ipv4" for one, address in result if one == kind]
        if wanted.families:
            assert versions == sorted(versions, key=wanted.families.index)


@given(offered=_OFFERED, wanted=_CHOICES, current=_OFFERED)
def test_a_second_refresh_writes_nothing_more(offered: list[Pair], wanted: AddressChoice, current: list[Pair]) -> None:
    world = World(choice=wanted)
    world.cloud.says["n1"] = of(*dict.fromkeys(offered))
    world.create(taints=[], providerID="fake://i-1")
    world.edit(addresses=[{"type": kind, "address": value} for kind, value in dict.fromkeys(current)])
    before = world.addresses()
    had_ip = any(kind.endswith("IP") for kind, _ in before)

    def refresh() -> None:
        world.clock.advance(PERIOD)
        try:
            world.reconciler.refresh("n1", world.answer())
        except AddressesExcluded:
            assert world.addresses() == before, "never wiped"
        except NoIPAddress:
            assert not had_ip

    for _ in range(3):  # a type that is missing is believed the second time
        refresh()
    settled = world.addresses()
    assert any(kind.endswith("IP") for kind, _ in settled) or not had_ip
    written = len(world.server.applied)
    refresh()
    assert world.addresses() == settled
    assert len(world.server.applied) == written


def test_a_flag_reaches_a_node_that_is_there_at_the_first_comparison() -> None:
    world = joined(*BOTH)
    world.choice = choice("ipv6,ipv4", ["192.0.2.0/24"])
    world.restart()
    world.work()
    assert world.addresses() == [IN6, IN, NAME]
    assert "AddressesMissing" not in world.recorder.reasons(), "the operator left it out, not the cloud"
    written = len(world.server.applied)
    world.pass_time(3 * PERIOD, step=PERIOD)
    assert len(world.server.applied) == written


@pytest.mark.row("N33")
def test_a_cloud_that_shuffles_causes_no_write_and_families_stay_ordered() -> None:
    world = joined(*BOTH, world=World())
    world.choice = choice("ipv6,ipv4")
    world.restart()
    world.work()
    written = len(world.server.applied)
    for answer in ((VIP, IN6, IN, EX, NAME), (IN, VIP, EX, IN6, NAME)) * 2:
        ours = refreshed(world, *answer)
        assert ours[0] == IN6
    assert len(world.server.applied) == written + 1, "the first answer brought a new address"


def test_half_an_answer_keeps_nothing_that_is_left_out() -> None:
    world = joined(IN, EX, EX6, NAME)
    world.choice = choice("ipv4")
    world.restart()
    assert refreshed(world, IN, NAME) == [IN, EX, NAME]
    assert refreshed(world, IN, NAME) == [IN, NAME]


def test_nothing_is_left_a_new_node_stays_tainted_and_an_old_one_keeps_what_it_has() -> None:
    world = World(choice=choice(exclude=["10.0.0.0/8"]))
    world.cloud.says["n1"] = of(IN, NAME)
    world.create()
    with pytest.raises(AddressesExcluded, match=r"--node-address-exclude=10\.0\.0\.0/8 leaves out every IP"):
        world.work()
    world.clock.advance(3600)
    with pytest.raises(AddressesExcluded):  # not opened after two minutes, as a node without an IP is
        world.reconciler.initialize("n1", world.answer())
    assert world.tainted()

    world = joined(*BOTH)
    world.choice = choice("ipv6", ["fd00::/8"])
    world.restart()
    with pytest.raises(AddressesExcluded, match="Correct the flag"):
        world.work()
    assert world.addresses() == list(BOTH)


def test_an_address_that_the_kubelet_asks_for_may_not_be_left_out() -> None:
    world = World(choice=choice("ipv6"))
    world.cloud.says["n1"] = of(*BOTH)
    world.create(annotations={ANNOTATION_PROVIDED_NODE_IP: "10.0.0.1"})
    with pytest.raises(AddressesExcluded, match=r"--node-ip=10\.0\.0\.1 asks for InternalIP 10\.0\.0\.1"):
        world.work()
    assert world.tainted()
    world.choice = choice("ipv4")
    world.restart()
    world.work()
    assert world.addresses() == [IN, EX, NAME]


def test_the_order_of_the_kubelets_own_addresses_is_the_kubelets() -> None:
    world = World(choice=choice("ipv6,ipv4"))
    world.cloud.says["n1"] = of(VIP, IN, IN6, EX, EX6, NAME)
    world.create(annotations={ANNOTATION_PROVIDED_NODE_IP: "10.0.0.1,fd00::1"})
    world.work()
    assert world.addresses() == [IN, IN6, EX6, EX, NAME]


def test_an_address_that_is_left_out_still_proves_which_instance_a_node_is() -> None:
    world = World(choice=choice("ipv6"))
    world.cloud.says["n1"] = of(*BOTH)
    world.create(taints=[])
    world.edit(addresses=[{"type": "InternalIP", "address": "10.0.0.1"}])
    world.pass_time(PERIOD, step=PERIOD)
    assert world.server.nodes["n1"]["spec"]["providerID"] == "fake://i-1"
    assert world.addresses() == [IN6, NAME]


def test_a_family_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="names a family twice"):
        CloudNodeOptions(node_address_families=("ipv4", "ipv4"))
    with pytest.raises(ValueError, match="must be ipv4 or ipv6"):
        CloudNodeOptions(node_address_families=("ipv5",))
