"""LoadBalancer: the way into the cluster from outside (stage 5, cloud call).

Called by the service controller through the gateway, for one Service never twice at a time; the
status returned becomes the Service's `status.loadBalancer`.

Holds for every method here. Service and node arguments are read-only. Calls for different
Services come from many threads at once. All of them are idempotent: after a restart or a doubtful
answer the host calls again, so whatever was half built must be found and completed, never doubled.
`cluster_name` is the --cluster-name flag and keeps clusters that share one cloud account apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import field, frozen

from cloudprovider.errors import CloudProviderError, InvalidService, NotImplementedByProvider
from cloudprovider.helpers.objects import key_of, uid_of
from cloudprovider.helpers.service import default_load_balancer_name
from cloudprovider.internal import fields

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service

__all__ = ["LoadBalancer", "OwnedLoadBalancer", "OwnedLoadBalancers"]


class LoadBalancer(ABC):
    """Load balancers for Services of type LoadBalancer, of the classes that the manager serves
    (`--load-balancer-classes`). By default those are Services without a loadBalancerClass.

    Managers of one cluster that serve different classes may share account and cluster name.

    A provider may leave the building of some Services' load balancers to a controller of its own:
    it then raises `ImplementedElsewhere` from `ensure_load_balancer` and `update_load_balancer`,
    and answers `get_load_balancer` with a status only for what the service controller itself built.
    The host keeps adding and removing its finalizer either way; further finalizers are that other
    controller's own affair.

    `Pending` from any method says that the cloud is at work on it: it is called again after that
    delay, and nothing failed. Other errors are retried with backoff and shown as Warning Events on
    the Service.

    Targets, in `ensure_load_balancer` and `update_load_balancer` alike: what belongs to a node of
    the list is never taken out. Not where its machine is switched off, nor where one answer of the
    cloud lacks it: nodes whose machine is gone leave the list. What cannot be a target yet is left
    out, and the call ends with `RetryError`, or nobody would ask again. New targets go in before
    old ones go out, so that no call that fails halfway leaves none.

    Follows: LoadBalancer in k8s.io/cloud-provider cloud.go.
    """

    @abstractmethod
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        """The load balancer's status, None when the cloud answered that there is none. Changes
        nothing.

        A half-built one counts as existing: return its status so far.
        """

    def get_load_balancer_name(self, cluster_name: str, service: V1Service) -> str:
        """The load balancer's name in the cloud. Pure: the same Service gives the same name for
        ever.

        It may depend on annotations of the Service, and on nothing else that can change. Where an
        annotation makes another load balancer of it (of another kind, say), the name must be
        another one. The host then deletes the former one after the new one has its address.

        At most 255 letters, digits, "-", "_", "." and ":", beginning with a letter, a digit or "_";
        the host refuses any other. Default: "a" and the Service's UID, by
        `cloudprovider.helpers.default_load_balancer_name`.
        """
        return default_load_balancer_name(service)

    def load_balancer_revision(self) -> str:
        """A word that you change when this version would build the same Service's load balancer
        differently.

        The host remembers with each Service for which revision its load balancer was built, and
        ensures all of them again when the word is another. Default: "". Pure: the same in every
        process of one version.
        """
        return ""

    def depends_on(self, service: V1Service) -> str:
        """What else of the Service its load balancer depends on: when this text changes, the host
        ensures the load balancer again.

        The host looks at the ports, the other fields of the spec that concern load balancers, and
        all annotations. Say here what you read besides: labels that become tags, the selector, the
        nodes with ready endpoints (`Listers.endpoint_slices`). What changes again and again, with
        the Service as it is, is acted upon ever more seldom, up to once in 30 seconds.
        Asked each time a Service is worked on. Pure, without questions to the cloud. Any length;
        the host remembers a digest. Default: "".
        """
        return ""

    def target_traits(self, node: V1Node) -> str:
        """What else of a node load balancers depend on: when this text changes, the host updates
        the targets of all load balancers.

        The host looks at the name, the provider ID and the addresses. Say here what you read
        besides: the labels by which a Service selects its nodes. Asked again when the node's
        labels, annotations or spec change. Pure, without questions to the cloud. Default: "".
        """
        return ""

    def check_service(self, service: V1Service) -> None:  # noqa: B027 - a provider may refuse nothing
        """Raise `InvalidService` with all that `ensure_load_balancer` would refuse of this Service;
        return where it would build it.

        Called right before `ensure_load_balancer`, which is not called for what is refused; by
        --dry-run, and by `python -m cloudprovider check --services`. Pure, without questions to the
        cloud: what only the cloud can tell, `ensure_load_balancer` says. Default: nothing is
        refused.
        """

    @abstractmethod
    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        """Create the load balancer, or bring the existing one in line with the Service and the
        nodes.

        Returns its status. Raise `Pending` while the cloud is still building it, `InvalidService`
        for what cannot be done, `QuotaExceeded` where the cloud has no room for it. Also called
        when something was changed by hand in the cloud, so it must repair, not just create. Where
        it has no address on the Service yet, return it also if not every node is a target: better
        with those than none.

        `current_call().former` is the Service as it was last built, where this process knows it: to
        clean up what a change leaves behind.

        With the PROXY protocol, or where only the load balancer's own way may be taken, give the
        ingress `ip_mode="Proxy"`: otherwise pods reach the address without the load balancer.
        """

    @abstractmethod
    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        """Make `nodes` the targets of the existing load balancer; nothing else about it changes.

        While a change of the Service waits or fails, `service` is as it was last built: with the
        spec and annotations of then, the labels and status of now. In a process that did not build
        it, it may be the present one, whose mistake `ensure_load_balancer` refuses: so read no
        annotations here, and refuse nothing.

        Raise what you like if that is not possible, `RetryError` if it is not yet, as where a node
        cannot be a target: after any other error `ensure_load_balancer` follows at once, to repair
        what may be missing.
        """

    @abstractmethod
    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        """Delete the load balancer and every part of it. Absent already is success.

        Its type and annotations may have changed since it was built. The host asks for the Service
        as it is, and, where its annotations were others, as it was last built too. A process that
        did not build it knows of those only the ones that the name depends on. For a load balancer
        under a former name the Service has the status of then, or none. `current_call().former` is
        the Service as it was last built, where this process knows it.

        Returning normally means that the cloud confirmed: the host then drops its finalizer and the
        host does not look again. So check for leftovers even when the main part is gone, and never
        raise `ImplementedElsewhere`: what the service controller once built is cleaned up here,
        whichever controller is responsible today.

        Raise `LoadBalancerKept` where it, or its address alone, is to stay in the cloud without its
        Service. Then mark it there, so that `OwnedLoadBalancer.kept` can say so, and say in the
        message how a Service takes it over: see `OwnedLoadBalancer.check_adoptable`.
        """


@fields.documented
@frozen
class OwnedLoadBalancer:
    """A load balancer in the cloud that a cluster's service controller made. Raises TypeError
    for fields of a wrong type."""

    name: str = field(validator=fields.text)
    """The load balancer's name in the cloud, as `get_load_balancer_name` gives it."""
    service: str = field(validator=fields.text)
    """ "namespace/name" of the Service that it was made for; "" where the cloud does not know."""
    service_uid: str = field(default="", validator=fields.text)
    """That Service's UID; "" where the cloud does not know."""
    kept: bool = field(default=False, validator=fields.flag)
    """Whether it, or its address, was left there on purpose (`LoadBalancerKept`): it is not
    reported as an orphan."""
    kept_for: str = field(default="", validator=fields.text)
    """The namespace for whose Services it was kept, by the word of the Service that it was made
    for; "": for that Service's own namespace."""

    def is_of(self, service: V1Service) -> bool:
        """Whether it was made for this Service, or adopted by it: the UIDs are the same."""
        # Two without a UID have nothing in common: both may be another cluster's.
        return self.service_uid != "" and self.service_uid == uid_of(service)

    def check_adoptable(self, service: V1Service) -> None:
        """Raise CloudProviderError where a Service that names this load balancer may not adopt it:
        it is another Service's, and not kept, or kept for another namespace. Return where it may,
        or where it is its own.

        For a provider with an annotation by which a Service names a load balancer that was kept.
        Its `ensure_load_balancer` looks the name up among those of this cluster, calls this, and
        then writes the Service's marks in place of the former ones and that of a kept one, in one
        step that another Service cannot come between: with a lock, or on a condition of the cloud.
        Where there is none of that name it raises `InvalidService`: a new one would have another
        address. Until it is adopted, `get_load_balancer` answers None to that Service and
        `ensure_load_balancer_deleted` leaves the load balancer alone.
        """
        # Its own already: an ensure that is repeated.
        if self.is_of(service):
            return
        if self.kept:
            self._check_namespace(service)
            return
        raise CloudProviderError(
            f"the load balancer {self.name} is in use by Service {self.service or self.service_uid}, so Service "
            f"{key_of(service)}, which names it, does not get it. Delete the other Service in such a way that its "
            "load balancer is kept, or have this one name no load balancer"
        )

    def _check_namespace(self, service: V1Service) -> None:
        # Its name is no secret, so to name it proves nothing: else any tenant takes another's
        # address, and what is sent to it.
        allowed = self.kept_for or self.service.rpartition("/")[0]
        # With the slash: "team" must not take what belongs to "team-a".
        if allowed and key_of(service).startswith(f"{allowed}/"):
            return
        whose = f"for Services of the namespace {allowed}" if allowed else "for a namespace that is not known"
        raise InvalidService(
            f"the load balancer {self.name} was kept {whose}, so Service {key_of(service)}, which names it, does not "
            "get it. Create the Service in that namespace, or have whoever keeps it say for which namespace"
        )

    def placeholder(self) -> V1Service:
        """The Service that it was made for, as far as the cloud knows it: namespace, name, UID and
        type. Without annotations, ports, status and finalizers."""
        # Not at the top: these models take longer to import than all the rest of the contract.
        from kubernetes.client.models.v1_object_meta import V1ObjectMeta
        from kubernetes.client.models.v1_service import V1Service
        from kubernetes.client.models.v1_service_spec import V1ServiceSpec

        namespace, _, name = self.service.rpartition("/")
        metadata = V1ObjectMeta(namespace=namespace or None, name=name or None, uid=self.service_uid or None)
        return V1Service(metadata=metadata, spec=V1ServiceSpec(type="LoadBalancer"))


