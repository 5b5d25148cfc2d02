"""The table in docs/reference/metrics.md: every metric that a manager serves, with its labels and
its help.

`page` starts a manager with all controllers over the embedded API server and looks into its
registry, so that the page and what Prometheus shows are the same words. `python -m tests.generate`
writes the page, and a test compares it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from attrs import frozen
from prometheus_client import CollectorRegistry, ProcessCollector

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import new_provider
from controllers.catalog import CATALOG
from controllers.service.orphans import UnservedMetrics
from controllers.testing.managerrun import ROUTES, ManagerRun
from tests.support.https import free_port

BEGIN, END = "<!-- metrics: begin -->\n", "<!-- metrics: end -->\n"
SECTIONS: Final = (
    ("Calls to the cloud", ("cloudprovider_",)),
    ("Nodes", ("cloud_node_lifecycle_", "node_controller_", "node_lifecycle_")),
    ("Load balancers", ("service_controller_",)),
    ("Routes and pod CIDRs", ("node_ipam_", "route_controller_")),
    ("Other controllers", ("cloud_provider_webhook_", "kubelet_serving_csr_", "ssh_key_")),
    ("Queues and work", ("controller_", "workqueue_")),
    ("The API server", ("apiserver_delegated_", "event_recorder_", "informer_", "rest_client_")),
    ("The process", ("kubernetes_", "leader_election_", "process_", "running_managed_", "serving_certificate_")),
)
"""Headings of the page, and what the names of their metrics begin with."""
_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKqjiqVmzsPVfxY0qek+swFp07oxWnUqTJeajocziett ops\n"


@frozen(order=True)
class Family:
    """One metric, under the name by which it is asked for."""

    name: str
    labels: tuple[str, ...]
    help: str

    @property
    def row(self) -> str:
        labels = f"{{{','.join(self.labels)}}}" if self.labels else ""
        shown = re.sub(r"<\w+>", r"`\g<0>`", self.help.removesuffix("."))
        return f"| `{self.name}{labels}` | {shown} |"


def page(text: str) -> str:
    """The page with its tables made again. Takes some seconds."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return before + begin + tables(served()) + end + after


def tables(families: Iterable[Family]) -> str:
    """One table for each section. Raises ValueError for a metric that belongs to none. Pure."""
    left = sorted(families)
    lines: list[str] = []
    for heading, prefixes in SECTIONS:
        here = [one for one in left if one.name.startswith(prefixes)]
        left = [one for one in left if one not in here]
        lines += ["", f"## {heading}", "", "| metric | what it shows |", "|---|---|", *(one.row for one in here)]
    if left:
        raise ValueError(f"no section of the page has {', '.join(one.name for one in left)}: see SECTIONS")
    return "\n".join([*lines, "", ""])


def served() -> list[Family]:
    """What a manager with every controller serves, and what only one without the service controller
    does."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedAPIServer() as server:
        (keys := Path(folder, "keys")).write_text(_KEY)
        flags = [
            *ROUTES,
            f"--controllers={','.join(entry.name for entry in CATALOG)}",
            "--leader-elect=true",
            "--webhooks=*",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--webhook-secure-port={free_port()}",
            "--ssh-user=ops",
            f"--ssh-keyfile={keys}",
        ]
        with ManagerRun(server.write_kubeconfig(Path(folder, "kubeconfig")), new_provider(None), flags) as run:
            assert run.manager is not None
            UnservedMetrics(run.manager.metrics)
            families = {one.name: one for one in _families(run.manager.metrics.registry)}
    ProcessCollector(registry=(process := CollectorRegistry()))  # the program adds it: cli/main.py
    families |= {one.name: one for one in _families(process)}
    return list(families.values())


def _families(registry: CollectorRegistry) -> Iterator[Family]:
    for collector in list(registry._collector_to_names):
        own = tuple(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            found = {label for sample in family.samples for label in sample.labels} - {"le"}
            name = family.name + ("_total" if family.type == "counter" else "")
            yield Family(name, own or tuple(sorted(found)), family.documentation)
