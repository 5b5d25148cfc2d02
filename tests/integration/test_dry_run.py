"""Plan mode over both API servers: the plan, then the real thing; row by row they are the same, and
the plan writes nothing."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import (
    AuthenticationV1TokenRequest,
    CoreV1Api,
    V1ConfigMap,
    V1ObjectMeta,
    V1TokenRequestSpec,
)
from kubernetes.client.exceptions import ApiException

from cloudprovider import CloudConfig, Interface, InvalidService, StopSignal, Throttled
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import FakeCloud, FakeConfig, new_provider, raises
from cloudprovider.testing.fake.loadbalancers import FakeLoadBalancers
from cloudprovider.testing.waiting import eventually
from cloudprovider.wellknown import LABEL_HANDS_OFF
from controllers.app import CATALOG, Context, ControllerEntry, ManagerError, PlanRun, parse
from controllers.nodelifecycle import reconcile
from controllers.plan.clients import DryRunError
from controllers.plan.describing import facets
from controllers.plan.rows import ASSIGNED_LATER, Kind, Outcome, Row
from controllers.runtime.api import MERGE_PATCH, ClientBuilder
from controllers.runtime.queue import WorkQueueCollector
from controllers.runtime.write import patch
from controllers.testing import Cluster as Kit
from controllers.testing.managerrun import QUICK, ROUTES, ManagerRun
from tests.integration.conftest import EMBEDDED, REAL, Cluster
from tests.lab.envtest.build import go_manager
from tests.lab.envtest.server import RealAPIServer
from tests.support.api import LEASE
from tests.support.failover.audit import WRITES, AuditLog
from tests.support.failover.cloudserver import CloudServer
from tests.support.process import Start
from tests.support.tiers import need

ALL = ("--controllers=*,pvlabel",)
OBJECTS = ("/api/v1/nodes", "/api/v1/services", "/api/v1/persistentvolumes")


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    machines = [
        {"name": f"n{n}", "labels": {"tier": "gold"}, "addresses": [["InternalIP", f"10.0.0.{n}"]]} for n in range(1, 6)
    ]
    with FakeCloud(FakeConfig.model_validate({"instances": machines})) as made:
        yield made


@pytest.fixture(autouse=True)
def sound(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What would be written reaches the caches by their watches, as the server's own events do: a
    new list that hides a fault of ours is none."""
    yield
    assert [one.getMessage() for one in caplog.get_records("call") if "informer failed" in one.getMessage()] == []


@pytest.fixture
def admin(api: Cluster, tmp_path: Path) -> Path:
    return Path(api.server.write_kubeconfig(tmp_path / "admin"))


@pytest.fixture
def kit(admin: Path) -> Iterator[Kit]:
    with Kit(admin) as made:
        yield made


def plan(
    kubeconfig: Path, provider: Interface, *flags: str, catalog: Any = CATALOG, times: tuple[str, ...] = QUICK
) -> Outcome:
    """One dry run in this process."""
    routes = ROUTES if provider.routes() is not None else ()
    argv = [f"--cloud-provider={provider.provider_name()}", f"--kubeconfig={kubeconfig}", *times, *routes, *ALL]
    parsed = parse([*argv, "--leader-elect=true", "--dry-run", *flags], catalog)
    assert parsed.options is not None, parsed.problems
    with ClientBuilder.from_options(str(kubeconfig)) as clients:
        outcome = PlanRun(parsed.options, provider, clients, catalog=catalog).run(threading.Event())
    assert outcome is not None
    return outcome


class Written:
    """Since it was made: what was written to the API server by managers, and what changed in the
    cloud."""

    def __init__(self, api: Cluster, cloud: FakeCloud) -> None:
        self._api, self._cloud = api, cloud
        self._audit = AuditLog(api.server.audit_log) if isinstance(api.server, RealAPIServer) else None
        self._version = "" if isinstance(api.server, RealAPIServer) else str(api.server.version)
        self._calls = len(cloud.calls.log())

    def nothing(self) -> None:
        """Assert that there is nothing, but for questions about permissions."""
        assert [call.method for call in self._cloud.calls.log()[self._calls :]] == []
        audit = self._audit
        if audit is None:
            assert isinstance(self._api.server, EmbeddedAPIServer)
            assert str(self._api.server.version) == self._version
            return
        self._api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "mark-"}})
        eventually(lambda: any(one.resource == "configmaps" for one in audit.read()))
        ours = [one for one in audit.read() if "cloud-controller-manager" in one.agent]
        assert ours, "the plan asked nothing, so this proves nothing"
        assert {one.resource for one in ours if one.verb in WRITES} <= {"selfsubjectaccessreviews"}


def facets_of(api: Cluster) -> dict[tuple[str, str], dict[tuple[str, str], Any]]:
    """All that rows may show of every object in the cluster."""
    found = {}
    for path in OBJECTS:
        kind = {"nodes": "Node", "services": "Service"}.get(path.rpartition("/")[2], "PersistentVolume")
        for item in api.items(path):
            namespace = item["metadata"].get("namespace", "")
            name = f"{namespace}/{item['metadata']['name']}".lstrip("/")
            found[kind, name] = dict(facets(item, kind))
    return found


def changes_between(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """By object, what each field became; {"": None} for an object that is gone."""
    changed: dict[tuple[str, str], dict[str, Any]] = {}
    for key in {*before, *after}:
        old, new = before.get(key, {}), after.get(key)
        if new is None:
            changed[key] = {"": None}
            continue
        fields = {field: new.get((action, field)) for action, field in {*old, *new}
                  if old.get((action, field)) != new.get((action, field))}  # fmt: skip
        if fields:
            changed[key] = fields
    return changed


def planned_changes(outcome: Outcome) -> dict[tuple[str, str], dict[str, Any]]:
    """The same, of the rows."""
    changed: dict[tuple[str, str], dict[str, Any]] = {}
    for row in of_cluster(outcome):
        subject = row.subject
        key = subject.kind, f"{subject.namespace}/{subject.name}".lstrip("/")
        fields = {change.field.removeprefix("taint "): change.after for change in row.changes}
        changed.setdefault(key, {}).update(fields if row.action != "delete" else {"": None})
    return changed


def of_cluster(outcome: Outcome) -> list[Row]:
    return [r for r in outcome.rows if r.kind == Kind.CHANGE and not r.action.endswith(("balancer", "route"))]


def actions(outcome: Outcome) -> set[tuple[str, str]]:
    return {(str(row.subject), row.action) for row in outcome.rows if row.kind == Kind.CHANGE}


def left_to_do(run: ManagerRun) -> list[object]:
    assert run.manager is not None
    return [one.key for queue in WorkQueueCollector.of(run.manager.metrics).queues() for one in queue.unfinished()]


def settled(api: Cluster, run: ManagerRun, done: Callable[[], bool]) -> None:
    """Wait until it is done, and then until the manager has written nothing for a while: a busy
    machine writes nothing for a while, too."""
    seen: list[Any] = []

    def quiet() -> bool:
        if not done():
            seen.clear()
        seen.append({path: sorted(i["metadata"]["resourceVersion"] for i in api.items(path)) for path in OBJECTS})
        return len(seen) > 8 and all(one == seen[-1] for one in seen[-8:])

    eventually(quiet, 60, lambda: run.log)


def volume(name: str) -> dict[str, Any]:
    source = {"awsElasticBlockStore": {"volumeID": name}}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def test_the_plan_is_what_the_real_thing_does_and_then_there_is_nothing(
    api: Cluster, admin: Path, kit: Kit, cloud: FakeCloud
) -> None:
    for name in ("n1", "n2", "n3", "n4"):
        kit.join(name)
    kit.expose("web")
    kit.expose("old")
    with ManagerRun(admin, cloud, ALL) as run:
        settled(api, run, lambda: not left_to_do(run))
    nothing = plan(admin, cloud)
    assert (nothing.code, nothing.rows) == (0, ())

    cloud.console.remove_instance("n3")
    cloud.console.set_shutdown("n4")
    cloud.console.change_instance("n1", labels={"tier": "silver"})
    kit.node("n3").mark_not_ready()
    kit.node("n4").mark_not_ready()
    kit.node("n2").patch({"metadata": {"labels": {"topology.kubernetes.io/zone": None}}})
    kit.join("n5")
    kit.expose("new")
    kit.service("old").delete()
    cloud.console.add_route("stray", "10.244.77.0/24", target_node="n77", cluster="test", foreign=False)
    cloud.console.add_volume("disk", zones=("zone-a",), region="region-1")
    api.create("/api/v1/persistentvolumes", volume("disk"))
    before, written = facets_of(api), Written(api, cloud)

    outcome = plan(admin, cloud)
    assert outcome.complete, (outcome.left, outcome.rows)
    assert outcome.code == 3
    written.nothing()
    assert actions(outcome) == {
        ("node/n5", "initialise"), ("node/n5", "set addresses"), ("node/n5", "set condition"),
        ("node/n1", "label"), ("node/n1", "annotate"), ("node/n2", "label"),
        ("node/n4", "taint"), ("node/n3", "delete"),
        ("route/10.244.5.0/24", "create route"), ("route/10.244.3.0/24", "delete route"),
        ("route/10.244.77.0/24", "delete route"),
        ("service/default/new", "create load balancer"), ("service/default/new", "add finalizer"),
        ("service/default/new", "set status"), ("service/default/new", "annotate"),
        ("service/default/old", "delete load balancer"), ("service/default/old", "remove finalizer"),
        ("service/default/old", "annotate"), ("service/default/old", "set status"),
        ("service/default/web", "retarget load balancer"), ("service/default/web", "annotate"),
        ("persistentvolume/disk", "label volume"),
    }  # fmt: skip
    rows = {(str(row.subject), row.action): row for row in outcome.rows}
    assert re.search(r"gone, [2-9] times: ", rows["node/n3", "delete"].note)  # three, where a witness was awaited
    retargeted = rows["service/default/web", "retarget load balancer"].changes[0]
    assert (retargeted.before, retargeted.after) == (("n1", "n2", "n3", "n4"), ("n1", "n2", "n4", "n5"))

    planned = planned_changes(outcome)
    address = planned["Service", "default/new"].pop("load balancer")
    assert address == (ASSIGNED_LATER,)
    planned["Service", "default/old"] = {"": None}  # its finalizer was the last

    def done() -> bool:
        changed = changes_between(before, facets_of(api))
        assert changed.get(("Service", "default/new"), {}).pop("load balancer", None)
        assert planned == changed
        return True

    calls = {record.sequence for record in cloud.calls.log()}
    with ManagerRun(admin, cloud, ALL) as run:
        eventually(lambda: not kit.node("n3").exists, 60, lambda: run.log)
        left = {"10.244.1.0/24", "10.244.2.0/24", "10.244.4.0/24", "10.244.5.0/24"}
        eventually(lambda: {one.destination_cidr for one in cloud.console.routes()} == left, 60, lambda: run.log)
        settled(api, run, done)
    assert done()
    journal = {
        (record.method, next(key for key in record.keys if "/" in key))
        for record in cloud.calls.log(changes_only=True)
        if record.sequence not in calls and not record.method.startswith("console.")
    }
    journal -= {
        ("create_route", "10.244.3.0/24"),  # for n3, and undone when n3 was deleted: nothing that lasts
        ("update_load_balancer", "default/new"),  # nodes changed after its creation, whose row has all of them
    }
    assert journal == {
        ("create_route", "10.244.5.0/24"), ("delete_route", "10.244.3.0/24"), ("delete_route", "10.244.77.0/24"),
        ("ensure_load_balancer", "default/new"), ("update_load_balancer", "default/web"),
        ("ensure_load_balancer_deleted", "default/old"),
    }  # fmt: skip

    again = plan(admin, cloud)
    assert (again.code, again.rows) == (0, ())


class Acme(FakeCloud):
    """Writes to the cluster while it is initialised, in every way that the host offers."""

    refused: str = ""
    read: str = ""
    token: int = 0

    def initialize(self, client_builder: Any, stop: Any) -> None:
        core = CoreV1Api(client_builder.client("acme"))
        made = V1ConfigMap(metadata=V1ObjectMeta(name="acme"), data={"a": "b"})
        core.create_namespaced_config_map("default", made)
        core.patch_namespaced_config_map("acme", "default", {"data": {"a": "c"}})
        self.read = (core.read_namespaced_config_map("acme", "default").data or {})["a"]
        core.patch_node("n1", {"metadata": {"labels": {"acme": "yes"}}})
        try:
            core.create_namespaced_service_account_token("default", "default", AuthenticationV1TokenRequest(
                spec=V1TokenRequestSpec(audiences=["x"])))  # fmt: skip
        except ApiException as error:
            self.token = error.status or 0
        try:
            client_builder.config("acme")
        except DryRunError as error:
            self.refused = str(error)


class Vendors:
    """A vendor's own controller: writes what no row has a name for, without queue and worker."""

    def __init__(self, clients: ClientBuilder) -> None:
        self._rest = clients.rest("acme-controller")
        self.lease = self.unguarded = ""
        self.begun = False

    def run(self, stop: StopSignal) -> None:
        body = {"spec": {"unschedulable": True}}
        patch(self._rest, "/api/v1/nodes/n1", body, MERGE_PATCH)
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        self._rest.request("POST", leases, body={"kind": "Lease", "metadata": {"name": "acme"}})
        try:
            raw = self._rest._transport
            guard = partial(self._rest._config.guard, "DELETE", "/api/v1/nodes/n1")
            raw.exchange("DELETE", "/api/v1/nodes/n1", b"", 0.0, guard)
        except DryRunError as error:
            self.unguarded = str(error)
        self.begun = True
        stop.wait()

    def health(self) -> list[tuple[str, bool, str]]:
        return []


def test_no_write_escapes_whoever_sends_it(api: Cluster, admin: Path, kit: Kit) -> None:
    kit.join("n1")
    made: list[Vendors] = []

    def construct(context: Context) -> Vendors:
        made.append(Vendors(context.clients))
        return made[0]

    own = ControllerEntry(name="acme-controller", construct=construct)
    with Acme(FakeConfig.model_validate({"instances": [{"name": "n1"}]})) as cloud:
        written = Written(api, cloud)
        outcome = plan(admin, cloud, catalog=[*CATALOG, own])
        written.nothing()
    assert (cloud.read, cloud.token) == ("c", 403)
    assert "ClientBuilder.client()" in cloud.refused
    assert made[0].unguarded == "DELETE /api/v1/nodes/n1: not sent, this is a dry run"
    found = {(row.controller, str(row.subject), row.action) for row in outcome.rows if row.kind == Kind.CHANGE}
    assert {
        ("acme", "configmap/default/acme", "create"), ("acme", "configmap/default/acme", "patch"),
        ("acme", "node/n1", "label"), ("acme-controller", "node/n1", "patch"),
        ("acme-controller", "lease/kube-system/acme", "create"), ("cloud-node-controller", "node/n1", "initialise"),
    } <= found  # fmt: skip
    [fields] = [row.changes for row in outcome.rows if (row.controller, row.action) == ("acme-controller", "patch")]
    assert [(one.field, one.after) for one in fields] == [("spec.unschedulable", "true")]
    assert outcome.code == 1  # the token that could not be given
    assert [(str(r.subject), r.action) for r in outcome.rows if r.kind == Kind.UNKNOWN] == [
        ("serviceaccount/default/default", "POST token")
    ]


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Path]:
    with EmbeddedAPIServer() as server:
        yield server.write_kubeconfig(tmp_path / "kubeconfig")


def test_what_is_held_back_and_what_could_not_be_asked_is_shown(
    embedded: Path, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "ALARM_AFTER", 0.5)
    with Kit(embedded) as kit:
        for name in ("n1", "n2"):
            kit.join(name, provider_id=f"fake://i-{name}").patch({"spec": {"taints": None}})
        kit.join("n3")
        kit.node("n1").mark_not_ready()
        cloud.console.remove_instance("n1")
        cloud.console.remove_instance("n2")
        cloud.faults.on("get_load_balancer", raises())
        cloud.faults.on("instances_metadata", raises(Throttled), key="n3")
        kit.expose("web")
        outcome = plan(embedded, cloud, "--dry-run-timeout=3s")
    [held] = [row for row in outcome.rows if row.kind == Kind.HELD_BACK]
    assert (str(held.subject), held.action) == ("node/n1", "delete")
    assert "the cloud calls 1 Ready nodes of zone" in held.note
    assert "the cloud said that its instance is gone, " in held.note
    unknown = {str(row.subject): row.note for row in outcome.rows if row.kind == Kind.UNKNOWN}
    assert "service/default/web" in unknown
    assert "node/n3" in unknown
    assert all(unknown.values())
    assert outcome.code == 1
    assert not [row for row in outcome.rows if row.kind == Kind.CHANGE and row.action == "delete"]


def test_a_node_that_is_left_alone_is_shown_and_nothing_is_to_be_done(embedded: Path, cloud: FakeCloud) -> None:
    with Kit(embedded) as kit:
        kit.join("n1", provider_id="fake://i-n1", labels={LABEL_HANDS_OFF: "true"}).patch({"spec": {"taints": None}})
        kit.node("n1").mark_not_ready()
        cloud.console.set_shutdown("n1")
        outcome = plan(embedded, cloud, "--dry-run-timeout=20s")
    [left] = [row for row in outcome.rows if row.action == "left alone"]
    assert (str(left.subject), left.kind) == ("node/n1", Kind.WARNING)
    assert f"label {LABEL_HANDS_OFF}" in left.note
    assert not [row for row in outcome.rows if row.action == "taint"]


DEFAULT_TIMES = ("--cluster-name=test", "--secure-port=0")
"""All periods as by default."""


@pytest.mark.row("M8")
@EMBEDDED
@pytest.mark.row("P1")
def test_a_service_that_the_provider_refuses_is_held_back_with_the_reason(
    api: Cluster, admin: Path, kit: Kit, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: object, _service: object) -> None:
        raise InvalidService("there is no UDP here")

    monkeypatch.setattr(FakeLoadBalancers, "check_service", refuse)
    kit.expose("web")
    outcome = plan(admin, cloud)
    assert (outcome.complete, outcome.code) == (True, 3), (outcome.left, outcome.rows)
    rows = [(row.kind, row.action, row.note) for row in outcome.rows if row.subject.name == "web"]
    assert (Kind.HELD_BACK, "refused", "there is no UDP here") in rows
    assert "create load balancer" not in {action for _, action, _ in rows}
    assert cloud.console.load_balancers() == []


