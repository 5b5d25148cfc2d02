"""Lists: pages, snapshots, selectors, what resourceVersion means."""

from __future__ import annotations

from tests.integration.parity.model import Scenario, delete, get, merge, post
from tests.integration.parity.nodes import NODES, node

MINE = "parity=list"
NAMES = ("lp-1", "lp-2", "lp-3", "lp-4")
CREATE = [
    post(
        NODES,
        node(name, metadata={"labels": {"parity": "list", "n": name}}, spec={"unschedulable": name == "lp-2"}),
        compare="nothing",
    )
    for name in NAMES
]
CLEAN = [f"{NODES}/{name}" for name in (*NAMES, "lp-z")]

SCENARIOS = [
    Scenario(
        "pages show one snapshot",
        [
            *CREATE,
            post(NODES, node("lp-z"), compare="nothing"),
            get(NODES, query={"labelSelector": MINE, "limit": "2"}, save={"next": "metadata.continue"}, expect=200),
            merge(f"{NODES}/lp-3", {"metadata": {"labels": {"later": "x"}}}, compare="nothing"),
            delete(f"{NODES}/lp-4", compare="nothing"),
            get(NODES, query={"labelSelector": MINE, "limit": "2", "continue": "${next}"}, expect=200),
            get(NODES, query={"labelSelector": MINE, "continue": "${next}"}, expect=200),
            get(NODES, query={"labelSelector": MINE}, expect=200),
            get(
                NODES,
                query={"labelSelector": MINE, "limit": "2", "continue": "${next}", "resourceVersion": "1"},
                compare="outcome",
                expect=400,
            ),
            get(NODES, query={"labelSelector": MINE, "continue": "nonsense"}, compare="outcome", expect=400),
            *(
                get(NODES, query={"labelSelector": MINE, "limit": limit}, compare="outcome", expect=400)
                for limit in ("x", "", " 1", "1_0", "1.5", str(1 << 63))
            ),
        ],
        CLEAN,
    ),
    Scenario(
        "limit with resourceVersion=0 returns everything",
        [
            *CREATE,
            get(
                NODES,
                query={"limit": "2", "resourceVersion": "0"},
                save={"version": "metadata.resourceVersion"},
                expect=200,
                compare="outcome",
            ),
            get(NODES, query={"labelSelector": MINE, "limit": "2", "resourceVersion": "0"}, expect=200),
            get(NODES, query={"labelSelector": MINE, "limit": "2"}, expect=200),
        ],
        CLEAN,
    ),
    Scenario(
        "resourceVersion and resourceVersionMatch",
        [
            *CREATE,
            get(NODES, query={"labelSelector": MINE}, save={"version": "metadata.resourceVersion"}),
            merge(f"{NODES}/lp-1", {"metadata": {"labels": {"n": "changed"}}}, compare="nothing"),
            get(
                NODES,
                query={"labelSelector": MINE, "resourceVersion": "${version}", "resourceVersionMatch": "Exact"},
                expect=200,
            ),
            get(NODES, query={"labelSelector": MINE, "resourceVersion": "${version}", "limit": "1"}, expect=200),
            get(
                NODES,
                query={"labelSelector": MINE, "resourceVersion": "${version}", "resourceVersionMatch": "NotOlderThan"},
                expect=200,
            ),
            get(
                NODES,
                query={"labelSelector": MINE, "resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"},
                expect=200,
            ),
            get(NODES, query={"resourceVersion": "0", "resourceVersionMatch": "Exact"}, expect=422),
            get(NODES, query={"resourceVersionMatch": "Exact"}, expect=422),
            get(NODES, query={"resourceVersion": "1", "resourceVersionMatch": "Odd"}, expect=422),
            get(NODES, query={"resourceVersion": "x"}, expect=400),
            get(f"{NODES}/lp-1", query={"resourceVersion": "x"}, expect=500),
            get(NODES, query={"resourceVersion": "999999999"}, expect=504),
            get(NODES, query={"resourceVersion": "999999999", "resourceVersionMatch": "Exact"}, compare="outcome"),
            get(f"{NODES}/lp-1", query={"resourceVersion": "0"}, expect=200),
            get(f"{NODES}/lp-1", query={"resourceVersion": "${version}"}, expect=200),
            get(f"{NODES}/lp-1", query={"resourceVersion": "999999999"}, compare="outcome"),
        ],
        CLEAN,
    ),
    Scenario(
        "selectors",
        [
            *CREATE,
            *[
                get(NODES, query={"labelSelector": f"{MINE},{selector}"}, expect=200)
                for selector in (
                    "n=lp-1",
                    "n==lp-1",
                    "n!=lp-1",
                    "n in (lp-1, lp-2)",
                    "n notin (lp-1)",
                    "n",
                    "!n",
                    "missing",
                    "!missing",
                    "missing!=x",
                    "missing notin (x)",
                    "n in ()",
                )
            ],
            *[
                get(NODES, query={"labelSelector": MINE, "fieldSelector": selector}, expect=200)
                for selector in (
                    "metadata.name=lp-1",
                    "metadata.name!=lp-1",
                    "spec.unschedulable=true",
                    "spec.unschedulable=false",
                    "metadata.name==lp-2,spec.unschedulable!=false",
                    "metadata.name=",
                )
            ],
            get(NODES, query={"fieldSelector": "spec.providerID=x"}, expect=400),
            get(NODES, query={"fieldSelector": "metadata.name"}, expect=400),
            get(NODES, query={"fieldSelector": "metadata.namespace=x"}, expect=400),
            get("/api/v1/persistentvolumes", query={"fieldSelector": "metadata.namespace=x"}, expect=200),
            get("/api/v1/persistentvolumes", query={"fieldSelector": "spec.x=x"}, expect=400),
            get("/apis/coordination.k8s.io/v1/leases", query={"fieldSelector": "spec.x=x"}, expect=400),
            get(NODES, query={"labelSelector": "a=b=c"}, compare="outcome", expect=400),
            get(NODES, query={"labelSelector": "a in (b"}, compare="outcome", expect=400),
            get(NODES, query={"labelSelector": "a in b"}, compare="outcome", expect=400),
            get(NODES, query={"labelSelector": "a b"}, compare="outcome", expect=400),
            get(NODES, query={"labelSelector": "a,,b"}, compare="outcome"),
            get(NODES, query={"labelSelector": "a,"}, compare="outcome"),
            get(NODES, query={"labelSelector": ",a"}, compare="outcome"),
            get(NODES, query={"labelSelector": "a=(b"}, compare="outcome"),
            get(NODES, query={"labelSelector": "a=b c"}, compare="outcome"),
            get(NODES, query={"labelSelector": "a=-b"}, compare="outcome"),
            get(NODES, query={"labelSelector": "-a=b"}, compare="outcome", expect=400),
            get(NODES, query={"labelSelector": MINE, "limit": "-1"}, expect=200),
            get(NODES, query={"sendInitialEvents": "true"}, expect=422),
            get(
                "/api/v1/services",
                query={"fieldSelector": "metadata.namespace=default,spec.type=LoadBalancer"},
                expect=200,
            ),
            get("/api/v1/services", query={"fieldSelector": "spec.clusterIP=None"}, expect=200),
        ],
        CLEAN,
    ),
]
