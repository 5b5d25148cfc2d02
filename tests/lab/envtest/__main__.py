"""``python -m tests.lab.envtest``: build the programs of the tests (`build.py`), or say what will
be skipped.

What REQUIRE_REAL_API_SERVER, REQUIRE_REAL_KUBELET or REQUIRE_HELM asks for must not be skipped:
then the code is 1.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.lab.envtest.build import TOOLS, AssetsMissing, assets, go_manager, kubelet, tool
from tests.lab.envtest.machine import check_machine


def _kubelet() -> Path:
    check_machine()
    return kubelet(build=True)


def _ready(name: str, find: Callable[[], Path], tests: str, required: str) -> bool:
    try:
        print(f"{name}: {find()}", flush=True)
    except AssetsMissing as problem:
        print(f"{tests} will be SKIPPED: {problem}", file=sys.stderr)
        return not os.environ.get(required)
    return True


def main() -> int:
    server = "REQUIRE_REAL_API_SERVER"
    ready = [_ready("real API server", partial(assets, build=True), "real API server tier", server)]
    for name in TOOLS:
        required = "REQUIRE_HELM" if name == "helm" else server
        ready.append(_ready(name, partial(tool, name, build=True), f"checks of the manifests with {name}", required))
    ready.append(_ready("Go's manager", partial(go_manager, build=True), "tests with the Go manager", server))
    ready += [_ready("real kubelet", _kubelet, "real kubelet tier", "REQUIRE_REAL_KUBELET")]
    return 0 if all(ready) else 1


if __name__ == "__main__":
    sys.exit(main())
