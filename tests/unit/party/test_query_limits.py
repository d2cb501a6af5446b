"""A policy binds every query: an active party that asks more than training needs is refused, whatever the protocol."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from support import QUICK_OPTIONS, make_columns, make_labels, split_among
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness, unsafe_key
from veilboost.errors import AgainstPolicy, CheckpointFailed, MalformedMessage, UnexpectedMessage
from veilboost.party.booking import Booking, training_request
from veilboost.party.job import Job, JobParty
from veilboost.party.policy import Policy
from veilboost.party.settings import CertificateSettings, DataSettings, PartySettings
from veilboost.party.training import PassiveSession, TrainingJob, train_active
from veilboost.privacy.event import START, assignments_of
from veilboost.protocols.plain.messages import PlainRound
from veilboost.protocols.registry import protocol_named, protocols_of
from veilboost.protocols.vertical.messages import (
    BeginRound,
    BeginTraining,
    ResumeTraining,
    SplitRequest,
    StatisticsRequest,
)
from veilboost.wire.channel import MemoryChannel, Peers
from veilboost.wire.message import Catalogue
from veilboost.wire.transcript import Transcript

pytestmark = pytest.mark.fast

ROWS, ROUNDS, DEPTH = 120, 2, 2
TRIES = 300
NO_BITS, NO_INTS = np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int32)


class Owner:
    """A passive party's owner with a policy: its sessions of one job, and its ledger."""

    def __init__(self, folder: Path, protocol: str, classes: int = 2, **rules: object) -> None:
        columns = make_columns(4, rows=ROWS, numeric=4)
        labels = make_labels(4, columns)
        self.tables = split_among(columns, labels if classes == 2 else np.arange(ROWS) % float(classes), 2)
        policy = {"peers": {"p0": ("any",)}, "protocols": (protocol,), "allow_unprotected": (protocol,)}
        self.settings = PartySettings(
            "p1",
            CertificateSettings(Path("a"), Path("b"), Path("c")),
            DataSettings(Path("d")),
            runs=folder,
            policy=Policy(**{**policy, **rules}),
        )
        (folder / "job").mkdir(parents=True, exist_ok=True)
        parties = {"p0": JobParty(role="active"), "p1": JobParty("127.0.0.1:1")}
        self.job = Job("job", parties, protocol=protocol)
        self.spec = protocol_named(protocol)

    def config(self, **changes: object) -> TrainingConfig:
        usual = {"objective": "binary", "n_estimators": ROUNDS, "max_depth": DEPTH, "max_bin": 8}
        options = QUICK_OPTIONS.get(self.spec.name, {})
        return TrainingConfig.from_dict({**usual, "categories": "ordinal", "options": options, **changes})

    def book(self, config: TrainingConfig, key: bytes | None = None) -> Booking:
        booking = Booking(self.settings, "job", key)
        booking.reserve(training_request(self.settings, self.job, config, {"p0": None}, ROWS))
        return booking

    def session(self, config: TrainingConfig, booking: Booking) -> PassiveSession:
        return PassiveSession(self.spec, "p1", self.tables["p1"], 1, config, booking.randomness, booking, active="p0")

    def train(
        self, config: TrainingConfig, booking: Booking, meddle: object = None, randomness: JobRandomness | None = None
    ) -> None:
        """An active party trains; `meddle(handler, message, answer)` may send more after each answer."""
        side = self.session(config, booking).side

        def handle(message: object) -> object:
            answer = side.handle(message)
            if meddle is not None:
                meddle(side.handle, message, answer)
            return answer

        channel = MemoryChannel(handle, Catalogue(self.spec.messages), Transcript("p0"), Transcript("p1"))
        job = TrainingJob(self.spec, config, ("p0", "p1"))
        train_active(job, "p0", self.tables["p0"], Peers({"p1": channel}), randomness=randomness)


@pytest.mark.parametrize("protocol", protocols_of("vertical"))
def test_a_tree_is_begun_again_only_as_often_as_the_policy_allows(protocol, tmp_path):
    owner = Owner(tmp_path, protocol, max_rewinds=3)
    config = owner.config()
    booking = owner.book(config)
    answered, opening = 0, None

    def rewind(handler, message, answer):
        """Ask for the root of the tree again and again, by going back to the start of the round."""
        nonlocal answered, opening
        opening = message if isinstance(message, BeginRound) else opening
        if isinstance(message, BeginRound if protocol == "federboost" else StatisticsRequest):
            for _ in range(TRIES):
                handler(ResumeTraining(opening.number))
                handler(opening)
                if message is not opening:
                    handler(message)
                answered += 1

    with pytest.raises(AgainstPolicy, match=r"rule max_rewinds .* raise max_rewinds"):
        owner.train(config, booking, rewind)
    assert answered == 3
    # Another session of the same job counts on; another job starts from 0.
    with pytest.raises(AgainstPolicy, match="max_rewinds"):
        owner.train(config, owner.book(config, booking.randomness.key))
    owner.train(config, owner.book(config))


