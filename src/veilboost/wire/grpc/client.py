"""Dialling a peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import grpc

from veilboost.wire.grpc.link import CHUNK_BYTES, StreamLink

METHOD = "/veilboost.v1.Link/Open"


def options(keepalive: float) -> tuple[tuple[str, int], ...]:
    """Of both ends; `keepalive`: seconds of silence after which a peer is asked whether it lives."""
    return (
        ("grpc.max_receive_message_length", 2 * CHUNK_BYTES),
        ("grpc.max_send_message_length", 2 * CHUNK_BYTES),
        ("grpc.keepalive_time_ms", int(keepalive * 1000)),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
        ("grpc.use_local_subchannel_pool", 1),  # a new dial is a new connection, not an old one that is backing off
    )


@dataclass(frozen=True)
class TlsFiles:
    """A party's certificate and key and the authority all parties trust, as PEM."""

    certificate: bytes
    key: bytes
    ca: bytes


def dial(address: str, tls: TlsFiles, server_name: str, most: int, keepalive: float = 20.0) -> StreamLink:
    """Open a stream to a peer whose certificate must bear `server_name`. A failure shows when it is used."""
    channel = grpc.secure_channel(
        address,
        grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate),
        options=(*options(keepalive), ("grpc.ssl_target_name_override", server_name)),
    )
    link = StreamLink(most)
    call = cast(Any, channel).stream_stream(METHOD)(link.outgoing())

    def hang_up() -> None:
        call.cancel()
        channel.close()

    link.attach(call, hang_up)
    return link
