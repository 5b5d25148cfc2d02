"""Where the story plays: the embedded cluster, the cloud in its file, and the managers as processes of their own.

`look` gathers what the viewer sees from all of them: nodes from an informer, the rest from the API server and the
cloud's console. Nothing here tells a manager anything: it sees its flags, the cluster and the cloud.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from cloudprovider.testing.fake import FakeCloud, read_config
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory
from controllers.runtime.metrics import Metrics
from livedemo.cluster import CLUSTER_CIDR, Cluster, story_cloud, write_config
from livedemo.manager import ManagerProcess
from livedemo.nodes import NodeRows
from livedemo.scene import EventRow, Figures, ManagerRow, Role, Scene, ServiceRow
from livedemo.script import LOOK, Failed
from livedemo.view import View

START_PATIENCE = 20.0
MONITOR_SECONDS = 2
"""--node-monitor-period: the time between the two answers that must say that a machine is gone."""


class StoryStage:
    """A context manager: cluster and cloud live inside it, and no manager outlives it."""

    def __init__(self, directory: Path, machines: list[str], stumble: str) -> None:
        self._directory = directory
        config = write_config(story_cloud(machines, stumble), directory / "cloud.json")
        settings = read_config(config.read_bytes(), str(config))
        self.cloud = FakeCloud(settings.model_copy(update={"state": str(directory / settings.state)}), caller="demo")
        self.cluster = Cluster(directory)
        self.managers: list[ManagerProcess] = []
        self._config = config
        self._nodes = NodeRows()
        self._services: dict[str, ServiceRow] = {}
        self._figures: dict[str, Figures] = {}
        self._asked = 0.0

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

    def wait_ready(self, view: View, *managers: ManagerProcess) -> None:
        """Until all of them are ready. Raises Failed."""
        deadline = time.monotonic() + START_PATIENCE
        while not all(manager.ready() for manager in managers):
            if time.monotonic() > deadline:
                raise Failed(f"no manager was ready after {START_PATIENCE:g} s{self.excuse()}")
            view.show(self.look())
            time.sleep(LOOK)
        view.show(self.look())

    def _flags(self) -> list[str]:
        return [
            "--cloud-provider=fake",
            f"--cloud-config={self._config}",
            f"--kubeconfig={self.cluster.kubeconfig}",
            "--cluster-name=demo",
            "--leader-elect=false",
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
        changes: dict[int, int] = {}
        for call in self.cloud.calls.log(changes_only=True):
            changes[call.caller.process] = changes.get(call.caller.process, 0) + 1
        return Scene(
            elapsed=self._nodes.elapsed(),
            nodes=self._nodes.rows(),
            services=self._look_at_services(),
            managers=[
                ManagerRow(manager.name, manager.pid, _role(manager), changes.get(manager.pid, 0))
                for manager in self.managers
                if manager.pid
            ],
            events=self._look_at_events(),
            routes={route.destination_cidr: route.target_node for route in self.cloud.console.routes()},
            figures=self._look_at_figures(),
        )

    def excuse(self) -> str:
        """The managers' last warnings."""
        return "".join(f"\n  {one.name}, last lines:{one.last_words()}" for one in self.managers if one.pid)

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

    def _look_at_figures(self) -> Figures:
        if self._nodes.elapsed() - self._asked > 0.5:
            self._asked = self._nodes.elapsed()
            for manager in self.managers:
                if manager.exit_code is None and (found := manager.figures()) is not None:
                    self._figures[manager.name] = found
        known = self._figures.values()
        return Figures(
            cloud_calls=sum(one.cloud_calls for one in known),
            writes=sum(one.writes for one in known),
            events=sum(one.events for one in known),
            memory_mb=max((one.memory_mb for one in known), default=0.0),
        )


def _role(manager: ManagerProcess) -> Role:
    if manager.was_killed:
        return Role.KILLED
    if manager.exit_code is not None:
        return Role.ENDED
    return Role.ALONE if manager.ready() else Role.STARTING
