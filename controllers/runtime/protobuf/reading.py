"""Objects in Protobuf as the raw objects that JSON gives (stage 1): dicts of the API's field names.
Into models they are read by `cache/protodecoding.py`, with the same readers in another shape.

The result equals the API server's JSON, but for times, which are `datetime` here. Go writes a field
that is no pointer into Protobuf also where it is empty, and leaves most of those out of JSON; the
tables here say which fields JSON keeps. A reader walks the fields that are there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError
from pydantic_core import TzInfo

from controllers.runtime.protobuf.schema import message_class, open_envelope

Reader = Callable[[Any], Any]

ALWAYS_SHOWN: Final[Mapping[str, str]] = {
    "AWSElasticBlockStoreVolumeSource": "volumeID",
    "AzureDiskVolumeSource": "diskName diskURI",
    "AzureFilePersistentVolumeSource": "secretName shareName secretNamespace",
    "CSIPersistentVolumeSource": "driver volumeHandle",
    "CephFSPersistentVolumeSource": "monitors",
    "CinderPersistentVolumeSource": "volumeID",
    "Condition": "type status lastTransitionTime reason message",
    "DaemonEndpoint": "Port",
    "Endpoint": "addresses",
    "EndpointSlice": "addressType endpoints ports",
    "FlexPersistentVolumeSource": "driver",
    "GCEPersistentDiskVolumeSource": "pdName",
    "GlusterfsPersistentVolumeSource": "endpoints path",
    "HostPathVolumeSource": "path",
    "ISCSIPersistentVolumeSource": "targetPortal iqn lun",
    "LocalVolumeSource": "path",
    "NFSVolumeSource": "server path",
    "NodeAddress": "type address",
    "NodeCondition": "type status",
    "NodeSelector": "nodeSelectorTerms",
    "NodeSelectorRequirement": "key operator",
    "NodeSystemInfo": (
        "machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion kubeProxyVersion "
        "operatingSystem architecture"
    ),
    "OwnerReference": "kind name uid apiVersion",
    "PhotonPersistentDiskVolumeSource": "pdID",
    "PortStatus": "port protocol",
    "PortworxVolumeSource": "volumeID",
    "QuobyteVolumeSource": "registry volume",
    "RBDPersistentVolumeSource": "monitors image",
    "ScaleIOPersistentVolumeSource": "gateway system secretRef",
    "ServicePort": "port",
    "Taint": "key effect",
    "VsphereVirtualDiskVolumeSource": "volumePath",
}
"""The fields, by message, that JSON shows also where they are empty (no `omitempty` in Go)."""

POINTERS: Final[Mapping[str, str]] = {
    "AzureDiskVolumeSource": "cachingMode fsType readOnly kind",
    "AzureFilePersistentVolumeSource": "secretNamespace",
    "ClientIPConfig": "timeoutSeconds",
    "Endpoint": "nodeName zone",
    "EndpointConditions": "ready serving terminating",
    "EndpointPort": "name protocol port appProtocol",
    "FCVolumeSource": "lun",
    "GlusterfsPersistentVolumeSource": "endpointsNamespace",
    "HostPathVolumeSource": "type",
    "ISCSIPersistentVolumeSource": "initiatorName",
    "LeaseSpec": "holderIdentity leaseDurationSeconds leaseTransitions strategy preferredHolder",
    "ListMeta": "remainingItemCount",
    "LoadBalancerIngress": "ipMode",
    "LocalVolumeSource": "fsType",
    "NodeSwapStatus": "capacity",
    "NodeSystemInfo": "runningInUserNamespace",
    "ObjectMeta": "deletionGracePeriodSeconds",
    "OwnerReference": "controller blockOwnerDeletion",
    "PersistentVolumeSpec": "volumeMode volumeAttributesClassName",
    "PortStatus": "error",
    "ServicePort": "appProtocol",
    "ServiceSpec": (
        "ipFamilyPolicy allocateLoadBalancerNodePorts loadBalancerClass internalTrafficPolicy trafficDistribution"
    ),
}
"""The scalar fields, by message, that are pointers in Go: JSON shows them even empty."""

SHOWN_UNLESS_ZERO: Final[Mapping[str, str]] = {"ObjectMeta": "creationTimestamp"}
"""Times that JSON leaves out where they are zero, instead of showing null (`omitzero` in Go)."""

INLINE: Final = ("PersistentVolumeSpec", "persistentVolumeSource")
"""The one message whose fields JSON shows among those of the message that holds it."""

_UTC: Final = TzInfo(0)  # pydantic's own, as in a model that was read from JSON
_MOMENTS: Final = 1024  # a node's conditions share most of their times
_INT, _STRING = 0, 1  # IntOrString.type

# What is done with a field's value; all but the first two have a reader of their own.
_SKIP_EMPTY, _KEEP, _LIST, _MAP, _MESSAGE, _MESSAGES, _MESSAGE_MAP, _INLINE, _UNLESS_ZERO = range(9)


def read_object(kind: str, raw: bytes) -> dict[str, Any]:
    """The object of that kind ("Node") in these bytes, which have no envelope; raises ValueError
    for bytes that are none."""
    found: dict[str, Any] = reader_of(kind)(message_in(kind, raw))
    return found


def message_in(kind: str, raw: bytes) -> Any:
    """The message of that kind in these bytes, which have no envelope; raises ValueError for bytes
    that are none."""
    try:
        return message_class(kind).FromString(raw)
    except DecodeError as error:
        raise ValueError(f"{len(raw)} bytes that are no {kind}: {error}") from error


def read_enveloped(data: bytes, kind: str) -> dict[str, Any]:
    """The object of that kind in this envelope; raises ValueError for anything else."""
    return read_object(kind, object_in(data, kind))


def object_in(data: bytes, kind: str) -> bytes:
    """The bytes of the object of that kind in the envelope; raises ValueError likewise."""
    envelope = open_envelope(data)
    # A Status in place of the object, or another kind by a proxy's mistake: same bytes, other
    # fields.
    if envelope.typeMeta.kind != kind:
        raise ValueError(f"expected a {kind}, got {envelope.typeMeta.kind[:60]!r}")
    raw: bytes = envelope.raw
    return raw


class Shape(Protocol):
    """What messages become: dicts, or something that is made of them."""

    @property
    def listed(self) -> Callable[[list[Any]], Any]:
        """What makes a list as it is to be kept."""
        ...

    @property
    def mapped(self) -> Callable[[dict[str, Any]], Any]:
        """What makes a map as it is to be kept."""
        ...

    def shown(self, field: str) -> str:
        """What a field is called there."""
        ...

    def text(self, value: str) -> str:
        """A string of the message, as it is to be kept."""
        ...

    def inner(self, field: str, message: str) -> Reader:
        """The reader of messages of that name in this field."""
        ...

    def made(self, message: str, empty: Mapping[str, Any]) -> Callable[[dict[str, Any]], Any] | None:
        """What makes a message of that name of the dict of its fields, in which those of `empty`
        are always there; None if the dict is it."""
        ...


def _unread(value: Any) -> Any:
    return value


class _Raw:
    """Dicts of the API's field names."""

    listed = mapped = staticmethod(_unread)

    def shown(self, field: str) -> str:
        return field

    def text(self, value: str) -> str:
        return value

    def inner(self, field: str, message: str) -> Reader:
        return VALUES.get(message) or reader_of(message)

    def made(self, message: str, empty: Mapping[str, Any]) -> None:
        return None