class OwnedLoadBalancers(ABC):
    """Optional, implemented by the class of the LoadBalancer: what is in the cloud for a cluster
    can be listed.

    The service controller then reports load balancers whose Service is gone. It never deletes them:
    another cluster of the same name may own them. `teardown` does, at an operator's word.
    """

    @abstractmethod
    def owned_load_balancers(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        """Every load balancer of this cluster, half-built ones included. Complete: raise when a
        page of it failed."""

    def delete_owned_load_balancer(self, cluster_name: str, owned: OwnedLoadBalancer) -> None:
        """Delete one that `owned_load_balancers` listed, a kept one too, with every part of it.
        Absent already is success. Called by `cloud-controller-manager teardown`, without a cluster.

        Default: `ensure_load_balancer_deleted` for `owned.placeholder()`; NotImplementedByProvider
        where the cloud does not know the Service's UID. Override it where you find a load balancer
        by more than that, as by a name that depends on annotations. Raises as that does: `Pending`
        while the cloud deletes, `LoadBalancerKept` where it is protected.
        """
        if not isinstance(self, LoadBalancer):
            raise NotImplementedByProvider(f"{type(self).__name__} is no LoadBalancer, which could delete {owned.name}")
        if not owned.service_uid:  # an empty UID may fit what has no mark at all
            raise NotImplementedByProvider(
                f"the cloud does not know the UID of the Service of {owned.name}, by which it would be deleted: look "
                "at it, and delete it in the cloud"
            )
        self.ensure_load_balancer_deleted(cluster_name, owned.placeholder())
