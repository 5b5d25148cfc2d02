"""The kinds that the runtime lists and watches (stages 1 and 2): where each lives, how its JSON or
Protobuf becomes an object, and what of it is dropped: what no controller reads and a provider has
no use for. Nothing is lost on the server by this, as objects are only ever patched. One object is
parsed at a time, so that a malformed one costs itself alone (`MalformedObject`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import quote

from attrs import frozen

if TYPE_CHECKING:
    from kubernetes.client.models.core_v1_event import CoreV1Event
    from kubernetes.client.models.v1_certificate_signing_request import V1CertificateSigningRequest
    from kubernetes.client.models.v1_endpoint_slice import V1EndpointSlice
    from kubernetes.client.models.v1_lease import V1Lease
    from kubernetes.client.models.v1_namespace import V1Namespace
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_object_meta import V1ObjectMeta
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
    from kubernetes.client.models.v1_service import V1Service

_EXCERPT: Final = 60

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_NODE_LEFT_OUT: Final = {
    "status": (
        "images",
        "volumesInUse",
        "volumesAttached",
        "config",
        "runtimeHandlers",
        "features",
        "declaredFeatures",
    ),
    "spec": ("configSource",),
}
_ENDPOINT_LEFT_OUT: Final = ("hostname", "targetRef", "deprecatedTopology", "hints")
_SLICE_OF: Final = "kubernetes.io/service-name"

DECISIONS: Final = frozenset({"Approved", "Denied", "Failed"})
"""Conditions of a CertificateSigningRequest after which nothing is left to decide."""

LONGEST_REQUEST: Final = 16 * 1024
"""So many characters of a CertificateSigningRequest's request are read; a kubelet's has 1,000."""

Raw = dict[str, Any]
"""An object as the API sends it, parsed from JSON, or from Protobuf with `datetime` for times."""


class ApiObject(Protocol):
    """What every model of the official client has, and all that the cache asks of it."""

    @property
    def metadata(self) -> V1ObjectMeta | None: ...

    @property
    def kind(self) -> str | None: ...

    @property
    def api_version(self) -> str | None: ...

    @classmethod
    def model_validate(cls, obj: Any, *, extra: Literal["ignore"]) -> Self: ...


T = TypeVar("T", bound=ApiObject)


class MalformedObject(Exception):
    """An object from the API server does not fit its model. The message says where, without
    repeating its contents."""


def trim_metadata(raw: dict[str, Any]) -> None:
    """Drop managedFields and kubectl's copy of the object, in place. The default for every kind."""
    metadata = raw["metadata"]
    metadata.pop("managedFields", None)
    trim_annotations(metadata.get("annotations"))


def trim_annotations(annotations: dict[str, str] | None) -> None:
    """Drop kubectl's copy of the object, in place."""
    if annotations:
        dict.pop(annotations, LAST_APPLIED, None)  # read-only already, but nobody has it yet


def trim_node(raw: dict[str, Any]) -> None:
    """Drop what is most of a Node's size and read by no controller, in place."""
    trim_metadata(raw)
    for part, left_out in _NODE_LEFT_OUT.items():
        fields = raw.get(part)
        if fields:
            for field in left_out:
                fields.pop(field, None)


def trim_slice(raw: dict[str, Any]) -> None:
    """Drop what tells which pod an endpoint is, and how kube-proxy is to choose, in place."""
    trim_metadata(raw)
    for endpoint in raw.get("endpoints") or ():
        for field in _ENDPOINT_LEFT_OUT:
            endpoint.pop(field, None)


def service_of(found: V1EndpointSlice) -> str:
    """The key of the Service that the slice is of; "" where it is of none."""
    metadata = found.metadata
    name = (metadata.labels or {}).get(_SLICE_OF) if metadata is not None else None
    return f"{metadata.namespace}/{name}" if metadata is not None and name else ""


