"""secagg resumes: the same model wherever it was interrupted, other masks, and no other state than that of the job."""

from dataclasses import replace

import numpy as np
import pytest

from support import make_columns, make_labels
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import MalformedMessage, PeerUnreachable, StateDiffers, UnexpectedMessage, UnsupportedCombination
from veilboost.model.joined import join
from veilboost.party.simulation import HorizontalFederation, simulate_training
from veilboost.privacy.event import MemoryAccount
from veilboost.protocols.horizontal.roles import ParticipantState
from veilboost.protocols.secagg.messages import MaskedSums, SumsRequest

pytestmark = pytest.mark.fast

NAMES = ("p0", "p1", "p2")
ROWS = 120
HELD_OUT = np.arange(ROWS) % 4 == 0


def table_of(objective="binary"):
    columns = make_columns(5, rows=ROWS, numeric=3, categorical=1, missing=0.1)
    return PartyTable(np.arange(ROWS), tuple(columns), make_labels(5, columns, objective))


def config_of(**changes):
    return TrainingConfig.from_dict({"objective": "binary", "n_estimators": 4, "max_depth": 2, "max_bin": 6} | changes)


def parts_of(table):
    return {name: table.take(np.arange(at, ROWS, 3)) for at, name in enumerate(NAMES)}


class Checkpoints:
    """The checkpoints of all parties, in memory: what is stored here outlives a federation."""

    def __init__(self):
        self.kept = None
        self.states, self.common = {}, {}  # of participants: all, and those that the server has a checkpoint of
        self.federation = None
        self.accounts = {name: MemoryAccount() for name in NAMES}

    def resumed(self):
        return self.kept

    def restore(self):
        for name, (trees, state) in self.common.items():
            self.federation.participants[name].restore(trees, state)

    def store(self, trees):
        """Handled before the next request, as the messages of a packet are."""
        self.due = trees

    def before_request(self, name):
        if getattr(self, "due", None):
            state = self.federation.participants[name].state(self.due)
            self.states[name] = self.due, ParticipantState(state.margin.copy(), state.digest)

    def keep(self, share, history):
        self.kept, self.common, self.due = (share, history), dict(self.states), None


def federation_of(parts, config, checkpoints, held_out=None, attempt=b""):
    made = HorizontalFederation("secagg", parts, config, held_out=held_out, unsafe_noise_seed=1)
    checkpoints.federation, checkpoints.due = made, None
    introductions = {}
    for name, role in made.participants.items():
        again = replace(role._context, attempt=attempt, account=checkpoints.accounts[name])
        made.participants[name] = type(role)(again)
        introductions[name] = made.participants[name].introduce()
    made.server._context = replace(made.server._context, keeper=checkpoints, introductions=introductions)
    return made


def watch(federation, checkpoints, stop_at=None):
    """Record the requests to the first participant; the request `stop_at` finds it gone."""
    seen = []
    for name, role in federation.participants.items():

        def handle(message, name=name, handle=role.handle):
            if name == "p0":
                seen.append(message)
                if len(seen) - 1 == stop_at:
                    raise PeerUnreachable("p0 is gone")
            checkpoints.before_request(name)
            return handle(message)

        role.handle = handle
    return seen


def rounds_in(seen):
    return [message.number for message in seen if isinstance(message, SumsRequest) and message.depth == 0]


CASES = {
    "binary": {},
    "stumps": {"max_depth": 1},
    "leaves only": {"gamma": 1e9},
    "regression": {"objective": "regression"},
    "multiclass": {"objective": "multiclass", "n_estimators": 3},
    "columns": {"colsample_bytree": 0.5},
    "stops early": {"n_estimators": 12, "learning_rate": 1.0, "early_stopping_rounds": 1},
}


@pytest.mark.parametrize(
    ("case", "validates"), [(case, validates) for case in CASES for validates in (True, False)][:-1]
)
def test_a_job_that_is_interrupted_anywhere_resumes_to_the_same_model(case, validates):
    config = config_of(**CASES[case])
    parts = parts_of(table_of(config.objective))
    held_out = {name: HELD_OUT[at::3] for at, name in enumerate(NAMES)} if validates else None
    whole = federation_of(parts, config, Checkpoints(), held_out)
    requests = watch(whole, Checkpoints())
    expected = simulate_training(parts, "server", "secagg", config, held_out=held_out)
    whole.server._context = replace(whole.server._context, keeper=None)
    whole.train()
    for stop_at in range(0, len(requests), 1 if case == "binary" else 7):
        checkpoints = Checkpoints()
        first = federation_of(parts, config, checkpoints, held_out, b"first")
        watch(first, checkpoints, stop_at)
        if stop_at < len(requests) - 1:
            with pytest.raises(PeerUnreachable, match="--resume"):
                first.train()
        else:
            assert set(first.train().outcome.dropped) == {"p0"}
        finished = 0 if checkpoints.kept is None else len(checkpoints.kept[1])
        second = federation_of(parts, config, checkpoints, held_out, b"second")
        seen = watch(second, checkpoints)
        run = second.train()
        assert run.model.sha256() == expected.model.sha256()
        assert [each.validation for each in run.history] == [each.validation for each in expected.history]
        assert rounds_in(seen) == list(range(finished, len(run.history)))
        begun = max(rounds_in(requests[:stop_at]), default=0)  # the round in which the job was interrupted
        assert finished >= begun - 1


