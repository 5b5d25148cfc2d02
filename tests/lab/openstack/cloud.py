"""OpenStack for the tests: its own services, each a process on this machine's loopback, over
SQLite; and ended with all that they made.

Nova has its fake hypervisor: it schedules, gets ports and addresses, and keeps states as always,
and starts no machines. Octavia's amphorae are no-ops: ports of addresses, security groups, tags,
immutable states and quotas are real; no packet is sent, and nothing ever reports itself ONLINE.

    with running(venv, folder) as cloud:     # half a minute, two for the first time
        cloud.auth_url, cloud.user, ...      # the login of a plain user, with the role "member"
        cloud.clouds                         # a clouds.yaml: "lab", "lab-application", "lab-admin"
        cloud.network, cloud.router, ...     # IDs
        cloud.create_server("node-1")        # a real one: some seconds
        cloud.clone_servers(100, "copy")     # copies of its rows: under a second
        cloud.counts(since)                  # the requests of the user's programs
        cloud.connect()                      # openstacksdk
"""

from __future__ import annotations

import json
import random
import re
import shutil
import socket
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import openstack
import requests
import yaml
from attrs import define, field, frozen
from openstack.connection import Connection

from tests.lab.openstack import clones, databases, settings
from tests.support.pki import Authority

PASSWORD = "s3cret-of-the-user-71b9"
USER = PROJECT = "ccm"
FLAVOR = "m1.medium"
_PATIENCE = 180.0
_PROGRAMS = (
    "keystone-manage",
    "placement-manage",
    "glance-manage",
    "nova-manage",
    "neutron-db-manage",
    "octavia-db-manage",
)
_AGENT = "openstack-lab"
_OWN_AGENTS = re.compile(rf"{_AGENT}|(keystone|placement|glance|neutron|nova|octavia)\b|python-(?!requests|openstack)")
_ID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")


@frozen
class Call:
    """One request that a service has answered, from its own log."""

    time: float
    """When it came, as `time.time()`."""
    service: str
    method: str
    path: str
    query: str
    status: int
    size: int
    seconds: float
    agent: str
    """The User-Agent."""
    user: str
    """Who asked; "" at Keystone, and where no token was sent."""

    @property
    def what(self) -> str:
        """In words without IDs, to be counted: "neutron GET /v2.0/ports"."""
        return f"{self.service} {self.method} {_ID.sub('ID', self.path)}"


