"""The annotations of a Service that this provider reads: the Go provider's, as far as they are about NLBs. Pure.

Texts in, values out. What cannot be read is collected, so that one look at the Service's Events mends every mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, field, frozen
from kubernetes.client.models.v1_service import V1Service

if TYPE_CHECKING:
    from aws_provider.plan import HealthCheck

PREFIX: Final = "service.beta.kubernetes.io/aws-load-balancer-"


@frozen(kw_only=True)
class Annotations:
    """What a Service asks for beside its spec."""

    elsewhere: bool = False
    """Whether AWS's own Load Balancer Controller is to build it: type "external" or "nlb-ip"."""
    internal: bool = False
    cross_zone: bool = False
    subnets: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(factory=dict)
    node_labels: Mapping[str, str] = field(factory=dict)
    """Only nodes with these labels become targets."""
    certificate: str = ""
    ssl_ports: tuple[str, ...] = ()
    """Names or numbers; empty, and "*", mean all."""
    ssl_policy: str = ""
    backend_protocol: str = "tcp"
    """Behind a TLS listener: "ssl" encrypts again on the way to the node, "tcp" does not."""
    target_group_attributes: Mapping[str, str] = field(factory=dict)
    health_check: Mapping[str, Any] = field(factory=dict)
    """Fields of `plan.HealthCheck` that differ from its defaults."""

    @classmethod
    def of(cls, service: V1Service) -> tuple[Annotations, list[str]]:
        """The Service's, and every problem in them."""
        texts = (service.metadata.annotations if service.metadata is not None else None) or {}
        reader = _Reader({key.removeprefix(PREFIX): text for key, text in texts.items() if key.startswith(PREFIX)})
        check: dict[str, Any] = {
            "protocol": reader.choice("healthcheck-protocol", "", "tcp", "http", "https").upper(),
            "port": reader.port("healthcheck-port"),
            "path": reader.text("healthcheck-path"),
            "interval": reader.number("healthcheck-interval", 5, 300),
            "timeout": reader.number("healthcheck-timeout", 2, 120),
            "healthy": reader.number("healthcheck-healthy-threshold", 2, 10),
            "unhealthy": reader.number("healthcheck-unhealthy-threshold", 2, 10),
        }
        found = cls(
            elsewhere=reader.choice("type", "nlb", "nlb", "external", "nlb-ip") != "nlb",
            internal=reader.flag("internal"),
            cross_zone=reader.flag("cross-zone-load-balancing-enabled"),
            subnets=reader.words("subnets"),
            tags=reader.pairs("additional-resource-tags"),
            node_labels=reader.pairs("target-node-labels"),
            certificate=reader.text("ssl-cert"),
            ssl_ports=reader.words("ssl-ports"),
            ssl_policy=reader.text("ssl-negotiation-policy"),
            backend_protocol=reader.choice("backend-protocol", "tcp", "tcp", "ssl"),
            target_group_attributes=reader.pairs("target-group-attributes"),
            health_check={name: value for name, value in check.items() if value},
        )
        return found, reader.problems

    def is_secure(self, port: int, name: str) -> bool:
        """Whether the certificate is for this port."""
        return not self.ssl_ports or bool({"*", str(port), name} & set(self.ssl_ports))

    def adjusted(self, check: HealthCheck) -> HealthCheck:
        """The health check with what the Service asks for in its place."""
        result = evolve(check, **self.health_check)
        if result.protocol == "TCP":
            return evolve(result, path="")
        return result if result.path else evolve(result, path="/")


@frozen
class _Reader:
    texts: Mapping[str, str]
    problems: list[str] = field(factory=list)

    def text(self, name: str) -> str:
        return self.texts.get(name, "").strip()

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.text(name).split(",") if word.strip())

    def pairs(self, name: str) -> dict[str, str]:
        split = (word.partition("=") for word in self.words(name))
        return {key.strip(): value.strip() for key, _, value in split if key.strip()}

    def flag(self, name: str) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            self._wrong(name, "true or false")
        return text == "true"

    def choice(self, name: str, default: str, *allowed: str) -> str:
        text = self.text(name).lower() or default
        if text != default and text not in allowed:
            self._wrong(name, " or ".join(allowed))
            return default
        return text

    def number(self, name: str, least: int, most: int) -> int:
        text = self.text(name)
        if not text:
            return 0
        if not text.isdecimal() or not least <= int(text) <= most:
            self._wrong(name, f"a number from {least} to {most}")
            return 0
        return int(text)

    def port(self, name: str) -> str:
        text = self.text(name)
        if text not in ("", "traffic-port") and not (text.isdecimal() and 1 <= int(text) <= 65535):
            self._wrong(name, "traffic-port or a number from 1 to 65535")
            return ""
        return text

    def _wrong(self, name: str, allowed: str) -> None:
        self.problems.append(f"the annotation {PREFIX}{name} must be {allowed}, not {self.texts[name]!r}")
