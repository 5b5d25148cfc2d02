"""What a provider says that its load balancers depend on, of a Service and of nodes: row S33."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider import CloudProviderError
from controllers.cloudcalls import CallFailed
from tests.support.controllers import Raw
from tests.unit.service.bench import Bench
from tests.unit.service.objects import raw_node, raw_service

pytestmark = pytest.mark.row("S33")
KEY = "default/web"


def _team(service: Any) -> str:
    return str((service.metadata.labels or {}).get("team", ""))


def _role(node: Any) -> str:
    return str((node.metadata.labels or {}).get("role", ""))


def _label(bench: Bench, **labels: str) -> None:
    bench.server.edit(KEY, lambda raw: raw["metadata"].update(labels=labels))


def _relabel(bench: Bench, **labels: str) -> None:
    bench.server.put(raw_node("n1", "10.0.0.1", labels=labels))
    bench.settle()


@pytest.fixture
def hooked(bench: Bench) -> Bench:
    bench.cloud.hooks = {"depends_on": _team, "target_traits": _role}
    bench.start()
    bench.serve()
    return bench


def test_a_change_that_the_provider_names_ensures_and_no_other(hooked: Bench) -> None:
    _label(hooked, other="x")
    hooked.settle()
    assert hooked.cloud.methods() == []
    _label(hooked, team="blue")
    hooked.settle()
    assert hooked.cloud.methods() == ["ensure"]


def test_without_the_hook_labels_do_not_even_mean_a_look_and_a_nodes_labels_do_not_count(served: Bench) -> None:
    _label(served, team="blue")
    served.see()
    assert served.waiting() == []
    _relabel(served, role="edge")
    assert served.cloud.methods() == []


def test_a_new_process_finds_what_the_former_one_built_for(hooked: Bench) -> None:
    hooked.start()
    hooked.settle()
    assert hooked.cloud.methods() == ["get"]
    assert hooked.server.patches == []
    _label(hooked, team="blue")
    hooked.start()
    hooked.settle()
    assert hooked.cloud.methods() == ["get", "ensure"]


def test_a_word_that_fails_is_the_services_own_error_and_its_nodes_follow(hooked: Bench) -> None:
    hooked.cloud.hooks["depends_on"] = lambda one: (
        CallFailed("no label team") if one.metadata.name == "web" else _team(one)
    )
    _label(hooked, team="blue")
    hooked.server.put(raw_service("other"))
    hooked.settle()
    assert [call for call in hooked.cloud.calls if call[1] == KEY] == []
    assert "uid-other" in hooked.cloud.balancers
    [warning] = set(hooked.recorder.messages("Warning"))
    assert warning.endswith("failed to say what it depends on: no label team")
    hooked.server.put(raw_node("n2", "10.0.0.2"))
    hooked.settle()
    assert hooked.cloud.balancers["uid-web"].nodes == hooked.wanted_nodes()
    hooked.cloud.hooks["depends_on"] = _team
    hooked.settle(rounds=70)
    assert ("ensure", KEY) in hooked.cloud.calls


@pytest.mark.parametrize("built", [False, True])
def test_of_a_new_process_too_whose_provider_fails_to_say(bench: Bench, built: bool) -> None:
    if built:
        bench.serve()
    else:
        bench.server.put(raw_service())
    bench.cloud.hooks["depends_on"] = lambda _: CloudProviderError("no")
    bench.start()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    assert bench.cloud.count("ensure") == 0
    assert bool(bench.cloud.balancers) is built
    assert all(balancer.nodes == bench.wanted_nodes() for balancer in bench.cloud.balancers.values())


def test_a_label_of_a_node_that_the_provider_names_updates_and_no_other(hooked: Bench) -> None:
    _relabel(hooked, other="x")
    assert hooked.cloud.methods() == []
    _relabel(hooked, role="edge")
    assert hooked.cloud.methods() == ["update"]


def test_only_nodes_that_changed_are_asked_about(hooked: Bench) -> None:
    asked: list[str] = []

    def role(node: Any) -> str:
        asked.append(node.metadata.name)
        return _role(node)

    hooked.cloud.hooks["target_traits"] = role
    hooked.server.put(raw_node("n2", "10.0.0.2"))
    hooked.settle()

    def heartbeat(raw: Raw) -> None:
        raw["status"]["conditions"] = [{"type": "Ready", "status": "True", "message": "posting ready"}]

    hooked.server.edit("n1", heartbeat)
    hooked.settle()
    assert asked == ["n2"]


def test_a_node_whose_word_fails_is_told_and_keeps_the_last_one(hooked: Bench) -> None:
    _relabel(hooked, role="edge")
    hooked.forget()
    hooked.cloud.hooks["target_traits"] = lambda node: CallFailed("no role") if _role(node) == "x" else _role(node)
    _relabel(hooked, role="x")
    assert hooked.cloud.methods() == []
    [event] = hooked.recorder.events
    assert (event.name, event.type, event.reason) == ("n1", "Warning", "TargetTraitsFailed")
    assert event.message == "What load balancers depend on of this node is not known: no role"
    _relabel(hooked, role="core")
    assert hooked.cloud.methods() == ["update"]


def test_a_word_that_a_busy_provider_owes_is_asked_for_again_without_another_change(hooked: Bench) -> None:
    def busy(_: object) -> str:
        raise CallFailed("the call before it has not ended")

    hooked.cloud.hooks["target_traits"] = busy
    _relabel(hooked, role="edge")
    assert hooked.cloud.methods() == [], "nothing is known of the change"
    hooked.cloud.hooks["target_traits"] = _role
    hooked.settle(rounds=70)
    assert hooked.cloud.methods() == ["update"]
    hooked.forget()
    hooked.settle(rounds=70)
    assert hooked.node_queue.unfinished() == []
    assert hooked.cloud.methods() == []


def test_a_word_that_fails_always_is_asked_for_once_a_minute(hooked: Bench) -> None:
    asked: list[float] = []

    def fails(_: object) -> CallFailed:
        asked.append(hooked.clock.monotonic())
        return CallFailed("no role")

    hooked.cloud.hooks["target_traits"] = fails
    _relabel(hooked, role="edge")
    hooked.settle(rounds=600)
    assert 9 <= len(asked) <= 12
