"""LocalInstance: what the server that this program runs on says of itself, by its config drive or
Nova's metadata service, in the order of search-order in [Metadata].

No login and no API of OpenStack. Neither source knows the region: it is that of the configuration.

Follows: "Metadata service" and "Config drives" in Nova's user guide.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import requests
from kubernetes.client.models.v1_node_address import V1NodeAddress
from typing_extensions import override

from cloudprovider import CloudProviderError, InstanceMetadata, LocalInstance
from cloudprovider.helpers import label_value, time_limit, time_limits
from cloudprovider.wellknown import NODE_ADDRESS_EXTERNAL_IP, NODE_ADDRESS_INTERNAL_IP
from openstack_provider.config import Config

SERVICE = "http://169.254.169.254"
DRIVE = Path("/dev/disk/by-label/config-2")

_MOST = 2.0
"""Seconds for one request: the service is on the machine's own host or network."""

_EC2 = {
    "instance-type": "latest/meta-data/instance-type",
    "local-ipv4": "latest/meta-data/local-ipv4",
    "public-ipv4": "latest/meta-data/public-ipv4",
}


class OpenStackMachine(LocalInstance):
    """The server that this program runs on."""

    def __init__(self, config: Config, region: str, *, service: str = SERVICE, drive: Path = DRIVE) -> None:
        """`region`: of the provider ID, "" where it names none."""
        self._config = config
        self._region = region
        self._service = service.rstrip("/")
        self._drive = drive

    @override
    def local_metadata(self) -> InstanceMetadata:
        about, ec2 = self._found()
        addresses = [(NODE_ADDRESS_INTERNAL_IP, "local-ipv4"), (NODE_ADDRESS_EXTERNAL_IP, "public-ipv4")]
        return InstanceMetadata(
            provider_id=f"openstack://{self._region}/{about['uuid']}",
            instance_type=label_value(ec2.get("instance-type", "")),
            node_addresses=[V1NodeAddress(type=kind, address=ec2[name]) for kind, name in addresses if ec2.get(name)],
            zone=label_value(str(about.get("availability_zone") or "")),
            region=label_value(self._config.region),
        )

    @override
    def local_node_name(self, hostname: str) -> str:
        """The server's name."""
        return str(self._found()[0].get("name") or hostname).lower()

    def _found(self) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """meta_data.json, and what the EC2 form knows beyond it."""
        problems: list[str] = []
        for source in self._config.metadata.search_order:
            try:
                if source == "metadataService":
                    about = json.loads(self._get("openstack/latest/meta_data.json"))
                    return _checked(about), {name: self._get(path, "") for name, path in _EC2.items()}
                if self._drive.exists():
                    return self._read_drive()
                problems.append(f"there is no config drive at {self._drive}")
            except (OSError, ValueError, subprocess.SubprocessError, requests.RequestException) as error:
                problems.append(f"{source}: {error}")
        raise CloudProviderError(f"nothing says which server this is: {'; '.join(problems)}")

    def _get(self, path: str, default: str | None = None) -> str:
        url = f"{self._service}/{path}"
        with requests.Session() as session:
            session.trust_env = False  # no proxy leads to this machine's own service
            answer = session.get(url, timeout=time_limits(most=_MOST, margin=0.05, least=0.05))
        if answer.status_code == 404 and default is not None:
            return default
        if answer.status_code != 200:
            raise ValueError(f"GET {url} answered {answer.status_code}")
        return answer.text.strip()

    def _read_drive(self) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """What the drive holds; where it is a device, it is mounted for the moment, as root."""
        if self._drive.is_dir():
            return _of_folder(self._drive)
        with tempfile.TemporaryDirectory() as folder:
            within = time_limit(most=_MOST, margin=0.05, least=0.05)
            mount = ["mount", "-o", "ro", str(self._drive), folder]
            subprocess.run(mount, check=True, capture_output=True, timeout=within)
            try:
                return _of_folder(Path(folder))
            finally:
                subprocess.run(["umount", folder], check=True, capture_output=True, timeout=_MOST)


def _of_folder(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    about = json.loads((folder / "openstack/latest/meta_data.json").read_text(encoding="utf-8"))
    file = folder / "ec2/latest/meta-data.json"
    ec2: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return _checked(about), {name: str(ec2[name]) for name in _EC2 if ec2.get(name)}


def _checked(about: Any) -> Mapping[str, Any]:
    known: Mapping[str, Any] = cast("Mapping[str, Any]", about) if isinstance(about, dict) else {}
    if not known.get("uuid"):
        raise ValueError("meta_data.json names no server: it has no uuid")
    return known
