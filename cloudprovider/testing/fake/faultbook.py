"""The faults of one cloud while it runs: added, removed and released at any time, and chosen for each call (stage 5).

They live in the store: where that is an SQLite file, a fault that one process adds strikes all of them, its `times`
count down together, and any process may release it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import Factory, define, frozen
from pydantic import TypeAdapter, ValidationError

from cloudprovider.testing.fake.errors import FakeConfigError
from cloudprovider.testing.fake.faults import (
    AnyFault,
    ExpiredCredentials,
    HalfBuilt,
    Hang,
    Partial,
    Raise,
    Throttle,
    Wrong,
    decode_fault,
)
from cloudprovider.testing.fake.methods import Method, matches
from cloudprovider.testing.fake.model import as_patterns
from cloudprovider.testing.fake.problems import pydantic_problems
from cloudprovider.testing.fake.records import record_kind
from cloudprovider.testing.fake.store import Store, Transaction
from cloudprovider.testing.fake.timing import Clock, Waiting

__all__ = ["ActiveFault", "FaultBook", "Key", "Plan"]

Key = tuple[str, ...]
"""What a call is about: the name first (in a batch: the node's), then what else it is known by."""
_Mapped: TypeAdapter[AnyFault] = TypeAdapter(AnyFault)


@frozen
class _Stored:
    name: str
    order: int
    text: str
    added: float
    released: bool = False


_FAULTS = record_kind("fault", _Stored)


@frozen
class ActiveFault:
    """A fault as it stands: how many calls (in a batch: keys) matched it, and how many it struck."""

    fault: AnyFault
    added: float
    """Unix seconds."""
    released: bool
    matched: int
    struck: int


@define
class Plan:
    """What the faults have in store for one call."""

    before: list[Raise | Throttle | ExpiredCredentials | Hang] = Factory(list)
    after: list[Raise | Throttle | ExpiredCredentials | Hang] = Factory(list)
    wrong: list[Wrong] = Factory(list)
    half_built: HalfBuilt | None = None
    as_of: float | None = None
    by_key: dict[str, list[AnyFault]] = Factory(dict)
    """In a batch: what strikes single names."""
    orders: dict[str, int] = Factory(dict)
    """By name of a fault, which of that name it is: a later one may take its place."""
    seed: str = ""

    def draw(self, *what: object) -> random.Random:
        """Random numbers that are the same whenever the seed and the question are."""
        return random.Random("/".join([self.seed, *map(str, what)]))


_NO_FAULTS = Plan()


class FaultBook:
    """Puts faults between the host and the cloud. Every method may be called at any time, from any thread."""

    def __init__(self, store: Store, clock: Clock, waiting: Waiting, seed: int) -> None:
        self._store = store
        self._clock = clock
        self._waiting = waiting
        self._seed = seed

    def add(self, fault: AnyFault | Mapping[str, Any]) -> str:
        """Add a fault, a model of faults.py or a mapping as in a configuration file; returns its name.

        A fault of that name is replaced and starts counting anew. Raises `FakeConfigError` for a bad mapping.
        """
        if isinstance(fault, Mapping):
            try:
                fault = _Mapped.validate_python(fault)
            except ValidationError as error:
                raise FakeConfigError(pydantic_problems(error, "fault")) from error
        with self._store.write() as tx:
            name = self.put(tx, fault)
        self._waiting.wake()
        return name

    def put(self, tx: Transaction, fault: AnyFault) -> str:
        """`add` inside a transaction."""
        order = tx.add("fault-order")
        name = fault.name or f"{fault.action}-{order}"
        text = fault.model_copy(update={"name": name}).model_dump_json()
        tx.put(_FAULTS, name, _Stored(name, order, text, self._clock.time()))
        return name

    def remove(self, name: str) -> bool:
        """Remove a fault, letting go what hangs on it; whether it was there."""
        with self._store.write() as tx:
            removed = tx.delete(_FAULTS, name)
        self._waiting.wake()
        return removed

    def clear(self) -> None:
        """Remove every fault: the cloud is well."""
        with self._store.write() as tx:
            tx.clear(_FAULTS)
        self._waiting.wake()

    def release(self, name: str | None = None) -> int:
        """Let go what hangs on one fault, or on all of them; it strikes no more. Returns how many were released."""
        with self._store.write() as tx:
            chosen = [
                stored
                for stored in tx.scan(_FAULTS)
                if not stored.released
                and (stored.name == name if name is not None else isinstance(decode_fault(stored.text), Hang))
            ]
            for stored in chosen:
                released = _Stored(stored.name, stored.order, stored.text, stored.added, released=True)
                tx.put(_FAULTS, stored.name, released)
        self._waiting.wake()
        return len(chosen)

    def list(self) -> Sequence[ActiveFault]:
        """The faults in the order they were added, spent and released ones included."""
        with self._store.read() as view:
            return tuple(
                ActiveFault(
                    decode_fault(stored.text),
                    stored.added,
                    stored.released,
                    view.counter(f"fault/{stored.order}/matched"),
                    view.counter(f"fault/{stored.order}/struck"),
                )
                for stored in sorted(view.scan(_FAULTS), key=lambda stored: stored.order)
            )

    def struck(self, name: str) -> int:
        """How often the fault of this name struck; 0 when there is none."""
        return next((active.struck for active in self.list() if active.fault.name == name), 0)

    # For the gate.

    def plan(self, tx: Transaction, method: Method, keys: Sequence[Key], caller: Sequence[str]) -> Plan:
        """Choose, and count, the faults that a call meets."""
        stored_faults = tx.scan(_FAULTS)
        if not stored_faults:
            return _NO_FAULTS
        plan = Plan(seed=str(self._seed))
        now = self._clock.time()
        for stored in sorted(stored_faults, key=lambda stored: stored.order):
            fault = decode_fault(stored.text)
            age = now - stored.added
            if stored.released or age < fault.start or (fault.stop is not None and age >= fault.stop):
                continue
            if not fault.fits(method) or not matches(as_patterns(fault.method), (method.name,)):
                continue
            if fault.caller and not matches(as_patterns(fault.caller), caller):
                continue
            patterns = as_patterns(fault.key)
            chosen = [key for key in keys if matches(patterns, key)] if patterns else list(keys)
            if patterns and not chosen:
                continue
            plan.orders[fault.name] = stored.order
            self._apply(tx, plan, stored, fault, method, chosen, now)
        return plan

    def is_over(self, name: str, order: int) -> bool:
        """Whether a fault was released, removed or replaced."""
        with self._store.read() as view:
            stored = view.get(_FAULTS, name)
        return stored is None or stored.released or stored.order != order

    def _apply(
        self,
        tx: Transaction,
        plan: Plan,
        stored: _Stored,
        fault: AnyFault,
        method: Method,
        chosen: Sequence[Key],
        now: float,
    ) -> None:
        if isinstance(fault, Partial):
            if chosen and self._strikes(tx, stored, fault, method, ""):
                names = [key[0] for key in chosen]
                share = fault.drop or (1.0 if fault.key else 0.5)
                number = tx.counter(f"fault/{stored.order}/struck")
                for name in plan.draw(fault.name, number).sample(names, max(1, int(share * len(names)))):
                    plan.by_key.setdefault(name, []).append(fault)
        elif method.batch and fault.key_scoped and not isinstance(fault, Hang | HalfBuilt):
            for key in chosen:
                if self._strikes(tx, stored, fault, method, key[0]):
                    plan.by_key.setdefault(key[0], []).append(fault)
        elif isinstance(fault, HalfBuilt):
            if self._strikes(tx, stored, fault, method, chosen[0][0]):
                plan.half_built = plan.half_built or fault
        elif self._strikes(tx, stored, fault, method, "" if method.batch or not chosen else chosen[0][0]):
            if isinstance(fault, Wrong):
                if fault.answer == "stale":
                    plan.as_of = float("-inf") if fault.age is None else now - fault.age
                else:
                    plan.wrong.append(fault)
            else:
                (plan.before if fault.when == "before" else plan.after).append(fault)

    def _strikes(self, tx: Transaction, stored: _Stored, fault: AnyFault, method: Method, key: str) -> bool:
        prefix = f"fault/{stored.order}"
        matched = tx.add(f"{prefix}/matched")
        if matched <= fault.skip:
            return False
        if fault.times is not None and tx.counter(f"{prefix}/struck") >= fault.times:
            return False
        if fault.probability < 1:
            # Counted by key, so that the draws of one key do not depend on which thread was faster.
            number = tx.add(f"{prefix}/asked/{method.name}/{key}")
            draw = random.Random(f"{self._seed}/{fault.name}/{method.name}/{key}/{number}").random()
            if draw >= fault.probability:
                return False
        tx.add(f"{prefix}/struck")
        return True
