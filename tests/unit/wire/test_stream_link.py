"""A link over a gRPC stream that breaks: the reading party gets a coded error."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from veilboost.errors import PeerRefused, PeerUnreachable
from veilboost.wire.grpc import LinkLimits, StreamLink


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
