"""``python -m tests.envtest``: have kube-apiserver, etcd and the tools ready, or say which tests will be skipped."""

import os
import sys

from tests.envtest.build import TOOLS, AssetsMissing, assets, tool


def main() -> int:
    missing = []
    try:
        print(f"real API server: {assets()}")
    except AssetsMissing as problem:
        missing.append(f"real API server tier will be SKIPPED: {problem}")
    for name in TOOLS:
        try:
            print(f"{name}: {tool(name)}")
        except AssetsMissing as problem:
            missing.append(f"checks of the manifests with {name} will be SKIPPED: {problem}")
    print("\n".join(missing), end="\n" * bool(missing), file=sys.stderr)
    return 1 if missing and os.environ.get("REQUIRE_REAL_API_SERVER") else 0


if __name__ == "__main__":
    sys.exit(main())
