"""MAL: masks that cancel and what they cannot hide, ranges from a comparer, refusals, lost participants."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.metrics import roc_auc_score

from support import make_columns, make_labels
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import (
    EmptyTable,
    InvalidParameter,
    MalformedMessage,
    PeerUnreachable,
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.model.joined import join
from veilboost.party.simulation import SERVER, HorizontalFederation, simulate_training
from veilboost.privacy.event import ExactRelease, RandomizedResponse
from veilboost.protocols.mal import masks
from veilboost.protocols.mal.masks import BucketSpace, guard_rows
from veilboost.protocols.mal.messages import (
    ComparisonKeyRequest,
    ExtremesMissing,
    GlobalExtremes,
    KeysRequest,
    MaskedRows,
    RowsHeldBack,
    RowsRequest,
)
from veilboost.types import Column

pytestmark = pytest.mark.fast

QUIET = {"epsilon": 0, "guard": "allow"}


def config_of(options=None, **changes):
    values = {"objective": "binary", "n_estimators": 15, "max_bin": 8} | changes
    return TrainingConfig.from_dict(values | {"options": QUIET if options is None else options})


def whole(name="binary", rows=600, categorical=1, missing=0.05, seed=4):
    columns = make_columns(seed, rows=rows, numeric=4, categorical=categorical, missing=missing)
    return PartyTable(np.arange(rows), tuple(columns), make_labels(seed, columns, name))


def dealt(table, sizes):
    edges = np.concatenate(([0], np.cumsum(sizes)))
    return {f"p{at}": table.take(np.arange(edges[at], edges[at + 1])) for at in range(len(sizes))}


UNEVEN = [300, 200, 60, 20, 15, 5]
PARTITIONS = {"one": [600], "ten": [60] * 10, "uneven": UNEVEN, "thirty-two": [19] * 24 + [18] * 8}


def bent(side, change):
    """Change what a side answers, now or when its promise is called for; `change(request, answer)`."""
    handle = side.handle

    def handle_and_change(*request):
        reply = handle(*request)
        return (lambda: change(request, reply())) if callable(reply) else change(request, reply)

    side.handle = handle_and_change


def dense(buckets, widths):
    """S as a matrix, buckets by rows."""
    rows = [(buckets[:, f] == k).astype(float) for f in range(buckets.shape[1]) for k in range(int(widths[f]))]
    return np.stack(rows)


# --- the model ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", PARTITIONS.values(), ids=PARTITIONS)
@pytest.mark.parametrize("name", ["binary", "multiclass"])
def test_masks_leave_no_trace_in_the_model(name, sizes):
    """Without noise the model is that of pooled rows with labels in the clear, bit for bit."""
    table, config = whole(name), config_of(objective=name)
    run = simulate_training(dealt(table, sizes), SERVER, "mal", config)
    plain = replace(config, max_depth=1, binning="width", options={})
    assert run.model.sha256() == join(simulate_training({"a": table}, "a", "plain", plain).shares).sha256()
    assert all(join({"model": part}).sha256() == run.model.sha256() for part in run.shares.values())


@pytest.mark.parametrize("sizes", PARTITIONS.values(), ids=PARTITIONS)
def test_masked_numbers_give_the_same_leaves(sizes):
    """A mask of almost nothing against one ten thousand times the labels' spread."""
    table = whole("regression")
    runs = [
        simulate_training(
            dealt(table, sizes), SERVER, "mal", config_of({**QUIET, "mask_scale": scale}, objective="regression")
        ).model
        for scale in (1e-9, 100.0)
    ]
    for one, other in zip(runs[0].trees, runs[1].trees, strict=True):
        assert np.array_equal(one.feature, other.feature)
        assert np.array_equal(one.threshold, other.threshold)
        assert np.abs(one.weight - other.weight).max() < 1e-8 * max(1.0, float(np.abs(one.weight).max()))


