"""Parties whose tables stay in shards align batch by batch: the same model, and nobody falls out of step unnoticed."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from sharded_parties import CONFIG, Lotted, lotted_certificates, stop_after
from veilboost.align.api import AlignContext
from veilboost.align.ecdh import BlindedIds, BlindOther, BlindOwn, CommonRows, EcdhActive
from veilboost.audit.sources import seen_in
from veilboost.data.load import load_table
from veilboost.engine import sharded
from veilboost.engine.shards import ShardedArray, ShardedNumbers
from veilboost.errors import (
    EmptyIntersection,
    FalseIntersection,
    ImpossibleSetting,
    JobCancelled,
    MalformedMessage,
    NothingToResume,
    PeerRefused,
    RowsDiffer,
    UnexpectedMessage,
)
from veilboost.party import batches
from veilboost.party import vertical_session as job_session
from veilboost.party.batches import HelperBatches, agreed_batches
from veilboost.party.coordinator import Watch
from veilboost.party.daemon import PartyHost
from veilboost.party.identity import peer_identity
from veilboost.party.messages import Accepted, BeginAlignment, EndAlignment, Finish, NextBatch, Propose
from veilboost.party.predicting import LivePredictor
from veilboost.party.settings import DataSettings
from veilboost.protocols.lattice import choice
from veilboost.wire.message import Done, encode
from veilboost.wire.rpc import Kind, Packet
from veilboost.wire.transcript import read_transcript

BATCH_ROWS, SHARD_ROWS = 70, 64  # tables have 336 rows: 5 batches, 6 shards


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(batches, "BATCH_ROWS", BATCH_ROWS)
    monkeypatch.setattr(sharded, "MOST_ROWS", SHARD_ROWS)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return lotted_certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def town(tmp_path, certificates):
    made = Lotted(tmp_path, certificates)
    yield made
    made.close()


def in_shards(town, *names):
    for name in names:
        town.settle(name, engine="disk")


# --- the same model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["plain", "lattice"])
def test_tables_in_shards_give_the_model_of_tables_in_memory(town, protocol):
    in_shards(town, "bank", "shop")
    expected = town.simulated(protocol)
    for alignment in ("ecdh", "hmac_csp"):
        assert town.train(alignment, alignment=alignment, protocol=protocol) == expected
        folders = [town.run(owner, alignment) for owner in ("bank", "shop")]
        assert [folder.batches for folder in folders] == [5, 5]
        ids = [town.columns[folder.status["party"]]["id"][folder.alignment] for folder in folders]
        assert ids[0].tolist() == ids[1].tolist()


@pytest.mark.parametrize("owner", ["bank", "shop"])
def test_a_party_in_memory_deals_its_ids_for_one_that_is_not(town, owner):
    in_shards(town, owner)
    stages = []
    assert town.train("mixed", watch=Watch(stage=stages.append)) == town.simulated()
    assert "aligning rows of batch 5 of 5" in stages
    assert {town.run(each, "mixed").batches for each in ("bank", "shop")} == {5}


def test_a_party_with_few_rows_shows_nobody_where_they_fall(town, monkeypatch):
    few = {name: column[:200] for name, column in town.columns["bank"].items()}
    town.write("bank", few)
    in_shards(town, "shop")
    sizes, begin = [], EcdhActive.__init__

    def counting(self, context, peers):
        sizes.append(len(context.ids))
        begin(self, context, peers)

    with monkeypatch.context() as patched:
        patched.setattr(EcdhActive, "__init__", counting)
        town.train("first")
    assert sizes == [200] * 5, "all of its ids in every batch"
    assert town.run("bank", "first").rows == np.isin(few["id"], town.columns["shop"]["id"]).sum()
    assert town.train("second") == town.simulated()


def test_among_tables_in_memory_nothing_changes(town):
    stages = []
    assert town.train("whole", watch=Watch(stage=stages.append)) == town.simulated()
    assert stages == ["reading the table", "asking the parties", "preparing ids", "aligning rows", "training"]
    kinds = [entry.message for entry in read_transcript(town.run("shop", "whole").path / "transcript")]
    assert "NextBatch" not in kinds


def test_rows_of_which_some_are_kept_to_validate_on(town):
    in_shards(town, "bank", "shop")
    town.train("watched", validation=0.25)
    assert (town.run("bank", "watched").path / "metrics.jsonl").read_text().count('"validation"') == 3


def test_one_lot_keeps_the_rows_of_one_machine_for_validation_and_samples(town, monkeypatch):
    """Below a million rows there is one batch, and what is drawn by place is drawn alike."""
    monkeypatch.setattr(batches, "BATCH_ROWS", 1 << 20)
    sampled = replace(CONFIG, subsample=0.6)
    here = town.train("here", config=sampled, validation=0.25)
    in_shards(town, "bank", "shop")
    assert town.train("there", config=sampled, validation=0.25) == here


def test_rows_in_the_same_order_already_are_checked_lot_by_lot(town):
    columns = town.columns["bank"]
    town.write("shop", {"id": columns["id"]} | {"z": np.random.default_rng(1).normal(size=len(columns["id"]))})
    in_shards(town, "bank", "shop")
    assert town.train("same", alignment="prealigned") == town.simulated()
    town.write("shop", {"id": columns["id"][::-1], "z": np.arange(len(columns["id"]), dtype=float)})
    with pytest.raises(PeerRefused, match="VB-1202"):
        town.train("turned", alignment="prealigned")


# --- going on, and predicting -----------------------------------------------------------------------------------------


def test_a_job_that_stopped_continues_with_its_batches(town):
    in_shards(town, "bank", "shop")
    with pytest.raises(JobCancelled):
        town.train("first", watch=stop_after(2, lambda: JobCancelled("enough")))
    town.restart("shop")
    assert town.train("first", resume=True) == town.simulated()


@pytest.mark.parametrize("owner", ["bank", "shop"])
def test_a_party_that_lost_its_rows_finds_the_same_again(town, owner):
    in_shards(town, "bank", "shop")
    with pytest.raises(JobCancelled):
        town.train("first", watch=stop_after(2, lambda: JobCancelled("enough")))
    before = town.run(owner, "first").alignment
    folder = town.run(owner, "first").path
    (folder / "alignment").rename(folder / "alignment.partial")
    assert town.train("first", resume=True) == town.simulated()
    np.testing.assert_array_equal(town.run(owner, "first").alignment, before)


def test_rows_that_changed_do_not_go_on(town):
    in_shards(town, "bank", "shop")
    with pytest.raises(JobCancelled):
        town.train("first", watch=stop_after(1, lambda: JobCancelled("enough")))
    folder = town.run("bank", "first").path
    (folder / "alignment").rename(folder / "gone")
    town.write("bank", {name: column[::-1] for name, column in town.columns["bank"].items()})
    town.train("first", resume=True)  # other places, but the same records in the same order
    with pytest.raises(JobCancelled):
        town.train("second", watch=stop_after(1, lambda: JobCancelled("enough")))
    town.write("bank", {name: column[: BATCH_ROWS * 2] for name, column in town.columns["bank"].items()})
    with pytest.raises(NothingToResume, match="table has changed"):
        town.train("second", resume=True)


@pytest.mark.parametrize("alignment", ["ecdh", "hmac_csp"])
def test_a_few_rows_are_predicted_out_of_a_table_in_shards(town, alignment):
    town.train("first", alignment=alignment)
    both = np.flatnonzero(np.isin(town.columns["bank"]["id"], town.columns["shop"]["id"]))[[9, 2, 30]]
    rows = load_table(town.folder / "bank", id="id", label="y").without_label()
    predictor = LivePredictor(town.party("bank"), town.run("bank", "first"))
    expected = predictor.predict(rows.take(both))
    in_shards(town, "shop")
    predictor = LivePredictor(town.party("bank"), town.run("bank", "first"))
    found = predictor.predict(rows.take(both))
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_array_equal(found.scores, expected.scores)
    strangers = np.flatnonzero(~np.isin(town.columns["bank"]["id"], town.columns["shop"]["id"]))[:2]
    with pytest.raises(RowsDiffer, match="2 of the 3 rows"):
        predictor.predict(rows.take(np.array([*strangers, both[0]])))
    with pytest.raises(RowsDiffer, match="2 of the 2 rows"):
        predictor.predict(rows.take(strangers))


# --- what a party's process holds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["plain", "lattice"])
def test_no_process_holds_an_array_of_all_rows(town, monkeypatch, protocol):
    def refuse(array, dtype=None, copy=None):
        raise AssertionError(f"{type(array).__name__} {array.shape} was put together")

    in_shards(town, "bank", "shop")
    expected = town.simulated(protocol)
    monkeypatch.setattr(choice, "BYTES_AT_ONCE", 0)  # vectors of all rows are for tables that fit into a message
    for kind in (ShardedArray, ShardedNumbers, sharded._Matrix):
        monkeypatch.setattr(kind, "__array__", refuse)
    monkeypatch.setattr(ShardedArray, "__getitem__", refuse)
    assert town.train("first", protocol=protocol) == expected


# --- what is refused --------------------------------------------------------------------------------------------------


class Asker:
    """The bank at the shop's door, without a wire."""

    def __init__(self, town, certificates, **options):
        self.host = PartyHost(town.party("shop"), lambda name, seconds: None)
        self._bank = peer_identity((certificates / "bank.crt").read_bytes())
        self._number, self._session = 0, 0
        with town.driver("first", **options) as driver:
            self._job = driver.job.text()

    def begin(self):
        self._session += 1
        return self(Propose(self._job, dry_run=False, resume=False))

    def __call__(self, message):
        """None where it was answered, or the code of the refusal."""
        self._number += 1
        body = encode(message)
        packet = Packet(Kind.REQUEST, bytes([self._session]) * 16, self._number, body, hashlib.sha256(body).digest())
        answer = self.host.handle(self._bank, packet)
        return None if answer.kind is Kind.ANSWER else answer.body.decode().split("\n")[0]


