"""Which of a cloud's answers about addresses are believed, and when: half an answer, none, another
order; and what is told about them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import InstanceMetadata
from cloudprovider.wellknown import ANNOTATION_PROVIDED_NODE_IP
from controllers.cloudcalls import InvalidAnswer
from controllers.node.addresses import SETTLED, UNHEARD, Heard, NoIPAddress, has_ip, hear, wanted
from controllers.node.changes import ProviderIDTaken
from controllers.node.memory import NodeMemory
from controllers.node.reconcile import OPEN_AFTER
from tests.unit.node.test_changes import TAINT, instance, node
from tests.unit.node.world import PERIOD, World

IN, EX, NAME = ("InternalIP", "10.0.0.1"), ("ExternalIP", "192.0.2.1"), ("Hostname", "n1")
IN6, EX6 = ("InternalIP", "fd00::1"), ("ExternalIP", "2001:db8::1")
FULL = (IN, EX, NAME)
Pair = tuple[str, str]


def of(*addresses: Pair) -> InstanceMetadata:
    """An answer with exactly these addresses."""
    listed = tuple(V1NodeAddress(type=kind, address=value) for kind, value in addresses)
    return InstanceMetadata("fake://i-1", "large", listed, "z1", "r1")


def joined(*addresses: Pair, world: World | None = None) -> World:
    """A node that was initialised with these addresses."""
    world = world or World()
    world.cloud.says["n1"] = of(*addresses)
    world.create()
    world.work()
    assert not world.tainted()
    assert world.addresses() == list(addresses)
    return world


def refreshed(world: World, *addresses: Pair, times: int = 1) -> list[Pair]:
    """The node's addresses after so many refreshes with this answer."""
    world.cloud.says["n1"] = of(*addresses)
    world.pass_time(times * PERIOD, step=PERIOD)
    return world.addresses()


def lacking(world: World) -> float | None:
    return world.metrics.value("node_controller_nodes_lacking_addresses")


# ---- half an answer


@pytest.mark.row("N31")
@pytest.mark.parametrize("answer", [(), (NAME,), (NAME, ("InternalDNS", "n1.example"))], ids=len)
def test_an_answer_without_any_ip_never_erases_one(answer: Sequence[Pair]) -> None:
    world = joined(*FULL)
    assert refreshed(world, *answer, times=10) == list(FULL)
    assert world.recorder.reasons().count("AddressesMissing") == 1
    assert "10.0.0.1" in world.recorder.messages("Warning")[0]
    assert lacking(world) == 1
    assert refreshed(world, *FULL) == list(FULL)
    assert lacking(world) == 0


@pytest.mark.row("N31")
def test_a_type_that_is_missing_is_believed_the_second_time_in_a_row() -> None:
    world = joined(*FULL)
    assert refreshed(world, EX, NAME) == list(FULL)
    assert world.recorder.reasons().count("AddressesMissing") == 1
    assert lacking(world) == 1
    assert refreshed(world, *FULL) == list(FULL)
    assert refreshed(world, EX, NAME) == list(FULL), "the answer between had it"
    assert refreshed(world, EX, NAME) == [EX, NAME]
    assert lacking(world) == 0


@pytest.mark.row("N31")
def test_half_an_answer_costs_its_half_only() -> None:
    world = joined(*FULL)
    moved = ("ExternalIP", "192.0.2.9")
    assert refreshed(world, moved, NAME) == [moved, NAME, IN]


@pytest.mark.row("N31")
def test_a_question_that_is_repeated_at_once_is_no_second_answer() -> None:
    world = joined(*FULL)
    refreshed(world, EX, NAME)
    for _ in range(5):
        world.clock.advance(1)
        world.reconciler.refresh("n1", world.answer())
    assert world.addresses() == list(FULL)
    assert refreshed(world, EX, NAME) == [EX, NAME]


