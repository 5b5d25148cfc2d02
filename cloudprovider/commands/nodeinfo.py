"""What the node of this machine is: asked of the provider as the machine boots, again and again
until time runs out.

From the provider's `LocalInstance`, which needs neither credentials nor `initialize`; else from its
instances by the node's name, where "not found" counts when time is up: clouds list a new machine
late. The answer is checked as the manager checks it; `kubelet.py` makes of it what a kubelet is
started with.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from attrs import define, evolve, field, frozen

from cloudprovider.checks import answers
from cloudprovider.checks.olderinstances import OlderInstances
from cloudprovider.commands.asking import NO_INSTANCE, NO_TIME, Failure, Started, UnusableAnswer, in_time
from cloudprovider.commands.forecast import new_node
from cloudprovider.errors import CloudProviderError, InstanceNotFound, NotImplementedByProvider
from cloudprovider.helpers.labels import node_name_problems
from cloudprovider.instances import InstanceMetadata
from cloudprovider.interface import Interface
from cloudprovider.internal.problem import Problem
from cloudprovider.localinstance import LocalInstance
from cloudprovider.threads import TooLate
from cloudprovider.zones import Zone, Zones

T = TypeVar("T")
_LONGEST_CALL = 10.0  # seconds for one call of the provider
# What a mistake in the code raises, whatever the cloud does. A KeyError may come from data that are
# not complete yet.
_BUGS = (NameError, AttributeError, TypeError, ImportError, SyntaxError, AssertionError, NotImplementedError)
_NO_CLUSTER = "a machine that boots has none"


@frozen
class NodeInfo:
    """One machine, complete and checked."""

    provider: str
    node_name: str
    metadata: InstanceMetadata
    source: str
    """Who said it: "local_instance", "instances_v2", "instances_batch" or "instances"."""


@define
class TimeLimit:
    """How long to go on asking: until `timeout` seconds have passed, with `period` seconds between
    two tries."""

    timeout: float
    period: float
    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    tell: Callable[[str], None] = field(default=lambda line: print(line, file=sys.stderr))
    _end: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._end = self.now() + self.timeout

    @property
    def for_a_call(self) -> float:
        """Seconds that the next call may take."""
        return max(0.01, min(_LONGEST_CALL, self._end - self.now()))

    def until_answered(
        self, ask: Callable[[], T], described: Callable[[BaseException], str], where: Callable[[BaseException], str]
    ) -> T:
        """Ask until there is an answer. Raises `Failure`: at once where another try cannot help, or
        when time is up.

        `described` makes a line of what was raised, `where` the place in the provider's code.
        """
        tries = 0
        while True:
            tries += 1
            try:
                return ask()
            except Failure:
                raise
            except InstanceNotFound as error:
                raise _no_instance(described(error)) from error
            except NotImplementedByProvider as error:
                raise Failure(
                    Problem(
                        f"the provider cannot tell it: {described(error)}", "implement LocalInstance, or InstancesV2"
                    )
                ) from error
            # At once: for five minutes of tries the machine would boot without a node.
            except _BUGS as error:
                raise Failure(
                    Problem(
                        f"the provider's code fails: {described(error)} ({where(error) or 'no line is known'})",
                        "correct that line; another try would not help, so there is none",
                    )
                ) from error
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - vendor boundary: reported, and tried again
                cause = error.__cause__ if isinstance(error, _NotListed) and error.__cause__ is not None else error
                # A KeyError is a bug, or data that are not complete yet.
                place = "" if isinstance(cause, CloudProviderError | OSError | TooLate) else where(cause)
                self._wait(tries, described(cause) + (f" ({place})" if place else ""), error)

    def _wait(self, tries: int, what: str, error: BaseException) -> None:
        # The cloud's own word about when to come again counts more than ours.
        delay = max(self.period, getattr(error, "retry_after", None) or 0.0)
        if self.now() + delay >= self._end:
            # Not listed for all that time: now that is an answer, and no new machine.
            if isinstance(error, _NotListed):
                raise _no_instance(what) from error
            often = "1 try" if tries == 1 else f"{tries} tries"
            raise Failure(
                Problem(
                    f"no complete answer after {self.timeout:g} s and {often}: {what}",
                    "check that the cloud or its metadata service can be reached from here, or give a longer --timeout",
                ),
                NO_TIME,
            ) from error
        self.tell(f"attempt {tries}: {what}; retrying in {delay:g} s")
        self.pause(delay)


class _NotListed(Exception):
    """The cloud has no instance of this name, which may be too new to be listed. The cause is what
    it said."""


def _no_instance(what: str) -> Failure:
    return Failure(
        Problem(
            f"the cloud answered that this machine is no instance of it: {what}",
            "check --cloud-provider, and the machine's name in the cloud",
        ),
        NO_INSTANCE,
    )


def node_info(started: Started, hostname: str, limit: TimeLimit) -> NodeInfo:
    """What the node of this machine is. `hostname` as a kubelet reads it. Raises `Failure`."""
    return limit.until_answered(lambda: _asked(started, hostname, limit), started.described, started.where)


def _asked(started: Started, hostname: str, limit: TimeLimit) -> NodeInfo:
    provider = started.provider(limit.for_a_call)
    local: object = in_time(provider.local_instance, limit.for_a_call)
    if local is not None:
        if not isinstance(local, LocalInstance):
            raise Failure(
                Problem(
                    f"local_instance() of provider {started.name!r} returns a {type(local).__name__}",
                    "return an object of a class that subclasses cloudprovider.LocalInstance",
                )
            )
        name: object = in_time(lambda: local.local_node_name(hostname), limit.for_a_call)
        answer: object = in_time(local.local_metadata, limit.for_a_call)
        source = "local_instance"
    else:
        provider = started.initialized(limit.for_a_call, _NO_CLUSTER)
        older = provider.instances()
        name = hostname
        if older is not None:
            with suppress(NotImplementedByProvider):  # then a kubelet calls its node as the machine is called
                name = in_time(lambda: older.current_node_name(hostname), limit.for_a_call)
        try:
            source, answer = in_time(lambda: _by_name(provider, _name(name)), limit.for_a_call)
        except InstanceNotFound as error:
            raise _NotListed from error
    return NodeInfo(started.name, _name(name), _metadata(answer, provider), source)


def _by_name(provider: Interface, name: str) -> tuple[str, object]:
    """(who said it, the answer) of the provider's instances about the node of this name."""
    if (v2 := provider.instances_v2()) is not None:
        return "instances_v2", v2.instance_metadata(new_node(name))
    if (batch := provider.instances_batch()) is not None:
        try:
            found = answers.batch(batch.instances_metadata([new_node(name)]), [name], lambda _, one: one)
        except answers.WrongAnswer as wrong:
            raise UnusableAnswer(f"instances_metadata gave a wrong answer: {wrong}") from None
        # A missing name means unknown: the next try may know it.
        if name not in found:
            raise UnusableAnswer(f"instances_metadata says nothing about {name}")
        if isinstance(answer := found[name], BaseException):
            raise answer
        return "instances_batch", answer
    if (older := provider.instances()) is not None:
        zones = provider.zones()
        # It is the machine itself that asks, so that the older form needs no name for it.
        here = _zone_here(zones)
        adapted = OlderInstances(provider.provider_name(), older, zones if here is None else None)
        said = adapted.instance_metadata(new_node(name))
        return "instances", said if here is None else evolve(said, zone=here.failure_domain, region=here.region)
    raise Failure(
        Problem(
            f"provider {provider.provider_name()!r} has no instances: it cannot tell what this machine is",
            "implement LocalInstance, InstancesV2 or InstancesBatch, and return it from its accessor",
        )
    )


def _zone_here(zones: Zones | None) -> Zone | None:
    """What the older `Zones` says of the machine that it runs on, as Go's kubelet asked it; None
    where it has no answer: then it is asked by name."""
    try:
        return None if zones is None else answers.zone(zones.get_zone())
    except NotImplementedByProvider:
        return None
    except answers.WrongAnswer as wrong:
        raise UnusableAnswer(f"get_zone gave a wrong answer: {wrong}") from None


def _name(answer: object) -> str:
    if not isinstance(answer, str):
        raise UnusableAnswer(f"the provider's node name is {answer!r}, not a text")
    if problems := node_name_problems(answer):
        raise UnusableAnswer("; ".join(problems))
    return answer


def _metadata(answer: object, provider: Interface) -> InstanceMetadata:
    try:
        return answers.metadata(answer, prefixes=tuple(provider.provider_id_prefixes()))
    except answers.WrongAnswer as wrong:
        raise UnusableAnswer(f"the provider's answer cannot be used: {wrong}") from None
