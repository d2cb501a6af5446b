"""A link over a gRPC stream that breaks: the reading party gets a coded error."""

from __future__ import annotations

import hashlib
import resource
import threading
from collections.abc import Iterator

import grpc
import pytest

from veilboost.errors import PeerRefused, PeerUnreachable
from veilboost.wire.grpc import LinkLimits, StreamLink, encode_chunk, most_connections
from veilboost.wire.rpc import DIGEST_SIZE, Kind, Packet, answer_requests

EMPTY = hashlib.sha256().digest()[:DIGEST_SIZE]  # of a packet without a body


class Told(grpc.RpcError):
    """What a client's stream raises; a server's raises a bare `RpcError`."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return f"it was {self._code.name}"


def _link(error: grpc.RpcError) -> StreamLink:
    def broken() -> Iterator[bytes]:
        raise error
        yield b""

    link = StreamLink(LinkLimits(1 << 20))
    link.attach(broken(), lambda: None)
    return link


def test_a_server_whose_client_hung_up_hears_that_the_connection_broke() -> None:
    with pytest.raises(PeerUnreachable, match="the connection broke"):
        _link(grpc.RpcError()).receive()


def test_a_client_hears_what_the_server_said() -> None:
    with pytest.raises(PeerUnreachable, match="it was UNAVAILABLE"):
        _link(Told(grpc.StatusCode.UNAVAILABLE)).receive()
    with pytest.raises(PeerRefused, match="it was PERMISSION_DENIED"):
        _link(Told(grpc.StatusCode.PERMISSION_DENIED)).receive()


@pytest.mark.parametrize("error", [grpc.RpcError(), Told(grpc.StatusCode.CANCELLED)])
def test_a_link_that_we_closed_ends_without_complaint(error: grpc.RpcError) -> None:
    link = _link(error)
    link.close()
    assert link.receive() is None


IMPATIENT = LinkLimits(1 << 24, packet_seconds=0.05)


def _request(size: int) -> Packet:
    return Packet(Kind.REQUEST, bytes(16), 1, bytes(size))


@pytest.mark.parametrize("size", [10, 8 << 20])
def test_what_the_peer_never_reads_is_not_sent_forever(size: int) -> None:
    """Large packets, and many small ones: gRPC takes nothing from the link, as with a full window."""
    ended = threading.Event()
    link = StreamLink(IMPATIENT)
    link.attach(iter(()), ended.set)
    with pytest.raises(PeerUnreachable, match="does not read"):
        list(map(link.send, [_request(size)] * 100))
    assert ended.is_set()


def test_an_answer_that_the_peer_never_reads_ends_the_link() -> None:
    ended = threading.Event()
    link = StreamLink(IMPATIENT)
    link.attach((encode_chunk((data, True)) for data in [_request(0).envelope() + EMPTY] * 100), ended.set)
    answer_requests(link, lambda packet: _request(8 << 20))
    assert ended.is_set()


def test_a_packet_that_never_ends_closes_its_link_and_a_pause_between_packets_does_not() -> None:
    ended = threading.Event()
    waits: list[bool] = []

    def incoming() -> Iterator[bytes]:
        yield encode_chunk((_request(0).envelope() + EMPTY, True))
        waits.append(ended.wait(0.3))  # longer than a packet may take
        yield encode_chunk((_request(0).envelope() + bytes(2000), False))
        waits.append(ended.wait(30))
        raise grpc.RpcError

    link = StreamLink(IMPATIENT)
    link.attach(incoming(), ended.set)
    assert link.receive() is not None
    assert link.receive() is None
    assert waits == [False, True]


def test_a_closed_link_leaves_no_timer_behind() -> None:
    before = set(threading.enumerate())
    link = StreamLink(LinkLimits(1 << 20))
    link.attach(iter(()), lambda: None)
    link.send(_request(10))
    assert len(set(threading.enumerate()) - before) == 1
    link.close()
    with pytest.raises(PeerUnreachable):
        link.send(_request(10))
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize(
    ("limits", "raised", "accepted"),
    [((1024, 4096), 4096, 2048), ((1024, 1024), None, 512), ((256, -1), 32_768, 16_384), ((-1, -1), None, 16_384)],
)
def test_connections_never_take_all_files(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], raised: int | None, accepted: int
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda what, wanted: calls.append(wanted[0]))
    assert most_connections() == accepted
    assert calls == ([] if raised is None else [raised])