def salted(count, salt=bytes(16)):
    return BeginAlignment(count, np.frombuffer(salt, np.uint8))


def play_a_lot(ask):
    """The bank's side of `ecdh`, with nobody in common."""
    own = BlindedIds.prepare(AlignContext("bank", ("bank", "shop"), np.array(["nobody"])))
    for message in (BlindOwn(), BlindOther("bank", own.points), CommonRows(np.empty(0, dtype=np.int64))):
        assert ask(message) is None


def test_batches_out_of_order_are_refused_and_the_party_lives(town, certificates):
    in_shards(town, "shop")
    ask = Asker(town, certificates)
    assert ask.begin() is None
    assert ask(NextBatch(1, 0)) == "VB-1403", "before the alignment began"
    for wrong in (0, -3, 4, batches.MOST_BATCHES + 1, 1 << 60):  # four are fewer than this table needs
        assert ask(salted(wrong)) == "VB-1401"
    assert ask(salted(5, bytes(99))) == "VB-1401"
    assert ask(salted(5)) is None
    assert ask(salted(5)) == "VB-1403", "begun once more"
    for wrong in (0, 2, 5, -1):
        assert ask(NextBatch(wrong, 0)) == "VB-1403"
    assert ask(NextBatch(1, 0)) == "VB-1403", "batch 0 was not aligned"
    assert ask(EndAlignment(0)) == "VB-1403"
    play_a_lot(ask)
    for wrong in (NextBatch(2, 0), NextBatch(0, 0), NextBatch(1, 3), EndAlignment(0)):
        assert ask(wrong) == "VB-1403"
    assert ask(NextBatch(1, 0)) is None
    play_a_lot(ask)
    assert ask(NextBatch(1, 0)) == "VB-1403", "the same batch once more"
    assert ask(Finish(completed=False)) is None
    assert ask.begin() is None
    assert ask(salted(5)) is None
    ask.host.close()
    assert town.train("first") == town.simulated()


