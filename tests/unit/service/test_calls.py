"""Writes to one Service, and the API server's word where the cache is no proof."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.runtime.api import Conflict, Invalid, NotFound, ServerError
from controllers.runtime.cache import version_of
from controllers.runtime.write import Patch
from controllers.service import changes
from controllers.service.calls import CacheBehind, ServiceGone
from controllers.service.targets import targets
from tests.support.controllers import Fault
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, excluded, node, raw_node, raw_service, service

KEY = "default/web"
NOTHING = targets([], False)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.server.put(raw_service())
    return bench


def _finalizer() -> Patch:
    return changes.claim_patch(service(), keep_note=True)


def test_a_write_goes_out_with_the_uid_and_brings_the_fresh_object(bench: Bench) -> None:
    bench.server.edit(KEY, lambda raw: raw["spec"].update(loadBalancerIP="192.0.2.7"))
    written = bench.api.write(KEY, service(), _finalizer())
    ((path, body),) = bench.server.patches
    assert path == "web"
    assert body == {"metadata": {"finalizers": [FINALIZER], "uid": "uid-web"}}
    assert written.spec is not None
    assert written.spec.load_balancer_ip == "192.0.2.7"
    assert version_of(written) == str(bench.server.version)


def test_an_empty_cache_is_believed_after_the_api_server_agrees(bench: Bench) -> None:
    some, shown = targets([node()], False), service()
    assert bench.api.write(KEY, shown, Patch()) is shown
    assert bench.api.confirmed(some, may_be_empty=False) is some
    assert bench.api.confirmed(NOTHING, may_be_empty=True) is NOTHING
    assert bench.server.patches == bench.server.gets == [], "nothing to write, nothing to lose: nobody is asked"
    bench.server.put(excluded("n1"))
    assert bench.api.confirmed(NOTHING, may_be_empty=False) is NOTHING
    assert bench.server.gets == [("/api/v1/nodes", {"limit": "500"})], "no resourceVersion: a quorum read"


def test_a_service_that_is_gone_or_another_says_so(bench: Bench) -> None:
    with pytest.raises(ServiceGone):
        bench.api.write(KEY, service(uid="former"), _finalizer())
    assert bench.server.services[KEY]["metadata"]["finalizers"] == []
    bench.server.delete(KEY)
    with pytest.raises(ServiceGone):
        bench.api.write(KEY, service(), _finalizer())


@pytest.mark.parametrize(
    "error",
    [
        NotFound("page not found", status=404),
        Conflict("busy", status=409),
        Invalid("no", status=422, details={"causes": [{"field": "spec"}]}),
        ServerError("down", status=503),
    ],
)
def test_no_other_refusal_does(bench: Bench, error: Exception) -> None:
    bench.server.faults.append(Fault(error))
    with pytest.raises(type(error)):
        bench.api.write(KEY, service(), _finalizer())


# ---- proof


def test_a_service_is_gone_when_a_quorum_read_lacks_its_uid_and_a_read_that_fails_proves_nothing(bench: Bench) -> None:
    bench.server.put(raw_service("other", uid="former"))
    bench.api.prove_gone(KEY, "former")
    [(path, query)] = bench.server.gets
    assert path == "/api/v1/namespaces/default/services"
    assert query == {"fieldSelector": "metadata.name=web", "limit": "500"}, "no resourceVersion: a quorum read"
    with pytest.raises(CacheBehind, match="uid-web"):
        bench.api.prove_gone(KEY, "uid-web")
    bench.server.faults.append(Fault(ServerError("down", status=500)))
    with pytest.raises(ServerError):
        bench.api.prove_gone(KEY, "former")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        "maintenance",
        {"kind": "Status", "status": "Success", "metadata": {}},
        {"kind": "ServiceList", "metadata": {"resourceVersion": "7"}},
        {"kind": "ServiceList", "metadata": {}, "items": []},
        {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []},
        {"metadata": {"resourceVersion": "7"}, "items": [[]]},
        {"metadata": {"resourceVersion": "7"}, "items": [None]},
    ],
)
def test_nor_does_an_answer_that_is_no_list(bench: Bench, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway before the API server may answer 200 to everything while it is being repaired."""
    monkeypatch.setattr(bench.server, "get", lambda path, *, query=None, timeout=None: answer)
    for asked in (
        lambda: bench.api.prove_gone(KEY, "uid-web"),
        lambda: bench.api.newest(KEY, service()),
        lambda: bench.api.confirmed(NOTHING, may_be_empty=False),
    ):
        with pytest.raises(ServerError, match=r"is no (Service|Node)List"):
            asked()


@pytest.mark.parametrize(
    ("node", "ready_only", "told"),
    [
        (raw_node("n1"), False, "has 1"),
        ({**excluded("n1"), "spec": "broken"}, False, "unreadable"),
        (raw_node("n1", ready="False"), True, "has 1"),
    ],
    ids=["it has a target", "a node that cannot be read may be one", "should none be ready, all are targets"],
)
def test_but_not_while_it_may_have_targets(node: dict[str, Any], ready_only: bool, told: str) -> None:
    bench = Bench(ready_only=ready_only)
    bench.server.put(node)
    with pytest.raises(CacheBehind, match=told):
        bench.api.confirmed(NOTHING, may_be_empty=False)


def test_the_proof_lasts_ten_seconds_and_a_refutation_none(bench: Bench) -> None:
    bench.server.put(raw_node("n1"))
    for _ in range(2):
        with pytest.raises(CacheBehind):
            bench.api.confirmed(NOTHING, may_be_empty=False)
    bench.server.delete("n1")
    bench.server.gets.clear()
    bench.api.confirmed(NOTHING, may_be_empty=False)
    bench.server.put(raw_node("n1"))
    bench.clock.advance(9.5)
    bench.api.confirmed(NOTHING, may_be_empty=False)
    assert len(bench.server.gets) == 1
    bench.clock.advance(0.5)
    with pytest.raises(CacheBehind):
        bench.api.confirmed(NOTHING, may_be_empty=False)
