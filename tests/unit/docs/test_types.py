"""What vendors copy is clean under mypy --strict and in pyright's strict mode: README, docs, three
providers, examples, and what `python -m cloudprovider new` writes.

Each checker runs once; a run that found nothing is remembered in pytest's cache until something
changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cloudprovider.commands.cli import main
from tests.support.blocks import ROOT, Unit
from tests.support.remembered import remembered
from tests.support.typecheck import documented, mypy, pyright

pytestmark = pytest.mark.xdist_group("types")  # with test_typing.py: the second one finds mypy's cache filled
EXAMPLES = ROOT / "examples"
COPIED = [
    *sorted((EXAMPLES / "samplecloud" / "samplecloud_provider").rglob("*.py")),
    *sorted((EXAMPLES / "localcloud" / "localcloud_provider").rglob("*.py")),
    *sorted((EXAMPLES / "openstack" / "openstack_provider").rglob("*.py")),
    *sorted(EXAMPLES.glob("*.py")),
    ROOT / "tests" / "typing" / "vendor.py",
]

# What a strict checker must not let pass: it shows that the checkers see the packages' types.
MISTAKE = """\
from cloudprovider import InstanceMetadata, Zones
from cloudprovider.helpers import node_name
from kubernetes.client.models import V1Node


def wrong(node: V1Node) -> InstanceMetadata:
    return InstanceMetadata(provider_id=node.metadata.name, zone=len(node_name(node)))


class Older(Zones):
    pass
"""
FOUND = {
    "mypy": ("[union-attr]", "[arg-type]"),
    "pyright": ("[reportOptionalMemberAccess]", "[reportArgumentType]", "[reportDeprecated]"),
}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_what_vendors_copy_is_clean(checker: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shown = documented(tmp_path)
    assert len(shown) >= 3, "the Python programs of README and docs"
    for folder, options in (("made", ()), ("http", ("--http",))):
        assert main(["new", "acme", "--directory", str(tmp_path / folder), *options]) == 0
    written, http = (sorted((tmp_path / folder).rglob("*.py")) for folder in ("made", "http"))
    assert len(written) >= 10
    assert len(http) >= 15
    mistake = tmp_path / "mistake.py"
    mistake.write_text(MISTAKE)
    read = [*shown, *written, *http, mistake, Path(__file__), ROOT / "tests" / "support" / "typecheck.py"]
    with remembered(request, f"types-{checker}", read) as known:
        if not known:
            _check(checker, tmp_path, shown, written, http, mistake)


def _check(
    checker: str, folder: Path, shown: Mapping[Path, Unit], written: list[Path], http: list[Path], mistake: Path
) -> None:
    # The examples are among mypy's own files, for `make lint`.
    files = [*shown, *written, mistake]
    # Both packages have modules of the same names, which mypy takes one set of at a time.
    if checker == "mypy":
        told = mypy(files, shown) + mypy(http, shown)
    else:
        told = pyright([*files, *http, *COPIED], shown, folder)
    found = [line for line in told if line.startswith("mistake.py:")]
    others = [line for line in told if line not in found]
    assert others == [], "\n".join(others)
    assert all(any(rule in line for line in found) for rule in FOUND[checker]), found
