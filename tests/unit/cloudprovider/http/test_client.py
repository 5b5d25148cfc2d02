"""Requests: what each answer becomes, pages, and that nothing is sent which nobody waits for."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import Call, CallDeadlineExceeded, CloudProviderError, Pending, QuotaExceeded, Throttled, call_scope
from cloudprovider.http import (
    Answer,
    Client,
    CloudError,
    ConflictError,
    Failures,
    NotFoundError,
    RefusedError,
    Resource,
    Said,
    StaticToken,
    next_link,
    path_of,
)
from cloudprovider.http.answers import LONGEST_WAIT, retry_after
from tests.unit.cloudprovider.http.cloud import Cloud, reply

TOKEN = "t0ken-of-the-tests"


class Server(Resource):
    id: str
    name: str


class Page(Resource):
    items: tuple[Server, ...]
    next: str | None


@pytest.fixture
def client(cloud: Cloud) -> Client:
    return Client(f"{cloud.url}/v1/", StaticToken(TOKEN))


def words(code: str, message: str = "") -> dict[str, object]:
    return {"error": {"code": code, "message": message}}


HTML = b"<html>of a proxy</html>"


@pytest.mark.row("P9")
@pytest.mark.parametrize(
    ("status", "body", "headers", "kind", "text"),
    [
        (200, HTML, {}, CloudProviderError, "GET /servers/1: the answer cannot be read: the body: Invalid JSON"),
        (200, {}, {}, CloudProviderError, "the answer cannot be read: id: Field required; name: Field required"),
        (204, b"", {}, CloudProviderError, "the answer cannot be read"),
        (301, HTML, {"Location": "/elsewhere"}, CloudError, "301 Moved Permanently"),
        (400, words("bad", "no such field"), {}, CloudError, "400 no such field"),
        (401, words("bad", f"no token {TOKEN}"), {}, CloudError, "does not accept the credentials"),
        (403, words("forbidden"), {}, CloudError, "403 forbidden. The credentials have no permission"),
        (403, words("forbidden", f"{TOKEN} may not"), {}, CloudError, "403 ... may not"),
        (404, words("not_found", "no such server"), {}, NotFoundError, "404 no such server"),
        (410, words("not_found", "deleted"), {}, NotFoundError, "410 deleted"),
        (404, words("no_such_path"), {}, CloudError, "not the cloud's own: check the endpoint"),
        (404, HTML, {}, CloudError, "404 Not Found. This answer is not the cloud's own"),
        (404, b"", {}, CloudError, "not the cloud's own"),
        (404, [], {}, CloudError, "not the cloud's own"),
        (409, words("busy", "still building"), {}, Pending, "409 still building"),
        (409, words("name_taken"), {}, ConflictError, "409 name_taken"),
        (422, words("invalid", "port 80 is reserved"), {}, RefusedError, "port 80 is reserved"),
        (403, words("quota_exceeded", "no more load balancers"), {}, QuotaExceeded, "403 no more load balancers"),
        (422, words("limit_exceeded"), {}, QuotaExceeded, "422 limit_exceeded"),
        (423, b"", {"Retry-After": "7"}, Pending, "423 Locked"),
        (429, b"", {}, Throttled, "429 Too Many Requests"),
        (500, HTML, {}, CloudError, "500 Internal Server Error"),
        (502, HTML, {}, CloudError, "502"),
        (503, HTML, {}, CloudError, "503"),
        (503, b"", {"Retry-After": "3"}, Throttled, "503"),
    ],
)
def test_what_each_answer_becomes(
    client: Client,
    cloud: Cloud,
    status: int,
    body: object,
    headers: dict[str, str],
    kind: type[CloudProviderError],
    text: str,
) -> None:
    cloud.answers.append(reply(status, body, **headers))
    with pytest.raises(CloudProviderError) as caught:
        client.get(Server, "/servers/1")
    assert type(caught.value) is kind
    assert text in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert [one.path for one in cloud.asked] == ["/v1/servers/1"]  # once: the host tries again


@pytest.mark.parametrize(
    ("status", "seconds"), [(429, 7.0), (503, 7.0), (423, 7.0), (409, 7.0)], ids=lambda one: str(one)
)
def test_the_time_that_the_cloud_names_is_kept(client: Client, cloud: Cloud, status: int, seconds: float) -> None:
    cloud.answers.append(reply(status, words("busy"), Retry_After="7"))
    with pytest.raises(CloudProviderError) as caught:
        client.get(Server, "/servers/1")
    assert isinstance(caught.value, Throttled | Pending)
    assert caught.value.retry_after == seconds


def test_a_cloud_with_words_of_its_own(cloud: Cloud) -> None:
    failures = Failures(lambda body: Said(body["id"], body["detail"]), frozenset({"gone"}), frozenset({"immutable"}))
    client = Client(cloud.url, failures=failures)
    cloud.answers.append(reply(404, {"id": "gone", "detail": "no such thing"}))
    with pytest.raises(NotFoundError, match="404 no such thing") as caught:
        client.get(Server, "/servers/1")
    assert (caught.value.status, caught.value.code) == (404, "gone")
    cloud.answers.append(reply(404, {"error": {"code": "not_found"}}))
    with pytest.raises(CloudError, match="not the cloud's own"):
        client.get(Server, "/servers/1")
    cloud.answers.append(reply(409, {"id": "immutable", "detail": "being changed"}))
    with pytest.raises(Pending, match="being changed"):
        client.get(Server, "/servers/1")


@pytest.mark.parametrize("codes", ["not_found", "", [""]])
def test_codes_that_would_be_found_in_every_404_are_refused(codes: str | list[str]) -> None:
    for name in ("not_found", "busy", "quota"):
        with pytest.raises(TypeError, match="must be a collection of words"):
            Failures(**{name: codes})  # type: ignore[arg-type]


def test_a_body_and_a_query_arrive_and_what_is_absent_is_deleted(client: Client, cloud: Cloud) -> None:
    cloud.answers += [reply(202, {"id": "1", "name": "a"}), reply(404, words("not_found")), reply(202, {"id": "op"})]
    answer = client.send("POST", "/servers", {"name": "a"}, fields={"dry run": "no&yes"})
    assert (answer.status, answer.read(Server)) == (202, Server(id="1", name="a"))
    assert client.delete("/servers/1") is None
    deleted = client.delete("/servers/1")
    assert deleted is not None
    assert deleted.data == b'{"id": "op"}'
    assert "op" not in repr(deleted)
    first = cloud.asked[0]
    assert (first.method, first.path, first.body) == ("POST", "/v1/servers?dry+run=no%26yes", b'{"name":"a"}')
    assert {one.headers["Authorization"] for one in cloud.asked} == {f"Bearer {TOKEN}"}


def test_nothing_is_sent_when_too_little_time_is_left(client: Client, cloud: Cloud) -> None:
    with call_scope(Call(deadline=1.2, monotonic=lambda: 0.0)), pytest.raises(CallDeadlineExceeded):
        client.send("POST", "/servers", {})
    assert cloud.asked == []


def test_a_cloud_that_is_not_there() -> None:
    with pytest.raises(CloudProviderError, match=r"GET /a: no answer from http://127.0.0.1:1/a \(time limit 30 s\)"):
        Client("http://127.0.0.1:1").get(Server, "/a", {"key": "v"})


def test_another_configuration_is_used_as_a_whole(client: Client, cloud: Cloud) -> None:
    cloud.answer = lambda asked: reply(200, {"id": "1", "name": "a"})
    client.use(f"{cloud.url}/v2", StaticToken("other"))
    client.get(Server, "/servers/1")
    assert [(one.path, one.headers["Authorization"]) for one in cloud.asked] == [("/v2/servers/1", "Bearer other")]


# pages


def by_cursor(page: Page, answer: Answer) -> dict[str, str] | None:
    return {"after": page.next} if page.next else None


def page(*names: str, after: str | None = None) -> dict[str, object]:
    return {"items": [{"id": name, "name": name} for name in names], "next": after}


def listed(client: Client) -> list[str]:
    pages = client.pages(Page, "/servers", {"limit": "2"}, following=by_cursor)
    return [server.name for one in pages for server in one.items]


def test_every_page_is_read_also_an_empty_one(client: Client, cloud: Cloud) -> None:
    cloud.answers += [reply(200, one) for one in (page("a", "b", after="b"), page(after="x"), page("c"))]
    assert listed(client) == ["a", "b", "c"]
    assert [one.path for one in cloud.asked] == [
        "/v1/servers?limit=2", "/v1/servers?limit=2&after=b", "/v1/servers?limit=2&after=x"
    ]  # fmt: skip


@pytest.mark.row("P6")
@pytest.mark.parametrize("bad", [(200, b"{}"), (200, b"[]"), (200, HTML), (200, b'{"items": null}'), (500, b"")])
def test_half_a_listing_is_no_listing(client: Client, cloud: Cloud, bad: tuple[int, bytes]) -> None:
    for good in ([], [reply(200, page("a", after="a"))]):
        cloud.answers += [*good, reply(*bad)]
        with pytest.raises(CloudProviderError):
            listed(client)


@given(cycle=st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
def test_pages_that_lead_in_a_circle_are_refused(cycle: list[str]) -> None:
    asked: list[str] = []

    class Circle(Client):
        def send(self, *args: object, **options: object) -> Answer:
            asked.append("")
            cursor = cycle[(len(asked) - 1) % len(cycle)]
            return Answer("GET /a", 200, {}, Page(items=(), next=cursor).model_dump_json().encode())

    with pytest.raises(CloudProviderError, match="leads back to a page that was read"):
        listed(Circle("http://127.0.0.1:1"))
    assert len(asked) <= len(cycle) + 1


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ('<https://api.example/s?page=2&per=50>; rel="next", <https://api.example/s?page=9>; rel="last"', "2"),
        ('<https://api.example/s?page=1>; rel="prev", </s?page=3>; title="a, <b>; x"; rel=next', "3"),
        ('<?page=4>;REL="up NEXT"', "4"),
        ('<?page=5>; rel="nextish"', None),
        ('<?page=6>; rel="last"', None),
        ("", None),
        ("<<<;;", None),
    ],
)
def test_the_next_page_of_a_link(link: str, found: str | None) -> None:
    fields = next_link(None, Answer("GET /s", 200, {"Link": link}, b""))
    assert (fields or {}).get("page") == found


@given(st.text(alphabet=st.sampled_from('<>;,="\\ relnxtREL?&%/a1'), max_size=80))
def test_any_link_is_read_or_left_out(link: str) -> None:
    fields = next_link(None, Answer("GET /s", 200, {"Link": link}, b""))
    assert fields is None or all(isinstance(one, str) for pair in fields.items() for one in pair)


# Retry-After


@given(seconds=st.integers(min_value=0, max_value=10**30))
def test_a_number_of_seconds(seconds: int) -> None:
    found = retry_after(f" {seconds} ")
    assert found is not None
    assert found == min(seconds, LONGEST_WAIT) or seconds >= 10**9


@given(ahead=st.integers(min_value=-100_000, max_value=100_000))
def test_a_date(ahead: int) -> None:
    now = 1_700_000_000
    text = format_datetime(datetime.fromtimestamp(now + ahead, UTC), usegmt=True)
    assert retry_after(text, lambda: float(now)) == min(LONGEST_WAIT, max(0, ahead))


@given(st.one_of(st.text(max_size=40), st.text(alphabet="0123456789 :,-+GMTJanMon", max_size=40)))
def test_any_other_text_names_no_time_or_one_within_bounds(text: str) -> None:
    found = retry_after(text, time.time)
    assert found is None or 0 <= found <= LONGEST_WAIT


# paths


@given(st.text(min_size=1, max_size=20))
def test_a_part_of_a_path_stays_one_part(part: str) -> None:
    if part in (".", "..") or not part.isprintable():
        return
    assert path_of("servers", part).count("/") == 2
    assert "?" not in path_of(part)


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_an_id_that_leads_elsewhere_is_refused(part: str) -> None:
    with pytest.raises(CloudProviderError, match="cannot be a part of a path"):
        path_of("servers", part)
