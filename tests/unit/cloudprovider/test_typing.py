"""The contract's types, as a vendor's type checker sees them: tests/typing/vendor.py passes, and
mistakes do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes.client.models import V1Node, V1ObjectMeta

from cloudprovider import CloudConfig, InformerUser, InstanceMetadata, InstanceNotFound
from tests.typing import vendor

pytestmark = pytest.mark.xdist_group("types")  # one after the other: the second one finds mypy's cache filled
ROOT = Path(__file__).parents[3]
VENDOR = ROOT / "tests" / "typing" / "vendor.py"

# One mistake each, and what the type checker calls it.
MISTAKES = [
    ("def instance_exists(self, node: V1Node) -> bool:", "def instance_exists(self, node: V1Node) -> str:", "override"),
    ("            instance_type=machine.flavour,", "            flavour=machine.flavour,", "call-arg"),
    ('            zone="north-1",', "            zone=1,", "arg-type"),
    ("    def master(self, cluster_name: str) -> str:", "    def main(self, cluster_name: str) -> str:", "abstract"),
    ('RetryError("the IPv6 address is not assigned yet", retry_after=5)', 'RetryError("not yet")', "call-arg"),
    ('return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip="192.0.2.1")])', "return None", "return-value"),
    ("    def set_informers(self, informers: Listers)", "    def set_informers(self, informers: str)", "attr-defined"),
    ("    factory: Factory = new_provider", "    factory: Factory = Acme", "assignment"),
]


def check(*files: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_vendors_file_passes_the_type_checker() -> None:
    assert check(VENDOR) == (0, "")


def test_the_type_checker_finds_a_vendors_mistakes(tmp_path: Path) -> None:
    text = VENDOR.read_text()
    files = []
    for number, (right, wrong, _) in enumerate(MISTAKES):
        assert text.count(right) == 1, f"{right!r} is no longer what the vendor writes"
        files.append(tmp_path / f"mistake{number}.py")
        files[-1].write_text(text.replace(right, wrong))
    code, told = check(*files)
    assert code == 1
    for file, (_, wrong, kind) in zip(files, MISTAKES, strict=True):
        assert any(file.name in line and f"[{kind}]" in line for line in told.splitlines()), f"{wrong!r}:\n{told}"


def test_what_the_vendor_wrote_also_runs() -> None:
    provider = vendor.new_provider(CloudConfig(path="", data=b"node-1\nnode-2"))
    nodes = [V1Node(metadata=V1ObjectMeta(name=name)) for name in ("node-1", "node-9")]
    batch = provider.instances_batch()
    assert batch is not None
    answers = batch.instances_metadata(nodes)
    found = answers["node-1"]
    assert isinstance(found, InstanceMetadata)
    assert (found.provider_id, found.node_addresses[0].address) == ("acme://node-1", "10.0.0.1")
    assert isinstance(answers["node-9"], InstanceNotFound)
    assert batch.max_batch == 250
    assert isinstance(provider, InformerUser)


@pytest.mark.parametrize("package", ["cloudprovider", "controllers"])
def test_the_packages_are_marked_as_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
