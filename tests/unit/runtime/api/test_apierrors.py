"""Each answer has one meaning, whoever sent it and however broken it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.runtime.api import ApiError, Response, from_status
from controllers.runtime.api import errors as apierrors
from controllers.runtime.api.errors import parse_retry_after
from tests.support.anyjson import json_values


def status_object(code: int, reason: str = "", message: str = "", **details: object) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", apierrors.BadRequest),
        (401, "Unauthorized", apierrors.Unauthorized),
        (403, "Forbidden", apierrors.Forbidden),
        (404, "NotFound", apierrors.NotFound),
        (409, "Conflict", apierrors.Conflict),
        (409, "AlreadyExists", apierrors.AlreadyExists),
        (410, "Gone", apierrors.Gone),
        (410, "Expired", apierrors.Gone),
        (422, "Invalid", apierrors.Invalid),
        (429, "TooManyRequests", apierrors.TooManyRequests),
        (500, "InternalError", apierrors.ServerError),
        (503, "ServiceUnavailable", apierrors.ServerError),
        (504, "Timeout", apierrors.ServerError),
        (405, "MethodNotAllowed", ApiError),
        (301, "", ApiError),
    ],
)
def test_one_class_per_meaning(status: int, reason: str, kind: type[ApiError]) -> None:
    body = json.dumps(status_object(status, reason, "because", name="n1")).encode()
    error = from_status(status, {}, body, method="GET", path="/x")
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (status, reason, "because")
    assert error.details == {"name": "n1"}
    assert str(error) == f"GET /x: {status}{' ' if reason else ''}{reason}: because"


@pytest.mark.parametrize(
    ("path", "name", "kind"),
    [
        ("/api/v1/nodes/n1", "n1", apierrors.ObjectNotFound),
        ("/api/v1/nodes/n1/status?fieldManager=x", "n1", apierrors.ObjectNotFound),
        ("/api/v1/nodes/n1", "c-1", apierrors.NotFound),  # a proxy that has no such cluster
        ("/api/v1/nodes/n1", None, apierrors.NotFound),
        ("/api/v1/namespaces/default/services/web", "default", apierrors.NotFound),
    ],
)
def test_only_a_404_that_names_the_object_proves_that_it_is_gone(path: str, name: object, kind: type[ApiError]) -> None:
    error = from_status(404, {}, status_object(404, "NotFound", name=name), method="GET", path=path)
    assert type(error) is kind


def test_an_error_event_of_a_watch_carries_its_own_code_and_the_reason_expired_wins_over_another() -> None:
    error = from_status(200, None, status_object(410, "Expired", "too old resource version"))
    assert type(error) is apierrors.Gone
    assert error.status == 410
    assert type(from_status(0, None, status_object(500, "InternalError"))) is apierrors.ServerError
    assert type(from_status(200, None, {"reason": "Expired"})) is apierrors.Gone


def test_a_404_of_a_page_proves_nothing_and_without_a_body_the_status_speaks() -> None:
    assert type(from_status(404, {}, b"404 page not found", path="/api/v1/nodes/n1")) is apierrors.NotFound
    assert str(from_status(503)) == "503"


def test_no_delay_comes_from_a_refusal_that_asks_for_no_repetition_nor_from_a_date_without_a_clock() -> None:
    assert from_status(404, {}, status_object(404, "NotFound", retryAfterSeconds=5)).retry_after is None
    assert parse_retry_after("Tue, 14 Nov 2023 22:13:50 GMT") is None


def test_a_proxys_page_becomes_a_short_message() -> None:
    error = from_status(502, {}, b"<html>" + b"x" * 10_000)
    assert type(error) is apierrors.ServerError
    assert error.message.startswith("<html>xxx")
    assert len(error.message) == apierrors.MAX_MESSAGE


def test_a_body_that_nests_without_end_is_no_object() -> None:
    deep = b'{"a":' + b"[" * 100_000
    assert type(from_status(500, {}, deep, path="/x")) is apierrors.ServerError
    with pytest.raises(apierrors.ServerError, match="no JSON object"):
        Response(200, {}, deep).json()


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"retry-after": "7"}, {}, 7.0),
        ({"retry-after": " 0 "}, {}, 0.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"retry-after": "2"}, {"retryAfterSeconds": 9}, 2.0),
        ({"retry-after": "soon"}, {}, None),
        ({"retry-after": "-1"}, {}, None),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, {}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:10 GMT"}, {}, 0.0),
        ({}, {"retryAfterSeconds": True}, None),
        ({}, {}, None),
    ],
)
def test_retry_after(headers: dict[str, str], details: dict[str, Any], seconds: float | None) -> None:
    error = from_status(429, headers, status_object(429, "TooManyRequests", **details), now=1_700_000_000.0)
    assert error.retry_after == seconds


def test_causes_are_found() -> None:
    body = status_object(403, "Forbidden", causes=[{"reason": "NamespaceTerminating", "field": "metadata.namespace"}])
    error = from_status(403, {}, body)
    assert error.has_cause("NamespaceTerminating")
    assert not error.has_cause("Other")
    assert not from_status(403, {}, {"details": {"causes": "junk"}}).has_cause("NamespaceTerminating")


def test_whether_a_lost_request_was_sent() -> None:
    assert apierrors.Unreachable("x").sent
    assert not apierrors.CredentialsUnavailable("x").sent
    assert not apierrors.ClientClosed("x", sent=False).sent


JSON = json_values()
FIELDS = st.sampled_from(["kind", "code", "reason", "message", "details"])


@given(
    st.integers(0, 599),
    st.binary(max_size=60) | JSON.map(lambda v: json.dumps(v).encode()) | st.dictionaries(FIELDS, JSON),
    st.none() | st.text(max_size=12),
)
def test_no_answer_is_unmapped(status: int, body: Any, retry_after: str | None) -> None:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    error = from_status(status, headers, body, method="GET", path="/x", now=0.0)
    assert isinstance(error, ApiError)
    assert isinstance(error.message, str)
    assert isinstance(error.reason, str)
    assert isinstance(str(error), str)
    error.has_cause("x")
