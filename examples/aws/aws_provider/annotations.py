"""The annotations of a Service that this provider reads: the Go provider's, as far as they are
about NLBs. Pure.

Mistakes in them come out together, as one Warning Event on the Service; so does an annotation with
this prefix that is not known here, which would otherwise build another load balancer than was asked
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, frozen
from kubernetes.client.models.v1_service import V1Service

from aws_provider.healthcheck import HealthCheck
from cloudprovider.helpers import (
    BOOL,
    PAIRS,
    TEXT,
    Integer,
    Kind,
    ListOf,
    OneOf,
    ServiceAnnotations,
    Text,
    annotation,
    annotations_of,
)

PREFIX: Final = "service.beta.kubernetes.io/aws-load-balancer-"
_PORT = Text("traffic-port|[1-9][0-9]{0,4}", "traffic-port or the number of a port")
_WORDS = ListOf(TEXT)


@frozen
class _Refused(Kind[str]):
    """One that the Go provider reads, and that cannot be obeyed here: better said than ignored."""

    why: str

    @property
    def allowed(self) -> str:
        return f"nothing: {self.why}"

    def parse(self, text: str) -> str:
        raise self.refusal()


_NO_GROUPS = _Refused("load balancers have no security groups here, the nodes' group lets the traffic in")
_DRAINING = _Refused("say deregistration_delay.timeout_seconds in target-group-attributes")


def target_labels(service: V1Service) -> Mapping[str, str] | None:
    """The labels of the nodes that are targets; None where the annotation cannot be read."""
    text = annotations_of(service).get(f"{PREFIX}target-node-labels", "")
    try:
        return PAIRS.parse(text.strip()) if text.strip() else {}
    except ValueError:
        return None


def is_elsewhere(service: V1Service) -> bool:
    """Whether the AWS Load Balancer Controller is to build it. That one has further annotations,
    none of ours."""
    return annotations_of(service).get(f"{PREFIX}type") in ("external", "nlb-ip")


class Annotations(ServiceAnnotations, prefix=PREFIX):
    """What a Service asks for beside its spec."""

    kind = annotation("type", OneOf("nlb", "external", "nlb-ip"), default="nlb",
        help="external and nlb-ip leave the Service to the AWS Load Balancer Controller.")  # fmt: skip
    internal = annotation("internal", BOOL, default=False,
        help="Only reachable from inside the VPC. A change rebuilds the load balancer.")  # fmt: skip
    cross_zone = annotation("cross-zone-load-balancing-enabled", BOOL, default=False,
        help="Each zone's addresses send traffic to the nodes of all zones.")  # fmt: skip
    subnets = annotation("subnets", _WORDS, default=(),
        help="IDs or names of the subnets, one in each zone, in place of those found by tags.")  # fmt: skip
    tags = annotation("additional-resource-tags", PAIRS, default={}, help="Further tags of what is built.")
    node_labels = annotation("target-node-labels", PAIRS, default={}, help="Only nodes with these labels are targets.")
    certificate = annotation("ssl-cert", TEXT, default="", help="ARN of a certificate: TCP ports become TLS.")
    ssl_ports = annotation("ssl-ports", _WORDS, default=("*",),
        help="Names or numbers of the ports that the certificate is for.")  # fmt: skip
    ssl_policy = annotation("ssl-negotiation-policy", TEXT, default="", help="AWS's name of a TLS policy.")
    backend_protocol = annotation("backend-protocol", OneOf("tcp", "ssl"), default="tcp",
        help="Behind a TLS port: ssl encrypts again on the way to the node.")  # fmt: skip
    attributes = annotation("target-group-attributes", PAIRS, default={},
        help="deregistration_delay.timeout_seconds, preserve_client_ip.enabled, proxy_protocol_v2.enabled, "
        "stickiness.enabled.")  # fmt: skip
    proxy_protocol = annotation("proxy-protocol", OneOf("*"),
        help="Nodes get PROXY protocol, version 2; as proxy_protocol_v2.enabled of the attributes.")  # fmt: skip
    elastic_ips = annotation("eip-allocations", _WORDS, default=(),
        help="Allocation IDs of Elastic IPs, one for each zone, in the order of the zones' names. They cannot be "
        "changed.")  # fmt: skip
    private_ips = annotation("private-ipv4-addresses", _WORDS, default=(),
        help="The addresses of an internal one, in the same way.")  # fmt: skip
    has_access_log = annotation("access-log-enabled", BOOL,
        help="Whether access logs are written (of TLS ports). Without it they stay as they are in AWS.")  # fmt: skip
    access_log_bucket = annotation("access-log-s3-bucket-name", TEXT, default="", help="Into this bucket of S3.")
    access_log_prefix = annotation("access-log-s3-bucket-prefix", TEXT, default="", help="Under this path in it.")
    check_protocol = annotation("healthcheck-protocol", OneOf("tcp", "http", "https", "TCP", "HTTP", "HTTPS"),
        help="How nodes are checked.")  # fmt: skip
    check_port = annotation("healthcheck-port", _PORT, help="Where nodes are checked.")
    check_path = annotation(
        "healthcheck-path", Text("/.*", "a path such as /healthz"), help="What http and https ask for."
    )
    check_interval = annotation("healthcheck-interval", Integer(5, 300), help="Seconds between two checks.")
    check_timeout = annotation("healthcheck-timeout", Integer(2, 120), help="Seconds for an answer.")
    check_healthy = annotation("healthcheck-healthy-threshold", Integer(2, 10), help="Good answers until traffic.")
    check_unhealthy = annotation("healthcheck-unhealthy-threshold", Integer(2, 10), help="Bad ones until none.")
    extra_groups = annotation("extra-security-groups", _NO_GROUPS)
    own_groups = annotation("security-groups", _NO_GROUPS)
    access_log_interval = annotation("access-log-emit-interval", _Refused("an NLB writes its logs every five minutes"))
    draining = annotation("connection-draining-enabled", _DRAINING)
    draining_timeout = annotation("connection-draining-timeout", _DRAINING)
    idle_timeout = annotation("connection-idle-timeout", _Refused("an NLB's idle timeout is 350 seconds"))

    def is_secure(self, port: int, name: str) -> bool:
        """Whether there is a certificate for this port."""
        return bool(self.certificate) and not {"*", str(port), name}.isdisjoint(self.ssl_ports)

    def adjusted(self, check: HealthCheck) -> HealthCheck:
        """The health check with what the Service asks for in its place."""
        asked: dict[str, Any] = {
            "protocol": (self.check_protocol or "").upper(),
            "port": self.check_port,
            "path": self.check_path,
            "interval": self.check_interval,
            "timeout": self.check_timeout,
            "healthy": self.check_healthy,
            "unhealthy": self.check_unhealthy,
        }
        result: HealthCheck = evolve(check, **{name: value for name, value in asked.items() if value})
        return evolve(result, path="" if result.protocol == "TCP" else result.path or "/")