def test_a_peer_that_asks_for_an_invalid_number_of_batches_is_refused():
    assert agreed_batches(2, {"shop": Accepted("1", False, 7), "csp": Accepted("1", False)}) == 7
    assert agreed_batches(9, {"shop": Accepted("1", False, 7)}) == 9
    for wrong in (0, -1, batches.MOST_BATCHES + 1):
        with pytest.raises(MalformedMessage, match="shop requests"):
            agreed_batches(1, {"shop": Accepted("1", False, wrong)})


def test_batches_that_nobody_asked_for_are_detected(town, monkeypatch):
    for owner in ("bank", "shop"):
        town.write(owner, {name: column[:150] for name, column in town.columns[owner].items()})
    monkeypatch.setattr(job_session, "requested_batches", lambda settings: 5)
    with pytest.raises(FalseIntersection, match="VB-1203"):
        town.train("first")


def test_a_list_that_is_only_compared_is_not_cut_smaller_than_it_must_be(town, certificates, monkeypatch):
    """Else whoever asks for many batches could guess one id at a time."""
    columns = town.columns["bank"]
    town.write("shop", {"id": columns["id"], "z": np.arange(len(columns["id"]), dtype=float)})
    monkeypatch.setattr(job_session, "requested_batches", lambda settings: 6)
    with pytest.raises(RowsDiffer, match="VB-1202: a party requests more batches"):
        town.train("first", alignment="prealigned")
    ask = Asker(town, certificates, alignment="prealigned")
    assert ask.begin() is None
    assert ask(salted(6)) == "VB-1202"
    assert ask(salted(5)) is None
    ask.host.close()


