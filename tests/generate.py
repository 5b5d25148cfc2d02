"""``python -m tests.generate``: write every generated file of the repository again (`make
generate`).

Data comes from the code (flags, rights, conformance scenarios, the sample provider's annotations),
from a manager that runs (metrics), from kubernetes.proto, from the lock files, from the chart in
examples/deploy and its alert rules, and from tests/lab/pictures.py; the tests compare what is in
the repository with the same functions.
What needs helm is left as it is where helm cannot be had, with a message.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import yaml

from controllers.catalog import CATALOG
from controllers.cli import rbac, reference
from controllers.registration.entry import enabled
from controllers.webhooks.rbac_rules import policy_for
from tests.lab import pictures
from tests.lab.envtest.build import AssetsMissing, tool
from tests.lab.faults import page as faults
from tests.support import gomanager, locks, metricspage, signatures
from tests.unit.conformance import page as scenarios
from tests.unit.nodelifecycle import simulation

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
DELETIONS = ROOT / "docs" / "reports" / "node-deletions.md"
DEPLOY = ROOT / "examples" / "deploy"
SAMPLECLOUD = ROOT / "examples" / "samplecloud"
CHART = DEPLOY / "chart"
BASE = DEPLOY / "kustomize" / "base"
DEPLOYMENT = DEPLOY / "kustomize" / "overlays" / "deployment"
MONITORING = DEPLOY / "kustomize" / "components" / "monitoring"
WEBHOOKS = DEPLOY / "kustomize" / "components" / "webhooks"
ALERTS = CHART / "files" / "alerts.yaml"

PROTO = ROOT / "controllers" / "runtime" / "protobuf" / "kubernetes.proto"

_RENDERED = "# Rendered from examples/deploy/chart, so do not edit it here: `make generate`.\n"


def alerts_page(rules: str) -> str:
    """docs/reference/alerts.md: each alert with its condition and what to do. Pure."""
    lines = [
        "# Alerts",
        "",
        "This page is generated from [the alert rules](../../examples/deploy/chart/files/alerts.yaml); do not edit it,",
        "run `make generate`. The rules are an ordinary rule file of Prometheus. With its operator the",
        "[chart](../guides/monitoring.md) installs them.",
        "",
    ]
    for group in yaml.safe_load(rules)["groups"]:
        for rule in group["rules"]:
            notes = {name: " ".join(text.split()) for name, text in rule["annotations"].items()}
            lines += [
                f"## {rule['alert']}",
                "",
                f"*{rule['labels']['severity']}*: {notes['description']}",
                "",
                f"**What to do:** {notes['runbook']}",
                "",
                f"When this holds{' for ' + rule['for'] if 'for' in rule else ''}:",
                "",
                "```promql",
                " ".join(rule["expr"].split()),
                "```",
                "",
            ]
    return "\n".join(lines)


def samplecloud_readme() -> str:
    """examples/samplecloud/README.md as it is, with the tables of settings and annotations made
    anew."""
    if str(SAMPLECLOUD) not in sys.path:
        sys.path.append(str(SAMPLECLOUD))  # a distribution of its own
    from samplecloud_provider.annotations import SampleAnnotations
    from samplecloud_provider.config import Config

    text = (SAMPLECLOUD / "README.md").read_text()
    for name, table in (("settings", Config.markdown_table()), ("annotations", SampleAnnotations.markdown_table())):
        before, begin, rest = text.partition(f"<!-- {name}: begin -->\n")
        _, end, after = rest.partition(f"<!-- {name}: end -->\n")
        text = before + begin + table + end + after
    return text


def deletions() -> str:
    """docs/reports/node-deletions.md as it is, with its table made again."""
    text = DELETIONS.read_text()
    before, begin, rest = text.partition("<!-- simulated deletions: begin -->\n")
    _, end, after = rest.partition("<!-- simulated deletions: end -->\n")
    return before + begin + simulation.table() + end + after


def written_files() -> dict[Path, Callable[[], str]]:
    """Every generated file that needs no tool, and what makes its content."""
    return {
        **{path: partial(_listed, path) for path in (REFERENCE / f"{name}.md" for name in signatures.PAGES)},
        REFERENCE / "flags.md": lambda: reference.page(CATALOG),
        REFERENCE / "go-flags.md": lambda: gomanager.page(CATALOG),
        REFERENCE / "scenarios.md": scenarios.page,
        REFERENCE / "alerts.md": lambda: alerts_page(ALERTS.read_text()),
        REFERENCE / "metrics.md": lambda: metricspage.page((REFERENCE / "metrics.md").read_text()),
        faults.PAGE: lambda: faults.anew(faults.PAGE.read_text()),
        DELETIONS: deletions,
        **pictures.files(),
        SAMPLECLOUD / "README.md": samplecloud_readme,
        **{
            ROOT / "examples" / one / "requirements.txt": partial(locks.image_requirements, one)
            for one in locks.PROVIDERS
        },
        BASE / "rbac.yaml": lambda: rbac.manifest(enabled(("*",), CATALOG)),
        CHART / "files" / "permissions.yaml": lambda: rbac.chart_permissions(CATALOG),
        CHART / "files" / "webhookpolicy.yaml": lambda: policy_for("USER"),
    }


def _listed(path: Path) -> str:
    return signatures.page(path.read_text())


def rendered_files() -> dict[Path, Callable[[], str]]:
    """The same of those that helm renders. Raises AssetsMissing when one of them is asked for
    without helm."""
    monitored = (BASE / "values.yaml", MONITORING / "values.yaml")
    return {
        BASE / "workload.yaml": lambda: helm("workload", BASE / "values.yaml"),
        DEPLOYMENT / "disruptionbudget.yaml": lambda: helm(
            "disruptionbudget", BASE / "values.yaml", DEPLOYMENT / "values.yaml"
        ),
        MONITORING / "monitoring.yaml": lambda: helm("monitoring", *monitored),
        WEBHOOKS / "webhooks.yaml": lambda: helm("webhooks", BASE / "values.yaml", WEBHOOKS / "values.yaml"),
    }


def helm(template: str, *values: Path) -> str:
    """One template of the chart, rendered with these values; raises AssetsMissing without helm."""
    command = [str(tool("helm")), "template", "cloud-controller-manager", str(CHART), "--namespace", "kube-system"]
    command += ["--show-only", f"templates/{template}.yaml"]
    for file in values:
        command += ["--values", str(file)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return _RENDERED + "".join(
        f"{line}\n" for line in text.removeprefix("---\n").splitlines() if not line.startswith("# Source: ")
    )


def compiled_schema() -> bytes:
    """kubernetes.proto as one FileDescriptorProto, for kubernetes.binpb beside it. Runs protoc."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "set")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={out}"]
        subprocess.run([*command, PROTO.name], check=True)
        (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    compiled: bytes = file.SerializeToString(deterministic=True)
    return compiled


def main() -> int:
    logging.disable()  # the simulated clouds raise alarms
    for path, content in (written_files() | rendered_files()).items():
        try:
            new = content()
        except AssetsMissing as missing:
            print(f"{path.relative_to(ROOT)}: left as it is: {missing}", file=sys.stderr)
            continue
        if not path.is_file() or path.read_text() != new:
            path.write_text(new)
            print(f"{path.relative_to(ROOT)}: written")
    compiled, path = compiled_schema(), PROTO.with_suffix(".binpb")
    if not path.is_file() or path.read_bytes() != compiled:
        path.write_bytes(compiled)
        print(f"{path.relative_to(ROOT)}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
