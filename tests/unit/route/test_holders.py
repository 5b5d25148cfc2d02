"""Who had a route: found by range, and by overlap as `ipaddress` sees it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.ips import IPNetwork
from controllers.route.changes import Held
from controllers.route.table import Holders
from tests.unit.route.test_trust import RANGES

pytestmark = pytest.mark.row("R7")


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
