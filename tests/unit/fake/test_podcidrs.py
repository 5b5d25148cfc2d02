"""The pod CIDRs that the fake cloud chose: from the configuration, at the console, and refused batches."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cloudprovider import InstanceNotFound
from cloudprovider.testing.fake import FakeConfigError
from cloudprovider.testing.fake.errors import BadRequest
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import node, nodes


def test_ranges_are_chosen_by_the_configuration_and_at_the_console(make_both: MakeCloud) -> None:
    cloud = make_both(
        instances=[{"name": "a", "pod_cidrs": ["10.9.0.0/24", "fd00::/64"]}, {"name": "b"}],
        generate=[{"count": 300, "name": "n{i}", "pod_network": ["10.244.0.0/14", "fd00:10::/48"]}],
    )
    found = cloud.pod_cidrs()
    assert found is not None
    answer = found.pod_cidrs(nodes("a", "b", "n0", "n299", "never"))
    assert isinstance(answer.pop("never"), InstanceNotFound)  # type: ignore[attr-defined]
    assert answer == {
        "a": ("10.9.0.0/24", "fd00::/64"),
        "b": (),
        "n0": ("10.244.0.0/24", "fd00:10::/64"),
        "n299": ("10.245.43.0/24", "fd00:10:0:12b::/64"),
    }
    cloud.console.change_instance("b", pod_cidrs=["10.9.1.0/24"])
    assert found.pod_cidrs([node("other-name", "fake://i-b")]) == {"other-name": ("10.9.1.0/24",)}
    cloud.console.recreate_instance("a")
    assert found.pod_cidrs(nodes("a")) == {"a": ()}, "another machine: not chosen yet"


def test_too_many_at_once_are_refused(make_both: MakeCloud) -> None:
    found = make_both(max_batch=2).pod_cidrs()
    assert found is not None
    assert found.max_batch == 2
    with pytest.raises(BadRequest, match="3 nodes in a batch"):
        found.pod_cidrs(nodes("a", "b", "c"))


def test_a_network_that_is_too_small_and_ranges_with_host_bits_are_told(make_cloud: MakeCloud) -> None:
    with pytest.raises(FakeConfigError, match=r"pod_network: 10.244.0.0/23 has no /24 with the number 2"):
        make_cloud(generate=[{"count": 3, "pod_network": "10.244.0.0/23"}])
    with pytest.raises(ValidationError, match="host bits zero"):
        make_cloud().console.add_instance("a", pod_cidrs=["10.244.1.1/24"])
