"""At the end of a run, one line says which rows of the list of known pains its tests proved.

A test names its rows by ``@pytest.mark.row("N5", "M3")``, on itself, its class or its module. A row
counts as proved when a test of it passed and none failed. The rows travel in the reports, so the
line is the same under xdist. After a run of the whole suite (no path, no -k, no -m) a second line
names the rows that are not proved.

The last line of a run says which tiers were left out because their programs are not built yet.

Hypothesis does not judge by the clock: how long an example takes on a busy machine says nothing
about the code.
"""

import gc
import importlib
import logging
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, settings
from xdist.scheduler.loadgroup import LoadGroupScheduling

from tests.lab.envtest.build import NOT_BUILT

# A container's image may forbid to write bytecode: then each worker, and each of the hundreds of
# programs that tests start, would compile all sources and rewrite all assertions again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

_LOGGERS = ("", "cloudprovider", "controllers", "kubernetes", "urllib3")


@contextmanager
def _levels_kept() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    yield
    logging.disable(logging.NOTSET)
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


class _Everywhere:
    """For the tests of examples/ as well, which run in the same processes."""

    @pytest.fixture(autouse=True)
    def log_levels(self) -> Iterator[None]:
        """Whatever a test lets the program do to the levels of the log is undone, so that the next
        one can count lines."""
        with _levels_kept():
            yield

    @pytest.fixture(autouse=True, scope="module")
    def log_levels_of_module(self) -> Iterator[None]:
        """The same for a module's own fixtures, which may run a manager."""
        with _levels_kept():
            yield


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Everywhere(), "everywhere")


@pytest.fixture(autouse=True)
def threads_of_broken_providers() -> Iterator[None]:
    """Threads without end that a broken provider has left are no reason to end a later test's
    program at once, which would end the worker process too: it takes them for daemons."""
    yield
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            setattr(thread, "_daemonic", True)  # noqa: B010 - the property refuses it while the thread runs


_PROPERTY = "row"
_ROW = re.compile(r"([A-Z]+)(\d+)")
_LAST = {"N": 45, "S": 34, "R": 16, "M": 14, "K": 32, "X": 17, "O": 25, "P": 10}
"""The list of known pains: N is about nodes, S about Services, R routes, M the manager, K the
runtime, X security, O operation, P providers. The number is the last row of each."""


def _rows_of(item: pytest.Item) -> list[str]:
    rows = [str(name) for mark in item.iter_markers("row") for name in mark.args]
    for name in rows:
        match = _ROW.fullmatch(name)
        if match is None or not 1 <= int(match[2]) <= _LAST.get(match[1], 0):
            raise pytest.UsageError(f"{item.nodeid}: {name!r} names no row of conftest.py; a row looks like N5")
    return rows


_WAITING = ("tests/integration/", "tests/lab/", "examples/")
"""Their tests wait for processes, clocks and servers; all others compute."""
_FIRST = ("real-0", "real-1")
"""Groups that take a worker most of the run."""
_UNTIL = 0.6
"""The part of the run over which those that wait are spread, so that none is left for the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        _rows_of(item)
    if hasattr(config, "workerinput"):  # a worker of xdist
        items[:] = _spread(items)


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Modules that wait among those that compute: xdist hands them out in this order, and while
    all workers wait the cores are idle. A module stays together, for its fixtures. Pure."""
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(_module(item.nodeid), []).append(item)
    waiting = [name for name in modules if name.startswith(_WAITING)]
    computing = [name for name in modules if not name.startswith(_WAITING)]
    places = {name: number / len(computing) for number, name in enumerate(computing)}
    places |= {name: _UNTIL * number / len(waiting) for number, name in enumerate(waiting)}
    spread = [item for name in sorted(modules, key=places.__getitem__) for item in modules[name]]
    return sorted(spread, key=lambda item: not any(mark.args[0] in _FIRST for mark in item.iter_markers("xdist_group")))


def _module(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class _ByModule(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out groups, and of all other tests a module at a time: test by test, every worker makes
    the fixtures of every module, and the controller sends 12,000 messages."""

    def _split_scope(self, nodeid: str) -> str:
        group = str(super()._split_scope(nodeid))
        return _module(nodeid) if group == nodeid else group

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        # Otherwise each end of a test counts all that the worker has done since the start.
        for scope in [scope for scope, unit in workload.items() if all(unit.values())]:
            del workload[scope]
        return int(super()._pending_of(workload))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # `_spread` is the order
    return _ByModule(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each worker imports another part of the tests first, so that in a fresh checkout it compiles
    that part, and finds the others' bytecode for the rest. A module that cannot be imported is told
    by the collection."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    root = Path(__file__).parent
    asked = [Path(argument.partition("::")[0]).resolve() for argument in session.config.args]
    files = [file for file in sorted(root.rglob("test_*.py")) if any(file.is_relative_to(one) for one in asked)]
    begin = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in [*files[begin:], *files[:begin]]:
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(root.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What collection made stays to the end: no later collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.user_properties.extend((_PROPERTY, name) for name in _rows_of(item))
    return report


def _is_whole(config: pytest.Config) -> bool:
    """Whether the run was asked for everything."""
    narrowed = any(config.getoption(name, None) for name in ("keyword", "markexpr", "deselect", "lf", "ignore"))
    return config.args_source is not pytest.Config.ArgsSource.ARGS and not narrowed


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    def rows(*outcomes: str) -> set[str]:
        reports = [report for outcome in outcomes for report in terminalreporter.getreports(outcome)]
        properties = [pair for report in reports for pair in getattr(report, "user_properties", ())]
        return {str(value) for name, value in properties if name == _PROPERTY}

    def order(row: str) -> tuple[str, int]:
        match = _ROW.fullmatch(row)
        assert match is not None
        return match[1], int(match[2])

    proved = rows("passed") - rows("failed", "error")
    if proved:
        terminalreporter.write_line(f"rows proved: {' '.join(sorted(proved, key=order))}")
    if terminalreporter.getreports("passed") and _is_whole(config):
        every = {f"{letter}{number}" for letter, last in _LAST.items() for number in range(1, last + 1)}
        missing = sorted(every - proved, key=order)
        told = " ".join(missing)
        terminalreporter.write_line(f"rows not proved: {told or 'none'}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Wraps the terminal's own hook, which prints the figures: this line comes after them."""
    yield
    terminal: TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
    reasons = [report.longrepr for report in terminal.getreports("skipped")] if terminal is not None else []
    tiers = Counter(
        reason[2].removeprefix("Skipped: ").partition(":")[0]
        for reason in reasons
        if isinstance(reason, tuple) and NOT_BUILT in reason[2]
    )
    if terminal is not None and tiers:
        left_out = ", ".join(f"{tier} ({count} tests)" for tier, count in tiers.items())
        helm = " (helm with REQUIRE_HELM=1)" if "helm" in tiers else ""
        terminal.write_line(f"left out: {left_out}; `make envtest` builds what they need, once, in minutes{helm}")
