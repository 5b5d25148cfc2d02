"""Provider IDs: the link between a node and its instance. Pure but for `get_instance_provider_id`
(stages 4 and 5).

Data comes from `node.spec.providerID` and from providers; the answers decide whether a node is ours
to touch.

Follows: GetInstanceProviderID in k8s.io/cloud-provider cloud.go; ownership is ours.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from attrs import frozen

from cloudprovider.errors import CloudProviderError, NotImplementedByProvider
from cloudprovider.internal.fields import documented

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.instances import Instances

__all__ = [
    "Ownership",
    "ProviderID",
    "format_provider_id",
    "get_instance_provider_id",
    "is_owned",
    "ownership",
    "parse_provider_id",
    "provider_id_of",
    "provider_id_problems",
    "same_provider_id",
]

_SCHEME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9+._-]*[A-Za-z0-9])?")
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f]")
MISSING_VALUE: Final = re.compile(r"(?<![^/])(?:None|null|undefined|<nil>)(?![^/])")
"""A part of a provider ID that was a missing value before it was made text, of Python, JSON,
JavaScript or Go."""


@documented
@frozen
class ProviderID:
    """A provider ID in its parts. `str()` gives it back unchanged."""

    provider: str
    """What stands before "://"."""

    instance: str
    """What stands after it, slashes included: "/eu-west-1a/i-0abc" in
    "aws:///eu-west-1a/i-0abc"."""

    @property
    def name(self) -> str:
        """The last part of `instance`: "i-0abc" in "aws:///eu-west-1a/i-0abc"."""
        return self.instance.rstrip("/").rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.provider}://{self.instance}"


class Ownership(enum.Enum):
    """Whose a node is, going by its provider ID."""

    OURS = "ours"
    FOREIGN = "foreign"
    """Its ID begins as no ID of this provider does: leave it alone."""
    UNKNOWN = "unknown"
    """It has no ID yet, while this provider has provider IDs: it may be initialised, but not
    deleted."""


def provider_id_of(node: V1Node) -> str:
    """The node's `spec.providerID`, "" where there is none."""
    return (node.spec.provider_id if node.spec is not None else None) or ""


def provider_id_problems(provider_id: str) -> tuple[str, ...]:
    """What is wrong with a provider ID; empty when it has the form "<provider>://<instance-id>"."""
    provider, separator, instance = provider_id.partition("://")
    if not separator:
        return (f"provider ID {provider_id!r} lacks '://': the form is <provider>://<instance-id>",)
    problems = []
    if not _SCHEME.fullmatch(provider):
        problems.append(f"provider ID {provider_id!r} must begin with the provider's name")
    if not instance.strip("/"):
        problems.append(f"provider ID {provider_id!r} names no instance")
    if missing := MISSING_VALUE.search(instance):
        problems.append(f"provider ID {provider_id!r} is made of a value that was not there: {missing[0]}")
    if _UNPRINTABLE.search(instance):
        problems.append(f"provider ID {provider_id!r} has blanks or control characters")
    return tuple(problems)


def parse_provider_id(provider_id: str) -> ProviderID:
    """The parts of a provider ID. Raises ValueError, naming every problem."""
    problems = provider_id_problems(provider_id)
    if problems:
        raise ValueError("; ".join(problems))
    provider, _, instance = provider_id.partition("://")
    return ProviderID(provider, instance)


def format_provider_id(provider: str, instance: str) -> str:
    """The provider ID of an instance. Raises TypeError for a part that is no text (an ID that the
    cloud did not send, or a number), and ValueError when the parts do not make one."""
    # Not left to an f-string: it would make the text "None" of an ID that the cloud did not send.
    for part, given in (("provider", provider), ("instance", instance)):
        if not isinstance(given, str):
            raise TypeError(f"format_provider_id: the {part} must be text, and is of type {type(given).__name__}")
    return str(parse_provider_id(f"{provider}://{instance}"))


def ownership(provider_id: str | None, prefixes: Iterable[str]) -> Ownership:
    """Whose node this is, by its provider ID and the provider's `provider_id_prefixes()`.

    A provider without prefixes has no provider IDs: nodes without one are its own. Empty prefixes,
    which every ID would match, are not counted. Letter case counts: a deletion may follow from
    this.
    """
    # Every ID begins with "": all nodes would be ours, and might be deleted.
    own = tuple(prefix for prefix in prefixes if prefix)
    if provider_id:
        # Without prefixes `startswith(())` is false: whoever has IDs is another cloud.
        return Ownership.OURS if provider_id.startswith(own) else Ownership.FOREIGN
    return Ownership.UNKNOWN if own else Ownership.OURS


def is_owned(provider_id: str | None, prefixes: Iterable[str]) -> bool:
    """Whether the node is certainly this provider's: `ownership` says OURS."""
    return ownership(provider_id, prefixes) is Ownership.OURS


def same_provider_id(one: str, other: str) -> bool:
    """Whether two provider IDs are spellings of one: equal but for letter case, and for an
    authority that is empty in one of them.

    So "openstack:///u-1" is "openstack://RegionOne/u-1", and "aws:///eu-west-1a/I-0AB" is
    "aws:///eu-west-1a/i-0ab"; "openstack://RegionOne/u-1" is not "openstack://RegionTwo/u-1". The
    default of `Interface.same_provider_id`.
    """
    if one == other:
        return True
    left, right = _split(one), _split(other)
    if left is None or right is None or (left[0], left[2]) != (right[0], right[2]):
        return False
    # An authority that is left out is the one that the configuration has: no contradiction.
    return left[1] == right[1] or "" in (left[1], right[1])


def _split(provider_id: str) -> tuple[str, str | None, str] | None:
    """(provider, authority, rest) in lower case, the authority None in "x://u-1"; None for what is
    no provider ID."""
    # Some clouds answer an ID in another letter case than they took it.
    provider, separator, instance = provider_id.casefold().partition("://")
    if not separator or not instance.strip("/"):
        return None
    authority, slash, rest = instance.partition("/")
    return (provider, authority, rest) if slash else (provider, None, authority)


class _Cloud(Protocol):
    """What is asked of `cloudprovider.Interface` here: that module uses this one."""

    def provider_name(self) -> str: ...
    def instances(self) -> Instances | None: ...


def get_instance_provider_id(cloud: _Cloud, node_name: str) -> str:
    """The provider ID of a node's instance, asked from a provider's older `Instances` by name.

    Calls the provider, so only the gateway or a provider itself uses it; changes nothing. Raises
    `InstanceNotFound` when there is no such instance, `NotImplementedByProvider` when the provider
    has no `Instances` or no IDs, `CloudProviderError` for an answer that is no text or an empty
    one, and whatever else `Instances.instance_id` raises.
    """
    instances = cloud.instances()
    if instances is None:
        raise NotImplementedByProvider(f"provider {cloud.provider_name()!r} has no Instances to ask for provider IDs")
    # An object, as vendors' code need not keep to its annotations.
    instance: object = instances.instance_id(node_name)
    if not isinstance(instance, str) or not instance:
        raise CloudProviderError(f"provider {cloud.provider_name()!r}: instance_id({node_name!r}) gave no instance ID")
    return f"{cloud.provider_name()}://{instance}"
