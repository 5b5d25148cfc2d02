"""``python -m tests.lab.cluster``: a whole cluster, until Ctrl-C. `make cluster` calls it."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from localcloud.layout import BadLayout

from tests.lab.cluster.cluster import MANAGER, Cluster, ClusterError
from tests.lab.cluster.manifests import DEMO
from tests.lab.cluster.needs import Missing
from tests.lab.cluster.options import Options
from tests.lab.cluster.provider import OURS, BadProvider
from tests.lab.envtest.build import AssetsMissing, cluster_program


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)  # where this runs in a shell's background, it is ignored
    try:
        cluster = Cluster(
            Options(
                name=args.name,
                base=args.base,
                pool=args.pool,
                provider=args.provider.resolve(),
                cloud_config=args.cloud_config.read_text() if args.cloud_config else None,
            ),
            say=lambda line: print(line, flush=True),
        )
        with cluster:
            try:
                print(_try_next(cluster), flush=True)
                if not args.once:
                    signal.pause()
            finally:
                _leave_alone()
        print("nothing of it runs; its disks are deleted in the background", flush=True)
    except KeyboardInterrupt:
        print("nothing of it runs; its disks are deleted in the background", flush=True)
        return 0 if not args.once else 130
    except (ClusterError, Missing, BadProvider, BadLayout, AssetsMissing, OSError, RuntimeError) as problem:
        print(f"make cluster: {problem}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as problem:
        print(f"make cluster: {problem}; its messages are above", file=sys.stderr)
        return 1
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    _leave_alone()
    print("\ntaking the cluster away ...", flush=True)
    raise KeyboardInterrupt


def _leave_alone() -> None:
    """A second Ctrl-C does not cut off the cleaning."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make cluster", description="A whole cluster on this machine.")
    parser.add_argument("--provider", type=Path, default=OURS, help="the folder of a distribution with a provider")
    parser.add_argument("--cloud-config", type=Path, help="its --cloud-config; default: the local cloud's")
    parser.add_argument("--name", default="lc", help="prefix of all that is made in the kernel (%(default)s)")
    parser.add_argument("--base", default="10.90", help="first two numbers of all addresses (%(default)s)")
    parser.add_argument("--pool", default="198.51.100.0/24", help="load balancers (%(default)s)")
    parser.add_argument("--once", action="store_true", help="take it away as soon as all works")
    return parser


def _try_next(cluster: Cluster) -> str:
    python = f"env PYTHONPATH={OURS} {sys.executable} -m localcloud"
    url = cluster.demo_url()
    return f"""
The cluster is ready after {cluster.progress.total:.0f} s. In another shell, as root:

  export KUBECONFIG={cluster.kubeconfig}
  export LOCALCLOUD_URL={cluster.cloud.url} LOCALCLOUD_TOKEN_FILE={cluster.cloud.layout.folder / "token"}
  alias kubectl={cluster_program("kubectl")}
  alias localcloud="{python}"

  kubectl get nodes -o wide
  {f"curl {url}" if url else f"kubectl get service {DEMO}    # your provider gives it an address"}
  kubectl -n kube-system logs -f deployment/{MANAGER}
  kubectl scale deployment {DEMO} --replicas=5
  localcloud lb list
  localcloud machine stop worker-1     # and watch: kubectl get nodes -w

docs/guides/real-cluster.md has more. Ctrl-C here takes it all away.
"""


if __name__ == "__main__":
    sys.exit(main())
