"""Vendor code ends at the gate: what the exceptions of a provider do costs their own call, within
its deadline, and nobody behind it runs their code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, InstanceNotFound, Interface, LoadBalancer, RetryError, Throttled
from cloudprovider.internal.cleaning import stack_of, text_of
from controllers.cloudcalls import CallFailed, CallOverdue
from controllers.cloudcalls.answers import CallAborted, translate
from tests.unit.cloudcalls.support import Capability, Hang, Provider, Task, World, batch_of, node, service, world

pytestmark = pytest.mark.row("K29")


def raising(error: BaseException) -> Callable[..., Any]:
    def vendor(*args: Any) -> Any:
        raise error

    return vendor


def asked_by(w: World, hang: Hang, task: Task[Any]) -> Any:
    """The answer to a question whose vendor code hangs."""
    w.time_out(hang)
    answers = task.result()
    assert w.calls.call("m", lambda: "others go on", key="other") == "others go on"
    assert not w.calls.health().ok, "health shows the thread that hangs"
    hang.release()
    return answers


@pytest.mark.parametrize("base", [CloudProviderError, InstanceNotFound, Exception])
def test_a_text_that_hangs_makes_the_call_overdue(base: type[Exception]) -> None:
    hang = Hang("late")

    class Hangs(base):  # type: ignore[misc,valid-type]  # the class is a parameter
        def __str__(self) -> str:
            return str(hang())

    v2 = Capability(instance_exists=raising(Hangs()))
    with world(Provider(instances_v2=v2)) as w:
        answers = asked_by(w, hang, Task(lambda: w.fetch_state([node("a")])))
        assert isinstance(answers["a"], CallOverdue)


@pytest.mark.parametrize("field", ["retry_after", "whole_account"])
def test_a_field_that_hangs_stops_no_other_call(field: str) -> None:
    hang = Hang(0.1)

    class Slow(Throttled):
        def __init__(self) -> None:
            Exception.__init__(self, "busy")

        def __getattribute__(self, name: str) -> Any:
            return hang() if name == field else super().__getattribute__(name)

    v2 = Capability(instance_metadata=raising(Slow()))
    with world(Provider(instances_v2=v2)) as w:
        answers = asked_by(w, hang, Task(lambda: w.fetch([node("a")])))
        assert isinstance(answers["a"], CallOverdue)


@pytest.mark.parametrize("base", [CloudProviderError, RetryError, Throttled, ValueError])
@pytest.mark.parametrize("ending", [SystemExit(1), KeyboardInterrupt(), ConnectionError("no")])
def test_code_that_raises_in_an_exception_costs_its_call_only(base: type[Exception], ending: BaseException) -> None:
    class Ends(base):  # type: ignore[misc,valid-type]  # the class is a parameter
        def __init__(self) -> None:
            Exception.__init__(self, "x")

        def __str__(self) -> str:
            raise ending

        def __getattr__(self, name: str) -> Any:
            raise ending

    v2 = Capability(instance_metadata=raising(Ends()), instance_exists=raising(Ends()))
    with world(Provider(instances_v2=v2)) as w:
        for answers in (w.fetch([node("a")]), w.fetch_state([node("a")])):
            assert isinstance(answers["a"], CallFailed | CloudProviderError)
            assert str(answers["a"])
        assert w.calls.parked() == {}
        assert w.calls.in_flight() == 0
        assert w.calls.health().ok


def test_values_of_a_batch_are_made_plain_in_the_vendors_thread() -> None:
    hang = Hang("late")

    class Hangs(CloudProviderError):
        def __str__(self) -> str:
            return str(hang())

    with world(Provider(instances_batch=batch_of(lambda seq: {"a": Hangs()}))) as w:
        answers = asked_by(w, hang, Task(lambda: w.fetch([node("a")])))
        assert isinstance(answers["a"], CallOverdue)


def test_whoever_waits_is_told_even_if_a_fault_of_ours_comes_between(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("a metric cannot be counted")

    with world(Provider(), concurrency=1) as w:
        monkeypatch.setattr(w.calls._pool, "_on_end", fails)
        hang = Hang("first")
        first = Task(lambda: w.calls.call("m", hang, key="a"))
        hang.wait_entered()
        second = Task(lambda: w.calls.call("m", lambda: "second", key="b"))
        w.wait_queued(1)
        hang.release()
        assert (first.result(), second.result()) == ("first", "second"), "the thread went on"
        overdue = Hang()
        third = Task(lambda: w.calls.call("m", overdue, key="c"))
        w.time_out(overdue)
        with pytest.raises(CallOverdue):
            third.result()
        overdue.release()
        assert w.calls.call("m", lambda: "and the timer goes on", key="a")


def test_what_leaves_the_gate_holds_plain_text_and_plain_numbers() -> None:
    class Number(float):
        pass

    class Text(str):
        __slots__ = ()

    class Busy(Throttled):
        def __str__(self) -> str:
            return Text("our own words")

    error = Busy(Text("x"))
    error.retry_after = Number(3)
    made = translate(error, "m")
    assert type(made) is Throttled
    assert made.__cause__ is error
    assert type(made.retry_after) is float
    assert type(str(made)) is str
    assert str(made) == "our own words (retry after 3 s)"
    assert str(translate(Throttled("busy", 3), "m")) == "busy (retry after 3 s)", "the time is said once"


# Where a bug of the provider is


def broken_helper(service: Any) -> Any:
    return service.spec.portz


class Broken(Interface, LoadBalancer):
    """Has a bug one call deep; talks of a secret."""

    def __init__(self, raised: Callable[[Any], Any]) -> None:
        self.raised = raised

    def provider_name(self) -> str:
        return "broken"

    def load_balancer(self) -> LoadBalancer:
        return self

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> None:
        self.raised(service)

    def ensure_load_balancer(self, cluster_name: str, service: V1Service, nodes: Any) -> Any:
        raise RuntimeError("token=hunter2x " + "x" * 2000)

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Any) -> None:
        raise SystemExit(3)

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        raise CloudProviderError("the cloud is down")


def line_of(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno + 1


def test_a_bug_has_file_and_line_in_its_message_and_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    with world(Broken(broken_helper)) as w:
        for name in ("web", "api"):
            with pytest.raises(CallFailed) as caught:
                w.balancers.get("c", service(name))
            place = f"test_vendor_exceptions.py:{line_of(broken_helper)}, in broken_helper"
            assert str(caught.value).endswith(f"has no attribute 'portz' (tests/unit/cloudcalls/{place})")
    told = [record for record in caplog.records if record.exc_info]
    assert len(told) == 1
    text = stack_of(told[0].exc_info[1])  # type: ignore[index,arg-type]
    assert "in get_load_balancer" in text
    assert "in broken_helper" in text


@pytest.mark.row("X5")
def test_the_place_is_kept_behind_a_long_text_and_no_secret_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    with world(Broken(broken_helper)) as w:
        with pytest.raises(CallFailed) as caught:
            w.balancers.ensure("c", service("web"), [])
        assert text_of(caught.value).endswith(", in ensure_load_balancer)")
        with pytest.raises(CallAborted, match=r"raised SystemExit: 3 \(.*, in update_load_balancer\)"):
            w.balancers.update("c", service("web"), [])
    shown = [stack_of(record.exc_info[1]) for record in caplog.records if record.exc_info and record.exc_info[1]]
    assert len(shown) == 2
    assert "hunter2x" not in "".join((*shown, str(caught.value)))


def test_what_the_contract_knows_has_no_place(caplog: pytest.LogCaptureFixture) -> None:
    with world(Broken(broken_helper)) as w, pytest.raises(CloudProviderError) as caught:
        w.balancers.ensure_deleted("c", service("web"))
    assert str(caught.value) == "the cloud is down"
    assert not [record for record in caplog.records if record.exc_info]


def test_the_place_in_a_program_is_its_own_and_not_a_library_s(tmp_path: Path) -> None:
    """The class is in the vendor's main.py, and the exception comes from json."""
    program = tmp_path / "prog.py"
    program.write_text(
        "import json\n"
        "from cloudprovider.loading.diagnostics import provider_place\n"
        "def load(): return json.loads('{')\n"
        "try:\n    load()\n"
        "except ValueError as error:\n    print(provider_place(error))\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "prog.py:3, in load\n"
