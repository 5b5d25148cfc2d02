"""Scenarios G: the provider as a whole, before any capability is asked for anything."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.errors import CloudProviderError
from cloudprovider.interface import Interface
from cloudprovider.loadbalancer import OwnedLoadBalancers
from cloudprovider.loading.registry import cloud_providers
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import outliving, process_state
from cloudprovider.testing.conformance.calls import Outcome, TextLog, at_once, attempt, shown
from cloudprovider.testing.conformance.features import CAPABILITIES, EXTENDING, Feature, feature_names, offered
from cloudprovider.testing.conformance.lab import Lab, can, new_node
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial

_CAPABILITIES = Feature.NONE
for _feature in (*CAPABILITIES, *EXTENDING):
    _CAPABILITIES |= _feature


class WholeScenarios(ConformanceBase):
    """`Interface`: the provider's name, its accessors, and what it shows."""

    @scenario("G1")
    def test_g1_one_name(self, trial: Trial) -> None:
        """`provider_name()` is the name under which the provider is installed, and the same every
        time."""
        wanted = trial.bench.provider_name
        answers = {trial.provider.provider_name() for _ in range(2)}
        assert answers == {wanted}, (
            f"provider_name() answers {' and '.join(map(repr, sorted(answers)))}; the entry point is named {wanted!r}"
        )
        assert wanted in cloud_providers(), (
            f"no provider {wanted!r} is installed. There are: {', '.join(cloud_providers())}"
        )

    @scenario("G2")
    def test_g2_declared_is_offered(self, trial: Trial) -> None:
        """The features that the test class declares are those that the provider's accessors
        offer."""
        found, declared = offered(trial.provider), trial.features & _CAPABILITIES
        problems = [f"{name}: offered, and not declared" for name in feature_names(found & ~declared)]
        problems += [f"{name}: declared, and not offered" for name in feature_names(declared & ~found)]
        assert not problems, "features of the test class and of the provider differ:\n  " + "\n  ".join(problems)

    @scenario("G3")
    def test_g3_accessors_return_capabilities(self, trial: Trial) -> None:
        """Each accessor returns an instance of its capability, with plain methods: no class, no
        coroutine function."""
        problems = []
        for accessor, kind in CAPABILITIES.values():
            answer: object = getattr(trial.provider, accessor)()
            if answer is None:
                continue
            # `return AcmeRoutes` in place of `AcmeRoutes()`: it has all the methods, and none of
            # them works.
            if isinstance(answer, type):
                problems.append(f"{accessor}() returns the class {answer.__name__}, not an instance of it")
            elif not isinstance(answer, kind):
                problems.append(f"{accessor}() returns a {type(answer).__name__}, which is no {kind.__name__}")
            else:
                asynchronous = [name for name in kind.__abstractmethods__ if _is_async(getattr(answer, name))]
                problems += [f"{accessor}().{name} is async: methods are plain functions" for name in asynchronous]
        assert not problems, "accessors:\n  " + "\n  ".join(problems)

    @scenario("G4")
    def test_g4_accessors_return_one_object(self, trial: Trial) -> None:
        """An accessor returns the same object every time, also to many threads at once."""
        for accessor in sorted({accessor for accessor, _ in CAPABILITIES.values()}):
            ask: Callable[[], object] = getattr(trial.provider, accessor)
            first = ask()
            answers = [outcome.get() for outcome in at_once([ask] * 4)]
            assert all(answer is first for answer in answers), f"{accessor}() makes a new object at each call"

    @scenario("G5")
    def test_g5_provider_id_prefixes(self, trial: Trial) -> None:
        """`provider_id_prefixes()` is a sequence of texts, the same every time; no prefix is
        empty."""
        answer: object = trial.provider.provider_id_prefixes()
        # A tuple of one needs its comma: ("acme://") is a text.
        assert not isinstance(answer, str | bytes), (
            f"provider_id_prefixes() answers the text {answer!r}, which falls apart into characters; a tuple is due"
        )
        assert isinstance(answer, list | tuple), f"provider_id_prefixes() answers {answer!r}, not a sequence of texts"
        wrong = [prefix for prefix in answer if not isinstance(prefix, str) or not prefix.strip()]
        assert not wrong, f"provider_id_prefixes() has {wrong!r}: every node would count as this provider's"
        again = trial.provider.provider_id_prefixes()
        assert list(again) == list(answer), f"provider_id_prefixes() answers {answer!r}, and then {again!r}"

    @scenario("G6")
    def test_g6_same_provider_id(self, trial: Trial) -> None:
        """`same_provider_id` says that an ID is itself, and that IDs of two machines are
        different."""
        for prefix in trial.provider.provider_id_prefixes():
            one, two = f"{prefix}conformance-1", f"{prefix}conformance-2"
            same = trial.provider.same_provider_id
            assert same(one, one) is True, f"same_provider_id({one!r}, {one!r}) is not True"
            assert same(one, two) is False, (
                f"same_provider_id({one!r}, {two!r}) is not False: a node could get another machine's addresses"
            )

    @scenario("G7", hooks=("secrets",))
    def test_g7_no_secret_in_a_repr(self, trial: Trial) -> None:
        """No secret of the configuration is in the repr of the provider, its capabilities or the
        configuration."""
        shown_objects: list[object] = [trial.provider, trial.lab.config()]
        shown_objects += [getattr(trial.provider, accessor)() for accessor, _ in CAPABILITIES.values()]
        for one in shown_objects:
            for text in (repr(one), str(one)):
                _check_secrets(trial.lab, text, f"the repr of {type(one).__name__}")

    @scenario("G8", hooks=("secrets",))
    def test_g8_no_secret_in_a_log(self, trial: Trial) -> None:
        """No secret of the configuration is logged at any level, as the provider starts and is
        asked."""
        with TextLog() as log:
            provider = trial.bench.another_provider()
            outcomes = questions(trial, provider)
        for line in log.lines:
            _check_secrets(trial.lab, line, "a log line")
        for method, outcome in outcomes:
            if outcome.error is not None:
                _check_secrets(trial.lab, shown(outcome.error), f"the error of {method}")

    @scenario("G9", hooks=("outage",))
    def test_g9_errors_are_of_the_contract(self, trial: Trial) -> None:
        """While the cloud is away, calls raise CloudProviderError, not the client's own errors;
        none shows a secret."""
        machines = known(trial)
        with trial.outage():
            outcomes = questions(trial, trial.provider, machines)
        for method, outcome in outcomes:
            if outcome.error is not None:
                # before the message shows the error
                _check_secrets(trial.lab, shown(outcome.error), f"the error of {method} in an outage")
                assert isinstance(outcome.error, CloudProviderError), (
                    f"in an outage {method} {outcome}. The host retries it, but cannot tell it from a bug of yours, "
                    "and its text is your client's: turn your client's errors into CloudProviderError"
                )

    @scenario("G10")
    def test_g10_has_cluster_id(self, trial: Trial) -> None:
        """`has_cluster_id()` answers True: with this configuration the manager would start."""
        answer = trial.provider.has_cluster_id()
        assert answer is True, f"has_cluster_id() answers {answer!r}: the manager would not start"

    @scenario("G11")
    def test_g11_threads_end(self, trial: Trial) -> None:
        """Threads that the provider starts are daemons, or end when the stop signal is set."""
        before = set(threading.enumerate())
        stop = threading.Event()
        # A provider of its own, as the class's goes on being asked.
        provider = trial.bench.another_provider(stop)
        stop.set()
        alive = [thread.name for thread in outliving(before, trial.lab.grace)]
        assert not alive, (
            f"{type(provider).__name__} started the threads {', '.join(alive)}, which outlive the stop signal: the "
            "process would never end. Make them daemons, or let them wait for stop"
        )

    @scenario("G12")
    def test_g12_an_answer_is_the_callers_own(self, trial: Trial) -> None:
        """A mapping or list that was answered is made anew each time: what the caller changes in it
        is not in the next answer."""
        # The host sorts and extends what it gets: a default argument or a class's list would grow.
        for call in _containers(trial):
            answer = call()
            spoilt = _spoil(answer)
            assert not spoilt or _SPOILT not in call(), (
                f"{call.func.__name__} answers with the same {type(answer).__name__} each time: what the caller "
                "changed in it is in the next answer. Make a new one in each call (is it the default of a parameter, "
                "or kept in the class?)"
            )

    @scenario("G15")
    def test_g15_the_process_is_left_alone(self, trial: Trial) -> None:
        """Making and starting the provider changes nothing of the process: time limit of sockets,
        signal handlers, folder."""
        trial.bench.another_provider()
        before, now = trial.bench.process, process_state()
        changed = [what for what in before if before[what] != now[what]]
        assert not changed, (
            f"{type(trial.provider).__name__} changes what is the whole process's, by {', '.join(changed)}: the "
            "manager's own connections and its end depend on it. Give your client its own"
        )

    @scenario("G16", hooks=("end_tokens",))
    def test_g16_tokens_that_end_are_renewed(self, trial: Trial) -> None:
        """When the cloud accepts the token no longer, the provider soon has another: calls succeed
        again."""
        machines = known(trial)
        before = questions(trial, trial.provider, machines)
        # After the questions above: a client that has no token yet would get a new one anyway.
        trial.lab.end_tokens()
        end = time.monotonic() + _RENEWED
        while True:
            after = questions(trial, trial.provider, machines)
            failed = [
                f"{method} {outcome}"
                for (method, fine), (_, outcome) in zip(before, after, strict=True)
                if type(outcome.error) is not type(fine.error)
            ]
            if not failed:
                return
            assert time.monotonic() < end, (
                f"{_RENEWED:g} s after the tokens ended {failed[0]}: after 401 get a new token, and ask once more"
            )
            trial.bench.pause(trial.lab.poll)


