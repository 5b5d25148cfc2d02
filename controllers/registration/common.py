"""What the registrations of several controllers have in common.

Nothing heavy is imported before it is used: `--help` needs no controller, and no models. So classes
and functions are named here as "module:name".
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from controllers.registration.entry import Context, Controller, Rule

if TYPE_CHECKING:
    from controllers.registration.plan import PlannedCalls, Planning
    from controllers.runtime.cache import Resource


def built(controller: str, options: type[Any]) -> Callable[[Context], Controller]:
    """For `ControllerEntry.construct`: this class, with what the flags say of its options."""
    return lambda context: context.build(pkgutil.resolve_name(controller), options)


def planned(function: str) -> Callable[[Planning], PlannedCalls]:
    """For `ControllerEntry.planned_calls`: this function."""

    def calls(planning: Planning) -> PlannedCalls:
        made: PlannedCalls = pkgutil.resolve_name(function)(planning)
        return made

    return calls


def informers(*resources: str) -> Callable[[], Iterable[Resource[Any]]]:
    """For `ControllerEntry.informers`: these of `controllers.runtime.cache`."""
    return lambda: [pkgutil.resolve_name(f"controllers.runtime.cache:{name}") for name in resources]


def event_rule(consequence: str, namespace: str = "default") -> Rule:
    """The permission to write Events; those about objects without a namespace are in "default"."""
    return Rule(resource="events", verbs=("create", "patch"), consequence=consequence, namespace=namespace)
