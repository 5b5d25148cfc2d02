"""What one manager costs: memory with many nodes, cloud calls for a start and a refresh, time to its first write."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from tests.bench.cluster import AuditReader, BenchCluster, seen
from tests.bench.contenders import ROOT

REFRESH_SECONDS = 20


@frozen
class Footprint:
    """Seconds, megabytes, and numbers of calls to the cloud."""

    nodes: int
    first_write: float
    memory_mb: float
    peak_mb: float
    calls_to_initialise: int
    calls_to_refresh: int
    writes_of_refresh: int


def footprint(count: int, *, latency_ms: int = 50) -> Footprint:
    """Run our manager with default flags (but a refresh every 20 s) over `count` nodes until one refresh is over."""
    with BenchCluster(count) as cluster, tempfile.TemporaryDirectory() as name:
        reader = AuditReader(cluster.server.audit_log)
        started = time.time()
        with _manager(cluster, Path(name), latency_ms) as (process, port):
            if not reader.wait(lambda writes: len(seen(writes).events) >= count, 300, lambda: process.poll() is None):
                raise RuntimeError("the nodes were not initialised in time")
            found = seen(reader.read())
            first, calls = found.first - started, _calls(port)
            writes = len(found.nodes)
            time.sleep(REFRESH_SECONDS - (time.time() - started) % REFRESH_SECONDS + REFRESH_SECONDS / 2)
            before = _calls(port)
            time.sleep(REFRESH_SECONDS)  # exactly one refresh lies in it
            after = _calls(port)
            memory, peak = _memory(process.pid)
        return Footprint(count, first, memory, peak, calls, after - before, len(seen(reader.read()).nodes) - writes)


@contextmanager
def _manager(cluster: BenchCluster, folder: Path, latency_ms: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    settings = folder / "cloud.json"
    settings.write_text(json.dumps({"latencyMs": latency_ms}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "tests.bench.ccm", "--cloud-provider=bench", f"--cloud-config={settings}",
        f"--kubeconfig={cluster.kubeconfig(folder)}", "--leader-elect=false", "--controllers=cloud-node-controller",
        f"--health-bind-address=127.0.0.1:{port}", f"--node-status-update-frequency={REFRESH_SECONDS}s",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process, port
    finally:
        process.terminate()
        process.wait(60)


def _calls(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r'^cloudprovider_api_requests_total\{.*method="instances?_metadata".*\} (\S+)$', text, re.M)
    return int(sum(map(float, found)))


def _memory(pid: int) -> tuple[float, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    now, peak = (int(re.findall(rf"^{name}:\s+(\d+) kB", status, re.M)[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak
