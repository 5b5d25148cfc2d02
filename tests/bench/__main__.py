"""`make bench`: the figures of docs/benchmarks.md, measured over the real API server in one run.

Contenders alternate, each on a fresh API server; minimum and median of the repetitions. Times run from a contender's
first write to its last node initialised and its last Event stored, as the server's audit log has them, and also from
the start of its process.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from attrs import asdict, frozen

from tests.bench.cluster import AuditReader, BenchCluster, Write, seen
from tests.bench.contenders import ROOT, UNCAPPED, Contender
from tests.bench.footprint import Footprint, footprint

INITIALISE = (
    Contender("the API server's limit", "limit"),
    Contender("ours, batch, cloud 0 ms", "ours"),
    Contender("ours, batch, cloud 50 ms", "ours", 50),
    Contender("ours, no batch, cloud 50 ms", "ours", 50, batch=False),
    Contender("Go uncapped, cloud 0 ms", "go", 0, flags=UNCAPPED),
    Contender("Go uncapped, cloud 50 ms", "go", 50, flags=UNCAPPED),
)
GO_DEFAULT = (Contender("Go default, cloud 0 ms", "go", 0), Contender("Go default, cloud 50 ms", "go", 50))


@frozen
class Run:
    """One measurement, in seconds."""

    initialised: float
    events: float
    initialised_from_start: float
    events_from_start: float
    writes: int


def initialise(contender: Contender, count: int, timeout: float) -> Run:
    """Let a contender initialise `count` nodes. Raises RuntimeError when it does not within `timeout` seconds."""
    with BenchCluster(count) as cluster, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = contender.command(cluster, folder)
        reader = AuditReader(cluster.server.audit_log)
        with (folder / "log").open("wb") as log:
            started = time.time()
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            try:
                done = reader.wait(
                    lambda writes: _complete(writes, count),
                    timeout,
                    lambda: process.poll() is None or contender.kind == "limit",
                )
            finally:
                process.terminate()
                process.wait(60)
        if not done:
            tail = "\n".join((folder / "log").read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"{contender.name}: not done in {timeout:.0f} s\n{tail}")
        _check(cluster, count)
        found = seen(reader.writes)
        return Run(
            found.last_node - found.first,
            found.last_event - found.first,
            found.last_node - started,
            found.last_event - started,
            len(found.nodes) + len(found.events),
        )


def _complete(writes: list[Write], count: int) -> bool:
    found = seen(writes)
    addresses = {write.name for write in found.nodes if write.resource == "nodes/status"}
    objects = {write.name for write in found.nodes if write.resource == "nodes"}
    return len(addresses) == count and len(objects) == count and len(found.events) >= count


def _check(cluster: BenchCluster, count: int) -> None:
    for number in (0, count // 2, count - 1):
        node = cluster.node(f"node-{number:05d}")
        taints = {taint["key"] for taint in node["spec"].get("taints", ())}
        if "node.cloudprovider.kubernetes.io/uninitialized" in taints or not node["spec"].get("providerID"):
            raise RuntimeError(f"node {node['metadata']['name']} was not initialised")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--go-default", action="store_true", help="also the Go CCM with its default flags (minutes)")
    parser.add_argument("--only", default="", help="only contenders whose names contain this")
    parser.add_argument("--footprint", type=int, default=5000, help="nodes for memory and cloud calls; 0: leave out")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    contenders = [one for one in INITIALISE if given.only in one.name]
    results: dict[str, list[Run]] = {one.name: [] for one in contenders}
    for repetition in range(given.repetitions):
        for one in contenders:
            run = initialise(one, given.nodes, 120)
            results[one.name].append(run)
            print(f"{repetition + 1}: {one.name}: {run}", flush=True)
    if given.go_default:
        for one in GO_DEFAULT:
            results[one.name] = [initialise(one, given.nodes, 600)]
    print(f"\n{platform.machine()}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}\n")
    print(table(results))
    if given.footprint:
        small, large = footprint(given.nodes), footprint(given.footprint)
        print(f"\n{footprint_table(small, large)}")
    if given.json:
        given.json.write_text(json.dumps({name: [vars_of(run) for run in runs] for name, runs in results.items()}))
    return 0


def vars_of(run: Run) -> dict[str, float]:
    return {name: round(value, 3) for name, value in asdict(run).items()}


def table(results: dict[str, list[Run]]) -> str:
    """The figures as a Markdown table: minimum / median."""
    rows = [
        "| contender | nodes initialised, s | Events stored, s | from process start, s | writes |",
        "|---|---|---|---|---|",
    ]
    for name, runs in results.items():
        cells = [_both([getattr(run, what) for run in runs]) for what in ("initialised", "events")]
        started = _both([run.events_from_start for run in runs])
        rows.append(f"| {name} | {cells[0]} | {cells[1]} | {started} | {runs[-1].writes} |")
    return "\n".join(rows)


def footprint_table(small: Footprint, large: Footprint) -> str:
    """What one manager of ours costs, as a Markdown table."""
    return "\n".join(
        [
            "| ours, default flags, batch, cloud 50 ms | |",
            "|---|---|",
            f"| process start to first write, {small.nodes} nodes there | {small.first_write:.2f} s |",
            f"| cloud calls to initialise {small.nodes} nodes | {small.calls_to_initialise} |",
            f"| cloud calls to refresh {large.nodes} nodes | {large.calls_to_refresh} |",
            f"| writes of that refresh | {large.writes_of_refresh} |",
            f"| resident memory, {large.nodes} nodes (peak) | {large.memory_mb:.0f} MB ({large.peak_mb:.0f} MB) |",
        ]
    )


def _both(values: list[float]) -> str:
    return f"{min(values):.2f} / {statistics.median(values):.2f}"


if __name__ == "__main__":
    sys.exit(main())