@define
class OpenStack:
    """The services, and what tests do to them. Of one process; `load` makes another one's."""

    folder: Path
    """Configurations, databases and logs."""
    ports: dict[str, int]
    region: str = settings.REGION
    user: str = USER
    password: str = PASSWORD
    project: str = PROJECT
    """The name of the plain user's project; all is in it but the external network."""
    project_id: str = ""
    application_credential_id: str = ""
    application_credential_secret: str = ""
    network: str = ""
    """The nodes' network, called "nodes"."""
    subnet: str = ""
    """10.24.0.0/20."""
    external: str = ""
    """The network of floating IPs, called "public", the administrator's."""
    external_subnet: str = ""
    """203.0.113.0/24."""
    router: str = ""
    """Between the two."""
    image: str = ""
    flavor: str = ""
    processes: list[subprocess.Popen[bytes]] = field(factory=list)
    _tokens: dict[bool, str] = field(factory=dict, repr=False)

    @property
    def auth_url(self) -> str:
        """Keystone's, with the version."""
        return f"{self.url('keystone')}/v3"

    @property
    def clouds(self) -> Path:
        """A clouds.yaml: "lab" is the plain user, "lab-application" its application credential,
        "lab-admin" the administrator."""
        return self.folder / "clouds.yaml"

    def url(self, service: str) -> str:
        """Where the service listens: "nova" for example."""
        return f"http://127.0.0.1:{self.ports[service]}"

    def connect(self, cloud: str = "lab") -> Connection:
        """openstacksdk, logged in as an entry of `clouds` says. The caller closes it."""
        config: Any = openstack.config.OpenStackConfig(config_files=[str(self.clouds)])
        return Connection(config=config.get_one(cloud))

    def ask(
        self, method: str, service: str, path: str, json: Any = None, data: bytes | None = None, *, admin: bool = False
    ) -> Any:
        """The answer's document; raises for a refusal, with the answer."""
        if admin not in self._tokens:
            self._tokens[admin] = self._log_in(admin=admin)
        answer = self._send(method, service, path, json, data, admin=admin)
        if answer.status_code == 401:  # the token has expired
            self._tokens[admin] = self._log_in(admin=admin)
            answer = self._send(method, service, path, json, data, admin=admin)
        assert answer.ok, f"{method} {answer.url}: {answer.status_code} {answer.text[:500]}"
        return answer.json() if answer.content else None

    def _send(
        self, method: str, service: str, path: str, json: Any, data: bytes | None, *, admin: bool
    ) -> requests.Response:
        headers = {"X-Auth-Token": self._tokens[admin], "User-Agent": _AGENT, "OpenStack-API-Version": "compute 2.96"}
        if data is not None:
            headers["Content-Type"] = "application/octet-stream"
        return requests.request(method, f"{self.url(service)}{path}", json=json, data=data, headers=headers, timeout=60)

    def create_server(self, name: str) -> str:
        """A server that is active; its ID."""
        wanted = {"name": name, "imageRef": self.image, "flavorRef": self.flavor, "networks": [{"uuid": self.network}]}
        made = str(self.ask("POST", "nova", "/v2.1/servers", {"server": wanted})["server"]["id"])
        self.wait(lambda: self.ask("GET", "nova", f"/v2.1/servers/{made}")["server"]["status"] == "ACTIVE", name)
        return made

    def delete_server(self, server: str) -> None:
        """Have it deleted, and wait until it is."""
        self.ask("DELETE", "nova", f"/v2.1/servers/{server}")
        self.wait(lambda: server not in str(self.ask("GET", "nova", "/v2.1/servers")), f"the end of {server}")

    def clone_servers(self, count: int, prefix: str = "clone") -> dict[str, str]:
        """As many servers more, by their names "PREFIX-0" and on, with their IDs: copies of the
        rows of one that was really made, which must be there. They have ports and addresses."""
        return clones.clone(self.folder, [f"{prefix}-{number}" for number in range(count)])

    @contextmanager
    def exhausted(self) -> Iterator[None]:
        """The user's project has no quota left for floating IPs, security groups, routes of a
        router, load balancers and listeners, for the body of a with statement."""
        try:
            self._limit(0)
            yield
        finally:
            self._limit(-1)

    def _limit(self, limit: int) -> None:
        kinds = {
            "neutron": ("/v2.0/quotas", ("floatingip", "security_group", "router_route")),
            "octavia": ("/v2.0/lbaas/quotas", ("load_balancer", "listener")),
        }
        for service, (path, names) in kinds.items():
            wanted = {"quota": dict.fromkeys(names, limit) | ({"force": True} if service == "neutron" else {})}
            self.ask("PUT", service, f"{path}/{self.project_id}", wanted, admin=True)

    def left(self) -> list[str]:
        """What of the user's is there beside the networks and the router: servers, load balancers,
        floating IPs, groups, ports, routes; each in words."""
        found = [f"server {one['name']}" for one in self.ask("GET", "nova", "/v2.1/servers")["servers"]]
        balancers = self.ask("GET", "octavia", "/v2.0/lbaas/loadbalancers")["loadbalancers"]
        found += [f"load balancer {one['name']}" for one in balancers]
        for kind in ("floatingips", "security-groups", "ports"):
            listed = self.ask("GET", "neutron", f"/v2.0/{kind}?project_id={self.project_id}")[kind.replace("-", "_")]
            for one in listed:
                name = one.get("name") or one.get("floating_ip_address") or one["id"]
                if name != "default" and one.get("device_id") != self.router:
                    found.append(f"{kind.removesuffix('s')} {name}")
        routes = self.ask("GET", "neutron", f"/v2.0/routers/{self.router}")["router"]["routes"]
        return found + [f"route {one['destination']}" for one in routes]

    def calls(self, since: float = 0.0, *, agent: str = "", user: str = "") -> list[Call]:
        """The requests that came from that time on and are answered, oldest first. `agent`: whose
        User-Agent has this text. `user`: of whose tokens; those to Keystone have none."""
        lines = (self.folder / "calls.jsonl").read_text().splitlines()
        every = (Call(**json.loads(line)) for line in lines)
        asked = [one for one in every if one.time >= since and agent in one.agent and user in ("", one.user)]
        return sorted(asked, key=lambda one: one.time)

    def counts(self, since: float = 0.0, *, agent: str = "") -> Counter[str]:
        """How often what was asked, without IDs. What the services ask each other, and what tests
        ask by `ask`, is no part of it."""
        return Counter(one.what for one in self.calls(since, agent=agent) if not _OWN_AGENTS.match(one.agent))

    def wait(self, condition: Callable[[], object], what: str, patience: float = _PATIENCE) -> None:
        """Until it is true. Raises when a service has ended, or the patience has."""
        end = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < end, f"waited too long for {what}; the services' logs are in {self.folder}"
            dead = [one.args for one in self.processes if one.poll() is not None]
            assert not dead, f"ended: {dead}; the services' logs are in {self.folder}"
            time.sleep(0.3)

    def save(self) -> None:
        """Write `clouds`, and what `load` reads."""
        base: dict[str, object] = {
            "auth_url": self.auth_url,
            "user_domain_id": "default",
            "project_domain_id": "default",
        }
        admin = {"username": "admin", "password": settings.ADMIN_PASSWORD, "project_name": "admin"}
        credential = {"id": self.application_credential_id, "secret": self.application_credential_secret}
        entries: dict[str, dict[str, object]] = {
            "lab": {"auth": {**base, "username": self.user, "password": self.password, "project_name": self.project}},
            "lab-admin": {"auth": {**base, **admin}},
            "lab-application": {
                "auth_type": "v3applicationcredential",
                "auth": {"auth_url": self.auth_url} | {f"application_credential_{k}": v for k, v in credential.items()},
            },
        }
        document = {"clouds": {name: {**entry, "region_name": self.region} for name, entry in entries.items()}}
        self.clouds.write_text(yaml.safe_dump(document))
        facts = {name: value for name, value in attrs.asdict(self, recurse=False).items() if name not in _NOT_SAVED}
        (self.folder / "lab.json").write_text(json.dumps({**facts, "folder": str(self.folder)}))

    def _log_in(self, *, admin: bool) -> str:
        name, password = ("admin", settings.ADMIN_PASSWORD) if admin else (self.user, self.password)
        user: dict[str, Any] = {"name": name, "domain": {"id": "default"}, "password": password}
        scope = {"project": {"name": "admin" if admin else self.project, "domain": {"id": "default"}}}
        login: dict[str, Any] = {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}
        answer = requests.post(
            f"{self.auth_url}/auth/tokens", json={"auth": login}, headers={"User-Agent": _AGENT}, timeout=60
        )
        assert answer.ok, f"login of {name}: {answer.status_code} {answer.text[:500]}"
        return answer.headers["X-Subject-Token"]