def test_noise_is_drawn_booked_and_the_same_when_asked_again():
    table = whole()
    federation = HorizontalFederation("mal", dealt(table, [300, 300]), config_of({"epsilon": 2.0}), coded=True)
    requests = []
    handle = federation.participants["p0"].handle

    def watched(message):
        requests.append(message)
        return handle(message)

    federation.participants["p0"].handle = watched
    federation.train()
    ask = next(message for message in requests if isinstance(message, RowsRequest))
    first, again = (federation.participants["p0"].handle(ask) for _ in range(2))
    assert np.array_equal(first.buckets, again.buckets)
    events = federation.accounts["p0"].events
    noisy = [event for event in events if isinstance(event, RandomizedResponse)]
    assert len(noisy) == len(table.columns)  # epsilon per column: so many times that per record
    assert all(event.epsilon == 2.0 for event in noisy)
    assert sum(isinstance(event, ExactRelease) for event in events) == 2
    with pytest.raises(UnexpectedMessage):
        federation.participants["p0"].handle(replace(ask, participants=("p0",)))


def rows_sent(table, epsilon):
    """What a participant answers whose key is always the same, and its book."""
    parties = dealt(table, [300, 300])
    federation = HorizontalFederation(
        "mal", parties, config_of({"epsilon": epsilon, "guard": "allow"}), unsafe_noise_seed=1
    )
    sent = []
    bent(federation.participants["p0"], lambda request, answer: sent.append(answer) or answer)
    federation.train()
    return next(answer for answer in sent if isinstance(answer, MaskedRows)), federation.accounts["p0"].events


def test_other_rows_within_the_same_ranges_meet_other_noise_and_are_booked_again():
    """Else two answers, before and after a job is taken up again, differ by what changed and nothing else."""
    table = whole(missing=0.0, categorical=0)
    label, values = table.label.copy(), table.columns[0].values.copy()
    label[7] = 1.0 - label[7]
    inner = np.argsort(values[:300])[[100, 200]]
    values[inner] = values[inner[::-1]]
    moved = replace(table, columns=(replace(table.columns[0], values=values), *table.columns[1:]))
    first, events = rows_sent(table, 1.0)
    again, same = rows_sent(table, 1.0)
    assert np.array_equal(first.buckets, again.buckets)
    assert np.array_equal(first.labels, again.labels)
    assert same == events
    for other, epsilon in ((moved, 1.0), (replace(table, label=label), 1.0), (table, 1.1)):
        answer, more = rows_sent(other, epsilon)
        # 1200 cells of 8 buckets: two draws at epsilon 1 differ in 0.85 of them; fails with probability below 1e-200.
        assert (answer.buckets != first.buckets).mean() > 0.2
        assert np.abs(answer.labels - first.labels).mean() > 0.1
        shared = {event.content for event in events} & {event.content for event in more}
        assert len(shared) <= 1, "the ends of columns alone are the same"
        assert all(len(event.content) == 32 for event in more)


