"""What a listening party refuses, over real sockets and TLS; and that it lives on each time."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import ssl
import struct
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parties import until
from veilboost import __version__
from veilboost.errors import ExposedKey, OversizedMessage, PeerRefused, PeerUnreachable, WireVersion
from veilboost.party.certs import init_authority, issue, revoke
from veilboost.party.daemon import Daemon
from veilboost.party.hub import tls_files
from veilboost.party.identity import load_identity, peer_identity, server_name
from veilboost.party.messages import CONTROL_MESSAGES, BeginAlignment, Checked, Finish, Propose
from veilboost.party.settings import load_party
from veilboost.wire.grpc import HELLO_BYTES, METHOD, Greeting, LinkLimits, LinkServer, dial, encode_chunk
from veilboost.wire.message import Catalogue, Done, encode
from veilboost.wire.rpc import ENVELOPE_SIZE, NO_SESSION, Caller, Kind, Packet, to_chunks
from veilboost.wire.transcript import Transcript

LIMITS = LinkLimits(1 << 24)
BANK = SimpleNamespace(party="bank")
JOB = """
name = "first"
[parties.bank]
role = "active"
[parties.shop]
address = "127.0.0.1:1"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("party")
    init_authority(folder, now=datetime.now(UTC) - timedelta(days=60))
    for party in ("bank", "shop", "stranger", "taken"):
        issue(folder, party, ["localhost", "127.0.0.1"])
    revoke(folder, "taken")
    issue(folder, "late", ["localhost"], days=1, now=datetime.now(UTC) - timedelta(days=30))
    other = folder / "other"
    init_authority(other)
    issue(other, "bank", ["localhost"])
    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"id": np.arange(200), "x": rng.normal(size=200)}), folder / "shop.parquet")
    (folder / "shop.toml").write_text("""
name = "shop"
listen = "127.0.0.1:0"
[certificates]
cert = "shop.crt"
key = "shop.key"
ca = "ca.crt"
revoked = "revoked.crl"
[data]
path = "shop.parquet"
id = "id"
[limits]
max_message_mb = 1
[policy]
protocols = ["plain"]
allow_unprotected = ["plain"]
[policy.peers]
bank = ["any"]
taken = ["any"]
late = ["any"]
""")
    return folder


@pytest.fixture(scope="module")
def daemon(place):
    running = Daemon(load_party(place / "shop.toml"))
    yield running
    running.stop()


def tls(folder, party):
    return tls_files(load_identity(folder / f"{party}.crt", folder / f"{party}.key", folder / "ca.crt"))


def hello():
    return os.urandom(HELLO_BYTES) + __version__.encode()


def trusting(seconds=8.0):
    """A dialling side that takes every proof: what the listening side refuses is looked at here."""
    return Greeting("shop", hello(), lambda proof: None, seconds)


def caller(daemon, files, name="shop", seconds=8.0):
    address = f"127.0.0.1:{daemon.port}"
    return Caller(
        "shop",
        lambda left: dial(address, files, server_name(name), LIMITS, trusting(left)),
        os.urandom(16),
        Catalogue(CONTROL_MESSAGES),
        Transcript("bank"),
        seconds,
    )


@pytest.fixture
def works(daemon, place):
    """After every refusal the daemon must still take a proper request."""
    yield
    channel = caller(daemon, tls(place, "bank"), seconds=20.0)
    assert isinstance(channel.send(Propose(JOB, dry_run=True, resume=False))(), Checked)
    assert isinstance(channel.send(Finish(completed=False))(), Done)
    channel.close()


@pytest.mark.parametrize(
    ("party", "words"), [("stranger", "VB-1607"), ("taken", "VB-1608")], ids=["unknown", "revoked"]
)
def test_certificates_the_policy_does_not_know(daemon, place, works, party, words):
    channel = caller(daemon, tls(place, party), seconds=60)
    with pytest.raises(PeerRefused, match=words):  # at once, not when the time is over
        channel.send(Done())()


def test_a_certificate_of_another_authority(daemon, place, works):
    foreign = tls(place / "other", "bank")
    ours = type(foreign)(foreign.certificate, foreign.key, (place / "ca.crt").read_bytes())
    for files in (foreign, ours):
        with pytest.raises(PeerUnreachable):
            caller(daemon, files, seconds=1.0).send(Done())()


def test_an_expired_certificate(daemon, place, works):
    files = type(tls(place, "bank"))(
        (place / "late.crt").read_bytes(), (place / "late.key").read_bytes(), (place / "ca.crt").read_bytes()
    )
    with pytest.raises(PeerUnreachable):
        caller(daemon, files, seconds=1.0).send(Done())()


def test_a_server_that_is_not_the_party_that_was_meant(daemon, place, works):
    with pytest.raises(PeerUnreachable):
        caller(daemon, tls(place, "bank"), name="telecom", seconds=1.0).send(Done())()