@pytest.mark.row("N31")
def test_another_process_believes_the_second_answer_too() -> None:
    world = joined(*FULL)
    world.cloud.says["n1"] = of(EX, NAME)
    world.restart()
    world.work()
    assert world.addresses() == list(FULL)
    assert refreshed(world, EX, NAME) == [EX, NAME]


@pytest.mark.row("N31")
def test_a_cloud_that_never_names_addresses_is_not_complained_about() -> None:
    world = World()
    world.cloud.says["n1"] = of()
    world.create()
    world.edit(addresses=[{"type": "InternalIP", "address": "10.0.0.1"}])
    world.pass_time(3 * PERIOD, step=PERIOD)
    assert not world.tainted()
    assert world.recorder.reasons() == ["Synced"]


_ADDRESSES = st.lists(
    st.sampled_from([IN, IN6, EX, EX6, NAME, ("InternalIP", "10.0.0.2"), ("InternalDNS", "n1.example")]),
    unique=True,
    max_size=5,
)


@given(answers=st.lists(_ADDRESSES, max_size=8), gaps=st.lists(st.sampled_from([1.0, PERIOD]), min_size=8, max_size=8))
@pytest.mark.row("N31")
def test_no_sequence_of_answers_takes_what_two_in_a_row_did_not_take(
    answers: list[list[Pair]], gaps: list[float]
) -> None:
    """An IP goes only where the answer has another one of its type, or two answers in a row, half a
    period apart, had none of its type and some other IP."""
    heard = hear(UNHEARD, of(*FULL), now=0.0, period=PERIOD, new=True)
    present, now = list(FULL), 0.0
    lacked_since: dict[str, float] = {}
    for answer, gap in zip(answers, gaps, strict=False):
        now += gap
        metadata = of(*answer)
        heard = hear(heard, metadata, now=now, period=PERIOD, new=False)
        after = [(one.type, one.address) for one in wanted(node(addresses=present), metadata, heard).addresses]
        has_ip = any(kind.endswith("IP") for kind, _ in answer)
        kinds = {kind for kind, _ in answer}
        for kind in ("InternalIP", "ExternalIP"):
            if kind in kinds:
                lacked_since.pop(kind, None)
            elif has_ip:
                lacked_since.setdefault(kind, now)
        for kind, value in set(present) - set(after):
            if kind == "Hostname":
                assert "Hostname" in kinds
            elif kind.endswith("IP") and kind not in kinds:
                assert has_ip
                assert now - lacked_since[kind] >= PERIOD / 2, (kind, value)
        assert any(kind.endswith("IP") for kind, _ in after)
        again = wanted(node(addresses=after), metadata, heard).addresses
        assert [(one.type, one.address) for one in again] == after, "it settles"
        present = after


# ---- a new node


def waiting(*answer: Pair) -> World:
    world = World()
    world.cloud.says["n1"] = of(*answer)
    world.create()
    world.work()
    return world


@pytest.mark.row("N32")
@pytest.mark.parametrize("answer", [(), (NAME,)], ids=["nothing", "hostname"])
def test_a_new_node_waits_for_an_ip_and_is_asked_about_again_and_again(answer: Sequence[Pair]) -> None:
    world = waiting(*answer)
    assert world.tainted()
    assert lacking(world) == 1
    world.pass_time(35)
    assert len(world.cloud.asked) == 7, "at 0, 1, 2, 4, 8, 16 and 32 s"
    world.cloud.says["n1"] = of(*FULL)
    world.pass_time(30)
    assert not world.tainted()
    assert world.addresses() == list(FULL)
    assert lacking(world) == 0


@pytest.mark.row("N32")
def test_after_two_minutes_it_is_opened_and_asked_about_until_an_ip_comes() -> None:
    world = waiting(NAME)
    world.pass_time(OPEN_AFTER - 1)
    assert world.tainted()
    world.pass_time(2)
    assert not world.tainted()
    assert lacking(world) == 1
    asked = len(world.cloud.asked)
    world.pass_time(20)
    assert len(world.cloud.asked) - asked >= 4
    world.cloud.says["n1"] = of(*FULL)
    world.pass_time(32)
    assert world.addresses() == list(FULL)
    assert lacking(world) == 0
    asked = len(world.cloud.asked)
    world.pass_time(100)
    assert len(world.cloud.asked) == asked, "from now on the sweep asks"


