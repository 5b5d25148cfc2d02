"""What a controller says of its calls to the cloud in a dry run: rows, for people and machines.

Here, below the controllers, as those that change the cloud describe it in their `planned_calls`;
`controllers/plan/rows.py` collects the rows. Only types; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from attrs import Factory, frozen

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider import Interface
    from controllers.runtime.cache import Resource

ASSIGNED_LATER: Final = "assigned-by-the-cloud.invalid"
"""The address of a load balancer that is not there yet."""

Value = str | tuple[str, ...] | None


class Kind(StrEnum):
    """What a row is: something to be done, or something that is not done or not known. In the order
    in which they are shown."""

    CHANGE = "change"
    HELD_BACK = "held back"
    UNKNOWN = "unknown"
    WARNING = "warning"


@frozen(order=True)
class Subject:
    """Whom a row is about. The kind as in the API ("Node"), or the cloud's word ("Route")."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{f'{self.namespace}/' if self.namespace else ''}{self.name}"


@frozen
class Change:
    """One field, before and after. A tuple is a set of names; None: nothing, or not known."""

    field: str
    before: Value
    after: Value


@frozen(kw_only=True)
class Row:
    """One line of the plan."""

    controller: str
    subject: Subject
    action: str
    """"initialise", "create load balancer", ..."""
    changes: tuple[Change, ...] = ()
    note: str = ""
    """What else is to be known: evidence of a deletion, doubts, why it is unknown."""
    kind: Kind = Kind.CHANGE
    certain: bool = True
    """False: the call is made, and may change nothing; then nothing is said to be done."""


@frozen(kw_only=True)
class Planning:
    """What a controller plans its calls with."""

    record: Callable[[Row], None]
    """Adds a row to the plan."""
    provider: Interface
    """May be asked what there is."""
    original: Callable[[Resource[Any], str], Mapping[str, Any] | None]
    """An object that was written to, as it was before this run; None where none was."""
    nodes: Callable[[], Sequence[V1Node]]
    """Those that there were when the controllers began."""


@frozen(kw_only=True)
class PlannedCalls:
    """How one controller's calls are planned, by the contract's methods. From any thread."""

    writes: Mapping[str, Callable[..., Any]] = Factory(dict)
    """In place of a call that changes the cloud: takes the call's key and its arguments, records
    rows, and returns the answer."""
    reads: Mapping[str, Callable[[str, Any], Any]] = Factory(dict)
    """After a read: takes the call's key and the provider's answer, and returns what it would
    be now."""
