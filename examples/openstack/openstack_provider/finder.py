"""Finding a Service's load balancer in Octavia: the one that its tags, or the Service's status,
prove to be its. See `ownership`."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from kubernetes.client.models.v1_service import V1Service
from openstack.exceptions import NotFoundException

from cloudprovider import CloudProviderError, InvalidService, OwnedLoadBalancer
from openstack_provider.addresses import FloatingIPs, address_of
from openstack_provider.cloud import Cloud
from openstack_provider.ownership import (
    SERVICE_PREFIX,
    SERVICE_TAG,
    Identity,
    has_status,
    is_marked,
    is_of,
    is_of_another_cluster,
    is_owner,
    own,
    refusal,
    service_of,
    sharers,
    shows,
)
from openstack_provider.plan import Plan
from openstack_provider.rest import BALANCERS, JSON


@frozen
class Finder:
    """Looks load balancers up. Changes nothing, remembers nothing. Raises what openstacksdk raises.
    Thread-safe."""

    cloud: Cloud
    floating: FloatingIPs

    def tagged(self, who: Identity) -> list[JSON]:
        """Every load balancer with the Service's name among its tags, whoever wrote it."""
        return self._listed(("tags", who.balancer))

    def proved(self, who: Identity, service: V1Service, *, by_name: bool = True) -> tuple[JSON | None, JSON | None]:
        """The Service's load balancer, None where there is none or nothing proves it; and its
        floating IP, where that had to be asked for. `by_name`: also one whose tags somebody took
        away."""
        found = self.tagged(who)
        mine = own(found, who)
        if mine is not None or not has_status(service):
            return mine, None
        for one in found or (self._listed(("name", who.balancer)) if by_name else ()):
            if is_owner(one, who) and not is_marked(one):
                floating = self.floating.at(one["vip_port_id"])
                if self._shows(service, one, floating):
                    return one, floating
        return None, None

    def for_plan(self, wanted: Plan, service: V1Service) -> JSON | None:
        """The load balancer that the Service has, takes over from the Go manager, or is to share.
        None where one is to be built. Raises `NotOurs` and `InvalidService`."""
        who, asked = wanted.who, wanted.annotations.balancer_id
        tagged = self.tagged(who)
        found = own(tagged, who)
        if found is None:
            return self._unmarked(wanted, service, tagged)
        if asked not in (None, found["id"]):
            raise InvalidService(
                f"load-balancer-id: the Service has the load balancer {found['id']}; to use {asked}, make the Service "
                "again"
            )
        return found

    def owned(self, cluster: str, cluster_uid: str) -> list[OwnedLoadBalancer]:
        """All of a cluster, those that the Go manager built for a cluster of this name, too."""
        found: list[OwnedLoadBalancer] = []
        anyone = Identity(cluster, cluster_uid, "", "")
        for one in self._listed():
            if not service_of(one["name"], cluster) or is_of_another_cluster(one, anyone):
                continue
            tags = one.get("tags") or ()
            names = [tag for tag in tags if tag.startswith(SERVICE_PREFIX)]
            # Where its first Service has left it, it is one of those that share it.
            service = service_of(one["name"] if one["name"] in names or not names else names[0], cluster)
            uids = [tag.removeprefix(SERVICE_TAG) for tag in tags if tag.startswith(SERVICE_TAG)]
            # Without this cluster's tag, another of its name may have built it, which has no UID.
            uid = uids[0] if len(uids) == 1 and anyone.cluster_tag in ("", *tags) else ""
            name = Identity(cluster, "", service, uid).host_name if uid else one["name"]
            found.append(OwnedLoadBalancer(name, service, uid))
        return found

    def _listed(self, *query: tuple[str, str]) -> list[JSON]:
        return self.cloud.octavia.listed(BALANCERS, *query, *self.cloud.mine)

    def _shows(self, service: V1Service, balancer: JSON, floating: JSON | None) -> bool:
        addresses = [one for one in (balancer["vip_address"], address_of(floating)) if one]
        return shows(service, addresses, self.cloud.config.loadbalancer.ingress_hostname_suffix)

    def _unmarked(self, wanted: Plan, service: V1Service, tagged: Sequence[JSON]) -> JSON | None:
        who, asked = wanted.who, wanted.annotations.balancer_id
        if asked:
            found = [one for one in tagged if one["id"] == asked] or [self._by_id(asked)]
        else:
            # By name alone: of a time before Octavia had tags.
            found = [one for one in tagged if is_owner(one, who)] or self._listed(("name", who.balancer))
        if len(found) > 1:
            ids = ", ".join(one["id"] for one in found)
            raise CloudProviderError(
                f"{len(found)} load balancers have the name {who.balancer}: {ids}. Delete all but one"
            )
        if not found:
            return None
        [one] = found
        if is_of(one, who):
            return one  # as an administrator said, who took its other tags away
        if is_of_another_cluster(one, who) or (is_owner(one, who) and is_marked(one)):
            raise refusal(one, who)
        is_the_clusters = bool(who.cluster_tag) and who.cluster_tag in (one.get("tags") or ())
        if one["name"].startswith(SERVICE_PREFIX) and not is_the_clusters:
            floating = self.floating.at(one["vip_port_id"]) if has_status(service) else None
            if not self._shows(service, one, floating):
                raise refusal(one, who)
        if not is_owner(one, who):
            self._refuse_to_share(wanted, one)
        return one

    def _refuse_to_share(self, wanted: Plan, balancer: JSON) -> None:
        most, there = self.cloud.config.loadbalancer.max_shared_lb, len(sharers(balancer, wanted.who))
        if wanted.is_internal:
            raise InvalidService("load-balancer-id: an internal Service shares no load balancer")
        if wanted.who.balancer not in (balancer.get("tags") or ()) and there >= most:
            raise InvalidService(f"load-balancer-id: {there} Services use {balancer['id']} (max-shared-lb is {most})")

    def _by_id(self, asked: str) -> JSON:
        try:
            found: JSON = self.cloud.octavia.get(f"{BALANCERS}/{asked}")["loadbalancer"]
        except NotFoundException as error:
            raise InvalidService(
                f"load-balancer-id: there is no load balancer {asked}: remove the annotation"
            ) from error
        return found
