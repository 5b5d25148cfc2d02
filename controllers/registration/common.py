"""What the registrations of several controllers have in common: the cache of nodes, the rule for
Events, and the log line of a controller that is off."""

from __future__ import annotations

from collections.abc import Iterable
from logging import Logger
from typing import TYPE_CHECKING, Any

from controllers.registration.entry import Context, Rule

if TYPE_CHECKING:
    from controllers.runtime.cache import Resource

__all__ = ["event_rule", "nodes", "warn_off"]


def nodes() -> Iterable[Resource[Any]]:
    """For `ControllerEntry.informers`: nodes alone. Imported when asked for, as `--help` needs no
    models."""
    from controllers.runtime.cache import NODES

    return (NODES,)


def event_rule(consequence: str, namespace: str = "default") -> Rule:
    """The permission to write Events; those about objects without a namespace are in "default"."""
    return Rule(resource="events", verbs=("create", "patch"), consequence=consequence, namespace=namespace)


def warn_off(log: Logger, name: str, context: Context, lacking: str, *, named: bool = False) -> None:
    """Warn that the provider cannot do what this controller needs. `named`: --controllers has to
    name it, and does."""
    although = ", although --controllers names it" if named else ""
    log.warning("%s is off%s: provider %s %s", name, although, context.cloud.provider_name, lacking)
