"""What a view holds, and that replaying it gives what really happened."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from support import make_columns, make_labels, split_among, train
from veilboost import at_rest
from veilboost.audit.attacks.bins import SumsReader, histograms
from veilboost.audit.replay import assignments_of, leaf_of_rows, own_gradients, rounds
from veilboost.audit.sources import kept_key, views_of_simulation
from veilboost.audit.view import Truth, View
from veilboost.boost.bins import BinLayout
from veilboost.config import TrainingConfig
from veilboost.crypto.lattice import keys
from veilboost.errors import UnreadableFile
from veilboost.party.simulation import simulate_training
from veilboost.protocols.lattice import runs_active
from veilboost.protocols.lattice.messages import BinMasks, ExpandedSums, LatticeMore
from veilboost.protocols.plain.messages import PlainRound, PlainSums
from veilboost.protocols.vertical.messages import (
    BeginRound,
    ColumnsOffered,
    SplitAnswer,
    SplitRequest,
    StatisticsRequest,
)
from veilboost.wire.message import Catalogue, Done, decode, encode
from veilboost.wire.transcript import Transcript, read_frames

CONFIG = TrainingConfig(n_estimators=4, max_depth=3, max_bin=8, learning_rate=0.3)


def audited(protocol: str = "plain", parties: int = 2, **changes: object) -> tuple[dict[str, View], Truth]:
    columns = make_columns(3, 160, 6)
    tables = split_among(columns, make_labels(3, columns), parties)
    config = dataclasses.replace(CONFIG, **changes)  # type: ignore[arg-type]
    run = train(tables, config, protocol, record="payload")
    return views_of_simulation(run, tables)


def test_a_simulation_that_kept_nothing_has_no_views() -> None:
    columns = make_columns(3, 60, 4)
    tables = split_among(columns, make_labels(3, columns), 2)
    with pytest.raises(UnreadableFile, match="not recorded"):
        views_of_simulation(train(tables, CONFIG), tables)


def test_a_view_tells_directions_and_peers_apart() -> None:
    views, _ = audited(parties=3)
    active, passive = views["p0"], views["p1"]
    assert active.peers == ("p1", "p2")
    assert passive.peers == ("p0",)
    assert (active.role, passive.role) == ("active", "passive")
    assert len(active.sent(BeginRound, "p1")) == len(passive.received(BeginRound)) == CONFIG.n_estimators
    assert not active.received(BeginRound)
    assert len(active.received(PlainSums)) == len(active.received(PlainSums, "p1")) + len(
        active.received(PlainSums, "p2")
    )


@pytest.mark.parametrize("subsample", [1.0, 0.6])
def test_both_ends_replay_the_same_rows(subsample: float) -> None:
    views, _ = audited(parties=3, subsample=subsample)
    here, there = rounds(views["p0"], "p1"), rounds(views["p1"], "p0")
    assert len(here) == len(there) == CONFIG.n_estimators
    for one, other in zip(here, there, strict=True):
        assert one.number == other.number
        for level, same in zip(one.levels, other.levels, strict=True):
            assert np.array_equal(level.fit.rows, same.fit.rows)
            assert np.array_equal(level.routed.rows, same.routed.rows)
            assert np.array_equal(level.build.counts, same.build.counts)


def test_requests_that_were_sent_together_are_replayed_in_turn() -> None:
    """Between processes the answer to a split request comes after the request for the next level's sums."""
    views, _ = audited()
    alone = rounds(views["p0"], "p1")
    sent = list(views["p0"].messages)
    for at, seen in enumerate(sent):
        if isinstance(seen.message, StatisticsRequest) and seen.message.ahead:
            assert isinstance(sent[at - 1].message, SplitAnswer)
            sent[at - 1 : at + 1] = seen, sent[at - 1]
    assert sent != list(views["p0"].messages)
    together = rounds(dataclasses.replace(views["p0"], messages=tuple(sent)), "p1")
    for one, other in zip(alone, together, strict=True):
        for level, same in zip(one.levels, other.levels, strict=True):
            assert np.array_equal(level.build.listed(), same.build.listed())
            assert level.answer is same.answer
            assert level.split_answer is same.split_answer


