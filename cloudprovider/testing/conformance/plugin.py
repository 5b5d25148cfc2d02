"""The pytest plugin of the conformance suite: the option `--conformance-report=DIR`, and what it
collects.

It must stay cheap to import: it loads the suite only when a test that is a scenario has run.
Results travel in the reports' user properties, so that pytest-xdist's workers hand them to the
process that writes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from cloudprovider.testing.conformance.bench import Bench
    from cloudprovider.testing.conformance.features import Feature
    from cloudprovider.testing.conformance.registry import Scenario
    from cloudprovider.testing.conformance.report import Outcome, ProviderFacts, Result

BENCH: pytest.StashKey[Bench] = pytest.StashKey()
"""Where the bench of a test class is kept, on its pytest node."""
FAILED: pytest.StashKey[dict[str, dict[str, Feature]]] = pytest.StashKey()
"""On a module: by provider, the scenarios that failed without a cluster, with their features."""
OUTLIVED: pytest.StashKey[list[threading.Thread]] = pytest.StashKey()
"""On the configuration: threads of providers that outlive the stop signal."""

_PROPERTY = "conformance"
_NOT_RUN = "not run: "  # how the reason of a skipped scenario begins that another failure keeps from running
_OPTION = "--conformance-report"
_COLLECTOR = "cloudprovider-conformance-collector"
_WEIGHT = {"skipped": 0, "not run": 0, "passed": 1, "failed": 2}
"""What counts where several classes test one provider: a failure before a success, that before a
skip."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "conformance of cloud providers")
    group.addoption(
        _OPTION,
        metavar="DIR",
        default=None,
        help="write conformance-PROVIDER.json and .md into this folder: each scenario with its result",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Collector(config.getoption(_OPTION)), _COLLECTOR)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marked = _scenario(item)
    if marked is not None:
        # What is left behind in the end says nothing about whether the provider works.
        if report.failed and report.when != "teardown" and marked.level == "provider":
            _remember_failure(item, marked)
        report.user_properties.append((_PROPERTY, json.dumps(_facts(item, marked.id, report))))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The scenarios of a class come by family and number, whatever the order of its bases: those
    without a cluster first, which say what is wrong, and in seconds."""
    places: dict[object, list[int]] = {}
    for index, item in enumerate(items):
        if _scenario(item) is not None:
            places.setdefault(item.getparent(pytest.Class), []).append(index)
    for indices in places.values():
        # In the class's own places: other tests of the module stay where they are.
        found = sorted((items[index] for index in indices), key=_order)
        for index, item in zip(indices, found, strict=True):
            items[index] = item


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Threads that no daemon is and that never end would keep the process for ever, without a
    word."""
    alive = [thread.name for thread in config.stash.get(OUTLIVED, []) if thread.is_alive()]
    collector = config.pluginmanager.get_plugin(_COLLECTOR)
    # A worker of pytest-xdist is ended by the process that started it.
    if alive and isinstance(collector, Collector) and not hasattr(config, "workerinput"):
        print(
            f"conformance: the provider's threads {', '.join(alive)} still run, so the process is ended by force. "
            "Make them daemons, or let them wait for the stop signal",
            file=sys.__stderr__, flush=True,
        )  # fmt: skip
        sys.stdout.flush()
        # With the run's own status, or a failed run would look like a good one.
        os._exit(collector.status)


def _scenario(item: pytest.Item) -> Scenario | None:
    found: Scenario | None = getattr(getattr(item, "function", None), "__conformance__", None)
    return found


def _order(item: pytest.Item) -> tuple[int, int]:
    found = _scenario(item)
    assert found is not None
    return found.order


def _remember_failure(item: pytest.Item, scenario: Scenario) -> None:
    module = item.getparent(pytest.Module)
    if module is not None:
        provider = str(getattr(getattr(item, "cls", None), "provider_name", ""))
        module.stash.setdefault(FAILED, {}).setdefault(provider, {})[scenario.id] = scenario.features


def _facts(item: pytest.Item, scenario: str, report: pytest.TestReport) -> dict[str, Any]:
    """What one phase (setup, call, teardown) of a scenario tells."""
    from cloudprovider.testing.conformance.features import feature_names

    cls = getattr(item, "cls", None)
    node = item.getparent(pytest.Class)
    bench = node.stash.get(BENCH, None) if node is not None else None
    kind = type(bench.provider) if bench is not None else None
    return {
        "scenario": scenario,
        "provider": getattr(cls, "provider_name", ""),
        "features": feature_names(cls.features) if cls is not None else (),
        "class": f"{kind.__module__}.{kind.__qualname__}" if kind is not None else "",
        "left_behind": list(bench.left_behind) if bench is not None else [],
        "reason": _reason(report),
    }


