"""The caches as a provider sees them: also those that it asks for late."""

from __future__ import annotations

import threading

from controllers.manager.provider_host import InformerListers
from controllers.runtime.cache import InformerFactory
from controllers.runtime.metrics import Metrics
from tests.unit.runtime.cache.informers import WAIT, ScriptedRest, page, raw_node, rest_of


def test_a_kind_that_is_asked_for_when_all_others_run_is_read_too() -> None:
    rest = ScriptedRest(page(5, raw_node("n1", 5)))
    informers = InformerFactory(rest_of(rest), metrics=Metrics())
    listers = InformerListers(informers)  # as `set_informers` says: kept, and nothing else
    informers.start()
    nodes = listers.nodes
    assert informers.wait_for_sync(threading.Event(), WAIT)
    assert nodes.get("n1") is not None
    assert informers.stop(WAIT)
    assert listers.nodes.get("n1") is not None, "a stopped cache stays readable"