@pytest.mark.row("N32")
def test_a_node_without_ip_is_asked_about_often_by_another_process_too() -> None:
    world = waiting(NAME)
    world.pass_time(OPEN_AFTER + 1)
    world.restart()
    world.work()
    world.pass_time(2)
    world.cloud.says["n1"] = of(*FULL)
    world.pass_time(3)
    assert world.addresses() == list(FULL)


@pytest.mark.row("N32")
def test_the_ip_of_the_kubelet_will_do() -> None:
    world = World()
    world.cloud.says["n1"] = of(NAME)
    world.sees = False
    world.create()
    world.edit(addresses=[{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n1"}])
    world.restart()
    world.sees = True
    world.work()
    assert not world.tainted()
    assert world.addresses() == [IN, NAME]


# ---- the order


def changes_of_a_shuffler(*addresses: Pair, seed: int, answers: int) -> list[int]:
    """At which of so many answers in random order the node's addresses change."""
    source, heard, changes = random.Random(seed), UNHEARD, []
    present = source.sample(addresses, len(addresses))
    for number in range(answers):
        metadata = of(*(source.sample(addresses, len(addresses)) if number else present))
        heard = hear(heard, metadata, now=number * PERIOD, period=PERIOD, new=not number)
        after = [(one.type, one.address) for one in wanted(node(addresses=present), metadata, heard).addresses]
        if after != present:
            present = after
            changes.append(number)
    return changes


@pytest.mark.row("N33")
def test_an_order_that_was_changed_on_purpose_is_taken_at_the_fifth_answer() -> None:
    world = joined(EX6, EX, IN, NAME)
    assert refreshed(world, EX, EX6, IN, NAME, times=SETTLED - 1) == [EX6, EX, IN, NAME]
    assert refreshed(world, EX, EX6, IN, NAME) == [EX, EX6, IN, NAME]
    writes = len(world.server.applied)
    refreshed(world, EX, EX6, IN, NAME, times=10)
    assert len(world.server.applied) == writes


@pytest.mark.row("N33")
def test_an_order_that_was_changed_between_two_processes_is_taken_too() -> None:
    world = joined(EX6, EX, IN, NAME)
    world.cloud.says["n1"] = of(EX, EX6, IN, NAME)
    world.restart()
    world.work()
    assert refreshed(world, EX, EX6, IN, NAME, times=SETTLED) == [EX, EX6, IN, NAME]


@pytest.mark.row("N13", "N33")
@given(seed=st.integers(0, 10_000))
def test_a_cloud_that_shuffles_four_addresses_causes_no_write(seed: int) -> None:
    assert changes_of_a_shuffler(IN, IN6, EX, EX6, seed=seed, answers=60) == []


@pytest.mark.row("N13", "N33")
def test_a_cloud_that_tosses_a_coin_causes_few_writes_and_then_none() -> None:
    """Five equal answers of two come by chance. Once the order has changed some times, five are not
    enough any more."""
    changes = [changes_of_a_shuffler(IN, IN6, seed=seed, answers=150) for seed in range(40)]
    assert sum(map(len, changes)) < 10
    assert max((number for each in changes for number in each), default=0) < 50


# ---- told


@pytest.mark.row("N37")
def test_a_fight_over_addresses_is_told_at_the_second_time() -> None:
    world = joined(*FULL)
    theirs = [{"type": "InternalIP", "address": "10.99.0.1"}]
    world.edit(addresses=theirs)
    world.pass_time(PERIOD, step=PERIOD)
    assert "AddressesPutBack" not in world.recorder.reasons()
    world.edit(addresses=theirs)
    world.pass_time(2 * PERIOD, step=PERIOD)
    assert world.addresses() == list(FULL)
    [text] = [one.message for one in world.recorder.events if one.reason == "AddressesPutBack"]
    assert all(word in text for word in ("10.99.0.1", "192.0.2.1", "--cloud-provider=external"))


@pytest.mark.row("N37")
def test_a_change_of_the_cloud_is_no_fight() -> None:
    world = joined(*FULL)
    for number in range(2, 6):
        refreshed(world, ("InternalIP", f"10.0.0.{number}"), EX, NAME, times=2)
        refreshed(world, EX, NAME, times=3)
    assert "AddressesPutBack" not in world.recorder.reasons()


@pytest.mark.row("N38")
@pytest.mark.parametrize(("asked", "told"), [("10.0.0.1", 1), ("10.0.0.1,fd00::1", 0), (None, 0)])
def test_what_a_node_ip_of_one_family_leaves_out_is_told_once(asked: str | None, told: int) -> None:
    world = World()
    world.cloud.says["n1"] = of(IN, IN6, EX, EX6)
    world.create(annotations={ANNOTATION_PROVIDED_NODE_IP: asked} if asked else None)
    world.pass_time(5 * PERIOD, step=PERIOD)
    messages = [one.message for one in world.recorder.events if one.reason == "AddressesLeftOut"]
    assert len(messages) == told
    assert all("--node-ip=10.0.0.1,fd00::1" in message for message in messages)
    world.restart()
    world.pass_time(PERIOD, step=PERIOD)
    assert world.recorder.reasons().count("AddressesLeftOut") == told, "nothing was left out again"


@pytest.mark.row("N34")
def test_two_nodes_of_one_machine_are_told_both() -> None:
    world = World()
    for name in ("old", "new", "other"):
        world.cloud.says[name] = instance(provider_id="fake://i-2" if name == "other" else "fake://i-1")
        world.create(name)
        world.work()
    assert world.shared == {"old": ("new",), "new": ("old",)}
    assert world.metrics.value("node_controller_nodes_sharing_provider_id") == 2
    world.restart()
    assert set(world.shared) == {"old", "new"}
    world.delete("old")
    assert world.metrics.value("node_controller_nodes_sharing_provider_id") == 0
    world.create("old", providerID="fake://i-1")
    assert world.metrics.value("node_controller_nodes_sharing_provider_id") == 2


@pytest.mark.row("N34")
def test_a_third_node_of_the_machine_costs_one_event() -> None:
    world = World()
    for number in range(3):
        world.shared.clear()
        world.create(f"n{number}", providerID="fake://i-1")
    assert world.shared == {"n2": ("n0", "n1")}


@pytest.mark.row("P7")
@pytest.mark.parametrize(("ready", "given"), [("True", False), ("False", False), ("Unknown", True)])
def test_an_id_that_another_node_carries_is_not_written(ready: str, given: bool) -> None:
    world = World()
    world.cloud.says["first"] = world.cloud.says["second"] = instance(provider_id="fake://i-1")
    world.create("first", providerID="fake://i-1")
    condition = {"type": "Ready", "status": ready}
    world.server.edit("first", lambda raw: raw.setdefault("status", {}).update(conditions=[condition]))
    world.create("second")
    if given:
        world.work()
        assert world.server.nodes["second"]["spec"]["providerID"] == "fake://i-1"
        return
    with pytest.raises(ProviderIDTaken, match="Node first carries"):
        world.work()
    assert "providerID" not in world.server.nodes["second"]["spec"]
    assert world.tainted("second")
    world.delete("first")
    world.restart()
    world.work()
    assert world.server.nodes["second"]["spec"]["providerID"] == "fake://i-1"


@pytest.mark.row("P7")
def test_one_id_is_given_to_one_of_two_new_nodes() -> None:
    memory = NodeMemory(PERIOD)
    assert memory.give_id("a", "fake://i-1", lambda _: False) == ""
    assert memory.give_id("a", "fake://i-1", lambda _: False) == ""
    assert memory.give_id("b", "fake://i-1", lambda _: False) == "a"
    memory.note_id("a", "", "fake://i-1")
    assert memory.give_id("b", "fake://i-1", lambda _: True) == "a"
    memory.note_id("a", "fake://i-1", "")
    assert memory.give_id("b", "fake://i-1", lambda _: True) == ""


@pytest.mark.row("P7")
def test_a_node_that_went_while_it_was_given_an_id_holds_nothing() -> None:
    memory = NodeMemory(PERIOD)
    memory.give_id("a", "fake://i-1", lambda _: False)  # after its deletion was told
    memory.forget_gone(lambda _: False)
    assert memory.give_id("b", "fake://i-1", lambda _: False) == ""


# ---- a machine with another name


@pytest.mark.row("P5")
def test_a_hostname_that_is_the_nodes_name_stays() -> None:
    world = joined(*FULL)
    renamed, moved = ("Hostname", "shop-web"), ("InternalIP", "10.0.0.22")
    assert refreshed(world, IN, renamed, EX, times=SETTLED + 2) == [IN, NAME, EX]
    assert refreshed(world, moved, EX, renamed, ("Hostname", "shop")) == [moved, EX, NAME]
    assert refreshed(world, moved, EX, renamed, NAME) == [moved, EX, renamed, NAME]


@pytest.mark.row("P5")
def test_another_hostname_from_the_beginning_follows_the_cloud() -> None:
    first, second = ("Hostname", "ip-10-0-0-1.internal"), ("Hostname", "ip-10-0-0-1.ec2.internal")
    world = joined(IN, first)
    assert refreshed(world, IN, second) == [IN, second]


# ---- a fault in one field


@pytest.mark.row("N35")
def test_a_fault_in_one_field_costs_that_field_alone() -> None:
    world = joined(*FULL)
    moved = ("InternalIP", "10.0.0.22")
    fault = InvalidAnswer("instance_metadata", ["zone: bad"], of(moved, EX, NAME))
    world.cloud.says["n1"] = fault
    with pytest.raises(InvalidAnswer):
        world.reconciler.refresh("n1", world.answer())
    assert world.addresses() == [moved, EX, NAME]
    assert world.labels()["topology.kubernetes.io/zone"] == "z1"


@pytest.mark.row("N35")
def test_an_answer_of_which_nothing_is_usable_changes_nothing() -> None:
    world = joined(*FULL)
    world.cloud.says["n1"] = InvalidAnswer("instance_metadata", ["provider_id: bad"])
    with pytest.raises(InvalidAnswer):
        world.reconciler.refresh("n1", world.answer())
    assert world.addresses() == list(FULL)


# ---- nodes that go, labels that were replaced


@pytest.mark.row("N39")
def test_a_node_that_is_being_deleted_is_not_refreshed() -> None:
    world = joined(*FULL)
    going = {"deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["example.com/x"]}
    world.server.edit("n1", lambda raw: raw["metadata"].update(going))
    asked = len(world.cloud.asked)
    world.pass_time(3 * PERIOD, step=PERIOD)
    world.refreshes.add("n1")
    world.work()
    assert len(world.cloud.asked) == asked


@pytest.mark.row("N40")
def test_labels_that_were_replaced_are_named(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    own = {"topology.kubernetes.io/zone": "rack-7", "node.kubernetes.io/instance-type": "large"}
    with caplog.at_level("INFO"):
        world.create(labels=own)
        world.work()
    [text] = world.recorder.messages("Normal")
    assert text == "Node synced successfully; the cloud's topology.kubernetes.io/zone=z1 replaced rack-7"
    assert any("replaced rack-7" in record.message for record in caplog.records)


def test_hearing_nothing_changes_nothing() -> None:
    assert hear(UNHEARD, of(NAME), now=1.0, period=PERIOD, new=False) == Heard()
    with pytest.raises(NoIPAddress, match="Hostname n1"):
        raise NoIPAddress(of(NAME))
    assert not has_ip(wanted(node(taints=[TAINT]), of(), UNHEARD).addresses)
