"""Lines and frames come out whole, wherever the wire cut them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.runtime.api import linestream
from controllers.runtime.api.linestream import Decoder, FrameDecoder, LineDecoder
from controllers.runtime.api.wire import ProtocolError

PARTS = st.lists(st.binary(max_size=12), max_size=8)


def cut_at_random(decoder: Decoder, data: bytes, draw: st.DataObject) -> list[bytes]:
    found: list[bytes] = []
    while data:
        size = draw.draw(st.integers(1, len(data)))
        found.extend(decoder.feed(data[:size]))
        data = data[size:]
    return found


@given(PARTS.map(lambda lines: [line.replace(b"\n", b"") for line in lines]), st.data())
def test_lines_are_the_same_wherever_they_are_cut(lines: list[bytes], draw: st.DataObject) -> None:
    decoder = LineDecoder()
    assert cut_at_random(decoder, b"".join(line + b"\n" for line in lines), draw) == [line for line in lines if line]
    assert not decoder.partial


@given(PARTS, st.data())
def test_frames_are_the_same_wherever_they_are_cut(frames: list[bytes], draw: st.DataObject) -> None:
    decoder = FrameDecoder()
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    assert cut_at_random(decoder, data, draw) == frames
    assert not decoder.partial


@given(PARTS.filter(bool), st.data())
def test_what_is_not_whole_is_told(frames: list[bytes], draw: st.DataObject) -> None:
    decoder = FrameDecoder()
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    last = 4 + len(frames[-1])
    missing = draw.draw(st.integers(1, last - 1))
    assert cut_at_random(decoder, data[:-missing], draw) == frames[:-1]
    assert decoder.partial


def test_the_cost_of_a_long_frame_grows_with_its_length_only() -> None:
    """4 MB in parts of 4 KB: joined once, where joining each time would copy 2 GB."""
    decoder, part, size = FrameDecoder(), b"x" * 4000, 4_000_000
    began = time.thread_time()
    assert not list(decoder.feed(size.to_bytes(4, "big")))
    found = [frame for _ in range(size // len(part)) for frame in decoder.feed(part)]
    assert [len(frame) for frame in found] == [size]
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize(("decoder", "data"), [(LineDecoder(), b"x" * 101), (FrameDecoder(), b"\0\0\0\x65")])
def test_a_piece_beyond_all_reason_is_refused(decoder: Decoder, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linestream, "MAX_EVENT", 100)
    with pytest.raises(ProtocolError, match="more than 100 bytes"):
        decoder.feed(data)