def ints(*values):
    return np.array(values, dtype=np.int32)


def start(config, held_out=NO_BITS, trees=1):
    return BeginTraining(json.dumps(config.to_dict()), ROWS, trees, 0, held_out, np.empty(0))


def test_all_cuts_in_turn_are_not_answered(tmp_path):
    """Each is one assignment of all rows: together they are the whole matrix of bins."""
    owner = Owner(tmp_path, "plain", max_rewinds=3)
    config = owner.config()
    side = owner.session(config, owner.book(config)).side
    slots = int(side.handle(start(config)).offsets[-1])
    gradients, answers = np.ones((1, ROWS, 2), dtype=np.int32), []

    def ask_all():
        for slot in range(slots):
            side.handle(ResumeTraining(0))
            side.handle(PlainRound(0, NO_BITS, True, NO_INTS, gradients))
            side.handle(StatisticsRequest(0, NO_INTS, NO_BITS, NO_BITS, ints(0)))
            one = SplitRequest(0, ints(0), ints(0), ints(0), ints(0, 1), ints(2 * slot), ints(0, 0), NO_INTS)
            answers.append(side.handle(one))
            with pytest.raises(UnexpectedMessage, match="already split"):
                side.handle(one)

    with pytest.raises(AgainstPolicy, match="max_rewinds"):
        ask_all()
    assert len(answers) == 4 < slots


def test_a_job_starts_only_as_often_as_the_policy_allows(tmp_path):
    """Every start chooses the rows that are held out, and its answer tells how many bins the others fill."""
    owner = Owner(tmp_path, "plain", max_rewinds=3)
    config = owner.config()
    booking = owner.book(config)
    for row in range(4):
        booking = owner.book(config, booking.randomness.key)  # after a restart of the daemon
        owner.session(config, booking).side.handle(start(config, np.packbits(np.arange(ROWS) == row)))
    booking = owner.book(config, booking.randomness.key)
    with pytest.raises(AgainstPolicy, match="max_rewinds"):
        owner.session(config, booking).side.handle(start(config))


def test_a_policy_without_repetitions_lets_a_job_train_once(tmp_path):
    owner = Owner(tmp_path, "plain", max_rewinds=0)
    config = owner.config()
    booking = owner.book(config)
    owner.train(config, booking)
    with pytest.raises(AgainstPolicy, match="1 rounds or starts that are repeated are more than 0"):
        owner.train(config, owner.book(config, booking.randomness.key))


def test_a_count_that_cannot_be_kept_stops_the_job_and_names_no_path(tmp_path):
    owner = Owner(tmp_path, "plain")
    config = owner.config()
    (tmp_path / "job" / "begun.txt").mkdir()
    with pytest.raises(CheckpointFailed, match=r"begun\.txt cannot be read") as refused:
        owner.train(config, owner.book(config))
    assert str(tmp_path) not in str(refused.value)


def test_a_line_that_a_full_disk_cut_short_hides_no_other(tmp_path):
    owner = Owner(tmp_path, "plain", max_rewinds=0)
    config = owner.config()
    booking = owner.book(config)
    (tmp_path / "job" / "begun.txt").write_text(f"{booking.job.rpartition('/')[2]} sta")
    assert booking.begin(START, 1) == 0
    with pytest.raises(AgainstPolicy, match="max_rewinds"):
        owner.book(config, booking.randomness.key).begin(START, 1)


def test_rounds_that_are_begun_again_are_in_the_ledger(tmp_path):
    owner = Owner(tmp_path, "lattice")
    config = owner.config()
    booking = owner.book(config)
    owner.train(config, booking)
    assert assignments_of(booking.ledger.events()) == ROUNDS * DEPTH
    for times in (2, 3):
        booking = owner.book(config, booking.randomness.key)
        owner.train(config, booking)
        assert assignments_of(booking.ledger.events()) == times * ROUNDS * DEPTH


def test_trees_per_round_are_limited_before_any_answer(tmp_path):
    owner = Owner(tmp_path, "plain", max_classes=3)
    config = owner.config(objective="multiclass")
    owner.session(config, owner.book(config)).side.handle(start(config, trees=3))
    with pytest.raises(AgainstPolicy, match=r"rule max_classes .* 4 trees per round are more than 3"):
        owner.session(config, owner.book(config)).side.handle(start(config, trees=4))


@pytest.mark.parametrize(
    "sample", [{"subsample": 0.001}, {"subsample": 0.8}, {"sampling": "goss", "top_rate": 0.001, "other_rate": 0.001}]
)
def test_a_job_may_not_sample_fewer_rows_than_the_policy_requires(sample, tmp_path):
    """One row to sum over was the job's to choose, by random_state."""
    owner = Owner(tmp_path, "plain", min_rows=100)
    owner.book(owner.config())
    with pytest.raises(AgainstPolicy, match=r"rule min_rows .* training rows of a round"):
        owner.book(owner.config(**sample))
    owner.job = dataclasses.replace(owner.job, validation=0.2)
    with pytest.raises(AgainstPolicy, match="rule min_rows"):
        owner.book(owner.config())


