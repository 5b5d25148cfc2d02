"""`current_call().former`: the Service as it was last built, in `ensure` and `delete`. The spec and
annotations of then are those of row S27; what this process does not know is None."""

from __future__ import annotations

from typing import Any

from cloudprovider import CloudProviderError
from cloudprovider.helpers import annotations_of, ports_of
from tests.support.controllers import DELETED_AT
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, raw_service

KEY = "default/web"
SHAPE = "example.com/shape"


def _port(bench: Bench, port: int, **annotations: str) -> None:
    def change(raw: Any) -> None:
        raw["spec"]["ports"][0]["port"] = port
        raw["metadata"]["annotations"].update(annotations)
        raw["metadata"]["labels"] = {"port": str(port)}

    bench.server.edit(KEY, change)


def _delete(bench: Bench) -> None:
    bench.server.edit(KEY, lambda raw: raw["metadata"].update(deletionTimestamp=DELETED_AT))


def _ports(bench: Bench) -> list[int | None]:
    """The port of what each call found as the former Service."""
    return [None if one is None else ports_of(one)[0].port for one in bench.cloud.formers]


def test_the_first_time_nothing_was_built_before(bench: Bench) -> None:
    bench.serve()
    assert _ports(bench) == [None]


def test_a_change_finds_spec_and_annotations_of_then_and_labels_and_status_of_now(bench: Bench) -> None:
    bench.serve(annotations={SHAPE: "small"})
    _port(bench, 81, **{SHAPE: "large"})
    bench.settle()
    former = bench.cloud.formers[-1]
    assert former is not None
    assert former.metadata is not None
    assert (ports_of(former)[0].port, annotations_of(former)[SHAPE]) == (80, "small")
    assert former.metadata.labels == {"port": "81"}
    assert former.status is not None
    assert former.status.load_balancer is not None
    assert former.status.load_balancer.ingress


def test_a_change_that_fails_leaves_what_was_built_before_it(served: Bench) -> None:
    served.cloud.fail["ensure"] = CloudProviderError("no")
    served.cloud.formers.clear()
    _port(served, 81)
    served.settle()
    del served.cloud.fail["ensure"]
    served.settle(rounds=70)
    assert len(_ports(served)) > 2
    assert set(_ports(served)) == {80}
    _port(served, 82)
    served.settle()
    assert _ports(served)[-1] == 81


def test_a_deletion_finds_it_too_each_time_it_is_asked_for(served: Bench) -> None:
    served.cloud.fail = {"ensure": CloudProviderError("no"), "delete": CloudProviderError("no")}
    _port(served, 81)
    served.settle()
    served.cloud.formers.clear()
    _delete(served)
    served.settle()
    served.cloud.fail.clear()
    served.settle(rounds=70)
    assert served.cloud.balancers == {}
    assert set(_ports(served)) == {80}
    assert len(_ports(served)) >= 2


def test_a_new_process_knows_what_its_note_and_the_cloud_agree_about(served: Bench) -> None:
    served.start()
    served.settle()
    served.cloud.formers.clear()
    _port(served, 81)
    served.settle()
    assert _ports(served) == [80]


def test_a_new_process_does_not_know_what_changed_while_nobody_looked(served: Bench) -> None:
    _port(served, 81)
    served.start()
    served.cloud.formers.clear()
    served.settle()
    assert _ports(served) == [None]


def test_another_service_of_the_name_has_none_of_the_former_ones(served: Bench) -> None:
    served.server.put(raw_service(uid="another", port=90, finalizers=[FINALIZER]))
    served.cloud.formers.clear()
    served.settle()
    assert served.cloud.methods() == ["delete", "ensure"]
    assert _ports(served) == [80, None]
