"""secagg with dropouts: rounds without lost participants, cut trees, rosters that nobody can forge, and returns."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossy import Lossy, config_of, counted, dealt, pooled
from support import make_columns, make_labels
from veilboost.crypto.pairwise import PairwiseMasks
from veilboost.data.table import PartyTable
from veilboost.errors import InvalidParameter, MalformedMessage, PeerUnreachable, UnexpectedMessage
from veilboost.model.joined import join
from veilboost.party.horizontal import _Keeper
from veilboost.party.messages import Accepted
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.secagg.messages import (
    CountsRequest,
    CutsFound,
    MaskedSums,
    MissedLevel,
    RosterAccepted,
    RosterConfirmed,
    RosterRequest,
    SecaggGroup,
    SumsRequest,
)
from veilboost.protocols.secagg.noise import SumNoise, least_roster
from veilboost.wire.channel import Peers
from veilboost.wire.message import MOST_TOGETHER, Done

pytestmark = pytest.mark.fast


def whole(name="binary", rows=250, seed=4):
    columns = make_columns(seed, rows=rows, numeric=3, categorical=1, missing=0.1)
    return PartyTable(np.arange(rows), tuple(columns), make_labels(seed, columns, name))


def trees_of(share):
    return [(tree.left.tolist(), tree.weight.tolist(), tree.cover.tolist()) for tree in share.skeleton.trees]


def same_model(run, plain):
    """The same trees with the same splits."""
    one, other = run.outcome.share, join(plain.shares)
    assert trees_of(one) == [(t.left.tolist(), t.weight.tolist(), t.cover.tolist()) for t in other.trees]
    return run.model.sha256() == other.sha256()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(["binary", "multiclass"]),
    subsample=st.sampled_from([0.5, 1.0]),
    columns=st.sampled_from([0.6, 1.0]),
    validates=st.booleans(),
    lost=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 4), st.sampled_from(["roster", 0, 1, 2, "metric"])),
        max_size=2,
        unique_by=lambda each: each[0],
    ),
    away=st.lists(st.integers(1, 4), min_size=2, max_size=2),
    restores=st.booleans(),
)
def test_the_model_is_that_of_the_rows_that_counted_in_each_tree(
    seed, name, subsample, columns, validates, lost, away, restores
):
    tables = dealt(whole(name, seed=seed), 6)
    config = config_of(2, objective=name, subsample=subsample, colsample_bytree=columns)
    losses = {f"p{who}": (number, point) for who, number, point in lost}
    returns = {name: number + away[at] for at, (name, (number, _)) in enumerate(losses.items())}
    held_out = {name: np.arange(table.rows) % 4 == 0 for name, table in tables.items()} if validates else None
    job = Lossy(tables, config, losses, returns, restores, held_out=held_out)
    run = job.train()
    rounds = counted(run.outcome.membership, tables, config.n_estimators)
    assert same_model(run, pooled(tables, config, rounds, held_out))
    for party, share in run.shares.items():
        if party not in run.outcome.dropped:
            assert join({"model": share}).sha256() == run.model.sha256()
    assert job.changes == list(run.outcome.membership)
    back = {each.party for each in run.outcome.membership if each.event == "returned"}
    due = {name for name in losses if name not in job.losses and returns[name] < config.n_estimators}
    assert back == due


def test_without_a_loss_the_model_is_that_of_a_job_without_dropouts():
    tables = dealt(whole(), 5)
    run = Lossy(tables, config_of(2), coded=True).train()
    plain = simulate_training(tables, SERVER, "secagg", replace(config_of(), options={}))
    assert trees_of(run.outcome.share) == trees_of(plain.outcome.share)
    assert not run.outcome.membership


@pytest.mark.parametrize("name", ["regression", "poisson"])
def test_losses_whose_gradients_have_no_bound(name):
    tables = dealt(whole(name), 5)
    config = config_of(2, objective=name)
    for losses in ({"p1": (1, "scale")}, {"p1": (1, 2), "p3": (3, "scale")}):
        run = Lossy(tables, config, losses, {"p1": 3}, restores=False, coded=True).train()
        assert [each.event for each in run.outcome.membership][:1] == ["lost"]
        assert run.outcome.membership[-1].event == "returned" or set(run.outcome.dropped) == {"p3"}
        assert len(run.outcome.share.skeleton.trees) == config.n_estimators


def test_a_participant_that_returns_continues_from_its_checkpoint():
    tables, missed = dealt(whole(), 5), {}
    for restores in (True, False):
        job = Lossy(tables, config_of(), {"p2": (3, 1)}, {"p2": 4}, restores)
        run = job.train()
        kinds = [message for message, _ in job.seen["p2"] if isinstance(message, MissedLevel)]
        missed[restores] = len(kinds)
        assert [str(each) for each in run.outcome.membership] == [
            "p2 was lost in round 4 at level 2",
            "p2 returned in round 5",
        ]
        assert not run.outcome.dropped
        assert join({"model": run.shares["p2"]}).sha256() == run.model.sha256()
    assert 0 < missed[True] < missed[False]


def test_a_participant_that_was_away_for_many_levels_returns(monkeypatch):
    request, together = Peers.request, []

    def counted(self, name, message):
        together.append(len(self._held.get(name, [])) + 1)
        return request(self, name, message)

    monkeypatch.setattr(Peers, "request", counted)
    tables, late = dealt(whole(), 5), MOST_TOGETHER  # rounds, of up to three levels each
    job = Lossy(tables, config_of(n_estimators=late + 4), {"p2": (1, 1)}, {"p2": late + 2})
    run = job.train()
    assert not run.outcome.dropped
    assert sum(isinstance(message, MissedLevel) for message, _ in job.seen["p2"]) > 2 * MOST_TOGETHER
    assert max(together) == MOST_TOGETHER, "more are refused"
    assert join({"model": run.shares["p2"]}).sha256() == run.model.sha256()


def test_too_many_losses_stop_the_job():
    tables = dealt(whole(), 5)
    with pytest.raises(PeerUnreachable, match="3 of 5 participants are left, and the job needs 4"):
        Lossy(tables, config_of(1), {"p1": (1, 1), "p2": (3, "roster")}).train()
    with pytest.raises(PeerUnreachable, match="2 of 5"):
        Lossy(tables, config_of(2), {"p1": (1, 1), "p2": (1, 1), "p4": (1, 1)}).train()
    run = Lossy(tables, config_of(2), {"p1": (1, 1), "p2": (1, 1)}).train()
    assert set(run.outcome.dropped) == {"p1", "p2"}


def test_a_loss_in_the_opening_stops_the_job():
    for kind in (SecaggGroup, CountsRequest, CutsFound):
        job = Lossy(dealt(whole(), 5), config_of(1))
        answer = job._answer

        def gone(message, answer=answer, kind=kind):
            if isinstance(message, kind):
                raise PeerUnreachable("p3 is gone")
            return answer("p3", message)

        job.peers._channels["p3"]._handler = gone
        with pytest.raises(PeerUnreachable, match="masks of the others do not cancel"):
            job.train()


@given(st.integers(2, 300), st.integers(0, 300), st.integers(1, 300))
def test_two_rosters_of_a_round_always_share_an_honest_participant(participants, dropouts, colluding):
    config = config_of(dropouts, options={"colluding": colluding})
    if not dropouts:
        assert least_roster(config, participants) == participants
        return
    least = participants - dropouts
    sound = least >= 3 and 2 * least > participants + colluding
    if sound:
        assert least_roster(config, participants) == least
        return
    with pytest.raises(InvalidParameter, match="dropouts") as refused:
        least_roster(config, participants)
    best = int(str(refused.value).rpartition(" ")[2])
    if best:
        assert least_roster(config_of(best, options={"colluding": colluding}), participants)
    with pytest.raises(InvalidParameter):
        least_roster(config_of(best + 1, options={"colluding": colluding}), participants)


def test_both_sides_refuse_too_many_dropouts():
    tables = dealt(whole(), 5)
    with pytest.raises(InvalidParameter, match="at most 2"):
        Lossy(tables, config_of(3)).train()
    job = Lossy(tables, config_of(1, options={"colluding": 3}))
    told = job.server._introductions()
    group = SecaggGroup("{}", tuple(told), np.stack([each.public for each in told.values()]), ("",) * 5, 0)
    with pytest.raises(InvalidParameter, match="at most 0"):
        job.participants["p0"].handle(group)


# --- malicious servers ----------------------------------------------------------------------------------------


class Tampering(Lossy):
    """A server whose messages to one participant are changed."""

    def __init__(self, *rest, to="p0", change=lambda message: message, hide=lambda answer: answer, **named):
        super().__init__(*rest, **named)
        self.to, self.change, self.hide = to, change, hide

    def _answer(self, name, message):
        return self.hide(super()._answer(name, self.change(message) if name == self.to else message))

    def answered(self, name, number):
        """The masked answers of one participant in this round."""
        return [a for m, a in self.seen[name] if isinstance(a, MaskedSums) and m.number == number]


def without(message, party):
    """The same roster without one participant."""
    at = [name != party for name in message.participants]
    return replace(
        message,
        participants=tuple(name for name in message.participants if name != party),
        publics=np.ascontiguousarray(message.publics[at]),
        evidence=tuple(each for each, kept in zip(message.evidence, at, strict=True) if kept),
    )


def in_round(number, kind, change):
    return lambda message: change(message) if isinstance(message, kind) and message.number == number else message


def refused(job, number, match, error=MalformedMessage):
    with pytest.raises(error, match=match):
        job.train()
    assert not job.answered(job.to, number)


def test_different_rosters_for_different_participants_are_noticed_before_anything_is_masked():
    tables = dealt(whole(), 5)

    def change(message):
        if isinstance(message, RosterRequest) and message.number == 1:
            return without(message, "p4")
        if isinstance(message, RosterConfirmed) and message.number == 1:
            return replace(message, proofs=message.proofs[:4])
        return message

    def hide(answer):  # as a server that does not mind
        if isinstance(answer, RosterAccepted) and len(answer.proofs) == 4:
            return replace(answer, proofs=np.concatenate((answer.proofs, answer.proofs[:1])))
        return answer

    refused(Tampering(tables, config_of(), change=change, hide=hide), 1, "did not accept the roster")


@pytest.mark.parametrize("field", ["base_margin", "cuts"])
def test_openings_that_differ_are_noticed_before_anything_is_masked(field):
    def change(message):
        if not isinstance(message, CutsFound):
            return message
        return replace(message, **{field: getattr(message, field) + np.float32(60)})

    refused(Tampering(dealt(whole(), 5), config_of(), change=change), 0, "did not accept the roster")


def test_proofs_that_are_replayed_forged_or_of_another_are_refused():
    tables, earlier = dealt(whole(), 5), []

    def kept(message):
        if isinstance(message, RosterConfirmed) and message.number < 2:
            earlier.append(message.proofs)
        return replace(message, proofs=earlier[0]) if getattr(message, "number", 0) == 2 and earlier else message

    def confirmed(change):
        return in_round(2, RosterConfirmed, lambda message: replace(message, proofs=change(message.proofs)))

    def flipped(proofs):
        proofs = proofs.copy()
        proofs[3, 7] ^= 1
        return proofs

    changes = [
        lambda message: kept(message) if isinstance(message, RosterConfirmed) else message,
        confirmed(flipped),
        confirmed(np.zeros_like),
        confirmed(lambda proofs: np.roll(proofs, 1, axis=0)),
        confirmed(lambda proofs: proofs[:-1]),
        confirmed(lambda proofs: np.repeat(proofs[1:2], len(proofs), axis=0)),
    ]
    for change in changes:
        refused(Tampering(tables, config_of(), change=change), 2, "did not accept the roster")
    wrong = in_round(2, RosterConfirmed, lambda message: replace(message, number=1))
    refused(Tampering(tables, config_of(), change=wrong), 2, "not accepted last", UnexpectedMessage)


def test_nothing_is_masked_before_the_roster_is_confirmed():
    job = Lossy(dealt(whole(), 5), config_of())
    answer = job._answer

    def skipped(name, message):
        unconfirmed = name == "p0" and isinstance(message, RosterConfirmed) and message.number == 2
        return Done() if unconfirmed else answer(name, message)

    job.peers._channels["p0"]._handler = lambda message: skipped("p0", message)
    with pytest.raises(UnexpectedMessage, match="out of order"):
        job.train()


def test_a_round_is_begun_once_with_its_roster():
    """The server ends the round at its root and asks for the root again: with noise, for other noise."""
    job = Lossy(dealt(whole(), 5), config_of())
    answer, refusals = job._answer, []

    def again(name, message):
        answered = answer(name, message)
        if isinstance(message, SumsRequest) and message.depth == 0:
            leaf = {"leaves": np.zeros(1, np.int32), "weights": np.zeros(1, np.float32)}
            with pytest.raises(UnexpectedMessage, match="out of order"):
                job.participants[name].handle(replace(message, **leaf))
            refusals.append((message.number, name))
        return answered

    for name, channel in job.peers._channels.items():
        channel._handler = lambda message, name=name: again(name, message)
    job.train()
    assert refusals == [(number, name) for number in range(5) for name in job.participants]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda message: without(without(message, "p3"), "p4"), "has 3 participants, and the job needs 4"),
        (lambda message: without(message, "p0"), "its recipient"),
        (lambda message: replace(message, participants=(*message.participants[:4], "p9")), "participants of the job"),
        (lambda message: replace(message, participants=(*message.participants[:4], "p0")), "participants of the job"),
        (lambda message: replace(message, participants=message.participants[::-1]), "in their order"),
        (lambda message: replace(message, publics=message.publics[:4]), "one public key"),
        (lambda message: replace(message, publics=np.roll(message.publics, 1, axis=0)), "was replaced"),
        (lambda message: replace(message, number=0), "twice for a round"),
        (lambda message: replace(message, number=5), "out of order"),
    ],
)
def test_rosters_that_do_not_fit_the_job_are_refused(change, match):
    job = Tampering(dealt(whole(), 5), config_of(), change=in_round(1, RosterRequest, change))
    refused(job, 1, match, (MalformedMessage, UnexpectedMessage))


def test_a_round_has_one_roster_also_after_a_restart():
    job = Lossy(dealt(whole(), 5), config_of())
    job.train()
    requests = [message for message, _ in job.seen["p0"] if isinstance(message, RosterRequest)]
    opening = [message for message, _ in job.seen["p0"] if isinstance(message, SecaggGroup | CutsFound)]
    role = job.participants["p0"]
    for session, attempt in ((b"s", b""), (b"s", b"again"), (b"other", b"again")):
        again = type(role)(replace(role._context, session=session, attempt=attempt))
        publics = opening[0].publics.copy()
        publics[0] = again.introduce().public
        for message in (replace(opening[0], publics=publics), opening[1]):
            again.handle(message)
        roster = without(replace(requests[1], publics=publics), "p4")
        if session == b"s":
            with pytest.raises(UnexpectedMessage, match="accepted before"):
                again.handle(roster)
        else:  # a job that resumes, with other keys
            again.handle(roster)
            with pytest.raises(UnexpectedMessage, match="twice"):
                again.handle(replace(roster, participants=requests[1].participants, publics=publics))


def test_a_late_answer_of_a_lost_participant_opens_nothing():
    """The server declares p4 lost, trains on without it, and receives its answer to the old request after all."""
    tables = dealt(whole(), 5)
    job = Lossy(tables, config_of(), {"p4": (1, 1)})
    lost, late, requested = job.participants["p4"], [], []
    answer = job._answer

    def noted(name, message):
        if name == "p4" and isinstance(message, SumsRequest) and (message.number, message.depth) == (1, 1):
            late.append(lost.handle(message))
            requested.append(message)
        return answer(name, message)

    job._answer = noted
    job.peers._channels["p4"]._handler = lambda message: noted("p4", message)
    job.train()

    def sums(name, number, depth):
        found = [
            a.sums for m, a in job.seen[name] if isinstance(a, MaskedSums) and (m.number, m.depth) == (number, depth)
        ]
        return found[0]

    def hidden(values):
        # Of 62 uniform words, half are below 2^55 with a probability under 2^-180.
        assert np.median(np.abs(values.reshape(-1).view(np.int64).astype(float))) > 2**55

    others = [sums(f"p{at}", 1, 1) for at in range(4)]
    assert len(late) == 1
    assert late[0].sums.size > 60
    assert np.abs((sum(others) + late[0].sums).view(np.int64)).max() < 2**40, "the sum over the whole roster"
    hidden(late[0].sums)
    hidden(sum(others))  # without the late answer nothing opens: the tree was cut there
    for depth in range(3):
        after = [sums(f"p{at}", 2, depth) for at in range(4)]
        assert np.abs(sum(after).view(np.int64)).max() < 2**40
        size = min(after[0].size, late[0].sums.size)
        for parts in ([late[0].sums], [late[0].sums, *after], [late[0].sums, *others, *after[:3]]):
            hidden(sum(each.reshape(-1)[:size] for each in parts))
    # Survivors answer no request of the round that was cut, and the lost one takes part in no roster without itself.
    for name in ("p0", "p4"):
        with pytest.raises((UnexpectedMessage, MalformedMessage)):
            job.participants[name].handle(replace(requested[0], depth=2))
    roster = next(m for m, _ in job.seen["p0"] if isinstance(m, RosterRequest) and m.number == 2)
    with pytest.raises(MalformedMessage, match="its recipient"):
        lost.handle(roster)


def test_missed_trees_that_differ_are_noticed_before_anything_is_masked():
    tables = dealt(whole(), 5)

    def heavier(message):
        return replace(message, weights=message.weights * 2) if len(message.weights) else message

    def moved(message):
        return replace(message, ends=message.ends + np.float32(1)) if len(message.ends) else message

    for change in (in_round(1, MissedLevel, heavier), in_round(2, MissedLevel, moved)):
        job = Tampering(tables, config_of(), {"p2": (1, 1)}, {"p2": 4}, to="p2", change=change)
        with pytest.raises(MalformedMessage, match="has other trees before it"):
            job.train()
        assert not any(isinstance(answer, MaskedSums) for message, answer in job.seen["p2"][-3:])
        assert not job.answered("p0", 4)


def test_a_round_that_was_missed_has_no_more_levels_than_the_job():
    deeper = in_round(1, MissedLevel, lambda message: replace(message, ends=message.ends[:0]))
    job = Tampering(dealt(whole(), 5), config_of(max_depth=1), {"p2": (2, 0)}, {"p2": 3}, False, to="p2", change=deeper)
    assert "more levels than the job has" in job.train().outcome.dropped["p2"]


def test_missed_levels_come_only_to_those_that_return():
    job = Lossy(dealt(whole(), 5), config_of(), {"p2": (1, 1)}, {"p2": 3})
    job.train()
    missed = [message for message, _ in job.seen["p2"] if isinstance(message, MissedLevel)]
    with pytest.raises(UnexpectedMessage, match="missed no round"):
        job.participants["p0"].handle(missed[-1])
    plain = Lossy(dealt(whole(), 5), config_of(0))
    plain.train()
    for message in (missed[-1], next(m for m, _ in job.seen["p0"] if isinstance(m, RosterRequest))):
        with pytest.raises(UnexpectedMessage, match="not a request to a participant"):
            plain.participants["p0"].handle(message)


class Named:
    """A signer whose evidence names the party and the content."""

    def __init__(self, party):
        self.party = party

    def sign(self, content):
        return f"{self.party} {content.hex()}"

    def check(self, party, content, evidence):
        if evidence != f"{party} {content.hex()}":
            raise MalformedMessage("a signature does not verify")


def test_the_key_of_a_participant_that_returned_is_verified():
    tables = dealt(whole(), 5)
    for forged in (False, True):

        def change(message, forged=forged):
            if forged and isinstance(message, RosterRequest) and any(message.evidence):
                publics = message.publics.copy()
                publics[2] = np.frombuffer(PairwiseMasks(b"7" * 32).public, np.uint8)
                return replace(message, publics=publics)
            return message

        job = Tampering(tables, config_of(), {"p2": (1, 1)}, {"p2": 3}, change=change)
        introductions = {}
        for name, role in job.participants.items():
            job.participants[name] = type(role)(replace(role._context, signer=Named(name)))
            introductions[name] = job.participants[name].introduce()
        job.server._context = replace(job.server._context, introductions=introductions)
        if forged:
            with pytest.raises(MalformedMessage, match="does not verify"):
                job.train()
        else:
            assert not job.train().outcome.dropped
            requests = [message for message, _ in job.seen["p0"] if isinstance(message, RosterRequest)]
            assert sum(any(each.evidence) for each in requests) == 1, "a key is proved once"


def test_a_participant_that_returns_with_another_table_stays_away():
    tables = dealt(whole(), 5)
    other = PartyTable(tables["p2"].ids, tables["p2"].columns[1:], tables["p2"].label)
    changed = replace(tables["p2"], label=1 - tables["p2"].label)
    for table, restores in ((other, False), (changed, True)):
        job = Lossy(tables, config_of(), {"p2": (3, 1)}, {"p2": 4}, restores)
        readmit = job.readmit

        def with_table(name, job=job, readmit=readmit, table=table):
            role = job.participants[name]
            if name in job.returns:
                job.participants[name] = type(role)(replace(role._context, table=table))
            return readmit(name)

        job.readmit = with_table
        run = job.train()
        assert set(run.outcome.dropped) == {"p2"}
        assert run.outcome.dropped["p2"].startswith("VB-") or "VB" in run.outcome.dropped["p2"]


class Answering:
    """The channel to a participant that answers like this."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def within(self, seconds):
        return nullcontext()

    def send(self, message):
        return lambda: self.answers.pop(0)


