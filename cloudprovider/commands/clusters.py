"""The clusters of a cloud account and their control planes, as the provider's `Clusters` tells
them.

A provider's name and config come in; out go rows for the command line. A control plane that the
provider cannot name costs its row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from cloudprovider.commands.asking import Started, in_time
from cloudprovider.commands.failure import Failure
from cloudprovider.interface import Clusters
from cloudprovider.internal.problem import Problem

__all__ = ["ClusterRow", "list_clusters"]


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


def list_clusters(started: Started, *, only: str = "", timeout: float = 10.0) -> tuple[ClusterRow, ...]:
    """The clusters by name, or the one of that name. `timeout`: seconds for each call. Raises
    `Failure`."""
    clusters = _clusters(started, timeout)
    if only:
        row = _row(started, clusters, only, timeout)
        if row.problem:
            raise Failure(Problem(row.problem, f"check the name: `clusters` lists those that {started.name} knows"))
        if not row.master:
            unknown = f"the cloud knows no address of cluster {only}'s control plane yet"
            raise Failure(Problem(unknown, "ask again later"))
        return (row,)
    try:
        names: object = in_time(clusters.list_clusters, timeout)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _failed(started, "list_clusters", error) from error
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(one, str) for one in names):
        raise Failure(
            Problem(
                f"list_clusters answered a {type(names).__name__}", "return a sequence of texts, the clusters' names"
            )
        )
    return tuple(_row(started, clusters, name, timeout) for name in sorted(names))


def _clusters(started: Started, timeout: float) -> Clusters:
    try:
        provider = started.initialized(timeout, "this command has none")
        found: object = provider.clusters()
    except (Failure, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _failed(started, "the start", error) from error
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


def _failed(started: Started, what: str, error: BaseException) -> Failure:
    return Failure(
        Problem(
            f"{what} of provider {started.name!r} failed: {started.described(error)}",
            f"check the credentials, and that the cloud can be reached from here: `python -m cloudprovider check "
            f"{started.name}` tells more",
        )
    )
