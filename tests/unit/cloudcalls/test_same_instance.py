"""Spellings of one provider ID: the node's own stands in answers, and the provider's hook decides
(row N18)."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.cloudcalls import CallFailed, InvalidAnswer
from tests.unit.cloudcalls.support import Capability, Provider, all_good, batch_of, metadata, names_of, node, world

SPELLED = {"n0": "test://N0", "n1": "test:///n1", "n2": "test://other"}


class Picky(Provider):
    """A provider whose hook is the function given."""

    def __init__(self, hook: Any, **capabilities: Any) -> None:
        super().__init__(**capabilities)
        self._hook = hook

    def same_provider_id(self, one: str, other: str) -> bool:
        answer: bool = self._hook(one, other)
        return answer


def capabilities(batched: bool) -> dict[str, Any]:
    if batched:
        return {"instances_batch": batch_of(all_good)}
    return {"instances_v2": Capability(instance_metadata=lambda n: metadata(names_of([n])[0]))}


NODES = [node(name, provider_id=provider_id) for name, provider_id in SPELLED.items()]


@pytest.mark.row("N18")
@pytest.mark.parametrize("batched", [True, False])
def test_the_nodes_own_spelling_stands_in_the_answer(batched: bool) -> None:
    with world(Provider(**capabilities(batched))) as w:
        answers = w.fetch(NODES)
    assert {name: answer.provider_id for name, answer in answers.items()} == {
        "n0": "test://N0",
        "n1": "test:///n1",
        "n2": "test://n2",  # another instance: the controller refuses it
    }


@pytest.mark.row("N18")
@pytest.mark.parametrize("batched", [True, False])
def test_the_providers_hook_decides(batched: bool) -> None:
    def same(one: str, other: str) -> bool:
        return (one, other) == ("test://other", "test://n2")

    with world(Picky(same, **capabilities(batched))) as w:
        answers = w.fetch(NODES)
        assert w.calls.same_provider_id("test://other", "test://n2")
        assert not w.calls.same_provider_id("test://N0", "test://n0")
    assert {name: answer.provider_id for name, answer in answers.items()} == {
        "n0": "test://n0",
        "n1": "test://n1",
        "n2": "test://other",
    }


@pytest.mark.parametrize("batched", [True, False])
def test_a_hook_that_raises_costs_only_the_nodes_that_it_was_asked_about(batched: bool) -> None:
    def same(one: str, other: str) -> bool:
        raise KeyError(one)

    plain = node("n9", provider_id="test://n9")
    with world(Picky(same, **capabilities(batched))) as w:
        answers = w.fetch([*NODES, plain])
        with pytest.raises(CallFailed, match="same_provider_id failed"):
            w.calls.same_provider_id("test://a", "test://b")
    assert answers.good() == {"n9"}
    assert all(isinstance(answers[name], CallFailed) for name in SPELLED)
    assert "same_provider_id" in str(answers["n0"])


def test_a_hook_that_answers_junk_is_no_answer() -> None:
    with world(Picky(lambda one, other: None, **capabilities(True))) as w:
        answers = w.fetch(NODES)
    assert answers.bad() == set(SPELLED)
    assert all(isinstance(answers[name], CallFailed | InvalidAnswer) for name in SPELLED)
