"""The public names: complete, documented, and as light to import as they claim."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import cloudprovider
from cloudprovider import errors, helpers, wellknown

PACKAGE = Path(cloudprovider.__file__).parent
FILES = sorted((*PACKAGE.glob("[a-z]*.py"), *(PACKAGE / "helpers").glob("[a-z]*.py"), PACKAGE / "loading/registry.py"))
MODULES = [
    importlib.import_module(".".join(("cloudprovider", *path.relative_to(PACKAGE).with_suffix("").parts)))
    for path in FILES
]
LIGHT_HELPERS = {"cloudprovider.ips", "cloudprovider.kinds"}  # flat in the helpers, and used by flags without them
NOT_CONTRACT = {"cloudprovider.wellknown", "cloudprovider.threads", *LIGHT_HELPERS}
NOT_FLAT = {"Registry", "check_provider_name"}  # for tests of the registry itself, and the command line


def public_names(module: types.ModuleType) -> set[str]:
    """What a module defines or re-exports under a public name; submodules and imports of others'
    names aside."""
    return {
        name
        for name in dir(module)
        for value in [getattr(module, name)]
        if not name.startswith("_")
        and not (isinstance(value, types.ModuleType) and name not in module.__all__)
        and name not in {"annotations", "TYPE_CHECKING", "lazy"}
    }


@pytest.mark.parametrize("module", [cloudprovider, helpers], ids=lambda module: module.__name__)
def test_all_is_exactly_what_the_package_offers(module: types.ModuleType) -> None:
    assert len(module.__all__) == len(set(module.__all__))
    assert set(module.__all__) == public_names(module)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_each_modules_all_is_what_it_defines(module: types.ModuleType) -> None:
    defined = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and inspect.getmodule(value) is module
        and not isinstance(value, types.ModuleType)
        and (inspect.isclass(value) or inspect.isfunction(value))
    }
    assert defined <= set(module.__all__)
    assert set(module.__all__) <= set(vars(module))


def test_the_flat_namespace_holds_every_public_name_of_the_contract() -> None:
    contract = [
        module
        for module in MODULES
        if not module.__name__.startswith("cloudprovider.helpers") and module.__name__ not in NOT_CONTRACT
    ]
    wanted = {name for module in contract for name in module.__all__} - NOT_FLAT
    assert wanted | {"helpers", "wellknown"} == set(cloudprovider.__all__)


def test_the_helpers_are_flat_too() -> None:
    parts = [
        module
        for module in MODULES
        if module.__name__.startswith("cloudprovider.helpers.") or module.__name__ in LIGHT_HELPERS
    ]
    assert len(parts) >= 7
    assert {name for module in parts for name in module.__all__} == set(helpers.__all__)


def test_every_well_known_string_is_exported() -> None:
    constants = {name for name in vars(wellknown) if name.isupper()}
    assert constants == set(wellknown.__all__)
    values = [value for name in constants if isinstance(value := getattr(wellknown, name), str)]
    assert len(values) == len(set(values)), "two names for one string"


def walk() -> Iterator[tuple[str, object]]:
    for module in MODULES:
        yield module.__name__, module
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)) or inspect.getmodule(value) is not module:
                continue
            yield f"{module.__name__}.{name}", value
            if inspect.isclass(value):
                for method_name, method in vars(value).items():
                    target = method if isinstance(method, property) else getattr(method, "__func__", method)
                    if not method_name.startswith("_") and isinstance(target, property | types.FunctionType):
                        yield f"{module.__name__}.{name}.{method_name}", target


def documentation(value: object) -> str:
    """Its own, or for a method that overrides another, that one's; never a base class's for a
    class."""
    return (value.__doc__ if inspect.isclass(value) else inspect.getdoc(value)) or ""


def test_every_public_name_is_documented() -> None:
    names = dict(walk())
    assert len(names) > 200
    assert [name for name, value in names.items() if len(documentation(value).split()) < 2] == []


def tree(root: type[BaseException], classes: list[type[BaseException]], indent: str = "") -> Iterator[str]:
    """The exception tree as the docstring of `errors` draws it."""
    children = [one for one in classes if root in one.__bases__]
    for child in children:
        last = child is children[-1]
        yield f"{indent}{'└── ' if last else '├── '}{child.__name__}"
        yield from tree(child, classes, indent + ("    " if last else "│   "))


def test_the_drawn_exception_tree_is_the_real_one() -> None:
    classes = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(one, errors.CloudProviderError) for one in classes)
    drawn = [line.strip("\n") for line in inspect.cleandoc(errors.__doc__ or "").splitlines()]
    start = next(index for index, line in enumerate(drawn) if line.strip() == "Exception")
    block = drawn[start : drawn.index("", start)]
    indent = len(block[0]) - len(block[0].lstrip())
    assert [line[indent:] for line in block] == ["Exception", *tree(Exception, classes)]


def test_importing_the_contract_leaves_all_else_alone() -> None:
    """The official client, the commands, configurations and plugins; it registers nothing and reads
    no source."""
    code = """
import linecache, sys
import cloudprovider
from cloudprovider.loading.registry import _REGISTRY
for name in cloudprovider.__all__: getattr(cloudprovider, name)
assert not _REGISTRY._factories
assert not [name for name in linecache.cache if name.endswith('.py')]
print(*sys.modules)
assert 'fake' in cloudprovider.cloud_providers()
assert not [name for name in sys.modules if name.startswith('cloudprovider.testing')], 'a list imports no plugin'
import cloudprovider.commands.cli
assert 'kubernetes.client' not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.split())
    assert "cloudprovider.helpers.addresses" in modules
    heavy = {"kubernetes", "pydantic", "yaml", "urllib3", "importlib_metadata", "asyncio", "argparse", "controllers"}
    assert not heavy & modules
    others = ("cloudprovider.commands", "cloudprovider.config", "cloudprovider.testing")
    assert not [name for name in modules if name.startswith(others)]


FACES = [
    path
    for top in (PACKAGE, PACKAGE.parent / "controllers")
    for path in sorted(top.rglob("__init__.py"))
    if "= lazy(" in path.read_text()
]


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.parent.name)
def test_a_lazy_face_lists_the_same_names_for_type_checkers_and_at_run_time(path: Path) -> None:
    body = ast.parse(path.read_text()).body
    block = next(each for each in body if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test))
    imported = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    table = next(node for each in block.orelse for node in ast.walk(each) if isinstance(node, ast.Dict))
    listed = {name: module for module, names in ast.literal_eval(table).items() for name in names.split()}
    assert listed == imported
    face = importlib.import_module(".".join(path.parent.relative_to(PACKAGE.parent).parts))
    for name in listed:
        assert getattr(face, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_this_name'"):
        face.nothing_of_this_name  # noqa: B018
