"""``python -m tests.lab.e2e``: Kubernetes' own tests on a cluster of localcloud's machines.

The programs are built once (many minutes), the images are made from them, a cluster is started, and
each set of `specs.py` runs, one test at a time. The tables go to docs/reports/kubernetes-e2e.md.
The code is 1 where a test failed or was skipped without a known reason, passed against one, or left
a load balancer, or a route to a machine that is gone, in the cloud.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from ipaddress import IPv4Network
from pathlib import Path

from attrs import evolve
from localcloud.client import ApiError
from localcloud.layout import BadLayout

from tests.lab.bench.report import keep
from tests.lab.cluster.cluster import MANAGER, Cluster, ClusterError
from tests.lab.cluster.needs import Missing
from tests.lab.cluster.options import Options
from tests.lab.e2e.images import image_folder, suite_images
from tests.lab.e2e.outside import outside_client
from tests.lab.e2e.report import block, unexpected
from tests.lab.e2e.specs import CANNOT_PASS, SETS, SpecSet
from tests.lab.e2e.suite import Target, run
from tests.lab.envtest.build import E2E, AssetsMissing, cluster_program, e2e_program, kubernetes_version

PAGE = Path(__file__).parents[3] / "docs" / "reports" / "kubernetes-e2e.md"
COMMAND = "make e2e"
CLEAN_SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    chosen = [one for one in SETS if not options.set or one.name in options.set]
    if options.focus or options.skip:
        chosen = [narrowed(one, options.focus, options.skip) for one in chosen]
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="e2e-"))
    problems: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT):  # in a shell's background, SIGINT is ignored
        signal.signal(number, signal.default_int_handler)
    try:
        for name in E2E:
            e2e_program(name, build=True)
        archives = suite_images(image_folder())
        cluster = Cluster(Options(name=options.name, base=options.base, pool=options.pool), say=_say)
        with ExitStack() as stack:
            if not options.running:
                stack.enter_context(cluster)
            for archive in archives:
                _say(f"image: {archive.name}")
                cluster.import_image(
                    archive, [spec.name for spec in cluster.options.machines if not spec.control_plane]
                )
            layout = cluster.cloud.layout
            stack.enter_context(
                outside_client(layout.uplink, layout.host_address, layout.uplink_router_address, layout.pool)
            )
            for one in chosen:
                problems += _run_set(cluster, one, folder / one.name, keep_page=not (options.focus or options.skip))
    except (
        ApiError,
        ClusterError,
        Missing,
        BadLayout,
        AssetsMissing,
        OSError,
        RuntimeError,
        subprocess.SubprocessError,
    ) as problem:
        print(f"{COMMAND}: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{COMMAND}: ended by a signal; logs and reports: {folder}", file=sys.stderr)
        return 130
    for text in problems:
        print(f"{COMMAND}: {text}", file=sys.stderr)
    _say(f"logs and reports: {folder}")
    return 1 if problems else 0


def narrowed(chosen: SpecSet, focus: str | None, skip: str | None) -> SpecSet:
    """The set with only those tests of its labels whose names match `focus`, in place of its own,
    and do not match `skip`."""
    skips = [text for text in (chosen.skip, skip) if text]
    return evolve(chosen, focus=focus or chosen.focus, skip="|".join(skips))


def _run_set(cluster: Cluster, chosen: SpecSet, folder: Path, *, keep_page: bool) -> list[str]:
    """Run one set, put its table on the page, and return what must fail the command."""
    before = _load_balancers(cluster)
    target = Target(
        suite=e2e_program("suite"),
        kubectl=cluster_program("kubectl"),
        kubeconfig=cluster.kubeconfig,
        cloud_url=cluster.cloud.url,
        cloud_token_file=cluster.cloud.layout.folder / "token",
    )
    _say(f"{chosen.title}: {folder / 'suite.log'}")
    try:
        results = run(target, chosen, folder)
    finally:
        (folder / "manager.log").write_text(_manager_log(cluster))
    for result in results:
        _say(f"{result.seconds:7.1f} s  {result.outcome}  {result.title}  {result.reason}".rstrip())
    if keep_page:
        keep(PAGE, chosen.name, block(chosen, results, CANNOT_PASS, kubernetes_version()), command=COMMAND)
    left = _left_behind(cluster, before)
    return [
        *([] if results or not keep_page else [f"the set {chosen.name} has no tests"]),
        *unexpected(results, CANNOT_PASS),
        *(f"the tests of the set {chosen.name} left the {name} in the cloud" for name in sorted(left)),
    ]


def _left_behind(cluster: Cluster, before: set[str]) -> set[str]:
    """The load balancers that are still there a minute after the tests, and the routes to machines
    that are gone: namespaces and Nodes go in the background."""
    deadline = time.monotonic() + CLEAN_SECONDS
    while (left := _load_balancers(cluster) - before | _lost_routes(cluster)) and time.monotonic() < deadline:
        time.sleep(1)
    return left


def _load_balancers(cluster: Cluster) -> set[str]:
    return {f"load balancer {one['name']}" for one in cluster.cloud.call("GET", "/v1/loadbalancers")["loadbalancers"]}


def _lost_routes(cluster: Cluster) -> set[str]:
    machines = {one["id"] for one in cluster.cloud.call("GET", "/v1/machines")["machines"]}
    routes = cluster.cloud.call("GET", "/v1/routes")["routes"]
    return {f"route {one['name']}" for one in routes if one["machine"] not in machines}


def _manager_log(cluster: Cluster) -> str:
    try:
        return cluster.kubectl(
            "--namespace=kube-system", "logs", f"deployment/{MANAGER}", "--all-pods", "--prefix", "--tail=-1"
        )
    except ClusterError as problem:
        return f"{problem}\n"


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Kubernetes' own tests on a cluster of real nodes.")
    parser.add_argument("--set", action="append", choices=[one.name for one in SETS], help="only this set; repeatable")
    parser.add_argument("--focus", help="only tests with the sets' labels whose names match; the page is left alone")
    parser.add_argument("--skip", help="no tests whose names match; the page is left alone")
    parser.add_argument("--folder", type=Path, help="where logs and reports are kept; default: a temporary folder")
    parser.add_argument(
        "--running", action="store_true", help="on the cluster of this name that runs, as by make cluster"
    )
    parser.add_argument("--name", default="e2e", help="of the cluster (%(default)s)")
    parser.add_argument("--base", default="10.100", help="first two numbers of its addresses (%(default)s)")
    parser.add_argument(
        "--pool", type=IPv4Network, default=IPv4Network("198.18.200.0/24"), help="its load balancers (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
