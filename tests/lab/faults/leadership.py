"""Faults of leadership, F11 to F16: two managers, and the one that leads is struck."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from cloudprovider.testing.fake import Action, Strike, hangs
from cloudprovider.testing.waiting import eventually
from tests.lab.faults.field import Field
from tests.lab.faults.launch import set_clock
from tests.lab.faults.networks import Before, Hanging, is_lease
from tests.support.services import SERVICES, lb_service

_LONG: Final = 600.0


@contextmanager
def renewal_hangs(field: Field) -> Iterator[None]:
    """Until another one leads; then what hung goes through."""
    leader = field.leader_and_standby()
    of_leader = field.of(leader)
    network = Hanging(lambda asked: asked.writing and is_lease(asked) and of_leader(asked), done_late=True)
    with field.network(network, "writes of the Lease held back"):
        field.await_other(leader)
        yield
        network.release()


@contextmanager
def lost_in_a_call(field: Field) -> Iterator[None]:
    leader = field.leader_and_standby()
    of_leader = field.of(leader)
    with field.cloud_fault("ensure_load_balancer", _hangs_for(leader.name)):
        field.serve("slow")
        field.await_call("ensure_load_balancer", "default/slow")
        network = Hanging(lambda asked: asked.writing and is_lease(asked) and of_leader(asked))
        with field.network(network, "writes of the Lease held back"):
            field.await_other(leader)
            yield
            network.release()


def _hangs_for(caller: str) -> Action:
    """Only this manager's calls."""
    hang = hangs(_LONG)

    def do(strike: Strike) -> Any:
        return hang(strike) if strike.request.caller.name == caller else strike.proceed()

    return do


@contextmanager
def terminated(field: Field) -> Iterator[None]:
    leader = field.leader_and_standby()
    with field.cloud_fault("ensure_load_balancer", hangs(3.0)):
        field.serve("slow")
        field.await_call("ensure_load_balancer", "default/slow")
        leader.signal(signal.SIGTERM)
        field.await_other(leader)
        yield


@contextmanager
def killed(field: Field) -> Iterator[None]:
    """The process ends between the call that built and the write of the address: the proxy kills it
    before it passes that on."""
    leader = field.leader_and_standby()
    of_leader = field.of(leader)

    def kill(_: object) -> None:
        leader.signal(signal.SIGKILL)
        eventually(lambda: leader.process.poll() is not None, 10)

    network = Before(
        lambda asked: asked.writing and asked.resource == f"{SERVICES}/built/status" and of_leader(asked), kill
    )
    with field.network(network, "write of the address"):
        field.api.create(SERVICES, lb_service("built"))
        eventually(network.came.is_set, 60, field.stage.logs)
        yield


@contextmanager
def clock_off(field: Field) -> Iterator[None]:
    """The leader's clock goes back by an hour, the other's ahead; later they are right again."""
    leader = field.leader_and_standby()
    for one in field.stage.supervisor.running():
        set_clock(one.log_file.parent, -3600.0 if one.name == leader.name else 3600.0)
    terms = len(field.stage.holds())
    yield
    field.check(len(field.stage.holds()) == terms, "the Lease changed hands although both managers were well")
    for one in field.stage.supervisor.running():
        set_clock(one.log_file.parent, 0.0)


@contextmanager
def stopped(field: Field) -> Iterator[None]:
    leader = field.leader_and_standby()
    begun = time.monotonic()
    leader.signal(signal.SIGSTOP)
    field.await_other(leader)
    yield
    time.sleep(max(0.0, begun + field.seconds - time.monotonic()))  # the fault is the time itself
    leader.signal(signal.SIGCONT)
