"""Leases: validation. Follows pkg/apis/coordination/validation of k8s.io/kubernetes."""

from __future__ import annotations

from cloudprovider.testing.apiserver.errors import JSON, Cause, invalid_value
from cloudprovider.testing.apiserver.kinds import Strategy
from cloudprovider.testing.apiserver.names import dns_subdomain


class LeaseStrategy(Strategy):
    """Rules of leases: there is no status, a PUT must carry a resourceVersion, and may create."""

    allow_create_on_update = True
    has_core_metadata = False
    allow_unconditional_update = False

    def prepare_create(self, obj: JSON) -> None:
        """Coordinated leader election is off by default: its fields are dropped."""
        if "strategy" in obj["spec"] or "preferredHolder" in obj["spec"]:
            dropped = ("strategy", "preferredHolder")
            obj["spec"] = {key: value for key, value in obj["spec"].items() if key not in dropped}

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """As for a new lease."""
        self.prepare_create(obj)

    def validate(self, obj: JSON) -> list[Cause]:
        """Durations and counters."""
        spec = obj["spec"]
        causes: list[Cause] = []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        return causes

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)
