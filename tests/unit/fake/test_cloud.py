"""The provider as a whole: capabilities, and the registry's factory."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudprovider import CloudConfig, InstanceNotFound, ProviderFactoryError
from cloudprovider.loading.registry import get_cloud_provider
from cloudprovider.testing import fake
from cloudprovider.testing.fake import FakeCloud, FakeCloudClosed, new_provider
from cloudprovider.testing.fake.config import CAPABILITIES
from cloudprovider.testing.fake.methods import METHODS
from tests.support.there import there
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import node, nodes

NO_QUESTIONS = {"get_load_balancer_name", "load_balancer_revision", "depends_on", "target_traits", "check_service",
                "delete_owned_load_balancer"}  # fmt: skip
EXTENDING = {"owned_load_balancers", "ssh_keys"}  # offered by an object with another capability


class TestCapabilities:
    def test_each_can_be_switched_off(self, make_cloud: MakeCloud) -> None:
        accessors = set(CAPABILITIES) - EXTENDING
        everything = make_cloud(capabilities=CAPABILITIES)
        assert all(getattr(everything, name)() is not None for name in accessors)
        for off in accessors:
            cloud = make_cloud(capabilities=[name for name in CAPABILITIES if name != off])
            assert {name for name in accessors if getattr(cloud, name)() is None} == {off}

    def test_the_table_of_methods_is_the_contracts(self, make_cloud: MakeCloud) -> None:
        """Every public method of every capability passes the gate by its name, or says why not."""
        cloud = make_cloud(capabilities=CAPABILITIES)
        for name in set(CAPABILITIES) - EXTENDING:
            public = {
                method for method in dir(getattr(cloud, name)()) if not method.startswith("_") and method != "max_batch"
            }
            assert public - METHODS.keys() <= (NO_QUESTIONS if name == "load_balancer" else set())

    def test_names_and_flags(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(provider="acme", has_cluster_id=False, instances=[{"name": "a"}])
        assert cloud.provider_name() == "acme"
        assert cloud.provider_id_prefixes() == ("acme://",)
        assert not cloud.has_cluster_id()
        v2 = there(cloud.instances_v2())
        assert v2.instance_metadata(node("a")).provider_id == "acme://i-a"
        usual = make_cloud()
        assert usual.has_cluster_id()
        assert usual.instances_batch() is not None
        assert usual.instances() is None, "the older ones are asked for"


class TestFactory:
    def test_the_registry_finds_it(self, tmp_path: Path) -> None:
        path = tmp_path / "cloud.yaml"
        path.write_text("instances: [{name: a}]\n")
        cloud = get_cloud_provider("fake", CloudConfig.read(path))
        assert isinstance(cloud, FakeCloud)
        assert [one.name for one in cloud.console.instances()] == ["a"]
        cloud.close()

    def test_a_bad_file_is_told_in_full(self, tmp_path: Path) -> None:
        path = tmp_path / "cloud.yaml"
        path.write_text("max_batch: x\nnope: 1\n")
        with pytest.raises(ProviderFactoryError, match=r"(?s)max_batch.*nope"):
            get_cloud_provider("fake", CloudConfig.read(path))

    def test_without_a_file_no_node_looks_gone(self) -> None:
        with new_provider(None) as cloud:
            batch = there(cloud.instances_batch())
            assert not any(isinstance(one, InstanceNotFound) for one in batch.instances_state(nodes("a", "b")).values())
        with FakeCloud() as empty:
            assert empty.console.instances() == []

    def test_a_closed_cloud_says_so(self) -> None:
        cloud = FakeCloud()
        cloud.close()
        cloud.close()
        v2 = there(cloud.instances_v2())
        with pytest.raises(FakeCloudClosed):
            v2.instance_exists(node("a"))

    def test_public_names_are_there(self) -> None:
        assert len(set(fake.__all__)) == len(fake.__all__)
        assert all(hasattr(fake, name) for name in fake.__all__)