def test_replayed_rows_give_the_sums_that_were_sent() -> None:
    views, truth = audited()
    block = truth.block("p1")
    for one, opening in zip(rounds(views["p0"], "p1"), views["p0"].sent(PlainRound), strict=True):
        for level in one.levels:
            assert isinstance(level.answer, PlainSums)
            made = block.histogram(block.shared, opening.gradients, level.build)  # type: ignore[arg-type]
            assert np.array_equal(made, level.answer.sums)


def test_sides_are_those_of_the_records() -> None:
    views, truth = audited()
    part = views["p1"].share
    assert part is not None
    values = part.matrix(truth.tables["p1"].columns, 160)
    found = assignments_of(views["p0"], "p1")
    assert found
    assert set(found) == set(part.records.rules())
    for (tree, node), (left, right) in found.items():
        record = part.records.find(np.array([tree], np.int32), np.array([node], np.int32))
        for rows, expected in ((left, True), (right, False)):
            assert (part.records.goes_left(values, record.repeat(len(rows)), rows) == expected).all()


@pytest.mark.parametrize("parties", [2, 3])
def test_an_active_party_knows_its_own_gradients(parties: int) -> None:
    views, _ = audited(parties=parties)
    found = own_gradients(views["p0"])
    sent = [message.gradients for message in views["p0"].sent(PlainRound, "p1")]
    assert found is not None
    assert len(found) == len(sent)
    for own, told in zip(found, sent, strict=True):
        assert np.array_equal(own, told)
    assert len(np.unique(leaf_of_rows(views["p0"], 0))) > 1
    assert own_gradients(views["p1"]) is None


@pytest.mark.parametrize(
    ("layout", "in_pieces"), [("runs", False), ("runs", True), ("masks", False), ("expansion", False)]
)
def test_lattice_sums_open_with_the_own_key_alone(
    monkeypatch: pytest.MonkeyPatch, layout: str, in_pieces: bool
) -> None:
    if in_pieces:
        monkeypatch.setattr(keys, "SPAN_ROWS", 30)
        monkeypatch.setattr(runs_active, "BYTES_AT_ONCE", 1)
    views, truth = audited("lattice", options={"layout": layout})
    assert bool(views["p0"].sent(LatticeMore)) == in_pieces
    assert bool(views["p0"].received(BinMasks)) == (layout != "runs")
    assert bool(views["p0"].received(ExpandedSums)) == (layout == "expansion")
    plain, _ = audited("plain")
    offered = views["p0"].received(ColumnsOffered)[0]
    bins = BinLayout(offered.offsets, offered.missing, offered.kind)
    reader, blind = (
        SumsReader(views["p0"], bins, "p1"),
        SumsReader(dataclasses.replace(views["p0"], secret=None), bins, "p1"),
    )
    for one, other in zip(rounds(views["p0"], "p1"), rounds(plain["p0"], "p1"), strict=True):
        for level, clear in zip(one.levels, other.levels, strict=True):
            opened = reader.read(level, one.opening)
            assert opened is not None
            # Columns change places, and nothing else.
            assert np.array_equal(np.sort(opened, axis=1), np.sort(clear.answer.sums, axis=1))  # type: ignore[attr-defined]
            assert blind.read(level, one.opening) is None
    # A finished job has no key any more: the sums that it decrypted are made again.
    keyless = dataclasses.replace(views["p0"], secret=None)
    again = histograms(keyless, truth, "p1", np.random.default_rng(0))
    read = histograms(views["p0"], truth, "p1", np.random.default_rng(0))
    assert again is not None
    assert read is not None
    assert [node.sums.sum() for node in again.nodes] == [node.sums.sum() for node in read.nodes]


