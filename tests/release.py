"""``python -m tests.release``: what the release workflow asks about a version; needs no package but
Python's own.

``check v0.1.0`` fails where a file of the repository has another version, or a provider allows
another minor version of the SDK. ``notes v0.1.0`` prints that version's part of CHANGELOG.md.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SDK = "kubernetes-cloud-provider"


def problems(root: Path, version: str) -> Iterator[str]:
    """What in this copy of the repository is not of that version."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        yield f"{version!r} is no version such as 1.2.3 or 1.2.3rc1"
        return
    for path in (root / "pyproject.toml", *sorted(root.glob("examples/*/pyproject.toml"))):
        project = tomllib.loads(path.read_text())["project"]
        where = path.relative_to(root)
        if project["version"] != version:
            yield f"{where}: the version is {project['version']}"
        wanted = f"{SDK}{compatible(version)}"
        for line in project["dependencies"]:
            if re.match(rf"{SDK}\b(?!-)", line) and line != wanted:
                yield f"{where}: it needs {line}, and should need {wanted}"
    shown = (
        root / "docs" / "guides" / "packaging.md",
        *sorted(root.glob("cloudprovider/commands/**/pyproject.toml.tmpl")),
    )
    for path in shown:
        for pin in re.findall(rf'"{SDK}([<>=!~][^"]*)"', path.read_text()):
            if pin != compatible(version):
                yield f"{path.relative_to(root)}: it shows {SDK}{pin}, and should show {compatible(version)}"
    chart = (root / "examples" / "deploy" / "chart" / "Chart.yaml").read_text()
    for field in ("version", "appVersion"):
        found = re.search(rf"^{field}: *(\S+)", chart, re.M)
        if found is None or found[1] != version:
            yield f"examples/deploy/chart/Chart.yaml: {field} is {found[1] if found else 'not there'}"
    for path in sorted(root.glob("examples/*/helm-values.yaml")):
        for tag in re.findall(r"^  tag: *(\S+)", path.read_text(), re.M):
            if tag != version:
                yield f"{path.relative_to(root)}: the image's tag is {tag}"
    if not notes((root / "CHANGELOG.md").read_text(), version):
        yield f"CHANGELOG.md: there is nothing under a heading '## {version}'"


def compatible(version: str) -> str:
    """The versions of the SDK that a provider of this version allows: one minor version, while it
    is 0.x."""
    major, minor = (int(part) for part in version.split(".")[:2])
    above = f"{major}.{minor + 1}" if major == 0 else f"{major + 1}"
    return f">={major}.{minor},<{above}"


def notes(changelog: str, version: str) -> str:
    """What the changelog says about this version; "" where it says nothing."""
    found = re.search(rf"^## \[?{re.escape(version)}(?![\w.])[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    return found[1].strip() if found else ""


def main(argv: Sequence[str]) -> int:
    match argv:
        case ["check", tag]:
            found = list(problems(ROOT, tag.removeprefix("v")))
            print("\n".join(found), file=sys.stderr)
            return 1 if found else 0
        case ["notes", tag]:
            print(notes((ROOT / "CHANGELOG.md").read_text(), tag.removeprefix("v")))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