def test_a_private_key_that_others_may_read(place):
    (place / "stranger.key").chmod(0o644)
    with pytest.raises(ExposedKey):
        load_identity(place / "stranger.crt", place / "stranger.key", place / "ca.crt")
    (place / "stranger.key").chmod(0o600)


def test_plaintext_and_random_bytes_on_the_port(daemon, works):
    rng = np.random.default_rng(7)
    for attempt in range(20):
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as connection:
            connection.settimeout(5)
            noise = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if attempt == 0 else rng.bytes(int(rng.integers(1, 2000)))
            connection.sendall(noise)
            connection.shutdown(socket.SHUT_WR)
            try:
                while connection.recv(4096):
                    pass
            except OSError:
                pass  # it may reset the connection as well as close it


def test_tls_without_a_certificate(daemon, place, works):
    context = ssl.create_default_context(cafile=place / "ca.crt")
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as plain:
        plain.settimeout(5)
        with pytest.raises((ssl.SSLError, OSError)), context.wrap_socket(plain) as wrapped:  # noqa: PT012
            wrapped.sendall(b"x")
            if not wrapped.recv(10):
                raise OSError("closed")


def raw_stream(daemon, place, chunks, greets=True):
    """Send chunks as they are and return what comes back, or the status the stream ends with."""
    if greets:
        first = Packet(Kind.HELLO, NO_SESSION, 0, hello())
        chunks = [*map(encode_chunk, to_chunks(first, 1 << 16)), *chunks]
    files = tls(place, "bank")
    channel = grpc.secure_channel(
        f"127.0.0.1:{daemon.port}",
        grpc.ssl_channel_credentials(files.ca, files.key, files.certificate),
        options=(("grpc.ssl_target_name_override", server_name("shop")),),
    )
    try:
        return b"".join(channel.stream_stream(METHOD)(iter(chunks), timeout=10))
    except grpc.RpcError as error:
        return str(error.code())
    finally:
        channel.close()


def request(body=b"", session=b"s" * 16, number=1):
    return b"".join(data for data, _ in to_chunks(Packet(Kind.REQUEST, session, number, body), 1 << 16))


@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ([b""], b"VB-1401"),
        ([b"garbage"], b"VB-1401"),
        ([encode_chunk((b"", True))], b"VB-1401"),
        ([encode_chunk((request()[: ENVELOPE_SIZE - 1], True))], b"VB-1401"),
        ([encode_chunk((request(b"abc")[:-1] + b"?", True))], b"VB-1405"),
        ([encode_chunk((b"VBPK" + struct.pack("<H", 9) + request()[6:], True))], b"VB-1404"),
        (
            [encode_chunk((request(bytes(5000))[:5000], False)), *[encode_chunk((bytes(200_000), False))] * 7],
            b"VB-1406",
        ),
        ([encode_chunk((request(os.urandom(40)), True))], b"VB-1408"),
        ([encode_chunk((request(encode(Done())), True))], b"VB-1408"),
    ],
    ids=["empty", "no chunk", "no packet", "truncated", "damaged", "version", "oversized", "nonsense", "stale"],
)
def test_streams_that_are_not_what_they_should_be(daemon, place, works, chunks, code):
    answer = raw_stream(daemon, place, chunks)
    assert isinstance(answer, bytes), answer
    assert code in answer


@pytest.mark.parametrize("greets", [True, False])
def test_random_chunks_never_end_the_daemon(daemon, place, works, greets):
    rng = np.random.default_rng(3)
    for _ in range(20):
        chunks = [rng.bytes(int(rng.integers(0, 400))) for _ in range(int(rng.integers(1, 5)))]
        raw_stream(daemon, place, chunks, greets)


@pytest.mark.parametrize(
    "first",
    [
        Packet(Kind.REQUEST, b"s" * 16, 1, encode(Propose(JOB, dry_run=True, resume=False))),
        Packet(Kind.HELLO, NO_SESSION, 0, b""),
        Packet(Kind.HELLO, NO_SESSION, 0, bytes(HELLO_BYTES)),
        Packet(Kind.HELLO, NO_SESSION, 0, bytes(HELLO_BYTES + 65)),
        Packet(Kind.PROOF, NO_SESSION, 0, bytes(HELLO_BYTES)),
    ],
    ids=["request", "empty", "no release", "long", "proof"],
)
def test_a_link_that_does_not_begin_with_a_hello(daemon, place, works, first):
    answer = raw_stream(daemon, place, map(encode_chunk, to_chunks(first, 1 << 16)), greets=False)
    assert b"VB-1403" in answer


def test_the_caller_hears_why(daemon, place, works):
    channel = caller(daemon, tls(place, "bank"))
    with pytest.raises(OversizedMessage, match="VB-1406: shop"):
        channel.send(Propose("#" + "x" * 900_000 + "\n" + "#" + "y" * 900_000, dry_run=True, resume=False))()
    channel.close()


