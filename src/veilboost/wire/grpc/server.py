"""Being dialled by peers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import grpc

from veilboost.errors import PeerBroken, PeerUnreachable, VeilBoostError
from veilboost.wire.grpc.client import METHOD, TlsFiles, options
from veilboost.wire.grpc.link import CHUNK_BYTES, StreamLink, encode_chunk
from veilboost.wire.packet import Packet, to_chunks
from veilboost.wire.rpc import answers, failure_text

_LOG = logging.getLogger(__name__)
MAX_LINKS = 64  # streams that may be open at once; a peer needs one or two

Admit = Callable[[bytes], Any]  # the peer's certificate (PEM) -> who it is, or a coded error
Handle = Callable[[Packet], Packet]
Welcome = Callable[[StreamLink, Any], Handle | None]
"""Told of a peer's link: returns what answers its requests, or None where it keeps the link to send requests itself."""


class LinkServer:
    """Listens with mutual TLS; peers without a certificate of the authority do not get through the handshake."""

    def __init__(
        self, address: str, tls: TlsFiles, admit: Admit, welcome: Welcome, most: int, keepalive: float = 20.0
    ) -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(MAX_LINKS, thread_name_prefix="link"),
            options=(*options(keepalive), ("grpc.so_reuseport", 0)),
            maximum_concurrent_rpcs=MAX_LINKS,
        )
        self._server.add_generic_rpc_handlers((_Handler(admit, welcome, most),))
        credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)], tls.ca, require_client_auth=True)
        try:
            self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise PeerUnreachable(f"cannot listen on {address}", "choose a free port") from error
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=0.2).wait()


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, admit: Admit, welcome: Welcome, most: int) -> None:
        self._admit, self._welcome, self._most = admit, welcome, most

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method != METHOD:
            return None
        return cast(Any, grpc).stream_stream_rpc_method_handler(self._open)

    def _open(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        certificates = context.auth_context().get("x509_pem_cert") or [b""]
        try:
            peer = self._admit(certificates[0])
        except Exception as error:  # gRPC would send the text of one that is not caught
            coded = error if isinstance(error, VeilBoostError) else PeerBroken(f"a peer met {type(error).__name__}")
            _LOG.warning("refused a connection: %s", " ".join(str(coded).split()))
            context.abort(grpc.StatusCode.PERMISSION_DENIED, failure_text(coded))
            return
        link = StreamLink(self._most)
        link.attach(incoming, context.cancel)
        context.add_callback(link.close)
        handle = self._welcome(link, peer)
        if handle is None:
            yield from link.outgoing()
        else:  # this thread receives, answers and sends: a request crosses no queue
            for packet in answers(link, handle):
                yield from map(encode_chunk, to_chunks(packet, CHUNK_BYTES))
