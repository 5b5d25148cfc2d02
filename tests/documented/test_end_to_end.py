"""A vendor's end-to-end test, as docs/guides/providers.md shows it."""

from collections.abc import Iterator

import pytest

from cloudprovider import Interface
from cloudprovider.testing.fake import FakeCloud
from controllers.testing import Cluster, ManagerRun


@pytest.fixture
def provider() -> Iterator[Interface]:
    with FakeCloud() as cloud:  # your provider, over a simulator of your cloud
        cloud.console.add_instance("node-1", zone="north-1")
        yield cloud


def test_joins(cluster: Cluster, manager: ManagerRun) -> None:
    node = cluster.join("node-1")
    cluster.wait_until(lambda: node.is_initialized)
    assert node.provider_id == "fake://i-node-1"
    assert node.labels["topology.kubernetes.io/zone"] == "north-1"
