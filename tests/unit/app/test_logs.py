"""Log lines: both formats, levels, and what never appears in them."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterator

import pytest

from controllers.app import logs

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ing"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    names = ["", "urllib3", "kubernetes", *logs.OURS]
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = list(root.handlers)
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def written(format: str, verbosity: int = 0) -> tuple[io.StringIO, logging.Logger]:
    stream = io.StringIO()
    logs.setup(format, verbosity, stream)
    return stream, logging.getLogger("controllers.node.controller")


def test_text_has_klogs_header() -> None:
    stream, log = written("text")
    log.warning("node %s: %s", "n1", "slow")
    assert re.fullmatch(r"W\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_logs\.py:\d+\] node n1: slow\n", stream.getvalue())


@pytest.mark.parametrize(("level", "letter"), [("info", "I"), ("warning", "W"), ("error", "E"), ("critical", "F")])
def test_text_begins_with_the_level(level: str, letter: str) -> None:
    stream, log = written("text")
    getattr(log, level)("x")
    assert stream.getvalue()[0] == letter


def test_json_is_one_object_per_line() -> None:
    stream, log = written("json")
    log.info("node %s", "n1\nn2")
    log.error("second")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first["msg"] == "node n1\nn2"
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
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        log.exception("failed")
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
    try:
        raise RuntimeError(message)
    except RuntimeError:
        log.exception("failed")
    assert TOKEN not in stream.getvalue()
    assert stream.getvalue().count("redacted") >= 2


def test_ordinary_messages_are_not_redacted() -> None:
    text = "basic example at https://10.0.0.1:6443/api/v1/nodes/n1 of fake://i-1: token bucket empty"
    assert logs.redact(text) == text


def test_verbosity_opens_our_loggers_and_never_the_clients_bodies() -> None:
    _, log = written("text", 0)
    assert not log.isEnabledFor(logging.DEBUG)
    _, log = written("text", 4)
    assert log.isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("urllib3.connectionpool").isEnabledFor(logging.DEBUG)
    _, log = written("text", 10)
    assert logging.getLogger("urllib3.connectionpool").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("kubernetes.client.rest").isEnabledFor(logging.INFO)


def test_a_second_setup_replaces_the_first() -> None:
    first, _ = written("text")
    second, log = written("json")
    log.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_warnings_become_log_lines() -> None:
    stream, _ = written("text")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
    assert "old thing" in stream.getvalue()
