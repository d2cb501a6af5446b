"""Packets, chunks and their protobuf form: whole ones pass, everything else is refused with a code."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilboost.errors import DamagedPacket, MalformedMessage, OversizedMessage, VeilBoostError, WireVersion
from veilboost.wire.grpc.chunk import decode_chunk, encode_chunk
from veilboost.wire.link import from_chunks, to_chunks
from veilboost.wire.packet import ENVELOPE_SIZE, Kind, Packet, read_packet

pytestmark = pytest.mark.fast
packets = st.builds(
    Packet.of,
    st.sampled_from(Kind),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=500),
)


@given(packets, st.integers(ENVELOPE_SIZE + 1, 300))
def test_packets_cross_in_chunks(packet, size):
    chunks = [decode_chunk(encode_chunk(chunk)) for chunk in to_chunks(packet, size)]
    assert all(len(data) <= size for data, _ in chunks)
    assert [last for _, last in chunks] == [False] * (len(chunks) - 1) + [True]
    assert list(from_chunks(chunks * 2, 10_000)) == [packet, packet]


@given(packets, st.data())
def test_a_changed_byte_of_the_body_is_found(packet, data):
    whole = bytearray(packet.envelope() + packet.body)
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    if at >= ENVELOPE_SIZE:
        with pytest.raises(DamagedPacket):
            read_packet([bytes(whole)])
    else:
        with contextlib.suppress(VeilBoostError):
            read_packet([bytes(whole)])


@given(st.binary(max_size=200))
def test_random_bytes_are_no_packet(data):
    with pytest.raises(VeilBoostError):
        read_packet([data])


def test_another_version_is_named():
    packet = Packet.of(Kind.REQUEST, bytes(16), 1, b"x")
    whole = bytearray(packet.envelope() + packet.body)
    whole[4] = 9
    with pytest.raises(WireVersion, match="version 9"):
        read_packet([bytes(whole)])


def test_a_packet_beyond_the_limit_is_refused_before_it_is_held():
    packet = Packet.of(Kind.REQUEST, bytes(16), 1, bytes(3 << 20))
    seen = 0

    def chunks():
        nonlocal seen
        for data, last in to_chunks(packet, 1 << 18):
            seen += len(data)
            yield bytes(data), last

    with pytest.raises(OversizedMessage, match="1 MB"):
        list(from_chunks(chunks(), 1 << 20))
    assert seen < 2 << 20


@given(st.binary(max_size=60))
def test_chunks_of_random_bytes(raw):
    try:
        data, last = decode_chunk(raw)
    except MalformedMessage:
        return
    assert data in raw
    assert isinstance(last, bool)


def test_chunks_are_what_protobuf_makes_of_them():
    """Golden bytes, written down from protoc's own code for veilboost.proto."""
    assert encode_chunk((b"abc", False)) == b"\n\x03abc"
    assert encode_chunk((b"abc", True)) == b"\n\x03abc\x10\x01"
    assert encode_chunk((bytes(300), True)) == b"\n\xac\x02" + bytes(300) + b"\x10\x01"
    for bad in (b"", b"\n", b"\n\x05abc", b"\x10\x01", b"\n\x01a\x18\x01", b"\n" + b"\xff" * 9):
        with pytest.raises(MalformedMessage):
            decode_chunk(bad)


def test_packets_are_values():
    packet = Packet.of(Kind.ANSWER, bytes(16), 3, b"body")
    assert read_packet([packet.envelope() + packet.body]) == packet
    assert dataclasses.replace(packet, number=4) != packet
