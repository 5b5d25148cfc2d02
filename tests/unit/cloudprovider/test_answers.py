"""One judge of answers: the gateway, `check --node`, `node-info` and the conformance suite say the
same of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from attrs import evolve
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_object_meta import V1ObjectMeta
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import InstanceMetadata, OwnedLoadBalancer, OwnedResource, Route, Taint
from cloudprovider.checks import answers
from cloudprovider.commands.asking import UnusableAnswer
from cloudprovider.commands.forecast import new_node
from cloudprovider.commands.nodeinfo import _metadata as as_node_info
from cloudprovider.commands.questions import questions_about, questions_for
from cloudprovider.internal.problem import Problem
from cloudprovider.testing.apiserver.kinds.services import _ingress
from controllers.cloudcalls.answers import InvalidAnswer
from controllers.cloudcalls.call import PRIORITY_NORMAL, CloudCall
from controllers.cloudcalls.capabilities import LoadBalancerCalls, RouteCalls
from controllers.cloudcalls.nodes import ask_metadata
from controllers.cloudcalls.pool import CallPool
from tests.unit.conformance.careless import GOOD, said_by

PREFIXES = ("acme://",)
METADATA = """InstanceMetadata(f"acme://{self.find(node)}", "small", [address], "zone-1", "region-1")"""
STATUS = """V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip="192.0.2.1")])"""
ADDRESS = "InstanceMetadata('acme://1', node_addresses=[V1NodeAddress(type={!r}, address={!r})])"
POINT = "V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress({})])"
NAMES: dict[str, Any] = {"__name__": "careless"}
exec(compile(GOOD, "careless.py", "exec"), NAMES)


class Provider:
    """Answers one thing to every question."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._answer

    def provider_id_prefixes(self) -> tuple[str, ...]:
        return PREFIXES


class Direct:
    """A gateway that calls at once, and judges."""

    def call(self, ask: CloudCall[Any]) -> Any:
        return ask.check(ask.fn(*ask.args))


def problems_of(check: Callable[..., object], answer: object, **facts: Any) -> tuple[str, ...]:
    """What a check says against an answer; () for a right one."""
    try:
        check(answer, **facts)
    except answers.WrongAnswer as wrong:
        return wrong.problems
    return ()


def invalid(call: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidAnswer) as caught:
        call()
    return caught.value.problems


def told(problem: str | Problem) -> tuple[str, ...]:
    assert isinstance(problem, Problem), problem
    return problem.details or (problem.what.partition("gave a wrong answer: ")[2],)


@pytest.mark.parametrize(
    "wrong",
    [
        "None",
        "{'provider_id': 'acme://1'}",
        "InstanceMetadata('i-1', node_addresses=[address])",
        "InstanceMetadata('acme://', node_addresses=[address])",
        "InstanceMetadata('acme://a b', node_addresses=[address])",
        "InstanceMetadata('acme://1\\u200b', node_addresses=[address])",
        "InstanceMetadata('', node_addresses=[address])",
        "InstanceMetadata('acme://1', 'm5 large', [address], 'Zone 1 (Berlin)', '-')",
        "InstanceMetadata('acme://1', node_addresses=[address], additional_labels={'bad key': 'bad value'})",
        "InstanceMetadata('acme://1', node_addresses=[address], taints=[Taint('bad key', 'NoSchedule')])",
        "InstanceMetadata('acme://1', node_addresses=[address], taints=[Taint('gpu', 'NoSchedule', 'a b')])",
        "InstanceMetadata('acme://1', node_addresses=[address], taints=[Taint('gpu', 'noschedule')])",
        "InstanceMetadata('acme://1', node_addresses=[address], taints=[Taint('gpu', 'NoExecute', v) for v in 'ab'])",
        "InstanceMetadata('acme://1', node_addresses=[address], annotations={'bad key': 'any value'})",
        "InstanceMetadata('acme://1', node_addresses=[address], annotations={'key': chr(0xd800)})",
        "InstanceMetadata('acme://1', node_addresses=[address], annotations={'key': 'x' * 33000})",
        ADDRESS.format("InternalIp", "10.0.0.1"),
        ADDRESS.format("InternalIP", "300.0.0.1"),
        ADDRESS.format("Hostname", "bad host"),
        ADDRESS.format("ExternalDNS", "-x.example"),
        ADDRESS.format("InternalIP", ""),
    ],
)
def test_metadata(wrong: str) -> None:
    address = NAMES["V1NodeAddress"](type="InternalIP", address="10.0.0.1")
    answer = eval(wrong, {**NAMES, "address": address})
    node = V1Node(metadata=V1ObjectMeta(name="n", uid="u"))
    expected = problems_of(answers.metadata, answer, prefixes=PREFIXES)
    assert expected
    check = lambda node, said: answers.metadata(said, prefixes=PREFIXES)  # noqa: E731 - named once
    ask = ask_metadata(cast(Any, Provider(answer)), node, PRIORITY_NORMAL, check)
    assert invalid(lambda: ask.call.check(answer)) == expected
    with pytest.raises(UnusableAnswer, match="cannot be used") as unusable:
        as_node_info(answer, cast(Any, Provider(None)))
    assert str(unusable.value).endswith("; ".join(expected))
    asked = list(questions_about(new_node("n"), {"instances_v2": Provider(answer)}, PREFIXES, "acme"))
    assert told(next(one for one in asked if one.call.startswith("instance_metadata")).judged(answer)[0]) == expected
    assert of_a_batch(answer) == expected
    for scenario in ("I2", "B2"):
        said = said_by(GOOD.replace(METADATA, wrong), scenario)
        assert all(problem in said for problem in expected), said


@pytest.mark.row("N35")
def test_an_answer_is_usable_without_its_faulty_fields() -> None:
    address, bad = (V1NodeAddress(type="InternalIP", address=text) for text in ("10.0.0.1", "300.0.0.1"))
    good = InstanceMetadata("acme://1", "m5", [address], "z1", "r1", {"rack": "r7"})

    def usable(answer: InstanceMetadata, own: str = "") -> InstanceMetadata | None:
        with pytest.raises(answers.WrongAnswer) as wrong:
            answers.metadata(answer, prefixes=PREFIXES, own=own)
        return wrong.value.usable

    for faulty, empty in (
        ({"instance_type": "m5 large"}, {"instance_type": ""}),
        ({"zone": "Default Group"}, {"zone": ""}),
        ({"region": "-", "zone": "a b"}, {"region": "", "zone": ""}),
        ({"node_addresses": [address, bad]}, {"node_addresses": ()}),
        ({"additional_labels": {"rack": "r7", "row": "a b"}}, {"additional_labels": {}}),
        ({"taints": [Taint("gpu", "NoSchedule"), Taint("gpu", "Never")]}, {"taints": ()}),
        ({"annotations": {"a b": ""}}, {"annotations": {}}),
    ):
        assert usable(evolve(good, **faulty)) == evolve(good, **empty)
    assert usable(InstanceMetadata(zone="a b"), own="acme://1") == InstanceMetadata("acme://1")
    assert usable(evolve(good, provider_id="other://1")) is None, "it may be about another instance"


def of_a_batch(answer: object) -> tuple[str, ...]:
    """What a batch with this value is said to be."""

    class Batch:
        def instances_state(self, nodes: object) -> object:
            return {}

        def instances_metadata(self, nodes: object) -> object:
            return {"n": answer}

    _, metadata = questions_about(new_node("n"), {"instances_batch": Batch()}, PREFIXES, "acme")
    return told(metadata.judged(metadata.ask())[0])


@pytest.mark.parametrize(
    "wrong",
    ["{}", POINT.format("ip='192.0.2.300'"), POINT.format("hostname='bad host'"), POINT.format("")],
)
def test_load_balancer_status(wrong: str) -> None:
    answer = eval(wrong, NAMES)
    expected = problems_of(answers.load_balancer_status, answer)
    assert expected
    calls = LoadBalancerCalls(cast(CallPool, Direct()), Provider(answer))
    assert invalid(lambda: calls.get("c", V1Service(metadata=V1ObjectMeta(name="s", namespace="d")))) == expected
    question = next(one for one in questions_for({"load_balancer": Provider(answer)}, PREFIXES) if "63" not in one.call)
    assert told(question.judged(answer)[0]) == expected
    said = said_by(GOOD.replace(STATUS, wrong), "L2")
    assert all(problem in said for problem in expected) or "ensure_load_balancer returned" in said


@pytest.mark.parametrize(
    "point",
    [
        {"hostname": "lb-1.example.com"},
        {"hostname": "Lb-1.example.com"},
        {"hostname": "lb_1.example.com"},
        {"hostname": "lb-1.example.com."},
        {"hostname": "192.0.2.1"},
        {"hostname": "a" * 254},
        {"hostname": "lb", "ipMode": "VIP"},
        {"ip": "192.0.2.1", "ipMode": "VIP"},
        {"ip": "192.0.2.1", "ipMode": "Proxy", "hostname": "lb"},
        {"ip": "192.0.2.1", "ipMode": "proxy"},
    ],
    ids=str,
)
def test_what_the_api_server_refuses_in_a_status_is_refused_before(point: dict[str, str]) -> None:
    there = V1LoadBalancerIngress(ip=point.get("ip"), hostname=point.get("hostname"), ip_mode=point.get("ipMode"))
    ours = problems_of(answers.load_balancer_status, V1LoadBalancerStatus(ingress=[there]))
    assert bool(ours) is bool(_ingress(point, "status.loadBalancer.ingress[0]", set()))


@pytest.mark.parametrize("wrong", ["", " ", "a/b", "a b", "x" * 256, "-a", None, 5, "ä"])
def test_load_balancer_name(wrong: Any) -> None:
    expected = problems_of(answers.load_balancer_name, wrong)
    assert expected
    calls = LoadBalancerCalls(cast(CallPool, Direct()), Provider(wrong))
    assert invalid(lambda: calls.name("c", V1Service(metadata=V1ObjectMeta(name="s", namespace="d")))) == expected
    question = next(one for one in questions_for({"load_balancer": Provider(wrong)}, PREFIXES) if "63" in one.call)
    assert told(question.judged(wrong)[0]) == expected
    named = f"    def get_load_balancer_name(self, cluster_name, service):\n        return {wrong!r}\n\n"
    method = f"{named}    def status(self):"
    said = said_by(GOOD.replace("    def status(self):", method), "L4")
    assert all(problem in said for problem in expected), said


def test_names_that_clouds_give_are_right() -> None:
    for name in ("a" + "0" * 31, "kube_service_kubernetes_default_web", "net/lb"[:3], "x" * 255, "_a", "arn:aws:1"):
        assert answers.load_balancer_name(name) == name


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "10.0.0.0/24",
        {"a": Route("a", "n", "10.0.0.0/24")},
        ["10.0.0.0/24"],
        [None],
        [Route("a", "", "10.0.0.0/24", target_provider_id="i-1")],
    ],
)
def test_routes(wrong: object) -> None:
    expected = problems_of(answers.routes, wrong, prefixes=PREFIXES)
    assert expected
    assert (
        invalid(lambda: RouteCalls(cast(CallPool, Direct()), Provider(wrong), lambda: PREFIXES).list("c")) == expected
    )
    [question] = questions_for({"routes": Provider(wrong)}, PREFIXES)
    assert told(question.judged(wrong)[0]) == expected


def test_owned_load_balancers_and_texts() -> None:
    nobodys = OwnedLoadBalancer("a", "")
    assert problems_of(answers.owned_load_balancers, [nobodys]) == (
        "item 0 lacks its name, or both service and service_uid",
    )
    assert answers.owned_load_balancers([OwnedLoadBalancer("a", "d/s")]) == (OwnedLoadBalancer("a", "d/s"),)
    assert problems_of(answers.texts, ["a", " "]) == ("item 1 is ' ', not a text",)


def test_owned_resources_are_told_apart() -> None:
    one = OwnedResource("group", "sg-1")
    assert answers.owned_resources([one, OwnedResource("address", "sg-1")]) == (one, OwnedResource("address", "sg-1"))
    assert problems_of(answers.owned_resources, [one, one, OwnedResource("", "x"), None]) == (
        "item 1 is the group 'sg-1' once more",
        "item 2 lacks its kind or its id",
        "item 3 is None, not OwnedResource",
    )


def test_strictness_is_for_authors() -> None:
    poor = InstanceMetadata(
        "acme://1",
        additional_labels={"kubernetes.io/x": "y"},
        taints=[Taint("node.kubernetes.io/unreachable", "NoExecute")],
        annotations={"kubernetes-cloud-provider/applied-labels": "{}"},
    )
    assert not problems_of(answers.metadata, poor, prefixes=PREFIXES)
    assert problems_of(answers.metadata, poor, prefixes=PREFIXES, strict=True) == (
        "there is no address at all",
        "additional_labels: 'kubernetes.io/x' is reserved for Kubernetes, and not written",
        "taints: 'node.kubernetes.io/unreachable' is reserved for Kubernetes, and not written",
        "annotations: 'kubernetes-cloud-provider/applied-labels' is reserved for Kubernetes, and not written",
    )
