"""What a Service asks of its load balancer, as the options allow it; all problems at once."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.models import V1Service, V1ServicePort, V1ServiceSpec

from cloudprovider import InvalidService
from cloudprovider.helpers import wanted_load_balancer
from cloudprovider.testing.conformance import new_service


def service(**spec: object) -> V1Service:
    made = new_service("web", "u-1")
    assert made.spec is not None
    for name, value in spec.items():
        setattr(made.spec, name, value)
    return made


def test_what_is_read() -> None:
    found = wanted_load_balancer(
        service(
            load_balancer_source_ranges=["192.0.2.0/24"], external_traffic_policy="Local", health_check_node_port=32000
        )
    )
    assert [(port.port, port.protocol, port.node_port) for port in found.ports] == [(80, "TCP", 30080)]
    assert (found.source_ranges, found.health_check) == (("192.0.2.0/24",), ("/healthz", 32000))
    assert wanted_load_balancer(V1Service(spec=V1ServiceSpec())).source_ranges == ("0.0.0.0/0",)
    assert wanted_load_balancer(V1Service()).ports == ()


@pytest.mark.parametrize(
    ("spec", "problem", "option"),
    [
        ({"load_balancer_ip": "192.0.2.1"}, "spec.loadBalancerIP", {"address": True}),
        ({"session_affinity": "ClientIP"}, "spec.sessionAffinity", {"client_ip": True}),
        ({"ip_families": ["IPv6"]}, "one address, of IPv4", {"families": ["IPv4", "IPv6"]}),
        ({"ports": [V1ServicePort(port=80, protocol="SCTP", node_port=30080)]}, "SCTP", {"protocols": ["SCTP"]}),
        ({"ip_family_policy": "RequireDualStack"}, "spec.ipFamilies", None),
        ({"load_balancer_source_ranges": ["192.0.2.0/33"]}, "192.0.2.0/33", None),
        ({"ports": [V1ServicePort(port=80)]}, "no node port", None),
    ],
)
def test_what_is_refused_unless_you_can_do_it(spec: dict[str, object], problem: str, option: Any) -> None:
    with pytest.raises(InvalidService) as caught:
        wanted_load_balancer(service(**spec))
    assert len(caught.value.problems) == 1
    assert problem in caught.value.problems[0]
    if option is not None:
        wanted_load_balancer(service(**spec), **option)


def test_who_may_connect_is_never_ignored() -> None:
    assert wanted_load_balancer(service(), source_ranges=False).source_ranges == ("0.0.0.0/0",)
    with pytest.raises(InvalidService, match=r"spec\.loadBalancerSourceRanges is not supported"):
        wanted_load_balancer(service(load_balancer_source_ranges=["192.0.2.0/24"]), source_ranges=False)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(InvalidService) as caught:
        wanted_load_balancer(service(load_balancer_ip="192.0.2.1", session_affinity="ClientIP"))
    assert len(caught.value.problems) == 2
