"""Admission webhooks of a running manager, called by the real API server.

It reaches the webhook server by our Service's name, through a Service of type ExternalName, so that
what is shipped is what is tried.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider import ClientBuilder, CloudProviderError, DiskNotFound, Interface, PVLabeler, StopSignal
from cloudprovider.helpers import key_of
from cloudprovider.internal import certificates
from cloudprovider.testing.waiting import eventually
from controllers.app import CATALOG, WEBHOOKS, WebhookEntry
from controllers.cli.rbac import manifest
from controllers.manager.permissions import common_rules
from controllers.registration.entry import enabled
from controllers.testing.managerrun import ManagerRun, Program
from controllers.webhooks import AdmissionRequest, Answer, Handler, Match, Webhook, allow, deny
from controllers.webhooks.rbac_rules import NAME, NAMESPACE, WEBHOOK_RULES, policy_for
from controllers.webhooks.rbac_rules import SECRET as EMPTY_SECRET
from tests.integration.conftest import Cluster
from tests.lab.envtest.server import RESTRICTED_USER, RealAPIServer
from tests.support.api import API, MERGE, STRATEGIC
from tests.support.https import context, free_port
from tests.support.rights import POLICIES, created, user

pytestmark = pytest.mark.real

VOLUMES: Final = "/api/v1/persistentvolumes"
SERVICES: Final = f"/api/v1/namespaces/{NAMESPACE}/services"
SECRET: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
SERVER_NAME: Final = f"{NAME}.{NAMESPACE}.svc"


class Disks(Interface, PVLabeler):
    """A cloud whose disks all lie in one place, but for those named here."""

    def __init__(self, failing: Mapping[str, CloudProviderError] | None = None) -> None:
        self._failing = dict(failing or {})
        self.initialized = 0

    def provider_name(self) -> str:
        return "disks"

    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        self.initialized += 1

    def pv_labeler(self) -> PVLabeler:
        return self

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        if error := self._failing.get(key_of(pv)):
            raise error
        return {ZONE: "z-1__z-2", REGION: "r-1"}


class NoPeanuts(Handler):
    """A vendor's own webhook: checks the names of Services."""

    def handle(self, request: AdmissionRequest) -> Answer:
        if "peanut" in request.name:
            return deny(f"{request.user or 'nobody'} may not: no peanuts", code=418)
        return allow(warnings=["checked for peanuts"])


PEANUTS: Final = WebhookEntry(
    webhook=Webhook(
        name="no-peanuts", path="/peanuts", matches=(Match(resource="services", operations=("CREATE", "UPDATE")),)
    ),
    construct=lambda _context: NoPeanuts(),
)


class Hooked:
    """A cluster whose API server can reach two webhook servers."""

    def __init__(self, api: Cluster, kubeconfig: Path, ports: Sequence[int]) -> None:
        self.api, self.kubeconfig, self.ports = api, kubeconfig, ports

    @contextmanager
    def replicas(
        self, disks: Disks, *flags: str, count: int = 1, webhooks: str = "--webhooks=*"
    ) -> Iterator[list[ManagerRun]]:
        """Managers that serve every webhook; the first one leads."""
        with ExitStack() as ends:
            yield [
                ends.enter_context(
                    ManagerRun(
                        self.kubeconfig,
                        disks,
                        [
                            "--leader-elect=true",
                            "--controllers=pvlabel",
                            webhooks,
                            "--webhook-bind-address=127.0.0.1",
                            f"--webhook-secure-port={port}",
                            *flags,
                        ],
                        program=Program(webhooks=[*WEBHOOKS, PEANUTS]),
                    )
                )
                for port in self.ports[:count]
            ]

    def configure(self, kind: str, webhook: Webhook, port: int, *, policy: str = "Ignore") -> None:
        """Write the configuration, without any CA."""
        service = {"namespace": NAMESPACE, "name": NAME, "path": webhook.path, "port": port}
        [match] = webhook.matches
        rule = {"apiGroups": [match.group], "apiVersions": [match.version], "scope": "*"}
        self.api.create(
            f"{POLICIES}/{kind}configurations",
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": f"{kind[0].upper()}{kind[1:-7]}WebhookConfiguration",
                "metadata": {"name": NAME},
                "webhooks": [
                    {
                        "name": f"{webhook.name}.cloud-controller-manager.local",
                        "clientConfig": {"service": service},
                        "rules": [{**rule, "resources": [match.resource], "operations": list(match.operations)}],
                        "failurePolicy": policy,
                        "sideEffects": "None",
                        "timeoutSeconds": 5,
                        "admissionReviewVersions": ["v1"],
                    }
                ],
            },
        )

    def lead_to(self, port: int) -> None:
        """Have the API server call this replica."""
        path = f"{POLICIES}/mutatingwebhookconfigurations/{NAME}"
        [webhook] = self.api.get(path)["webhooks"]
        change = {
            "name": webhook["name"],
            "clientConfig": {"service": webhook["clientConfig"]["service"] | {"port": port}},
        }
        self.api.patch(path, {"webhooks": [change]}, STRATEGIC)

    def bundle(self, kind: str = "mutatingwebhook") -> str:
        [webhook] = self.api.get(f"{POLICIES}/{kind}configurations/{NAME}")["webhooks"]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode()

    def served(self) -> str:
        """The Secret's certificate."""
        return base64.b64decode(self.api.get(SECRET)["data"]["tls.crt"]).decode()

    def tried(self, name: str) -> dict[str, Any]:
        """A volume as it would be stored; nothing is."""
        return self.api.create(f"{VOLUMES}?dryRun=All", volume(name))

    def own(self) -> API:
        """The API with the manager's own rights."""
        real = self.api.server
        assert isinstance(real, RealAPIServer)
        return API(real.url, real.restricted_token, real.ca_file)

    def clean(self) -> None:
        for kind in ("mutatingwebhook", "validatingwebhook"):
            self.api.delete(f"{POLICIES}/{kind}configurations/{NAME}")
        self.api.delete(SECRET)


