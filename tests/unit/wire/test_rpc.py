"""Requests over links that break, with time and network made by hand."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from veilboost.errors import (
    AgainstPolicy,
    CheckpointFailed,
    DamagedPacket,
    OversizedMessage,
    PeerRefused,
    PeerUnreachable,
    StaleSession,
    UnexpectedMessage,
    UnknownMessage,
)
from veilboost.infer.messages import BeginPrediction
from veilboost.wire import transcript
from veilboost.wire.channel import MemoryChannel, Peers
from veilboost.wire.message import Catalogue, Done, decode_all, encode, join_frames
from veilboost.wire.rpc import Caller, IdleTimeout, Kind, Packet, answer_requests, failure_body, failure_from
from veilboost.wire.transcript import Transcript, turns

pytestmark = pytest.mark.fast
SESSION = b"s" * 16


class ManualClock:
    def __init__(self):
        self.time = 0.0
        self.pauses = []

    def monotonic(self):
        return self.time

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.time += max(seconds, 1e-6)


class ScriptedLink:
    """Answers with a function; after `breaks_after` requests it stops answering."""

    def __init__(self, answer, breaks_after=None):
        self.answer, self.left, self.waiting, self.closed = answer, breaks_after, [], False

    def send(self, packet):
        if self.left is not None and self.left <= 0:
            raise PeerUnreachable("gone")
        if self.left is not None:
            self.left -= 1
        self.waiting.append(self.answer(packet))

    def receive(self):
        reply = self.waiting.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self):
        self.closed = True


def done(packet):
    return Packet(Kind.ANSWER, packet.session, packet.number, encode(Done()))


def caller(open_link, clock, **options):
    return Caller(
        "shop", open_link, SESSION, Catalogue([Done, BeginPrediction]), Transcript("bank"), 30.0, clock, **options
    )


def test_a_request_is_answered_and_both_are_recorded():
    transcript = Transcript("bank")
    link = ScriptedLink(done)
    channel = Caller("shop", lambda left: link, SESSION, Catalogue([Done]), transcript, 30.0, ManualClock())
    assert isinstance(channel.send(BeginPrediction(3))(), Done)
    assert [(e.direction, e.message) for e in transcript.entries] == [("sent", "BeginPrediction"), ("received", "Done")]


def test_requests_that_are_held_are_sent_in_one_packet_with_the_next_one():
    packets, transcript = [], Transcript("bank")

    def both(packet):
        packets.append(packet)
        found = [message.rows for message, _ in decode_all(packet.body, Catalogue([BeginPrediction]))]
        told = [encode(BeginPrediction(10 * rows)) for rows in found]
        return Packet(Kind.ANSWER, packet.session, packet.number, join_frames(told))

    link, catalogue = ScriptedLink(both), Catalogue([BeginPrediction])
    channel = Caller("shop", lambda left: link, SESSION, catalogue, transcript, 30.0, ManualClock())
    peers = Peers({"shop": channel})
    held = peers.hold({"shop": BeginPrediction(1)}, BeginPrediction)
    assert not packets
    with pytest.raises(RuntimeError, match="not sent"):
        held["shop"]()
    assert peers.ask({"shop": BeginPrediction(2)}, BeginPrediction)["shop"].rows == 20
    assert peers.collect(held, BeginPrediction)["shop"].rows == 10
    assert (len(packets), peers.rounds) == (1, 1)
    assert [entry.direction for entry in transcript.entries] == ["sent", "sent", "received", "received"]
    assert turns(transcript.entries) == 2
    peers.hold({"shop": BeginPrediction(3)}, BeginPrediction)
    peers.flush()
    peers.flush()
    assert (len(packets), peers.rounds) == (2, 2)


def test_a_held_request_needs_its_own_answer_of_the_right_type():
    link = ScriptedLink(lambda p: Packet(Kind.ANSWER, p.session, p.number, join_frames([encode(Done())] * 2)))
    peers = Peers({"shop": caller(lambda left: link, ManualClock())})
    peers.hold({"shop": BeginPrediction(1)}, BeginPrediction)
    with pytest.raises(UnexpectedMessage, match="answered Done where BeginPrediction"):
        peers.ask({"shop": Done()}, Done)
    with pytest.raises(UnexpectedMessage, match="1 requests were sent together and 2 answered"):
        peers.ask({"shop": Done()}, Done)


def test_what_is_held_is_dropped_with_the_round_that_failed():
    def refuses(packet):
        raise PeerUnreachable("gone")

    class Refusing(MemoryChannel):
        def send(self, message):
            raise PeerUnreachable("gone")

    seen, catalogue = [], Catalogue([Done])
    well = MemoryChannel(lambda m: seen.append(m) or Done(), catalogue, Transcript("bank"), Transcript("shop"))
    bad = Refusing(refuses, catalogue, Transcript("bank"), Transcript("telecom"))
    peers = Peers({"telecom": bad, "shop": well})
    peers.hold({"shop": BeginPrediction(1), "telecom": BeginPrediction(1)}, Done)
    with pytest.raises(PeerUnreachable):
        peers.ask({"telecom": Done(), "shop": Done()}, Done)
    peers.ask({"shop": Done()}, Done)
    assert [message.type_name() for message in seen] == ["Done"]


def test_a_broken_link_is_opened_again_and_the_request_repeated_with_its_number():
    seen = []

    def note(packet):
        seen.append((packet.number, packet.body))
        return done(packet)

    links = iter(
        [
            ScriptedLink(lambda packet: (seen.append((packet.number, packet.body)), PeerUnreachable("reset"))[1]),
            ScriptedLink(note, breaks_after=0),
            ScriptedLink(note),
        ]
    )
    clock, waits = ManualClock(), []
    channel = caller(lambda left: next(links), clock, waiting=lambda peer, why: waits.append((peer, why)))
    assert isinstance(channel.send(BeginPrediction(1))(), Done)
    assert seen[0] == seen[1]
    assert seen[0][0] == 1
    assert waits
    assert all(peer == "shop" for peer, _ in waits)
    channel.send(BeginPrediction(2))()
    assert seen[-1][0] == 2


def test_a_peer_that_misses_another_party_says_so_and_is_not_asked_again():
    asked = []

    def misses(packet):
        asked.append(packet)
        return Packet(
            Kind.FAILURE, packet.session, packet.number, failure_body(PeerUnreachable("csp is gone", public=True))
        )

    clock = ManualClock()
    with pytest.raises(PeerUnreachable, match="shop: csp is gone"):
        caller(lambda left: ScriptedLink(misses), clock).send(BeginPrediction(1))()
    assert len(asked) == 1
    assert not clock.pauses


def test_a_peer_that_never_comes_back_is_an_error_within_the_deadline():
    clock = ManualClock()

    def nobody(left):
        raise PeerUnreachable("connection refused")

    channel = caller(nobody, clock)
    with pytest.raises(PeerUnreachable, match=r"shop did not answer within 30 s \(connection refused\)"):
        channel.send(BeginPrediction(1))()
    assert 29 <= clock.time <= 33
    assert clock.pauses[0] < clock.pauses[3] <= 2.0, "pauses grow, up to a bound"


def test_time_that_is_spent_waiting_for_another_peer_does_not_count():
    clock = ManualClock()
    answer = caller(lambda left: ScriptedLink(done), clock).send(BeginPrediction(1))
    clock.time += 1000.0
    assert isinstance(answer(), Done)


class LateLink(ScriptedLink):
    """Breaks after a peer has worked for long."""

    def __init__(self, clock, seconds):
        super().__init__(lambda packet: PeerUnreachable("reset"))
        self.clock, self.seconds = clock, seconds

    def receive(self):
        self.clock.time += self.seconds
        return super().receive()


def test_the_time_to_wait_for_a_peer_begins_when_it_is_gone():
    clock = ManualClock()
    links = iter([LateLink(clock, 1000.0), ScriptedLink(done)])
    assert isinstance(caller(lambda left: next(links), clock, idle_timeout=3600.0).send(Done())(), Done)


@pytest.mark.parametrize(("seconds", "least", "most"), [(1000.0, 3600, 4700), (0.0, 29, 33)])
def test_a_link_that_breaks_again_and_again_is_given_up(seconds, least, most):
    clock = ManualClock()
    channel = caller(lambda left: LateLink(clock, seconds), clock, idle_timeout=3600.0)
    with pytest.raises(PeerUnreachable, match=r"did not answer .*reset"):
        channel.send(Done())()
    assert least <= clock.time <= most


def test_failures_keep_their_meaning():
    def fail(error):
        return lambda packet: Packet(Kind.FAILURE, packet.session, packet.number, failure_body(error))

    channel = caller(lambda left: ScriptedLink(fail(StaleSession("not known"))), ManualClock())
    with pytest.raises(StaleSession, match="shop: the party does not know the session; a driver that still runs"):
        channel.send(Done())()
    refusal = AgainstPolicy("no", "ask the owner", public=True)
    channel = caller(lambda left: ScriptedLink(fail(refusal)), ManualClock())
    with pytest.raises(PeerRefused, match=r"VB-1410: shop refused .VB-1612: no.; ask the owner"):
        channel.send(Done())()


@pytest.mark.parametrize("code", ["VB-1612", "VB-1409", "\x1b[2J"])
def test_a_failure_cannot_write_to_the_terminal_of_its_reader(code):
    """Nor fill it: its texts are a peer's, and may be of any length."""
    body = f"{code}\nno \x1b[2J\u202e\x07{'x' * 10_000}\nrun\r\n\x9b31m{'y' * 10_000}\n{'z' * 10_000}".encode()
    found = str(failure_from("shop", body))
    assert found.isprintable()
    assert "shop" in found
    assert len(found) < 4000


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda p: Packet(Kind.ANSWER, b"t" * 16, p.number, encode(Done())), UnexpectedMessage),
        (lambda p: Packet(Kind.ANSWER, p.session, p.number + 1, encode(Done())), UnexpectedMessage),
        (lambda p: Packet(Kind.REQUEST, p.session, p.number, encode(Done())), UnexpectedMessage),
        (lambda p: Packet(Kind.ANSWER, p.session, p.number, encode(UnknownAnswer())), UnknownMessage),
    ],
)
def test_wrong_answers_are_refused(wrong, error):
    channel = caller(lambda left: ScriptedLink(wrong), ManualClock())
    with pytest.raises(error):
        channel.send(Done())()


