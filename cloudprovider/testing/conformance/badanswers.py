"""Scenarios of a cloud that answers, and badly: 401, 403, a proxy's 404, 429, 500, a page of HTML.

None of these says that something is gone, done, or the fault of a Service. They come from the lab's
`bad_answers`, which `HTTPLab` has for every client over `http.client`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.call import Call
from cloudprovider.errors import (
    ImplementedElsewhere,
    InvalidService,
    NotImplementedByProvider,
    Throttled,
)
from cloudprovider.instances import InstanceMetadata, InstanceState
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.batches import both, is_gone
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.calls import Outcome, attempt, limited, shown, unwell
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import THROTTLED, BadAnswer
from cloudprovider.testing.conformance.ownedloadbalancers import owned
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.routes import only
from cloudprovider.testing.conformance.trial import Trial
from cloudprovider.testing.conformance.whole import known, questions
from cloudprovider.threads import Task

_PAGE: Final = b"<!doctype html><html><head><title>not here</title></head><body>nginx</body></html>"
_UNAUTHORIZED = BadAnswer("401 (a token that is not accepted)", 401, b"{}")
_BROKEN: Final = BadAnswer("500", 500, b"{}")
REFUSALS: Final = (
    BadAnswer("403 (no permission)", 403, b"{}"),
    BadAnswer("404 with a page of HTML, as a proxy answers", 404, _PAGE),
    *THROTTLED,
    _BROKEN,
    BadAnswer("502 with a page of HTML", 502, _PAGE),
    _UNAUTHORIZED,  # the last: a client that drops its token then asks only the login any more
)
"""Answers by which nothing was done, and nothing said."""
_HOLLOW = (BadAnswer("200 with a page of HTML", 200, _PAGE), BadAnswer("200 with {}", 200, b"{}"))
READS: Final = (*_HOLLOW, *REFUSALS)
"""Answers to a question that say nothing."""
_CALL_SECONDS: Final = 60.0  # a call's deadline, where one is due that ends long before it
_AT_ONCE: Final = 2.0


def _about_one(trial: Trial) -> tuple[BadAnswer, ...]:
    """Answers that say nothing of one machine."""
    # "Found nothing" where one machine was asked for by its ID is no answer of a healthy API.
    body = trial.lab.empty_listing
    return (*READS, BadAnswer("200 with an empty listing", 200, body)) if body else READS


def _unwell(trial: Trial, method: str, call: Callable[[], object], answer: BadAnswer) -> BaseException:
    """What the call raises while the cloud answers so. It has a deadline, as some try for ever."""
    limit = max(trial.lab.deadline, _AT_ONCE)
    return unwell(
        method,
        lambda: limited(call, deadline=limit, grace=trial.lab.grace).get(),
        f"the cloud answered {answer.what}",
    )


def _errors(outcome: Outcome[Any]) -> list[BaseException]:
    """What was raised, or the errors among a batch's values."""
    if outcome.error is not None:
        return [outcome.error]
    # A batch may say it of each node in place of raising.
    values = outcome.value.values() if isinstance(outcome.value, Mapping) else ()
    return [value for value in values if isinstance(value, BaseException)]


def _check_refused(method: str, answer: BadAnswer, error: BaseException) -> None:
    """Raises AssertionError where the host would not ask again, or would blame a Service's
    owner."""
    assert not isinstance(error, NotImplementedByProvider | ImplementedElsewhere), (
        f"the cloud answered {answer.what}, and {method} raised {type(error).__name__}: the host would not ask again"
    )
    assert not isinstance(error, InvalidService), (
        f"the cloud answered {answer.what}, and {method} raised {shown(error)}: InvalidService blames the Service, "
        "and is not tried again before that changes. Raise it only for what the cloud says about the request itself"
    )


