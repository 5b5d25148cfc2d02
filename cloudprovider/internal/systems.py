"""The systems on which the programs run."""

from __future__ import annotations

import sys


def unsupported() -> str:
    """Why the programs cannot run on this system; "" where they can. The contract and its helpers
    can be imported anywhere."""
    try:
        import fcntl  # noqa: F401 - Windows has none
    except ImportError:
        return (
            f"this program runs on Linux, and on macOS for development; here ({sys.platform}) Python has no module "
            "fcntl. On Windows use WSL 2 or a container."
        )
    return ""
