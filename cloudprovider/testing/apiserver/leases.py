"""Leases: validation. Follows pkg/apis/coordination/validation of k8s.io/kubernetes."""

from __future__ import annotations

from cloudprovider.testing.apiserver.errors import JSON, Cause, forbidden_value, invalid_value, not_supported
from cloudprovider.testing.apiserver.kinds import Strategy
from cloudprovider.testing.apiserver.names import dns_subdomain


class LeaseStrategy(Strategy):
    """Rules of leases: there is no status, a PUT must carry a resourceVersion, and may create."""

    allow_create_on_update = True
    allow_unconditional_update = False

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Nothing to keep."""

    def validate(self, obj: JSON) -> list[Cause]:
        """Durations, counters, strategy."""
        spec = obj["spec"]
        causes: list[Cause] = []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        strategy = spec.get("strategy")
        if strategy is not None and strategy != "OldestEmulationVersion":
            causes.append(not_supported("spec.strategy", strategy, ["OldestEmulationVersion"]))
        if spec.get("preferredHolder") and not strategy:
            causes.append(forbidden_value("spec.preferredHolder", "may only be specified if `strategy` is defined"))
        return causes

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)
