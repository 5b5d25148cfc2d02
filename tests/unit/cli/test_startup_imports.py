"""--help and bad flags are answered at once: what they import is light."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "cloudprovider.interface",
    "cloudprovider.helpers",
    "kubernetes",
    "prometheus_client",
    "ssl",
    "http.client",
    "urllib3",
    "asyncio",
)


def test_reading_every_flag_imports_no_controller_and_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from controllers.cli.main import help_text\n"
        "from controllers.catalog import CATALOG\n"
        "from controllers.flags.parse import table\n"
        "assert '--load-balancer-node-window' in help_text('x', table(CATALOG))\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "controllers.service.options" in loaded
    assert sorted(loaded & {*HEAVY}) == []
    assert sorted(name for name in loaded if name.endswith((".controller", ".reconcile", ".runtime"))) == []