@pytest.mark.parametrize("changes", [{"min_node_rows": 1}, {"n_estimators": 3}, {"max_depth": 3}, {"max_bin": 9}])
def test_training_starts_with_what_the_policy_was_asked_about(changes, tmp_path):
    owner = Owner(tmp_path, "plain", min_node_rows=20)
    agreed = owner.config(min_node_rows=20)
    session = owner.session(agreed, owner.book(agreed))
    with pytest.raises(UnexpectedMessage, match="differ from those agreed on"):
        session.side.handle(start(dataclasses.replace(agreed, **changes)))
    with pytest.raises(MalformedMessage, match="number of rows"):
        session.side.handle(dataclasses.replace(start(agreed), rows=ROWS - 1))
    session.side.handle(start(agreed))


# --- assignments apart from epsilon -----------------------------------------------------------------------

NOISED = {"eps": 1.0, "eps_features": 20.0, "least_rows": 5}
BITS = ROUNDS * DEPTH


def test_an_owner_can_limit_a_protocol_with_noise_and_exact_assignments(tmp_path):
    owner = Owner(tmp_path, "sealed", epsilon_per_job=21.0, epsilon_total=45.0, assignments_per_job=BITS)
    config = owner.config(options=NOISED)
    keys = [JobRandomness(unsafe_key(seed, "p0")) for seed in range(2)]  # trees that stop early would spend less
    booking = owner.book(config, unsafe_key(0, "p1"))
    owner.train(config, booking, randomness=keys[0])
    booking.close(None)
    (total,) = booking.ledger.totals(owner.settings.policy.delta)
    assert total.epsilon == total.bounded == pytest.approx(20.0, rel=0.01)
    assert total.exact > 0
    assert total.assignments == BITS
    owner.book(config).close(None)  # there is room for a second job, not for a third
    owner.train(config, owner.book(config, unsafe_key(1, "p1")), randomness=keys[1])
    with pytest.raises(AgainstPolicy, match="epsilon_total"):
        owner.book(config)


@pytest.mark.parametrize(
    ("rules", "options", "rule"),
    [
        ({"epsilon_per_job": 21.0}, NOISED, "epsilon_per_job .* epsilon inf"),  # no limits of their own
        ({"epsilon_per_job": 19.0, "assignments_per_job": BITS}, NOISED, "epsilon_per_job"),
        ({"epsilon_per_job": 21.0, "assignments_per_job": BITS - 1}, NOISED, f"assignments_per_job .* {BITS} left"),
        ({"epsilon_per_job": 21.0, "assignments_total": BITS - 1}, NOISED, "assignments_total"),
        ({"epsilon_per_job": 21.0, "assignments_per_job": BITS}, {"least_rows": 5}, "epsilon_per_job .* epsilon inf"),
    ],
)
def test_neither_budget_pays_for_the_other(rules, options, rule, tmp_path):
    owner = Owner(tmp_path, "sealed", **rules)
    with pytest.raises(AgainstPolicy, match=f"rule {rule}"):
        owner.book(owner.config(options=options))


@pytest.mark.parametrize(
    ("rules", "options", "fix"),
    [
        ({}, NOISED, f"set assignments_per_job = {BITS} under"),
        ({"assignments_per_job": BITS}, {"least_rows": 5}, "remove epsilon_total"),  # sums have no noise either
    ],
)
def test_no_larger_epsilon_is_advised_where_none_is_large_enough(rules, options, fix, tmp_path):
    owner = Owner(tmp_path, "sealed", epsilon_total=21.0, **rules)
    with pytest.raises(AgainstPolicy, match=f"epsilon inf.* the owner can {fix}"):
        owner.book(owner.config(options=options))


def test_assignments_are_limited_over_all_jobs_and_repetitions(tmp_path):
    owner = Owner(tmp_path, "lattice", assignments_per_job=BITS + DEPTH, assignments_total=2 * BITS + DEPTH)
    config = owner.config()
    booking = owner.book(config)
    owner.train(config, booking)
    with pytest.raises(AgainstPolicy, match="assignments_per_job"):  # one round may be begun again, not two
        owner.train(config, owner.book(config, booking.randomness.key))
    assert assignments_of(booking.ledger.events()) == BITS + DEPTH
    owner.train(config, owner.book(config))
    with pytest.raises(AgainstPolicy, match=r"assignments_total .* exceeds what is left"):
        owner.book(config)
    with pytest.raises(AgainstPolicy, match="assignments_per_job"):
        Owner(tmp_path / "other", "lattice", assignments_per_job=3 * BITS - 1).book(
            owner.config(objective="multiclass")
        ).begin(START, 3)


def test_what_sends_no_assignments_needs_none(tmp_path):
    owner = Owner(tmp_path, "federboost", assignments_per_job=0)
    owner.train(owner.config(), owner.book(owner.config()))
