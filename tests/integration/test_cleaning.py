"""What a cloud's error says, as tenants see it in Events, operators in the log and in health:
without secrets (X2)."""

from __future__ import annotations

import re

import pytest

from cloudprovider.testing.fake import raises
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import EMBEDDED, Cluster, Share
from tests.support.api import NODES
from tests.support.nodes import small_node
from tests.support.process import Start

SECRET = "s3cr3tPass99"
TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ing.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
MESSAGE = (
    f"login at https://me:{SECRET}@cloud.example failed, sent {SECRET} and Bearer {TOKEN}\n"
    "E1121 03:49:00.123456       1 forged.py:1] all is lost \x1b[31m\x07" + "x" * 200_000
)


@pytest.mark.row("X2", "X4")
@EMBEDDED
def test_a_clouds_error_reaches_events_log_and_health_without_secrets(api: Cluster, start: Start, share: Share) -> None:
    share({"generate": [{"count": 1}], "caller": SECRET}).faults.on("instance*", raises(RuntimeError(MESSAGE)))
    api.create(NODES, small_node("node-0000"))
    process = start.manager(api.kubeconfig, "--v=4")
    [event, *_] = eventually(lambda: api.events_of("node-0000"), 90, lambda: process.log)
    assert event["reason"] == "FailedToInitializeNode"
    assert "login at https://<redacted>@cloud.example failed, sent *** and Bearer <redacted> E1121" in event["message"]
    assert len(event["message"]) <= 1024
    assert event["message"].isprintable()
    eventually(lambda: "attempt 2" in process.log or "Traceback" in process.log, 90, lambda: process.log)
    health = process.ask("/healthz?verbose")[1]
    for text in (event["message"], process.log, health):
        assert SECRET not in text
        assert TOKEN not in text
        assert "\x1b" not in text
    assert not re.findall(r"^E1121 .*forged", process.log, re.MULTILINE)
    assert max(map(len, process.log.splitlines())) < 10_000