class UnknownAnswer(Done):
    pass


def test_answering_ends_with_the_link_and_never_raises():
    class Incoming:
        def __init__(self):
            self.requests = [Packet(Kind.REQUEST, SESSION, n, b"") for n in (1, 2)]
            self.sent, self.closed = [], False

        def receive(self):
            if not self.requests:
                raise PeerUnreachable("reset")
            return self.requests.pop(0)

        def send(self, packet):
            self.sent.append(packet.number)

        def finish(self):
            self.closed = True

    link = Incoming()
    answer_requests(link, done)
    assert link.sent == [1, 2]
    assert link.closed


def test_what_cannot_be_read_is_said_before_the_link_ends():
    class Incoming:
        sent, finished = None, False

        def receive(self):
            raise OversizedMessage("a message of more than 1 MB arrived", public=True)

        def send(self, packet):
            self.sent = packet

        def finish(self):
            self.finished = True

    link = Incoming()
    answer_requests(link, done)
    assert link.finished
    channel = caller(lambda left: ScriptedLink(lambda packet: link.sent), ManualClock())
    with pytest.raises(OversizedMessage, match="shop: a message of more than 1 MB"):
        channel.send(Done())()


def test_a_damaged_answer_is_asked_for_again():
    links = iter([ScriptedLink(lambda packet: DamagedPacket("bad")), ScriptedLink(done)])
    assert isinstance(caller(lambda left: next(links), ManualClock()).send(Done())(), Done)


