"""The pages on the way of an object are true of a Node and of a Service: their tables name every
module that they enter, and no other.

The whole manager runs over the embedded API server with the fake cloud, with one controller on. A
profile function notes which of our functions its threads enter from the moment that a Node appears
until it is initialised and has its Event; the same for a Service, and for a Node whose machine is
gone. An earlier object has gone the same way before, so that nothing is entered for the first time.
"""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
from attrs import Factory, define, frozen

from cloudprovider import CloudConfig
from cloudprovider.testing import objects
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import FakeCloud, new_provider
from cloudprovider.testing.waiting import eventually
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER
from controllers.testing.managerrun import ManagerRun
from tests.support.api import STRATEGIC
from tests.support.pages import ROOT

WAYS_PAGE: Final = "docs/explanation/way-of-an-object.md"
OTHERS: Final = ("architecture", "where-a-change-belongs")
ALL: Final = "What every object enters"
"""The modules that every way enters. Each way has a section of its own."""
ALL_PAGE: Final = "docs/explanation/what-every-object-enters.md"
PRODUCT: Final = (f"{ROOT}/cloudprovider/", f"{ROOT}/controllers/")
KIT: Final = (f"{ROOT}/cloudprovider/testing/", f"{ROOT}/tests/")
"""What these call, they call for themselves: the API server, the cloud, the test."""

BEATS: Final[Mapping[str, str]] = {
    "controllers/endpoints/health.py": "health is looked at every few seconds",
    "controllers/manager/servercheck.py": "the API server is asked whether it is there",
    "controllers/manager/accesscheck.py": "missing permissions are looked for again",
    "controllers/manager/provider_host.py": "after the start, installed packages are looked at once",
    "controllers/runtime/election/elector.py": "the lease is renewed every two seconds",
    "controllers/route/condition.py": "it stands in for the route controller where that is off",
    "controllers/service/orphans.py": "it stands in for the service controller where that is off",
}
"""What the manager does as time passes, whatever there is to do: these modules, and all that they
call, do not count."""
LATE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("controllers/manager/assembly.py", "controllers/manager/runner.py"),
        "every second the manager looks whether it has to end",
    ),
    "controllers/runtime/base.py": "periodic actions begin after the workers, on a slow machine after the first object",
    **dict.fromkeys(
        ("controllers/runtime/api/wire/dialing.py", "controllers/runtime/api/tls.py"),
        "a connection is made only where none is idle at that moment",
    ),
    **dict.fromkeys(
        ("controllers/runtime/api/errors.py", "controllers/runtime/cache/retries.py",
         "controllers/runtime/cache/listing.py", "controllers/runtime/cache/lists.py",
         "cloudprovider/internal/backoff.py"),
        "on a slow machine something is late, or meets a conflict, and is done again",
    ),
}  # fmt: skip
"""Modules that may be entered or not, as time decides, and why. The pages need not name them."""
LEFT_OUT: Final = {**BEATS, **LATE}
BEATING: Final = tuple(f"{ROOT}/{module}" for module in BEATS)


@frozen
class Row:
    """One row of a table of the page: the number of its line, its stage, the modules it names."""

    line: int
    stage: str
    modules: tuple[str, ...]


@frozen
class Run:
    """What a way is walked on."""

    server: EmbeddedAPIServer
    cloud: FakeCloud

    def join(self, name: str, number: int) -> None:
        """A kubelet registers its Node; returns once it is initialised and has its Event."""
        self.server.create(objects.node(name, pod_cidrs=[f"10.244.{number}.0/24"]))
        eventually(lambda: not self._is_uninitialized(name))
        self._await_event(name, "Synced")

    def expose(self, name: str, number: int) -> None:
        """Somebody creates a Service; returns once it has its address and its Event."""
        self.server.create(objects.service(name, ports=[80 + number]))
        eventually(lambda: self.server.get("services", name)["status"]["loadBalancer"].get("ingress"))
        self._await_event(name, "EnsuredLoadBalancer")

    def lose(self, name: str, number: int) -> None:
        """A machine goes, and its kubelet is silent; returns once its Node is deleted."""
        self.cloud.console.remove_instance(name)
        silent = {"status": {"conditions": [objects.ready_condition(False)]}}
        self.server.patch("nodes", name, silent, subresource="status", content_type=STRATEGIC)
        eventually(lambda: all(node["metadata"]["name"] != name for node in self.server.list("nodes")))
        self._await_event(name, "DeletingNode")

    def _is_uninitialized(self, name: str) -> bool:
        taints = self.server.get("nodes", name)["spec"].get("taints") or ()
        return any(taint["key"] == TAINT_EXTERNAL_CLOUD_PROVIDER for taint in taints)

    def _await_event(self, name: str, reason: str) -> None:
        eventually(
            lambda: any(
                event["involvedObject"]["name"] == name and event["reason"] == reason
                for event in self.server.list("events")
            )
        )


@frozen
class Way:
    """One of the ways: the page's section, the controller that is on, the initialised Nodes that
    are there before the start, and what happens, first to another object and then to the one whose
    way is noted."""

    section: str
    what: str
    controller: str
    act: Callable[[Run, str, int], None]
    names: tuple[str, str]
    before: tuple[str, ...] = ()


WAYS: Final = (
    Way("One new Node", "a new Node", "cloud-node", Run.join, ("n1", "n2")),
    Way(
        "One new Service of type LoadBalancer",
        "a new Service",
        "service",
        Run.expose,
        ("web", "shop"),
        before=("n1", "n2"),
    ),
    Way(
        "One Node whose machine is gone",
        "a Node whose machine is gone",
        "cloud-node-lifecycle",
        Run.lose,
        ("n1", "n2"),
        before=("n1", "n2", "n3", "n4"),
    ),
)
FLAGS: Final = (
    "--leader-elect=true",
    "--node-status-update-frequency=10m",
    "--load-balancer-drift-check-period=10m",
    "--load-balancer-orphan-check-period=10m",
)
"""Nothing happens that nobody asked for; but the lifecycle controller has to ask twice, soon."""


