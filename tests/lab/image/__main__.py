"""``python -m tests.lab.image``: build the image on Debian's packages, look at it, and run the
manager from it.

1. Two bases by mmdebstrap: python3 with certificates, and the same with python3-venv for the stages
   that install.
2. examples/deploy/image/Dockerfile by buildah, with examples/samplecloud as the provider.
3. As a user without rights and without a place to write: --version, --help, and against the real
   API server a node of the fake cloud and one of the sample's are initialised.
4. How large it is, and what makes it so.

Where buildah or mmdebstrap is missing it stops with a warning, or fails where
REQUIRE_REAL_API_SERVER is set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.envtest.server import RealAPIServer
from tests.lab.image.archives import BASES, DOCKERFILE, ROOT, debian
from tests.lab.image.buildah import Buildah
from tests.support.api import API, NODES
from tests.support.https import free_port
from tests.support.nodes import small_node

TOOLS = ("buildah", "mmdebstrap")
USER = "65532"
OTHER_USER = "12345:12345"
"""Some platforms choose the user themselves."""
CLOUDS = {
    "fake": "generate: [{count: 2}]\n",
    "samplecloud": json.dumps(
        {
            "region": "north",
            "vpc": "vpc-1",
            "subnet": "subnet-1",
            "state_file": "/cloud/state.json",
            "load_balancer_range": "198.51.100.0/24",
            "instances": [
                {"id": "i-1", "name": "node-0001", "zone": "north-1", "type": "small", "addresses": ["10.0.0.1"]}
            ],
        }
    ),
}
NODE_OF = {"fake": "node-0000", "samplecloud": "node-0001"}
SECONDS = 60.0


def main() -> int:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        print(f"the image is NOT BUILT: {' and '.join(missing)} not found; apt-get install them", file=sys.stderr)
        return 1 if os.environ.get("REQUIRE_REAL_API_SERVER") else 0
    with tempfile.TemporaryDirectory(prefix="image-") as temporary:
        folder = Path(temporary)
        buildah = Buildah(folder / "storage")
        with step("base of Debian packages"):
            base, build_base = (buildah.base(name, debian(*packages)) for name, packages in BASES.items())
        with step("image"):
            buildah.build("ccm", DOCKERFILE, ROOT, BASE=f"localhost/{base}", BUILD_BASE=f"localhost/{build_base}")
        container = buildah("from", "localhost/ccm")
        look(buildah, container)
        with step("runs"):
            run_flags(buildah, container)
            run_manager(buildah, container, folder)
        tell_size(buildah, container)
    return 0


@contextmanager
def step(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


def look(buildah: Buildah, container: str) -> None:
    """What the image says about itself and holds: no root, nothing that its user may change, no
    pip."""
    config = buildah.inspect("localhost/ccm")["config"]
    assert config["User"] == f"{USER}:{USER}", config
    assert config["Entrypoint"][0].startswith("/opt/python/"), config
    written = shell(
        buildah, container, "find / -xdev -writable ! -type l ! -path '/proc/*' ! -path '/sys/*' ! -path '/dev/*'"
    )
    allowed = {"/tmp", "/var/tmp", "/run/lock", "/var/lock"}
    assert set(written.split()) <= allowed, f"the user may write to {set(written.split()) - allowed}"
    assert "pip" not in shell(buildah, container, "ls /opt/python/bin /opt/python/lib/*/site-packages").split()
    slow = "from controllers.runtime.protobuf import unusable; print(unusable())"
    why = shell(buildah, container, f"/opt/python/bin/python -I -c '{slow}'").strip()
    assert not why, f"Protobuf is not used in this image: {why}"


def run_flags(buildah: Buildah, container: str) -> None:
    """--version and --help, by the entry point."""
    version = output(buildah, container, "--version")
    assert re.fullmatch(r"cloud-controller-manager \d+\.\d+\.\d+", version), version
    text = output(buildah, container, "--help")
    assert "--cloud-provider" in text, text
    assert "--leader-elect" in text, text


def run_manager(buildah: Buildah, container: str, folder: Path) -> None:
    """Each provider initialises a node on the real API server; a SIGTERM ends the process with
    0."""
    server = RealAPIServer()
    try:
        server.start()
        admin = API(server.url, server.token, server.ca_file)
        for provider, cloud in CLOUDS.items():
            own = folder / provider
            own.mkdir()
            (own / "cloud.conf").write_text(cloud)
            server.write_kubeconfig(own / "kubeconfig")
            for path in (own, *own.iterdir()):
                os.chown(path, 12345, 12345)
            name = NODE_OF[provider]
            admin.create(NODES, small_node(name))
            initialise(buildah, container, own, provider, admin, name)
    finally:
        server.stop()


def initialise(buildah: Buildah, container: str, own: Path, provider: str, admin: API, name: str) -> None:
    flags = (f"--cloud-provider={provider}", "--cloud-config=/cloud/cloud.conf", "--kubeconfig=/cloud/kubeconfig")
    command = buildah.run_command(
        container,
        *entry(buildah),
        *flags,
        "--leader-elect=false",
        "--controllers=cloud-node",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        volumes=(f"{own}:/cloud",),
        user=OTHER_USER,
    )
    log = own / "log"
    with log.open("w") as to:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=to, stderr=to)
        try:
            while not (node := admin.get(f"{NODES}/{name}"))["spec"].get("providerID"):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() - began < SECONDS, f"{name} is not initialised:\n{log.read_text()}"
                time.sleep(0.1)
            print(f"{provider}: {name} is {node['spec']['providerID']} after {time.monotonic() - began:.1f} s")
            end(log)
            assert process.wait(45) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def end(log: Path) -> None:
    """SIGTERM to the manager itself, whose number stands in each of its log lines: buildah passes
    no signals on."""
    [number, *_] = re.findall(r"^I\d{4} \S+ +(\d+) ", log.read_text(), re.MULTILINE)
    os.kill(int(number), signal.SIGTERM)


def entry(buildah: Buildah) -> list[str]:
    return list(buildah.inspect("localhost/ccm")["config"]["Entrypoint"])


def output(buildah: Buildah, container: str, *flags: str) -> str:
    command = buildah.run_command(container, *entry(buildah), *flags, user=USER)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def shell(buildah: Buildah, container: str, text: str) -> str:
    command = buildah.run_command(container, "/bin/sh", "-c", f"{text} 2>/dev/null", user=USER)
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def tell_size(buildah: Buildah, container: str) -> None:
    """Uncompressed sizes of the parts, largest first."""
    mounted = buildah("mount", container)
    print(f"the image: {megabytes(Path(mounted)):.0f} MB, of which")
    for place, what in (
        ("opt/python", "the dependencies"),
        ("opt/manager", "the manager"),
        ("opt/provider", "the provider"),
        ("usr/lib/python3.11", "Debian's Python"),
        ("usr/bin", "Debian's programs, Python's among them"),
        ("usr/lib/x86_64-linux-gnu", "Debian's libraries"),
    ):
        if (Path(mounted) / place).exists():
            print(f"  {megabytes(Path(mounted) / place):6.1f} MB  {place}: {what}")
    [packages] = (Path(mounted) / "opt" / "python" / "lib").glob("*/site-packages")
    print("the largest dependencies:")
    for size, path in sorted(((megabytes(path), path) for path in packages.iterdir()), reverse=True)[:6]:
        print(f"  {size:6.1f} MB  {path.name}")
    buildah("umount", container)


def megabytes(path: Path) -> float:
    sizes = (entry.lstat().st_size for entry in [path, *path.rglob("*")] if not entry.is_symlink())
    return sum(sizes) / 1e6


if __name__ == "__main__":
    sys.exit(main())
