"""`lattice` in runs of rows: every engine gives the model of `plain`, and each side refuses what cannot be right."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilboost.party.simulation as simulation_module
from lattices import engine_names, use_engine
from support import make_columns, make_labels, sha, split_among, train
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.crypto.lattice import keys
from veilboost.crypto.lattice.keys import LEAST_NARROWED, POLYNOMIAL_BYTES, Blocks, Sizes
from veilboost.errors import DamagedPacket, MalformedMessage, UnsupportedCombination
from veilboost.protocols.lattice import runs_active
from veilboost.protocols.lattice.messages import LatticeRequest, LatticeRound, LatticeSums, cut_into_blocks
from veilboost.protocols.lattice.passive import LatticePassiveCipher
from veilboost.wire.channel import MemoryChannel
from veilboost.wire.message import encode
from veilboost.wire.rpc import ENVELOPE_SIZE, Kind, Packet, from_chunks, to_chunks

pytestmark = pytest.mark.fast


def scene(rows: int = 80, parties: int = 2, weight=None, **parameters):
    columns = make_columns(5, rows, numeric=4, categorical=1, missing=0.1)
    config = TrainingConfig(**{"objective": "binary", "n_estimators": 2, "max_depth": 3, "max_bin": 8} | parameters)
    return split_among(columns, make_labels(5, columns, config.objective), parties, weight), config


def in_runs(tables, config, **options):
    return train(tables, dataclasses.replace(config, options={"layout": "runs"}), "lattice", **options)


# --- exactness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", engine_names())
def test_every_engine_gives_the_model_of_plain(engine, monkeypatch):
    use_engine(monkeypatch, engine)
    tables, config = scene(objective="multiclass", n_estimators=1)
    assert sha(in_runs(tables, config)) == sha(train(tables, config))


def test_nodes_cut_into_blocks_give_the_model_of_plain(monkeypatch):
    """With 30 bits no more than 1023 rows may be summed at once."""
    request = first_message(LatticeRequest, monkeypatch, rows=2500, gradient_bits=30)
    assert len(request.build) == 1
    assert len(request.run) == 4, "halves of halves"
    tables, config = scene(rows=2500, parties=3, gradient_bits=30)
    assert sha(in_runs(tables, config, threads=2)) == sha(train(tables, config))


def test_a_wide_table_gives_the_model_of_plain():
    """Thousands of bins need more flooding than few, and must still leave room for the sums."""
    columns = make_columns(6, 3000, numeric=130)
    tables = split_among(columns, make_labels(6, columns), 2)
    config = TrainingConfig(objective="binary", n_estimators=1, max_depth=2, max_bin=64)
    assert sha(in_runs(tables, config)) == sha(train(tables, config))


def test_nodes_that_the_most_flooding_does_not_hide_are_divided(monkeypatch):
    """As with ten million rows, or fewer and thousands of bins: at a larger scale a sum has room for fewer rows."""
    monkeypatch.setattr(keys, "MOST_LOG_FLOOD", 57)
    monkeypatch.setattr(keys, "LEAST_NARROWED", 64)
    columns = make_columns(6, 2500, numeric=40)
    tables = split_among(columns, make_labels(6, columns), 2)
    config = TrainingConfig(objective="binary", n_estimators=1, max_depth=2, max_bin=32)
    scales: list[int] = []
    ask = runs_active.LevelsInRuns.ask

    def asked(self, *arguments):
        waiting = ask(self, *arguments)
        scales.append(self._sizes.narrowing)
        assert self.blocks > 1
        return waiting

    monkeypatch.setattr(runs_active.LevelsInRuns, "ask", asked)
    assert sha(in_runs(tables, config)) == sha(train(tables, config))
    assert min(scales) > 0


def test_gradients_beyond_what_can_be_summed_are_refused(monkeypatch):
    monkeypatch.setattr(runs_active, "sizes_for_job", lambda *_: None)
    tables, config = scene()
    with pytest.raises(UnsupportedCombination):
        in_runs(tables, config)


# --- a passive party, or someone between, that alters answers -------------------------------------------------------


def first_message(kind, monkeypatch, **parameters):
    """The first message of a kind in an honest job, whichever way it goes."""
    found: list[object] = []

    class Listening(MemoryChannel):
        def _carry(self, message, sender, receiver):
            if isinstance(message, kind):
                found.append(message)
            return super()._carry(message, sender, receiver)

    with monkeypatch.context() as patch:
        patch.setattr(simulation_module, "MemoryChannel", Listening)
        tables, config = scene(**parameters)
        in_runs(tables, config)
    return found[0]


def train_with_answers(change, monkeypatch):
    class Altering(MemoryChannel):
        def _carry(self, message, sender, receiver):
            return super()._carry(change(message) if isinstance(message, LatticeSums) else message, sender, receiver)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Altering)
    tables, config = scene()
    return in_runs(tables, config)


def changed_sums(change):
    def altered(message: LatticeSums) -> LatticeSums:
        return dataclasses.replace(message, sums=np.ascontiguousarray(change(message.sums.copy())))

    return altered


def changed_masks(change):
    def altered(message: LatticeSums) -> LatticeSums:
        return dataclasses.replace(message, masks=np.ascontiguousarray(change(message.masks.copy())))

    return altered


def flipped(array: np.ndarray, at: int, by: int) -> np.ndarray:
    array.view(np.uint8).reshape(-1)[at] ^= by
    return array


ALTERED = {
    "a flipped byte of a sum": changed_sums(lambda s: flipped(s, 4, 1)),
    "a flipped byte of a mask": changed_masks(lambda m: flipped(m, 5, 1)),
    "a flipped bit of the last mask": changed_masks(lambda m: flipped(m, len(m) - 3, 16)),
    "zeros": changed_sums(lambda s: s * 0),
    "other order": changed_sums(lambda s: s[:, :, ::-1]),
    "g and h exchanged": changed_sums(lambda s: s[:, ::-1]),
    "out of range": changed_sums(lambda s: s + np.uint64(2**50)),
    "masks of zeros": changed_masks(lambda m: m * 0),
    "masks out of range": changed_masks(lambda m: m | np.uint8(255)),
    "a mask short": changed_masks(lambda m: m[:-POLYNOMIAL_BYTES]),
    "a byte more": changed_masks(lambda m: np.append(m, np.uint8(0))),
    "a bin short": changed_sums(lambda s: s[:, :, :-1]),
    "a node more": changed_sums(lambda s: np.concatenate([s, s[:1]])),
}


@pytest.mark.parametrize("name", ALTERED)
def test_altered_answers_are_refused(name, monkeypatch):
    with pytest.raises(MalformedMessage):
        train_with_answers(ALTERED[name], monkeypatch)


def test_a_change_within_the_noise_is_rounded_away(monkeypatch):
    """Ciphertexts are malleable; where the level is not refused, the model is the same."""
    tables, config = scene()
    expected = sha(train(tables, config))
    assert sha(train_with_answers(changed_sums(lambda s: flipped(s, 0, 1)), monkeypatch)) == expected


def test_a_flipped_byte_on_the_way_is_found_by_the_digest(monkeypatch):
    answer = first_message(LatticeSums, monkeypatch)
    packet = Packet(Kind.ANSWER, bytes(16), 7, encode(answer))
    whole = bytearray(b"".join(data for data, _ in to_chunks(packet, 1 << 16)))
    (received,) = from_chunks([(memoryview(bytes(whole)), True)], 1 << 24)
    assert received.body == packet.body
    rng = np.random.default_rng(0)
    for at in rng.integers(ENVELOPE_SIZE, len(whole), 20):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(DamagedPacket):
            list(from_chunks([(memoryview(bytes(damaged)), True)], 1 << 24))


# --- a dishonest active party ---------------------------------------------------------------------------------------


def changed(**changes):
    """Fields replaced by a function of what they were."""

    def altered(message):
        return dataclasses.replace(
            message, **{name: change(getattr(message, name)) for name, change in changes.items()}
        )

    return altered


def put(at, value):
    def altered(array):
        array = array.copy()
        array[at] = value
        return array

    return altered


def one_more(array):
    return np.append(array, array[-1:])


ROUND_DECEITS = {
    "a short seed": changed(key_seed=lambda s: s[:-1]),
    "a short key": changed(key=lambda k: k[:-1]),
    "no key": changed(key=lambda k: k[:0]),
    "a key out of range": changed(key=lambda k: k | np.uint8(255)),
}
REQUEST_DECEITS = {
    "a short seed": changed(seed=lambda s: s[:-1]),
    "a byte short": changed(ciphertext=lambda c: c[:-1]),
    "a ciphertext more": changed(ciphertext=lambda c: np.append(c, c[: 4 * POLYNOMIAL_BYTES])),
    "runs of 63 rows": changed(run=put(0, 63)),
    "runs of no rows": changed(run=put(0, 0)),
    "runs beyond the ring": changed(run=put(0, 8192)),
    "negative runs": changed(run=put(0, -64)),
    "a run short": changed(run=lambda r: r[:-1]),
    "blocks of fewer rows": changed(run=one_more),
    "no room to flood": changed(log_delta=lambda d: d - 10),
    "no message": changed(log_delta=lambda d: 200),
    "a negative scale": changed(log_delta=lambda d: -5),
}


def test_dishonest_messages_are_refused_and_the_job_goes_on(monkeypatch):
    refused: list[str] = []

    class Deceiving(MemoryChannel):
        def send(self, message):
            deceits = {LatticeRound: ROUND_DECEITS, LatticeRequest: REQUEST_DECEITS}.get(type(message), {})
            if isinstance(message, LatticeRound) and message.number:
                deceits = {}  # only the first round has a key
            for name, deceit in deceits.items():
                with pytest.raises(MalformedMessage):
                    self._handler(deceit(message))
                refused.append(name)
            return super().send(message)

    tables, config = scene()
    expected = sha(train(tables, config))
    monkeypatch.setattr(simulation_module, "MemoryChannel", Deceiving)
    assert sha(in_runs(tables, config)) == expected
    assert set(refused) == {*ROUND_DECEITS, *REQUEST_DECEITS}


def test_ciphertexts_out_of_range_are_refused(monkeypatch):
    """They are found while they are read, after the level has begun."""

    class Deceiving(MemoryChannel):
        def send(self, message):
            out_of_range = changed(ciphertext=lambda c: c | np.uint8(255))
            return super().send(out_of_range(message) if isinstance(message, LatticeRequest) else message)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Deceiving)
    tables, config = scene()
    with pytest.raises(MalformedMessage, match="out of range"):
        in_runs(tables, config)


def test_one_row_at_a_time_is_refused(monkeypatch):
    """Blocks are for large nodes; cut finely enough they would tell every row's bin.

    The scale decides how many rows a block has, and the request carries the scale: one that leaves room for the sums of
    fewer than 64 rows is refused.
    """
    tables, config = scene(rows=2500, gradient_bits=30)
    monkeypatch.setattr(runs_active, "sizes_for_job", lambda *_: Sizes(62))
    with pytest.raises(MalformedMessage, match="no room"):
        in_runs(tables, config)


def test_a_scale_that_cuts_nodes_into_fewer_than_4096_rows_is_refused(monkeypatch):
    """Only much flooding for wide tables needs such a scale, and no table is so wide that it needs smaller blocks."""
    tables, config = scene(rows=5000)
    bits = config.gradient_bits
    refused = next(sizes for sizes in map(Sizes.of_scale, range(65, 99)) if sizes.rows_per_block(bits) < LEAST_NARROWED)
    for sizes, expected in (
        (refused, pytest.raises(MalformedMessage, match="no room")),
        (None, contextlib.nullcontext()),
    ):
        log_delta = refused.log_delta - (sizes is None)
        monkeypatch.setattr(runs_active, "sizes_for_job", lambda *_, scale=log_delta: Sizes.of_scale(scale))
        with expected:
            in_runs(tables, config)


def test_where_a_node_is_cut_depends_on_row_numbers_alone():
    rng = np.random.default_rng(3)
    rows = np.flatnonzero(rng.random(5000) < 0.8).astype(np.int32)
    without = np.delete(rows, 100)
    for most in (64, 1000, 3999):
        edges = []
        for each in (rows, without):
            node, counts = cut_into_blocks(RowGroups.root(each, 2), 5000, most)
            assert counts.max() <= most
            assert np.array_equal(np.bincount(node, counts), [len(each)] * 2)
            ends = np.cumsum(counts[node == 0])[:-1]
            edges.append({int(each[end]) for end in ends})
        assert edges[0] == edges[1], "a row that leaves moves no other to another block"


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_arrays_in_a_request_never_crash(data):
    """Each is refused with a code, or is a request like any other."""
    arrays = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4).map(lambda x: np.array(x, dtype=np.int32))
    small = st.lists(st.integers(0, 100), max_size=4).map(lambda x: np.array(x, dtype=np.int32))
    field = data.draw(st.sampled_from(["run", "log_delta"]))
    value = data.draw(st.integers(-(2**40), 2**40) if field == "log_delta" else arrays | small)
    refused: list[bool] = []

    class Deceiving(MemoryChannel):
        def send(self, message):
            if isinstance(message, LatticeRequest) and not refused:
                try:
                    self._handler(dataclasses.replace(message, **{field: value}))
                except MalformedMessage:
                    refused.append(True)
                else:
                    raise _LikeAnyOther
            return super().send(message)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(_LikeAnyOther):
        patch.setattr(simulation_module, "MemoryChannel", Deceiving)
        tables, config = scene(n_estimators=1, max_depth=1)
        in_runs(tables, config)
        assert refused


class _LikeAnyOther(Exception):
    """The request happened to be one that may be made."""


# --- answers --------------------------------------------------------------------------------------------------------


def test_other_values_or_places_never_meet_the_same_randomness():
    """Two ciphertexts under one seed would show the difference of what they hold; a job may be resumed differently."""
    rows, run, group = np.arange(100, dtype=np.int32), np.array([64, 64], dtype=np.int32), np.zeros(2, dtype=np.int32)

    def digest(cut=30, rows=rows, run=run, group=group, gradients=b"gradients", log_flood=57) -> bytes:
        blocks = Blocks(rows, np.array([0, cut]), np.array([cut, 100]), run)
        return runs_active.digest_of(gradients, RowGroups.root(rows, 1), blocks, group, log_flood + 2)

    others = [
        digest(cut=40),
        digest(rows=rows[::-1]),
        digest(run=run * 2),
        digest(group=group + 1),
        digest(gradients=b"others"),
        digest(log_flood=58),
    ]
    assert digest() == digest()
    assert len({digest(), *others}) == 7


def test_the_same_request_twice_is_masked_anew(monkeypatch):
    seen: list[tuple[LatticeSums, LatticeSums]] = []
    honest = LatticePassiveCipher.answer

    def twice(self, message, state, build):
        seen.append((honest(self, message, state, build), honest(self, message, state, build)))
        return seen[-1][1]

    monkeypatch.setattr(LatticePassiveCipher, "answer", twice)
    tables, config = scene()
    expected = sha(train(tables, config))
    assert sha(in_runs(tables, config)) == expected
    assert all(np.mean(first.masks == second.masks) < 0.01 for first, second in seen)
    assert all(np.mean(first.sums == second.sums) < 0.1 for first, second in seen)
