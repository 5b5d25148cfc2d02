"""``python -m tests.lab.envtest.versions v1.33.13``: the kube-apiserver of another version, to run
the tests over it.

The module that pins the suite's own version has sums for every dependency. This one is made on the
spot, in the cache, from the pins of that version's own ``go.mod``: `k8s.io/kubernetes` names its
staging modules by folders, which as public modules are version 0.y.z. It prints the folder for
``KUBEBUILDER_ASSETS``, in which etcd is the suite's own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.lab.envtest.build import KUBERNETES, assets, cache

_VERSION = re.compile(r"v1\.(\d+\.\d+(?:-[a-z0-9.]+)?)")


def build(version: str) -> Path:
    """The folder with that version's kube-apiserver, and etcd. Minutes, once.

    Raises SystemExit for what is no version, and subprocess.CalledProcessError where Go refuses.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        raise SystemExit(f"{version!r} is no version of Kubernetes, such as v1.33.13")
    folder = cache() / "versions" / version
    program = folder / "kube-apiserver"
    if not program.is_file():
        source = folder / "module"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        shutil.copy(KUBERNETES / "kube-apiserver" / "main.go", source)
        (source / "go.mod").write_text(_module(version, f"v0.{found[1]}"))
        _go(source, "mod", "tidy")
        flags = "-s -w " + " ".join(
            f"-X {package}.gitVersion={version}"
            for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        )
        _go(source, "build", "-trimpath", "-ldflags", flags, "-o", str(program), ".")
        shutil.rmtree(source)
    etcd = folder / "etcd"
    if not etcd.exists():
        etcd.symlink_to(assets(build=True) / "etcd")
    return folder


def _module(version: str, staging: str) -> str:
    """The text of a ``go.mod`` that pins all that Kubernetes of that version pins."""
    answer = json.loads(_go(None, "mod", "download", "-json", f"k8s.io/kubernetes@{version}"))
    described = json.loads(_go(None, "mod", "edit", "-json", answer["GoMod"]))
    names = [one["New"]["Path"].rpartition("/")[2] for one in described["Replace"] or []]
    lines = [
        "module envtest/version",
        f"go {described['Go']}",
        *(f"require {one['Path']} {one['Version']}" for one in described["Require"] if one["Version"] != "v0.0.0"),
        f"require k8s.io/kubernetes {version}",
        *(f"replace k8s.io/{name} => k8s.io/{name} {staging}" for name in names),
    ]
    return "\n".join(lines) + "\n"


def _go(folder: Path | None, *arguments: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    done = subprocess.run(
        ["go", *arguments], cwd=folder or cache(), env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


if __name__ == "__main__":
    for one in sys.argv[1:]:
        print(build(one))
