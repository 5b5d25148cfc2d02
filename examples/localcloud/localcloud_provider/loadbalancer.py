"""LoadBalancer: one of the cloud's for each Service.

The cloud builds a load balancer with one PUT, which is whole and may be repeated, so there are no
parts to be left behind. Each carries the cluster as its owner and the Service's UID as a label, and
what is not proved by them to be the Service's is never changed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext

from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from typing_extensions import override

from cloudprovider import CloudProviderError, LoadBalancer, LoadBalancerKept, OwnedLoadBalancer, OwnedLoadBalancers
from cloudprovider.errors import InvalidService
from localcloud_provider.annotations import ADOPT, adopts, keeps, keeps_for
from localcloud_provider.client import Client, Conflict, NotFound, Refused, path_of
from localcloud_provider.instances import LocalInstances
from localcloud_provider.plan import LABEL_KEPT, LABEL_KEPT_FOR, LABEL_SERVICE, LABEL_UID, plan
from localcloud_provider.resources import Balancer, Balancers


class NotOurs(CloudProviderError):
    """A load balancer has the name of the Service's, and was made for something else."""


class LocalLoadBalancers(LoadBalancer, OwnedLoadBalancers):
    """Load balancers named by the Service's UID, or as the Service says that adopts a kept one."""

    def __init__(self, client: Client, instances: LocalInstances) -> None:
        self._client = client
        self._instances = instances
        self._adopting = threading.Lock()

    @override
    def get_load_balancer_name(self, cluster_name: str, service: V1Service) -> str:
        return adopts(service) or super().get_load_balancer_name(cluster_name, service)

    @override
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        found = self._found(cluster_name, service)
        return _status(found) if found is not None else None

    @override
    def check_service(self, service: V1Service) -> None:
        plan("", "", service, ())

    @override
    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        name = self.get_load_balancer_name(cluster_name, service)
        wanted, address = plan(name, cluster_name, service, self._ids(service, nodes))
        kept = self._check_free(cluster_name, service)
        # Of the Services that may have a kept one, the former one among them, one gets it.
        with self._adopting if kept else nullcontext():
            if kept:
                self._check_free(cluster_name, service)  # another one may have it since
            # Also where nothing differs: what the cloud shows it may not have carried out yet.
            return _status(self._put(wanted, address))

    @override
    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        found = self._found(cluster_name, service, calls=2)
        if found is None:
            raise CloudProviderError("the load balancer does not exist")  # the host ensures it at once
        targets = self._ids(service, nodes)
        draining = tuple(one for one in found.draining if one in targets)
        weights = {key: weight for key, weight in found.weights.items() if key in targets}
        wanted = found.model_copy(update={"targets": targets, "draining": draining, "weights": weights})
        if set(targets) != set(found.targets):
            self._put(wanted)

    def targets(self, service: V1Service, nodes: Sequence[V1Node]) -> Sequence[V1Node]:
        """Those of the nodes that are to be targets: all of them."""
        return nodes

    @override
    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        found = self._found(cluster_name, service, calls=2)
        if found is not None and (keep := keeps(service)):
            labels = {**found.labels, LABEL_KEPT: keep, LABEL_KEPT_FOR: keeps_for(service)}
            nobody: dict[str, object] = {"targets": (), "draining": (), "weights": {}}
            if found.labels != labels:
                self._put(found.model_copy(update={"labels": labels, **(nobody if keep == "address" else {})}))
            raise LoadBalancerKept(f"{found.name}, {found.address}; a Service with {ADOPT}: {found.name} takes it over")
        if found is not None:
            # The owner goes along, so that the cloud itself refuses where it is another's already.
            self._client.delete(self._path(cluster_name, service), {"owner": cluster_name})

    @override
    def owned_load_balancers(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        listed = self._client.get(Balancers, path_of("loadbalancers"), {"owner": cluster_name}).loadbalancers
        return [_owned(one) for one in listed if one.owner == cluster_name and LABEL_UID in one.labels]

    @override
    def delete_owned_load_balancer(self, cluster_name: str, owned: OwnedLoadBalancer) -> None:
        self._client.delete(path_of("loadbalancers", owned.name), {"owner": cluster_name})

    def _look(self, cluster_name: str, service: V1Service, *, calls: int) -> Balancer | None:
        """What has the name of the Service's load balancer; None where the cloud has none, or the
        Service names one of another cluster. Raises `NotOurs`."""
        try:
            found = self._client.get(Balancer, self._path(cluster_name, service), calls=calls)
        except NotFound:
            return None
        if found.owner != cluster_name and adopts(service):
            return None
        if found.owner != cluster_name or not found.labels.get(LABEL_UID):
            raise NotOurs(
                f"the load balancer {found.name} is left alone: its owner is {found.owner!r} and its label {LABEL_UID} "
                f"is {found.labels.get(LABEL_UID, '')!r}, so it was not made for this Service of cluster "
                f"{cluster_name!r}. Delete it, or rename it"
            )
        return found

    def _found(self, cluster_name: str, service: V1Service, *, calls: int = 1) -> Balancer | None:
        """The Service's load balancer; None where the cloud has none, or another Service has the
        one of that name: that adopted it, or this one names what it did not get. Raises
        `NotOurs`."""
        found = self._look(cluster_name, service, calls=calls)
        return found if found is not None and _owned(found).is_of(service) else None

    def _check_free(self, cluster_name: str, service: V1Service) -> bool:
        """Whether what there is was kept. Raises where it cannot be this Service's."""
        found = self._look(cluster_name, service, calls=2)
        if found is not None:
            _owned(found).check_adoptable(service)
            return _owned(found).kept
        if name := adopts(service):
            raise InvalidService(f"the annotation {ADOPT} names {name}, and this cluster has no load balancer of it")
        return False

    def _put(self, wanted: Balancer, address: str = "") -> Balancer:
        try:
            return self._client.put(Balancer, path_of("loadbalancers", wanted.name), wanted.document(address))
        except Refused as exc:
            raise InvalidService(*exc.problems) from exc
        except Conflict as exc:
            raise CloudProviderError(f"the load balancer cannot be built now: {exc}") from exc

    def _ids(self, service: V1Service, nodes: Sequence[V1Node]) -> tuple[str, ...]:
        """A node of another cloud, or with a forged ID, spoils nothing for the others."""
        return tuple(sorted(self._instances.ids_in(self.targets(service, nodes))))

    def _path(self, cluster_name: str, service: V1Service) -> str:
        return path_of("loadbalancers", self.get_load_balancer_name(cluster_name, service))


def _owned(balancer: Balancer) -> OwnedLoadBalancer:
    labels = balancer.labels
    service, uid, namespace = (labels.get(label, "") for label in (LABEL_SERVICE, LABEL_UID, LABEL_KEPT_FOR))
    return OwnedLoadBalancer(balancer.name, service, uid, LABEL_KEPT in labels, namespace)


def _status(balancer: Balancer) -> V1LoadBalancerStatus:
    if not balancer.address:
        return V1LoadBalancerStatus(ingress=[])
    mode = "Proxy" if balancer.mode == "proxy" else "VIP"
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=balancer.address, ip_mode=mode)])