class _Inline:
    """The shape of a message whose fields are shown among those of the message that holds it."""

    def __init__(self, holder: Shape) -> None:
        self.shown, self.text, self.inner = holder.shown, holder.text, holder.inner
        self.listed, self.mapped = holder.listed, holder.mapped

    def made(self, message: str, empty: Mapping[str, Any]) -> None:
        return None


@functools.cache
def reader_of(name: str) -> Reader:
    """What turns a message of that name into a dict."""
    return shaped_reader(name, _Raw())


def shaped_reader(name: str, shape: Shape) -> Reader:
    """What turns a message of that name into what the shape says."""
    descriptor = message_class(name).DESCRIPTOR
    always = ALWAYS_SHOWN.get(name, "").split()
    pointers = POINTERS.get(name, "").split()
    hidden = SHOWN_UNLESS_ZERO.get(name)
    empty = {shape.shown(field): _empty(descriptor.fields_by_name[field], field in pointers) for field in always}
    table = {
        field: _way(field, name, shape, kept=field.name in always or field.name in pointers, hidden=hidden)
        for field in descriptor.fields
    }
    make, text, listed, mapped = shape.made(name, empty), shape.text, shape.listed, shape.mapped

    def repaired(value: Any) -> Any:
        return text(value if value.__class__ is str else _repaired(value))

    def read_message(message: Any) -> Any:
        out = dict(empty)
        # Only what is set: a Node has hundreds of fields, and most are empty.
        for field, value in message.ListFields():
            shown, how, read = table[field]
            if how <= _KEEP:
                # Go leaves out what has omitempty; a pointer to an empty value is there, and shown.
                if value or how == _KEEP:
                    kind = value.__class__
                    out[shown] = text(value) if kind is str else _repaired(value) if kind is bytes else value
            elif how == _MESSAGE:
                out[shown] = read(value)
            elif how == _MESSAGES:
                out[shown] = listed([read(one) for one in value])
            elif how == _MAP:
                out[shown] = mapped(
                    {text(key): repaired(value[key]) for key in value}
                )  # items() takes 1.5 times as long
            elif how == _LIST:
                out[shown] = listed([repaired(one) for one in value])
            elif how == _MESSAGE_MAP:
                out[shown] = mapped({text(key): read(value[key]) for key in value})
            elif how == _INLINE:
                # Go embeds that struct, so JSON has its fields one level up.
                out.update(read(value))
            elif how == _UNLESS_ZERO and (moment := read(value)) is not None:
                out[shown] = moment
        return out if make is None else make(out)

    return read_message


