"""A Kubernetes API server inside the process, for tests and demos: real HTTP, real semantics, faults on demand.

    with EmbeddedAPIServer() as server:
        server.write_kubeconfig("kubeconfig")
        server.create({"kind": "Node", "metadata": {"name": "a"}})
        server.faults.too_many_requests(retry_after=1, method="PATCH", count=3)

It serves nodes, services, persistentvolumes, events (of both groups), leases, namespaces, config maps, secrets, service
accounts, the review APIs and admission webhooks as kube-apiserver 1.36 does, which a parity test proves request by
request. Everything else is answered with 501, never with a guess.
"""

from __future__ import annotations

from cloudprovider.testing.apiserver.access import Rule, User
from cloudprovider.testing.apiserver.errors import StatusError
from cloudprovider.testing.apiserver.faults import Action, Fault, Faults
from cloudprovider.testing.apiserver.server import EmbeddedAPIServer

__all__ = ["EmbeddedAPIServer", "Faults", "Fault", "Action", "StatusError", "User", "Rule"]