def test_a_participant_that_returns_with_nonsense_does_not_end_the_job():
    wrong = Accepted("0.2.0", aligned=False, trees=np.array([1, 2], dtype=np.int32), digests=("ab",))
    job = SimpleNamespace(text=lambda: "")
    keeper = _Keeper(None, Peers({}), None, {"p2": Answering(wrong, Done())}, job)
    with pytest.raises(MalformedMessage, match="p2 does not name one digest"):  # then it stays away
        keeper.readmit("p2")


# --- noise ----------------------------------------------------------------------------------------------------


def test_the_noise_of_those_that_are_left_suffices():
    config = config_of(2, options={"epsilon": 4.0, "colluding": 1})
    noise = SumNoise.of(config, 3)
    part = noise.part(config, 8)
    for present in range(6, 9):
        for name in ("counts", "g", "h"):
            honest = (present - 1) * getattr(part, name) ** 2
            assert honest >= getattr(noise, name) ** 2 * (1 - 1e-12)
    left = (6 - 1) * part.g**2
    assert left == pytest.approx(noise.g**2)


def test_a_job_with_noise_goes_on_and_takes_nobody_back():
    tables = dealt(whole(rows=500), 5)
    config = config_of(1, options={"epsilon": 50.0}, base_score=0.5)
    job = Lossy(tables, config, {"p2": (1, 1)}, {"p2": 3})
    run = job.train()
    assert len(run.outcome.share.skeleton.trees) == 5
    assert "cannot be resumed" in run.outcome.dropped["p2"]
    assert [each.event for each in run.outcome.membership] == ["lost"]
    levels = [message for message, _ in job.seen["p0"] if isinstance(message, SumsRequest)]
    assert len({(message.number, message.depth) for message in levels}) == len(levels), "no level is summed twice"
