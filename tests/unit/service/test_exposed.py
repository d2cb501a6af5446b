"""The service on a network: who may connect, with which certificates, and how long a request may take to arrive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import h11
import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from fake_deployment import FakeDeployment
from parties import until
from slow_clients import until_closed
from veilboost.cli.predict import serve
from veilboost.errors import (
    ExposedKey,
    NotACertificate,
    PeerUnreachable,
    UnreadableCertificate,
    UnsupportedCombination,
    WrongPassphrase,
)
from veilboost.infer.scores import ModelInfo
from veilboost.model.share import ColumnInfo
from veilboost.party.certs import init_authority, issue
from veilboost.service import protocol, server
from veilboost.service.app import make_app
from veilboost.service.server import TlsOptions, check_exposure, listen, server_config, tls_options

pytestmark = pytest.mark.fast
TOKEN = b"0123456789abcdef"
INFO = ModelInfo("credit", "bank", ("bank", "shop"), "plain", "binary", None, (ColumnInfo("income"),), "id", 1)


def app() -> FastAPI:
    """A service whose score is the income."""
    return make_app(FakeDeployment(INFO))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    init_authority(folder)
    for name in ("service", "client"):
        issue(folder, name, ["localhost", "127.0.0.1"])
    return folder


@contextlib.contextmanager
def running(tls: TlsOptions | None = None) -> Iterator[int]:
    """The port of a service that runs in a thread."""
    service = uvicorn.Server(server_config(app(), "127.0.0.1", 0, tls))
    thread = threading.Thread(target=service.run, args=(listen("127.0.0.1", 0),))
    thread.start()
    try:
        until(lambda: service.started, "the service listens")
        yield service.servers[0].sockets[0].getsockname()[1]
    finally:
        service.should_exit = True
        thread.join()


# --- who may connect --------------------------------------------------------------------------------------


WITH_CA = TlsOptions(Path("c"), Path("k"), Path("ca"))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "service.example"])  # noqa: S104
def test_other_machines_need_a_token_or_a_certificate(host: str) -> None:
    for tls in (None, TlsOptions(Path("c"), Path("k"))):  # TLS alone tells the service nothing about its clients
        with pytest.raises(UnsupportedCombination, match="would answer all of them") as refused:
            check_exposure(host, None, tls)
        assert "--token-file" in refused.value.remedy
        check_exposure(host, TOKEN, tls)
    check_exposure(host, None, WITH_CA)


def test_the_command_refuses_before_it_opens_a_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedCombination, match="would answer all of them"):
        serve(tmp_path, tmp_path / "none.toml", listen="0.0.0.0:0")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_needs_neither(host: str) -> None:
    check_exposure(host, None, None)


def test_the_options_of_tls_need_each_other() -> None:
    one = Path("file")
    assert tls_options(None, None, None) is None
    assert tls_options(one, one, None) == TlsOptions(one, one)
    for given in ((one, None, None), (None, one, None), (None, None, one), (None, one, one)):
        with pytest.raises(UnsupportedCombination, match="--tls-cert and --tls-key"):
            tls_options(*given)


def test_only_clients_with_a_certificate_of_the_authority_are_answered(certificates: Path) -> None:
    cert, key, ca = (certificates / name for name in ("service.crt", "service.key", "ca.crt"))
    with running(TlsOptions(cert, key, ca)) as port:
        context = ssl.create_default_context(cafile=str(ca))
        with pytest.raises(httpx.TransportError), httpx.Client(verify=context) as client:
            client.get(f"https://127.0.0.1:{port}/healthz")
        context.load_cert_chain(certificates / "client.crt", certificates / "client.key")
        with httpx.Client(verify=context) as client:
            answer = client.post(f"https://127.0.0.1:{port}/v1/predict", json={"row": {"id": "C1", "income": 12.5}})
        assert answer.json()["prediction"] == {"id": "C1", "score": 12.5, "status": "known"}
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/healthz")


def test_files_that_are_no_certificates_are_coded(certificates: Path, tmp_path: Path) -> None:
    cert, key = certificates / "service.crt", tmp_path / "key"
    with pytest.raises(UnreadableCertificate):
        server_config(app(), "127.0.0.1", 0, TlsOptions(cert, key))
    key.write_text("no key")
    key.chmod(0o644)
    with pytest.raises(ExposedKey):
        server_config(app(), "127.0.0.1", 0, TlsOptions(cert, key))
    key.chmod(0o600)
    with pytest.raises(NotACertificate, match="--tls-cert"):
        server_config(app(), "127.0.0.1", 0, TlsOptions(cert, key))
    with pytest.raises(NotACertificate, match="--tls-cert"):  # of another certificate
        server_config(app(), "127.0.0.1", 0, TlsOptions(cert, certificates / "client.key"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl executable")
@pytest.mark.parametrize(
    ("options", "accepted"),
    [
        (["-tls1_3"], True),
        (["-tls1_2"], True),
        (["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], False),
        (["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256:@SECLEVEL=0"], False),
        (["-tls1_2", "-cipher", "eNULL:aNULL:@SECLEVEL=0"], False),
    ],
)
def test_tls_versions_and_ciphers(certificates: Path, options: list[str], accepted: bool) -> None:
    cert, key = certificates / "service.crt", certificates / "service.key"
    with running(TlsOptions(cert, key)) as port:
        done = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *options],
            input="", text=True, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
    assert ("Cipher is (NONE)" not in done.stdout) == accepted, done.stdout + done.stderr


def test_a_key_with_a_passphrase_is_never_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init_authority(tmp_path)
    issue(tmp_path, "service", ["127.0.0.1"], passphrase=b"open sesame")
    tls = TlsOptions(tmp_path / "service.crt", tmp_path / "service.key")
    with pytest.raises(WrongPassphrase):
        server_config(app(), "127.0.0.1", 0, tls)
    (tmp_path / "pass").touch(mode=0o600)
    (tmp_path / "pass").write_text("open sesame\n")
    monkeypatch.setenv("VEILBOOST_KEY_PASSPHRASE_FILE", str(tmp_path / "pass"))
    assert server_config(app(), "127.0.0.1", 0, tls).is_ssl
    (tmp_path / "pass").write_text("another\n")
    with pytest.raises(NotACertificate):
        server_config(app(), "127.0.0.1", 0, tls)


# --- how long a request may take --------------------------------------------------------------------------


HEADERS = b"POST /v1/%b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
PREDICT, EXPLAIN = HEADERS % b"predict", HEADERS % b"explain"
BODY = b"Content-Length: 100\r\n\r\n{"


@pytest.mark.parametrize(
    "start",
    [b"", PREDICT, PREDICT + BODY, EXPLAIN + BODY, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + PREDICT],
    ids=["nothing", "headers", "body", "body to explain", "second request"],
)
def test_an_unfinished_request_is_dropped_however_slowly_it_continues(
    monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr(protocol, "SECONDS", {h11.IDLE: 0.3, h11.SEND_BODY: 0.3})
    with running() as port, socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
        slow.sendall(start)
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        assert until_closed(slow).startswith(b"HTTP/1.1 200") == start.startswith(b"GET")


# --- what is not a whole request --------------------------------------------------------------------------


ANSWERED_EARLY = HEADERS.replace(b"json", b"xml") % b"predict" + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"


@pytest.mark.parametrize(
    ("start", "rest", "codes"),
    [
        (b"", b"\x16\x03\x01\0\r\n\r\n", ["VB-1401"]),
        (b"", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", ["VB-1401"]),
        (b"", PREDICT + b"Content-Length: -1\r\n\r\n", ["VB-1401"]),
        (b"", b"GET /C1 HTTP/1.1\r\nHost: x\r\n\r\n garbage\r\n\r\n", ["VB-1402", "VB-1401"]),
        (ANSWERED_EARLY, b"no chunk\r\n", ["VB-1401"]),
    ],
)
def test_what_is_not_http_is_a_coded_error(
    caplog: pytest.LogCaptureFixture, start: bytes, rest: bytes, codes: list[str]
) -> None:
    with running() as port, socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        answer = b""
        if start:  # its answer comes before the rest
            client.sendall(start)
            answer = client.recv(1 << 16)
        client.sendall(rest)
        while piece := client.recv(1 << 16):
            answer += piece
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    assert re.findall(rb'"code":\s?"([^"]+)"', answer) == [code.encode() for code in codes]
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_client_that_goes_away_is_no_error_of_the_service() -> None:
    with running() as port:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(PREDICT + BODY)

        def counted() -> str:
            return httpx.get(f"http://127.0.0.1:{port}/metrics").text

        until(lambda: 'route="/v1/predict"' in counted(), "the request ends")
        assert 'veilboost_requests_total{method="POST",route="/v1/predict",status="499"} 1.0' in counted()
        assert "VB-1707" not in counted()


# --- many connections -------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True])
def test_connections_beyond_the_limit_are_closed_and_others_are_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, certificates: Path, secure: bool
) -> None:
    """Also before a TLS handshake: connections without one would take all files that the process may open."""
    monkeypatch.setattr(server, "most_connections", lambda: 3)
    tls = TlsOptions(certificates / "service.crt", certificates / "service.key") if secure else None
    with running(tls) as port, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(8)]
        for each in idle[3:]:
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""
        for each in idle[:3]:
            each.settimeout(0.01)
            with pytest.raises(TimeoutError):
                each.recv(1)
            each.close()
        scheme, checked = (
            ("https", ssl.create_default_context(cafile=certificates / "ca.crt")) if secure else ("http", True)
        )

        def answered() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{scheme}://127.0.0.1:{port}/healthz", verify=checked).status_code == 200
            return False

        until(answered, "the closed connections are free again")
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_answers_are_sent_without_delay() -> None:
    # Else an answer of two packets waits for the client's delayed acknowledgement: 40 ms.
    async def delays() -> int:
        connected = asyncio.get_running_loop().create_future()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                connected.set_result(transport)

        (listener,) = listen("127.0.0.1", 0)
        async with await asyncio.get_running_loop().create_server(Accepted, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            transport = await connected
            found = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            transport.close()
            writer.close()
        return found

    assert asyncio.run(delays())


def test_a_port_that_is_taken_is_a_coded_error() -> None:
    (first,) = listen("127.0.0.1", 0)
    with first, pytest.raises(PeerUnreachable, match=r"cannot listen on 127\.0\.0\.1:"):
        listen("127.0.0.1", first.getsockname()[1])
