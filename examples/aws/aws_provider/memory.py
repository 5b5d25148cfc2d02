"""What the last whole pass over a load balancer left in AWS, so that the next call need not look
again.

A new node then costs one request for each target group, and a poll while AWS builds one request.
Every `ensure_load_balancer` looks in AWS, as does the first call in a process and each after an
error: what others change there is repaired then. An ARN is never given twice, so what was proved to
be the Service's once stays its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from attrs import frozen

from aws_provider.balancers import Balancer
from aws_provider.plan import Identity, Plan
from aws_provider.securitygroups import IngressRule
from aws_provider.targetgroups import Groups, Registered
from cloudprovider import current_call


@frozen
class Built:
    """A Service's load balancer in AWS, proved by its tags."""

    balancer: Balancer
    groups: Groups
    registered: Mapping[str, Registered]
    """The targets, by the target group's ARN."""
    rules: frozenset[IngressRule] = frozenset()
    """Of the nodes' security groups: a node that joins may be the first that has one of these
    groups."""
    building: tuple[Plan, frozenset[str]] | None = None
    """While all is done and AWS still builds: for which plan, and for which instances' IDs."""


class Memory:
    """`Built` by Service. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._built: dict[tuple[str, str], Built] = {}

    def get(self, service: Identity) -> Built | None:
        """What is known; None: look in AWS."""
        with self._lock:
            return self._built.get((service.cluster, service.uid))

    def keep(self, service: Identity, built: Built) -> None:
        """What a call left, as a whole. Raises `CallInterrupted` when the host has given the call
        up: another may know better."""
        with self._lock:
            current_call().check()
            self._built[service.cluster, service.uid] = built

    def forget(self, service: Identity) -> None:
        """Nothing is certain any more."""
        with self._lock:
            self._built.pop((service.cluster, service.uid), None)