class SilentLink:
    """Takes requests and says nothing until it is closed."""

    def __init__(self, on_close):
        self.closed, self.on_close = threading.Event(), on_close

    def send(self, packet):
        pass

    def receive(self):
        assert self.closed.wait(30)
        return self.on_close()

    def close(self):
        self.closed.set()


def _broken():
    raise PeerUnreachable("cancelled")


@pytest.mark.parametrize("on_close", [lambda: None, _broken])
def test_a_peer_that_lives_and_says_nothing_is_given_up(on_close):
    channel = caller(lambda left: SilentLink(on_close), time, idle_timeout=0.05)
    with pytest.raises(PeerUnreachable, match="is connected and has not answered within") as refused:
        channel.send(BeginPrediction(1))()
    assert "request_seconds" in refused.value.remedy


def test_idle_timeout_is_for_one_wait_and_not_for_all_of_them():
    """Waits that are short, however many, never end one; a timer that comes too early looks again."""
    given_up, timers = [], []
    idle_timeout = IdleTimeout(5.0, lambda: given_up.append(True))

    def look_in(seconds):
        timers.append(seconds)
        idle_timeout._timer = object()  # a timer that only the test fires

    idle_timeout._look_in = look_in
    with idle_timeout:
        pass
    idle_timeout._look()
    assert timers == [5.0]  # nobody waited: it ended
    with idle_timeout:
        idle_timeout._since -= 2.0
        idle_timeout._look()
        assert timers[1] == 5.0
        assert timers[2] == pytest.approx(3.0, abs=0.5)
        assert not given_up
        idle_timeout._since -= 4.0
        idle_timeout._look()
    assert given_up
    assert idle_timeout.over
    with idle_timeout:  # a new wait starts from zero
        assert not idle_timeout.over


