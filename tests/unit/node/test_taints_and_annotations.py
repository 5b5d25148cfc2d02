"""Taints and annotations that a cloud gives to its nodes: taints once, annotations kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import Taint
from cloudprovider.checks.nodelabels import annotation_problems
from controllers.node import changes
from controllers.node.kept import APPLIED_ANNOTATIONS, APPLIED_LABELS
from tests.unit.node.test_changes import OTHER_TAINT, TAINT, instance, node, object_of
from tests.unit.node.world import PERIOD, UNINITIALIZED, World

GPU = Taint("example.com/gpu", "NoSchedule", "a100")
DEDICATED = Taint("example.com/dedicated", "NoExecute")
GPU_JSON = {"key": "example.com/gpu", "value": "a100", "effect": "NoSchedule"}
CONSOLE, RACK = "example.com/console", "example.com/rack"


def taints(world: World) -> list[Any]:
    return list(world.server.nodes["n1"]["spec"].get("taints") or [])


def noted(world: World) -> dict[str, str]:
    found = dict(world.server.nodes["n1"]["metadata"]["annotations"])
    found.pop(APPLIED_LABELS, None)
    return found


def joined(world: World | None = None, **said: Any) -> World:
    world = world or World()
    world.cloud.says["n1"] = instance(**said)
    world.create()
    world.work()
    assert not world.tainted()
    return world


# ---- taints


def test_taints_come_in_the_write_that_removes_the_uninitialized_one() -> None:
    planned = changes.initialization(node(taints=[TAINT, OTHER_TAINT]), instance(taints=[GPU, DEDICATED]))
    written = object_of(planned)
    assert written is not None
    dedicated = {"key": "example.com/dedicated", "effect": "NoExecute"}
    assert OTHER_TAINT["key"] == dedicated["key"], "the node brought one of this key and effect along: it stays"
    assert written["spec"]["taints"] == [OTHER_TAINT, GPU_JSON]
    assert planned.patches[-1].versioned, "the list is written whole"


_TAINTS = st.lists(
    st.builds(
        Taint,
        st.sampled_from(["a", "b", "example.com/c"]),
        st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]),
        st.sampled_from(["", "x", "y"]),
    ),
    unique_by=lambda taint: (taint.key, taint.effect),
)


@given(brought=_TAINTS, said=_TAINTS)
def test_nothing_that_the_node_brings_along_is_changed_and_nothing_comes_twice(
    brought: list[Taint], said: list[Taint]
) -> None:
    own = [{"key": one.key, "value": one.value, "effect": one.effect} for one in brought]
    written = object_of(changes.initialization(node(taints=[TAINT, *own]), instance(taints=said)))
    assert written is not None
    after = [(one["key"], one["effect"], one.get("value", "")) for one in written["spec"]["taints"] or []]
    assert after[: len(brought)] == [(one.key, one.effect, one.value) for one in brought]
    keys = {(one.key, one.effect) for one in brought}
    new = [(one.key, one.effect, one.value) for one in said if (one.key, one.effect) not in keys]
    assert after[len(brought) :] == new


@pytest.mark.parametrize("restarted", [False, True])
def test_a_taint_that_was_removed_stays_away_and_a_new_one_does_not_come(restarted: bool) -> None:
    world = joined(taints=[GPU])
    assert taints(world) == [GPU_JSON]
    world.edit(taints=[])
    world.cloud.says["n1"] = instance(taints=[GPU, DEDICATED])
    if restarted:
        world.restart()
    world.pass_time(4 * PERIOD, step=PERIOD)
    assert taints(world) == []


def test_there_is_no_moment_in_which_the_node_is_schedulable_without_them() -> None:
    world = World()
    world.cloud.says["n1"] = instance(taints=[GPU])
    seen: list[list[Any]] = []
    show = world.server.on_change
    assert show is not None

    def watch(name: str, raw: dict[str, Any] | None) -> None:
        seen.append(list((raw or {"spec": {}})["spec"].get("taints") or []))
        show(name, raw)

    world.server.on_change = watch
    world.create()
    world.work()
    assert all(UNINITIALIZED in one or GPU_JSON in one for one in seen)
    assert GPU_JSON in seen[-1]


def test_taints_of_kubernetes_are_refused_and_told(caplog: pytest.LogCaptureFixture) -> None:
    world = joined(taints=[Taint("node.kubernetes.io/unreachable", "NoExecute"), GPU])
    assert taints(world) == [GPU_JSON]
    assert "taints: 'node.kubernetes.io/unreachable' is reserved for Kubernetes, and not written" in caplog.text


# ---- annotations


def test_annotations_are_followed_and_go_when_the_cloud_asks_no_more() -> None:
    world = joined(annotations={CONSOLE: "https://one", RACK: "any text, at all"})
    assert noted(world) == {
        CONSOLE: "https://one",
        RACK: "any text, at all",
        APPLIED_ANNOTATIONS: json.dumps(
            {CONSOLE: "https://one", RACK: "any text, at all"}, sort_keys=True, separators=(",", ":")
        ),
    }
    world.cloud.says["n1"] = instance(annotations={CONSOLE: "https://two"})
    world.pass_time(PERIOD, step=PERIOD)
    assert noted(world)[CONSOLE] == "https://two"
    assert RACK not in noted(world)
    world.cloud.says["n1"] = instance()
    world.pass_time(2 * PERIOD, step=PERIOD)
    assert noted(world)[CONSOLE] == "https://two", "an empty answer erases nothing"


@pytest.mark.parametrize("restarted", [False, True])
def test_an_annotation_of_somebody_else_is_left_alone(restarted: bool) -> None:
    world = World()
    world.cloud.says["n1"] = instance(annotations={CONSOLE: "ours", RACK: "r1"})
    world.create(annotations={CONSOLE: "theirs"})
    world.work()
    assert noted(world)[CONSOLE] == "theirs"
    world.edit(annotations={RACK: "theirs"})
    if restarted:
        world.restart()
    world.cloud.says["n1"] = instance(annotations={CONSOLE: "ours", RACK: "r2"})
    world.pass_time(3 * PERIOD, step=PERIOD)
    assert (noted(world)[CONSOLE], noted(world)[RACK]) == ("theirs", "theirs")


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_was_removed_stays_away_until_the_cloud_says_something_new(restarted: bool) -> None:
    world = joined(annotations={CONSOLE: "one"})
    world.edit(annotations={CONSOLE: None})
    if restarted:
        world.restart()
    world.pass_time(3 * PERIOD, step=PERIOD)
    assert CONSOLE not in noted(world)
    world.cloud.says["n1"] = instance(annotations={CONSOLE: "two"})
    world.pass_time(PERIOD, step=PERIOD)
    assert noted(world)[CONSOLE] == "two"


@pytest.mark.row("N17")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_forged_record_removes_and_overwrites_nothing_that_is_nobodys_of_ours(restarted: bool) -> None:
    precious = {"node.alpha.kubernetes.io/ttl": "0", "example.com/owner": "team-red", APPLIED_LABELS: "{}"}
    world = joined(annotations={CONSOLE: "one"})
    world.edit(annotations={**precious, APPLIED_ANNOTATIONS: json.dumps({**precious, CONSOLE: "one"})})
    if restarted:
        world.restart()
    world.pass_time(3 * PERIOD, step=PERIOD)
    kept = world.server.nodes["n1"]["metadata"]["annotations"]
    assert {key: kept[key] for key in precious if key != APPLIED_LABELS} == {
        key: value for key, value in precious.items() if key != APPLIED_LABELS
    }


def test_reserved_annotations_are_refused() -> None:
    world = joined(annotations={"kubernetes-cloud-provider/applied-labels": "{}", "a.k8s.io/b": "c", CONSOLE: "one"})
    assert noted(world).keys() == {CONSOLE, APPLIED_ANNOTATIONS}
    assert world.record()["topology.kubernetes.io/zone"] == "z1"


@pytest.mark.parametrize("letter", ["a", "é", "語", "😀", "\x01", "\\"])
def test_what_is_taken_of_any_script_fits_into_a_node_with_its_record(letter: str) -> None:
    """The API server takes 256 KiB of annotations in all, and the record holds them once more."""
    allowed = next(
        text for count in range(32 * 1024, 0, -1024) if not annotation_problems({CONSOLE: (text := letter * count)})
    )
    found = noted(joined(annotations={CONSOLE: allowed}))
    assert found[CONSOLE] == allowed
    assert sum(len(part.encode()) for pair in found.items() for part in pair) < 128 * 1024, "as much is left to others"


def test_without_them_nothing_is_added() -> None:
    world = joined()
    assert noted(world) == {}
    assert taints(world) == []
    written = len(world.server.applied)
    world.pass_time(3 * PERIOD, step=PERIOD)
    assert len(world.server.applied) == written
