"""A provider's own word that the host should look at an object again: from any thread of the
provider (beside stage 5) into the queues of the controllers (stage 3).

A controller says which kind it serves. It puts the key into its work queue, which gathers what
comes more than once, and keeps it until a run that is under way has ended. Nothing here waits."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

NAMESPACED: Final[Mapping[str, bool]] = {"Service": True, "Node": False}
"""The kinds that can be looked at again, and whether their objects are in a namespace."""

Look: TypeAlias = Callable[[str], bool]
"""Has the object with this key looked at; False where there is nothing to look at. Returns at
once, and raises nothing."""

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_MOST_HELD: Final = 10_000
"""Objects that are asked for before the controllers are there, a moment after the provider."""


class LookAgain:
    """Takes such words, and hands each to the controller that serves its kind. Thread-safe."""

    def __init__(self, metrics: Metrics, may_write: Callable[[str], object] | None = None) -> None:
        """`may_write` raises while another process leads; None: nobody else does."""
        self._may_write = may_write
        self._lock = threading.Lock()
        self._looks: dict[str, Look] = {}
        self._held: dict[tuple[str, str], None] = {}
        counter = metrics.counter(
            "cloudprovider_look_again_total",
            "Objects that the provider asked to look at again: taken, or ignored as nothing is to be done for them.",
            ("kind", "outcome"),
        )
        self._counts = {
            (kind, taken): counter.labels(kind, outcome)
            for kind in NAMESPACED
            for taken, outcome in ((True, "taken"), (False, "ignored"))
        }

    def serve(self, kind: str, look: Look) -> None:
        """From now on hand objects of this kind to a controller; those that were held, too."""
        with self._lock:
            self._looks[kind] = look
            held = [key for of, key in self._held if of == kind]
            for key in held:
                del self._held[kind, key]
        for key in held:
            self._hand(kind, key, look)

    def look_again(self, kind: str, namespace: str, name: str) -> None:
        """As `cloudprovider.LookAgain` says. Raises TypeError and ValueError."""
        key = _key(kind, namespace, name)
        look = self._looks.get(kind)
        if look is None and not self._leads():
            # The process that leads has a provider of its own, which sees the same change.
            return self._ignored(kind, key, "this process does not lead")
        with self._lock:
            look = self._looks.get(kind)
            held = look is None and (len(self._held) < _MOST_HELD or (kind, key) in self._held)
            if held:
                self._held[kind, key] = None
        if look is not None:
            return self._hand(kind, key, look)
        return None if held else self._ignored(kind, key, "its controller is off")

    def _leads(self) -> bool:
        try:
            if self._may_write is not None:
                self._may_write("look_again")
        except Exception as error:  # noqa: BLE001 - whatever the guard refuses by
            log.debug("the provider may not write: %s", error)
            return False
        return True

    def _hand(self, kind: str, key: str, look: Look) -> None:
        if look(key):
            self._counts[kind, True].inc()
        else:
            self._ignored(kind, key, "there is nothing to do for it")

    def _ignored(self, kind: str, key: str, why: str) -> None:
        self._counts[kind, False].inc()
        log.debug("the provider asked to look at %s %s again, which is ignored: %s", kind, key, why)


def _key(kind: object, namespace: object, name: object) -> str:
    """The object's key. Raises TypeError and ValueError, with all that is wrong."""
    given = {"kind": kind, "namespace": namespace, "name": name}
    wrong = [f"{field} is {value!r}" for field, value in given.items() if not isinstance(value, str)]
    if wrong:
        raise TypeError(f"look_again takes three texts: {', '.join(wrong)}")
    kind, namespace, name = str(kind), str(namespace), str(name)
    if kind not in NAMESPACED:
        raise ValueError(f"look_again: the host does not look at objects of kind {kind!r}: {' or '.join(NAMESPACED)}")
    problems = [] if _NAME.fullmatch(name) else [f"{name!r} is no name of a {kind}"]
    if NAMESPACED[kind] and not _NAME.fullmatch(namespace):
        problems.append(f"a {kind} is in a namespace, and {namespace!r} is no name of one")
    elif namespace and not NAMESPACED[kind]:
        problems.append(f"a {kind} is in no namespace, so give an empty one, not {namespace!r}")
    if problems:
        raise ValueError(f"look_again: {'; '.join(problems)}")
    return f"{namespace}/{name}" if namespace else name
