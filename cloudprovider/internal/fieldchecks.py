"""Types of the values that a vendor builds: checked where they are built, the traceback shows
where.

Used by the frozen classes of the contract. What a text must look like (a label value, an address)
is checked by the host, which knows the node: see `InstanceMetadata`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attrs import Attribute
    from kubernetes.client.models.v1_node_address import V1NodeAddress

_SHOWN = 80  # characters of a wrong value


def as_tuple(value: Iterable[V1NodeAddress]) -> tuple[V1NodeAddress, ...]:
    """A converter: any collection, but no text. For `node_addresses`."""
    given: Any = value  # vendors' code need not be typed
    collection = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    return tuple(given) if collection else given


def own_copy(value: Mapping[str, str]) -> Mapping[str, str]:
    """A converter: a copy that no one else changes. For `labels`."""
    given: Any = value
    return dict(given) if isinstance(given, Mapping) else given


def text(instance: object, field: Attribute[Any], value: object) -> None:
    """A validator: a str."""
    if not isinstance(value, str):
        raise _wrong(instance, field, "a str", value)


def flag(instance: object, field: Attribute[Any], value: object) -> None:
    """A validator: True or False."""
    if not isinstance(value, bool):
        raise _wrong(instance, field, "True or False", value)


def flag_or_none(instance: object, field: Attribute[Any], value: object) -> None:
    """A validator: True, False or None."""
    if value is not None and not isinstance(value, bool):
        raise _wrong(instance, field, "True, False or None", value)


def labels(instance: object, field: Attribute[Any], value: object) -> None:
    """A validator: names and values are texts."""
    if not isinstance(value, Mapping):
        raise _wrong(instance, field, "a mapping of label names to values", value)
    for name, content in value.items():
        if not isinstance(name, str) or not isinstance(content, str):
            raise _wrong(instance, field, "a mapping of str to str", f"{name!r}: {content!r}")


def node_addresses(instance: object, field: Attribute[Any], value: object) -> None:
    """A validator: a sequence of V1NodeAddress."""
    wanted = 'a sequence of V1NodeAddress, such as [V1NodeAddress(type="InternalIP", address="10.0.0.1")]'
    if not isinstance(value, tuple):
        raise _wrong(instance, field, wanted, value)
    if value:
        from kubernetes.client.models.v1_node_address import V1NodeAddress

        for one in value:
            if not isinstance(one, V1NodeAddress):
                raise _wrong(instance, field, wanted, one)


def _wrong(instance: object, field: Attribute[Any], wanted: str, value: object) -> TypeError:
    shown = value if isinstance(value, str) else repr(value)
    cut = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    kind = type(value).__name__
    return TypeError(f"{type(instance).__name__}.{field.name} must be {wanted}; it is of type {kind}: {cut}")
