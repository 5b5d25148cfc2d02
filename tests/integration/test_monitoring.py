"""The alert rules and the dashboard of examples/deploy ask for metrics and labels that a running
manager has."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry, ProcessCollector

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import new_provider
from cloudprovider.testing.waiting import eventually
from controllers.app import Manager, ManagerOptions, Options
from controllers.endpoints.options import ServingOptions
from controllers.options.podnetwork import CIDRS, RouteSwitches
from controllers.route.registration import RouteOptions
from controllers.runtime.api import ClientBuilder
from controllers.service.orphans import UnservedMetrics
from tests.generate import ALERTS, ROOT, alerts_page

DASHBOARD = ALERTS.with_name("dashboard.json")
TARGET_LABELS = {"cluster", "instance", "job", "namespace", "pod"}
"""What Prometheus adds."""


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """With all controllers, at work."""
    options = Options(
        ManagerOptions(cloud_provider="fake"),
        {
            ServingOptions: ServingOptions(secure_port=0),
            RouteSwitches: RouteSwitches(allocate_node_cidrs=True),
            RouteOptions: RouteOptions(cluster_cidrs=CIDRS.parse("10.244.0.0/16")),
        },
    )
    stop = threading.Event()
    with EmbeddedAPIServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path_factory.mktemp("manager") / "kubeconfig")
        clients = ClientBuilder.from_options(kubeconfig=str(kubeconfig))
        manager = Manager(options, new_provider(None), clients)
        thread = threading.Thread(target=manager.run, args=[stop], daemon=True)
        thread.start()
        try:
            eventually(lambda: manager.metrics.value("service_controller_load_balancers") is not None, 60)
            yield manager
        finally:
            stop.set()
            thread.join(30)


@pytest.fixture(scope="module")
def labels(manager: Manager) -> dict[str, set[str]]:
    """The labels of each series that it has, by the series' name."""
    UnservedMetrics(manager.metrics)  # those of a manager without the service controller
    return _labels(manager)


def _labels(manager: Manager) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {name: set() for name in ("process_cpu_seconds_total", "process_start_time_seconds")}
    found["process_resident_memory_bytes"] = set()  # of the program, which the library does not measure
    for collector in set(manager.metrics.registry._collector_to_names):
        names = set(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            own = names | {label for sample in family.samples for label in sample.labels}
            for suffix in ("", "_total") if family.type == "counter" else ("", "_bucket", "_count", "_sum"):
                found[family.name + suffix] = own | ({"le"} if suffix == "_bucket" else set())
    return found


def test_the_page_of_metrics_has_every_family_of_a_manager(manager: Manager) -> None:
    """Those of the controllers that are off by default are compared in tests/unit/docs."""
    ProcessCollector(registry=(process := CollectorRegistry()))  # the program adds it: cli/main.py
    families = [*manager.metrics.registry.collect(), *process.collect()]
    served = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    assert len(served) > 70
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert served - set(re.findall(r"`([a-z_]+)", page)) == set()


def queries() -> Iterator[tuple[str, str]]:
    """Every query with where it is from."""
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            [series] = re.findall(r"^label_values\((.*), \w+\)$", variable["query"]["query"])
            yield variable["name"], series


def asked(expression: Any) -> Iterator[tuple[str, set[str]]]:
    """(series, labels asked for) of a parsed query: of its matchers, and of the groupings around
    it."""
    yield from _asked(expression, set())


def _asked(node: Any, grouped: set[str]) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, promql_parser.VectorSelector):
        assert node.name is not None, "a selector without a name"
        yield node.name, grouped | {matcher.name for matcher in node.matchers.matchers}
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from _asked(node.vector_selector, grouped)
    elif isinstance(node, promql_parser.AggregateExpr):
        yield from _asked(node.expr, set(node.modifier.labels) if node.modifier else set())
    elif isinstance(node, promql_parser.BinaryExpr):
        for side in (node.lhs, node.rhs):
            yield from _asked(side, grouped)
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from _asked(argument, grouped)
    elif isinstance(node, promql_parser.ParenExpr | promql_parser.UnaryExpr | promql_parser.SubqueryExpr):
        yield from _asked(node.expr, grouped)
    else:
        assert isinstance(node, promql_parser.NumberLiteral | promql_parser.StringLiteral), type(node)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def test_every_query_asks_for_series_and_labels_that_exist(labels: dict[str, set[str]]) -> None:
    problems = []
    for where, query in queries():
        for series, wanted in asked(promql_parser.parse(query)):
            if series not in labels:
                problems.append(f"{where}: there is no series {series}")
            elif not wanted <= labels[series] | TARGET_LABELS:
                problems.append(f"{where}: {series} has no label {wanted - labels[series] - TARGET_LABELS}")
    assert problems == []


def test_a_query_of_a_series_or_label_that_does_not_exist_would_be_found() -> None:
    found = list(asked(promql_parser.parse('sum by (zone) (rate(a_total{code="1"}[5m])) / on (instance) (b > 3)')))
    assert found == [("a_total", {"zone", "code"}), ("b", set())]


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 20
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, rule["alert"]
        assert len(rule["annotations"]["runbook"]) > 60, rule["alert"]
        shown = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        kept = {label for _, wanted in asked(promql_parser.parse(rule["expr"])) for label in wanted} | {"instance"}
        assert shown <= kept, rule["alert"]


def test_the_flags_and_events_in_runbooks_are_documented() -> None:
    documented = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md") if page.name != "alerts.md")
    found = 0
    for rule in rules():
        text = rule["annotations"]["runbook"]
        for word in re.findall(r"(?<!kubectl logs )(--[a-z]+-[a-z-]+)|reason=(\w+)|Events? ([A-Z]\w+)", text):
            [name] = filter(None, word)
            assert name in documented, f"{rule['alert']}: {name}"
            found += 1
    assert found >= 12


def test_what_runbooks_quote_is_said_by_the_program_or_a_page() -> None:
    sources = [path.read_text() for path in (ROOT / "controllers").rglob("*.py")]
    sources += [page.read_text() for page in (ROOT / "docs").rglob("*.md") if page.name != "alerts.md"]
    said = " ".join(re.sub(r'"?\n\s*f?"?', "", "".join(sources)).split())
    quoted = [text for rule in rules() for text in re.findall(r'"([^"]+)"', rule["annotations"]["runbook"])]
    assert len(quoted) >= 6
    assert [text for text in quoted if text not in said] == []


def test_checks_that_pages_name_are_on_healthz(manager: Manager) -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    named = re.findall(r"/healthz(?:\?verbose)?`\s\(`([\w-]+)`\)", text)
    assert len(named) >= 3
    eventually(lambda: not set(named) - {check.name for check in manager.health.endpoint("healthz")()}, 30)


def test_the_page_of_alerts_is_current() -> None:
    page = ROOT / "docs" / "reference" / "alerts.md"
    assert page.read_text() == alerts_page(ALERTS.read_text()), "run: make generate"


def test_the_dashboard_uses_its_own_variables_and_no_place_twice() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]+)", DASHBOARD.read_text())) == variables
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not own & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= own
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
