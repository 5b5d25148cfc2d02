"""The catalogue: one row for each fault, in the order of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tests.lab.faults import apiserver, cloud, leadership, objects
from tests.lab.faults.field import Fault, Field

_TYPES: Final = "Go's interface has types, which the compiler checks"
_JSON: Final = ("--kube-api-content-type=application/json",)
_BATCHES: Final = "of routes alone: Go knows no answers about many nodes"


@contextmanager
def nothing(_: Field) -> Iterator[None]:
    yield


FAULTS: Final = (
    Fault("F0", "none", "Nothing: what the changes of nodes and Services alone take.", nothing),
    # ---- the API server
    Fault(
        "F1",
        "429 with Retry-After",
        "Every request is answered with 429 and `Retry-After: 1`. Watches that are open go on.",
        apiserver.too_many_requests,
        tests=("tests/integration/test_informer_fuzz.py",),
    ),
    Fault(
        "F2",
        "500 and 503",
        "Every request is answered with 503 and 500 in turn, and all connections are cut first. It stands longer than "
        "the renewal deadline, so the Lease is lost. Ten minutes change nothing more: the longest pause between two "
        "tries is 5 s, and how many requests come a second is judged.",
        apiserver.server_errors,
        seconds=30.0,
        tests=("tests/integration/test_outage.py", "tests/integration/test_failover.py"),
    ),
    Fault(
        "F3",
        "timeout after the write",
        "The server does each write of nodes and Services, and every second answer is lost: the connection breaks 1 s "
        "later.",
        apiserver.lost_answers,
    ),
    Fault(
        "F4",
        "410 in mid-watch",
        "Each watch gets the event ERROR with 410 in place of its next event, and ends.",
        apiserver.expired_watches,
        tests=("tests/integration/test_informer_fuzz.py", "tests/integration/test_informer_servers.py"),
    ),
    Fault(
        "F5",
        "reset, truncated line",
        "Every third event of a watch is cut in the middle, and every second answer to a read is reset.",
        apiserver.cut_lines,
        tests=("tests/integration/test_node_chaos.py", "tests/integration/test_informer_fuzz.py"),
    ),
    Fault(
        "F6",
        "half-open connections",
        "All open connections lead nowhere from one moment on, without a sign, watches included; new ones work.",
        apiserver.half_open,
        within=30.0,
        without_go="the proxy speaks HTTP/1.1, on which Go sends no pings as it does on HTTP/2",
        tests=("tests/integration/test_connections.py",),
    ),
    Fault(
        "F7",
        "stale replica",
        "The events of all watches come late, at the fault's end, while writes and single reads go to the newest "
        "version: every decision is made on a state that is so old.",
        apiserver.stale,
    ),
    Fault(
        "F8",
        "403",
        "The bindings of the manager's roles are deleted on the server, and made again.",
        apiserver.forbidden,
        seconds=15.0,
        forbidden=True,
        tests=("tests/integration/test_rights.py", "tests/integration/test_health_truth.py"),
    ),
    Fault(
        "F9",
        "wrongly empty list",
        "All connections are cut, watches of nodes and Services are refused with 410, and each list that follows comes "
        "back empty from the server's watch cache; quorum reads are right. At the end all is cut again.",
        apiserver.empty_lists,
        tests=("tests/integration/test_informer_fuzz.py",),
    ),
    Fault(
        "F10",
        "repeated 409",
        "Every write of nodes and Services is answered with 409.",
        apiserver.conflicts,
    ),
    # ---- leadership
    Fault(
        "F11",
        "renewal hangs",
        "The leader's writes of the Lease get no answer until another manager leads; then they go through.",
        leadership.renewal_hangs,
        managers=2,
        tests=("tests/integration/test_leader_election.py", "tests/integration/test_partition.py"),
    ),
    Fault(
        "F12",
        "Lease lost during a cloud call",
        "A load balancer is being built when the leader's writes of the Lease begin to get no answer. The call ends "
        "after another manager leads.",
        leadership.lost_in_a_call,
        managers=2,
        tests=("tests/integration/test_lost_lease.py",),
    ),
    Fault(
        "F13",
        "SIGTERM during ensure",
        "The leader gets SIGTERM while it builds a load balancer, which takes 3 s.",
        leadership.terminated,
        managers=2,
        tests=("tests/integration/test_failover.py", "tests/integration/test_main.py"),
    ),
    Fault(
        "F14",
        "kill -9 between create and status",
        "The leader is killed after the load balancer was built, before the write of its address is passed on.",
        leadership.killed,
        managers=2,
        tests=("tests/integration/test_service_chaos.py", "tests/lab/cluster/trials/kills.py"),
    ),
    Fault(
        "F15",
        "clock one hour off",
        "The leader's clock is set back by an hour and the other's ahead, and then right again. The Lease must not "
        "change hands.",
        leadership.clock_off,
        seconds=15.0,
        managers=2,
        shift=3600.0,
        without_go="Go reads the clock without the C library, so that no test can set it for one process",
    ),
    Fault(
        "F16",
        "SIGSTOP for 60 s",
        "The leader stands still for a minute, and goes on.",
        leadership.stopped,
        seconds=60.0,
        managers=2,
        tests=("tests/integration/test_failover.py", "tests/integration/test_leader_election.py"),
    ),
    # ---- the cloud
    Fault(
        "F17",
        "throttling",
        "Every call fails with `Throttled`, and asks for a pause of 1 s.",
        cloud.throttled,
    ),
    Fault(
        "F18",
        "expired credentials",
        "Every call fails: the credentials have expired.",
        cloud.expired_credentials,
        tests=("tests/integration/test_nodelifecycle_controller.py", "tests/integration/test_cloud_outage.py"),
    ),
    Fault(
        "F19",
        "truncated page",
        "Listings of routes, and answers about many nodes, hold only the first half. Go is asked "
        + _BATCHES.removeprefix("of ")
        + ".",
        cloud.truncated_pages,
        tests=("tests/integration/test_sick_cloud.py",),
    ),
    Fault(
        "F20",
        "create, then 404",
        "For 3 s the cloud does not find a load balancer that it has just built. Three nodes join and are not Ready; "
        "after each machine was described, the next question whether it exists is answered with no.",
        cloud.not_there_yet,
    ),
    Fault(
        "F21",
        "half-built load balancer",
        "Building leaves a load balancer without address, ports and targets, and fails.",
        cloud.half_built,
        tests=("tests/integration/test_service_chaos.py",),
    ),
    Fault(
        "F22",
        "provider raises",
        "Every call raises an exception that is none of the contract's.",
        cloud.raising,
        tests=("tests/integration/test_sick_cloud.py",),
    ),
    Fault(
        "F23",
        "provider returns junk",
        "Every call returns a text in place of what it should.",
        cloud.junk,
        without_go=_TYPES,
        tests=("tests/integration/test_service_chaos.py",),
    ),
    Fault(
        "F24",
        "provider hangs",
        "No call comes back before the fault's end, whatever its deadline.",
        cloud.hanging,
        seconds=20.0,
        tests=("tests/integration/test_main.py", "tests/integration/test_nodelifecycle_controller.py"),
    ),
    # ---- objects
    Fault(
        "F25",
        "duplicate and reordered events",
        "After each event of a watch the two before it come again, and then itself.",
        apiserver.replayed_events,
        tests=("tests/integration/test_informer_fuzz.py",),
    ),
    Fault(
        "F26",
        "node recreated",
        "Three machines and their Nodes are replaced at once by others of the same name with another ID.",
        objects.recreated_nodes,
        tests=("tests/integration/test_node_controller.py", "tests/integration/test_nodelifecycle_controller.py"),
    ),
    Fault(
        "F27",
        "Service recreated",
        "Three Services are deleted and made again under their names as soon as the server takes them.",
        objects.recreated_services,
        tests=("tests/integration/test_service_controller.py",),
    ),
    Fault(
        "F28",
        "type changed and changed back",
        "Three Services go from LoadBalancer to ClusterIP and back while their load balancers are being built.",
        objects.flipped,
        tests=("tests/integration/test_service_chaos.py",),
    ),
    Fault(
        "F29",
        "Service deleted during ensure",
        "Three Services are deleted while their load balancers are being built.",
        objects.deleted_while_built,
        tests=("tests/integration/test_service_show.py",),
    ),
    Fault(
        "F30",
        "deletion fails all day",
        "No load balancer can be deleted. How long does not matter to the manager: the longest pause between two "
        "tries is a minute.",
        cloud.no_deletion,
        seconds=20.0,
        within=90.0,
        tests=("tests/integration/test_service_show.py",),
    ),
    Fault(
        "F31",
        "finalizer taken off by hand",
        "Of three Services that stay, and of two that are deleted in the same moment.",
        objects.stripped,
        tests=("tests/integration/test_service_controller.py", "tests/integration/test_service_show.py"),
    ),
    Fault(
        "F32",
        "malformed object",
        "One node has a number for its UID, in lists and watches, all connections being cut at the begin and the end. "
        "Both managers read JSON here.",
        objects.malformed,
        flags=_JSON,
        tests=("tests/integration/test_node_chaos.py",),
    ),
    Fault(
        "F33",
        "token rotated",
        "The file has a new token, the old one is refused from then on, and all connections are cut.",
        objects.rotated_token,
        forbidden=True,
    ),
    Fault(
        "F34",
        "CA rotated",
        "The server gets a certificate of a new CA, and all connections are cut. The file with the CA follows at the "
        "end.",
        objects.rotated_ca,
    ),
    Fault(
        "F35",
        "empty token file",
        "The file is empty and the old token is refused. At the end the new token is in the file.",
        objects.empty_token,
        forbidden=True,
    ),
    Fault(
        "F36",
        "5,000 nodes join",
        "5,000 Nodes are made as fast as the server takes them. The managers go past the proxy.",
        objects.crowd,
        seconds=3.0,
        within=600.0,
        many=5000,
        churn=1.0,
        direct=True,
    ),
)
BY_ID: Final = {one.id: one for one in FAULTS}
GROUPS: Final[Sequence[tuple[str, range]]] = (
    ("The API server", range(1, 11)),
    ("Leadership", range(11, 17)),
    ("The cloud", range(17, 25)),
    ("Objects and credentials", range(25, 37)),
)
"""The headings of the page, with the numbers of the faults below each."""