_NOT_SAVED = ("folder", "processes", "_tokens")


def load(folder: Path) -> OpenStack:
    """The services that another process runs, from the folder that it has given them."""
    facts = json.loads((folder / "lab.json").read_text())
    return OpenStack(**{**facts, "folder": Path(facts["folder"])})


def unavailable(venv: Path) -> str:
    """Why OpenStack cannot be started from there; "" if it can."""
    missing = [name for name in _PROGRAMS if not (venv / "bin" / name).is_file()]
    return f"{venv}/bin has no {', '.join(missing)}: `make openstack` builds such an environment" if missing else ""


@contextmanager
def running(venv: Path, folder: Path, say: Callable[[str], object] = lambda line: None) -> Iterator[OpenStack]:
    """The services with networks, an image and a flavour, and no servers, in an empty folder that
    is there."""
    cloud = OpenStack(folder, _free_ports("keystone", *settings.SERVICES.values()))
    for name in cloud.ports:
        settings.write(folder, name, venv, cloud.auth_url)
    shutil.copy(venv / "etc" / "nova" / "api-paste.ini", folder)
    Authority("octavia").files(folder)
    (folder / "images").mkdir()
    try:
        copied = databases.fill(venv, folder, cloud.auth_url)
        say(f"databases {'copied' if copied else 'made'}")
        _start(cloud, venv, "keystone")
        _wait_for(cloud, "keystone")
        _catalog(cloud)
        _people(cloud)
        _start(cloud, venv, "neutron", "placement", "glance", "nova")  # they remember what the catalog lacks
        _wait_for(cloud, "neutron")
        settings.write(folder, "octavia", venv, cloud.auth_url, management=_management(cloud))
        _start(cloud, venv, "octavia")
        _wait_for(cloud, *cloud.ports)
        say("services answer")
        _fill(cloud)
        databases.manage(venv, folder, "nova", "cell_v2", "discover_hosts")
        cloud.wait(lambda: cloud.ask("GET", "nova", "/v2.1/os-hypervisors", admin=True)["hypervisors"], "Nova's host")
        cloud.save()
        say("ready")
        yield cloud
    finally:
        for one in cloud.processes:
            one.kill()
            one.wait()