def test_a_resumed_round_has_other_masks_and_is_booked_once_more():
    parts, config, checkpoints = parts_of(table_of()), config_of(), Checkpoints()
    answers, publics = {}, set()
    for attempt in (b"first", b"second"):
        federation = federation_of(parts, config, checkpoints, attempt=attempt)
        publics |= {role.introduce().public.tobytes() for role in federation.participants.values()}
        watch(federation, checkpoints, stop_at=None)
        role, seen = federation.participants["p1"], []
        handle = role.handle

        def noted(message, handle=handle, seen=seen, stops=attempt == b"first"):
            if stops and isinstance(message, SumsRequest) and (message.number, message.depth) == (2, 1):
                raise PeerUnreachable("p1 is gone")
            seen.append((message, handle(message)))
            return seen[-1][1]

        role.handle = noted
        if attempt == b"first":
            with pytest.raises(PeerUnreachable):
                federation.train()
        else:
            federation.train()
        answers[attempt] = {
            (message.number, message.depth): answer.sums for message, answer in seen if isinstance(answer, MaskedSums)
        }
    assert len(publics) == 2 * len(NAMES), "a checkpoint with other margins must not meet the same masks"
    both = set(answers[b"first"]) & set(answers[b"second"])
    assert (2, 0) in both
    for key in both:  # a round with the same masks would have the same answer, or the difference of two sums
        difference = (answers[b"first"][key] - answers[b"second"][key]).view(np.int64).astype(np.float64)
        assert np.median(np.abs(difference)) > 2**55
    booked = [event.release for event in checkpoints.accounts["p1"].events]
    repeated = sorted({number for number, _ in both})
    assert [release for release in booked if "repetition" in release] == [
        f"sums of gradients per node and bin, round {number}, repetition 1" for number in repeated
    ]


def interrupted():
    parts, config, checkpoints = parts_of(table_of()), config_of(), Checkpoints()
    federation = federation_of(parts, config, checkpoints)
    requests = watch(federation, checkpoints)
    federation.train()
    return parts, config, checkpoints, requests


def test_no_other_checkpoint_is_restored():
    parts, config, checkpoints, requests = interrupted()
    trees, state = checkpoints.common["p0"]
    fresh = federation_of(parts, config, checkpoints, attempt=b"").participants["p0"]
    with pytest.raises(UnexpectedMessage, match="before the first round"):
        fresh.restore(trees, state)  # the cut points are not known yet
    opening = requests[: next(at for at, message in enumerate(requests) if isinstance(message, SumsRequest))]
    for message in opening:
        fresh.handle(message)
    changed = state.margin.copy()
    changed[0, 0] += 1
    for wrong in (
        replace(state, margin=changed),
        replace(state, margin=state.margin[:, 1:]),
        replace(state, digest=b""),
    ):
        with pytest.raises(StateDiffers):
            fresh.restore(trees, wrong)
    for number in (0, -1, config.n_estimators, config.n_estimators + 1):
        with pytest.raises(UnexpectedMessage):
            fresh.restore(number, state)
    with pytest.raises(UnexpectedMessage):
        fresh.state(trees)  # nothing was summed yet
    fresh.restore(trees, state)
    with pytest.raises(UnexpectedMessage):
        fresh.restore(trees, state)


@pytest.mark.parametrize("changed", ["cuts", "base_margin"])
def test_a_checkpoint_belongs_to_the_opening_of_its_job(changed):
    """A server that tells other cut points after an interruption would learn the sums of other bins."""
    parts, config, checkpoints, requests = interrupted()
    trees, state = checkpoints.common["p0"]
    fresh = federation_of(parts, config, checkpoints).participants["p0"]
    for message in requests:
        if isinstance(message, SumsRequest):
            break
        other = {changed: getattr(message, changed) + np.float32(0.25)} if hasattr(message, changed) else {}
        fresh.handle(replace(message, **other))
    with pytest.raises(StateDiffers):
        fresh.restore(trees, state)


