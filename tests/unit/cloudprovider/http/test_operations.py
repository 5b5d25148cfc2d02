"""Operations: waited for within the call's time, then later; a failed one is an error, once. And
marks and names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models import V1ObjectMeta, V1Service

from cloudprovider import Call, CallCancelled, OwnedLoadBalancer, Pending, call_scope
from cloudprovider.http import (
    CloudError,
    Marks,
    NotFoundError,
    Operation,
    Operations,
    as_tags,
    from_tags,
    readable_name,
)
from cloudprovider.testing.conformance import new_service


class Time:
    """The clock of a call: waiting for the end of the call moves it."""

    def __init__(self, left: float) -> None:
        self.now = 0.0
        self.stopped = False
        self.call = Call(deadline=left, cancelled=self, monotonic=lambda: self.now)

    def is_set(self) -> bool:
        return self.stopped

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return self.stopped


class Looks:
    """What the cloud says of an operation, look by look."""

    def __init__(self, *said: Operation | Exception) -> None:
        self.said: Iterator[Operation | Exception] = iter(said)
        self.asked: list[str] = []

    def __call__(self, operation_id: str) -> Operation:
        self.asked.append(operation_id)
        found = next(self.said, Operation(operation_id, done=False))
        if isinstance(found, Exception):
            raise found
        return found


BEGUN, DONE, FAILED = Operation("op-1", False), Operation("op-1", True), Operation("op-1", True, "no address is left")


def test_an_operation_that_ends_within_the_call_is_waited_for() -> None:
    looks, time = Looks(BEGUN, DONE), Time(60)
    operations = Operations(looks)
    with call_scope(time.call):
        operations.begin("web", BEGUN)
        operations.settle("web")
        operations.settle("never heard of")
    assert looks.asked == ["op-1", "op-1"]
    assert 0 < time.now < 1


def test_one_that_takes_longer_is_looked_at_again_in_the_next_call() -> None:
    looks, time = Looks(), Time(60)
    operations = Operations(looks, within=10, again=7)
    with call_scope(time.call), pytest.raises(Pending, match=r"still works on web \(operation op-1\)") as caught:
        operations.begin("web", BEGUN)
    assert caught.value.retry_after == 7
    assert 6 <= time.now <= 10
    looks.said = iter([DONE])
    before = len(looks.asked)
    operations.settle("web")
    operations.settle("web")
    assert len(looks.asked) == before + 1


def test_the_calls_own_end_comes_first_and_a_cancelled_one_is_left_at_once() -> None:
    time = Time(5)
    with call_scope(time.call), pytest.raises(Pending):
        Operations(Looks(), within=100).begin("web", BEGUN)
    assert time.now <= 3
    looks, time = Looks(), Time(60)
    time.stopped = True
    with call_scope(time.call), pytest.raises(CallCancelled):
        Operations(looks).begin("web", BEGUN)
    assert looks.asked == []


def test_a_failed_one_is_told_once_with_the_clouds_words() -> None:
    operations = Operations(Looks(FAILED))
    with pytest.raises(CloudError, match="web: the cloud's operation op-1 failed: no address is left"):
        operations.begin("web", BEGUN)
    operations.settle("web")


def test_one_that_the_cloud_forgot_is_over_and_one_that_cannot_be_read_is_not() -> None:
    Operations(Looks(NotFoundError("404"))).begin("web", BEGUN)
    looks = Looks(CloudError("500"), DONE)
    operations = Operations(looks)
    with pytest.raises(CloudError, match="500"):
        operations.begin("web", BEGUN)
    operations.settle("web")
    assert len(looks.asked) == 2


# marks and names


def test_marks_say_whose_a_resource_is() -> None:
    marks, service = Marks(), new_service("web", "u-1")
    labels = marks.of_service("c", service)
    assert labels == {
        "kubernetes-cluster": "c", "kubernetes-service": "default/web", "kubernetes-service-uid": "u-1"
    }  # fmt: skip
    assert marks.fit({**labels, "more": "x"}, "c", service)
    assert marks.fit(marks.of_cluster("c"), "c")
    assert not marks.fit(labels, "d", service)
    assert not marks.fit(labels, "c", new_service("web", "u-2"))
    assert not marks.fit(marks.of_cluster("c"), "c", service)
    assert not marks.fit({}, "c")
    assert marks.owned("c", "lb", labels) == OwnedLoadBalancer("lb", "default/web", "u-1")
    moved = marks.owned("c", "lb", marks.keeping(labels, "shop"))
    assert moved == OwnedLoadBalancer("lb", "default/web", "u-1", kept=True, kept_for="shop")
    assert marks.owned("c", "lb", marks.keeping(labels)) == OwnedLoadBalancer("lb", "default/web", "u-1", kept=True)
    assert marks.owned("d", "lb", labels) is None
    assert marks.owned("c", "lb", marks.of_cluster("c")) is None
    with pytest.raises(ValueError, match=r"metadata\.uid"):
        marks.fit({"kubernetes-cluster": "c", "kubernetes-service-uid": ""}, "c", new_service("web", ""))


@given(st.dictionaries(st.text(alphabet="abc-./", min_size=1), st.text(alphabet="abc=-/ ")))
def test_tags_are_labels(labels: dict[str, str]) -> None:
    assert from_tags(["a word", *as_tags(labels), *as_tags(labels)]) == labels


@given(
    cluster=st.text(max_size=40), name=st.text(min_size=1, max_size=80), most=st.integers(min_value=20, max_value=80)
)
def test_a_name_for_people(cluster: str, name: str, most: int) -> None:
    def named(uid: str) -> str:
        service = V1Service(metadata=V1ObjectMeta(namespace="shop", name=name, uid=uid))
        return readable_name(cluster, service, most=most)

    found = named("u-1")
    assert found == named("u-1") != named("u-2")
    assert len(found) <= most
    assert found[0].isalpha()
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert "--" not in found


def test_a_name_for_people_is_readable() -> None:
    service = new_service("web", "u-1")
    assert readable_name("Prod 1", service).startswith("k-prod-1-default-web-")
    with pytest.raises(ValueError, match=r"metadata\.uid"):
        readable_name("c", new_service("web", ""))
