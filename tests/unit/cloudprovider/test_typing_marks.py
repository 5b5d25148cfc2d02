"""What type checkers are told beside the types: `override` on implementations, `deprecated` on
older interfaces."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import cloudprovider
from cloudprovider import Zone, Zones

EXAMPLES = Path(__file__).parents[3] / "examples"
CONTRACT = {
    found
    for name in cloudprovider.__all__
    if inspect.isclass(found := getattr(cloudprovider, name))
    and (inspect.isabstract(found) or found is cloudprovider.Interface)
}


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for info in pkgutil.iter_modules(package.__path__):
        if info.name != "main":
            yield importlib.import_module(f"{package.__name__}.{info.name}")


@pytest.fixture(
    params=[
        "cloudprovider.testing.fake",
        "samplecloud_provider",
        "aws_provider",
        "incus_provider",
        "libcloud_provider",
        "libvirt_provider",
        "localcloud_provider",
        "openstack_provider",
    ]
)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    before = set(sys.modules)
    for folder in ("samplecloud", "aws", "incus", "libcloud", "libvirt", "localcloud", "openstack"):
        monkeypatch.syspath_prepend(EXAMPLES / folder)
    if request.param == "libvirt_provider":
        pytest.importorskip("libvirt", reason="libvirt-python is not installed")
    yield importlib.import_module(request.param)
    for name in set(sys.modules) - before:
        if name.partition(".")[0].endswith("_provider"):
            del sys.modules[name]


def test_every_method_of_the_contract_is_marked_where_it_is_implemented(implementation: ModuleType) -> None:
    """So that a method that is renamed in the contract is an error of the type checker, and not
    silently unused."""
    looked_at, unmarked = 0, []
    for module in modules(implementation):
        for kind in vars(module).values():
            bases = set(getattr(kind, "__mro__", ())) & CONTRACT
            if not inspect.isclass(kind) or kind.__module__ != module.__name__ or not bases:
                continue
            for name, member in vars(kind).items():
                function = member.fget if isinstance(member, property) else member
                if name.startswith("_") or not any(name in vars(base) for base in bases):
                    continue
                looked_at += 1
                if inspect.isfunction(function) and not getattr(function, "__override__", False):
                    unmarked.append(f"{module.__name__}.{kind.__name__}.{name}")
    assert looked_at >= 10
    assert unmarked == []


def test_what_is_deprecated_says_so_to_type_checkers_and_warns_nobody_at_runtime() -> None:
    marked = {kind.__name__ for kind in CONTRACT if "__deprecated__" in vars(kind)}
    assert marked == {"Instances", "Zones", "PVLabeler"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Old(Zones):
            def get_zone(self) -> Zone:
                return Zone(region="r-1")

            def get_zone_by_provider_id(self, provider_id: str) -> Zone:
                return self.get_zone()

            def get_zone_by_node_name(self, node_name: str) -> Zone:
                return self.get_zone()

        assert Old().get_zone_by_node_name("n").region == "r-1"
