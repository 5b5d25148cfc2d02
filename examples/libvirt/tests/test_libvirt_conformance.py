"""The provider keeps the contract, alone and under the manager, against a real libvirtd: `pytest -k
onform --conformance-report=report`."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from libvirtlab import LibvirtLab
from libvirtserver import daemon, find_libvirt, running, unavailable

from cloudprovider import CloudConfig, CloudProviderError
from cloudprovider.loading import registry
from cloudprovider.testing.conformance import EndToEndConformance, Feature, ProviderConformance, new_node

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


def test_the_password_is_that_of_the_file() -> None:
    """libvirtd lets nobody in without, and the error does not show it."""
    if reason := find_libvirt() or unavailable():
        pytest.skip(reason)
    if shutil.which("saslpasswd2") is None or not list(Path("/usr/lib").glob("*/sasl2/libscram.so")):
        pytest.skip("needs saslpasswd2 and SASL's SCRAM: apt install sasl2-bin libsasl2-modules")
    from libvirt_provider.provider import new_provider

    with tempfile.TemporaryDirectory(prefix="libvirt-") as name, daemon(Path(name), "Gu7-rIght") as path:
        authfile = Path(name) / "auth.conf"
        text = f"authfile: {authfile}\nhosts: {{host-a: 'test+unix:///default?socket={path}'}}"
        for password, is_right in (("Gu7-rIght", True), ("Gu7-wrong", False)):
            authfile.write_text(
                f"[credentials-ccm]\nauthname=ccm\npassword={password}\n\n[auth-libvirt-default]\ncredentials=ccm\n"
            )
            instances = new_provider(CloudConfig(path="", data=text.encode())).instances_v2()
            assert instances is not None
            if is_right:
                assert instances.instance_exists(new_node("test"))  # the test driver's own machine
                assert not instances.instance_exists(new_node("no-such"))
            else:
                with pytest.raises(CloudProviderError, match="authentication failed") as raised:
                    instances.instance_exists(new_node("test"))
                assert password not in str(raised.value)


class TestLibvirt(ProviderConformance, EndToEndConformance):
    provider_name = "libvirt"
    features = Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH
