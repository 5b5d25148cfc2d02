"""What providers answer: good answers pass unchanged, junk is named in full and costs its key."""

import collections
import contextlib
import enum
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_object_meta import V1ObjectMeta

from cloudprovider import InstanceMetadata, InstanceNotFound, InstanceState, Route, Throttled, Zone
from cloudprovider.checks import answers
from controllers.cloudcalls.answers import AnswerMissing, BatchAnswer, CallFailed, InvalidAnswer, by_name, judge

PREFIXES = ("test://", "aws:///")


class Size(str, enum.Enum):  # noqa: UP042 - as vendors write it: its str() is not its value
    LARGE = "m5.large"


def check(answer: object, own: str = "", prefixes: tuple[str, ...] = PREFIXES) -> InstanceMetadata:
    return judge(partial(answers.metadata, own=own, prefixes=prefixes), "instance_metadata", answer)


def address(kind: str, value: str) -> V1NodeAddress:
    return V1NodeAddress(type=kind, address=value)


def good(**changes: Any) -> InstanceMetadata:
    base = InstanceMetadata(
        provider_id="test://i-1",
        instance_type="m5.large",
        node_addresses=(
            address("InternalIP", "10.0.0.1"),
            address("InternalIP", "2001:db8::1"),
            address("ExternalIP", "1.2.3.4"),
            address("Hostname", "n1"),
            address("InternalDNS", "ip-10-0-0-1.eu_west.Internal."),
            address("ExternalDNS", "ec2.example.com"),
        ),
        zone="eu-west-1a",
        region="eu-west-1",
        additional_labels={"example.com/rack": "r1", "plain": ""},
    )
    return attrs.evolve(base, **changes)


def test_a_good_answer_passes_as_a_copy() -> None:
    answer = good()
    passed = check(answer)
    assert passed == answer
    answer.node_addresses[0].address = "changed later"
    assert passed.node_addresses[0].address == "10.0.0.1"
    assert passed.additional_labels is not answer.additional_labels


@pytest.mark.row("N8")
@pytest.mark.parametrize("junk", [None, "text", 5, {"provider_id": "test://x"}, [], object(), InstanceMetadata])
def test_other_types_are_refused(junk: object) -> None:
    with pytest.raises(InvalidAnswer, match="not InstanceMetadata"):
        check(junk)


@pytest.mark.row("N8")
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"provider_id": "other://i-1"}, "does not begin with 'test://' or 'aws:///'"),
        ({"provider_id": "i-1"}, "does not begin with"),
        ({"provider_id": "test://"}, "names no instance"),
        ({"provider_id": "aws:////"}, "names no instance"),
        ({"provider_id": "test://i 1"}, "blanks"),
        ({"provider_id": "test://i "}, "blanks"),
        ({"provider_id": "test://i\n"}, "blanks"),
        ({"provider_id": ""}, "no provider_id, and neither"),
        ({"instance_type": "m5 large"}, "instance_type: the value 'm5 large'"),
        ({"zone": "-a"}, "zone: the value '-a'"),
        ({"zone": "z" * 64}, "zone: the value"),
        ({"region": "ü"}, "region: the value"),
        ({"node_addresses": [address("InternalIP", "300.0.0.1")]}, "'300.0.0.1' is no IP address"),
        ({"node_addresses": [address("ExternalIP", "host.example")]}, "is no IP address"),
        ({"node_addresses": [address("InternalIP", "fe80::1%eth0")]}, "is no IP address"),
        ({"node_addresses": [address("InternalIP", "")]}, "is empty"),
        ({"node_addresses": [address("Internal", "10.0.0.1")]}, "unknown address type 'Internal'"),
        ({"node_addresses": [address("Hostname", "a..b")]}, "'a..b' is no host name"),
        ({"node_addresses": [address("InternalDNS", "a b")]}, "is no host name"),
        ({"node_addresses": [address("ExternalDNS", "-x.example")]}, "is no host name"),
        ({"node_addresses": [address("Hostname", "x" * 64)]}, "is no host name"),
        ({"node_addresses": [address("Hostname", ".".join(["x" * 60] * 5))]}, "is no host name"),
        ({"node_addresses": [V1NodeAddress.model_construct(type=1, address=None)]}, "has int as type and NoneType"),
        ({"additional_labels": {"bad key": "x"}}, "bad key"),
        ({"additional_labels": {"k": "bad value"}}, "bad value"),
    ],
)  # fmt: skip
def test_junk_is_named(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidAnswer, match=re.escape(problem)) as caught:
        check(good(**changes))
    assert len(caught.value.problems) == 1


@pytest.mark.row("N8")
def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InvalidAnswer) as caught:
        check(
            good(
                provider_id="x",
                zone="-",
                region="r r",
                node_addresses=[address("InternalIP", "x"), address("?", "10.0.0.1"), address("Hostname", "a b")],
                additional_labels={"-": "-", "ok": "ok"},
            )
        )
    assert len(caught.value.problems) == 8
    for part in ("provider_id", "zone", "region", "'x'", "'?'", "'a b'", "'-'"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "own", "prefixes", "passed"),
    [
        ("", "test://own", PREFIXES, "test://own"),
        ("test://own", "test://own", PREFIXES, "test://own"),
        ("legacy-form", "legacy-form", PREFIXES, "legacy-form"),  # the node carries it already
        ("legacy-form", "test://1", PREFIXES, None),
        # a provider without provider IDs
        ("", "", (), ""),
        ("test://1", "", (), None),  # its nodes would count as another cloud's, for ever
    ],
)
def test_which_provider_ids_stand(answer: str, own: str, prefixes: tuple[str, ...], passed: str | None) -> None:
    if passed is None:
        with pytest.raises(InvalidAnswer):
            check(good(provider_id=answer), own, prefixes)
    else:
        assert check(good(provider_id=answer), own, prefixes).provider_id == passed


@given(
    st.builds(
        InstanceMetadata,
        provider_id=st.text(max_size=8) | st.just("test://1"),
        instance_type=st.text(max_size=8),
        node_addresses=st.lists(
            st.builds(V1NodeAddress, type=st.text(max_size=5), address=st.text(max_size=9)),
            max_size=3,
        ),
        zone=st.text(max_size=70),
        region=st.text(max_size=3),
        additional_labels=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    )
)
def test_any_content_passes_or_is_an_invalid_answer(answer: InstanceMetadata) -> None:
    with contextlib.suppress(InvalidAnswer):
        assert check(answer).provider_id


async def asyncio_style() -> bool:
    return True


def test_a_coroutine_is_refused_without_a_warning_later_and_a_generator_did_nothing() -> None:
    with pytest.raises(InvalidAnswer, match="not async"):
        judge(answers.flag, "instance_exists", asyncio_style())
    with pytest.raises(InvalidAnswer, match="not async"):
        judge(answers.nothing, "ensure_load_balancer_deleted", asyncio_style())
    with pytest.raises(InvalidAnswer):
        judge(answers.nothing, "m", (n for n in range(3)))


def status(*points: dict[str, Any]) -> V1LoadBalancerStatus:
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(**p) for p in points])


ROUTES_CHECK = partial(answers.routes, prefixes=("acme://",))
ODD = Route("", "", "not-a-cidr", owned=False)  # as other programs make them
ROUTES = (
    Route("a", "n1", "10.244.1.0/24"),
    Route("b", "n2", "fd00:10:244::/64", owned=True, target_provider_id="acme://2"),
)
ADDRESSES = (address("InternalIP", "1.1.1.1"),)
TWO_POINTS = status({"ip": "1.2.3.4"}, {"hostname": "a.b"})
SPOILT = [V1LoadBalancerStatus.model_construct(ingress=points) for points in ("1.2.3.4", ["1.2.3.4"])]


@pytest.mark.row("R10")
@pytest.mark.parametrize(
    ("check", "answer", "passed"),
    [
        (answers.flag, False, False),
        (answers.flag, True, True),
        (answers.state, InstanceState.GONE, InstanceState.GONE),
        (answers.zone, Zone("a", "b"), Zone("a", "b")),
        (answers.text, "x", "x"),
        (answers.texts, ["a", "b"], ("a", "b")),
        (answers.texts, [], ()),
        (answers.label_text, "", ""),
        (answers.label_text, Size.LARGE, "m5.large"),
        (answers.labels, {"a.b/c": "d"}, {"a.b/c": "d"}),
        (answers.addresses, list(ADDRESSES), ADDRESSES),
        (answers.load_balancer_status, V1LoadBalancerStatus(), V1LoadBalancerStatus()),
        (answers.load_balancer_status, status(), status()),
        (answers.load_balancer_status, status({"ip": "1.2.3.4"}, {"hostname": "a.b"}), TWO_POINTS),
        (ROUTES_CHECK, [ODD], (ODD,)),
        (ROUTES_CHECK, iter([ODD]), (ODD,)),
        (ROUTES_CHECK, list(ROUTES), ROUTES),
        (answers.nothing, {"status": "deleted"}, None),
    ],
)
def test_right_answers(check: Any, answer: object, passed: object) -> None:
    found = judge(check, "m", answer)
    assert (type(found), found) == (type(passed), passed)


