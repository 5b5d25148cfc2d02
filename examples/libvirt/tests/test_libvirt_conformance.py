"""The provider keeps the contract, alone and under the manager, against a real libvirtd: `pytest -k
onform --conformance-report=report`."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from libvirtlab import LibvirtLab
from libvirtserver import find_libvirt, running, unavailable

from cloudprovider.loading import registry
from cloudprovider.testing.conformance import EndToEndConformance, Feature, ProviderConformance

pytestmark = pytest.mark.xdist_group("libvirt")


@pytest.fixture(scope="module")
def lab() -> Iterator[LibvirtLab]:
    # Not pytest's own folder: the path of a socket has 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="libvirt-"))
    try:
        if reason := find_libvirt() or unavailable():
            pytest.skip(reason)
        from libvirt_provider.provider import new_provider

        with pytest.MonkeyPatch.context() as patch, running(folder) as server:
            patch.setattr(registry, "_REGISTRY", registry.Registry())  # here nobody installs the provider
            registry.register_cloud_provider("libvirt", new_provider)
            yield LibvirtLab(server)
    finally:
        shutil.rmtree(folder)


class TestLibvirt(ProviderConformance, EndToEndConformance):
    provider_name = "libvirt"
    features = Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH
