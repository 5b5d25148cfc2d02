"""Where the story plays: the embedded cluster, the cloud in its file, and the managers as processes of their own.

`look` gathers what the viewer sees from all of them: nodes from an informer, the rest from the API server and the
cloud's console. Nothing here tells a manager anything: it sees its flags, the cluster and the cloud.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path
from types import TracebackType

from cloudprovider.testing.fake import FakeCloud, read_config
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory
from controllers.runtime.metrics import Metrics
from livedemo.cluster import CLUSTER_CIDR, Cluster, story_cloud, write_config
from livedemo.manager import ManagerProcess
from livedemo.nodes import NodeRows
from livedemo.scene import EventRow, ManagerRow, Role, Scene, ServiceRow
from livedemo.script import LOOK, Failed
from livedemo.view import View

START_PATIENCE = 40.0
MONITOR_SECONDS = 2
"""--node-monitor-period: the time between the two answers that must say that a machine is gone."""

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 6, 4, 1
"""Shorter than in production (15, 10, 2), so that nobody has to wait long for a new leader."""


class StoryStage:
    """A context manager: cluster and cloud live inside it, and no manager outlives it."""

    def __init__(self, directory: Path, machines: list[str], stumble: str) -> None:
        config = write_config(story_cloud(machines, stumble), directory / "cloud.json")
        settings = read_config(config.read_bytes(), str(config))
        self.cloud = FakeCloud(settings.model_copy(update={"state": str(directory / settings.state)}), caller="demo")
        self.cluster = Cluster(directory)
        self.managers: list[ManagerProcess] = []
        self._config = config
        self._nodes = NodeRows()
        self._services: dict[str, ServiceRow] = {}

    def __enter__(self) -> StoryStage:
        self.cluster.__enter__()
        metrics = Metrics()
        self._clients = ClientBuilder.from_options(kubeconfig=str(self.cluster.kubeconfig), metrics=metrics)
        self._informers = InformerFactory(self._clients.rest("demo"), metrics=metrics)
        self._nodes.watch(self._informers)
        self._informers.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for manager in self.managers:
            manager.terminate()
        for manager in self.managers:
            manager.stop()
        self._informers.stop()
        self._clients.close()
        self.cluster.__exit__(kind, error, trace)
        self.cloud.close()

    # ---- managers

    def add_manager(self, name: str) -> ManagerProcess:
        """A manager that is not started yet."""
        manager = ManagerProcess(name, self._flags())
        self.managers.append(manager)
        return manager

    def wait_for_leader(self, view: View) -> None:
        """Until every manager is ready and one of them leads. Raises Failed."""
        deadline = time.monotonic() + START_PATIENCE
        while self.leader() is None or not all(manager.ready() for manager in self.managers):
            if time.monotonic() > deadline:
                raise Failed(f"there was no leader after {START_PATIENCE:g} s{self.excuse()}")
            view.show(self.look())
            time.sleep(LOOK)
        view.show(self.look())

    def leader(self) -> ManagerProcess | None:
        """The manager that holds the Lease; None when nobody does that still runs."""
        holder, _ = self._look_at_lease()
        running = (manager for manager in self.managers if manager.exit_code is None)
        return next((manager for manager in running if manager.identity and manager.identity == holder), None)

    def standby(self) -> ManagerProcess | None:
        """A manager that runs and does not lead."""
        leader = self.leader()
        return next((one for one in self.managers if one.exit_code is None and one is not leader), None)

    def _flags(self) -> list[str]:
        return [
            "--cloud-provider=fake",
            f"--cloud-config={self._config}",
            f"--kubeconfig={self.cluster.kubeconfig}",
            "--cluster-name=demo",
            "--leader-elect=true",
            f"--leader-elect-lease-duration={LEASE_SECONDS}s",
            f"--leader-elect-renew-deadline={RENEW_SECONDS}s",
            f"--leader-elect-retry-period={RETRY_SECONDS}s",
            "--secure-port=0",
            "--allocate-node-cidrs",
            f"--cluster-cidr={CLUSTER_CIDR}",
            f"--node-monitor-period={MONITOR_SECONDS}s",
            "--health-bind-address=127.0.0.1:0",
            "--logging-format=json",
        ]

    # ---- the present moment

    def look(self) -> Scene:
        """See `script.Stage`."""
        for manager in self.managers:
            if manager.exit_code is not None and not manager.told_to_end:
                raise Failed(f"{manager.name} ended with exit code {manager.exit_code}{manager.last_words()}")
        changes = Counter(call.caller.process for call in self.cloud.calls.log(changes_only=True))
        return Scene(
            elapsed=self._nodes.elapsed(),
            nodes=self._nodes.rows(),
            services=self._look_at_services(),
            managers=self._look_at_managers(changes),
            events=self._look_at_events(),
            routes={route.destination_cidr: route.target_node for route in self.cloud.console.routes()},
            writers=self._look_at_writers(),
        )

    def excuse(self) -> str:
        """The managers' last warnings."""
        return "".join(f"\n  {one.name}, last lines:{one.last_words()}" for one in self.managers if one.pid)

    def _look_at_lease(self) -> tuple[str, float]:
        """Who holds the Lease, and for how many seconds more if it is not renewed."""
        try:
            spec = self.cluster.server.get("leases", "cloud-controller-manager", "kube-system")["spec"]
        except KeyError:
            return "", 0.0
        renewed = datetime.fromisoformat(spec["renewTime"]).timestamp()
        return spec.get("holderIdentity") or "", renewed + spec["leaseDurationSeconds"] - time.time()

    def _look_at_managers(self, changes: Mapping[int, int]) -> list[ManagerRow]:
        holder, left = self._look_at_lease()
        rows = []
        for one in self.managers:
            holds = bool(one.identity) and one.identity == holder
            note = f"Lease ends in {math.ceil(left)} s" if holds and one.was_killed and left > 0 else ""
            if one.pid:
                rows.append(ManagerRow(one.name, one.pid, _role(one, holds), changes.get(one.pid, 0), note))
        return rows

    def _look_at_writers(self) -> list[str]:
        names = {manager.pid: manager.name for manager in self.managers}
        moments = [
            (moment, names[call.caller.process])
            for call in self.cloud.calls.log(changes_only=True)
            for moment in (call.sequence, call.finished)
            if moment is not None and call.caller.process in names
        ]
        return [name for name, _ in groupby(name for _, name in sorted(moments))]

    def _look_at_services(self) -> list[ServiceRow]:
        targets = {one.service: len(one.backends) for one in self.cloud.console.load_balancers()}
        there = set()
        for service in self.cluster.server.list("services", "default"):
            if service["spec"].get("type") != "LoadBalancer":
                continue
            name = service["metadata"]["name"]
            there.add(name)
            ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or []
            address = ", ".join(one.get("ip", "") for one in ingress)
            self._services[name] = ServiceRow(name, address, targets.get(f"default/{name}"))
        for name in self._services.keys() - there:
            self._services[name] = ServiceRow(name, "", targets.get(f"default/{name}"), deleted=True)
        return list(self._services.values())

    def _look_at_events(self) -> list[EventRow]:
        found = sorted(self.cluster.server.list("events"), key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [
            EventRow(
                type=event["type"],
                reason=event["reason"],
                about="{kind}/{name}".format(**event["involvedObject"]),
                message=event["message"],
            )
            for event in found
        ]


def _role(manager: ManagerProcess, holds: bool) -> Role:
    if manager.was_killed:
        return Role.KILLED
    if manager.exit_code is not None:
        return Role.ENDED
    if manager.told_to_end:
        return Role.DRAINING
    if holds:
        return Role.LEADER
    return Role.STANDBY if manager.ready() else Role.STARTING