class BadAnswerScenarios(ConformanceBase):
    """Every capability, over a cloud that answers badly."""

    @scenario("G13", hooks=("bad_answers",))
    def test_g13_429_is_throttled(self, trial: Trial) -> None:
        """429 becomes `Throttled`, with the seconds of `Retry-After` where it has them: the host
        slows down."""
        machines = known(trial)
        for answer in trial.lab.throttled:
            seconds = float(answer.headers.get("Retry-After", "nan"))
            with trial.bad_answers(answer):
                outcomes = questions(trial, trial.provider, machines)
            for method, outcome in outcomes:
                for error in _errors(outcome):
                    assert isinstance(error, Throttled), (
                        f"the cloud answered {answer.what}, and {method} {outcome}: raise Throttled, by which the host "
                        "slows down"
                    )
                    assert math.isnan(seconds) or error.retry_after == seconds, (
                        f"the cloud answered {answer.what} of {seconds:g} s, and {method} raised Throttled with "
                        f"retry_after={error.retry_after!r}: pass the header on"
                    )

    @scenario("G14", hooks=("bad_answers",))
    def test_g14_a_refusal_ends_the_call(self, trial: Trial) -> None:
        """A call that the cloud refuses ends at once: it is not tried again until the deadline."""
        machines = known(trial)
        for answer in (*trial.lab.throttled, _BROKEN, _UNAUTHORIZED):
            with trial.bad_answers(answer):
                seconds = trial.lab.grace + _AT_ONCE
                late = _is_late(trial, machines, seconds) and _is_late(
                    trial, machines, 3 * seconds
                )  # a busy machine is late once
            assert not late, (
                f"the cloud answered {answer.what}, and the provider still tries after {seconds:g} s. After 401 ask "
                "once more with a new token; all else is the host's affair, which knows when"
            )

    @scenario("I14", Feature.INSTANCES_V2, hooks=("create_machine", "bad_answers"))
    def test_i14_a_bad_answer_is_unknown(self, trial: Trial) -> None:
        """What the cloud says without knowing (401, 403, a proxy's 404, 5xx, no JSON) is unknown,
        never gone."""
        instances, node = trial.instances(), trial.machine()
        attempt(lambda: instances.instance_exists(node))  # logs in, where the answers before have logged out
        for answer in _about_one(trial):
            with trial.bad_answers(answer):
                for method in (instances.instance_exists, instances.instance_shutdown, instances.instance_metadata):
                    _unwell(trial, method.__name__, partial(method, node), answer)

    @scenario("B15", Feature.INSTANCES_BATCH, hooks=("create_machine", "bad_answers"))
    def test_b15_a_bad_answer_is_unknown(self, trial: Trial) -> None:
        """The same for a batch: it raises, or has errors as values, and none says that an instance
        is gone."""
        node = trial.machine()
        methods = both(trial.batch())
        for method in methods:
            attempt(partial(method, [node]))
        for answer in _about_one(trial):
            with trial.bad_answers(answer):
                for method in methods:
                    outcome = attempt(partial(method, [node]))
                    found = outcome.error or (outcome.value or {}).get(name_of(node))
                    assert not is_gone(found), (
                        f"the cloud answered {answer.what}, and {method.__name__} says that {name_of(node)} is gone: "
                        "the node would be deleted"
                    )
                    assert not isinstance(found, InstanceMetadata | InstanceState), (
                        f"the cloud answered {answer.what}, and {method.__name__} answered {found!r}"
                    )

    @scenario("L33", Feature.LOAD_BALANCER, hooks=("bad_answers",))
    def test_l33_a_bad_answer_is_not_absence(self, trial: Trial) -> None:
        """What the cloud says without knowing is no load balancer's absence: `get_load_balancer`
        raises."""
        service, _ = trial.standing()
        ask = partial(trial.found, service)
        attempt(ask)
        for answer in READS:
            with trial.bad_answers(answer):
                _unwell(trial, "get_load_balancer", ask, answer)

    @scenario("L34", Feature.LOAD_BALANCER, hooks=("bad_answers",))
    def test_l34_a_refusal_is_no_success(self, trial: Trial) -> None:
        """Refused by 401, 403, a proxy's 404, 429 or 5xx, building, updating and deleting raise;
        none blames the Service."""
        service, nodes = trial.standing()
        balancers, cluster, unbuilt = trial.balancers(), trial.cluster_name, trial.service()
        calls: dict[str, Callable[[], object]] = {
            "ensure_load_balancer": partial(balancers.ensure_load_balancer, cluster, unbuilt, nodes),
            "update_load_balancer": partial(balancers.update_load_balancer, cluster, service, nodes[:1]),
            "ensure_load_balancer_deleted": partial(balancers.ensure_load_balancer_deleted, cluster, service),
        }
        for answer in REFUSALS:
            with trial.bad_answers(answer):
                for method, call in calls.items():
                    _check_refused(method, answer, _unwell(trial, method, call, answer))

    @scenario("O6", Feature.LOAD_BALANCER | Feature.OWNED_LOAD_BALANCERS, hooks=("bad_answers",))
    def test_o6_a_bad_answer_is_no_empty_list(self, trial: Trial) -> None:
        """What the cloud says without knowing is no empty list: `owned_load_balancers` raises."""
        ask = partial(owned(trial).owned_load_balancers, trial.cluster_name)
        attempt(ask)
        for answer in READS:
            with trial.bad_answers(answer):
                _unwell(trial, "owned_load_balancers", ask, answer)

    @scenario("R20", Feature.ROUTES, hooks=("bad_answers",))
    def test_r20_a_bad_answer_is_no_empty_table(self, trial: Trial) -> None:
        """What the cloud says without knowing is no empty table: `list_routes` raises."""
        ask = partial(trial.routes().list_routes, trial.cluster_name)
        attempt(ask)
        for answer in READS:
            with trial.bad_answers(answer):
                _unwell(trial, "list_routes", ask, answer)

    @scenario("R21", Feature.ROUTES, hooks=("bad_answers",))
    def test_r21_a_refusal_is_no_success(self, trial: Trial) -> None:
        """Refused by 401, 403, a proxy's 404, 429 or 5xx, creating and deleting raise."""
        routes, cluster = trial.routes(), trial.cluster_name
        present, wanted = trial.route(trial.machine()), trial.route(trial.machine())
        routes.create_route(cluster, "hint", present)
        listed = trial.eventually(partial(only, trial, present))
        calls: dict[str, Callable[[], object]] = {
            "create_route": partial(routes.create_route, cluster, "hint", wanted),
            "delete_route": partial(routes.delete_route, cluster, listed),
        }
        for answer in REFUSALS:
            with trial.bad_answers(answer):
                for method, call in calls.items():
                    _check_refused(method, answer, _unwell(trial, method, call, answer))


def _is_late(trial: Trial, machines: list[V1Node], seconds: float) -> bool:
    """Whether a question is still at work after so many seconds, although it was refused."""
    stop = threading.Event()
    call = Call(deadline=time.monotonic() + _CALL_SECONDS, cancelled=stop)
    task = Task(lambda: questions(trial, trial.provider, machines), "conformance-call", call=call)
    ended = task.wait(seconds)
    # Late or not, it is over: it must not ask the cloud during the next scenario.
    stop.set()
    return not ended
