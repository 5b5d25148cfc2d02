"""Runs the suite's program on a cluster, set by set, and reads what came of it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from tests.lab.e2e.report import Result, read
from tests.lab.e2e.specs import SpecSet

HOURS = 3
"""The longest that one set may take; the suite then ends by itself and reports what it has."""
_GRACE = 600.0
"""Seconds beyond those hours in which the suite may clean up."""


@frozen(kw_only=True)
class Target:
    """What the suite runs on, and with."""

    suite: Path
    kubectl: Path
    kubeconfig: Path
    cloud_url: str
    cloud_token_file: Path


def arguments(target: Target, chosen: SpecSet, folder: Path) -> list[str]:
    """The command line for one set, whose report and logs go to `folder`."""
    command = [
        str(target.suite),
        "-provider=localcloud",
        f"-localcloud-url={target.cloud_url}",
        f"-localcloud-token-file={target.cloud_token_file}",
        f"-kubeconfig={target.kubeconfig}",
        f"-kubectl-path={target.kubectl}",
        f"-report-dir={folder}",
        f"-e2e-output-dir={folder}",
        "-disable-log-dump",
        "-ginkgo.v",
        "-ginkgo.no-color",
        f"-ginkgo.timeout={HOURS}h",
        f"-ginkgo.label-filter={chosen.labels}",
    ]
    if chosen.focus:
        command.append(f"-ginkgo.focus={chosen.focus}")
    if chosen.skip:
        command.append(f"-ginkgo.skip={chosen.skip}")
    if chosen.pass_as:
        command.append(f"-pass-as={chosen.pass_as}")
    return command


def run(target: Target, chosen: SpecSet, folder: Path) -> Sequence[Result]:
    """Run one set and return its results; what the suite writes goes to ``folder/suite.log``.

    Raises RuntimeError where the suite ended without a report, TimeoutExpired where it did not end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "junit_01.xml"
    report.unlink(missing_ok=True)
    log = folder / "suite.log"
    with log.open("w") as to:
        code = subprocess.run(
            arguments(target, chosen, folder),
            stdout=to,
            stderr=subprocess.STDOUT,
            cwd=folder,
            check=False,
            timeout=HOURS * 3600 + _GRACE,
        ).returncode
    if not report.is_file():
        raise RuntimeError(f"the suite ended with code {code} and no report; its last words are in {log}")
    return read(report)
