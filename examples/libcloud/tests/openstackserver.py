"""OpenStack for the tests: Keystone, Placement, Glance, Neutron and Nova, as they are on the
package index, each a process on this machine's loopback, over SQLite; and ended with all that they
made.

Nova has its fake hypervisor: it schedules, gets ports and addresses, and keeps states as always,
and starts no machines.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import requests
from attrs import define, field

PASSWORD = "s3cret-of-the-tests-0c4e"
FLAVOR = "m1.medium"
_SERVICES = {"placement": "placement", "image": "glance", "network": "neutron", "compute": "nova"}
_PATIENCE = 180.0
_PROGRAM = Path(__file__).with_name("openstackservice.py")

_EVERYWHERE = """
[DEFAULT]
transport_url = fake:/
state_path = {folder}
log_file = {folder}/{name}.log
use_stderr = false
host = compute-1
report_interval = 60
service_down_time = 3600
[database]
connection = sqlite:///{folder}/{name}.sqlite?timeout=60
[oslo_concurrency]
lock_path = {folder}/locks
[oslo_messaging_notifications]
driver = noop
"""
_LOGIN = """
www_authenticate_uri = {keystone}
auth_url = {keystone}
auth_type = password
username = admin
password = {password}
project_name = admin
user_domain_id = default
project_domain_id = default
region_name = RegionOne
"""
_OWN = {
    "keystone": "[fernet_tokens]\nkey_repository = {folder}/fernet\n[credential]\nkey_repository = {folder}/credential",
    "placement": """
[placement_database]
connection = sqlite:///{folder}/placement.sqlite?timeout=60
[api]
auth_strategy = keystone
[keystone_authtoken]{login}""",
    "glance": """
[DEFAULT]
enabled_backends = local:file
[glance_store]
default_backend = local
[local]
filesystem_store_datadir = {folder}/images
[paste_deploy]
flavor = keystone
config_file = {etc}/glance/glance-api-paste.ini
[keystone_authtoken]{login}""",
    "neutron": """
[DEFAULT]
core_plugin = ml2
service_plugins =
api_paste_config = {etc}/neutron/api-paste.ini
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[ml2]
type_drivers = local
project_network_types = local
mechanism_drivers = openvswitch
[keystone_authtoken]{login}""",
    "nova": """
[DEFAULT]
compute_driver = fake.FakeDriver
[api_database]
connection = sqlite:///{folder}/nova_api.sqlite?timeout=60
[scheduler]
discover_hosts_in_cells_interval = 5
[placement]{login}
[glance]{login}
[neutron]{login}
[service_user]{login}
send_service_user_token = true
[keystone_authtoken]{login}""",
}


@define
class OpenStack:
    """The services, and the calls that the tests make to them."""

    folder: Path
    ports: dict[str, int]
    token: str = ""
    network: str = ""
    image: str = ""
    flavor: str = ""
    processes: list[subprocess.Popen[bytes]] = field(factory=list)

    def url(self, service: str) -> str:
        """Where the service listens."""
        return f"http://127.0.0.1:{self.ports[service]}"

    def ask(self, method: str, service: str, path: str, json: Any = None, data: bytes | None = None) -> Any:
        """The answer's document; raises for a refusal, with the answer."""
        headers = {"X-Auth-Token": self.token, "X-OpenStack-Nova-API-Version": "2.67"}
        if data is not None:
            headers["Content-Type"] = "application/octet-stream"
        answer = requests.request(
            method, f"{self.url(service)}{path}", json=json, data=data, headers=headers, timeout=60
        )
        assert answer.ok, f"{method} {answer.url}: {answer.status_code} {answer.text[:500]}"
        if path == "/v3/auth/tokens":
            self.token = answer.headers["X-Subject-Token"]
        return answer.json() if answer.content else None

    def create(self, name: str) -> str:
        """A server that is active; its ID."""
        wanted = {"name": name, "imageRef": self.image, "flavorRef": self.flavor, "networks": [{"uuid": self.network}]}
        made = str(self.ask("POST", "nova", "/v2.1/servers", {"server": wanted})["server"]["id"])
        self.wait(lambda: self.ask("GET", "nova", f"/v2.1/servers/{made}")["server"]["status"] == "ACTIVE", name)
        return made

    def delete(self, server: str) -> None:
        """Have it deleted, and wait until it is."""
        self.ask("DELETE", "nova", f"/v2.1/servers/{server}")
        self.wait(lambda: server not in str(self.ask("GET", "nova", "/v2.1/servers")), f"the end of {server}")

    def wait(self, condition: Any, what: str) -> None:
        """Until it is true."""
        end = time.monotonic() + _PATIENCE
        while not condition():
            assert time.monotonic() < end, f"waited too long for {what}; the services' logs are in {self.folder}"
            dead = [one.args for one in self.processes if one.poll() is not None]
            assert not dead, f"ended: {dead}; the services' logs are in {self.folder}"
            time.sleep(0.5)


def unavailable(venv: Path) -> str:
    """Why OpenStack cannot be started from there; "" if it can."""
    wanted = ("keystone-manage", "placement-manage", "glance-manage", "nova-manage", "neutron-db-manage")
    missing = [name for name in wanted if not (venv / "bin" / name).is_file()]
    return f"{venv}/bin has no {', '.join(missing)}: see examples/libcloud/README.md" if missing else ""