_RENEWED = 5.0  # seconds
_SPOILT = "conformance-was-here"


def _containers(trial: Trial) -> list[partial[Any]]:
    """Calls whose answers can be changed, and that change nothing in the cloud."""
    provider, cluster = trial.provider, trial.cluster_name
    node = trial.registered() if can(trial.lab, "create_machine") else new_node("conformance-asked")
    calls: list[partial[Any]] = []
    if (batch := provider.instances_batch()) is not None:
        calls += [partial(batch.instances_state, [node]), partial(batch.instances_metadata, [node])]
    if (cidrs := provider.pod_cidrs()) is not None:
        calls.append(partial(cidrs.pod_cidrs, [node]))
    if (routes := provider.routes()) is not None:
        calls.append(partial(routes.list_routes, cluster))
    if (clusters := provider.clusters()) is not None:
        calls.append(partial(clusters.list_clusters))
    balancers: object = provider.load_balancer()
    if isinstance(balancers, OwnedLoadBalancers):
        calls.append(partial(balancers.owned_load_balancers, cluster))
    return calls


def _spoil(answer: Any) -> bool:
    """Put something into the answer; whether that is possible."""
    put = getattr(answer, "append", None) or getattr(answer, "__setitem__", None)
    # A tuple cannot be spoilt: it may be the same each time.
    if put is None:
        return False
    put(*([_SPOILT, None] if isinstance(answer, Mapping) else [_SPOILT]))
    return True


