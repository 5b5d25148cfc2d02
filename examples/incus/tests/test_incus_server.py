"""The provider against a real server: the contract, alone and under the manager, and what reaches
the containers. `pytest -k onform --conformance-report=report`.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import shutil
import ssl
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from incus_provider import machine
from incus_provider.client import ProjectNotFound
from incus_provider.provider import new_provider
from incuslab import IncusLab, config_of
from incusserver import DAEMONS, NETWORK, POOL, SUBNET, Server, running, unavailable

from cloudprovider import InvalidConfig, Route
from cloudprovider.helpers import parse_ip, parse_network
from cloudprovider.loading import registry
from cloudprovider.testing.conformance import EndToEndConformance, Feature, ProviderConformance, new_node, new_service

pytestmark = pytest.mark.xdist_group("incus")

CLUSTER = "blue"
ONE_TARGET = {
    "test_l9_it_has_the_nodes_as_targets",
    "test_l10_ensure_replaces_the_targets",
    "test_l11_update_replaces_the_targets",
    "test_l14_foreign_nodes_do_no_harm",
    "test_l43_a_machine_that_was_off_is_a_target",
    "test_l45_new_targets_go_in_first",
    "test_e7_nodes_become_targets_and_leave",
    "test_e8_a_changed_port_reaches_the_load_balancer",
}
"""Scenarios that ask for all nodes as targets, or for ports where there is no node."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Incus or LXD, where INCUS_SERVER asks for it: a server and its containers need a minute."""
    kind = os.environ.get("INCUS_SERVER", "")
    if kind not in DAEMONS:
        pytest.skip(f"a real server: set INCUS_SERVER to {' or '.join(DAEMONS)} (Linux, root, a minute)")
    if reason := unavailable(kind):
        pytest.fail(f"INCUS_SERVER is set, but {reason}")
    # Not pytest's own folder: the path of a socket has 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="incus-"))
    try:
        with running(kind, folder) as made:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def lab(server: Server) -> Iterator[IncusLab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_REGISTRY", registry.Registry())  # here nobody installs the provider
        registry.register_cloud_provider("incus", new_provider)
        yield IncusLab(server)


class TestIncus(ProviderConformance, EndToEndConformance):
    provider_name = "incus"
    features = (
        Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH | Feature.LOAD_BALANCER | Feature.OWNED_LOAD_BALANCERS
        | Feature.ROUTES
    )  # fmt: skip

    @pytest.fixture(autouse=True)
    def _has_one_target(self, request: pytest.FixtureRequest) -> None:
        if request.node.originalname in ONE_TARGET:
            pytest.skip("a network forward has one target, and without one no ports: see test_incus_targets.py")


@pytest.fixture(scope="module")
def pair(server: Server) -> Iterator[tuple[str, str]]:
    """Two containers that run."""
    names = ("pair-a", "pair-b")
    for name in names:
        server.create(name, **{"limits.cpu": "2", "limits.memory": "512MiB"})
        server.address(name)
    yield names
    for name in names:
        server.delete(name)


def test_a_node_gets_what_the_server_knows(server: Server, pair: tuple[str, str]) -> None:
    instances = new_provider(config_of(server, region="here")).instances_v2()
    assert instances is not None
    found = instances.instance_metadata(new_node(pair[0]))
    [address, hostname] = found.node_addresses
    assert (address.type, address.address) == ("InternalIP", server.address(pair[0]))
    assert parse_ip(address.address) in parse_network(SUBNET)
    assert (hostname.type, hostname.address) == ("Hostname", pair[0])
    assert (found.instance_type, found.zone, found.region) == ("c2-m0.5", "", "here")
    assert machine.uuid_of(found.provider_id, "default")


def test_traffic_reaches_a_node_and_follows_it(server: Server, pair: tuple[str, str]) -> None:
    """Over HTTP from outside of the bridge: the containers serve their names on the node port."""
    provider = new_provider(config_of(server))
    instances, balancers = provider.instances_v2(), provider.load_balancer()
    assert instances is not None
    assert balancers is not None
    nodes = {name: new_node(name, instances.instance_metadata(new_node(name)).provider_id) for name in pair}
    service = new_service("web", "1b4e28ba-2fa1-11d2-883f-0016d3cca427")
    status = balancers.ensure_load_balancer(CLUSTER, service, list(nodes.values()))
    try:
        address = str(status.ingress[0].ip)  # type: ignore[index]
        first = _fetch(server, address)
        assert first in pair
        [other] = set(pair) - {first}
        balancers.update_load_balancer(CLUSTER, service, [nodes[other]])
        assert _fetch(server, address) == other
        server.state(other, "stop")
        balancers.ensure_load_balancer(CLUSTER, service, [*nodes.values(), new_node("far", "another://i-1")])
        assert _fetch(server, address) == first, "a node whose instance is stopped got the traffic"
        server.state(other, "start")
        server.address(other)
        balancers.update_load_balancer(CLUSTER, service, [])
        assert _fetch(server, address) == ""
        assert balancers.get_load_balancer(CLUSTER, service) == status
    finally:
        balancers.ensure_load_balancer_deleted(CLUSTER, service)


def test_a_route_carries_packets_to_a_pod(server: Server, pair: tuple[str, str]) -> None:
    """A pod's address on one container answers the other one, by the server's bridge."""
    routes = new_provider(config_of(server)).routes()
    assert routes is not None
    sender, node = pair
    assert server.run(node, "ip", "address", "add", "10.244.7.1/32", "dev", "lo")[0] == 0
    assert server.run(sender, "ping", "-c", "1", "-W", "1", "10.244.7.1")[0] != 0
    route = Route(name="", target_node=node, destination_cidr="10.244.7.0/24")
    routes.create_route(CLUSTER, "hint", route)
    assert server.run(sender, "ping", "-c", "1", "-W", "5", "10.244.7.1")[0] == 0
    [listed] = routes.list_routes(CLUSTER)
    routes.delete_route(CLUSTER, listed)
    assert server.run(sender, "ping", "-c", "1", "-W", "1", "10.244.7.1")[0] != 0
    left = server.ask("GET", f"/1.0/instances/{node}")
    assert not [key for key, value in left["config"].items() if key.startswith("user.kubernetes") and value]


def test_what_does_not_exist_keeps_the_manager_from_starting(server: Server) -> None:
    for wrong, said in (({"project": "nowhere"}, "project"), ({"network": "nowhere"}, "network")):
        with pytest.raises(InvalidConfig, match=f"{said}: the server has no 'nowhere'"):
            new_provider(config_of(server, **wrong)).initialize(Mock(), threading.Event())


def test_a_missing_project_never_makes_an_instance_gone(server: Server, pair: tuple[str, str]) -> None:
    """The server itself lists nothing then, and calls it success."""
    provider = new_provider(config_of(server, project="nowhere"))
    instances, batch, routes = provider.instances_v2(), provider.instances_batch(), provider.routes()
    assert instances is not None
    assert batch is not None
    assert routes is not None
    node = new_node(pair[0])
    for ask in (
        lambda: instances.instance_exists(node),
        lambda: batch.instances_state([node]),
        lambda: routes.create_route(CLUSTER, "", Route(name="", target_node=pair[0], destination_cidr="10.244.8.0/24")),
    ):
        with pytest.raises(ProjectNotFound, match="project: the server has no 'nowhere'"):
            ask()


_OVER_HTTPS = """
import json, sys
from cloudprovider import CloudConfig
from cloudprovider.testing.conformance import new_node, new_service
from unittest.mock import Mock
from incus_provider.provider import new_provider
import threading
told = {}
for what, settings in json.load(sys.stdin).items():
    provider = new_provider(CloudConfig(path="", data=json.dumps(settings).encode()))
    try:
        provider.initialize(Mock(), threading.Event())
        found = provider.instances_v2().instance_metadata(new_node("pair-a"))
        service = new_service("web", "1b4e28ba-2fa1-11d2-883f-0016d3cca428")
        provider.load_balancer().ensure_load_balancer("blue", service, [new_node("pair-a", found.provider_id)])
        provider.load_balancer().ensure_load_balancer_deleted("blue", service)
        told[what] = provider.instances_v2().instance_exists(new_node("no-such"))
    except Exception as error:
        told[what] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""


def test_https_with_a_client_certificate(server: Server, pair: tuple[str, str], tmp_path: Path) -> None:
    """In the server's network; the wrong certificates, of the server and of the client, are
    refused."""
    server.ask("PATCH", "/1.0", {"config": {"core.https_address": "127.0.0.1:8443"}})
    for name in ("trusted", "restricted", "stranger"):
        _make_certificate(tmp_path / name)
    for name, rights in (("trusted", {}), ("restricted", {"restricted": True, "projects": ["default"]})):
        der = ssl.PEM_cert_to_DER_cert((tmp_path / f"{name}.crt").read_text())
        content = base64.b64encode(der).decode()
        server.ask("POST", "/1.0/certificates", {"type": "client", "name": name, "certificate": content, **rights})

    def settings(client: str, pinned: str) -> dict[str, object]:
        files = {"client_certificate": tmp_path / f"{client}.crt", "client_key": tmp_path / f"{client}.key"}
        files["server_certificate"] = Path(pinned)
        paths = {key: str(path) for key, path in files.items()}
        return {"url": "https://127.0.0.1:8443", "network": NETWORK, "load_balancer_addresses": [POOL], **paths}

    own = str(server.folder / "data" / "server.crt")
    asked = {
        "right": settings("trusted", own),
        "restricted": settings("restricted", own),
        "unknown client": settings("stranger", own),
        "other server": settings("trusted", str(tmp_path / "stranger.crt")),
    }
    done = server.as_client(sys.executable, "-c", _OVER_HTTPS, input=json.dumps(asked))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["right"] is False
    assert told["restricted"] is False
    assert told["unknown client"].startswith("InvalidConfig: the server does not trust client_certificate")
    assert "Fingerprints did not match" in told["other server"]


def _fetch(server: Server, address: str) -> str:
    """Which container answers at a load balancer's address; "" where none does."""
    program = f"import urllib.request as u; print(u.urlopen('http://{address}/index.html', timeout=3).read().decode())"
    return server.as_client(sys.executable, "-I", "-c", program).stdout.strip()


def _make_certificate(path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, path.name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    path.with_suffix(".crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    path.with_suffix(".key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
