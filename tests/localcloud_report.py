"""``python -m tests.localcloud_report``: the conformance suite over the local cloud, and its report
as docs/reports/localcloud-conformance.md (`make conformance`).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reports" / "localcloud-conformance.md"
SUITE = ROOT / "examples" / "localcloud" / "tests" / "test_localcloud_conformance.py"

_HEAD = """This page is written by `make conformance`; do not edit it. It is the report of the
[conformance suite](../guides/conformance.md) for the provider in
[examples/localcloud](../../examples/localcloud/README.md), the scenarios from end to end included:
over HTTP against the cloud's own daemon, whose kernel is one in memory. What the same provider does
with real machines and packets is in [Trials on a real cluster](real-cluster-trials.md). Skipped
are the scenarios of features that it does not have. Yours makes the same report with
`--conformance-report=DIR`.
"""


def page(report: str) -> str:
    """The page, from the report in Markdown. Pure."""
    title, _, rest = report.partition("\n")
    return f"{title}\n\n{_HEAD}{rest}"


def main() -> int:
    """Run the suite and write the page, also where a scenario fails; returns pytest's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", f"--conformance-report={folder}", str(SUITE)]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        report = Path(folder, "conformance-localcloud.md")
        if report.is_file():
            PAGE.write_text(page(report.read_text(encoding="utf-8")), encoding="utf-8")
            print(f"written: {PAGE.relative_to(ROOT)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
