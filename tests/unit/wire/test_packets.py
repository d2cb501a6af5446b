"""Packets, chunks and their protobuf form: whole ones pass, everything else is refused with a code."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilboost.errors import (
    DamagedPacket,
    LimitReached,
    MalformedMessage,
    OversizedMessage,
    VeilBoostError,
    WireVersion,
)
from veilboost.wire.grpc import decode_chunk, encode_chunk
from veilboost.wire.rpc import ENVELOPE_SIZE, LEAST_PIECE, Kind, Packet, Transit, from_chunks, to_chunks

pytestmark = pytest.mark.fast
packets = st.builds(
    Packet,
    st.sampled_from(Kind),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=500) | st.binary(min_size=2000, max_size=2500),
)


def same(received, sent):
    return dataclasses.replace(received, digest=b"") == sent and len(received.digest) == 16


def read(whole):
    """The packet in these bytes, sent as one piece."""
    (packet,) = from_chunks([(memoryview(bytes(whole)), True)], 10_000)
    return packet


def whole_of(packet):
    return bytearray(b"".join(data for data, _ in to_chunks(packet, 1000)))


@given(packets, st.integers(LEAST_PIECE, 1500))
def test_packets_cross_in_chunks(packet, size):
    chunks = [decode_chunk(encode_chunk(chunk)) for chunk in to_chunks(packet, size)]
    assert all(len(data) <= size + 16 for data, _ in chunks)
    assert [last for _, last in chunks] == [False] * (len(chunks) - 1) + [True]
    first, second = from_chunks(chunks * 2, 10_000)
    assert same(first, packet)
    assert first == second
    assert isinstance(first.body, bytes)


@given(packets, packets)
def test_the_digest_tells_bodies_apart(one, other):
    assert (read(whole_of(one)).digest == read(whole_of(other)).digest) == (one.body == other.body)


@given(packets, st.data())
def test_a_changed_byte_of_the_body_is_found(packet, data):
    whole = whole_of(packet)
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    if at >= ENVELOPE_SIZE:
        with pytest.raises(DamagedPacket):
            read(whole)
    else:
        with contextlib.suppress(VeilBoostError):
            read(whole)


@given(packets, st.data())
def test_a_packet_cut_short_is_found(packet, data):
    whole = whole_of(packet)
    with pytest.raises(VeilBoostError):
        read(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=200))
def test_random_bytes_are_no_packet(data):
    with pytest.raises(VeilBoostError):
        read(data)


def test_another_version_is_named():
    whole = whole_of(Packet(Kind.REQUEST, bytes(16), 1, b"x"))
    whole[4] = 9
    with pytest.raises(WireVersion, match="version 9"):
        read(whole)


def test_a_packet_beyond_the_limit_is_refused_before_it_is_held():
    packet = Packet(Kind.REQUEST, bytes(16), 1, bytes(3 << 20))
    seen = 0

    def chunks():
        nonlocal seen
        for data, last in to_chunks(packet, 1 << 18):
            seen += len(data)
            yield memoryview(data), last

    with pytest.raises(OversizedMessage, match="1 MB"):
        list(from_chunks(chunks(), 1 << 20))
    assert seen < 2 << 20


def pieces(size, count):
    """The beginning of a packet, which breaks."""
    yield memoryview(Packet(Kind.REQUEST, bytes(16), 1, b"").envelope() + bytes(size)), False
    for _ in range(count):
        yield memoryview(bytes(size)), False
    raise ConnectionError


@pytest.mark.parametrize("size", [0, 1, LEAST_PIECE - 1])
def test_pieces_that_carry_nothing_or_little_are_refused(size):
    """Endless empty ones would never end, and small ones would take many times the memory that they carry."""
    first = Packet(Kind.REQUEST, bytes(16), 1, b"").envelope() + bytes(LEAST_PIECE)
    endless = itertools.chain([(memoryview(first), False)], itertools.repeat((memoryview(bytes(size)), False)))
    with pytest.raises(MalformedMessage, match="too small"):
        next(from_chunks(endless, 1 << 20))


@pytest.mark.parametrize(("size", "count"), [(1 << 18, 16), (LEAST_PIECE, 4000)])
def test_a_broken_upload_is_freed_at_once_and_never_takes_more_than_its_size(size, count):
    tracemalloc.start()
    try:
        reading = from_chunks(pieces(size, count), 1 << 24)
        with pytest.raises(ConnectionError) as broken:  # the error is still held, and with it the frames it passed
            next(reading)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert broken
    assert held < 600_000  # its last piece
    assert peak < 1.5 * size * count + 600_000


def test_a_packet_is_handled_without_its_pieces():
    packet = Packet(Kind.REQUEST, bytes(16), 1, bytes(4 << 20))
    tracemalloc.start()
    try:
        reading = from_chunks(((memoryview(bytes(data)), last) for data, last in to_chunks(packet, 1 << 18)), 1 << 24)
        received = next(reading)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(received.body) <= held < 1.3 * len(received.body)


def test_the_links_of_a_peer_share_what_may_be_in_transit():
    transit, whole = Transit(3 << 20), Packet(Kind.REQUEST, bytes(16), 1, bytes(2 << 20))
    chunks = [(memoryview(bytes(data)), last) for data, last in to_chunks(whole, 1 << 18)]
    first, second = (from_chunks(chunks * 2, 4 << 20, transit) for _ in range(2))
    assert same(next(first), whole)  # it is in work now
    with pytest.raises(LimitReached, match="3 MB"):
        next(second)
    assert same(next(first), whole), "the refused link has freed its bytes, and the next packet replaces the first"
    first.close()
    assert same(next(from_chunks(chunks, 4 << 20, transit)), whole)
    with pytest.raises(ConnectionError):
        next(from_chunks(pieces(1 << 18, 4), 4 << 20, transit))


@given(st.binary(max_size=60))
def test_chunks_of_random_bytes(raw):
    try:
        data, last = decode_chunk(raw)
    except MalformedMessage:
        return
    assert bytes(data) in raw
    assert isinstance(last, bool)


def test_chunks_are_what_protobuf_makes_of_them():
    """Golden bytes, written down from protoc's own code for veilboost.proto."""
    assert encode_chunk((b"abc", False)) == b"\n\x03abc"
    assert encode_chunk((b"abc", True)) == b"\n\x03abc\x10\x01"
    assert encode_chunk((bytes(300), True)) == b"\n\xac\x02" + bytes(300) + b"\x10\x01"
    for bad in (b"", b"\n", b"\n\x05abc", b"\x10\x01", b"\n\x01a\x18\x01", b"\n" + b"\xff" * 9):
        with pytest.raises(MalformedMessage):
            decode_chunk(bad)
