"""The annotations that users set on Services. README.md has their table."""

from __future__ import annotations

from kubernetes.client.models.v1_service import V1Service

from cloudprovider.helpers import OneOf, ServiceAnnotations, Text, annotation, annotations_of


class LocalAnnotations(ServiceAnnotations, prefix="localcloud.example/"):
    """What can be asked of a load balancer besides what the Service's spec says."""

    mode = annotation(
        "mode",
        OneOf("nat", "proxy", "direct"),
        help="How connections reach the machines. nat: by their node ports; pods see the client's address. "
        "proxy: by a proxy, which speaks TCP alone; the Service's status then says `ipMode: Proxy`. "
        "direct: with the load balancer's address and port as they are, for Services without node ports. "
        "By default nat, or direct where a port has no node port.",
    )
    address = annotation(
        "address",
        Text(r"\d{1,3}(\.\d{1,3}){3}", "an IPv4 address"),
        help="The load balancer's address. It must be one of the cloud's pool, and free. Counts more than "
        "`spec.loadBalancerIP`.",
    )
    keep = annotation(
        "keep",
        OneOf("load-balancer", "address"),
        help="What stays in the cloud when the Service is deleted: the load balancer as it is, or its address, which "
        "nothing answers at then.",
    )
    keep_for = annotation(
        "keep-for",
        Text(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "the name of a namespace"),
        help="For Services of which namespace it stays. Without this, for those of the Service's own.",
    )
    adopt = annotation(
        "adopt",
        Text(r"[a-z0-9][a-z0-9-]{0,62}", "the name of a load balancer"),
        help="The name of a load balancer that was kept for this namespace. The Service takes it over, with its "
        "address.",
    )


ADOPT = "localcloud.example/adopt"


def adopts(service: V1Service) -> str:
    """The load balancer that the Service takes over; "" for none. Also of annotations that
    `LocalAnnotations` refuses: a load balancer's name must not depend on the others."""
    return annotations_of(service).get(ADOPT, "")


def keeps(service: V1Service) -> str:
    """What stays of the load balancer of this Service when it is deleted, as asked; "" for
    nothing. A mistake keeps all: what is deleted is gone."""
    asked = annotations_of(service).get("localcloud.example/keep", "")
    return asked if asked in ("", "address") else "load-balancer"


def keeps_for(service: V1Service) -> str:
    """The namespace whose Services may take it over then; "" for that of this Service."""
    return annotations_of(service).get("localcloud.example/keep-for", "")


if __name__ == "__main__":
    print(LocalAnnotations.markdown_table(), end="")
