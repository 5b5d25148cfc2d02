"""CIDRSet and Allocations against a simple model: no range is given twice, whatever is taken,
freed and restarted."""

from __future__ import annotations

import time
import tracemalloc
from ipaddress import ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cloudprovider.ips import IPNetwork, is_inside
from controllers.nodeipam.allocations import Allocations
from controllers.nodeipam.cidr_set import CIDRSet

CLUSTER = ip_network("10.244.0.0/26")
SIZE = 29  # eight blocks
NAMES = [f"n{number}" for number in range(6)]
SERVICES = ip_network("10.244.0.56/30")


def net(text: str) -> IPNetwork:
    return ip_network(text)


def anything() -> st.SearchStrategy[IPNetwork]:
    """Ranges in, around and outside of the cluster CIDR, wider and narrower than a block."""
    return st.builds(
        lambda prefix, place: ip_network((int(CLUSTER.network_address) + place * 2, prefix), strict=False),
        st.sampled_from([24, 26, 27, 28, 29, 30, 32]),
        st.integers(-16, 48),
    )


class Model(RuleBasedStateMachine):
    """The cluster as it is: the nodes that exist, with UID and ranges; `Allocations` hears of
    it late or never."""

    def __init__(self) -> None:
        super().__init__()
        self.uids = 0
        self.nodes: dict[str, tuple[str, tuple[IPNetwork, ...]]] = {}
        self.restart()

    @rule()
    def restart(self) -> None:
        self.allocations = Allocations([CIDRSet(CLUSTER, SIZE)], [SERVICES])
        for name, (uid, ranges) in self.nodes.items():
            if ranges:
                self.allocations.saw(name, uid, ranges)

    @rule(name=st.sampled_from(NAMES), ranges=st.lists(anything(), max_size=1))
    def create(self, name: str, ranges: list[IPNetwork]) -> None:
        if name in self.nodes:
            return
        self.uids += 1
        self.nodes[name] = (f"u{self.uids}", tuple(ranges))
        if ranges:
            self.allocations.saw(name, f"u{self.uids}", tuple(ranges))

    @rule(name=st.sampled_from(NAMES), arrives=st.booleans(), told=st.booleans())
    def give(self, name: str, arrives: bool, told: bool) -> None:
        """A write may arrive or be lost, and so may its answer."""
        uid, ranges = self.nodes.get(name, ("", ()))
        if not uid or ranges:
            return
        free, before = self.free(), self.allocations.get(uid)
        usable = before is not None and not self.overlapping(name, before.ranges)
        found = self.allocations.give(name, uid)
        assert (found is None) == (not free and not usable)
        if found is None:
            return
        assert found[0].prefixlen == SIZE
        assert found[0].subnet_of(CLUSTER)  # type: ignore[arg-type]
        assert self.allocations.give(name, uid) == found, "the same again"
        assert not self.overlapping(name, found)
        if arrives:
            self.nodes[name] = (uid, found)
            if told:
                assert self.allocations.saw(name, uid, found) == ()

    @rule(name=st.sampled_from(NAMES))
    def late_write(self, name: str) -> None:
        """The write of something that the node was given before arrives after all."""
        uid, ranges = self.nodes.get(name, ("", ()))
        held = self.allocations.get(uid) if uid and not ranges else None
        if held is not None and held.doubted:
            self.nodes[name] = (uid, held.doubted[:1])
            self.allocations.saw(name, uid, held.doubted[:1])

    @rule(name=st.sampled_from(NAMES), theirs=anything())
    def another_writes(self, name: str, theirs: IPNetwork) -> None:
        uid, ranges = self.nodes.get(name, ("", ()))
        if uid and not ranges:
            self.nodes[name] = (uid, (theirs,))
            self.allocations.saw(name, uid, (theirs,))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        uid, _ = self.nodes.pop(name)
        self.allocations.release(uid)

    def overlapping(self, name: str, ranges: tuple[IPNetwork, ...]) -> bool:
        """Whether another node has something of these ranges."""
        theirs = [one for other, (_, nets) in self.nodes.items() if other != name for one in nets]
        return any(mine.overlaps(one) for mine in ranges for one in theirs)

    def free(self) -> set[IPNetwork]:
        held = [
            SERVICES,
            *(one for name in self.allocations.names() for h in self.allocations.named(name) for one in h.kept),
        ]
        return {block for block in CLUSTER.subnets(new_prefix=SIZE) if not any(block.overlaps(one) for one in held)}

    @invariant()
    def counts_are_true(self) -> None:
        [pool] = self.allocations.pools
        assert pool.free == len(self.free())
        assert pool.used == pool.capacity - pool.free

    @invariant()
    def what_nodes_have_is_held(self) -> None:
        for uid, ranges in self.nodes.values():
            held = self.allocations.get(uid)
            assert not ranges or (held is not None and held.ranges == ranges)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(st.lists(anything(), max_size=8), st.data())
