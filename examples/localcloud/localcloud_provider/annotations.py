"""The annotations that users set on Services. README.md has their table."""

from __future__ import annotations

from cloudprovider.helpers import OneOf, ServiceAnnotations, Text, annotation


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


if __name__ == "__main__":
    print(LocalAnnotations.markdown_table(), end="")