@define
class Notes:
    """A profile function, which notes code that is entered. For any number of threads."""

    on: bool = False
    seen: dict[tuple[str, str], None] = Factory(dict)
    """The file and the function. Not the code: equal code of two files is one key."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not self.on or not code.co_filename.startswith(PRODUCT):
            return
        function = code.co_filename, code.co_qualname
        if function in self.seen or code.co_name == "<module>":
            return
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_filename.startswith(KIT + BEATING):
                return
            caller = caller.f_back
        self.seen[function] = None

    def modules(self) -> dict[str, str]:
        """The modules entered, each with one of its functions."""
        noted = {file.removeprefix(f"{ROOT}/"): name for file, name in reversed(list(self.seen))}
        return {module: name for module, name in noted.items() if not module.startswith("controllers/testing/")}


@contextmanager
def profiled(notes: Notes) -> Iterator[None]:
    """Every thread that is started meanwhile is noted."""
    threading.setprofile(notes)
    try:
        yield
    finally:
        notes.on = False
        threading.setprofile(None)


def walk(way: Way, named: set[str], folder: Path) -> dict[str, str]:
    """The modules that the way enters, each with one of its functions."""
    config = CloudConfig(path="", data=b"instances: [{name: n1}, {name: n2}, {name: n3}, {name: n4}]\n")
    cloud, notes = new_provider(config), Notes()
    flags = (*FLAGS, f"--controllers={way.controller}")
    with profiled(notes), EmbeddedAPIServer() as server:
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        for name in way.before:
            server.create(objects.node(name, provider_id=f"fake://i-{name}", uninitialized=False))
        with ManagerRun(kubeconfig, cloud, flags, config=config):
            run = Run(server, cloud)
            first, second = way.names
            way.act(run, first, 11)
            notes.on = True
            way.act(run, second, 12)
            # The last things, as the metrics of the Event's request, happen after what can be seen
            # from outside. Where they do not come, the comparison says which they are.
            with suppress(AssertionError):
                eventually(lambda: named <= notes.modules().keys(), timeout=10.0)
            notes.on = False
    return notes.modules()


def page_of(section: str) -> str:
    return ALL_PAGE if section == ALL else WAYS_PAGE


def rows_of(section: str) -> list[Row]:
    """The rows of the tables under that heading, by their lines."""
    lines = (ROOT / page_of(section)).read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.lstrip("#") == f" {section}")
    end = next((n for n, line in enumerate(lines) if n > start and line.startswith("##")), len(lines))
    rows = []
    for number in range(start, end):
        cells = [cell.strip() for cell in lines[number].split("|")]
        if len(cells) == 5 and (modules := re.findall(r"`([\w/]+\.py)`", cells[2])):
            rows.append(Row(number + 1, cells[1], tuple(modules)))
    return rows


def first_line(module: str) -> str:
    """What a module says of itself, for the row that is missing."""
    text = ast.get_docstring(ast.parse((ROOT / module).read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def test_the_tables_name_every_module_that_is_entered_and_no_other(tmp_path: Path) -> None:
    tables = {section: rows_of(section) for section in (ALL, *(way.section for way in WAYS))}
    lines = {(section, module): row.line for section, rows in tables.items() for row in rows for module in row.modules}
    entered: dict[str, dict[str, str]] = {}
    for number, way in enumerate(WAYS):
        named = {module for section, module in lines if section in (ALL, way.section)}
        (folder := tmp_path / str(number)).mkdir()
        entered[way.section] = walk(way, named - LEFT_OUT.keys(), folder)
    problems = []
    for module in sorted(set().union(*entered.values(), (module for _, module in lines)) - LEFT_OUT.keys()):
        by = [way for way in WAYS if module in entered[way.section]]
        right = {ALL} if len(by) == len(WAYS) else {way.section for way in by}
        there = {section for section, named in lines if named == module}
        who = ", ".join(way.what for way in by) or "none of the three"
        problems += [
            f"{page_of(section)}:{lines[section, module]}: delete `{module}` from {section!r}: it is entered by {who}"
            for section in sorted(there - right)
        ]
        problems += [
            f"{page_of(section)}: add a row for `{module}` to the table of {section!r}: it is entered by {who}, "
            f"for example {entered[by[0].section][module]}(). It says: {first_line(module)}"
            for section in sorted(right - there)
        ]
    assert not problems, "The pages show another way than the true one:\n" + "\n".join(problems)


def test_rows_stand_in_the_order_of_the_stages() -> None:
    for section in (ALL, *(way.section for way in WAYS)):
        stages = [row.stage for row in rows_of(section)]
        assert stages == sorted(stages), f"{page_of(section)}, {section!r}"  # figures come before "beside"
        assert set(stages) <= {*"123456", "beside"}


@pytest.mark.parametrize("page", [ALL_PAGE, WAYS_PAGE, *(f"docs/explanation/{name}.md" for name in OTHERS)])
def test_files_that_the_pages_name_exist(page: str) -> None:
    named = re.findall(r"`((?:cloudprovider|controllers|tests|examples)/[\w/]+\.py)`", (ROOT / page).read_text())
    assert named
    assert sorted({name for name in named if not (ROOT / name).is_file()}) == []


def test_modules_left_out_exist() -> None:
    assert [f"{name} ({why})" for name, why in LEFT_OUT.items() if not (ROOT / name).is_file()] == []
