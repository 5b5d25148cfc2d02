"""Finds the programs of Kubernetes, etcd and Go's manager for the tests, and what checks manifests.

``KUBEBUILDER_ASSETS`` wins where it is set (the envtest convention). Otherwise the programs are in
the user's cache, under a name made of the pins in the ``go.mod`` of their folders here, so that a
changed pin builds anew. Only ``make envtest`` and ``make cluster`` build (`build=True`): by the Go
toolchain, from the public modules that are pinned. A test finds what is there, or is left out
(`tests/support/tiers.py`). All programs of Kubernetes are in one module, so that they share what is
compiled. helm, kustomize and kubeconform are built in the same way, from ``tools/go.mod``, helm
only when it is asked for.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
KUBERNETES = HERE / "kubernetes"
SUITE = HERE.parent / "e2e" / "suite"
PROGRAMS = ("etcd", "kube-apiserver")
"""What KUBEBUILDER_ASSETS must hold."""
CLUSTER_PROGRAMS = ("kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl", "coredns")
"""The programs of the module ``kubernetes/`` that only `make cluster` needs."""
TOOLS = {
    "helm": "helm.sh/helm/v4/cmd/helm",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform",
    "kustomize": "sigs.k8s.io/kustomize/kustomize/v5",
}
"""The tools that check the manifests of examples/deploy, by their Go packages."""
E2E = {
    "suite": "./",
    "agnhost": "k8s.io/kubernetes/test/images/agnhost",
}
"""The programs of `make e2e` alone, by their Go packages in the module tests/lab/e2e/suite."""
OPERATOR = "github.com/prometheus-operator/prometheus-operator"
"""The module that holds the definitions of PodMonitor and PrometheusRule."""

NOT_BUILT = "is not built yet: "
"""In the message of AssetsMissing, before the command that builds what is missing."""


class AssetsMissing(Exception):
    """A tier of the tests cannot run here; the message says what is missing and what to install."""


def assets(*, build: bool = False) -> Path:
    """The folder that holds ``kube-apiserver`` and ``etcd``; with `build` they are built where
    needed (minutes, once).

    Raises:
        AssetsMissing: ``KUBEBUILDER_ASSETS`` lacks a program, or they are not built, or there is no
        Go toolchain to build them. subprocess.CalledProcessError: the Go build failed; its output
        is on standard error.

    May be called from many processes at once: a file lock lets one of them build.
    """
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        missing = [name for name in PROGRAMS if not (Path(given) / name).is_file()]
        if missing:
            raise AssetsMissing(f"KUBEBUILDER_ASSETS={given} lacks {' and '.join(missing)}")
        return Path(given)
    own = {"etcd": HERE / "etcd", "kube-apiserver": KUBERNETES}
    folder = cache() / _pins(HERE / "etcd", KUBERNETES, KUBERNETES / "kube-apiserver")
    without_go = (
        "the real API server needs a Go toolchain to build it, or KUBEBUILDER_ASSETS naming a folder with "
        "kube-apiserver and etcd"
    )
    for name in PROGRAMS:
        package = "./" if name == "etcd" else f"./{name}"
        _have(folder / name, own[name], package, without_go=without_go, build=build)
    return folder


def kubelet(*, build: bool = False) -> Path:
    """The program ``kubelet``.

    The folders that envtest's own tools make for ``KUBEBUILDER_ASSETS`` have none; then it is built
    as well. Raises as `assets`; may be called from many processes at once.
    """
    given = Path(os.environ.get("KUBEBUILDER_ASSETS") or os.devnull, "kubelet")
    if given.is_file():
        return given
    target = cache() / _pins(KUBERNETES, KUBERNETES / "kubelet") / "kubelet"
    without_go = "the kubelet needs a Go toolchain to build it, or one in KUBEBUILDER_ASSETS"
    return _have(target, KUBERNETES, "./kubelet", build=build, without_go=without_go)


def cluster_program(name: str, *, build: bool = False) -> Path:
    """One of ``CLUSTER_PROGRAMS``. Raises as `assets`; may be called from many processes."""
    target = cache() / _pins(KUBERNETES, KUBERNETES / name) / name
    return _have(target, KUBERNETES, f"./{name}", build=build)


def kubernetes_version() -> str:
    """The version of Kubernetes that is pinned, such as v1.36.3."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (KUBERNETES / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, "kubernetes/go.mod does not pin k8s.io/kubernetes"
    return found[1]