def test_buckets_move_as_often_as_they_should():
    columns = (Column("a", np.linspace(0, 1, 4000, dtype=np.float32)),)
    table = PartyTable(np.arange(4000), columns, (np.arange(4000) % 2).astype(float))
    federation = HorizontalFederation("mal", {"p": table}, config_of({"epsilon": 1.5}, n_estimators=1))
    sent = {}

    def watch(_, answer):
        sent[type(answer)] = answer
        return answer

    bent(federation.participants["p"], watch)
    federation.train()
    true = np.minimum(np.arange(4000) * 8 // 4000, 7)
    stay = np.exp(1.5) / (np.exp(1.5) + 7)
    # Of 4000 rows the share that stays has deviation 0.0077: 0.05 is 6.4 of them, outside with probability 2e-10.
    assert (sent[MaskedRows].buckets[:, 0] == true).mean() == pytest.approx(stay, abs=0.05)


# --- masks ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(3, 60), st.integers(1, 4), st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_projection_is_that_of_the_dense_matrix(seed, rows, columns, width):
    rng = np.random.default_rng(seed)
    buckets = rng.integers(width, size=(rows, columns)).astype(np.uint8)
    widths = np.full(columns, width)
    space, S = BucketSpace(buckets, widths), dense(buckets, widths)
    projector = np.linalg.pinv(S) @ S
    values = rng.normal(size=rows)
    assert np.allclose(space.off(values), values - projector @ values, atol=1e-8)
    assert np.abs(S @ space.off(values)).max() < 1e-10
    assert np.allclose(space.leverage(), projector.diagonal(), atol=1e-7)
    assert space.rank == np.linalg.matrix_rank(S)


@pytest.mark.parametrize("seed", range(6))
def test_masks_cancel_where_the_rank_is_hardly_full_or_not(seed):
    """About as many buckets as rows, and enough of them that the inverse is taken block by block."""
    rng = np.random.default_rng(seed)
    rows = 58 + seed
    buckets = np.minimum(rng.geometric(0.4, size=(rows, 9)), 8).astype(np.uint8)
    buckets[:, 8] = buckets[:, 7]  # one column tells nothing new
    widths = np.full(9, 9)
    space, S = BucketSpace(buckets, widths), dense(buckets, widths)
    assert space.rank == np.linalg.matrix_rank(S)
    assert np.abs(S @ space.off(rng.normal(size=rows) * 100)).max() < 1e-8
    assert space.leverage().sum() == pytest.approx(space.rank, abs=1e-6)


@pytest.mark.parametrize("entry", [3.0, -4.5e15, np.nan])
def test_what_is_no_inverse_is_not_used(monkeypatch, entry):
    """Rounding lets some matrices pass that have no inverse; what comes out may even be large and negative."""
    monkeypatch.setattr(masks, "_inverse", lambda matrix: np.full_like(matrix, entry))
    rng = np.random.default_rng(1)
    buckets, widths = rng.integers(4, size=(50, 3)).astype(np.uint8), np.full(3, 4)
    space, S = BucketSpace(buckets, widths), dense(buckets, widths)
    assert space.rank == np.linalg.matrix_rank(S)
    assert np.abs(S @ space.off(rng.normal(size=50))).max() < 1e-9


def test_the_papers_linear_system_gives_masks_of_the_same_space():
    """MAL Alg. 2 as printed (its line 6 outside the loop over buckets): A random, (S A) x = 0, mask = A x."""
    rng = np.random.default_rng(2)
    buckets = rng.integers(4, size=(50, 3)).astype(np.uint8)
    widths = np.full(3, 4)
    S = dense(buckets, widths)
    A = rng.normal(size=(50, len(S) + 1))
    x = np.linalg.svd(S @ A)[2][-1]
    mask = A @ x
    assert np.abs(S @ mask).max() < 1e-9
    assert np.allclose(BucketSpace(buckets, widths).off(mask), mask, atol=1e-9)


@pytest.mark.parametrize("policy", ["merge", "drop"])
def test_guards_keep_every_label_under_the_limit(policy):
    rng = np.random.default_rng(3)
    buckets = np.minimum(rng.geometric(0.3, size=(200, 5)), 12).astype(np.uint8)
    widths = np.full(5, 13)
    open_ = guard_rows(buckets, widths, "allow", 0.5)
    assert open_.exposed
    assert np.array_equal(open_.buckets, buckets)
    found = guard_rows(buckets, widths, policy, 0.5)
    assert found.exposed == 0
    assert found.space.leverage().max() <= 0.5 + 1e-9
    assert found.space.rank <= 0.5 * found.space.rows
    report = found.report()
    assert (report["merged_cells"] > 0) == (policy == "merge")
    assert (report["dropped_rows"] > 0) == (policy == "drop")
    with pytest.raises(UnsupportedCombination):
        guard_rows(buckets, widths, "refuse", 0.5)


@pytest.mark.parametrize("policy", ["merge", "drop"])
def test_a_lonely_row_cannot_be_hidden(policy):
    with pytest.raises(EmptyTable):
        guard_rows(np.zeros((1, 2), dtype=np.uint8), np.full(2, 3), policy, 0.5)


def labels_by_linear_programming(S, masked):
    """The labels that agree with all bucket sums, between 0 and 1."""
    found = linprog(np.random.default_rng(0).normal(size=S.shape[1]), A_eq=S, b_eq=S @ masked, bounds=(0, 1))
    return found.x


def test_attack_labels_fall_where_rows_are_few_and_stand_longer_under_the_guard():
    """The server's attack: with the guard off labels come out exactly; merged buckets leave it guessing."""
    table = whole(rows=90, categorical=0, missing=0.0)
    accuracy = {}
    for guard in ("allow", "merge"):
        config = config_of({"epsilon": 0, "guard": guard, "max_leverage": 0.3}, max_bin=16, n_estimators=1)
        federation = HorizontalFederation("mal", {"p": table}, config)
        federation.train()
        rows = federation.participants["p"]._answered[1]
        S = dense(rows.buckets, np.full(4, 17))
        guess = labels_by_linear_programming(S, rows.labels[0])
        accuracy[guard] = ((guess > 0.5) == table.label).mean()
    assert accuracy["allow"] == 1.0
    assert accuracy["merge"] < 0.95


def test_attack_bucket_sums_rank_labels_under_the_default_guard():
    """What the broken status rests on beside the exact attack: many rows, default options, noise on buckets off."""
    table = whole(rows=1200, categorical=0, missing=0.0)
    config = config_of({"epsilon": 0}, max_bin=16, n_estimators=1)
    federation = HorizontalFederation("mal", {"p": table}, config)
    federation.train()
    rows = federation.participants["p"]._answered[1]
    masked = rows.labels[0]
    space = BucketSpace(rows.buckets, np.full(4, 17))
    known = masked - space.off(masked)  # what does not cancel: the projection of the labels themselves
    assert roc_auc_score(table.label, known) > 0.8
    assert roc_auc_score(table.label, masked) < 0.6  # the masked labels as such tell little


def test_masks_that_do_not_cancel_are_found_out():
    federation = HorizontalFederation("mal", dealt(whole(), [300, 300]), config_of())

    def more(_, answer):
        if isinstance(answer, MaskedRows):
            labels = answer.labels.copy()
            labels[0, 0] += 0.4
            return replace(answer, labels=labels)
        return answer

    bent(federation.participants["p1"], more)
    with pytest.raises(MalformedMessage, match="p1 do not cancel"):
        federation.train()


@pytest.mark.parametrize("report", ["[]", "{", '{"rows": "1"}', "7", '{"rows": 300}'])
def test_a_report_that_is_not_numbers_is_refused(report):
    federation = HorizontalFederation("mal", dealt(whole(), [300, 300]), config_of())
    bent(federation.participants["p1"], lambda _, answer: replace(answer, report=report))
    with pytest.raises(MalformedMessage, match="report"):
        federation.train()


@pytest.mark.parametrize("objective", ["auto", "binary"])
def test_a_participant_with_one_class(objective):
    table, config = whole(), config_of(objective=objective)
    parts = {str(value): table.take(np.flatnonzero(table.label == value)) for value in (0, 1)}
    pooled = {"all": table.take(np.argsort(table.label, kind="stable"))}
    models = [simulate_training(each, SERVER, "mal", config).model.sha256() for each in (parts, pooled)]
    assert models[0] == models[1]


# --- ranges and the comparer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ore", [{"ore": "clww"}, {"ore": "clww", "ore_bits": 32}, {"ore": "lewi_wu", "ore_bits": 32}])
def test_every_encryption_finds_the_ranges(ore):
    table = whole(missing=0.0)
    expected = simulate_training(dealt(table, [200, 400]), SERVER, "mal", config_of()).model.sha256()
    run = simulate_training(dealt(table, [200, 400]), SERVER, "mal", config_of({**QUIET, **ore}))
    if ore.get("ore_bits") == 32:  # of extremes that agree in 32 bits either may win
        assert len(run.model.trees) == 15
    else:
        assert run.model.sha256() == expected


def test_pore_finds_the_ranges():
    columns = (Column("a", np.array([1, 5, 2, 3, 9, 4, 1, 7], dtype=np.float32)),)
    table = PartyTable(np.arange(8), columns, np.array([0, 1, 0, 1, 1, 0, 0, 1.0]))
    config = config_of({**QUIET, "ore": "pore", "ore_bits": 16}, n_estimators=2, max_bin=4, min_child_weight=0.0)
    run = simulate_training(dealt(table, [4, 4]), SERVER, "mal", config)
    plain = replace(config, max_depth=1, binning="width", options={})
    assert run.model.sha256() == join(simulate_training({"a": table}, "a", "plain", plain).shares).sha256()


def with_comparer(change):
    federation = HorizontalFederation("mal", dealt(whole(), [300, 300]), config_of())
    comparer = federation.helpers["comparer"]
    bent(comparer, lambda request, answer: change(comparer, request[0], answer))
    return federation


def test_a_comparer_that_gives_back_a_lesser_extreme_is_found_out():
    def lesser(comparer, party, answer):
        if isinstance(answer, GlobalExtremes):
            values = answer.values.copy()
            for own in comparer._submitted.values():
                if not np.array_equal(own.values[0, 1], values[0, 1]):
                    values[0, 1] = own.values[0, 1]
                    break
            return replace(answer, values=values)
        return answer

    with pytest.raises(MalformedMessage, match="contradicts"):
        with_comparer(lesser).train()


def test_a_comparer_that_tells_two_stories_is_found_out():
    """To each participant its own ends: no participant sees anything wrong, the server does."""

    def flattering(comparer, party, answer):
        if isinstance(answer, GlobalExtremes):
            return replace(answer, values=comparer._submitted[party].values)
        return answer

    with pytest.raises(MalformedMessage, match="other ranges"):
        with_comparer(flattering).train()


def test_a_comparer_cannot_make_up_or_swap_values():
    def made_up(comparer, party, answer):
        if isinstance(answer, GlobalExtremes):
            return replace(answer, values=answer.values[:, ::-1].copy())  # lows for highs
        return answer

    with pytest.raises(MalformedMessage):
        with_comparer(made_up).train()


def test_an_extreme_outside_the_agreed_range():
    with pytest.raises(InvalidParameter, match="agreed"):
        simulate_training(dealt(whole(), [300, 300]), SERVER, "mal", config_of({**QUIET, "largest": 0.5}))


def test_an_extreme_of_another_participant_outside_the_agreed_range():
    """A participant that does not keep to the range that all agreed on is found out by the others."""
    federation = HorizontalFederation("mal", dealt(whole(), [300, 300]), config_of({**QUIET, "largest": 100.0}))
    federation.participants["p1"]._extremes.values[0, 1] = 1e9
    with pytest.raises(InvalidParameter, match="another participant"):
        federation.train()


def test_the_comparer_serves_one_group_once():
    federation = HorizontalFederation("mal", dealt(whole(), [200, 200, 200]), config_of())
    federation.train()
    comparer, authority = federation.helpers["comparer"], federation.helpers["authority"]
    sent = comparer._submitted["p0"]
    answer = comparer.handle("p0", sent)()
    assert isinstance(answer, GlobalExtremes)
    other = sent.ciphertexts.copy()
    other[0, 0, 0] ^= 1
    for party, message, error in [
        ("p0", replace(sent, participants=("p0", "p1")), UnexpectedMessage),  # compared for all three already
        ("p0", replace(sent, ciphertexts=other), UnexpectedMessage),
        ("server", sent, UnexpectedMessage),
        ("p0", KeysRequest(), UnexpectedMessage),
        ("p0", replace(sent, participants=("p1", "p2")), MalformedMessage),
        ("p0", replace(sent, participants=("p0", "p0")), MalformedMessage),
        ("p0", replace(sent, participants=("p0", "stranger")), MalformedMessage),
    ]:
        with pytest.raises(error):
            comparer.handle(party, message)
    for party, message in (("comparer", KeysRequest()), ("p0", ComparisonKeyRequest()), ("server", KeysRequest())):
        with pytest.raises(UnexpectedMessage):
            authority.handle(party, message)


def test_rows_are_sent_to_a_group_of_the_job_only():
    options = {**QUIET, "least_participants": 2}
    federation = HorizontalFederation("mal", dealt(whole(), [200, 200, 200]), config_of(options))
    side = federation.participants["p0"]
    schema = side.introduce().schema
    for group, match in (
        (("p0",), "a group of 1, and the job needs 2"),
        (("p0", "p0"), "named twice"),
        (("p0", "p9"), "not one that the job names"),
    ):
        with pytest.raises(MalformedMessage, match=match):
            side.handle(RowsRequest(schema, group))
    assert federation.train()


# --- refusals and losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "poisson"},
        {"scale_pos_weight": 2.0},
        {"subsample": 0.5},
        {"early_stopping_rounds": 3},
        {"max_bin": 300},
        {"max_depth": 3},
        {"proposal": "local"},
        {"options": {"guard": "hope"}},
        {"options": {"epsilon": -1.0}},
        {"options": {"eps": 1.0}},
    ],
)
def test_what_mal_cannot_do_is_refused_on_input(changes):
    with pytest.raises((UnsupportedCombination, InvalidParameter)):
        simulate_training(dealt(whole(), [300, 300]), SERVER, "mal", TrainingConfig.from_dict(changes))