# --- malicious servers: all but one participant are told that their margins are large, so that their hessians are 0 ---

SAME, OTHER = dict.fromkeys(NAMES, 0.0), {"p0": 0.0, "p1": 60.0, "p2": 60.0}


def opening_and_root():
    parts, config, _, requests = interrupted()
    first = next(at for at, message in enumerate(requests) if isinstance(message, SumsRequest))
    return federation_of(parts, config, Checkpoints()), requests[:first], requests[first]


def after_a_leaf(root, weight, **changes):
    """The request for the root of the second round, after a first tree that is one leaf."""
    leaf = {"leaves": np.zeros(1, np.int32), "weights": np.full(1, weight, np.float32)}
    return replace(root, number=1, **leaf, **changes)


def opens(answers):
    """Whether the masks cancel. Of 28 uniform words and more, all are below 2^40 with a probability under 2^-600."""
    return np.abs(sum(each.sums for each in answers).view(np.int64)).max() < 2**40


@pytest.mark.parametrize("weights", [SAME, OTHER])
def test_sums_open_only_if_all_restored_the_same_trees(weights):
    before, opening, root = opening_and_root()
    states, answers = {}, []
    for name, role in before.participants.items():
        for message in (*opening, root, after_a_leaf(root, weights[name])):
            role.handle(message)
        states[name] = role.state(1)
    for name, role in opening_and_root()[0].participants.items():
        for message in opening:
            role.handle(message)
        role.restore(1, states[name])
        answers.append(role.handle(replace(root, number=1)))
    assert opens(answers) == (weights is SAME)


@pytest.mark.parametrize("told", [("p1", "p2"), NAMES])
def test_sums_open_only_if_all_refused_the_same_requests(told):
    federation, opening, root = opening_and_root()
    refused, answers = after_a_leaf(root, 60.0, columns=np.array([7], np.int32)), []
    for name, role in federation.participants.items():
        for message in (*opening, root):
            role.handle(message)
        if name in told:
            with pytest.raises(MalformedMessage, match="sample"):
                role.handle(refused)
        answers.append(role.handle(after_a_leaf(root, 0.0)))
    assert opens(answers) == (told == NAMES)


def test_a_level_that_is_refused_is_not_applied():
    """Otherwise a server could split nodes again and again, and get sums of nodes deeper than the job has levels."""
    _, _, _, requests = interrupted()
    root = next(at for at, message in enumerate(requests) if isinstance(message, SumsRequest))
    level, found = requests[root + 1], []
    assert level.depth == 1
    for refusals in (0, 2):
        answers = []
        for role in opening_and_root()[0].participants.values():
            for message in requests[: root + 1]:
                role.handle(message)
            for _ in range(refusals):
                with pytest.raises(MalformedMessage, match="do not exist"):
                    role.handle(replace(level, build=level.build + np.int32(2)))
            answers.append(role.handle(level))
        assert opens(answers)
        found.append(sum(each.sums for each in answers))
    assert np.array_equal(*found)


def test_a_checkpoint_is_of_the_rounds_that_are_finished():
    parts, config, checkpoints = parts_of(table_of()), config_of(), Checkpoints()
    federation = federation_of(parts, config, checkpoints)
    role = federation.participants["p0"]
    seen = watch(federation, checkpoints)
    handle = role.handle

    def tried(message):
        answer = handle(message)
        if isinstance(message, SumsRequest):
            for trees in range(-1, config.n_estimators + 2):
                if message.depth == 0 and trees == message.number and trees:
                    role.state(trees)
                else:
                    with pytest.raises(UnexpectedMessage):
                        role.state(trees)
        return answer

    role.handle = tried
    run = federation.train()
    assert rounds_in(seen) == list(range(config.n_estimators))
    assert join({"model": run.shares["p0"]}).sha256() == run.model.sha256()


def test_a_job_with_noise_is_not_resumed():
    """Answers that are repeated would have other noise, and only the first ones are booked."""
    config = config_of(options={"epsilon": 4.0}, base_score=0.5)
    parts, checkpoints = parts_of(table_of()), Checkpoints()
    first = federation_of(parts, config, checkpoints, attempt=b"first")
    watch(first, checkpoints, stop_at=12)
    with pytest.raises(PeerUnreachable):
        first.train()
    with pytest.raises(UnsupportedCombination, match="cannot be resumed"):
        federation_of(parts, config, checkpoints, attempt=b"second").train()
