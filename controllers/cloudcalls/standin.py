"""Who answers in the cloud's place, so that nothing there is changed (beside stage 5, cloud call): a dry run.

`CloudCalls(stand_in=)` passes it to the gateway, which then has no way to make a call that changes the cloud: the
stand-in gets the method's name and the arguments, and never the method itself.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from cloudprovider import InstanceState

__all__ = ["StandIn"]

R = TypeVar("R")


class StandIn(Protocol):
    """Thread-safe. `key` is whom a call is about, as in `Ask`."""

    def answer(self, method: str, key: str, args: tuple[Any, ...]) -> Any:
        """Answer a call that would change the cloud, as the provider would; it is validated as the provider's.

        Called in a vendor thread, with copies of the arguments; it may raise what the provider may.
        """

    def shown(self, method: str, key: str, answer: R) -> R:
        """The valid answer to a call, with what was answered here applied to it."""

    def stated(self, name: str, state: InstanceState | Exception) -> None:
        """A fresh answer about the state of a node's instance."""