def test_another_version_is_told_apart(daemon, place, works, monkeypatch):
    monkeypatch.setattr("veilboost.wire.rpc.VERSION", 9)
    envelope = request()
    monkeypatch.undo()
    assert b"VB-1404" in raw_stream(daemon, place, [encode_chunk((envelope, True))])
    assert WireVersion.code == "VB-1404"


def test_a_peer_that_takes_requests_and_never_answers_is_given_up(place):
    held = threading.Event()

    def never(packet):
        held.wait(60)
        return packet

    silent = LinkServer(
        "127.0.0.1:0", lambda: tls(place, "shop"), lambda _: BANK, lambda *_: b"", lambda *_: never, LIMITS
    )
    channel = Caller(
        "shop",
        lambda left: dial(f"127.0.0.1:{silent.port}", tls(place, "bank"), server_name("shop"), LIMITS, trusting(left)),
        os.urandom(16),
        Catalogue(CONTROL_MESSAGES),
        Transcript("bank"),
        30.0,
        idle_timeout=0.3,
    )
    try:
        with pytest.raises(PeerUnreachable, match="shop is connected and has not answered"):
            channel.send(Done())()
    finally:
        held.set()
        channel.close()
        silent.stop()


# --- what one peer may use ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def server(place, welcome=lambda link, peer: lambda packet: packet, **limits):
    """A listening side with limits of its own, to which only these tests connect."""
    running = LinkServer(
        "127.0.0.1:0", lambda: tls(place, "shop"), peer_identity, lambda *_: b"", welcome, LinkLimits(1 << 24, **limits)
    )
    try:
        yield running
    finally:
        running.stop()


def dialled(running, place, party="bank", limits=LIMITS):
    return dial(f"127.0.0.1:{running.port}", tls(place, party), server_name("shop"), limits, trusting())


def links_of(running, party="bank"):
    return running._accounts[party].links if party in running._accounts else 0


def test_connections_without_a_handshake_are_closed(place):
    with server(place, hello_seconds=0.3) as running:
        bare = [socket.create_connection(("127.0.0.1", running.port), timeout=30) for _ in range(20)]
        for connection in bare:
            assert connection.recv(1) == b""  # closed; gRPC's own time for a handshake is two minutes
            connection.close()


def test_connections_beyond_the_limit_are_closed_at_once(place, monkeypatch):
    """Otherwise bare connections take every file that the process may open."""
    monkeypatch.setattr("veilboost.wire.grpc.most_connections", lambda: 3)
    with server(place, hello_seconds=60.0) as running:
        bare = [socket.create_connection(("127.0.0.1", running.port), timeout=30) for _ in range(10)]
        until(lambda: len(select.select(bare, [], [], 0)[0]) == 7, "the others are closed")
        for connection in bare:
            connection.close()


def test_a_stream_without_a_hello_or_with_half_of_one_is_ended(place):
    with server(place, hello_seconds=0.3) as running:
        for chunks in ([], [encode_chunk((Packet(Kind.HELLO, NO_SESSION, 0, b"").envelope() + bytes(2000), False))]):
            wait = threading.Event()
            assert "CANCELLED" in raw_stream(
                running, place, itertools.chain(chunks, iter(lambda w=wait: w.wait(60), True)), greets=False
            )
            wait.set()
        until(lambda: not links_of(running), "the links are free")


def test_one_peer_cannot_take_the_links_of_another(place):
    with server(place, links=2, peers=2) as running:
        held = [dialled(running, place) for _ in range(2)]
        with pytest.raises(PeerUnreachable, match="VB-1412: bank has 2 connections open"):
            dialled(running, place)
        dialled(running, place, "stranger").close()
        for link in held:
            link.close()
        until(lambda: not links_of(running), "closed links no longer count")
        dialled(running, place).close()


def test_an_answer_that_a_peer_never_reads_is_given_up(place):
    large = Packet(Kind.ANSWER, b"s" * 16, 1, bytes(1 << 26))
    with server(place, lambda *_: lambda packet: large, packet_seconds=1.0) as running:
        link = dialled(running, place)
        assert links_of(running) == 1
        link.send(Packet(Kind.REQUEST, b"s" * 16, 1, b""))
        until(lambda: not links_of(running), "the link is closed, and its thread is free")
        link.close()


def test_a_peer_that_is_connected_and_never_reads_is_given_up(place):
    with server(place, lambda *_: None) as deaf:
        channel = Caller(
            "shop",
            lambda left: dialled(deaf, place),
            os.urandom(16),
            Catalogue(CONTROL_MESSAGES),
            Transcript("bank"),
            30.0,
            idle_timeout=0.3,
        )
        with pytest.raises(PeerUnreachable, match="shop is connected and has not read the request within") as refused:
            channel.send(BeginAlignment(1, np.zeros(1 << 26, np.uint8)))()
        assert "request_seconds" in refused.value.remedy
        channel.close()
