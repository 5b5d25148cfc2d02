"""``python -m tests.lab.cluster.trials [NAME...]``: a cluster of its own, and each trial on it.

The results go to docs/reports/real-cluster-trials.md. The code is 1 where one failed. Memory and
CPU of the manager are sampled all the while. The order counts: what looks at the start comes first,
what looks at the whole run comes last.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from attrs import frozen
from localcloud.layout import BadLayout

from tests.lab.cluster.cluster import Cluster, ClusterError
from tests.lab.cluster.needs import Missing
from tests.lab.cluster.options import MachineSpec, Options
from tests.lab.cluster.trials import (
    bootstrap,
    features,
    flow,
    hour,
    kills,
    machines,
    memory,
    migration,
    rights,
    sandbox,
    tokens,
)
from tests.lab.cluster.trials.manager import processes
from tests.lab.cluster.trials.result import Result, judged
from tests.lab.envtest.build import AssetsMissing
from tests.support.sampling import Sampler

PAGE = Path(__file__).parents[4] / "docs" / "reports" / "real-cluster-trials.md"
COMMAND = "make trials"


@frozen
class Trial:
    """A name for the command line, and what is done."""

    name: str
    title: str
    method: str
    run: Callable[[Cluster, Sampler], Result]
    alone: bool = False
    """Only where it is named."""


TRIALS: Sequence[Trial] = (
    Trial("bootstrap", bootstrap.TITLE, bootstrap.METHOD, lambda cluster, _: bootstrap.run(cluster)),
    Trial("sandbox", sandbox.TITLE, sandbox.METHOD, lambda cluster, _: sandbox.run(cluster)),
    Trial("traffic", flow.TITLE, flow.METHOD, lambda cluster, _: flow.run(cluster)),
    Trial("machines", machines.TITLE, machines.METHOD, lambda cluster, _: machines.run(cluster)),
    Trial("migration", migration.TITLE, migration.METHOD, lambda cluster, _: migration.run(cluster)),
    Trial("features", features.TITLE, features.METHOD, lambda cluster, _: features.run(cluster)),
    Trial("kills", kills.TITLE, kills.METHOD, lambda cluster, _: kills.run(cluster)),
    Trial("tokens", tokens.TITLE, tokens.METHOD, lambda cluster, _: tokens.run(cluster)),
    Trial("rights", rights.TITLE, rights.METHOD, lambda cluster, _: rights.run(cluster)),
    Trial("hour", hour.TITLE, hour.METHOD, hour.run, alone=True),
    Trial("memory", memory.TITLE, memory.METHOD, lambda _, sampler: memory.summary([*sampler.lives.values()])),
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    chosen = [one for one in TRIALS if one.name in options.names or not (options.names or one.alone)]
    failed: list[str] = []
    page = None if options.no_page else PAGE
    for number in (signal.SIGINT, signal.SIGTERM):  # where this runs in a shell's background, the first is ignored
        signal.signal(number, signal.default_int_handler)
    try:
        cluster = Cluster(Options(name=options.name, base=options.base, pool=options.pool, spares=_spares()), say=_say)
        with cluster, Sampler(lambda: processes(cluster)) as sampler:
            for trial in chosen:
                _say(f"trial: {trial.title}")
                run = partial(trial.run, cluster, sampler)
                # Whatever one raises is its own verdict: the next ones run all the same.
                result = judged(run, trial.name, trial.title, trial.method, command=COMMAND, page=page, fails=Exception)
                failed += [trial.name] if result.problems else []
    except (ClusterError, Missing, BadLayout, AssetsMissing, OSError, RuntimeError, subprocess.SubprocessError) as bad:
        print(f"{COMMAND}: {bad}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if failed:
        print(f"{COMMAND}: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _spares() -> Sequence[MachineSpec]:
    """Machines that join while a trial runs."""
    return [MachineSpec(name=f"worker-{number}", zone="local-a") for number in (3, 4, 5)]


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description="The product in its pod, on a cluster of real nodes.")
    # Checked by hand: argparse takes no empty list among choices.
    parser.add_argument("names", nargs="*", type=_name, metavar="NAME", help=f"only these: {_names()}")
    parser.add_argument("--no-page", action="store_true", help="leave docs/reports/real-cluster-trials.md alone")
    parser.add_argument("--name", default="tr", help="of the cluster (%(default)s)")
    parser.add_argument("--base", default="10.120", help="first two numbers of its addresses (%(default)s)")
    parser.add_argument("--pool", default="198.18.120.0/24", help="its load balancers (%(default)s)")
    return parser


def _name(text: str) -> str:
    if text not in (one.name for one in TRIALS):
        raise argparse.ArgumentTypeError(f"{text!r} is none of {_names()}")
    return text


def _names() -> str:
    return ", ".join(one.name for one in TRIALS)


if __name__ == "__main__":
    sys.exit(main())