def _start(cloud: OpenStack, venv: Path, *names: str) -> None:
    for name in names:
        program = [str(venv / "bin" / "python"), "-P", str(databases.PROGRAM)]
        command = [*program, name, str(cloud.ports[name]), str(cloud.folder)]
        with (cloud.folder / f"{name}.out").open("wb") as out:
            cloud.processes.append(subprocess.Popen(command, cwd=cloud.folder, stdout=out, stderr=out))


def _wait_for(cloud: OpenStack, *names: str) -> None:
    for name in names:
        cloud.wait(partial(_answers, cloud.url(name)), name)


def _answers(url: str) -> bool:
    try:
        return requests.get(url, headers={"User-Agent": _AGENT}, timeout=20).status_code < 500
    except requests.RequestException:
        return False


def _catalog(cloud: OpenStack) -> None:
    """Where each service is; and the rights of the user that all of them log in with."""
    ask = partial(cloud.ask, admin=True)
    for kind, name in settings.SERVICES.items():
        made = ask("POST", "keystone", "/v3/services", {"service": {"type": kind, "name": name}})["service"]
        for interface in ("public", "internal"):
            where = {"service_id": made["id"], "interface": interface, "region_id": cloud.region}
            place = {**where, "url": cloud.url(name) + ("/v2.1" if name == "nova" else "")}
            ask("POST", "keystone", "/v3/endpoints", {"endpoint": place})
    [project] = ask("GET", "keystone", "/v3/projects?name=admin")["projects"]
    [user] = ask("GET", "keystone", "/v3/users?name=admin")["users"]
    _grant(cloud, project["id"], user["id"], "service")
    _no_quota(cloud, project["id"])
    cloud._tokens.clear()  # the next one knows the catalog and the role


