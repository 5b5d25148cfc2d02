"""Status, threads, indicators."""

from __future__ import annotations

import threading

from controllers.endpoints.health import Check, HealthMetrics, report
from controllers.endpoints.pages import sli_page, statusz, threads
from controllers.runtime.metrics import Metrics


def test_status_has_the_lines_of_the_kubernetes_components() -> None:
    text = statusz("ccm", 1_700_000_000.0, 1_700_000_000.0 + 3 * 86400 + 62, ["/a", "/b"])
    lines = text.splitlines()
    assert lines[1] == "ccm statusz"
    assert lines[4:6] == ["Started: Tue Nov 14 22:13:20 UTC 2023", "Up: 72 hr 01 min 02 sec"]
    assert [line.partition(":")[0] for line in lines[6:]] == ["Python version", "Binary version", "Paths"]
    assert lines[-1] == "Paths: /a /b"
    assert "Up: 0 hr 00 min 00 sec" in statusz("ccm", 10.0, 5.0, [])


def test_every_thread_is_shown_with_its_stack_and_without_values() -> None:
    go, secret = threading.Event(), "hunter2-in-a-variable"

    def wait_for_the_test(password: str) -> None:
        assert password
        go.wait(20)

    thread = threading.Thread(target=wait_for_the_test, args=(secret,), name="vendor\n[+]forged")
    thread.start()
    try:
        text = threads()
    finally:
        go.set()
        thread.join()
    assert "\nvendor\\n[+]forged\n" in text
    assert ", in wait_for_the_test" in text
    assert "MainThread" in text
    assert secret not in text


def test_indicators_follow_the_checks() -> None:
    metrics = Metrics()
    metrics.counter("other_total", "x").inc()
    looks = HealthMetrics(metrics)
    looks.observe("healthz", [Check("ping", True), Check("rights-nodes", False, "x")])
    looks.observe("livez", [Check("ping", True)])
    looks.observe("healthz", [Check("ping", False)])
    text = sli_page(metrics)().body.decode()
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert set(samples) == {
        'kubernetes_healthcheck{name="ping",type="healthz"} 0.0',
        'kubernetes_healthcheck{name="ping",type="livez"} 1.0',
        'kubernetes_healthchecks_total{name="ping",status="error",type="healthz"} 1.0',
        'kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 1.0',
        'kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1.0',
        'kubernetes_healthchecks_total{name="rights-nodes",status="error",type="healthz"} 1.0',
    }


def test_excluded_checks_are_told_and_unknown_ones_too() -> None:
    checks = [Check("a", False, "x"), Check("b", True)]
    assert report("healthz", checks, excluded=["a"]) == (200, "ok")
    assert report("healthz", checks, excluded=["a", "nope"], verbose=True) == (
        200,
        '[+]a excluded: ok\n[+]b ok\nwarn: some health checks cannot be excluded: no matches for "nope"\n'
        "healthz check passed\n",
    )
    assert report("healthz", checks, excluded=["b"])[0] == 500