@pytest.mark.parametrize("phase", ["asked for rows", "asked by the comparer", "sent rows", "sent the model"])
def test_who_is_lost_on_the_way_is_left_out(phase):
    """Before it has sent anything, on its way to the comparer, while others wait, and when all is done."""
    table = whole()
    federation = HorizontalFederation("mal", dealt(table, [200, 200, 200]), config_of())
    side, comparer = federation.participants["p1"], federation.helpers["comparer"]
    handle, compare = side.handle, comparer.handle

    def gone(*_):
        raise PeerUnreachable("p1 is gone")

    def mortal(message):
        if phase == ("asked for rows" if isinstance(message, RowsRequest) else "sent the model"):
            gone()
        reply = handle(message)
        return gone if phase == "sent rows" else reply

    side.handle = mortal
    if phase == "asked by the comparer":
        comparer.handle = lambda party, message: gone() if party == "p1" else compare(party, message)
    run = federation.train()
    assert set(run.outcome.dropped) == {"p1"}
    assert run.shares["p0"] is not None
    assert run.shares["p2"] is not None
    rows = sum(report["rows"] for report in run.outcome.reports.values())
    assert rows == (600 if phase == "sent the model" else 400)
    sent = [entry.message for entry in run.transcripts["p0"].entries if entry.direction == "sent"]
    # Without p1's extremes nothing is compared, and the server asks those that are left once more.
    assert sent.count("RowsHeldBack") == (phase in ("asked for rows", "asked by the comparer"))
    assert sent.count("MaskedRows") == 1


