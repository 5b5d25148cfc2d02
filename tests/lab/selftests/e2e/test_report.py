"""What the suite's JUnit file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.e2e.report import read, unexpected

PASSED = "[It] [sig-network] LoadBalancers should be reachable [Feature:LoadBalancer] [Slow]"
FAILED = "[It] [sig-network] LoadBalancers should keep | the client [Feature:LoadBalancer]"
SKIPPED = "[It] [sig-network] LoadBalancers should use SCTP"
CASES = f"""
<testcase name="[SynchronizedBeforeSuite]" status="passed" time="1.5"></testcase>
<testcase name="{PASSED}" status="passed" time="61.6"></testcase>
<testcase name="{FAILED}" status="failed" time="30.2">
<failure message="" type="failed">[FAILED] Source IP was
  NOT preserved &lt;nil&gt;
In [It] at: k8s.io/kubernetes/loadbalancer.go:1077 @ 11/23/26
more</failure></testcase>
<testcase name="{SKIPPED}" status="skipped" time="0.1"><skipped message="skipped - no SCTP here"></skipped></testcase>
<testcase name="[It] [sig-apps] not chosen" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
<testcase name="[It] [sig-apps] pending" status="pending" time="0"><skipped message="pending"></skipped></testcase>
"""


def junit(folder: Path, cases: str = CASES) -> Path:
    path = folder / "junit.xml"
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return path


def test_only_the_chosen_tests_are_read(tmp_path: Path) -> None:
    results = read(junit(tmp_path))
    assert [(result.title, result.outcome, result.seconds) for result in results] == [
        ("LoadBalancers should be reachable", "passed", 61.6),
        ("LoadBalancers should keep | the client", "failed", 30.2),
        ("LoadBalancers should use SCTP", "skipped", 0.1),
    ]
    assert [result.reason for result in results] == [
        "",
        "[FAILED] Source IP was NOT preserved <nil>",
        "no SCTP here",
    ]


@pytest.mark.parametrize("status", ["failed", "panicked", "timedout", "interrupted", "aborted"])
def test_all_that_is_no_pass_is_a_failure(tmp_path: Path, status: str) -> None:
    cases = f'<testcase name="{PASSED}" status="{status}" time="1"><error message="why" /></testcase>'
    [result] = read(junit(tmp_path, cases))
    assert (result.outcome, result.reason) == ("failed", "why")


def test_a_suite_that_cannot_be_prepared_has_failed(tmp_path: Path) -> None:
    cases = '<testcase name="[SynchronizedBeforeSuite]" status="failed" time="2"><failure>no node</failure></testcase>'
    [result] = read(junit(tmp_path, cases))
    assert (result.name, result.outcome, result.reason) == ("[SynchronizedBeforeSuite]", "failed", "no node")


def test_a_report_without_a_test_is_empty(tmp_path: Path) -> None:
    assert read(junit(tmp_path, '<testcase name="[SynchronizedBeforeSuite]" status="passed" time="2" />')) == []


def test_an_unknown_status_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown status 'new'"):
        read(junit(tmp_path, f'<testcase name="{PASSED}" status="new" time="1"></testcase>'))


def test_what_has_no_known_reason_is_unexpected(tmp_path: Path) -> None:
    results = read(junit(tmp_path))
    assert unexpected(results, {}) == [
        "failed: LoadBalancers should keep | the client: [FAILED] Source IP was NOT preserved <nil>",
        "skipped: LoadBalancers should use SCTP: no SCTP here",
    ]
    known = {"keep | the client": "no address outside", "SCTP": "not in this kernel"}
    assert unexpected(results, known) == []


def test_what_cannot_pass_and_passes_is_unexpected(tmp_path: Path) -> None:
    problems = unexpected(read(junit(tmp_path)), {"should": "whatever"})
    assert problems == ["passed, but is listed as one that cannot pass: LoadBalancers should be reachable"]
