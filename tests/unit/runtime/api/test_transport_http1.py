"""Answers are read the same wherever the network cuts them, and nothing malformed passes for an
answer."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.runtime.api.wire.http1 import MAX_CHUNK_LINE, MAX_HEAD, NoAnswer, ProtocolError, Reader, Truncated


def reader_of(*pieces: bytes) -> Reader:
    """A reader whose connection delivers these pieces and then ends."""
    left: Iterator[bytes] = iter(pieces)
    return Reader(lambda _size: next(left, b""))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def chunked(parts: list[bytes], extension: bytes = b"", trailers: bytes = b"") -> bytes:
    body = b"".join(b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in parts if part)
    return body + b"0\r\n" + trailers + b"\r\n"


CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@given(st.binary(max_size=300), CUTS)
def test_a_body_of_known_length_arrives_whole(body: bytes, places: list[int]) -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-A: 1\r\nx-a:2\r\n\r\n%s" % (len(body), body)
    reader = reader_of(*cut(data, places))
    answer = reader.answer("GET")
    assert (answer.status, answer.headers["x-a"], answer.keep_alive) == (200, "1, 2", True)
    assert answer.body() == body
    assert answer.piece() == b""
    assert not reader.pending


@given(
    st.lists(st.binary(min_size=1, max_size=60), max_size=6),
    st.sampled_from([b"", b";name=value", b" ; x"]),
    st.sampled_from([b"", b"X-Trailer: 1\r\n"]),
    CUTS,
)
def test_a_chunked_body_arrives_whole(parts: list[bytes], extension: bytes, trailers: bytes, places: list[int]) -> None:
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(parts, extension, trailers)
    reader = reader_of(*cut(data, places))
    answer = reader.answer("GET")
    assert answer.body() == b"".join(parts)
    assert answer.keep_alive
    assert not reader.pending


@given(st.lists(st.binary(max_size=40), min_size=2, max_size=5), CUTS)
def test_answers_on_one_connection_do_not_mix(bodies: list[bytes], places: list[int]) -> None:
    data = b"".join(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)
    reader = reader_of(*cut(data, places))
    assert [reader.answer("GET").body() for _ in bodies] == bodies
    with pytest.raises(NoAnswer):
        reader.answer("GET")


@given(
    st.sampled_from(
        [
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n",
        ]
    ),
    st.data(),
)
def test_truncation_is_noticed_at_every_byte(data: bytes, draw: st.DataObject) -> None:
    end = draw.draw(st.integers(0, len(data) - 1))
    reader = reader_of(*cut(data[:end], draw.draw(CUTS)))
    with pytest.raises(Truncated) as caught:
        reader.answer("GET").body()
    assert isinstance(caught.value, NoAnswer) == (end == 0)
    assert reader.begun == (end > 0)


@given(
    st.binary(max_size=120), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: "])
)
def test_garbage_is_refused_and_nothing_else_is_raised(garbage: bytes, prefix: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        reader_of(prefix + garbage).answer("GET").body()


def test_a_piece_is_handed_on_before_its_chunk_ends() -> None:
    """A watch event must not wait for the bytes behind it."""
    reader = reader_of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nab\ncd")
    assert reader.answer("GET").piece() == b"ab\ncd"


def test_informational_answers_are_skipped() -> None:
    reader = reader_of(b"HTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
    assert reader.answer("POST").body() == b"x"


@pytest.mark.parametrize(
    ("method", "head", "body", "keep_alive"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5", b"", True),
        ("GET", b"HTTP/1.1 204 No Content", b"", True),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5", b"", True),
        ("CONNECT", b"HTTP/1.1 200 Connected\r\nTransfer-Encoding: chunked", b"", True),
        ("GET", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2", b"ab", False),
        ("GET", b"HTTP/1.0 200 OK\r\nContent-Length: 2", b"ab", False),
        ("GET", b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2", b"ab", True),
        ("GET", b"HTTP/1.1 200 OK", b"ab until the end", False),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2", b"ab", True),
    ],
)
def test_where_an_answer_ends(method: str, head: bytes, body: bytes, keep_alive: bool) -> None:
    answer = reader_of(head + b"\r\n\r\n" + body).answer(method)
    assert answer.body() == body
    assert answer.keep_alive is keep_alive


def test_two_lengths_are_not_trusted_for_another_request() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = reader_of(head + chunked([b"abc"])).answer("GET")
    assert answer.body() == b"abc"
    assert not answer.keep_alive


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: x\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5x\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * (MAX_CHUNK_LINE + 2),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * 101 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * (MAX_HEAD + 1),
    ],
)
def test_what_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        reader_of(data).answer("GET").body()
    assert not isinstance(caught.value, Truncated)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"{}"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_what_was_read_is_not_kept(head: bytes, body: bytes, at_once: bool) -> None:
    """It would stay for as long as its connection is idle."""
    pieces = [head + body] if at_once or not body else [head, body]
    before = [sys.getrefcount(piece) for piece in pieces]
    left = pieces.copy()
    reader = Reader(lambda _size: left.pop(0))
    reader.answer("GET").body()
    del left[:]
    assert [sys.getrefcount(piece) for piece in pieces] == before
