"""Requests that are sent together: fewer exchanges, and otherwise everything as if each had been sent alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support import make_columns, make_labels, quick, sha, split_among, train
from veilboost.boost import rows as row_groups
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.engine.api import open_engine
from veilboost.errors import UnexpectedMessage, UnsupportedCombination
from veilboost.party import simulation as simulation_module
from veilboost.protocols.elxgb.active import DpnsCipher
from veilboost.protocols.ldp.active import LdpCipher
from veilboost.protocols.masked.active import MaskedCipher
from veilboost.protocols.paillier.active import PaillierCipher
from veilboost.protocols.plain.active import PlainCipher
from veilboost.protocols.plain.messages import PlainSums
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.smm2.active import Smm2Cipher
from veilboost.protocols.smm2.passive import Smm2PassiveCipher
from veilboost.protocols.vertical.messages import StatisticsRequest
from veilboost.protocols.vertical.round_state import summed_ahead
from veilboost.testing.contract import VERTICAL_CASES, vertical_problem
from veilboost.wire.channel import MemoryChannel
from veilboost.wire.message import Done

pytestmark = pytest.mark.fast

AHEAD = {
    "plain": PlainCipher,
    "paillier": PaillierCipher,
    "ldp": LdpCipher,
    "elxgb": DpnsCipher,
    "smm2": Smm2Cipher,
    "masked": MaskedCipher,
}


def never_ahead(monkeypatch):
    """Every request waits for the answer to the one before, as with several passive parties."""
    monkeypatch.setattr(simulation_module, "Peers", _OneByOne)


class _OneByOne(simulation_module.Peers):
    def hold(self, messages, kind):
        answers = self.ask(messages, kind)
        return {name: lambda found=found: found for name, found in answers.items()}


def not_ahead(monkeypatch):
    for cipher in AHEAD.values():
        monkeypatch.setattr(cipher, "asks_ahead", property(lambda self: False, lambda self, value: None))


def answers(run):
    """What the passive party sent, without acknowledgements."""
    return [message for direction, _, message in run.transcripts["p1"].messages if direction == "sent"
            and not isinstance(message, Done)]  # fmt: skip


def equal(one, other):
    return type(one) is type(other) and all(
        np.array_equal(getattr(one, each.name), getattr(other, each.name)) for each in dataclasses.fields(one)
    )


@pytest.mark.parametrize("case", VERTICAL_CASES)
def test_plain_sends_the_same_sums_and_assignments_in_fewer_exchanges(case, monkeypatch):
    """Nothing is summed for a leaf, although the active party asks before it knows the rows of the nodes."""
    tables, config = vertical_problem(case, protocol_named("plain"), {}, 2)
    config = dataclasses.replace(config, max_depth=5, min_child_weight=2.0)
    together = train(tables, config, record="payload")
    not_ahead(monkeypatch)
    alone = train(tables, config, record="payload")
    assert sha(together) == sha(alone)
    assert together.rounds < alone.rounds
    assert together.rounds <= 2 + config.n_estimators * (config.max_depth + 1)
    assert len(answers(together)) == len(answers(alone))
    assert all(equal(*pair) for pair in zip(answers(together), answers(alone), strict=True))


@pytest.mark.parametrize("protocol", ["paillier", "ldp", "elxgb", "smm2"])
@pytest.mark.parametrize("case", ["binary", "sampled"])
def test_the_same_model_and_the_same_ledger_in_fewer_exchanges(protocol, case, monkeypatch):
    tables, config = _problem(case, protocol)
    together = train(tables, config, protocol, unsafe_noise_seed=0)
    not_ahead(monkeypatch)
    alone = train(tables, config, protocol, unsafe_noise_seed=0)
    assert sha(together) == sha(alone)
    assert together.rounds < alone.rounds
    for name in tables:
        assert together.accounts[name].events == alone.accounts[name].events


@pytest.mark.parametrize("protocol", ["smm2", "masked"])
def test_a_party_that_asks_back_takes_two_exchanges_a_level(protocol, monkeypatch):
    """Splits are sent with the request of the next level. Noise is off: masks depend on all nodes of a request."""
    options = {"sigma1": 0.0, "sigma2": 0.0} if protocol == "masked" else {}
    tables, config = vertical_problem("onehot", protocol_named(protocol), options, 2)
    tables["p0"], tables["p1"] = (  # the passive party has most columns, so that it splits at every level
        dataclasses.replace(tables["p0"], columns=tables["p0"].columns[:1]),
        dataclasses.replace(tables["p1"], columns=(*tables["p1"].columns, *tables["p0"].columns[1:])),
    )
    config = dataclasses.replace(config, max_depth=5, min_child_weight=2.0)
    together = train(tables, config, protocol)
    not_ahead(monkeypatch)
    alone = train(tables, config, protocol)
    assert sha(together) == sha(alone)
    assert together.rounds <= 2 + config.n_estimators * (2 * config.max_depth + 1)
    assert alone.rounds >= together.rounds + config.n_estimators * (config.max_depth - 2)


def test_no_mask_is_asked_for_a_single_row(monkeypatch):
    """Its gradient would be sent unmasked; its sibling is summed instead, also in a request ahead."""
    fewest, ahead_of = [], []
    answer = Smm2PassiveCipher.answer

    def counted(self, message, state, build):
        fewest.append(int(build.counts.min()))
        ahead_of.append(message.ahead and int(state.fit.counts.min()) == 1)
        return answer(self, message, state, build)

    monkeypatch.setattr(Smm2PassiveCipher, "answer", counted)
    columns = make_columns(11, rows=60, numeric=4)
    tables = split_among(columns, make_labels(11, columns, "regression"), 2)
    config = TrainingConfig(objective="regression", n_estimators=3, max_depth=5, max_bin=64, categories="onehot")
    train(tables, config, "smm2")
    assert any(ahead_of), "a level that was asked ahead has a node of one row"
    assert min(fewest) >= 2


def _problem(case, protocol):
    spec = protocol_named(protocol)
    try:
        tables, config = vertical_problem(case, spec, {}, 2)
    except UnsupportedCombination:
        pytest.skip("the protocol does not train such a job")
    return tables, quick(dataclasses.replace(config, max_depth=4), protocol)


def test_weights_that_leave_a_child_of_one_heavy_row(monkeypatch):
    """It has enough hessian to split but not enough rows, which only the owner of the split knows in time."""
    columns = make_columns(11, rows=60, numeric=4)
    tables = split_among(columns, make_labels(11, columns, "regression"), 2)
    tables["p0"] = dataclasses.replace(tables["p0"], weight=np.where(np.arange(60) < 4, 50.0, 0.03))
    config = TrainingConfig(objective="regression", n_estimators=3, max_depth=5, max_bin=64)
    together = train(tables, config, record="payload")
    not_ahead(monkeypatch)
    alone = train(tables, config, record="payload")
    assert sha(together) == sha(alone)
    nodes = [sum(len(each.sums) for each in answers(run) if isinstance(each, PlainSums)) for run in (together, alone)]
    assert nodes[0] == nodes[1] + 1, "sums that are not used"


@pytest.mark.parametrize("case", ["sampled", "multiclass"])
def test_rows_on_disk_are_asked_ahead_too(case, tmp_path):
    tables, config = vertical_problem(case, protocol_named("plain"), {}, 2)
    expected = train(tables, config)
    with open_engine(f"disk:{tmp_path}") as engine:
        run = train(tables, config, engine=engine)
    assert sha(run) == sha(expected)
    assert run.rounds == expected.rounds


def test_two_passive_parties_are_asked_level_by_level(monkeypatch):
    """A passive party knows the splits of another one only after an exchange."""
    tables, config = vertical_problem("binary", protocol_named("plain"), {}, 3)
    run = train(tables, config, record="payload")
    sent = [message for _, _, message in run.transcripts["p1"].messages if isinstance(message, StatisticsRequest)]
    assert sent
    assert not any(message.ahead for message in sent)


@pytest.mark.parametrize("protocol", ["lattice", "smm1"])
def test_the_opening_of_a_round_takes_no_exchange(protocol, monkeypatch):
    tables, config = vertical_problem("binary", protocol_named(protocol), {}, 2)
    together = train(tables, config, protocol, unsafe_noise_seed=0)
    never_ahead(monkeypatch)
    alone = train(tables, config, protocol, unsafe_noise_seed=0)
    assert sha(together) == sha(alone)
    assert alone.rounds - together.rounds == config.n_estimators


def test_federboost_needs_one_exchange_a_tree():
    tables, config = vertical_problem("ordinal", protocol_named("federboost"), {}, 3)
    run = train(tables, config, "federboost")
    assert run.rounds == 3 + config.n_estimators - 1, "start, buckets, end, and the last tree comes with the end"


def test_long_assignments_are_sent_before_the_next_request(monkeypatch):
    tables, config = vertical_problem("binary", protocol_named("plain"), {}, 2)
    expected = sha(train(tables, config))
    monkeypatch.setattr(row_groups, "ASSIGNMENTS_AT_ONCE", 16)
    run = train(tables, config)
    assert sha(run) == expected
    assert "AssignmentsRequest" in {entry.message for entry in run.transcripts["p0"].entries}


# --- what an active party may do with requests ahead -------------------------------------------------------


def groups(*counts):
    end = np.cumsum(counts)
    return RowGroups(np.arange(end[-1], dtype=np.int32), end - counts, end, np.zeros(len(counts), dtype=np.int32))


def ahead(*build, smaller=1):
    none, bits = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.uint8)
    return StatisticsRequest(1, none, bits, bits, np.array(build, dtype=np.int32), ahead=True, smaller=smaller)


@pytest.mark.parametrize(
    ("counts", "least", "build", "smaller", "summed"),
    [
        ((5, 9), 1, (0, 1), 1, [0]),
        ((9, 5), 1, (0, 1), 1, [1]),
        ((7, 7), 1, (0, 1), 1, [0]),
        ((5, 9), 1, (0, 1), 0, [0, 1]),
        ((5, 9), 5, (0, 1), 1, [0]),
        ((5, 9), 6, (0, 1), 1, []),
        ((5, 9), 6, (0, 1), 0, []),
        ((1, 9), 1, (0, 1), 1, [0]),
        ((1, 9), 1, (0,), 1, []),  # one row cannot split, and the other child may not
        ((1, 1), 1, (0, 1), 1, []),
        ((5, 9, 8, 3), 1, (2, 3), 1, [3]),
        ((1, 9, 8, 3), 1, (0, 1, 2, 3), 2, [1, 3]),  # no mask hides a single row
        ((1, 1), 1, (0, 1), 2, []),
    ],
)
def test_the_receiver_chooses_nodes_by_their_rows(counts, least, build, smaller, summed):
    config = TrainingConfig(min_node_rows=least)
    assert summed_ahead(groups(*counts), ahead(*build, smaller=smaller), config)[0].tolist() == summed


def meddled(monkeypatch, tables, config, meddle):
    class Meddling(MemoryChannel):
        def send(self, message):
            return super().send(meddle(self._handler, message))

    with monkeypatch.context() as patch:
        patch.setattr(simulation_module, "MemoryChannel", Meddling)
        return train(tables, config, record="payload")


def test_a_request_ahead_needs_a_split_of_the_receiver(monkeypatch):
    """Otherwise the active party knows all rows, and names the nodes."""
    tables, config = vertical_problem("binary", protocol_named("plain"), {}, 2)
    tried = []

    def meddle(handler, message):
        if isinstance(message, StatisticsRequest) and not message.ahead:
            with pytest.raises(UnexpectedMessage):
                handler(dataclasses.replace(message, ahead=True))
            tried.append(message.depth)
        return message

    meddled(monkeypatch, tables, config, meddle)
    assert 0 in tried


def test_a_request_ahead_gives_no_sums_of_small_nodes(monkeypatch):
    """Whatever it lists: sums have min_node_rows rows, and so has the sibling."""
    tables, config = vertical_problem("binary", protocol_named("plain"), {}, 2)
    config = dataclasses.replace(config, min_node_rows=30, min_child_weight=0.0)
    honest = train(tables, config, record="payload")

    def meddle(handler, message):
        if isinstance(message, StatisticsRequest) and message.ahead:
            return dataclasses.replace(message, build=np.arange(2 * len(message.split), dtype=np.int32))
        return message

    greedy = meddled(monkeypatch, tables, config, meddle)
    assert [len(each.sums) for each in answers(greedy) if isinstance(each, PlainSums)] == [
        len(each.sums) for each in answers(honest) if isinstance(each, PlainSums)
    ]
