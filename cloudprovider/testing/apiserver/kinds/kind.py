"""What is peculiar to one resource: rules as data, plus one Strategy per kind.

`rest.api` finds a Kind by path, `rest.operations` runs every write through its Strategy,
`rest.discovery` lists them. `catalog` has the kinds themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from cloudprovider.testing.apiserver.access import User
from cloudprovider.testing.apiserver.errors import JSON, Cause
from cloudprovider.testing.apiserver.kinds.schema import OPEN, Struct


class Strategy:
    """What a kind adds to the common way of a write. All methods are pure but for `prepare_*`,
    which change the object given.

    `obj` is always a fresh top-level dictionary whose `metadata` is fresh too; deeper parts are
    shared and replaced, never changed in place. `namespaced` objects have both in their key."""

    allow_create_on_update = False
    """PUT to a name that does not exist creates it."""
    allow_unconditional_update = True
    """PUT without resourceVersion replaces whatever is there."""
    returns_deleted_object = False
    """DELETE answers with the object instead of a Status."""
    has_core_metadata = True
    """The metadata is checked by the core group's stricter rules."""

    def default(self, obj: JSON) -> None:
        """Fill in what the API's defaulting fills in at every write."""

    def admit(self, obj: JSON) -> None:
        """Change a new object as the default admission plugins do."""

    def sent_by(self, obj: JSON, user: User) -> None:
        """Note in a new object who creates it, where the kind has a place for that."""

    def prepare_create(self, obj: JSON) -> None:
        """Clear what a creator may not set; allocate."""

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Take from the old object what an update of the main resource may not change (status)."""
        take(obj, old, "status")

    def prepare_status(self, obj: JSON, old: JSON) -> None:
        """Take from the old object what an update of /status may not change (its spec)."""
        take(obj, old, "spec")

    def prepare_approval(self, obj: JSON, old: JSON) -> None:
        """Take from the old object what an update of /approval may not change."""

    def validate(self, obj: JSON) -> list[Cause]:
        """What is wrong with a new object, or with an updated one by itself."""
        return []

    def validate_update(self, obj: JSON, old: JSON) -> list[Cause]:
        """What is wrong with the step from old to new in the main resource."""
        return self.validate(obj)

    def validate_status(self, obj: JSON, old: JSON) -> list[Cause]:
        """What is wrong with the step from old to new in /status."""
        return []

    def validate_name(self, name: str) -> list[str]:
        """Why this is no name for the kind; empty if it is one."""
        return []

    def created(self, obj: JSON) -> None:
        """The object is stored now."""

    def updated(self, obj: JSON, old: JSON) -> None:
        """The object is stored now in place of `old`."""

    def deleted(self, obj: JSON) -> None:
        """The object is gone now; free what it held."""


def take(obj: JSON, old: JSON, field: str) -> None:
    """Replace a field by the old object's, or remove it if that has none."""
    if field in old:
        obj[field] = old[field]
    else:
        obj.pop(field, None)


FieldGetter = Callable[[JSON], str]


def read(*path: str, default: str = "") -> FieldGetter:
    """A field selector's way to one string in the object."""

    def getter(obj: JSON) -> str:
        value: Any = obj
        for part in path:
            # Any kind may be stored as it came, with a text where others have an object.
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, bool):
            return "true" if value else "false"
        return default if value is None or value == "" else str(value)

    return getter


NAME_FIELDS: Mapping[str, FieldGetter] = {
    "metadata.name": read("metadata", "name"),
    "metadata.namespace": read("metadata", "namespace"),
}


@attrs.frozen(eq=False)
class Kind:
    """One resource. `group` is "" for the core group; `strategy` is this server's own instance
    (services hold their IP addresses in it).
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    strategy: Strategy
    fields: Mapping[str, FieldGetter] = NAME_FIELDS
    subresources: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ("create", "delete", "get", "list", "patch", "update", "watch")
    struct: Struct = OPEN
    """Its type; OPEN for a kind whose objects are stored as they come."""

    @property
    def api_version(self) -> str:
        """`v1`, or `coordination.k8s.io/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """The path up to the version: `/api/v1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def is_empty(self) -> bool:
        """Can there be no object of this kind?"""
        return "create" not in self.verbs

    def storage_key(self, namespace: str, name: str) -> str:
        """The key in etcd, which shows in some messages."""
        place = {"nodes": "minions", "services": "services/specs"}.get(self.plural, self.plural)
        return f"/registry/{place}/{self.key(namespace, name)}"

    def key(self, namespace: str, name: str) -> str:
        """The store's key of an object."""
        return f"{namespace}/{name}" if self.namespaced else name
