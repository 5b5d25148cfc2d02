"""What the server that the program runs on says of itself: config drive, then metadata service, or
in another order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from metadataservice import MetadataService, config_drive, metadata_service
from openstack_provider.config import Config, MetadataConfig
from openstack_provider.machine import OpenStackMachine

from cloudprovider import Call, CloudProviderError, call_scope

SERVER = "5b2f7e1c-3f5e-4c39-9d3a-1c8f0d2f9f10"


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with metadata_service() as made:
        made.tell(SERVER, "Web-1", zone="Zone 1", address="10.24.0.5")
        yield made


def machine(service: MetadataService, drive: Path, *order: str, region: str = "") -> OpenStackMachine:
    metadata = MetadataConfig.model_validate({"search_order": order} if order else {})
    return OpenStackMachine(Config(region="One", metadata=metadata), region, service=service.url, drive=drive)


def test_the_metadata_service_where_there_is_no_drive(service: MetadataService, tmp_path: Path) -> None:
    here = machine(service, tmp_path / "none")
    found = here.local_metadata()
    assert (found.provider_id, found.zone, found.region, found.instance_type) == (
        f"openstack:///{SERVER}", "Zone-1", "One", "m1.medium",
    )  # fmt: skip
    assert [(one.type, one.address) for one in found.node_addresses] == [("InternalIP", "10.24.0.5")]
    assert here.local_node_name("whatever") == "web-1"
    assert machine(service, tmp_path / "none", region="One").local_metadata().provider_id == f"openstack://One/{SERVER}"


def test_the_drive_counts_first_unless_the_order_is_another(service: MetadataService, tmp_path: Path) -> None:
    drive = config_drive(tmp_path, SERVER.replace("5", "6"), "db-1", **{"instance-type": "m1.small"})
    assert machine(service, drive).local_node_name("x") == "db-1"
    assert machine(service, drive).local_metadata().instance_type == "m1.small"
    assert service.requests == []
    assert machine(service, drive, "metadataService", "configDrive").local_node_name("x") == "web-1"
    service.status = 500
    assert machine(service, drive, "metadataService", "configDrive").local_node_name("x") == "db-1"


def test_a_device_is_mounted_for_the_moment(
    service: MetadataService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, done = tmp_path / "config-2", []
    device.touch()

    def run(command: list[str], **_: object) -> None:
        done.append(command[0])
        if command[0] == "mount":
            assert command[1:4] == ["-o", "ro", str(device)]
            config_drive(Path(command[4]), SERVER, "db-1")

    monkeypatch.setattr("openstack_provider.machine.subprocess.run", run)
    assert machine(service, device).local_node_name("x") == "db-1"
    assert done == ["mount", "umount"]


@pytest.mark.parametrize("page", ["{}", "[]", "no json"])
def test_what_names_no_server_is_an_error_and_not_gone(service: MetadataService, tmp_path: Path, page: str) -> None:
    service.pages["/openstack/latest/meta_data.json"] = page
    with pytest.raises(
        CloudProviderError, match=r"nothing says which server this is: there is no config drive at .*; m"
    ):
        machine(service, tmp_path / "none").local_metadata()
    service.pages.clear()
    with pytest.raises(CloudProviderError, match="answered 404"):
        machine(service, tmp_path / "none").local_metadata()


def test_a_mount_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drive, mount = tmp_path / "config-2", tmp_path / "mount"
    drive.write_bytes(b"a device")
    mount.write_text("#!/bin/sh\nexec sleep 20\n", encoding="utf-8")
    mount.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    config = Config(metadata=MetadataConfig.model_validate({"search_order": ("configDrive",)}))
    with call_scope(Call(deadline=monotonic() + 0.5)), pytest.raises(CloudProviderError, match="timed out"):
        OpenStackMachine(config, "", drive=drive).local_metadata()