def test_two_exchanges_for_each_participant_carry_data():
    """MAL's two rounds: extremes and ranges with the comparer, rows and the model with the server."""
    table = whole()
    run = simulate_training(dealt(table, [60] * 10), SERVER, "mal", config_of())
    data = {
        "comparer": {"EncryptedExtremes": "GlobalExtremes"},
        "server": {"MaskedRows": "TrainedModel"},
    }
    for name in run.shares:
        entries = run.transcripts[name].entries
        for peer, pairs in data.items():
            ((up, down),) = pairs.items()
            kinds = [(entry.direction, entry.message) for entry in entries if entry.peer == peer]
            assert [kind for kind in kinds if kind[1] in (up, down)] == [("sent", up), ("received", down)]
        known = {message for pairs in data.values() for pair in pairs.items() for message in pair}
        others = [(entry.direction, entry.message) for entry in entries if entry.message not in known]
        assert others == [
            ("sent", "MalColumns"),  # with its word that it takes part
            ("received", "RowsRequest"),
            ("sent", "KeysRequest"),
            ("received", "SessionKeys"),
            ("sent", "Done"),
        ]
    carried = [entry for entry in run.transcripts["server"].entries if entry.message in ("MaskedRows", "TrainedModel")]
    compared = [entry for entry in run.transcripts["comparer"].entries if entry.message.endswith("Extremes")]
    assert len(carried) == len(compared) == 2 * 10
    assert run.rounds == 2


