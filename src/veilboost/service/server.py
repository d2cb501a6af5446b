"""Addresses, TLS and uvicorn: what the prediction service and the web console have in common."""

from __future__ import annotations

import ipaddress
import signal
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

import uvicorn
from fastapi import FastAPI

from veilboost.errors import InvalidParameter, NotACertificate, PeerUnreachable, UnsupportedCombination
from veilboost.fields import FORMS
from veilboost.party.identity import passphrase_of
from veilboost.service.protocol import TimedProtocol
from veilboost.wire.grpc import most_connections

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; the defaults of uvicorn and Python include CBC
STOP_SECONDS = 10  # how long requests in progress may take after a signal to stop


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080` or `[::1]:8080` as host and port."""
    if not FORMS["address"].fits(text):
        raise InvalidParameter(f"--listen {text!r} is not an address", f"write {FORMS['address'].text}")
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class TlsOptions:
    """The certificate and key of the service; with `client_ca`, clients need a certificate of that authority."""

    cert: Path
    key: Path
    client_ca: Path | None = None


def tls_options(cert: Path | None, key: Path | None, client_ca: Path | None) -> TlsOptions | None:
    """The options of TLS, which need each other. None: plain HTTP."""
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise UnsupportedCombination("TLS needs --tls-cert and --tls-key", "give both of them")
    return TlsOptions(cert, key, client_ca)


def check_exposure(host: str, token: bytes | None, tls: TlsOptions | None) -> None:
    """Refuse an address that other machines can reach if the service would answer everyone."""
    if not is_loopback(host) and token is None and (tls is None or tls.client_ca is None):
        raise UnsupportedCombination(
            f"other machines can reach {host}, and the service would answer all of them",
            "add --token-file, or --client-ca with --tls-cert and --tls-key; or listen on 127.0.0.1",
        )


class _Listener(socket.socket):
    """Closes connections beyond so many that are open.

    asyncio would accept them until the process can open no more files, and then log each further attempt many times.
    """

    def __init__(self, family: socket.AddressFamily, opened: WeakSet[socket.socket], most: int) -> None:
        # asyncio sends without delay only on sockets whose protocol is named.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._opened, self._most = opened, most

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        if len(self._opened) >= self._most:
            for each in [each for each in self._opened if each.fileno() < 0]:
                self._opened.discard(each)
        if len(self._opened) >= self._most:
            connection.close()
            raise BlockingIOError  # there is none to serve now
        self._opened.add(connection)
        return connection, address


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host; all together accept a limited number of connections."""
    opened, most, listeners = WeakSet[socket.socket](), most_connections(), list[socket.socket]()
    try:
        for family, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            listener = _Listener(family, opened, most)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen()
    except OSError:
        for each in listeners:
            each.close()
        raise PeerUnreachable(f"cannot listen on {host}:{port}", "choose a free port of this machine") from None
    return listeners


class _Server(uvicorn.Server):
    """Reports where it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            scheme = "https" if self.config.is_ssl else "http"
            self._ready(f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}")


def run_server(
    app: FastAPI,
    host: str,
    port: int,
    ready: Callable[[str], None],
    tls: TlsOptions | None = None,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Calls `ready` with the address when the service accepts requests, and `stopping` when it no longer does, so that
    responses without an end can end.
    """
    server = _Server(server_config(app, host, port, tls), ready)
    listeners = listen(host, port)

    def stop(*_: object) -> None:
        server.should_exit = True
        stopping()

    # uvicorn raises the signal again at the end; being stopped is not a failure here.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.run(listeners)


def server_config(app: FastAPI, host: str, port: int, tls: TlsOptions | None) -> uvicorn.Config:
    """The configuration of uvicorn. Raises a coded error if the certificates cannot be used."""
    files: dict[str, Any] = {}
    if tls is not None:
        passphrase = passphrase_of(tls.key)  # refused if other users can read it
        files = {"ssl_certfile": tls.cert, "ssl_keyfile": tls.key, "ssl_ciphers": CIPHERS}
        if passphrase is not None:
            files["ssl_keyfile_password"] = passphrase.decode(errors="surrogateescape")
        if tls.client_ca is not None:
            files |= {"ssl_ca_certs": str(tls.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,  # its own lines would contain paths, in which clients may put ids
        access_log=False,
        server_header=False,
        proxy_headers=False,  # anyone on this machine could claim another address, and so evade the limits of one
        http=TimedProtocol,
        timeout_graceful_shutdown=STOP_SECONDS,
        lifespan="on",
        ws="none",
        **files,
    )
    try:
        config.load()
    except OSError as error:  # among them all errors of TLS
        raise NotACertificate(
            f"the certificates of the service cannot be used ({error.strerror or type(error).__name__})",
            "check the PEM files of --tls-cert, --tls-key and --client-ca",
        ) from None
    return config