def trim_certificate_request(raw: dict[str, Any]) -> None:
    """Drop the certificate, and the request once nothing is left to decide, in place: they are
    most of it. Of one that is too long to be read enough stays to show that."""
    trim_metadata(raw)
    # Its sender, one hostile kubelet, may send thousands with a megabyte in each of these.
    for part, fields in (("metadata", ("labels", "annotations")), ("spec", ("extra",))):
        for field in fields:
            raw[part].pop(field, None)
    raw["spec"]["request"] = raw["spec"]["request"][: LONGEST_REQUEST + 4]  # whole groups of base64
    status = raw.get("status") or {}
    status.pop("certificate", None)
    if any(condition["type"] in DECISIONS for condition in status.get("conditions") or ()):
        raw["spec"]["request"] = ""


class DecodeError(Exception):
    """Bytes that are no list, or no watch event. The message shows a short excerpt's shape."""


class ProtobufDecodeError(DecodeError):
    """The bytes came as Protobuf: perhaps JSON can be read."""


@frozen
class ListMeta:
    """A list page's own metadata: the version to watch from, and the next page's token, or ""."""

    resource_version: str
    continue_token: str


class WireObject(NamedTuple):
    """An object that came in Protobuf."""

    message: Any
    """Read, but not yet made a model."""


@frozen
class Resource(Generic[T]):
    """One kind of object. Immutable and hashable; safe from any thread.

    `prefix` is "/api/v1" or "/apis/<group>/<version>", `plural` the path's word ("nodes"). `trim`
    removes from a raw object, in place, what no controller reads; it may raise anything on a raw
    object of the wrong shape. `in_protobuf`: `runtime/protobuf` has its message. `fields` is a
    field selector: objects that it leaves out are neither listed nor watched. `_home` says where
    the official client has the model ("v1_node.V1Node"): the models import in 40 ms, so each is
    imported with the first object.
    """

    prefix: str
    plural: str
    kind: str
    _home: str
    namespaced: bool
    trim: Callable[[Raw], None] = trim_metadata
    in_protobuf: bool = False
    index: Callable[[Any], str] | None = None
    """What objects are also found by (`Lister.indexed`), "" for nothing; None: by their key
    alone."""
    fields: str = ""

    @property
    def selection(self) -> dict[str, str]:
        """What lists and watches of this kind have in their query."""
        return {"fieldSelector": self.fields} if self.fields else {}

    @cached_property
    def api_version(self) -> str:
        """The objects' apiVersion: "v1", "coordination.k8s.io/v1"."""
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")

    @cached_property
    def model(self) -> type[T]:
        """The model of the objects; imported if need be."""
        found: type[T] = _imported(self._home)
        return found

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, of one object, or of its subresource.

        A namespaced kind without `namespace` means the collection over all namespaces. Raises
        ValueError where the parts do not fit together.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural} are not namespaced")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.plural}/{name}: a namespace is needed")
        if subresource and not name:
            raise ValueError(f"{self.plural}: subresource {subresource!r} without a name")
        parts = [self.prefix]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)

    def key_path(self, key: str, subresource: str | None = None) -> str:
        """The URL path of the object with this key ("name" or "namespace/name")."""
        namespace, name = split_key(key)
        return self.path(namespace or None, name, subresource)

    def parse(self, raw: Raw) -> T:
        """Trim `raw` in place and parse it; raises MalformedObject and nothing else.

        `kind` and `apiVersion` are filled in: list items come without them, and an Event's
        reference needs them. Fields that the model does not know are dropped. This is the models'
        own `from_dict` in one step instead of one for each part of an object: a trimmed node takes
        10 us instead of 34.
        """
        try:
            self.trim(raw)
            raw["kind"] = self.kind
            raw["apiVersion"] = self.api_version
            parsed = self.model.model_validate(raw, extra="ignore")
        except Exception as error:  # generated code: the wrong shape raises whatever it likes
            raise MalformedObject(_explain(error)) from error
        meta = parsed.metadata
        # Without a version no watch could go on from it, and no patch be bound to it.
        if meta is None or not meta.name or not meta.resource_version:
            raise MalformedObject("metadata lacks a name or a resourceVersion")
        if self.namespaced and not meta.namespace:
            raise MalformedObject("metadata lacks a namespace")
        return parsed