def extremes_of(federation, name, group):
    side = federation.participants[name]
    return side._extremes.encrypted(side._ask_for_keys(), side._context.randomness, group)


def test_a_comparer_answers_when_all_are_there_and_does_not_block_meanwhile():
    federation = HorizontalFederation("mal", dealt(whole(), [300, 300]), config_of())
    comparer, group = federation.helpers["comparer"], ("p0", "p1")
    comparer._context = replace(comparer._context, wait_seconds=60.0)
    found = []
    promise = comparer.handle("p0", extremes_of(federation, "p0", group))
    waiting = threading.Thread(target=lambda: found.append(promise()))
    waiting.start()
    answer = comparer.handle("p1", extremes_of(federation, "p1", group))()  # p0 waits, and p1 is heard
    waiting.join(60)
    assert isinstance(answer, GlobalExtremes)
    assert found == [answer]


def test_a_comparer_tells_everybody_the_same_about_who_is_missing():
    federation = HorizontalFederation("mal", dealt(whole(), [200, 200, 200]), config_of())
    comparer, group = federation.helpers["comparer"], ("p0", "p1", "p2")
    early = [comparer.handle(name, extremes_of(federation, name, group))() for name in ("p0", "p1")]
    late = comparer.handle("p2", extremes_of(federation, "p2", group))()
    assert early == [ExtremesMissing(("p1", "p2"))] * 2  # p1 came after p0 had lost its patience
    assert late == early[0]
    comparer._context = replace(comparer._context, wait_seconds=60.0)
    promise = comparer.handle("p0", extremes_of(federation, "p0", ("p0", "p1")))
    comparer.close()  # the job is over: nobody waits out the time limit
    assert promise() == ExtremesMissing(("p1",))