def _reason(report: pytest.TestReport) -> str:
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):  # skipped: file, line, "Skipped: reason"
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr)
    # Behind it stand the values that pytest adds, which may be long, and may hold secrets.
    return text.partition("\nassert ")[0].removeprefix("AssertionError: ")


def teller(config: pytest.Config) -> Callable[[str], None]:
    """Writes a line to the terminal while a test runs, whether or not its output is captured."""

    def tell(line: str) -> None:
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        capture = config.pluginmanager.get_plugin("capturemanager")
        if terminal is None:  # a worker of pytest-xdist has none
            return
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            terminal.ensure_newline()
            terminal.write_line(line)

    return tell


class Collector:
    """Gathers results by provider as the reports come in, and writes the files at the end of the
    run."""

    def __init__(self, folder: str | None) -> None:
        self.status = 0
        """The exit status of the run."""
        self._folder = folder
        self._results: dict[str, dict[str, Result]] = {}
        self._facts: dict[str, dict[str, Any]] = {}
        self._left: dict[str, list[str]] = {}
        self._lines: list[str] = []

    def results(self, provider: str) -> dict[str, Result]:
        """What is known of a provider so far, by scenario."""
        return self._results.get(provider, {})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY:
                self._add(json.loads(str(value)), report)

    def _add(self, facts: dict[str, Any], report: pytest.TestReport) -> None:
        from cloudprovider.testing.conformance.report import Result

        provider = str(facts["provider"])
        known = self._facts.setdefault(provider, facts)
        known["class"] = facts["class"] or known["class"]
        left = self._left.setdefault(provider, [])
        left += [one for one in facts["left_behind"] if one not in left]
        results = self._results.setdefault(provider, {})
        outcome: Outcome = report.outcome
        if outcome == "skipped" and facts["reason"].startswith(_NOT_RUN):
            outcome, facts["reason"] = "not run", facts["reason"].removeprefix(_NOT_RUN)
        before = results.get(facts["scenario"])
        seconds = round(report.duration + (before.seconds if before is not None else 0.0), 3)
        known["features"] = sorted({*known["features"], *facts["features"]})
        # Two classes over one provider: what fails in one of them is not right.
        if before is not None and _WEIGHT[before.outcome] > _WEIGHT[outcome]:
            results[before.id] = Result(before.id, before.outcome, before.reason, seconds)
        elif report.when == "call" or not report.passed:
            results[facts["scenario"]] = Result(facts["scenario"], outcome, facts["reason"], seconds)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self.status = int(exitstatus)
        if hasattr(session.config, "workerinput") or not self._results:
            return  # a worker of pytest-xdist: its results went to the process that started it
        from datetime import UTC, datetime

        from cloudprovider.testing.conformance import SCENARIOS, report

        finished = datetime.now(UTC).isoformat(timespec="seconds")
        for name, results in sorted(self._results.items()):
            found = report.as_json(
                _provider(name, self._facts[name]),
                results,
                sdk=_sdk(),
                finished=finished,
                left_behind=self._left[name],
                levels={SCENARIOS[id].level for id in results},
            )
            self._lines.append(f"conformance of {report.summary_line(found)}")
            self._lines += [f"conformance of {name}: left behind: {one}" for one in found["left_behind"]]
            if self._folder is not None:
                self._lines += [f"conformance of {name}: {path}" for path in report.write(Path(self._folder), found)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._lines:
            terminalreporter.write_line(line)


def _provider(name: str, facts: dict[str, Any]) -> ProviderFacts:
    from cloudprovider.loading.plugins import find_plugins
    from cloudprovider.testing.conformance.report import ProviderFacts

    offers = find_plugins().named(name)
    distribution = offers[0].distribution if offers else ""
    return ProviderFacts(name, distribution, str(facts["class"]), tuple(facts["features"]))


def _sdk() -> str:
    from importlib import metadata

    try:
        return f"kubernetes-cloud-provider {metadata.version('kubernetes-cloud-provider')}"
    except metadata.PackageNotFoundError:
        return "kubernetes-cloud-provider, not installed"
