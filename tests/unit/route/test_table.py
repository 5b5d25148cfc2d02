"""What is known of the routes, and how a listing and our own writes combine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import Route
from cloudprovider.ips import IPNetwork
from controllers.route.changes import Entry, Held, State, network
from controllers.route.table import Holders, RouteTable
from tests.support.clock import FakeClock
from tests.unit.route.objects import route
from tests.unit.route.test_trust import RANGES

NET = network("10.244.1.0/24")


class Desk:
    def __init__(self, *routes: Route) -> None:
        self.clock = FakeClock()
        self.table = RouteTable(self.clock)
        self.list(routes)

    def list(self, routes: Sequence[Route], began_before: float = 0.0) -> None:
        self.clock.advance(1)
        self.table.install(routes, self.clock.monotonic() - began_before)

    def create(self, made: Route) -> None:
        with self.table.claim(NET) as mine:
            assert mine
            self.table.writing(NET)
            self.table.created(NET, made)


def test_a_listing_that_began_before_our_write_does_not_undo_it() -> None:
    desk = Desk()
    desk.create(route(str(NET), "n1"))
    desk.list([], began_before=5)
    assert [entry.state for entry in desk.table.at(NET)] == [State.CREATED]
    desk.list([])
    assert desk.table.at(NET) == ()
    assert desk.table.destinations_of("n1") == []


def test_a_listing_that_began_before_our_deletion_does_not_bring_it_back() -> None:
    old = route(str(NET), "n1")
    desk = Desk(old)
    with desk.table.claim(NET):
        desk.table.writing(NET)
        desk.table.deleted(NET, desk.table.at(NET)[0])
    desk.list([old], began_before=5)
    assert desk.table.at(NET) == ()
    desk.list([old])
    assert desk.table.at(NET) == (Entry(old),)


def test_a_write_under_way_is_newer_than_any_listing() -> None:
    desk = Desk()
    with desk.table.claim(NET):
        desk.table.writing(NET)
        desk.list([route(str(NET), "stale")])
        assert desk.table.at(NET) == ()
        desk.table.created(NET, route(str(NET), "n1"))
    assert desk.table.destinations_of("n1") == [NET]


@pytest.mark.row("R13")
@pytest.mark.parametrize("done", [True, False])
def test_a_listing_taken_in_during_a_deletion_does_not_undo_it(done: bool) -> None:
    """What is deleted is known by what it is: the listing brings equal, other objects."""
    old, beside = route(str(NET), blackhole=True, name="old"), route(str(NET), "n1", name="beside")
    desk = Desk(old, beside)
    entry, kept = desk.table.at(NET)
    with desk.table.claim(NET):
        desk.table.writing(NET)
        desk.list([old, beside])
        if done:
            desk.table.deleted(NET, entry)
        else:
            desk.table.doubt(NET, entry)
    assert desk.table.at(NET) == ((kept,) if done else (Entry(old, State.DOUBTFUL), kept))


@pytest.mark.row("R13")
def test_a_listing_leaves_what_is_being_written_as_it_is() -> None:
    desk = Desk(route(str(NET), "n1"))
    before = desk.table.at(NET)
    with desk.table.claim(NET):
        desk.table.writing(NET)
        desk.list([route(str(NET), "n2")])
        assert desk.table.at(NET)[0] is before[0]
    assert desk.table.destinations_of("n2") == []


def test_one_claim_at_a_time() -> None:
    desk = Desk()
    with desk.table.claim(NET) as first:
        with desk.table.claim(NET) as second:
            assert (first, second) == (True, False)
        with desk.table.claim(NET) as third:
            assert not third  # the second one's end is not the first one's
    with desk.table.claim(NET) as fourth:
        assert fourth


def test_what_is_no_range_is_not_known() -> None:
    assert Desk(route("nonsense", "n1")).table.all() == []


TARGETS = st.sampled_from(["", "a", "b"])


@given(st.lists(st.tuples(st.integers(0, 2), TARGETS), max_size=8), st.lists(st.integers(0, 7), max_size=8))
def test_the_index_by_target_is_the_tables_own(routes: list[tuple[int, str]], deletions: list[int]) -> None:
    listed = [route(f"10.244.{net}.0/24", target, name=str(n)) for n, (net, target) in enumerate(routes)]
    table = Desk(*listed).table
    for place in deletions:
        known = table.all()
        if known:
            net, entry = known[place % len(known)]
            if place % 2:
                table.deleted(net, entry)
            else:
                table.doubt(net, entry)
    for target in ("a", "b"):
        expected = {net for net, entry in table.all() if entry.route.target_node == target}
        assert set(table.destinations_of(target)) == expected


@pytest.mark.row("R7")
@given(st.dictionaries(RANGES, st.sampled_from(["a", "b"]), max_size=12), RANGES, st.data())
def test_exactly_the_others_that_overlap_are_found(
    kept: dict[IPNetwork, str], net: IPNetwork, data: st.DataObject
) -> None:
    holders = Holders()
    for one, name in kept.items():
        holders.put(one, Held("former"))
        holders.put(one, Held(name))
    dropped = data.draw(st.sets(st.sampled_from(sorted(kept, key=str)))) if kept else set()
    for one in [*dropped, *dropped]:
        holders.drop(one)
        kept.pop(one, None)
        assert holders.get(one) is None
    assert {one: held.name for one, held in holders.items()} == kept
    assert holders.get(net) == (Held(kept[net]) if net in kept else None)
    expected = {
        (one, name) for one, name in kept.items() if one != net and one.version == net.version and one.overlaps(net)
    }
    assert {(one, held.name) for one, held in holders.overlapping(net)} == expected