def test_with_default_flags_the_plan_has_what_only_a_later_look_would_do(
    api: Cluster, admin: Path, kit: Kit, cloud: FakeCloud
) -> None:
    """What a manager does within its first ten minutes on a quiet cluster, and not in its first
    pass."""
    kit.join("n1")
    kit.expose("web")
    with ManagerRun(admin, cloud, ALL) as run:
        settled(api, run, lambda: not left_to_do(run))
    kit.join("n2")
    api.patch("/api/v1/nodes/n2", {"spec": {"taints": None, "providerID": "fake://i-n2"}})
    cloud.console.set_shutdown("n2")
    kit.node("n2").mark_not_ready()
    [doomed] = [one for one in cloud.console.load_balancers() if one.service.endswith("/web")]
    cloud.console.delete_load_balancer(doomed.name)
    cloud.console.add_route("old", "10.244.77.0/24", target_node="vpn-box", cluster="test", foreign=False)
    cloud.console.add_route("hole", "10.244.78.0/24", blackhole=True, cluster="test", foreign=False)
    cloud.console.add_route("theirs", "10.245.77.0/24", target_node="vpn-box", cluster="test", foreign=False)
    written = Written(api, cloud)
    outcome = plan(admin, cloud, times=DEFAULT_TIMES)
    written.nothing()
    assert (outcome.complete, outcome.code) == (True, 3), (outcome.left, outcome.rows)
    found = actions(outcome)
    assert {("route/10.244.77.0/24", "delete route"), ("route/10.244.78.0/24", "delete route")} <= found
    assert ("node/n2", "taint") in found
    assert ("service/default/web", "create load balancer") in found
    assert "route/10.245.77.0/24" not in {subject for subject, _ in found}


@pytest.mark.row("M8")
@pytest.mark.parametrize("gone", [True, False])
def test_what_is_due_after_the_time_of_the_plan_makes_it_incomplete(
    embedded: Path, cloud: FakeCloud, gone: bool
) -> None:
    """The second answer comes a monitor period after the first: for a deletion, and for the
    out-of-service taint."""
    with Kit(embedded) as kit:
        kit.join("n1", provider_id="fake://i-n1").patch({"spec": {"taints": None}})
        (cloud.console.remove_instance if gone else cloud.console.set_shutdown)("n1")
        kit.node("n1").mark_not_ready()
        flags = ("--controllers=cloud-node-lifecycle", "--node-out-of-service-taint", "--node-monitor-period=90s")
        outcome = plan(embedded, cloud, *flags, "--dry-run-timeout=3s", times=DEFAULT_TIMES)
    assert (outcome.complete, outcome.code) == (False, 1)
    assert "n1" in str(outcome.left)