def test_a_closed_channel_leaves_no_timer_behind():
    before = set(threading.enumerate())
    channel = caller(lambda left: ScriptedLink(done), ManualClock(), idle_timeout=3600.0)
    for _ in range(2):  # a channel that was closed may be used again
        channel.send(Done())()
        assert len(set(threading.enumerate()) - before) == 1
        channel.close()
        assert set(threading.enumerate()) == before


def test_a_timer_that_fires_while_its_channel_closes_starts_no_other():
    given_up = []
    idle_timeout = IdleTimeout(3600.0, lambda: given_up.append(True))
    with idle_timeout:
        idle_timeout.close()
        idle_timeout._look()  # it had begun before it could be cancelled
        assert idle_timeout._timer is None
    assert not given_up


def test_an_interrupt_while_the_timer_starts_does_not_break_the_close(monkeypatch):
    def interrupted(timer):
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Timer, "start", interrupted)
    idle_timeout = IdleTimeout(5.0, lambda: None)
    with pytest.raises(KeyboardInterrupt), idle_timeout:
        pass
    idle_timeout.close()


def test_a_line_that_a_full_disk_does_not_take_is_a_coded_error_also_when_the_file_is_closed(tmp_path):
    transcript = Transcript("bank", tmp_path / "transcript")
    transcript._lines.close()
    transcript._lines = Path("/dev/full").open("w", buffering=1 << 16)  # noqa: SIM115 - closed below
    transcript.record("sent", "shop", Done(), 1)
    with pytest.raises(CheckpointFailed, match="the transcript cannot be written"):
        transcript.close()
    transcript.close()


def test_a_session_is_closed_while_another_thread_records_a_message(tmp_path, monkeypatch):
    written = Transcript("bank", tmp_path)
    closing = threading.Thread(target=written.close)

    def close_now(reveals):
        closing.start()
        closing.join(0.2)  # it waits for the line; a close that does not wait is done by now
        return "[]"

    monkeypatch.setattr(transcript, "_as_json", close_now)
    written.record("sent", "shop", Done(), 1)
    closing.join()
    written.record("sent", "shop", Done(), 1)  # after the end: nothing is written
    assert len(list(transcript.read_transcript(tmp_path))) == 1
