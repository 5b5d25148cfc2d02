"""`python -m cloudprovider clusters`: the clusters of a cloud account and their control planes, as
the provider's `Clusters` tells them.

A control plane that the provider cannot name costs its row alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from attrs import frozen

from cloudprovider.commands.asking import FINE, PROBLEMS, WRONG_USAGE, Failure, Started, in_time
from cloudprovider.commands.boot import seconds
from cloudprovider.interface import Clusters
from cloudprovider.internal.output import aligned, results_only
from cloudprovider.internal.problem import Problem

T = TypeVar("T")


@frozen
class ClusterRow:
    """One cluster."""

    name: str
    master: str = ""
    """The address of its control plane; "" where the cloud knows none yet, or `problem` says why it
    is not known."""
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"name": self.name, "master": self.master or None, "problem": self.problem or None}


def add_clusters(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the others."""
    command = commands.add_parser(
        "clusters",
        help="list the clusters of a cloud account, and their control planes",
        description="Lists the clusters that the provider finds in its cloud account, with the address of each one's "
        "control plane. Nothing is changed in the cloud.",
        epilog="Exit codes: 0 all is well, 1 problems were found, 2 wrong usage.",
    )
    command.add_argument("--cloud-provider", required=True, metavar="NAME", help="the provider, as for the manager")
    command.add_argument("--cloud-config", default="", metavar="FILE", help="as for the manager")
    command.add_argument(
        "--timeout",
        type=seconds(3600),
        default=10.0,
        metavar="SECONDS",
        help="for each call of the provider (default 10)",
    )
    command.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")
    command.add_argument("what", nargs="?", choices=("master",), help="print the control plane of one cluster alone")
    command.add_argument("cluster", nargs="?", default="", metavar="CLUSTER", help="with master: the cluster's name")
    command.set_defaults(run=_clusters)


def _clusters(given: argparse.Namespace) -> int:
    if bool(given.what) != bool(given.cluster):
        print("master needs the name of a cluster: clusters ... master NAME", file=sys.stderr)
        return WRONG_USAGE
    try:
        with results_only(), Started(given.cloud_provider, given.cloud_config) as started:
            rows = list_clusters(started, only=given.cluster, timeout=given.timeout)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    if given.output == "json":
        told = {"provider": given.cloud_provider, "clusters": [row.as_json() for row in rows]}
        print(json.dumps(told, indent=2))
    elif given.what:
        print(rows[0].master)
    elif rows:
        print(aligned([("CLUSTER", "CONTROL PLANE"), *((row.name, row.master or "not known") for row in rows)]))
    else:
        print("The account has no cluster.")
    problems = [row.problem for row in rows if row.problem]
    for problem in problems:
        print(problem, file=sys.stderr)
    return PROBLEMS if problems else FINE


def list_clusters(started: Started, *, only: str = "", timeout: float = 10.0) -> tuple[ClusterRow, ...]:
    """The clusters by name, or the one of that name. `timeout`: seconds for each call. Raises
    `Failure`."""
    clusters = _offered(started, timeout)
    if only:
        row = _row(started, clusters, only, timeout)
        if row.problem:
            raise Failure(Problem(row.problem, f"check the name: `clusters` lists those that {started.name} knows"))
        if not row.master:  # a script would go on with an empty address
            unknown = f"the cloud knows no address of cluster {only}'s control plane yet"
            raise Failure(Problem(unknown, "ask again later"))
        return (row,)
    names: object = _asked(started, "list_clusters", lambda: in_time(clusters.list_clusters, timeout))
    # A text is a sequence of texts, too: its letters would be clusters.
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(one, str) for one in names):
        raise Failure(
            Problem(
                f"list_clusters answered a {type(names).__name__}", "return a sequence of texts, the clusters' names"
            )
        )
    return tuple(_row(started, clusters, name, timeout) for name in sorted(names))


def _offered(started: Started, timeout: float) -> Clusters:
    found: object = _asked(
        started, "the start", lambda: started.initialized(timeout, "this command has none").clusters()
    )
    if isinstance(found, Clusters):
        return found
    if found is None:
        raise Failure(
            Problem(
                f"provider {started.name!r} has no clusters: clusters() returns None",
                f"ask the cloud's own tools; `python -m cloudprovider check {started.name}` lists what it offers",
            )
        )
    raise Failure(
        Problem(
            f"clusters() of provider {started.name!r} returns a {type(found).__name__}",
            "return an object of a class that subclasses cloudprovider.Clusters",
        )
    )


def _row(started: Started, clusters: Clusters, name: str, timeout: float) -> ClusterRow:
    try:
        address: object = in_time(lambda: clusters.master(name), timeout)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - vendor boundary: shown in its row
        return ClusterRow(name, problem=f"master of cluster {name}: {started.described(error)}")
    if not isinstance(address, str):
        return ClusterRow(name, problem=f"master of cluster {name} answered a {type(address).__name__}, not a text")
    return ClusterRow(name, address)


def _asked(started: Started, what: str, call: Callable[[], T]) -> T:
    """What the provider answers. Raises `Failure`, whatever the provider raises."""
    try:
        return call()
    except (Failure, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Failure(
            Problem(
                f"{what} of provider {started.name!r} failed: {started.described(error)}",
                f"check the credentials, and that the cloud can be reached from here: `python -m cloudprovider check "
                f"{started.name}` tells more",
            )
        ) from error