@pytest.mark.row("N8", "R10")
@pytest.mark.parametrize(
    ("check", "problem", "junk"),
    [
        (check, problem, one)
        for check, problem, junk in (
            (answers.flag, None, [0, 1, "", "true", [], object()]),
            (answers.flag, "return statement", [None]),
            (answers.state, None, ["gone"]),
            (answers.zone, r"failure_domain.*region", [Zone("a b", "-")]),
            (answers.zone, None, [("a", "b")]),
            (answers.text, None, ["", "  ", None, b"x", 5]),
            (answers.texts, None, ["ab", {"a": 1}, [""], [None], 5]),
            (answers.label_text, None, ["a/b"]),
            (answers.labels, None, [None, [("a", "b")], {"a": None}, {"/": "b"}]),
            (answers.addresses, "not a sequence", [None, "1.1.1.1", {"InternalIP": "1.1.1.1"}, 7]),
            (answers.load_balancer_status, None, [None, {"ingress": []}, *SPOILT]),
            (ROUTES_CHECK, None, [None, "x", [None], [ODD, "x"], {"a": ODD}]),
        )
        for one in junk
    ],
)
def test_junk_is_refused(check: Any, problem: str | None, junk: object) -> None:
    with pytest.raises(InvalidAnswer, match=problem):
        judge(check, "m", junk)


def test_a_status_is_copied_and_all_its_problems_are_named() -> None:
    fine = status({"ip": "1.2.3.4"})
    assert judge(answers.load_balancer_status, "m", fine) is not fine
    with pytest.raises(InvalidAnswer) as caught:
        judge(answers.load_balancer_status, "ensure_load_balancer", status({}, {"ip": "nope"}, {"hostname": "a b"}))
    assert len(caught.value.problems) == 3


@pytest.mark.row("R10")
def test_all_wrong_routes_are_named() -> None:
    wrong = [*ROUTES, Route("c", "n3", "10.244.2.0"), Route("d", "", "", owned=True), Route("e", "n5", "10.244.5.1/24")]
    with pytest.raises(InvalidAnswer) as caught:
        judge(ROUTES_CHECK, "list_routes", wrong)
    what = "the destination_cidr"
    assert caught.value.problems == (
        f"item 2, the route 'c' to node 'n3': {what} '10.244.2.0' has no prefix length, as in 10.244.1.0/24",
        f"item 3, the route 'd' to node '': {what} '' is not an IP range, such as 10.244.1.0/24",
        f"item 4, the route 'e' to node 'n5': {what} '10.244.5.1/24' has host bits: write 10.244.5.0/24",
    )


# ---- batches


def state_of(node: V1Node, value: object) -> InstanceState:
    return answers.state(value)


def take(answer: object, names: list[str]) -> BatchAnswer[InstanceState]:
    nodes = {name: V1Node(metadata=V1ObjectMeta(name=name)) for name in names}
    return by_name(nodes, state_of, "instances_state", answer)


def test_not_found_is_an_answer_and_throttling_is_noticed() -> None:
    assert take({"a": InstanceNotFound()}, ["a"]).complete
    slow = Throttled("x", 1)
    throttled = take({"a": InstanceState.GONE, "b": slow}, ["a", "b"]).throttled
    assert throttled is not None
    assert throttled.retry_after == 1


def test_a_default_of_the_mapping_is_no_answer_and_one_keyed_by_provider_id_is_explained() -> None:
    answer: Mapping[str, Any] = collections.defaultdict(lambda: InstanceState.GONE, {"a": InstanceState.RUNNING})
    found = take(answer, ["a", "b"])
    assert isinstance(found.values["b"], AnswerMissing), "a node must not be gone because of a defaultdict"
    assert "keyed by node name" in str(take({"test://1": InstanceState.GONE}, ["a"]).values["a"])


def test_a_mapping_whose_code_raises_costs_that_name() -> None:
    class Lazy(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            if key == "b":
                raise OSError("page 2 failed")
            return InstanceState.RUNNING

        def __iter__(self) -> Iterator[str]:
            return iter("ab")

        def __len__(self) -> int:
            return 2

    found = take(Lazy(), ["a", "b"])
    assert found.values["a"] is InstanceState.RUNNING
    assert isinstance(found.values["b"], CallFailed)
