"""Wrong answers (stage 5): what a method says when a `Wrong` fault strikes it, made from what it would have said.

Pure, but for the scribbling on arguments that `Junk.MUTATED` asks for. gate.py calls `spoil` after the cloud answered.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider.errors import CloudProviderError, DiskNotFound, InstanceNotFound
from cloudprovider.instances import InstanceMetadata, InstanceState
from cloudprovider.routes import Route
from cloudprovider.testing.fake.faults import Junk, Wrong
from cloudprovider.testing.fake.methods import Method, Returns
from cloudprovider.zones import Zone

__all__ = ["fitting_junk", "spoil", "spoil_one"]

_INSTANCE = {Returns.METADATA, Returns.SHUTDOWN, Returns.ADDRESSES, Returns.TEXT, Returns.ZONE}
_JUNK: Mapping[Returns, tuple[Junk, ...]] = {
    Returns.METADATA: (
        Junk.NONE, Junk.TYPE, Junk.EMPTY, Junk.ADDRESSES, Junk.PROVIDER_ID, Junk.OTHER_PROVIDER_ID, Junk.LABELS,
        Junk.PLACES,
    ),
    Returns.EXISTS: (Junk.NONE, Junk.TYPE),
    Returns.SHUTDOWN: (Junk.NONE, Junk.TYPE),
    Returns.STATE: (Junk.NONE, Junk.TYPE),
    Returns.ADDRESSES: (Junk.NONE, Junk.TYPE, Junk.EMPTY, Junk.ADDRESSES),
    Returns.TEXT: (Junk.NONE, Junk.TYPE, Junk.EMPTY, Junk.PLACES),
    Returns.ZONE: (Junk.NONE, Junk.TYPE, Junk.EMPTY, Junk.PLACES),
    Returns.BALANCER: (Junk.TYPE, Junk.EMPTY, Junk.ADDRESSES),
    Returns.NEW_BALANCER: (Junk.NONE, Junk.TYPE, Junk.EMPTY, Junk.ADDRESSES),
    Returns.ROUTES: (Junk.NONE, Junk.TYPE, Junk.PLACES),
    Returns.NAMES: (Junk.NONE, Junk.TYPE),
    Returns.ADDRESS: (Junk.NONE, Junk.TYPE, Junk.EMPTY),
    Returns.LABELS: (Junk.NONE, Junk.TYPE, Junk.LABELS),
    Returns.CIDRS: (Junk.NONE, Junk.TYPE, Junk.EMPTY, Junk.ADDRESSES),
}  # fmt: skip
_BAD_ADDRESSES = (("InternalIP", "not-an-address"), ("InternalIP", "999.0.0.1"), ("Satellite", "10.0.0.1"))
_BAD_CIDRS = ("10.244.0.7/24", "not-a-cidr")
_BAD_LABELS = {"-bad key-": "x", "acme.example/value": "no blanks allowed!", "node.kubernetes.io/mine": "reserved"}
_NO_LABEL_VALUE = "not a label value!"


def fitting_junk(method: Method) -> tuple[Junk, ...]:
    """The kinds of junk that this method can answer with."""
    fitting = _JUNK.get(method.returns, ())
    if fitting and method.batch:
        return (*fitting, Junk.ERRORS, Junk.UNASKED, Junk.KEYS, Junk.MUTATED)
    return (*fitting, Junk.MUTATED) if fitting else ()


def spoil(
    fault: Wrong,
    method: Method,
    keys: Sequence[Sequence[str]],
    truth: Any,
    arguments: Sequence[Any],
    draw: random.Random,
) -> Any:
    """The answer to a whole call. Raises what means "not found" where the method says it that way."""
    if fault.answer == "not-found":
        if method.batch:
            return {key[0]: spoil_one(fault, method, key[0], None, draw) for key in keys}
        return _not_found(method, keys[0][0] if keys else "")
    junk = _chosen(fault, method, draw)
    if junk is Junk.MUTATED:
        _scribble(arguments)
        return truth
    if not method.batch:
        return _junk(junk, method.returns, truth)
    if junk is Junk.UNASKED:
        gone: Any = InstanceState.GONE if method.returns is Returns.STATE else InstanceNotFound("never asked for")
        return {**truth, "unasked-1": gone, "unasked-2": gone}
    if junk is Junk.KEYS:
        return {(key[1] if len(key) > 1 and key[1] else f"fake://{key[0]}"): truth.get(key[0]) for key in keys}
    if junk is Junk.NONE:
        return None
    if junk is Junk.EMPTY:
        return {}
    if junk is Junk.TYPE:
        return list(truth.values())
    return {name: spoil_one(fault, method, name, value, draw) for name, value in truth.items()}


def spoil_one(fault: Wrong, method: Method, name: str, truth: Any, draw: random.Random) -> Any:
    """The answer about one name of a batch. "Not found" is a value there, never raised."""
    if fault.answer == "not-found":
        return InstanceState.GONE if method.returns is Returns.STATE else InstanceNotFound(f"no instance {name}")
    junk = _chosen(fault, method, draw)
    if junk is Junk.ERRORS or junk not in _JUNK[method.returns]:
        return ValueError("an exception from outside the contract")
    return _junk(junk, method.returns, truth)


def _chosen(fault: Wrong, method: Method, draw: random.Random) -> Junk:
    fitting = fitting_junk(method)
    if fault.junk is None:
        return draw.choice(fitting)
    # What does not fit is left undone: a scribble without arguments.
    return fault.junk if fault.junk in fitting else Junk.MUTATED


def _not_found(method: Method, name: str) -> Any:
    if method.returns in _INSTANCE:
        raise InstanceNotFound(f"no instance {name}")
    if method.returns is Returns.LABELS:
        raise DiskNotFound(f"no volume {name}")
    if method.returns is Returns.ADDRESS:
        raise CloudProviderError(f"no cluster {name}")
    return {Returns.EXISTS: False, Returns.BALANCER: None}.get(method.returns, ())


def _addresses() -> tuple[V1NodeAddress, ...]:
    return tuple(V1NodeAddress(type=kind, address=address) for kind, address in _BAD_ADDRESSES)


def _junk(junk: Junk, answer: Returns, truth: Any) -> Any:
    if junk is Junk.NONE:
        return None
    if junk is Junk.TYPE:
        return "junk" if answer not in (Returns.TEXT, Returns.ADDRESS) else 42
    if answer is Returns.METADATA:
        return _junk_metadata(junk, truth if isinstance(truth, InstanceMetadata) else InstanceMetadata())
    if answer is Returns.ADDRESSES:
        return () if junk is Junk.EMPTY else _addresses()
    if answer in (Returns.TEXT, Returns.ADDRESS):
        return "" if junk is Junk.EMPTY else _NO_LABEL_VALUE
    if answer is Returns.CIDRS:
        return () if junk is Junk.EMPTY else _BAD_CIDRS
    if answer is Returns.ZONE:
        return Zone() if junk is Junk.EMPTY else Zone(_NO_LABEL_VALUE, "x" * 64)
    if answer is Returns.LABELS:
        return dict(_BAD_LABELS)
    if answer is Returns.ROUTES:
        return (None, Route(name="junk", target_node="", destination_cidr="not-a-cidr"))
    ingress = [V1LoadBalancerIngress(ip="not-an-address")] if junk is Junk.ADDRESSES else []
    return V1LoadBalancerStatus(ingress=ingress)


def _junk_metadata(junk: Junk, truth: InstanceMetadata) -> InstanceMetadata:
    if junk is Junk.EMPTY:
        return InstanceMetadata()
    if junk is Junk.ADDRESSES:
        return evolve(truth, node_addresses=_addresses())
    if junk is Junk.PROVIDER_ID:
        return evolve(truth, provider_id="no provider id")
    if junk is Junk.OTHER_PROVIDER_ID:
        return evolve(truth, provider_id=f"{truth.provider_id.partition('://')[0] or 'fake'}://i-somebody-else")
    if junk is Junk.LABELS:
        return evolve(truth, additional_labels=_BAD_LABELS)
    return evolve(truth, zone=_NO_LABEL_VALUE, region="x" * 64, instance_type="/")


def _scribble(arguments: Sequence[Any]) -> None:
    for argument in arguments:
        metadata = getattr(argument, "metadata", None)
        if metadata is not None:
            metadata.labels = {**(metadata.labels or {}), "fake.example/scribbled": "true"}
            metadata.resource_version = "0"
