"""The caches as a provider sees them: also those that it asks for late."""

from __future__ import annotations

import json
import threading

from controllers.manager.permissions import provider_rules
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


def test_endpoint_slices_are_read_and_permitted_only_where_a_provider_asks() -> None:
    slices = {
        "kind": "EndpointSliceList",
        "metadata": {"resourceVersion": "5"},
        "items": [
            {
                "metadata": {
                    "name": f"{service}-1",
                    "namespace": "shop",
                    "resourceVersion": "5",
                    "uid": service,
                    "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "endpoints": [],
            }
            for service in ("web", "api")
        ],
    }
    rest = ScriptedRest(json.dumps(slices).encode())
    informers = InformerFactory(rest_of(rest), metrics=Metrics())
    listers = InformerListers(informers)
    assert provider_rules(informers) == ()
    asked = listers.endpoint_slices
    assert [(rule.group, rule.resource) for rule in provider_rules(informers)] == [
        ("discovery.k8s.io", "endpointslices")
    ]
    assert informers.wait_for_sync(threading.Event(), WAIT)
    assert [one.metadata.name for one in asked.of_service("shop", "web") if one.metadata] == ["web-1"]
    assert asked.get("shop/api-1") is not None
    assert len(asked.list()) == 2
    assert asked.of_service("shop", "none") == []
    assert informers.stop(WAIT)
