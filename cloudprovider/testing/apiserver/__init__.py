"""A Kubernetes API server inside the process, for tests and demos: real HTTP, real semantics,
faults on demand.

    with EmbeddedAPIServer() as server:
        server.write_kubeconfig("kubeconfig")
        server.create({"kind": "Node", "metadata": {"name": "a"}})
        server.faults.too_many_requests(retry_after=1, method="PATCH", count=3)

Nodes, Services, Events of the core group and Leases are served with the rules of kube-apiserver
1.36, which a parity test proves request by request; PersistentVolumes, Namespaces, ServiceAccounts,
ConfigMaps and Secrets are stored as they come. What is not served is answered with 501, never with
a guess.

A request goes from `http` (sockets, injected faults) to `rest` (routes, reads, writes, watches,
reviews), which asks `kinds` for the rules of its resource and keeps objects in `storage`.
"""

from __future__ import annotations

from cloudprovider.testing.apiserver.access import Rule, User
from cloudprovider.testing.apiserver.errors import StatusError
from cloudprovider.testing.apiserver.faults import Action, Fault, Faults
from cloudprovider.testing.apiserver.server import EmbeddedAPIServer

__all__ = ["EmbeddedAPIServer", "Faults", "Fault", "Action", "StatusError", "User", "Rule"]
