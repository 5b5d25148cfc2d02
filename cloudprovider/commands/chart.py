"""`python -m cloudprovider chart`: writes the Helm chart into a folder, for those who have the
wheel alone.

The one source of the chart is examples/deploy/chart in the repository. The wheel holds it as
`cloudprovider/commands/helmchart`; a clone has it where it is.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

import cloudprovider
from cloudprovider.commands.asking import FINE, PROBLEMS, WRONG_USAGE

_PACKAGE = Path(cloudprovider.__file__).parent


def chart_folder() -> Path | None:
    """Where the chart is: in the wheel's files, or in the clone that this runs from."""
    places = (_PACKAGE / "commands" / "helmchart", _PACKAGE.parent / "examples" / "deploy" / "chart")
    return next((place for place in places if (place / "Chart.yaml").is_file()), None)


def add_chart(commands: Any) -> None:
    """Add the command to the others."""
    chart = commands.add_parser(
        "chart",
        help="write the Helm chart into a folder",
        description="Writes the Helm chart of the cloud-controller-manager into a new folder. `new` writes values for "
        "it, deploy/values.yaml.",
        epilog="Exit codes: 0 all is well, 1 the folder cannot be written, 2 wrong usage, or the folder exists.",
    )
    chart.add_argument("folder", metavar="DIR", type=Path, help="the folder to create")
    chart.set_defaults(run=_chart)


def _chart(given: argparse.Namespace) -> int:
    folder: Path = given.folder
    if folder.exists():
        print(f"{folder} exists already. Fix: give another folder, or remove it.", file=sys.stderr)
        return WRONG_USAGE
    source = chart_folder()
    if source is None:
        print("This installation has no chart. Fix: install kubernetes-cloud-provider from its wheel.", file=sys.stderr)
        return PROBLEMS
    try:
        shutil.copytree(source, folder)
    except (OSError, shutil.Error) as error:
        print(f"{folder} cannot be written: {error}", file=sys.stderr)
        return PROBLEMS
    print(f"wrote the chart into {folder}")
    print(f"Next: helm install NAME {folder} --namespace kube-system --values deploy/values.yaml")
    return FINE