def test_paillier_sums_open_with_the_own_key_and_not_without() -> None:
    columns = make_columns(3, 120, 6)
    tables = split_among(columns, make_labels(3, columns), 2)
    config = dataclasses.replace(CONFIG, n_estimators=2, options={"key_bits": 512, "allow_insecure_key": True})
    run = simulate_training(tables, "p0", "paillier", config, record="payload", prepared=kept_key("paillier", config))
    views, truth = views_of_simulation(run, tables)
    gradients = own_gradients(views["p0"])
    offered = views["p0"].received(ColumnsOffered)[0]
    layout = BinLayout(offered.offsets, offered.missing, offered.kind)
    block = truth.block("p1")
    blind = SumsReader(dataclasses.replace(views["p0"], secret=run.secrets["p1"]), layout, "p1")
    reader = SumsReader(views["p0"], layout, "p1")
    assert gradients is not None
    for one in rounds(views["p0"], "p1"):
        for level in one.levels:
            opened = reader.read(level, one.opening)
            made = block.histogram(block.shared, gradients[one.number], level.build)  # type: ignore[arg-type]
            assert opened is not None
            assert np.array_equal(np.sort(opened, axis=1), np.sort(made, axis=1))  # columns change places
            assert blind.read(level, one.opening) is None
    seen = histograms(views["p0"], truth, "p1", np.random.default_rng(0))
    assert seen is not None
    assert seen.splits  # handles mean something in the order that was seen


def test_shuffled_columns_are_linked_over_rounds() -> None:
    shuffled, truth = audited("lattice")
    clear, _ = audited("plain")
    rng = np.random.default_rng(0)
    one, other = (histograms(views["p0"], truth, "p1", rng) for views in (shuffled, clear))
    assert one is not None
    assert other is not None
    here, there = (np.stack([node.sums for node in seen.nodes]).reshape(-1, 3, 8, 2) for seen in (one, other))
    same = [[bool((here[:, p] == there[:, q]).all()) for q in range(3)] for p in range(3)]
    assert np.array_equal(np.sum(same, axis=0), [1, 1, 1])
    assert np.array_equal(np.sum(same, axis=1), [1, 1, 1])


def test_frames_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    transcript = Transcript("bank", tmp_path, "payload")
    sent = [SplitAnswer(np.array([1, 2], np.uint8), np.empty(0, np.uint8)), Done()]
    for message in sent:
        frame = encode(message)
        transcript.record("sent", "shop", message, len(frame), frame)
    transcript.close()
    catalogue = Catalogue((SplitAnswer, SplitRequest, Done))
    found = [decode(frame, catalogue) for _, frame in read_frames(tmp_path)]
    assert isinstance(found[0], SplitAnswer)
    assert np.array_equal(found[0].fit_left, [1, 2])
    assert isinstance(found[1], Done)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("left", [0, 4, 20, 63])
def test_frames_that_a_killed_party_lost_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool, left: int
) -> None:
    """Its lines are on the disk, and of its frames only the first and `left` bytes."""
    if encrypted:
        key = tmp_path / "storage.key"
        key.write_bytes(b"k" * 64)
        key.chmod(0o600)
        monkeypatch.setattr(at_rest, "_key_files", {})
        at_rest.protect(tmp_path / "t", key)
    kept: int | None = None
    for frames in (["a" * 30, "b" * 40, "c" * 50], ["d" * 60, "e" * 70]):
        transcript = Transcript("bank", tmp_path / "t", "payload")
        for frame in frames:
            transcript.record("sent", "shop", Done(), len(frame), frame.encode())
            transcript.flush()
            kept = kept or (tmp_path / "t" / "payload.bin").stat().st_size + left
        transcript.close()
        if frames[0][0] == "a":
            with (tmp_path / "t" / "payload.bin").open("r+b") as file:
                file.truncate(kept)
    whole = ["b"] if left == 63 and not encrypted else []
    assert [frame.decode()[0] for _, frame in read_frames(tmp_path / "t")] == ["a", *whole, "d", "e"]


def test_a_transcript_without_payloads_says_what_to_do(tmp_path: Path) -> None:
    transcript = Transcript("bank", tmp_path)
    transcript.record("sent", "shop", Done(), 20)
    transcript.close()
    with pytest.raises(UnreadableFile, match="payload"):
        list(read_frames(tmp_path))
