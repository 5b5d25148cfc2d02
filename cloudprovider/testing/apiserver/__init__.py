"""A Kubernetes API server inside the process, for tests and demos: real HTTP, real semantics.

    with EmbeddedAPIServer() as server:
        server.write_kubeconfig("kubeconfig")
        server.create({"kind": "Node", "metadata": {"name": "a"}})
        server.access.deny(verb="patch", resource="nodes/status")

Nodes, Services, Events of the core group and Leases are served with the rules of kube-apiserver
1.36, which a parity test proves request by request; PersistentVolumes, Namespaces, ServiceAccounts,
ConfigMaps and Secrets are stored as they come. What is not served is answered with 501, never with
a guess.

A request goes from `http` (sockets) to `rest` (routes, reads, writes, watches, reviews), which asks
`kinds` for the rules of its resource and keeps objects in `storage`.
"""

from __future__ import annotations

from cloudprovider.testing.apiserver.access import Rule, User
from cloudprovider.testing.apiserver.errors import StatusError
from cloudprovider.testing.apiserver.server import EmbeddedAPIServer

__all__ = ["EmbeddedAPIServer", "StatusError", "User", "Rule"]
