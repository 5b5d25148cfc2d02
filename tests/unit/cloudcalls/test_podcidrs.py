"""Pod CIDRs that the cloud chose, through the whole gateway: in batches, validated, each node
answered once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

import pytest
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import InstanceNotFound, NotImplementedByProvider
from controllers.cloudcalls import AnswerMissing, InvalidAnswer
from tests.unit.cloudcalls.support import Answers, Capability, Provider, World, names_of, nodes, world


def asked(w: World, seq: Sequence[V1Node]) -> Answers:
    answers = Answers()
    w.calls.fetch_pod_cidrs(seq, answers)
    return answers


def choosing(answer: Any, max_batch: int = 100) -> tuple[Provider, Capability]:
    capability = Capability(max_batch=max_batch, pod_cidrs=answer)
    return Provider(pod_cidrs=capability), capability


def test_two_hundred_and_fifty_nodes_cost_ten_calls() -> None:
    provider, capability = choosing(lambda seq: {name: [f"10.{name[1:]}.0.0/24"] for name in names_of(seq)}, 25)
    with world(provider) as w:
        found = asked(w, nodes(250))
        assert found["n7"] == (ip_network("10.7.0.0/24"),)
        assert len(found) == 250
        assert capability.count("pod_cidrs") == 10


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("10.0.0.0/24", "not a sequence of text"),
        (None, "is a return statement missing"),
        ({"10.0.0.0/24": 1}, "not a sequence of text"),
        ([7], "item 0 is 7, not a text"),
        (["10.0.0.1/24", "x"], r"'10.0.0.1/24' has host bits: write 10.0.0.0/24.*'x' is not an IP range"),
        (["fe80::%eth0/64"], "is not an IP range"),
        (["10.0.0.0/255.255.255.0"], "is not an IP range"),
        (["10.0.0.0"], "'10.0.0.0' has no prefix length, as in 10.244.1.0/24"),
        (["10.0.0.0/24", "10.0.1.0/24"], "several ranges of one IP family"),
    ],
)
def test_what_could_not_be_written_is_refused(value: object, problem: str) -> None:
    with world(choosing(lambda seq: {"n0": value})[0]) as w:
        answer = asked(w, nodes(1))["n0"]
        assert isinstance(answer, InvalidAnswer)
        assert re.search(problem, str(answer), re.DOTALL), str(answer)


def test_not_chosen_yet_not_there_and_nothing_said_are_three_answers() -> None:
    provider, _ = choosing(lambda seq: {"n0": [], "n1": InstanceNotFound("gone")})
    with world(provider) as w:
        found = asked(w, nodes(3))
        assert found["n0"] == ()
        assert isinstance(found["n1"], InstanceNotFound)
        assert isinstance(found["n2"], AnswerMissing)


@pytest.mark.parametrize(("said", "told"), [((), ""), (("not in this region",), ": not in this region")])
def test_a_provider_that_chooses_none_says_so(said: tuple[str, ...], told: str) -> None:
    def refuse(seq: Sequence[V1Node]) -> Any:
        raise NotImplementedByProvider(*said)

    with world(Provider()) as w:
        assert not w.calls.chooses_pod_cidrs
        assert isinstance(asked(w, nodes(1))["n0"], NotImplementedByProvider)
    with world(choosing(refuse)[0]) as w:
        assert w.calls.chooses_pod_cidrs
        for count in (1, 2):
            error = asked(w, nodes(count))[f"n{count - 1}"]
            assert isinstance(error, NotImplementedByProvider)
            assert str(error) == f"the provider's pod_cidrs is not implemented{told}"
    with world(choosing(dict, max_batch=0)[0]) as w:
        assert isinstance(asked(w, nodes(1))["n0"], InvalidAnswer), "max_batch must be a number of at least 1"
