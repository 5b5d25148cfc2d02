"""Log lines: both formats, levels, and what never appears in them."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
import warnings

import pytest

from cloudprovider import Interface, register_cloud_provider
from cloudprovider.internal import cleaning
from cloudprovider.internal.cleaning import Cleaner
from controllers.manager.provider_host import load_provider
from controllers.process import logs

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ing"


def written(format: str, verbosity: int = 0) -> tuple[io.StringIO, logging.Logger]:
    stream = io.StringIO()
    logs.setup(format, verbosity, stream)
    return stream, logging.getLogger("controllers.node.controller")


def failed(log: logging.Logger, error: Exception, text: str = "failed") -> None:
    """This error is raised, and logged with its stack."""
    try:
        raise error
    except type(error):
        log.exception(text)


@pytest.mark.row("O5")
@pytest.mark.parametrize(("level", "letter"), [("info", "I"), ("warning", "W"), ("error", "E"), ("critical", "F")])
def test_text_has_klogs_header_and_the_message_as_it_is(level: str, letter: str) -> None:
    stream, log = written("text")
    text = "basic example at https://10.0.0.1:6443/api/v1/nodes/n1 of fake://i-1: token bucket empty"
    getattr(log, level)("node %s: %s", "n1", text, extra={"service": "default/web"})
    header = rf"{letter}\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} +\d+ test_logs\.py:\d+\] "
    assert re.fullmatch(header + re.escape(f"node n1: {text}\n"), stream.getvalue())


def test_json_is_one_object_per_line() -> None:
    stream, log = written("json")
    log.info("node %s", "n1\nn2")
    log.error("second")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first["msg"] == "node n1\\nn2"
    assert first["level"] == "info"
    assert first["logger"] == "controllers.node.controller"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first["ts"])
    assert first["caller"].startswith("test_logs.py:")
    assert second["level"] == "error"


def test_a_users_text_cannot_forge_a_line() -> None:
    stream, log = written("text")
    log.info("node %s", "n1\nE1121 00:00:00.000000 1 x.py:1] forged \x1b[31m")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("format", ["text", "json"])
def test_tracebacks_are_kept(format: str) -> None:
    stream, log = written(format)
    failed(log, RuntimeError("broken"))
    text = stream.getvalue()
    assert "RuntimeError: broken" in text
    if format == "json":
        assert "RuntimeError: broken" in json.loads(text)["error"]


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize(
    "message",
    [
        f"Authorization: Bearer {TOKEN}",
        f"headers {{'authorization': 'Basic {TOKEN}'}}",
        f'{{"token": "{TOKEN}"}}',
        f"password={TOKEN}",
        f"https://admin:{TOKEN}@10.0.0.1/",
        f"-----BEGIN RSA PRIVATE KEY-----\n{TOKEN}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{TOKEN}",
    ],
)
def test_credentials_are_never_written(format: str, message: str) -> None:
    stream, log = written(format)
    log.info("request failed: %s", message)
    failed(log, RuntimeError(message))
    assert TOKEN not in stream.getvalue()
    assert stream.getvalue().count("redacted") >= 2


@pytest.mark.row("X4")
@pytest.mark.parametrize("format", ["text", "json"])
def test_a_traceback_cannot_forge_a_line(format: str) -> None:
    stream, log = written(format)
    failed(log, RuntimeError('lost\nE1121 00:00:00.000000 1 x.py:1] forged\n{"level": "error"}\x1b[31m'))
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    if format == "text":
        assert [line for line in lines if not line.startswith("  ")] == lines[:1]
    else:
        assert len(lines) == 1
        assert all(line.startswith("  ") for line in json.loads(lines[0])["error"].splitlines())


@pytest.mark.row("X4")
@pytest.mark.parametrize("format", ["text", "json"])
def test_an_error_of_megabytes_is_a_short_line(format: str) -> None:
    stream, log = written(format)
    failed(log, RuntimeError("x" * 5_000_000), "failed: " + "x" * 5_000_000)
    assert len(stream.getvalue()) < 20_000


@pytest.mark.row("X2")
@pytest.mark.parametrize("format", ["text", "json"])
def test_what_is_concealed_is_in_no_line(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "_of_process", Cleaner(["s3cr3tValue"]))
    stream, log = written(format)
    try:
        raise RuntimeError("refused s3cr3tValue")
    except RuntimeError:
        log.exception("failed: %s", "refused s3cr3tValue")
    assert "s3cr3t" not in stream.getvalue()
    assert stream.getvalue().count("refused ***") == 3  # the message, the line of code, the exception


@pytest.mark.row("X4")
def test_a_record_that_cannot_be_made_is_told_without_its_arguments() -> None:
    stream = io.StringIO()
    handler = logs.setup("text", 0, stream)
    handler.handle(logging.LogRecord("acme", logging.INFO, "cloud.py", 7, "%d nodes", ("password=hunter2x",), None))
    assert "hunter2x" not in stream.getvalue()
    assert "a log line of acme at cloud.py:7 could not be written" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


@pytest.mark.row("X4")
def test_what_nobody_caught_in_a_thread_is_a_log_line() -> None:
    stream, _ = written("text")

    def fail() -> None:
        raise RuntimeError("password=hunter2x\nE1121 forged")

    with logs.uncaught():
        thread = threading.Thread(target=fail, name="worker-1")
        thread.start()
        thread.join()
    assert "thread worker-1 ended with an unhandled exception" in stream.getvalue()
    assert "hunter2x" not in stream.getvalue()
    assert "\nE1121 forged" not in stream.getvalue()


def test_verbosity_opens_our_loggers_and_never_the_clients_bodies() -> None:
    _, log = written("text", 0)
    assert not log.isEnabledFor(logging.DEBUG)
    _, log = written("text", 4)
    assert log.isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("urllib3.connectionpool").isEnabledFor(logging.DEBUG)
    _, log = written("text", 10)
    assert logging.getLogger("urllib3.connectionpool").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("kubernetes.client.rest").isEnabledFor(logging.INFO)


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        (0, ["info", "warning"]),
        (3, ["info", "warning"]),
        (4, ["debug", "info", "warning"]),
        (10, ["debug", "info", "warning"]),
    ],
)
def test_lines_of_the_provider_are_shown_at_the_levels_of_ours_cleaned(
    verbosity: int, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_followed", {})
    stream, _ = written("json", verbosity)
    logs.follow("acme_provider.cloud")
    log = logging.getLogger("acme_provider.client")
    for level in ("debug", "info", "warning"):
        getattr(log, level)("asked with token=%s", TOKEN, extra={"node": "n1"})
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["level"] for line in lines] == shown
    assert {line["logger"] for line in lines} == {"acme_provider.client"}
    assert {line["node"] for line in lines} == {"n1"}
    assert TOKEN not in stream.getvalue()
    logging.getLogger("boto3").debug("a library's own")
    assert "a library" not in stream.getvalue()


def test_the_provider_s_level_follows_the_verbosity_unless_it_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "_followed", {})
    written("text", 4)
    logs.follow("acme_two")
    logs.follow("acme_three")
    logging.getLogger("acme_three").setLevel(logging.ERROR)
    logs.keep("cloud provider acme")
    assert logging.getLogger("acme_two").isEnabledFor(logging.DEBUG)
    logs.set_verbosity(0)
    assert not logging.getLogger("acme_two.x").isEnabledFor(logging.DEBUG)
    logs.set_verbosity(5)
    assert logging.getLogger("acme_two.x").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("acme_three").isEnabledFor(logging.WARNING), "its own choice stays"
    before = logging.getLogger().level
    logs.follow("")
    logs.set_verbosity(4)
    assert logging.getLogger().level == before


def test_the_package_of_factory_and_provider_are_followed_from_the_factory_s_first_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "_followed", {})
    written("text", 4)
    seen = []

    class Acme(Interface):
        __module__ = "acme_cloud.provider"

        def provider_name(self) -> str:
            return "acme-logs"

    def factory(config: object) -> Interface:
        seen.append(logging.getLogger("acme_entry.x").isEnabledFor(logging.DEBUG))
        return Acme()

    factory.__module__ = "acme_entry"
    register_cloud_provider("acme-logs", factory)
    load_provider("acme-logs", "")
    assert seen == [True]
    assert logging.getLogger("acme_cloud").isEnabledFor(logging.DEBUG)


def test_lines_that_a_provider_passes_to_nobody_are_cleaned_too(capsys: pytest.CaptureFixture[str]) -> None:
    stream, _ = written("text")
    quiet = logging.getLogger("acme_that_passes_nothing_on")
    quiet.propagate = False
    quiet.warning("token=hunter2x")
    assert "token=<redacted>" in stream.getvalue()
    assert "hunter2x" not in capsys.readouterr().err


def test_a_second_setup_replaces_the_first() -> None:
    first, _ = written("text")
    second, log = written("json")
    log.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_loggers_that_other_threads_make_meanwhile_do_not_disturb_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look at an entry of Python's table of loggers is another thread's turn: it makes
    a logger."""
    loggers = logging.getLogger().manager.loggerDict
    to_make = ["made.meanwhile1", "made.meanwhile2"]

    class Watched:
        @property  # type: ignore[misc]  # isinstance asks for it
        def __class__(self) -> type:
            if to_make:
                logging.getLogger(to_make.pop())
            return Watched

    with monkeypatch.context() as patched:
        for name in ("first", "second"):
            patched.setitem(loggers, name, Watched())  # what the table never has
        stream, log = written("text")
    for name in ("made.meanwhile1", "made.meanwhile2", "made"):
        del loggers[name]
    log.info("here")
    assert "here" in stream.getvalue()


