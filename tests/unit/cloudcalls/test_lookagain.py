"""`look_again`: what is handed to which controller, what is held, ignored, and refused."""

from __future__ import annotations

import pytest

from cloudprovider import LookAgain as HostsLookAgain
from controllers.cloudcalls.lookagain import LookAgain
from controllers.runtime.metrics import Metrics


class Bench:
    def __init__(self, *, leads: bool = True) -> None:
        self.metrics, self.leads = Metrics(), leads
        self.again = LookAgain(self.metrics, self._guard)
        self.looked: list[str] = []
        self.there = True

    def _guard(self, about: str) -> None:
        if not self.leads:
            raise RuntimeError(f"{about}: another process leads")

    def look(self, key: str) -> bool:
        self.looked.append(key)
        return self.there

    def counted(self, kind: str, outcome: str) -> float:
        line = f'cloudprovider_look_again_total{{kind="{kind}",outcome="{outcome}"}}'
        [found] = [one for one in self.metrics.text().decode().splitlines() if one.startswith(line)]
        return float(found.split()[-1])


def test_each_kind_goes_to_its_controller_by_the_objects_key() -> None:
    bench = Bench()
    nodes: list[str] = []

    def look_at_node(key: str) -> bool:
        nodes.append(key)
        return True

    bench.again.serve("Service", bench.look)
    bench.again.serve("Node", look_at_node)
    bench.again.look_again("Service", "shop", "web")
    bench.again.look_again("Node", "", "n1.example.com")
    assert (bench.looked, nodes) == (["shop/web"], ["n1.example.com"])
    assert (bench.counted("Service", "taken"), bench.counted("Node", "taken")) == (1, 1)


def test_before_the_controller_is_there_it_is_held_once_for_each_object() -> None:
    bench = Bench()
    for name in ("web", "api", "web"):
        bench.again.look_again("Service", "shop", name)
    bench.again.serve("Node", lambda key: pytest.fail(key))
    bench.again.serve("Service", bench.look)
    assert bench.looked == ["shop/web", "shop/api"]
    bench.again.serve("Service", bench.look)
    assert len(bench.looked) == 2


def test_what_is_held_for_a_controller_that_never_comes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controllers.cloudcalls.lookagain._MOST_HELD", 2)
    bench = Bench()
    for name in ("a", "b", "c", "a"):
        bench.again.look_again("Service", "shop", name)
    assert bench.counted("Service", "ignored") == 1
    bench.again.serve("Service", bench.look)
    assert bench.looked == ["shop/a", "shop/b"]


def test_a_process_that_does_not_lead_ignores_it() -> None:
    bench = Bench(leads=False)
    bench.again.look_again("Service", "shop", "web")
    bench.leads = True
    bench.again.serve("Service", bench.look)
    assert bench.looked == []
    assert bench.counted("Service", "ignored") == 1


def test_what_is_not_there_is_ignored_and_said_at_v_4(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.there = False
    bench.again.serve("Service", bench.look)
    with caplog.at_level("DEBUG"):
        bench.again.look_again("Service", "shop", "gone")
    [record] = caplog.records
    assert record.levelname == "DEBUG"
    assert "look at Service shop/gone again, which is ignored" in record.getMessage()
    assert bench.counted("Service", "ignored") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("Secret", "shop", "web"), r"objects of kind 'Secret': Service or Node"),
        (("Service", "", "web"), r"a Service is in a namespace, and '' is no name of one"),
        (("Service", "shop", "shop/web"), r"'shop/web' is no name of a Service"),
        (("Service", "Shop", ""), r"'' is no name of a Service; .* 'Shop' is no name of one"),
        (("Node", "shop", "n1"), r"a Node is in no namespace, so give an empty one, not 'shop'"),
    ],
)
def test_a_mistake_of_the_provider_is_named(given: tuple[str, str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bench().again.look_again(*given)


def test_what_is_no_text_is_named() -> None:
    with pytest.raises(TypeError, match="namespace is None"):
        Bench().again.look_again("Service", None, "web")  # type: ignore[arg-type]


def test_it_is_what_the_contract_says() -> None:
    assert isinstance(Bench().again, HostsLookAgain)
    assert not isinstance(object(), HostsLookAgain)
