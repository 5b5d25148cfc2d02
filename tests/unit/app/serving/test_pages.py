"""Status, threads, indicators, and the parser under any bytes."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.app.serving import Check, HealthMetrics, http1, report
from controllers.app.serving.http1 import BadRequest, Request
from controllers.app.serving.pages import sli_page, statusz, threads
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


@given(st.binary(max_size=600))
def test_any_bytes_are_a_request_or_a_bad_one(data: bytes) -> None:
    try:
        end = http1.head_end(data)
        found = http1.parse(data[:end] if end else data, "10.0.0.1")
    except BadRequest:
        return
    assert isinstance(found, Request)
    assert found.method.isalpha()
    assert " " not in found.target
    assert all(name == name.lower().strip() for name in found.headers)


WORD = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1, max_size=20)


@given(
    st.sampled_from(["GET", "HEAD", "POST"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=255), min_size=1, max_size=100),
    st.dictionaries(WORD, st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30), max_size=5),
)
def test_what_is_written_is_read_again(method: str, target: str, headers: dict[str, str]) -> None:
    head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    found = http1.parse(head.encode("latin-1") + b"\r\n", "10.0.0.1")
    assert (found.method, found.target) == (method, target)
    assert {key.lower() for key in headers} == set(found.headers)


@pytest.mark.parametrize("size", [http1.MAX_HEAD - 1, http1.MAX_HEAD, 10 * http1.MAX_HEAD])
def test_a_head_without_an_end_is_refused_at_its_bound(size: int) -> None:
    if size < http1.MAX_HEAD:
        assert http1.head_end(b"x" * size) == 0
    else:
        with pytest.raises(BadRequest):
            http1.head_end(b"x" * size)