@contextmanager
def running(venv: Path, folder: Path) -> Iterator[OpenStack]:
    """The services with a network, an image and a flavour, and no servers."""
    cloud = OpenStack(folder, {name: _free_port() for name in ("keystone", *_SERVICES.values())})
    login = _LOGIN.format(keystone=f"{cloud.url('keystone')}/v3", password=PASSWORD)
    facts = {"folder": folder, "etc": venv / "etc", "login": login}
    for name, own in _OWN.items():
        text = (_EVERYWHERE + own).format(name=name, **facts)
        (folder / ("glance-api.conf" if name == "glance" else f"{name}.conf")).write_text(text)
    shutil.copy(venv / "etc" / "nova" / "api-paste.ini", folder)
    (folder / "images").mkdir()
    try:
        _databases(cloud, venv)
        _start(cloud, venv, "keystone")
        _catalog(cloud)
        _start(cloud, venv, *_SERVICES.values())  # they read the catalog, and remember what it lacks
        _fill(cloud)
        yield cloud
    finally:
        for one in cloud.processes:
            one.kill()
            one.wait()


def _start(cloud: OpenStack, venv: Path, *names: str) -> None:
    for name in names:
        command = [str(venv / "bin" / "python"), str(_PROGRAM), name, str(cloud.ports[name]), str(cloud.folder)]
        with (cloud.folder / f"{name}.out").open("wb") as out:
            cloud.processes.append(subprocess.Popen(command, cwd=cloud.folder, stdout=out, stderr=out))
    for name in names:
        cloud.wait(partial(_answers, cloud.url(name)), name)


def _databases(cloud: OpenStack, venv: Path) -> None:
    """Keystone's, Glance's, Placement's and Nova's by their own programs."""
    folder, keystone = cloud.folder, f"{cloud.url('keystone')}/v3"
    nova = f"sqlite:///{folder}/nova.sqlite?timeout=60"
    steps: dict[str, Sequence[Sequence[str]]] = {
        "keystone": (
            ("fernet_setup", "--keystone-user", str(os.getuid()), "--keystone-group", str(os.getgid())),
            ("db_sync",),
            ("bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", "RegionOne",
             "--bootstrap-public-url", keystone, "--bootstrap-internal-url", keystone),
        ),
        "glance": (("db_sync",),),
        "placement": (("db", "sync"),),
        "nova": (
            ("api_db", "sync"),
            ("cell_v2", "map_cell0", "--database_connection", f"sqlite:///{folder}/cell0.sqlite?timeout=60"),
            ("db", "sync"),
            ("cell_v2", "create_cell", "--name", "cell1", "--database_connection", nova, "--transport-url", "fake:/"),
        ),
    }  # fmt: skip
    for name, each in steps.items():
        config = folder / ("glance-api.conf" if name == "glance" else f"{name}.conf")
        for step in each:
            _run([str(venv / "bin" / f"{name}-manage"), "--config-file", str(config), *step], folder)
    _run([str(venv / "bin" / "python"), str(_PROGRAM), "neutron", "database", str(folder)], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"


def _catalog(cloud: OpenStack) -> None:
    """Where each service is; and the rights of the user that all of them log in with."""
    user = {"name": "admin", "domain": {"id": "default"}, "password": PASSWORD}
    scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
    login = {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}
    me = cloud.ask("POST", "keystone", "/v3/auth/tokens", {"auth": login})["token"]
    for kind, name in _SERVICES.items():
        made = cloud.ask("POST", "keystone", "/v3/services", {"service": {"type": kind, "name": name}})["service"]
        for interface in ("public", "internal"):
            where = {"service_id": made["id"], "interface": interface, "region_id": "RegionOne"}
            place = {**where, "url": cloud.url(name) + ("/v2.1" if name == "nova" else "")}
            cloud.ask("POST", "keystone", "/v3/endpoints", {"endpoint": place})
    listed = cloud.ask("GET", "keystone", "/v3/roles?name=service")["roles"]
    role = listed[0] if listed else cloud.ask("POST", "keystone", "/v3/roles", {"role": {"name": "service"}})["role"]
    member = f"/v3/projects/{me['project']['id']}/users/{me['user']['id']}/roles/{role['id']}"
    cloud.ask("PUT", "keystone", member)
    cloud.ask("POST", "keystone", "/v3/auth/tokens", {"auth": login})


def _fill(cloud: OpenStack) -> None:
    """A network, an image, a flavour."""
    network = cloud.ask("POST", "neutron", "/v2.0/networks", {"network": {"name": "nodes"}})["network"]["id"]
    subnet = {"network_id": network, "ip_version": 4, "cidr": "10.24.0.0/24", "enable_dhcp": False}
    cloud.ask("POST", "neutron", "/v2.0/subnets", {"subnet": subnet})
    image = {"name": "none", "disk_format": "raw", "container_format": "bare"}
    cloud.image = cloud.ask("POST", "glance", "/v2/images", image)["id"]
    cloud.ask("PUT", "glance", f"/v2/images/{cloud.image}/file", data=bytes(1024))
    flavor = {"name": FLAVOR, "ram": 4096, "vcpus": 2, "disk": 20}
    cloud.flavor = cloud.ask("POST", "nova", "/v2.1/flavors", {"flavor": flavor})["flavor"]["id"]
    cloud.network = network
    # Nova finds its host some seconds after it has reported.
    cloud.wait(lambda: cloud.ask("GET", "nova", "/v2.1/os-hypervisors")["hypervisors"], "Nova's host")


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=10).status_code < 500
    except requests.RequestException:
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