def _people(cloud: OpenStack) -> None:
    """The plain user, in a project of its own, and its application credential."""
    wanted = {"name": cloud.project, "domain_id": "default"}
    cloud.project_id = cloud.ask("POST", "keystone", "/v3/projects", {"project": wanted}, admin=True)["project"]["id"]
    who = {"name": cloud.user, "password": cloud.password, "domain_id": "default"}
    user = cloud.ask("POST", "keystone", "/v3/users", {"user": who}, admin=True)["user"]["id"]
    _grant(cloud, cloud.project_id, user, "member")
    _no_quota(cloud, cloud.project_id)
    credential = {"application_credential": {"name": "manager"}}
    made = cloud.ask("POST", "keystone", f"/v3/users/{user}/application_credentials", credential)
    cloud.application_credential_id = made["application_credential"]["id"]
    cloud.application_credential_secret = made["application_credential"]["secret"]


def _grant(cloud: OpenStack, project: str, user: str, name: str) -> None:
    ask = partial(cloud.ask, admin=True)
    listed = ask("GET", "keystone", f"/v3/roles?name={name}")["roles"]
    role = listed[0] if listed else ask("POST", "keystone", "/v3/roles", {"role": {"name": name}})["role"]
    ask("PUT", "keystone", f"/v3/projects/{project}/users/{user}/roles/{role['id']}")


def _no_quota(cloud: OpenStack, project: str) -> None:
    """Octavia would write a project's row at its first call, in a transaction inside another one,
    which SQLite cannot."""
    kinds = ("load_balancer", "listener", "pool", "health_monitor", "member", "l7policy", "l7rule")
    with closing(sqlite3.connect(cloud.folder / "octavia.sqlite", timeout=60)) as database, database:
        marks = ", ".join("?" for _ in kinds)
        database.execute(
            f"insert into quotas (project_id, {', '.join(kinds)}) values (?, {marks})", (project, *[-1] * len(kinds))
        )


def _network(cloud: OpenStack, name: str, cidr: str, *, admin: bool = False, **more: Any) -> tuple[str, str]:
    made = cloud.ask("POST", "neutron", "/v2.0/networks", {"network": {"name": name, **more}}, admin=admin)
    network = str(made["network"]["id"])
    subnet = {"name": name, "network_id": network, "ip_version": 4, "cidr": cidr, "enable_dhcp": False}
    made = cloud.ask("POST", "neutron", "/v2.0/subnets", {"subnet": subnet}, admin=admin)
    return network, str(made["subnet"]["id"])


def _management(cloud: OpenStack) -> str:
    """The network that Octavia's amphorae would boot in."""
    return _network(cloud, "lb-mgmt", "192.0.2.0/24", admin=True)[0]


def _fill(cloud: OpenStack) -> None:
    """Networks, a router, an image, a flavour."""
    cloud.network, cloud.subnet = _network(cloud, "nodes", "10.24.0.0/20")
    more = {"router:external": True}
    cloud.external, cloud.external_subnet = _network(cloud, "public", "203.0.113.0/24", admin=True, **more)
    router = {"name": "router", "external_gateway_info": {"network_id": cloud.external}}
    cloud.router = cloud.ask("POST", "neutron", "/v2.0/routers", {"router": router})["router"]["id"]
    inside = {"subnet_id": cloud.subnet}
    cloud.ask("PUT", "neutron", f"/v2.0/routers/{cloud.router}/add_router_interface", inside)
    image = {"name": "none", "disk_format": "raw", "container_format": "bare", "visibility": "public"}
    cloud.image = cloud.ask("POST", "glance", "/v2/images", image, admin=True)["id"]
    cloud.ask("PUT", "glance", f"/v2/images/{cloud.image}/file", data=bytes(1024), admin=True)
    flavor = {"name": FLAVOR, "ram": 4096, "vcpus": 2, "disk": 20}
    cloud.flavor = cloud.ask("POST", "nova", "/v2.1/flavors", {"flavor": flavor}, admin=True)["flavor"]["id"]


def _free_ports(*names: str) -> dict[str, int]:
    """Ports below those that the system gives to connections, which could take one meanwhile."""
    free: list[int] = []
    for port in random.sample(range(20000, 30000), 200):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) != 0:
                free.append(port)
        if len(free) == len(names):
            break
    return dict(zip(names, free, strict=True))
