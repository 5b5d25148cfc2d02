"""Provider packages as pip leaves them: modules beside a .dist-info folder with metadata, entry
points and a record.

Written into a folder that the test puts on sys.path: nothing is installed, and what is found is
real.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path


def write_distribution(
    folder: Path,
    name: str,
    *entries: str,
    version: str = "1.0",
    metadata: bool = True,
    group: str = "cloudprovider.providers",
    requires: Sequence[str] = (),
    **modules: str,
) -> None:
    """A distribution: its name, its entry points ("name = module:object"), what it requires, and
    the text of its modules."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    if metadata:
        more = "".join(f"Requires-Dist: {line}\n" for line in requires)
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")
    info.joinpath("entry_points.txt").write_text("\n".join([f"[{group}]", *entries]) + "\n")
    info.joinpath("RECORD").write_text("".join(f"{module}.py,,\n" for module in modules))
    for module, text in modules.items():
        folder.joinpath(f"{module}.py").write_text(textwrap.dedent(text))
