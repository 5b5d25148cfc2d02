"""``python -m tests.envtest``: have kube-apiserver and etcd ready, or say why the tests over it will be skipped."""

import os
import sys

from tests.envtest.build import AssetsMissing, assets


def main() -> int:
    try:
        print(f"real API server: {assets()}")
    except AssetsMissing as missing:
        print(f"real API server tier will be SKIPPED: {missing}", file=sys.stderr)
        return 1 if os.environ.get("REQUIRE_REAL_API_SERVER") else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