_LOUD = """
import ctypes, os, subprocess, sys, threading
from cloudprovider import register_cloud_provider
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from controllers.app import main

class Loud(FakeCloud):
    def say(self, what):
        print(f"connected ({what})")
        os.write(1, b"from the descriptor\\n")
        ctypes.CDLL(None).puts(b"held back by C")
        subprocess.run(["echo", "from a child"], check=True)

    def provider_name(self):
        return "loud"

    def initialize(self, client_builder, stop):
        self.say("initialize")
        super().initialize(client_builder, stop)
        threading.Thread(target=self.on, args=(stop,), daemon=True).start()

    def on(self, stop):
        while not stop.wait(0.01):
            print("and on", flush=True)

    def load_balancer(self):
        self.say("load_balancer")
        return super().load_balancer()

def loud(config):
    made = Loud(FakeConfig.model_validate({}))
    made.say("factory")
    return made

register_cloud_provider("loud", loud)
sys.exit(main())
"""


@pytest.mark.row("M12")
@pytest.mark.parametrize("form", ["json", "table"])
def test_the_program_prints_the_plan_alone_and_says_it_by_its_exit_code(
    embedded: Path, start: Start, form: str
) -> None:
    flags = (f"--kubeconfig={embedded}", "--cloud-provider=loud", "--controllers=service", "--cluster-name=x")
    with Kit(embedded) as kit:
        kit.expose("web")
        command = (sys.executable, "-c", _LOUD)
        found = start(*flags, "--dry-run", f"--dry-run-output={form}", command=command)
        assert found.ended() == 3, found.log
    printed = found.output()
    if form == "json":
        content = json.loads(printed)
        assert [row["action"] for row in content["rows"] if row["kind"] == "change"] == [
            "add finalizer", "annotate", "create load balancer", "set status",
        ]  # fmt: skip
        assert (content["complete"], content["exitCode"], content["provider"]) == (True, 3, "loud")
    else:
        assert printed.startswith("TO DO\n")
        assert printed.endswith("Nothing was written.\n")
    assert "] dry run: service-lb-controller is running" in found.log
    for said in (
        "connected (factory)",
        "connected (initialize)",
        "from the descriptor",
        "held back by C",
        "from a child",
    ):
        assert said in found.log
        assert said not in printed


def test_without_an_api_server_nothing_is_planned_and_the_time_is_bounded(tmp_path: Path, cloud: FakeCloud) -> None:
    server = EmbeddedAPIServer()
    server.start()
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    server.stop()
    with pytest.raises(ManagerError, match=r"after 1 s .--dry-run-timeout. the controllers do not run yet"):
        plan(kubeconfig, cloud, "--dry-run-timeout=1s")


@pytest.mark.parametrize("api", [REAL], indirect=True)
def test_beside_the_go_manager_that_leads(api: Cluster, admin: Path, kit: Kit, tmp_path: Path, start: Start) -> None:
    """Go's program, built from the public modules, has done all that there was to do, and still
    leads."""
    program = need("Go's manager", go_manager)
    machines = [{"name": name, "addresses": [["InternalIP", f"10.0.0.{name[1]}"]]} for name in ("n1", "n2")]
    config = FakeConfig.model_validate({"provider": "bench", "instances": machines})
    with FakeCloud(config) as cloud, CloudServer(cloud) as server:
        (tmp_path / "cloud.json").write_text(json.dumps({"server": server.url, "caller": "go"}))
        flags = (f"--kubeconfig={admin}", "--cloud-provider=bench", f"--cloud-config={tmp_path / 'cloud.json'}")
        nodes = [kit.join(name) for name in ("n1", "n2")]
        kit.expose("web")
        period = "--route-reconciliation-period=1s"
        go = start(*flags, *ROUTES, "--cluster-name=test", period, command=(str(program),))
        eventually(
            lambda: all(one.conditions.get("NetworkUnavailable") == "False" for one in nodes), 60, lambda: go.log
        )
        eventually(lambda: all(one.is_initialized for one in nodes), 60, lambda: go.log)
        eventually(lambda: kit.service("web").json["status"]["loadBalancer"].get("ingress"), 60, lambda: go.log)
        lease = api.get(LEASE)["spec"]["holderIdentity"]
        changed = {call.method for call in cloud.calls.log(changes_only=True)}
        outcome = plan(admin, new_provider(CloudConfig.read(cloud.share(tmp_path / "plan.json"))))
        assert {call.method for call in cloud.calls.log(changes_only=True)} == changed
        assert api.get(LEASE)["spec"]["holderIdentity"] == lease
    assert outcome.complete, (outcome.left, outcome.rows)
    assert actions(outcome) == {
        ("service/default/web", "ensure load balancer"), ("service/default/web", "annotate"),
        ("node/n1", "annotate"), ("node/n2", "annotate"),
    }  # fmt: skip