def test_a_comparer_that_names_nobody_new_or_tells_some_is_found_out():
    def pretend(comparer, party, answer):
        return ExtremesMissing(()) if party == "p0" else answer

    with pytest.raises(MalformedMessage, match="different answers"):
        with_comparer(pretend).train()


def test_held_back_rows_are_not_rows():
    federation = HorizontalFederation("mal", dealt(whole(), [300, 300]), config_of())
    bent(federation.participants["p0"], lambda _, answer: RowsHeldBack(("stranger",)))
    with pytest.raises(MalformedMessage, match="different answers"):
        federation.train()


def test_too_few_left_is_a_clear_error():
    federation = HorizontalFederation("mal", dealt(whole(), [300, 300]), config_of({**QUIET, "least_participants": 2}))

    def gone(message):
        raise PeerUnreachable("p1 is gone")

    federation.participants["p1"].handle = gone
    with pytest.raises(PeerUnreachable, match="the job needs 2"):
        federation.train()


def test_merging_keeps_small_participants_in():
    table = whole()
    run = simulate_training(dealt(table, [520, 60, 20]), SERVER, "mal", config_of({"epsilon": 0}))
    reports = run.outcome.reports
    assert reports["p2"]["merged_cells"] > 0
    assert all(report["exposed_rows"] == 0 for report in reports.values())
    assert max(report["largest_leverage"] for report in reports.values()) <= 0.5 + 1e-9