def _is_async(method: Any) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def known(trial: Trial) -> list[V1Node]:
    """A machine that `questions` can ask about by its provider ID; none where the lab makes
    none."""
    return [trial.machine()] if can(trial.lab, "create_machine") else []


def questions(trial: Trial, provider: Interface, machines: Sequence[V1Node] = ()) -> list[tuple[str, Outcome[Any]]]:
    """Ask each capability one thing that changes nothing: (method, how it ended). About a node
    without a machine, and about these machines."""
    calls: list[partial[Any]] = []
    one, batch = provider.instances_v2(), provider.instances_batch()
    older, zones = provider.instances(), provider.zones()
    for node in (new_node("conformance-asked"), *machines):
        if one is not None:
            calls += [partial(one.instance_exists, node), partial(one.instance_metadata, node)]
        if batch is not None:
            calls.append(partial(batch.instances_state, [node]))
    if older is not None:
        calls.append(partial(older.node_addresses, "conformance-asked"))
    if zones is not None:
        calls.append(partial(zones.get_zone_by_node_name, "conformance-asked"))
    balancers, routes, clusters = provider.load_balancer(), provider.routes(), provider.clusters()
    if balancers is not None:
        calls.append(partial(balancers.get_load_balancer, trial.cluster_name, trial.unbuilt()))
    if routes is not None:
        calls.append(partial(routes.list_routes, trial.cluster_name))
    if clusters is not None:
        calls.append(partial(clusters.list_clusters))
    return [(call.func.__name__, attempt(call)) for call in calls]


def _check_secrets(lab: Lab, text: str, where: str) -> None:
    # the secret itself stays out of the message, which ends up in a report
    found = [index for index, secret in enumerate(lab.secrets) if secret in text]
    assert not found, f"{where} shows secret number {found[0] + 1} of the lab"