def test_taken_and_given_back_in_any_order_is_as_new(ranges: list[IPNetwork], data: st.DataObject) -> None:
    pool = CIDRSet(CLUSTER, SIZE)
    for one in ranges:
        pool.take(one)
    covered = [b for b in CLUSTER.subnets(new_prefix=SIZE) if any(b.overlaps(one) for one in ranges)]
    assert pool.used == len(covered)
    for one in data.draw(st.permutations(ranges)):
        pool.give_back(one)
    assert pool.used == 0
    assert pool.find() is not None


def test_the_search_goes_on_where_it_ended_and_comes_back_last_to_what_was_freed() -> None:
    allocations = Allocations([CIDRSet(net("10.0.0.0/24"), 26)])
    given = [allocations.give(f"n{number}", f"u{number}") for number in range(4)]
    assert [str(one[0]) for one in given if one] == ["10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26", "10.0.0.192/26"]
    assert allocations.give("n4", "u4") is None
    allocations.release("u2")
    allocations.release("u0")
    again = [allocations.give("n5", "u5"), allocations.give("n6", "u6")]
    assert again == [(net("10.0.0.128/26"),), (net("10.0.0.0/26"),)]


def test_both_families_or_none() -> None:
    allocations = Allocations([CIDRSet(net("10.0.0.0/24"), 25), CIDRSet(net("fd00::/63"), 64)], [net("fd00::/64")])
    assert allocations.give("a", "a") == (net("10.0.0.0/25"), net("fd00:0:0:1::/64"))
    assert allocations.give("b", "b") is None
    assert allocations.pools[0].free == 1, "nothing was kept of it"


def test_ranges_of_a_family_are_used_one_after_the_other_and_the_first_range_says_which_family_is_first() -> None:
    ranges = [("fd00::/63", 64), ("10.0.0.0/25", 26), ("10.8.0.0/25", 26), ("fd01::/62", 64)]
    allocations = Allocations([CIDRSet(net(text), size) for text, size in ranges])
    given = [allocations.give(f"n{number}", f"u{number}") for number in range(5)]
    assert [tuple(str(each) for each in one or ()) for one in given] == [
        ("fd00::/64", "10.0.0.0/26"),
        ("fd00:0:0:1::/64", "10.0.0.64/26"),
        ("fd01::/64", "10.8.0.0/26"),
        ("fd01:0:0:1::/64", "10.8.0.64/26"),
        (),
    ]
    assert [str(pool.cluster) for pool in allocations.exhausted()] == ["10.0.0.0/25", "10.8.0.0/25"]
    assert allocations.room() == 0
    assert allocations.lacked((net("10.8.0.0/26"),)) == [6]
    assert allocations.too_wide((net("10.0.0.0/12"),)) == "10.0.0.0/12 takes 4 blocks"
    allocations.release("u0")
    assert allocations.room() == 1
    assert allocations.exhausted() == []
    assert allocations.give("n4", "u4") == (net("fd00::/64"), net("10.0.0.0/26")), "the first ranges have room again"


def _sets(places: list[int]) -> list[CIDRSet]:
    """Ranges of both families, in any order, each with one to eight blocks."""
    found = []
    for place in places:
        bits = place % 4
        if place % 2:
            found.append(CIDRSet(ip_network((0x0A000000 + (place << 10), 29 - bits)), 29))
        else:
            found.append(CIDRSet(ip_network(((0xFD << 120) + (place << 68), 64 - bits)), 64))
    return found