def _way(field: Any, holder: str, shape: Shape, *, kept: bool, hidden: str | None) -> tuple[str, int, Reader]:
    shown, kind = shape.shown(field.name), field.message_type
    if kind is None:
        return shown, (_LIST if _is_repeated(field) else _KEEP if kept else _SKIP_EMPTY), _unread
    how = _MESSAGES if _is_repeated(field) else _MESSAGE
    if kind.has_options:  # a map's entry, and nothing else; GetOptions() would import 5 ms of classes to say so
        # What a map holds decides, as its keys are text in every kind here.
        kind = kind.fields_by_name["value"].message_type
        if kind is None:
            return shown, _MAP, _unread
        how = _MESSAGE_MAP
    elif (holder, field.name) == INLINE:
        return shown, _INLINE, shaped_reader(kind.name, _Inline(shape))
    elif field.name == hidden:
        how = _UNLESS_ZERO
    return shown, how, shape.inner(field.name, kind.name)


def _is_repeated(field: Any) -> bool:
    # `is_repeated` came with protobuf 6, and `label` goes with a later one.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _empty(field: Any, pointer: bool) -> Any:
    return None if pointer or _is_repeated(field) or field.message_type is not None else field.default_value


def _text(value: Any) -> Any:
    return value if value.__class__ is not bytes else _repaired(value)


def _repaired(value: bytes) -> str:
    """Text that is no UTF-8, which a message gives as bytes: as Go's JSON shows it, each byte that
    does not belong replaced by U+FFFD."""
    text = ""
    while True:
        try:
            return text + value.decode()
        except UnicodeDecodeError as error:
            text += value[: error.start].decode() + "\ufffd" * (error.end - error.start)
            value = value[error.end :]


def _time(message: Any) -> datetime | str | None:
    # Go writes the zero time as a message without fields, and reads no fractions of a second here.
    seconds = message.seconds
    return _moment(seconds) if seconds or message.ListFields() else None


def _micro_time(message: Any) -> datetime | str | None:
    if not message.ListFields():
        return None
    moment = _moment(message.seconds)
    return moment if isinstance(moment, str) else moment.replace(microsecond=message.nanos // 1000)


@functools.lru_cache(_MOMENTS)
def _moment(seconds: int) -> datetime | str:
    try:
        return datetime.fromtimestamp(seconds, _UTC)
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"  # the model refuses it, which names the field and costs this object alone


def _quantity(message: Any) -> str:
    text: str = _text(message.string)
    return text


def _int_or_string(message: Any) -> int | str:
    found: int | str
    if message.type == _INT:
        found = message.intVal
    elif message.type == _STRING:
        found = _text(message.strVal)
    else:
        raise ValueError(f"neither a number nor a string: {message.type}")
    return found


VALUES: Final[Mapping[str, Reader]] = {
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
}
"""Messages that are a text, a number or a time, with their readers. A time beyond all calendars is
a text."""
