"""Events of the core API: validation and field labels. Follows pkg/apis/core/validation/events.go
of k8s.io/kubernetes.

Events are kept until they are deleted: the real server's time to live of an hour is not imitated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cloudprovider.testing.apiserver.errors import JSON, Cause, invalid_value, required
from cloudprovider.testing.apiserver.kinds.kind import NAME_FIELDS, FieldGetter, Strategy, read
from cloudprovider.testing.apiserver.kinds.names import qualified_name

_LIMIT: Final = 128
_NOTE_LIMIT: Final = 1024


def _source(obj: JSON) -> str:
    return str(obj.get("source", {}).get("component") or obj.get("reportingComponent") or "")


FIELDS: Final[Mapping[str, FieldGetter]] = {
    **NAME_FIELDS,
    "involvedObject.kind": read("involvedObject", "kind"),
    "involvedObject.namespace": read("involvedObject", "namespace"),
    "involvedObject.name": read("involvedObject", "name"),
    "involvedObject.uid": read("involvedObject", "uid"),
    "involvedObject.apiVersion": read("involvedObject", "apiVersion"),
    "involvedObject.resourceVersion": read("involvedObject", "resourceVersion"),
    "involvedObject.fieldPath": read("involvedObject", "fieldPath"),
    "reason": read("reason"),
    "reportingComponent": read("reportingComponent"),
    "source": _source,
    "type": read("type"),
}


class EventStrategy(Strategy):
    """Rules of events: there is no status, a PUT may create."""

    allow_create_on_update = True
    has_core_metadata = False

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Nothing to keep."""

    def validate(self, obj: JSON) -> list[Cause]:
        """The namespaces must agree; with an eventTime more must be said."""
        namespace = obj["metadata"]["namespace"]
        involved = obj["involvedObject"].get("namespace", "")
        if obj.get("eventTime") is None:
            fits = namespace == (involved or "default")
        else:
            fits = bool(involved) or namespace in ("default", "kube-system")
        why = "does not match event.namespace"
        causes = [] if fits else [invalid_value("involvedObject.namespace", involved, why)]
        return causes if obj.get("eventTime") is None else causes + _reported(obj)


def _reported(obj: JSON) -> list[Cause]:
    causes: list[Cause] = []
    component = obj["reportingComponent"]
    if not component:
        causes.append(required("reportingComponent"))
    causes += [invalid_value("reportingComponent", component, why) for why in qualified_name(component)]
    for field in ("reportingInstance", "action", "reason"):
        value = obj.get(field, "")
        if not value:
            causes.append(required(field))
        if len(value) > _LIMIT:
            causes.append(invalid_value(field, "", f"can have at most {_LIMIT} characters"))
    if len(obj.get("message", "")) > _NOTE_LIMIT:
        causes.append(invalid_value("message", "", f"can have at most {_NOTE_LIMIT} characters"))
    return causes