@given(st.data())
@settings(deadline=None)
def test_over_restarts_with_other_ranges_no_range_is_given_twice_and_none_outside(data: st.DataObject) -> None:
    """Between two leaders ranges are added, left out, and put in another order."""
    lists = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True)
    nodes: dict[str, tuple[IPNetwork, ...]] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        sets = _sets(data.draw(lists))
        allocations = Allocations(sets)
        clusters = [pool.cluster for pool in sets]
        for uid, ranges in nodes.items():
            assert allocations.saw(uid, uid, ranges) == ()
        for _ in range(data.draw(st.integers(0, 12))):
            if gone := data.draw(st.sampled_from(["", *nodes])):
                allocations.release(gone)
                del nodes[gone]
            room, uid = allocations.room(), f"u{data.draw(st.integers(0, 99))}"
            if uid in nodes:
                continue
            before = [pool.free for pool in sets]
            found = allocations.give(uid, uid)
            assert (found is None) == (room == 0)
            if found is None:
                assert allocations.exhausted()
                continue
            families = list(dict.fromkeys(one.version for one in clusters))
            assert [one.version for one in found] == families
            for one in found:
                [home] = [place for place, cluster in enumerate(clusters) if is_inside(one, (cluster,))]
                assert all(
                    free == 0 or cluster.version != one.version
                    for free, cluster in zip(before[:home], clusters[:home], strict=True)
                ), "a range before it had room"
            assert not any(mine.overlaps(theirs) for mine in found for had in nodes.values() for theirs in had)
            nodes[uid] = found


def test_overlaps_are_told_by_name_and_each_holder_keeps_the_block() -> None:
    allocations = Allocations([CIDRSet(net("10.0.0.0/24"), 26)])
    assert allocations.saw("a", "ua", (net("10.0.0.0/25"),)) == ()
    assert allocations.saw("b", "ub", (net("10.0.0.64/26"),)) == ("a",)
    assert allocations.saw("c", "uc", (net("10.0.0.0/24"),)) == ("a", "b")
    assert allocations.saw("x", "ux", (net("192.168.0.0/16"),)) == ()
    assert allocations.claim("d", "ud", (net("192.168.7.0/24"),)) == ("x",)
    assert allocations.get("ud") is None
    allocations.release("uc")
    assert allocations.pools[0].free == 2
    allocations.release("ua")
    assert allocations.pools[0].free == 3


def test_a_range_that_somebody_else_put_onto_another_node_is_given_anew_and_stays_kept() -> None:
    allocations = Allocations([CIDRSet(net("10.0.0.0/24"), 26)])
    assert allocations.give("a", "ua") == (net("10.0.0.0/26"),)
    assert allocations.saw("b", "ub", (net("10.0.0.0/26"),)) == ("a",)
    assert allocations.give("a", "ua") == (net("10.0.0.64/26"),)
    allocations.release("ub")
    assert allocations.give("c", "uc") == (net("10.0.0.128/26"),)
    assert allocations.give("d", "ud") == (net("10.0.0.192/26"),)
    assert allocations.give("e", "ue") is None, "a's first write may still arrive"
    allocations.saw("a", "ua", (net("10.0.0.64/26"),))
    assert allocations.give("e", "ue") == (net("10.0.0.0/26"),)


def test_what_a_cloud_chose_before_stays_kept_while_its_write_may_arrive() -> None:
    allocations = Allocations([])
    assert allocations.claim("a", "ua", (net("10.0.0.0/24"),)) == ()
    assert allocations.claim("a", "ua", (net("10.0.1.0/24"),)) == ()
    assert allocations.claim("b", "ub", (net("10.0.0.0/24"),)) == ("a",)
    allocations.saw("a", "ua", (net("10.0.1.0/24"),))
    assert allocations.claim("b", "ub", (net("10.0.0.0/24"),)) == ()


def test_a_claim_replaces_what_was_never_written_and_nothing_else() -> None:
    allocations = Allocations([])
    assert allocations.claim("a", "ua", (net("10.0.0.0/24"),)) == ()
    assert allocations.claim("a", "ua", (net("10.0.1.0/24"),)) == ()
    allocations.saw("a", "ua", (net("10.0.1.0/24"),))
    assert allocations.claim("a", "ua", (net("10.0.2.0/24"),)) == ()
    held = allocations.get("ua")
    assert held is not None
    assert held.ranges == (net("10.0.1.0/24"),)
    assert not allocations.release("never")


def test_memory_and_time_grow_with_nodes_and_not_with_addresses() -> None:
    """A /64 of IPv6, with a range of 2 to the power of 48 blocks, and 5,000 nodes."""
    tracemalloc.start()
    began = time.thread_time()
    allocations = Allocations([CIDRSet(net("fd00::/64"), 112)], [net("fd00::/80")])
    for number in range(5000):
        assert allocations.give(f"node-{number}", f"uid-{number}") is not None
    spent = time.thread_time() - began
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert allocations.pools[0].capacity == 2**48
    assert allocations.pools[0].used == 2**32 + 5000
    assert size < 20e6
    assert spent < 10


@pytest.mark.parametrize("size", [15, 33])
def test_a_mask_size_that_does_not_fit_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        CIDRSet(net("10.244.0.0/16"), size)
