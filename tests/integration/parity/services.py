"""Services: defaults, addresses and ports, type changes, the status subresource, load balancer
classes."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, get, json_patch, merge, post, put, strategic

SERVICES = "/api/v1/namespaces/default/services"
PORT = {"name": "http", "port": 80}


def service(name: str, *, metadata: dict[str, Any] | None = None, ports: Any = (PORT,), **spec: Any) -> dict[str, Any]:
    """A Service to send."""
    if ports is not None:
        spec["ports"] = list(ports)
    return {"kind": "Service", "apiVersion": "v1", "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def condition(kind: str, status: str) -> dict[str, Any]:
    """A condition, as it is in a status."""
    return {
        "type": kind,
        "status": status,
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def balancer(name: str, **more: Any) -> dict[str, Any]:
    """A Service of type LoadBalancer."""
    return service(name, type="LoadBalancer", **more)


SCENARIOS = [
    Scenario(
        "defaults of every type",
        [
            post(SERVICES, service("sp-default"), expect=201),
            post(SERVICES, service("sp-nodeport", type="NodePort", selector={"a": "b"}), expect=201),
            post(SERVICES, balancer("sp-balancer"), expect=201),
            post(SERVICES, balancer("sp-local", externalTrafficPolicy="Local"), expect=201),
            post(SERVICES, balancer("sp-noports", allocateLoadBalancerNodePorts=False), expect=201),
            post(SERVICES, service("sp-headless", clusterIP="None", selector={"a": "b"}), expect=201),
            post(SERVICES, service("sp-selectorless", clusterIP="None"), expect=201),
            post(SERVICES, service("sp-external", ports=None, type="ExternalName", externalName="a.b."), expect=201),
            post(SERVICES, service("sp-affinity", sessionAffinity="ClientIP"), expect=201),
            post(
                SERVICES,
                service(
                    "sp-several",
                    ports=[
                        {"name": "a", "port": 53, "protocol": "UDP"},
                        {"name": "b", "port": 53, "targetPort": "dns"},
                    ],
                    type="NodePort",
                ),
            ),
            merge(f"{SERVICES}/sp-balancer", {"spec": {"loadBalancerSourceRanges": [" 10.0.0.0/8 "]}}, expect=200),
        ],
        [
            f"{SERVICES}/{name}"
            for name in (
                "sp-default",
                "sp-nodeport",
                "sp-balancer",
                "sp-local",
                "sp-noports",
                "sp-headless",
                "sp-selectorless",
                "sp-external",
                "sp-affinity",
                "sp-several",
            )
        ],
    ),
    Scenario(
        "services that are refused",
        [
            post(SERVICES, service("sp-bad", ports=None), expect=422),
            post(SERVICES, service("Sp_bad"), expect=422),
            post(SERVICES, service("0sp-digit")),
            post(SERVICES, service("sp-bad", type="Nothing"), expect=422),
            post("/api/v1/namespaces/none/services", service("sp-bad"), expect=404),
            post(
                "/api/v1/namespaces/kube-system/services",
                service("sp-bad", metadata={"namespace": "default"}),
                expect=400,
            ),
        ],
        [f"{SERVICES}/sp-bad", f"{SERVICES}/0sp-digit"],
    ),
    Scenario(
        "loadBalancerClass cannot be changed directly, only by way of another type",
        [
            post(SERVICES, balancer("sp-class")),
            merge(f"{SERVICES}/sp-class", {"spec": {"loadBalancerClass": "a.b/c"}}, expect=422),
            merge(f"{SERVICES}/sp-class", {"spec": {"type": "ClusterIP"}}, expect=200),
            merge(f"{SERVICES}/sp-class", {"spec": {"type": "LoadBalancer", "loadBalancerClass": "a.b/c"}}, expect=200),
            merge(f"{SERVICES}/sp-class", {"spec": {"loadBalancerClass": "d.e/f"}}, expect=422),
            merge(f"{SERVICES}/sp-class", {"spec": {"loadBalancerClass": None}}, expect=422),
            merge(f"{SERVICES}/sp-class", {"spec": {"type": "NodePort"}}, expect=200),
            merge(f"{SERVICES}/sp-class", {"spec": {"type": "LoadBalancer"}}, expect=200),
        ],
        [f"{SERVICES}/sp-class"],
    ),
    Scenario(
        "conditions of a Service are merged by type, and stay when its type changes",
        [
            post(SERVICES, balancer("sp-conditions")),
            strategic(f"{SERVICES}/sp-conditions/status", {"status": {"conditions": [condition("A", "True")]}}),
            strategic(
                f"{SERVICES}/sp-conditions/status",
                {
                    "metadata": {"finalizers": ["a.b/c"], "annotations": {"a": "b"}},
                    "status": {"conditions": [condition("B", "False")]},
                },
            ),
            strategic(
                f"{SERVICES}/sp-conditions/status",
                {"status": {"conditions": [{"type": "B", "status": "Unknown", "observedGeneration": 3}]}},
            ),
            strategic(
                f"{SERVICES}/sp-conditions/status",
                {"status": {"conditions": [{"type": "B", "observedGeneration": None, "reason": "S"}]}},
            ),
            merge(f"{SERVICES}/sp-conditions", {"spec": {"type": "ClusterIP"}}, expect=200),
            strategic(
                f"{SERVICES}/sp-conditions/status", {"status": {"conditions": [{"$patch": "delete", "type": "B"}]}}
            ),
            strategic(
                f"{SERVICES}/sp-conditions/status", {"status": {"conditions": [{"$patch": "delete", "type": "B"}]}}
            ),
            merge(f"{SERVICES}/sp-conditions", {"metadata": {"finalizers": None}}, expect=200),
        ],
        [f"{SERVICES}/sp-conditions"],
    ),
    Scenario(
        "a patch to status changes status, annotations, labels and finalizers in one write; spec is ignored",
        [
            post(SERVICES, balancer("sp-status"), save={"version": "metadata.resourceVersion"}),
            merge(
                f"{SERVICES}/sp-status/status",
                {
                    "metadata": {
                        "annotations": {"a": "b"},
                        "labels": {"c": "d"},
                        "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
                    },
                    "spec": {"sessionAffinity": "ClientIP", "ports": []},
                    "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "a.b"}]}},
                },
                expect=200,
            ),
            merge(f"{SERVICES}/sp-status/status", {"metadata": {"resourceVersion": "${version}"}}, expect=409),
            merge(
                f"{SERVICES}/sp-status/status",
                {"spec": {"type": "ClusterIP"}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.5"}]}}},
            ),
            strategic(
                f"{SERVICES}/sp-status/status",
                {"status": {"loadBalancer": {"ingress": [{"ip": "5.6.7.8", "ipMode": "Proxy"}]}}},
            ),
            strategic(
                f"{SERVICES}/sp-status/status",
                {
                    "status": {
                        "conditions": [
                            {
                                "type": "A",
                                "status": "True",
                                "reason": "R",
                                "message": "",
                                "lastTransitionTime": "2026-01-01T00:00:00Z",
                            }
                        ]
                    }
                },
            ),
            merge(f"{SERVICES}/sp-status", {"status": {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}]}}}, expect=200),
            merge(f"{SERVICES}/sp-status/status", {"status": {"loadBalancer": {"ingress": [{"ip": "x"}]}}}, expect=422),
            merge(
                f"{SERVICES}/sp-status/status",
                {"status": {"loadBalancer": {"ingress": [{"hostname": "1.2.3.4"}]}}},
                expect=422,
            ),
            merge(
                f"{SERVICES}/sp-status/status",
                {"status": {"loadBalancer": {"ingress": [{"hostname": "a", "ipMode": "VIP"}]}}},
                expect=422,
            ),
            merge(
                f"{SERVICES}/sp-status/status",
                {"status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1", "ipMode": "Odd"}]}}},
                expect=422,
            ),
            merge(f"{SERVICES}/sp-status/status", {"status": {"loadBalancer": None}}, expect=200),
            strategic(
                f"{SERVICES}/sp-status/status",
                {"metadata": {"$deleteFromPrimitiveList/finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}},
                expect=200,
            ),
            merge(f"{SERVICES}/sp-status", {"spec": {"type": "ClusterIP"}}, expect=200),
            merge(
                f"{SERVICES}/sp-status/status",
                {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}},
                expect=422,
            ),
            get(f"{SERVICES}/sp-status"),
        ],
        [f"{SERVICES}/sp-status"],
    ),
    Scenario(
        "type changes keep and drop what belongs to the type",
        [
            post(SERVICES, balancer("sp-type", externalTrafficPolicy="Local")),
            merge(f"{SERVICES}/sp-type/status", {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}),
            merge(f"{SERVICES}/sp-type", {"spec": {"type": "ClusterIP"}}, expect=200),
            merge(f"{SERVICES}/sp-type", {"spec": {"type": "NodePort"}}, expect=200),
            merge(f"{SERVICES}/sp-type", {"spec": {"type": "LoadBalancer"}}, expect=200),
            merge(f"{SERVICES}/sp-type", {"spec": {"externalTrafficPolicy": "Local"}}, expect=200),
            merge(f"{SERVICES}/sp-type", {"spec": {"externalTrafficPolicy": "Cluster"}}, expect=200),
            merge(f"{SERVICES}/sp-type", {"spec": {"type": "ExternalName", "externalName": "a.b"}}, expect=200),
            merge(f"{SERVICES}/sp-type", {"spec": {"type": "ClusterIP", "externalName": None}}, expect=200),
        ],
        [f"{SERVICES}/sp-type"],
    ),
    Scenario(
        "ports by strategic merge, merge and JSON patch; allocated values survive a PUT that leaves them out",
        [
            post(SERVICES, service("sp-ports", type="NodePort")),
            strategic(f"{SERVICES}/sp-ports", {"spec": {"ports": [{"name": "https", "port": 443}]}}, expect=200),
            strategic(f"{SERVICES}/sp-ports", {"spec": {"ports": [{"port": 443, "targetPort": 8443}]}}, expect=200),
            strategic(f"{SERVICES}/sp-ports", {"spec": {"ports": [{"port": 80, "$patch": "delete"}]}}, expect=200),
            put(
                f"{SERVICES}/sp-ports",
                service("sp-ports", type="NodePort", ports=[{"name": "https", "port": 8443}]),
                expect=200,
            ),
            json_patch(f"{SERVICES}/sp-ports", [{"op": "replace", "path": "/spec/ports/0/nodePort", "value": 0}]),
            merge(f"{SERVICES}/sp-ports", {"spec": {"clusterIP": None}}, expect=200),
            merge(f"{SERVICES}/sp-ports", {"spec": {"clusterIPs": None, "clusterIP": None}}, expect=200),
            merge(f"{SERVICES}/sp-ports", {"spec": {"ports": None}}, expect=422),
            merge(f"{SERVICES}/sp-ports", {"spec": {"sessionAffinity": "ClientIP"}}, expect=200),
            merge(f"{SERVICES}/sp-ports", {"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": None}}}}),
            merge(f"{SERVICES}/sp-ports", {"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}}),
            merge(f"{SERVICES}/sp-ports", {"spec": {"sessionAffinityConfig": {"clientIP": None}}}, expect=200),
            merge(f"{SERVICES}/sp-ports", {"spec": {"sessionAffinity": "None"}}, expect=200),
        ],
        [f"{SERVICES}/sp-ports"],
    ),
    Scenario(
        "a node port and a cluster IP that are asked for; a PUT may create",
        [
            post(SERVICES, service("sp-own", type="NodePort", ports=[{"port": 80, "nodePort": 30321}]), expect=201),
            put(f"{SERVICES}/sp-own-3", service("sp-own-3"), expect=201),
        ],
        [f"{SERVICES}/sp-own", f"{SERVICES}/sp-own-3"],
    ),
]
