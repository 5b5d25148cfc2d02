"""Namespaces: creation, protection, termination by way of finalizers."""

from __future__ import annotations

from tests.integration.parity.model import Scenario, delete, get, merge, post, put
from tests.integration.parity.services import service

NAMESPACES = "/api/v1/namespaces"

SCENARIOS = [
    Scenario(
        "namespaces: label, phase, protection",
        [
            post(NAMESPACES, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "ns-plain"}}, expect=201),
            post(NAMESPACES, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "Ns.Bad"}}, expect=422),
            merge(
                f"{NAMESPACES}/ns-plain",
                {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Terminating"}},
                expect=200,
            ),
            merge(f"{NAMESPACES}/ns-plain", {"metadata": {"labels": None}, "spec": {"finalizers": None}}, expect=200),
            merge(f"{NAMESPACES}/ns-plain/status", {"status": {"phase": "Terminating"}}, expect=422),
            get(NAMESPACES, query={"fieldSelector": "metadata.name=ns-plain,status.phase=Active"}, expect=200),
            delete(f"{NAMESPACES}/default", expect=403),
            delete(f"{NAMESPACES}/kube-system", expect=403),
            delete(f"{NAMESPACES}/ns-none", expect=404),
        ],
        [f"{NAMESPACES}/ns-plain"],
    ),
    Scenario(
        "namespaces: a terminating one takes nothing new and ends with its last finalizer",
        [
            post(NAMESPACES, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "ns-end"}}),
            post(f"{NAMESPACES}/ns-end/services", service("inside"), expect=201),
            delete(f"{NAMESPACES}/ns-end", expect=200),
            get(f"{NAMESPACES}/ns-end", expect=200),
            delete(f"{NAMESPACES}/ns-end"),
            post(f"{NAMESPACES}/ns-end/services", service("late"), expect=403),
            merge(f"{NAMESPACES}/ns-end/services/inside", {"metadata": {"labels": {"a": "b"}}}, expect=200),
            delete(f"{NAMESPACES}/ns-end/services/inside", expect=200),
            put(
                f"{NAMESPACES}/ns-end/finalize",
                {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "ns-end"}, "spec": {}},
                expect=200,
            ),
            get(f"{NAMESPACES}/ns-end", expect=404),
        ],
        [f"{NAMESPACES}/ns-end/services/inside", f"{NAMESPACES}/ns-end"],
    ),
]