def test_a_third_party_is_made_anew_for_each_lot_and_for_none_twice():
    made = []
    helped = HelperBatches(lambda: made.append(len(made)))

    def send(message):
        assert helped.handle("bank", message, drives=True) == Done()

    for early in (NextBatch(1, 0), EndAlignment(0)):
        with pytest.raises(UnexpectedMessage, match="not begun"):
            send(early)
    with pytest.raises(MalformedMessage):
        send(BeginAlignment(0))
    send(BeginAlignment(3))
    with pytest.raises(UnexpectedMessage, match="already"):
        send(BeginAlignment(3))
    send(NextBatch(1, 0))
    for wrong in (1, 0, 3):
        with pytest.raises(UnexpectedMessage, match="came after batch 1"):
            send(NextBatch(wrong, 0))
    with pytest.raises(UnexpectedMessage, match="would end after batch 1"):
        send(EndAlignment(0))
    send(NextBatch(2, 0))
    assert not helped.over
    send(EndAlignment(0))
    assert helped.over
    assert made == [0, 1, 2]


def test_third_parties_are_not_told_the_salt_nor_the_common_rows(town):
    in_shards(town, "bank", "shop")
    town.train("first", alignment="hmac_csp", record="payload")
    seen = seen_in(town.run("bank", "first").path, (BeginAlignment, NextBatch, EndAlignment))
    for each in seen:
        helper = each.peer in {"ta", "csp"}
        if isinstance(each.message, BeginAlignment):
            assert len(each.message.salt) == (0 if helper else batches.SALT_BYTES)
        elif helper:
            assert each.message.rows == 0
    assert len(seen) == 3 * (5 + 1)


def test_nobody_in_common(town):
    in_shards(town, "bank", "shop")
    town.write("shop", town.columns["shop"] | {"id": np.array([f"x{k}" for k in range(336)])})
    with pytest.raises(EmptyIntersection, match="VB-1201"):
        town.train("first")


def test_an_id_that_repeats_in_another_shard(town):
    ids = town.columns["shop"]["id"].copy()
    ids[-1] = ids[0]
    town.write("shop", town.columns["shop"] | {"id": ids})
    in_shards(town, "bank", "shop")
    with pytest.raises(PeerRefused, match="VB-1103"):
        town.train("first")


def test_the_policy_holds_for_tables_in_shards(town):
    town.settle("shop", engine="disk", policy='columns = ["x2", "x3"]')
    with pytest.raises(PeerRefused, match="VB-1612: the owner's policy refuses the request"):
        town.train("first")
    town.settle("shop", engine="disk", policy='columns = ["x2", "x3"]', data='features = ["x2", "x3"]')
    town.train("second")


def test_an_address_in_place_of_a_path(town):
    expected = town.simulated()
    for name, engine in (("bank", "disk"), ("shop", "local")):
        town.settle(name, engine=engine, place=f'uri = "{(town.folder / name).as_uri()}"')
    assert town.train("first") == expected
    with pytest.raises(ImpossibleSetting, match="uri is given together"):
        DataSettings(path="here", uri="s3://there")
