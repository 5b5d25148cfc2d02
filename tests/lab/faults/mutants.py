"""Guards of the product taken out one by one, and the fault that must find each:
`make faults FAULTS_ARGS=--mutants`.

Against some faults there are two guards, one behind the other: such a mutant takes out both. A
mutant is put in before the program starts (`launch.py`). It names what it replaces, so that a
renamed guard is an error and not a mutant that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import frozen


@frozen
class Mutant:
    """`apply` takes the guard out of this process."""

    fault: str
    what: str
    apply: Callable[[], None]


def _replace(owner: Any, name: str, new: Any) -> None:
    if name not in vars(owner):
        raise AttributeError(f"{owner.__name__} has no {name} any more")
    setattr(owner, name, new)


def _no_pauses() -> None:
    from cloudprovider.internal.backoff import Backoff

    _replace(Backoff, "delay", lambda *_, **__: 0.05)


def _lists_are_believed() -> None:
    from controllers.runtime.cache import lists

    _replace(lists, "_SUSPICIOUS", 0.0)


def _no_proof_for_services() -> None:
    _lists_are_believed()
    from controllers.service.calls import ServiceAPI

    _replace(ServiceAPI, "prove_gone", lambda *_: None)


def _no_proof_for_routes() -> None:
    _lists_are_believed()
    from controllers.route.reconcile import RouteReconciler

    _replace(RouteReconciler, "_owner", lambda *_: "")


def _no_proof_for_targets() -> None:
    _lists_are_believed()
    from controllers.service.calls import ServiceAPI

    _replace(ServiceAPI, "confirmed", lambda _, present, **__: present)


def _final(kind: str) -> None:
    """A reconcile that ends with such an exception is not tried again."""
    from cloudprovider import CloudProviderError
    from controllers.runtime.api import Conflict
    from controllers.runtime.queue.outcomes import Requeuer, TerminalError

    settle, final = Requeuer.settle, {"cloud": CloudProviderError, "conflict": Conflict}[kind]

    def settled(self: Any, key: Any, outcome: object, **how: Any) -> None:
        settle(self, key, TerminalError(str(outcome)) if isinstance(outcome, final) else outcome, **how)

    _replace(Requeuer, "settle", settled)


def _finalizer_stays_off() -> None:
    from controllers.service import decide

    _replace(decide, "_stripped", lambda *_: decide.OwnedField.NOTHING)


def _token_is_read_once() -> None:
    from controllers.runtime.api.credentials import TokenFile

    read, known = TokenFile._read, dict[str, str]()

    def once(self: TokenFile) -> str:
        return known.setdefault(self._path, read(self) if self._path not in known else "")

    _replace(TokenFile, "_read", once)


MUTANTS: Final = {
    "back-off": Mutant("F2", "every pause between two tries is 50 ms", _no_pauses),
    "quorum-list": Mutant("F9", "an empty list is believed", _lists_are_believed),
    "proof-service": Mutant("F9", "the same, and a Service that is not in the cache is gone", _no_proof_for_services),
    "proof-route": Mutant("F9", "the same, and a node that is not in the cache is gone", _no_proof_for_routes),
    "proof-targets": Mutant("F9", "the same, and no node in the cache means no targets", _no_proof_for_targets),
    "conflict": Mutant("F10", "a write that met a conflict is not tried again", lambda: _final("conflict")),
    "retry": Mutant("F18", "a failure of the cloud is not tried again", lambda: _final("cloud")),
    "finalizer": Mutant("F31", "a finalizer that was taken off is not put back", _finalizer_stays_off),
    "token": Mutant("F33", "the token file is read once", _token_is_read_once),
}
"""By the name after `--without`."""