def test_warnings_become_log_lines() -> None:
    stream, _ = written("text")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
    assert "old thing" in stream.getvalue()


@pytest.mark.row("O5")
def test_json_has_the_fields_that_a_call_hands_over() -> None:
    stream, log = written("json")
    log.info(
        "built", extra={"service": "default/web\nI1121 forged", "provider": "acme", "duration": 51.2, "attempt": 3}
    )
    line = json.loads(stream.getvalue())
    assert (line["service"], line["provider"]) == ("default/web\\nI1121 forged", "acme")
    assert (line["duration"], line["attempt"]) == (51.2, 3)
    assert "node" not in line


@pytest.mark.row("O5")
def test_a_failing_key_is_fields_and_its_stack_apart() -> None:
    from controllers.runtime.queue.failurelog import FailureLog
    from tests.support.clock import FakeClock

    stream, log = written("json")
    failures: FailureLog[str] = FailureLog("Nodes", log, clock=FakeClock(), noun="node")
    error = KeyError("oops")
    failures.failed("n1", "retrying in 1 s", error, "oops", stack=True, fields={"retry_in": 1.0})
    line = json.loads(stream.getvalue())
    assert (line["node"], line["attempt"], line["retry_in"], line["error"]) == ("n1", 1, 1.0, "KeyError: oops")
    assert "KeyError" in line["stack"]


@pytest.mark.parametrize("format", ["text", "json"])
def test_each_message_begins_with_the_prefix(format: str) -> None:
    stream = io.StringIO()
    logs.setup(format, 0, stream, prefix="dry run: ")
    logging.getLogger("controllers.node.controller").info("deleted node %s", "n1")
    assert "dry run: deleted node n1" in stream.getvalue()
