"""What a running manager says about mistakes that a vendor or an operator makes: what happened,
where, what to do."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer, StatusError
from cloudprovider.testing.fake import FakeCloud, FakeConfig, raises
from cloudprovider.testing.waiting import eventually
from controllers.app import CATALOG, ManagerError, parse
from controllers.manager import assembly, manager
from controllers.runtime.api import ClientBuilder, Unauthorized
from controllers.testing import Cluster, ManagerRun


@pytest.fixture
def provider() -> Iterator[FakeCloud]:
    with FakeCloud() as cloud:
        yield cloud


def problems(*flags: str) -> tuple[str, ...]:
    return parse(["--cloud-provider=acme", *flags], CATALOG).problems


def test_a_controller_that_its_flags_turn_off_does_not_run_alone() -> None:
    assert problems("--controllers=node-route-controller") == (
        "--controllers: no controller is left to run: node-route-controller needs --allocate-node-cidrs and "
        "--cluster-cidr",
    )
    assert problems("--controllers=route", "--allocate-node-cidrs", "--configure-cloud-routes=false") == (
        "--controllers: no controller is left to run: node-route-controller needs --configure-cloud-routes and "
        "--cluster-cidr",
    )
    assert problems("--controllers=route", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16") == ()
    assert problems("--controllers=route,cloud-node") == ()


def test_no_capability_for_the_only_controller(cluster: Cluster) -> None:
    with FakeCloud(FakeConfig(capabilities=("instances_v2",))) as cloud:
        run = ManagerRun(cluster.kubeconfig, cloud, ["--controllers=service-lb-controller"])
        with pytest.raises(ManagerError, match="no controller is left to run: the log lines above say why"):
            run.start()
        with pytest.raises(ManagerError):
            run.close()
    assert "service-lb-controller is off: provider fake offers no load balancers" in run.log


@pytest.mark.parametrize(
    ("user", "told"),
    [
        ({"token": "0123"}, "the token of user 'embedded' (context 'embedded') in the kubeconfig {path}"),
        ({"tokenFile": "t"}, "the token in {folder}/t, the tokenFile of user 'embedded' (context 'embedded') in the"),
        ({"username": "u", "password": "p"}, "the username and password of user 'embedded'"),
        ({}, "no credential: there is none for user 'embedded'"),
    ],
)
def test_a_refused_credential_is_named_and_not_shown(
    embedded_apiserver: EmbeddedAPIServer, tmp_path: Path, user: dict[str, str], told: str
) -> None:
    (tmp_path / "t").write_text("4567\n")
    path = embedded_apiserver.write_kubeconfig(tmp_path / "wrong")
    config = json.loads(path.read_text())
    config["users"][0]["user"] = user
    path.write_text(json.dumps(config))
    with ClientBuilder.from_options(str(path)) as clients, pytest.raises(Unauthorized) as failure:
        clients.rest("test").get("/api/v1/nodes")
    text = str(failure.value)
    assert text.startswith("GET /api/v1/nodes: 401 Unauthorized: Unauthorized; sent was ")
    assert told.format(path=path, folder=tmp_path) in text
    assert not any(secret in text for secret in ("0123", "4567"))


def test_an_api_server_that_does_not_answer(
    embedded_apiserver: EmbeddedAPIServer, provider: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "LOG_SECONDS", 0.2)
    monkeypatch.setattr(manager, "LOG_SECONDS", 0.2)
    path, url = embedded_apiserver.write_kubeconfig(tmp_path / "config"), embedded_apiserver.url
    embedded_apiserver.stop()
    run = ManagerRun(path, provider)
    starting = threading.Thread(target=run.start)
    starting.start()
    eventually(lambda: "The manager keeps trying" in run.log, 60, lambda: run.log)
    assert "nodes: list failed (attempt 1), retrying in 0." in run.log
    assert f"GET /api/v1/nodes: {url}: Connection refused" in run.log
    assert re.search(r"waiting \d s for the API server's first answer: nodes \(list: ", run.log)
    assert (
        f"Check that {url} is the API server's address (server: in the kubeconfig, or --master), that it runs"
        in run.log
    )
    assert run.manager is not None
    ready, live = (run.manager.health.endpoint(name) for name in ("readyz", "livez"))
    assert not all(check.ok for check in ready())
    assert all(check.ok for check in live())
    embedded_apiserver.start()
    starting.join(20)
    assert run.is_running
    assert all(check.ok for check in ready())
    run.close()


def test_the_embedded_server_names_what_it_serves(embedded_apiserver: EmbeddedAPIServer) -> None:
    create = embedded_apiserver.create
    wanted = r"embedded API server does not support objects of kind 'Pod'; known kinds are .*ConfigMap, .*Node,"
    with pytest.raises(StatusError, match=wanted) as failure:
        create({"kind": "Pod", "metadata": {"name": "a"}})
    assert failure.value.code == 501
    with pytest.raises(StatusError, match="does not support objects of kind None"):
        create({"metadata": {"name": "a"}})
    with pytest.raises(StatusError, match='namespaces "default" already exists') as failure:
        create({"kind": "Namespace", "metadata": {"name": "default"}})
    assert (failure.value.code, failure.value.reason) == (409, "AlreadyExists")
    with pytest.raises(KeyError, match=r"the embedded API server serves no 'deployments'; it serves .*configmaps, "):
        embedded_apiserver.get("deployments", "a")
    with pytest.raises(KeyError, match="there is no nodes a"):
        embedded_apiserver.get("nodes", "a")


def test_one_controller_has_one_name_and_a_load_balancer_one_line(
    cluster: Cluster, manager: ManagerRun, provider: FakeCloud
) -> None:
    service = cluster.expose("web")
    [address] = cluster.wait_until(lambda: service.addresses)
    [name] = [balancer.name for balancer in provider.console.load_balancers()]
    provider.faults.on("ensure_load_balancer", raises(), key="*broken*", times=1)
    broken = cluster.expose("broken")
    cluster.wait_until(lambda: broken.addresses)
    service.delete()
    cluster.wait_until(lambda: not service.exists)
    about = [line.partition("] ")[2] for line in manager.log.splitlines() if "default/web" in line]
    assert [line.partition(" in ")[0] for line in about] == [
        f"built the load balancer {name} of Service default/web",
        f"deleted the load balancer {name} of Service default/web",
    ]
    assert about[0].endswith(f" s: {address}")
    assert "] service-lb-controller: default/broken failed (attempt 1), retrying in " in manager.log
    for entry in CATALOG[:4]:
        assert f"] {entry.name} is running" in manager.log
