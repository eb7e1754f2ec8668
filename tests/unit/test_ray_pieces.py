"""What is large travels in pieces, is copied together nowhere, and arrives as it was."""

import asyncio
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

import itertools

import numpy as np

from executors.ray_gpu.http.protocol import write_chunks
from executors.ray_gpu.requests.frames import HEADER, ITEM, VALUE, Frames, Outbox
from executors.ray_gpu.requests.packing import LARGE_BYTES, dumps, pack_call, pack_value, unpack_call
from executors.ray_gpu.requests.pieces import PIECE_BYTES, Pieces, TooLargeError, bytes_of, dumped, gathered, loaded

LARGE = st.integers(PIECE_BYTES, 3 * PIECE_BYTES).map(lambda size: bytes(range(256)) * (size // 256))
BODIES = st.lists(st.binary(max_size=40) | LARGE, max_size=5)


@given(BODIES, st.integers(1_000, 2 * PIECE_BYTES))
def test_frames_of_any_size_are_cut_wherever_the_bytes_break(bodies, size):
    stream = b"".join(HEADER.pack(len(body), index, VALUE) + body for index, body in enumerate(bodies))
    heard = []
    frames = Frames(lambda call_id, kind, body: heard.append((call_id, kind, len(body), bytes(body))))
    for start in range(0, len(stream), size):
        frames.feed(stream[start : start + size])
    assert heard == [(index, VALUE, len(body), body) for index, body in enumerate(bodies)]


@given(BODIES)
def test_what_an_outbox_sends_is_what_it_was_given_and_large_bytes_are_sent_as_they_are(bodies):
    written = []

    async def play():
        outbox = Outbox(written.append)
        for index, body in enumerate(bodies):
            outbox.put(index, ITEM, Pieces([body[:10], body[10:]]) if index % 2 and len(body) > 10 else body)
        assert not written, "what becomes ready together leaves together"
        await asyncio.sleep(0)

    asyncio.run(play())
    assert b"".join(written) == b"".join(HEADER.pack(len(body), index, ITEM) + body for index, body in enumerate(bodies))
    assert all(any(part is body for part in written) for body in bodies[::2] if len(body) >= PIECE_BYTES)
    small = [len(part) < PIECE_BYTES for part in written]
    assert not any(one and other for one, other in itertools.pairwise(small)), "small ones share a write"


@given(st.lists(st.binary(max_size=5) | LARGE.map(lambda body: body[:PIECE_BYTES]), max_size=6))
def test_gathering_changes_no_byte(parts):
    assert b"".join(gathered(parts)) == b"".join(parts)


VALUES = [
    b"x" * (2 * PIECE_BYTES),
    "é" * PIECE_BYTES,
    {"a": b"x" * PIECE_BYTES, "b": ["y" * 10, b"z" * PIECE_BYTES]},
    bytearray(b"m" * PIECE_BYTES),
    list(range(50_000)),
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("cut", [1_000, 50_000, 10**9])
def test_a_value_arrives_as_it_was_wherever_its_pickle_is_cut(value, cut):
    body = bytes(dumps(value))
    parts = [body[start : start + cut] for start in range(0, len(body), cut)]
    assert loaded(Pieces(parts)) == value
    assert loaded(body) == value


def test_text_opcodes_are_read_by_lines_wherever_they_are_cut():
    body = pickle.dumps({"a": 1, "name": VALUES}, 0)
    assert loaded(Pieces([body[start : start + 7] for start in range(0, len(body), 7)])) == {"a": 1, "name": VALUES}


def test_a_pickle_that_breaks_off_is_an_error():
    body = bytes(dumps(b"x" * (2 * PIECE_BYTES)))
    with pytest.raises((EOFError, pickle.UnpicklingError)):
        loaded(Pieces([body[:1000], body[1000:-100]]))


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_arrive_as_they_were_when_they_were_sent(order):
    array = np.asarray(np.arange(60_000.0).reshape(300, 200), order=order)
    packed = pack_call("f", ((array,), {"half": array[::2]}))
    expected, array[:] = array.copy(), 0
    _, ((whole,), kwargs), _ = unpack_call(packed)
    assert (whole == expected).all()
    assert (kwargs["half"] == expected[::2]).all()


def test_large_bytes_are_pickled_without_a_copy_and_what_may_change_is_copied():
    constant, changing = b"x" * (2 * PIECE_BYTES), bytearray(b"x" * (2 * PIECE_BYTES))
    parts = bytes_of(dumped([constant, changing], pickle.Pickler, LARGE_BYTES))
    changing[:] = bytes(len(changing))
    assert any(part is constant for part in parts)
    assert loaded(Pieces(parts)) == [constant, bytearray(constant)]


def test_what_is_large_is_found_out_before_it_is_copied():
    class Counts(pickle.Pickler):
        def __init__(self, file, protocol):
            super().__init__(file, protocol)
            self.file = files.append(file)

    files = []
    with pytest.raises(TooLargeError):
        dumped(bytearray(LARGE_BYTES), Counts, LARGE_BYTES - 1)
    assert sum(map(len, files[0].parts)) < PIECE_BYTES
    assert pack_value(np.ones(LARGE_BYTES, np.uint8))[1] == b""


class Flow:
    write_paused = False


class Cycle:
    """A response of uvicorn's that has begun."""

    def __init__(self, **differs):
        self.chunked_encoding, self.response_complete, self.disconnected = True, False, False
        self.flow, self.scope, self.transport = Flow(), {"method": "GET"}, self
        self.written = []
        for name, value in differs.items():
            setattr(self, name, value)

    def write(self, data):
        self.written.append(data)


def test_pieces_of_a_response_are_chunks_of_their_own_in_one_write():
    cycle = Cycle()
    assert write_chunks(cycle, [b"one", b"", b"twelve bytes"])
    assert cycle.written == [b"3\r\none\r\nc\r\ntwelve bytes\r\n"], "an empty chunk would be the end"
    large = b"x" * PIECE_BYTES
    assert write_chunks(cycle, [b"one", Pieces([large, b"y"])])
    assert b"".join(cycle.written[1:]) == b"3\r\none\r\n10001\r\n" + large + b"y\r\n"
    assert any(part is large for part in cycle.written)


@pytest.mark.parametrize(
    "differs",
    [
        {"chunked_encoding": None},
        {"chunked_encoding": False},
        {"response_complete": True},
        {"disconnected": True},
        {"scope": {"method": "HEAD"}},
        {"flow": type("Paused", (), {"write_paused": True})},
    ],
)
def test_where_chunks_are_not_to_be_written_nothing_is(differs):
    cycle = Cycle(**differs)
    assert not write_chunks(cycle, [b"one"])
    assert cycle.written == []