@pytest.fixture
def hooked(real_api_server: RealAPIServer, tmp_path: Path) -> Iterator[Hooked]:
    real = real_api_server
    kubeconfig = real.write_kubeconfig(tmp_path / "kubeconfig", token=real.restricted_token)
    with ExitStack() as ends:
        api = Cluster(real, kubeconfig, real.ca_file)
        api.clear()
        ends.callback(api.clear)
        ends.enter_context(permitted(api, API(real.url, real.restricted_token, real.ca_file)))
        ends.enter_context(created(api, yaml.safe_load_all(policy_for(RESTRICTED_USER))))
        service = {"metadata": {"name": NAME}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        api.create(SERVICES, service)
        ends.callback(api.close)
        made = Hooked(api, kubeconfig, [free_port(), free_port()])
        ends.callback(made.clean)
        api.create(SECRET.rpartition("/")[0], yaml.safe_load(EMPTY_SECRET))
        yield made


@contextmanager
def permitted(admin: API, own: API) -> Iterator[None]:
    """The user of `own` may do what our manifest grants for this controller and webhooks, and
    nothing else."""
    text = manifest(enabled(("pvlabel",), CATALOG), common=common_rules() + WEBHOOK_RULES)
    documents = [one for one in yaml.safe_load_all(text) if one["kind"] != "ServiceAccount"]
    for document in documents:
        document["metadata"]["name"] = "webhook-test"
        if "roleRef" in document:
            document["roleRef"]["name"] = "webhook-test"
            document["subjects"] = [user(RESTRICTED_USER)]
    with created(admin, documents):
        eventually(lambda: (own.request("GET", VOLUMES)[0], own.request("GET", SECRET)[0]) == (200, 404), 60)
        assert own.request("GET", SECRET.rpartition("/")[0])[0] == 403
        yield


def volume(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "nfs": {"server": "10.0.0.1", "path": "/exports"},
        },
    }


def is_labelled(found: Mapping[str, Any]) -> bool:
    if not found["metadata"].get("labels"):
        return False
    assert found["metadata"]["labels"] == {ZONE: "z-1__z-2", REGION: "r-1"}
    [term] = found["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    allowed = {one["key"]: one["values"] for one in term["matchExpressions"]}
    assert allowed == {ZONE: ["z-1", "z-2"], REGION: ["r-1"]}
    return True


def first_event(api: Cluster, name: str, since: str) -> tuple[str, dict[str, Any]]:
    """The first change of this volume that a watch from that version on shows."""
    host, _, port = api.url.rpartition("//")[2].rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=context(api.ca_file))
    path = f"{VOLUMES}?watch=1&resourceVersion={since}&fieldSelector=metadata.name={name}&timeoutSeconds=20"
    connection.request("GET", path, headers={"Authorization": f"Bearer {api.token}"})
    try:
        event = json.loads(connection.getresponse().readline())
        return event["type"], event["object"]
    finally:
        connection.close()