def list_meta(kind: str, found: object, version: object, token: object) -> ListMeta:
    """The metadata of a list of that kind: its own kind, resourceVersion and continue. Raises
    DecodeError for what is no such list."""
    # An empty object from a proxy must not pass for an empty list: everything would be deleted.
    if found not in (None, f"{kind}List"):
        raise DecodeError(f"expected a {kind}List, got {str(found)[:_EXCERPT]!r}")
    # A watch without a version begins anywhere, and what was deleted before would stay for ever.
    if not isinstance(version, str) or not version:
        raise DecodeError(f"a {kind}List without items or resourceVersion")
    return ListMeta(version, token if isinstance(token, str) else "")


def split_key(key: str) -> tuple[str, str]:
    """Split a key into (namespace, name); the namespace is "" for kinds without. or ValueError."""
    namespace, slash, name = key.rpartition("/")
    # Keys come from users too (annotations, flags): a path made of a wrong one would be another
    # object.
    if not name or (slash and not namespace) or "/" in namespace:
        raise ValueError(f'not a key, which is "name" or "namespace/name": {key!r}')
    return namespace, name


def version_of(obj: ApiObject) -> str:
    """The object's resourceVersion, "" where it has none."""
    meta = obj.metadata
    return (meta.resource_version or "") if meta is not None else ""


def is_newer(version: str, than: str) -> bool | None:
    """Compare two resourceVersions of one kind; None where they cannot be compared.

    kube-apiserver's are decimal numbers that grow with every write, and since 1.35 that is a
    promise (https://kep.k8s.io/5504). Others are compared for equality alone."""
    if version == than:
        return False
    # As numbers: as text "10" would be older than "9".
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return None


@cache
def _imported(home: str) -> Any:
    module, _, model = home.partition(".")
    return getattr(importlib.import_module(f"kubernetes.client.models.{module}"), model)


def _explain(error: Exception) -> str:
    """Where an object is wrong, in a line: a validation error's text repeats its values."""
    try:
        details = error.errors(include_url=False, include_input=False)  # type: ignore[attr-defined]  # pydantic's
    except (AttributeError, TypeError):
        return f"{type(error).__name__}: {error}"[:300]
    where = [f"{'.'.join(map(str, detail['loc'])) or 'object'}: {detail['msg']}" for detail in details[:3]]
    return f"{getattr(error, 'title', 'object')}: {'; '.join(where)}"[:300]


_CORE: Final = "/api/v1"

NODES: Final[Resource[V1Node]] = Resource(
    _CORE, "nodes", "Node", "v1_node.V1Node", namespaced=False, trim=trim_node, in_protobuf=True
)
SERVICES: Final[Resource[V1Service]] = Resource(
    _CORE, "services", "Service", "v1_service.V1Service", namespaced=True, in_protobuf=True
)
PERSISTENT_VOLUMES: Final[Resource[V1PersistentVolume]] = Resource(
    _CORE,
    "persistentvolumes",
    "PersistentVolume",
    "v1_persistent_volume.V1PersistentVolume",
    namespaced=False,
    in_protobuf=True,
)
EVENTS: Final[Resource[CoreV1Event]] = Resource(_CORE, "events", "Event", "core_v1_event.CoreV1Event", namespaced=True)
LEASES: Final[Resource[V1Lease]] = Resource(
    "/apis/coordination.k8s.io/v1", "leases", "Lease", "v1_lease.V1Lease", namespaced=True, in_protobuf=True
)
NAMESPACES: Final[Resource[V1Namespace]] = Resource(
    _CORE, "namespaces", "Namespace", "v1_namespace.V1Namespace", namespaced=False
)
ENDPOINT_SLICES: Final[Resource[V1EndpointSlice]] = Resource(
    "/apis/discovery.k8s.io/v1",
    "endpointslices",
    "EndpointSlice",
    "v1_endpoint_slice.V1EndpointSlice",
    namespaced=True,
    trim=trim_slice,
    in_protobuf=True,
    index=service_of,
)
"""For a provider that asks for them: there are many, and no controller of ours reads any."""

KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
"""The signer of kubelets' serving certificates."""
KUBELET_SERVING_REQUESTS: Final[Resource[V1CertificateSigningRequest]] = Resource(
    "/apis/certificates.k8s.io/v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    "v1_certificate_signing_request.V1CertificateSigningRequest",
    namespaced=False,
    trim=trim_certificate_request,
    fields=f"spec.signerName={KUBELET_SERVING}",
)