def go_manager(*, build: bool = False) -> Path:
    """Go's cloud-controller-manager over a cloud of the benchmarks.

    ``PROGRAM describe`` prints its flags and feature gates. Raises as `assets`; may be called from
    many processes.
    """
    return bench_program("goccm", build=build)


def trial_manager(*, build: bool = False) -> Path:
    """Go's cloud-controller-manager over the local cloud. Raises as `assets`; may be called from
    many processes."""
    source = HERE.parent / "cluster" / "trials" / "goccm"
    return _have(cache() / _pins(source) / "goccm", source, build=build, by="make trials")


def bench_program(name: str, *, build: bool = False) -> Path:
    """One of the Go programs of tests/lab/bench. Raises as `assets`; may be called from many
    processes."""
    source = HERE.parent / "bench" / name
    return _have(cache() / _pins(source) / name, source, build=build)


def tool(name: str, *, build: bool = False, always: bool = False) -> Path:
    """A program of ``TOOLS``; helm, which takes many minutes, is built only where REQUIRE_HELM is
    set, or with `always`.

    Raises as `assets`; may be called from many processes at once.
    """
    source = HERE / "tools"
    target = cache() / f"tools-{_pins(source)}" / name
    if name == "helm" and not target.is_file() and not (always or os.environ.get("REQUIRE_HELM")):
        raise AssetsMissing(f"helm {NOT_BUILT}`make envtest REQUIRE_HELM=1`, many minutes")
    return _have(target, source, TOOLS[name], build=build)


def e2e_program(name: str, *, build: bool = False) -> Path:
    """A program of ``E2E``: Kubernetes' end-to-end tests, and what they need (many minutes, once).
    Raises as `assets`; may be called from many processes at once."""
    return _have(cache() / f"e2e-{_pins(SUITE)}" / name, SUITE, E2E[name], build=build, by="make e2e")


def e2e_sources() -> Path:
    """Kubernetes' sources in Go's module cache, of the version of the end-to-end tests.

    Raises AssetsMissing without a Go toolchain, CalledProcessError where the module cannot be had.
    """
    return _module("k8s.io/kubernetes", SUITE, "the end-to-end tests need Go's module cache")


def operator_definitions() -> list[Path]:
    """The CustomResourceDefinitions of the Prometheus operator that the chart uses, from its Go
    module.

    Raises AssetsMissing without a Go toolchain, CalledProcessError where the module cannot be had.
    """
    without_go = "the definitions of PodMonitor and PrometheusRule come with a Go module"
    folder = _module(OPERATOR, HERE / "crds", without_go) / "example" / "prometheus-operator-crd"
    kinds = ("podmonitors", "servicemonitors", "prometheusrules")
    return [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in kinds]


def _module(name: str, source: Path, needed_for: str) -> Path:
    """The folder of the Go module `name` in the version that ``source/go.mod`` pins."""
    go = shutil.which("go")
    if go is None:
        raise AssetsMissing(f"{needed_for}: install Go")
    command = [go, "mod", "download", "-json", name]
    answer = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    return Path(json.loads(answer.stdout)["Dir"])


def _have(
    target: Path, source: Path, package: str = "./", *, build: bool, by: str = "make envtest", without_go: str = ""
) -> Path:
    """Build `package` in the module at `source` into `target`, unless it is there; `by` is the
    command that does it. `without_go`: what is said where Go is missing. Returns `target`."""
    if target.is_file():
        return target
    if not build:
        raise AssetsMissing(f"{target.name} {NOT_BUILT}`{by}`")
    go = shutil.which("go")
    if go is None:
        raise AssetsMissing(without_go or f"{target.name} is built by a Go toolchain, and there is none")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_file():
            return target
        print(f"building {target.name} into {target.parent} (once; this can take some minutes)", flush=True)
        partial = target.with_suffix(".partial")
        command = [go, "build", "-trimpath", "-ldflags", _link_flags(source), "-o", str(partial), package]
        subprocess.run(command, cwd=source, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
        partial.rename(target)
    return target


def _link_flags(source: Path) -> str:
    """No tables for a debugger; and the programs of Kubernetes say their version: helm asks the API
    server for it."""
    ours = source in (KUBERNETES, SUITE)
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version") if ours else ()
    return " ".join(["-s -w", *(f"-X {package}.gitVersion={kubernetes_version()}" for package in packages)])


def cache() -> Path:
    """The folder in which all that is built is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kubernetes-cloud-provider" / "envtest"


def _pins(*sources: Path) -> str:
    digest = hashlib.sha256()
    for source in sources:
        for file in (source / "go.mod", source / "go.sum", *sorted(source.glob("*.go"))):
            digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()[:16]