@pytest.mark.row("M5")
def test_volumes_are_labelled_before_they_are_stored_by_either_replica(hooked: Hooked) -> None:
    api = hooked.api
    webhook = WEBHOOKS[0].webhook
    hooked.configure("mutatingwebhook", webhook, hooked.ports[0])
    disks = Disks()
    with hooked.replicas(disks, count=2) as (leader, standby):
        eventually(lambda: is_labelled(hooked.tried("probe")), 60, lambda: leader.log)
        assert api.find(f"{VOLUMES}/probe") is None

        before = api.get(VOLUMES)["metadata"]["resourceVersion"]
        created = api.create(VOLUMES, volume("first"))
        assert is_labelled(created)
        kind, seen = first_event(api, "first", before)
        assert kind == "ADDED"
        assert is_labelled(seen)
        assert seen["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]

        hooked.lead_to(hooked.ports[1])  # the standby's turn, with the same certificate
        asked = partial(standby.metric, "cloud_provider_webhook_request_total", code="200", webhook=webhook.name)
        eventually(lambda: is_labelled(hooked.tried("probe")) and asked() >= 1, 60, lambda: standby.log)
        assert [one.metric("leader_election_master_status") for one in (leader, standby)] == [1, 0]
        assert "PRIVATE KEY" not in hooked.bundle()
        [first, second] = (served_certificate(port) for port in hooked.ports)
        assert first == second
        assert leader.metric("cloud_provider_webhook_request_duration_seconds_count", code="200") >= 2

        assert standby.metric("running_managed_controllers") == 0
        leader.stop()  # and the standby goes on with the provider that it has
        eventually(lambda: standby.metric("running_managed_controllers") == 1, 60, lambda: standby.log)
        assert is_labelled(hooked.tried("probe"))
        assert disks.initialized == 2
        assert "missing permission" not in standby.log
    assert api.events_of("first") == [], "the controller had nothing to do"
    _the_controller_does_it_while_the_webhook_is_down(hooked)


def _the_controller_does_it_while_the_webhook_is_down(hooked: Hooked) -> None:
    api = hooked.api
    assert "nodeAffinity" not in api.create(VOLUMES, volume("later"))["spec"]
    with hooked.replicas(Disks(), webhooks="--webhooks=") as [manager]:
        eventually(lambda: is_labelled(api.get(f"{VOLUMES}/later")), 60, lambda: manager.log)
        eventually(lambda: api.reasons("later") == ["LabelledVolume"], 60)
        assert manager.manager is not None
        assert manager.manager.webhook_address is None


def test_a_vendors_own_webhook_refuses_and_a_cloud_that_cannot_answer_is_what_the_policy_says(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = hooked.api
    old = ending_pair(monkeypatch)
    api.patch(SECRET, {"data": data_of(old)}, MERGE)  # so that it is renewed before it is first used
    disks = Disks({"lost": DiskNotFound("no disk lost"), "ill": CloudProviderError("the cloud is ill")})
    hooked.configure("validatingwebhook", PEANUTS.webhook, hooked.ports[0], policy="Fail")
    hooked.configure("mutatingwebhook", WEBHOOKS[0].webhook, hooked.ports[0])
    with hooked.replicas(disks, "--webhook-volume-failure-policy=Fail", "--leader-elect=false") as [manager]:
        spec = {"ports": [{"port": 80}]}

        def refused(name: str) -> str:
            status, told = api.request("POST", SERVICES, {"metadata": {"name": name}, "spec": spec})
            return f"{status} {told.get('message')}"

        eventually(lambda: "no peanuts" in refused("peanut-butter"), 60, lambda: manager.log)
        assert refused("peanut-butter").startswith("418 admission webhook")
        api.create(SERVICES, {"metadata": {"name": "butter"}, "spec": spec})
        api.delete(f"{SERVICES}/butter")

        eventually(lambda: is_labelled(hooked.tried("probe")), 60, lambda: manager.log)
        assert certificate_in(old) not in hooked.served()
        for kind in ("mutatingwebhook", "validatingwebhook"):
            assert hooked.bundle(kind).count("BEGIN CERTIFICATE") == 2, "the old one is trusted beside the new one"
            assert certificate_in(old) in hooked.bundle(kind)
        for name, code, text in (("lost", 422, "no disk lost"), ("ill", 503, "the cloud is ill")):
            status, told = api.request("POST", VOLUMES, volume(name))
            assert (status, text in told["message"]) == (code, True), told
            assert api.find(f"{VOLUMES}/{name}") is None


def ending_pair(monkeypatch: pytest.MonkeyPatch) -> str:
    """A self-signed certificate that ends in ten days, with its key."""
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "LIFETIME", timedelta(days=10))
        return certificates.issue(SERVER_NAME, [SERVER_NAME], groups=[certificates.MADE_BY]).text.decode()


def certificate_in(pair: str) -> str:
    return pair.partition("-----BEGIN PRIVATE KEY-----")[0].strip()


def data_of(pair: str) -> dict[str, str]:
    """A Secret's data with this pair."""
    certificate, begin, key = pair.partition("-----BEGIN PRIVATE KEY-----")
    data = {"tls.crt": certificate, "tls.key": begin + key}
    return {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}


def served_certificate(port: int) -> bytes:
    """What the webhook server shows to whoever asks for our Service."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    with context().wrap_socket(plain, server_hostname=SERVER_NAME) as tls:
        found = tls.getpeercert(binary_form=True)
    assert found is not None
    return found


@pytest.mark.row("X11")
@pytest.mark.parametrize("kind", ["mutatingwebhook", "validatingwebhook"])
def test_the_manager_may_write_the_ca_bundle_and_nothing_else(hooked: Hooked, kind: str) -> None:
    api, own = hooked.api, hooked.own()
    hooked.configure(kind, WEBHOOKS[0].webhook, hooked.ports[0])
    path = f"{POLICIES}/{kind}configurations/{NAME}"
    [before] = api.get(path)["webhooks"]
    name, ca = before["name"], base64.b64encode(ending_pair_certificate().encode()).decode()
    with_ca = before | {"clientConfig": before["clientConfig"] | {"caBundle": ca}}

    def tried(by: API, patch: Any, content_type: str) -> int:
        return by.request("PATCH", f"{path}?dryRun=All", patch, content_type)[0]

    def one(**changes: Any) -> dict[str, Any]:
        return {"webhooks": [{"name": name, **changes}]}

    every = [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]
    service = before["clientConfig"]["service"]
    refused: list[tuple[Any, str]] = [
        (one(rules=every), STRATEGIC),
        (one(clientConfig={"url": "https://203.0.113.1/", "service": None}), STRATEGIC),
        (one(clientConfig={"caBundle": ca, "service": service | {"name": "another"}}), STRATEGIC),
        (one(clientConfig={"caBundle": ca, "service": service | {"path": "/other"}}), STRATEGIC),
        (one(failurePolicy="Fail"), STRATEGIC),
        (one(timeoutSeconds=30), STRATEGIC),
        (one(matchConditions=[{"name": "never", "expression": "false"}]), STRATEGIC),
        (one(namespaceSelector={"matchLabels": {"a": "b"}}), STRATEGIC),
        (one(sideEffects="NoneOnDryRun"), STRATEGIC),
        ({"webhooks": [with_ca, with_ca | {"name": "second.example.com", "rules": every}]}, MERGE),
        ({"webhooks": [with_ca | {"name": "renamed.example.com"}]}, MERGE),
        ({"webhooks": []}, MERGE),
        ({"webhooks": None}, MERGE),
        ({"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "kube-system/mine"}}}, MERGE),
        ({"metadata": {"labels": {"a": "b"}}}, MERGE),
        ({"metadata": {"finalizers": ["example.com/stay"]}}, MERGE),
        ({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}}, MERGE),
    ]
    eventually(lambda: tried(own, refused[0][0], refused[0][1]) == 422, 60, "the policy is not in force")
    for patch, content_type in refused:
        assert tried(own, patch, content_type) == 422, patch
        assert tried(api, patch, content_type) == 200, f"others are not touched: {patch}"
    for verb, place, body in (("DELETE", path, None), ("POST", path.rpartition("/")[0], {"metadata": {"name": "x"}})):
        assert own.request(verb, place, body)[0] == 403
    assert own.request("PATCH", path, one(clientConfig={"caBundle": ca}), STRATEGIC)[0] == 200
    assert api.get(path)["webhooks"] == [with_ca]
    assert own.request("PATCH", path, {"webhooks": [before]}, MERGE)[0] == 200, "and take it away again"


@pytest.mark.row("X11")
def test_the_manager_makes_no_secret_and_no_other_one_is_its_own(hooked: Hooked) -> None:
    own = hooked.own()
    secrets = SECRET.rpartition("/")[0]
    token = {"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token"}
    assert own.request("POST", secrets, token)[0] == 403
    assert own.request("PATCH", f"{secrets}/bootstrap-token-abcdef", {"stringData": {"a": "b"}}, MERGE)[0] == 403
    assert own.request("PATCH", SECRET, {"stringData": {"a": "b"}}, MERGE)[0] == 200
    assert own.request("PATCH", SECRET, {"type": "bootstrap.kubernetes.io/token"}, MERGE)[0] == 422


def ending_pair_certificate() -> str:
    return certificates.issue(SERVER_NAME, [SERVER_NAME]).text.decode().partition("-----BEGIN PRIVATE KEY-----")[0]
