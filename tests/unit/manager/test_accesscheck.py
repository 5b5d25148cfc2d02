"""Missing rights are told once each, with the rule to add, and looked at again until they are
there."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest

from controllers.catalog import CATALOG
from controllers.manager.accesscheck import AGAIN_SECONDS, AccessCheck
from controllers.registration.entry import Rule
from controllers.runtime.api import ApiError, CredentialsUnavailable, Forbidden, Response, RestClient, Unreachable
from controllers.runtime.clock import ClockEvent
from tests.support.clock import FakeClock

NODES = Rule(resource="nodes", verbs=("list", "patch"), consequence="no node is initialised")
STATUS = Rule(resource="nodes/status", verbs=("patch",), consequence="nodes get no addresses")
EVENTS = Rule(resource="events", verbs=("create",), consequence="no Events", namespace="default")


class Reviewer:
    """Answers reviews from a set of denied (verb, resource) pairs, or with an error."""

    def __init__(self, *denied: tuple[str, str]) -> None:
        self.denied = set(denied)
        self.error: ApiError | None = None
        self.asked: list[dict[str, str]] = []

    def request(self, method: str, path: str, *, body: Any, timeout: float) -> Response:
        assert (method, path) == ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        if self.error is not None:
            raise self.error
        attributes = body["spec"]["resourceAttributes"]
        self.asked.append(attributes)
        resource = "/".join(filter(None, [attributes["resource"], attributes.get("subresource")]))
        allowed = (attributes["verb"], resource) not in self.denied
        return Response(201, {}, json.dumps({"status": {"allowed": allowed}}).encode())


def checking(reviewer: Reviewer, accounts: Reviewer, forbidden: Callable[[], int], clock: FakeClock) -> AccessCheck:
    rest, own = cast(RestClient, reviewer), cast(RestClient, accounts)
    return AccessCheck(rest, accounts=lambda _name: own, forbidden=forbidden, clock=clock)


class Running:
    """An AccessCheck in a thread, on a clock that the test moves; it has looked once."""

    def __init__(self, reviewer: Reviewer, *rules: Rule) -> None:
        self.clock = FakeClock()
        self.stop = ClockEvent(self.clock)
        self.forbidden = 0
        self.check = checking(reviewer, reviewer, lambda: self.forbidden, self.clock)
        self.check.ask_about(rules)
        self.thread = threading.Thread(target=self.check.run, args=(self.stop,), daemon=True)
        self.thread.start()
        self.looked()

    def looked(self) -> None:
        """Wait until it has looked and waits for its next time."""
        self.clock.wait_for_waiters(1)

    def later(self, seconds: float = AGAIN_SECONDS) -> None:
        self.clock.advance(seconds)
        self.looked()

    def ended(self) -> bool:
        self.thread.join(10)
        return not self.thread.is_alive()


def test_all_rights_there_means_one_look_and_no_word(caplog: pytest.LogCaptureFixture) -> None:
    reviewer = Reviewer()
    run = Running(reviewer, NODES, STATUS, EVENTS, NODES)
    assert run.check.checks() == []
    assert caplog.text == ""
    assert reviewer.asked == [
        {"verb": "list", "group": "", "resource": "nodes"},
        {"verb": "patch", "group": "", "resource": "nodes"},
        {"verb": "patch", "group": "", "resource": "nodes", "subresource": "status"},
        {"verb": "create", "group": "", "resource": "events", "namespace": "default"},
    ]


@pytest.mark.row("N7")
def test_a_missing_right_names_the_rule_and_its_consequence_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    reviewer = Reviewer(("patch", "nodes/status"), ("patch", "nodes"))
    run = Running(reviewer, NODES, STATUS, EVENTS)
    assert "missing permission: patch on nodes/status. Without it nodes get no addresses" in caplog.text
    assert "apiGroups [''], resources [nodes/status], verbs [patch]" in caplog.text
    assert "apiGroups [''], resources [nodes], verbs [patch]" in caplog.text
    assert [(c.name, c.ok) for c in run.check.checks()] == [("rights-nodes", False), ("rights-nodes/status", False)]
    lines = len(caplog.records)

    run.later()
    assert len(caplog.records) == lines

    reviewer.denied.clear()
    run.later()
    assert "all permissions are granted now" in caplog.text
    assert run.check.checks() == []


@pytest.mark.row("N7")
def test_a_right_that_several_controllers_lack_is_told_once_with_all_consequences(
    caplog: pytest.LogCaptureFixture,
) -> None:
    anywhere = Rule(resource="events", verbs=("create", "patch"), consequence="Services are silent")
    pruning = Rule(resource="nodes", verbs=("delete", "patch"), consequence="nodes stay")
    reviewer = Reviewer(("create", "events"), ("patch", "nodes"), ("delete", "nodes"))
    Running(reviewer, NODES, EVENTS, anywhere, pruning)
    assert [record.getMessage() for record in caplog.records] == [
        "missing permission: patch, delete on nodes. Without it no node is initialised; nodes stay. Fix: add to the "
        "ClusterRole of the manager's service account: apiGroups [''], resources [nodes], verbs [patch, delete]",
        "missing permission: create on events. Without it Services are silent; no Events. Fix: add to the "
        "ClusterRole of the manager's service account: apiGroups [''], resources [events], verbs [create]",
    ]
    assert len(reviewer.asked) == len({tuple(sorted(asked.items())) for asked in reviewer.asked})


def test_a_right_that_one_namespace_alone_lacks_is_told_for_that_namespace() -> None:
    anywhere = Rule(resource="events", verbs=("patch",), consequence="Services are silent")
    run = Running(Reviewer(("create", "events"), ("patch", "events")), anywhere, EVENTS)
    fixes = [check.detail for check in run.check.checks()]
    assert len(fixes) == 2
    assert "verbs [patch]" in fixes[0]
    assert "in namespace default" in fixes[1]
    assert "verbs [create]" in fixes[1]


def test_a_namespaced_rule_says_where_it_belongs() -> None:
    assert EVENTS.fix().startswith("add to the Role in namespace default, or ClusterRole")


@pytest.mark.parametrize("error", [Forbidden("no", status=403), ApiError("what?", status=501)])
def test_where_the_question_itself_is_refused_nothing_is_claimed(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    reviewer = Reviewer()
    reviewer.error = error
    run = Running(reviewer, NODES)
    run.later()
    assert run.check.checks() == []
    assert caplog.text.count("permissions cannot be checked") == 1
    assert run.check.answered


def test_an_api_server_that_has_just_started_and_refuses_everybody_is_asked_again_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reviewer = Reviewer(("patch", "nodes"))
    reviewer.error = Forbidden("no roles yet", status=403)
    run = Running(reviewer, NODES)
    assert not run.check.answered
    reviewer.error = None
    run.later()
    assert [check.name for check in run.check.checks()] == ["rights-nodes"]
    assert "permissions cannot be checked" not in caplog.text


def test_where_no_rule_is_given_there_is_nothing_to_wait_for() -> None:
    check = checking(Reviewer(), Reviewer(), lambda: 0, FakeClock())
    check.ask_about([])  # a vendor's controller without rules: its dry run waited 300 s for an answer
    assert check.answered


def test_an_api_server_that_is_away_is_asked_again() -> None:
    reviewer = Reviewer()
    reviewer.error = Unreachable("connection refused")
    run = Running(reviewer, NODES)
    reviewer.error = None
    run.later()
    assert len(reviewer.asked) == 2


@pytest.mark.row("O1")
def test_after_an_answer_403_all_rights_are_asked_about_again() -> None:
    reviewer = Reviewer()
    run = Running(reviewer, NODES, STATUS)
    reviewer.denied = {("patch", "nodes"), ("patch", "nodes/status")}
    run.forbidden += 1
    for _ in range(5):
        run.later(1.0)
    assert {check.name for check in run.check.checks()} == {"rights-nodes", "rights-nodes/status"}
    reviewer.denied.clear()
    run.later()
    assert run.check.checks() == []


@pytest.mark.row("O1")
def test_without_any_403_one_right_in_turn_is_asked_about() -> None:
    reviewer = Reviewer()
    run = Running(reviewer, NODES, STATUS)
    for _ in range(3):
        run.later()
    assert len(reviewer.asked) == 6
    reviewer.denied = {("list", "nodes")}
    run.later()
    assert [check.name for check in run.check.checks()] == ["rights-nodes"]


def test_it_stops_when_told() -> None:
    run = Running(Reviewer(("list", "nodes")), NODES)
    run.stop.set()
    assert run.ended()


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.name)
def test_every_controller_says_what_it_needs(entry: Any) -> None:
    assert entry.rules
    assert all(rule.consequence and rule.verbs for rule in entry.rules)


def test_the_rights_of_an_account_are_asked_with_its_own_token() -> None:
    own, manager = Reviewer(("patch", "nodes")), Reviewer(("create", "serviceaccounts/token"))
    token = Rule(
        resource="serviceaccounts/token",
        verbs=("create",),
        consequence="no tokens",
        namespace="kube-system",
        names=("n",),
    )
    check = checking(manager, own, lambda: 0, FakeClock())
    check.ask_about([token, attrs.evolve(NODES, account="node-controller")])
    check._round()
    assert [asked["resource"] for asked in own.asked] == ["nodes", "nodes"]
    assert [asked.get("name") for asked in manager.asked] == ["n"]
    assert [one.name for one in check.checks()] == ["rights-nodes-node-controller", "rights-serviceaccounts/token"]
    own.error = CredentialsUnavailable("no token")
    check._round()
    assert [one.name for one in check.checks()] == ["rights-serviceaccounts/token"]
