"""Do `cloudprovider` and `controllers` mean this distribution's packages? Asked at import.

Both import names are generic: a folder of the same name beside a vendor's main.py, or another
installed package, hides ours or is hidden by it. The import system is asked without importing
anything; an ImportError names both paths."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds both packages of this distribution."""


def check() -> None:
    """Raise ImportError if another `controllers` is found in place of ours, or hides behind ours.

    Of hidden ones those beside the program that runs (a vendor's main.py) count."""
    spec = find_spec("controllers")
    if spec is not None and spec.origin is not None and Path(spec.origin).resolve().parent != ROOT / "controllers":
        _refuse(Path(spec.origin).resolve(), "controllers")
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    if program is None:
        return
    for name in ("cloudprovider", "controllers"):
        beside = Path(program).resolve().parent / name
        if beside != ROOT / name and any(beside.glob("*.py")):
            _refuse(beside, name)


def _refuse(theirs: Path, name: str) -> None:
    raise ImportError(
        f"two packages are named {name!r}: {theirs} and {ROOT / name}, which belongs to kubernetes-cloud-provider. "
        f"Python can import only one of them. Rename the first, or move it into a package of yours."
    )
