"""Experiments with parties that deviate from the protocol: what they try, what they learn, and who refuses.

Each function takes tables, runs the experiment against VeilBoost's own roles and returns a `Deviation`. Attacks on
views (`audit.attacks`) assume parties that follow the protocol; here a party sends arbitrary messages.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from veilboost.audit.attack import Z95, Outcome, share_right
from veilboost.boost.columns import ColumnBlock
from veilboost.boost.grower import Round
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice import keys
from veilboost.data.table import PartyTable
from veilboost.errors import MissingLabel, VeilBoostError
from veilboost.party.training import PassiveSession, TrainingJob, train_active
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.protocols.lattice.layouts import Asked
from veilboost.protocols.lattice.messages import LatticeRequest, LatticeRound, LatticeSums, value_bits
from veilboost.protocols.lattice.passive import LatticePassiveCipher
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.sealed import parameters
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.vertical import messages
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.protocols.vertical.roles import ActiveContext, PassiveContext
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import Int32Array, Int64Array, PartyName
from veilboost.wire.channel import MemoryChannel, Peers
from veilboost.wire.message import Catalogue, Message
from veilboost.wire.transcript import Transcript

M = TypeVar("M", bound=Message)
Tables = Mapping[PartyName, PartyTable]
Change = Callable[[Message], Message]
_NO_BITS, _NO_INTS = np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int32)


@dataclass(frozen=True)
class Deviation:
    """One experiment: `refused` is the code of the error that stopped it; None if no party noticed.

    `outcome` is what was learned until then, with its baseline and threshold; None if nothing was.
    """

    name: str
    tries: str
    outcome: Outcome | None
    refused: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.outcome is not None and self.outcome.succeeded

    @property
    def verdict(self) -> str:
        return "succeeded" if self.succeeded else "resisted" if self.refused is None else "refused"


def run_deviating(
    tables: Tables, active: PartyName, spec: ProtocolSpec, config: TrainingConfig, ask: Change, answer: Change
) -> None:
    """Train with passive parties; `ask` changes each request that they receive, `answer` each answer that they send."""
    catalogue, here = Catalogue(spec.messages), Transcript(active)
    sessions = {name: PassiveSession(spec, name, table) for name, table in tables.items() if name != active}

    def channel(name: PartyName, session: PassiveSession) -> MemoryChannel:
        return MemoryChannel(lambda asked: answer(session.side.handle(ask(asked))), catalogue, here, Transcript(name))

    peers = Peers({name: channel(name, session) for name, session in sessions.items()})
    train_active(TrainingJob(spec, config, tuple(tables)), active, tables[active], peers)


class FreeActive:
    """An active party of `lattice` or `sealed` that sends arbitrary requests to one passive party."""

    def __init__(self, protocol: str, victim: PartyTable, config: TrainingConfig) -> None:
        spec = protocol_named(protocol)
        self.config, self.rows = spec.completed(config, victim.rows), victim.rows
        self._passive, self._key = PassiveSession(spec, "victim", victim).side, keys.SecretKey(Csprng())
        text = json.dumps(self.config.to_dict())
        opening = messages.BeginTraining(text, self.rows, 1, 0, _NO_BITS, np.empty(0))
        self.layout = offered = self._ask(opening, messages.ColumnsOffered)
        bits = value_bits(self.config, 0) + spec.sums.noise_bits(self.config)
        sizes = keys.sizes_for_job(self.rows, bits, self.slots, len(offered.missing))
        if sizes is None:
            raise ValueError("there is no room for sums")
        self._sizes = sizes

    @property
    def slots(self) -> int:
        return int(self.layout.offsets[-1])

    def begin_round(self, number: int) -> None:
        seed = np.frombuffer(self._key.public_seed, dtype=np.uint8)
        self._passive.handle(LatticeRound(number, _NO_BITS, True, _NO_INTS, seed, self._key.public_part))

    def sums(
        self, values: Int32Array, build: Int32Array, counts: Int64Array, depth: int = 0, split: Int32Array = _NO_INTS
    ) -> Int64Array:
        """Sums (blocks, slots, 2) of values (rows, 2) at nodes `build`, whose rows are divided into blocks of `counts`.

        Below the root values are zero; `split` are the nodes of the level above that were split.
        """
        end = counts.cumsum()
        run = np.array([keys.run_length(count, self.slots) for count in counts.tolist()], dtype=np.int32)
        blocks = keys.Blocks(np.arange(end[-1], dtype=np.int32) % self.rows, end - counts, end, run)
        group = np.zeros(len(run), dtype=np.int32)
        sent = self._key.encrypt(values[None], group, blocks, self._sizes, Csprng(), 1)
        seed, delta = np.frombuffer(sent.seed, dtype=np.uint8), self._sizes.log_delta
        request = LatticeRequest(depth, split, _NO_BITS, _NO_BITS, build, delta, run, seed, sent.packed)
        answer = self._ask(request, LatticeSums)
        return self._key.decrypt(keys.EncryptedSums(answer.sums, answer.masks), run, self.slots, self._sizes, 1)

    def split(self, tree: int, depth: int, position: Int32Array, handles: Int32Array, rows: int) -> Int64Array:
        """Split these nodes of a level, with `rows` rows in total, by these handles: 1 for each row that goes left."""
        count = len(position)
        starts, no_sets = np.arange(count + 1, dtype=np.int32), np.zeros(count + 1, dtype=np.int32)
        trees, nodes = np.full(count, tree, dtype=np.int32), position + np.int32((1 << depth) - 1)
        request = messages.SplitRequest(depth, trees, nodes, position, starts, handles, no_sets, _NO_INTS)
        return np.unpackbits(self._ask(request, messages.SplitAnswer).fit_left, count=rows).astype(np.int64)

    def _ask(self, request: Message, kind: type[M]) -> M:
        answer = self._passive.handle(request)
        if not isinstance(answer, kind):
            raise TypeError(f"the passive party did not answer with {kind.type_name()}")
        return answer


def duplicated_nodes(victim: PartyTable, config: TrainingConfig, copies: int = 64) -> Deviation:
    """An active party of `sealed` with `eps_features` names the root many times and averages the noise.

    It encrypts zeros, so that the decrypted values are the noise. The value is the share of the booked standard
    deviation that is missing from the mean of the copies.
    """
    name, tries = "duplicated nodes", f"names one node {copies} times in a request"
    party = FreeActive("sealed", victim, config)
    party.begin_round(0)
    values = np.zeros((party.rows, 2), dtype=np.int32)
    try:
        noise = party.sums(values, np.zeros(copies, dtype=np.int32), np.full(copies, party.rows))
    except VeilBoostError as error:
        return Deviation(name, tries, None, error.code)
    booked = parameters.cell_sigmas(party.config, 2, len(party.layout.missing))
    cells = noise.mean(axis=0) / np.array(booked)
    left = math.sqrt(float((cells**2).mean()))
    error = Z95 * left / math.sqrt(2 * cells.size)
    sentence = f"the mean of {copies} copies has {left:.3f} of the booked standard deviation"
    return Deviation(name, tries, Outcome("noise removed", 1 - left, 0.0, 1 - left - error, 1 - left + error, sentence))


class _LittleFlood(keys.Sizes):
    """Messages at their usual scale under a flood of a few units of the switched modulus."""

    @property
    def log_delta(self) -> int:
        return 59


def rounding_leak(blocks: int = 4096) -> Deviation:
    """The holder of the key searches the low part of the residue for the noise that was added to the sums.

    If the noise were rounded to the switched modulus separately, its rounding error, between -1/2 and 1/2, would shift
    the low part of the residue. The value is the slope of the low part on this error: 1 if it is there, 0 if not. The
    experiment uses a small flood, so that fewer cells suffice: its size widens the error but does not change the slope.
    """
    sizes, run, slots = _LittleFlood(52), np.full(blocks, keys.LEAST_RUN, dtype=np.int32), 64
    key, nobody = keys.SecretKey(Csprng()), np.zeros(blocks, dtype=np.int64)
    added = discrete_gaussian(Csprng(), 2.0**27, blocks * 2 * slots).reshape(blocks, 2, slots)
    answer = keys.PublicKey(key.public_seed, key.public_part).sum(
        keys.Ciphertext(bytes(keys.SEED_BYTES), _NO_BITS),
        keys.Blocks(_NO_INTS, nobody, nobody, run),
        [np.zeros((0, 1), dtype=np.uint8)],
        np.zeros(blocks, dtype=np.int32),
        np.zeros(1, dtype=np.int32),
        np.array([slots], dtype=np.int32),
        sizes,
        1,
        added=added,
    )
    # At a scale of 2^40, decryption gives the whole residue, in units of 2^40 / p1 of the switched modulus.
    fine = key.decrypt(answer, run, slots, keys.Sizes(38), 1).transpose(0, 2, 1).ravel()
    unit, v = keys.PRIMES[1], added.ravel()
    residue = np.rint(fine / (unit / 2.0**40)).astype(np.int64)
    # v 2^59 = whole * p1 + rest, without rounding: 2^59 = 512 p1 + small.
    times, small = divmod(1 << sizes.log_delta, unit)
    x = v * small / unit
    low, shift = (residue - v * times) - x, np.rint(x) - x
    shift -= shift.mean()
    slope = float((shift @ low) / (shift @ shift))
    error = float(low.std() / math.sqrt(shift @ shift))
    sentence = f"the low part follows the rounding of the noise with slope {slope:.2f} +- {error:.2f}, {v.size} cells"
    outcome = Outcome("slope", slope, 0.0, slope - Z95 * error, slope + Z95 * error, sentence)
    return Deviation("rounding leak", "searches for added noise in the low part of the sums", outcome)


SPELLED = 60  # rows of a block: each has its own bit in the sums, 30 of g and 30 of h


def spelled_rows(victim: PartyTable, config: TrainingConfig, block: int | None = SPELLED) -> Deviation:
    """An active party of `lattice` uses powers of two as gradients, so that the sum of a bin encodes its rows.

    It divides the root into blocks of `block` rows, to read every row with one request. None uses one block, and so
    reads only `SPELLED` rows; no party can detect this.
    """
    name, tries = ("fine blocks", "one request for many small blocks") if block else ("chosen gradients", "one request")
    party = FreeActive("lattice", victim, config)
    party.begin_round(0)
    size, row = block or party.rows, np.arange(party.rows)
    row = row[row % size < SPELLED]
    place, family = row % size % (SPELLED // 2), row % size // (SPELLED // 2)
    values = np.zeros((party.rows, 2), dtype=np.int32)
    values[row, family] = 1 << place
    try:
        counts = np.bincount(np.arange(party.rows) // size)
        sums = party.sums(values, np.zeros(1, dtype=np.int32), counts)
    except VeilBoostError as error:
        return Deviation(name, tries, None, error.code)
    inside, edges = sums[row // size, :, family] >> place[:, None] & 1, party.layout.offsets.tolist()  # (rows, slots)
    found = np.full((party.rows, len(edges) - 1), -1, dtype=np.int64)
    for column, (low, high) in enumerate(itertools.pairwise(edges)):
        found[row, column] = inside[:, low:high].argmax(axis=1)
    return Deviation(name, tries, _read(victim, party.config, found, "one request"))


def chosen_winners(victim: PartyTable, config: TrainingConfig) -> Deviation:
    """An active party of `lattice` requests splits that halve a column, whatever their gain, one column per tree.

    No request is bound to a gain, so no party can detect this. The value is the share of bins that it learns of these
    columns: each tree gives 2^depth bins of one column.
    """
    name, tries = "chosen winners", "splits every node in the middle of a column of its choice"
    party = FreeActive("lattice", victim, config)
    found, refused = list[Int64Array](), None
    for tree, column in enumerate(range(min(party.config.n_estimators, len(party.layout.missing)))):
        first, last = party.layout.offsets[column : column + 2]
        low, high, split = np.array([first]), np.array([last]), _NO_INTS
        node, known = np.zeros(party.rows, dtype=np.int64), np.full(party.rows, first)  # of each row; -1: no node
        party.begin_round(tree)
        try:
            for depth in range(party.config.max_depth):
                counts = np.bincount(node[node >= 0], minlength=len(low))
                build = np.array([counts.argmax()], dtype=np.int32)  # a request must sum one node: sums of zeros do
                party.sums(np.zeros((party.rows, 2), dtype=np.int32), build, counts[build], depth, split)
                split = np.flatnonzero(high - low > 1).astype(np.int32)
                if not len(split):
                    break
                inside = np.flatnonzero(np.isin(node, split))
                inside = inside[node[inside].argsort(kind="stable")]
                middle, place = (low[split] + high[split]) // 2, split.searchsorted(node[inside])
                left = party.split(tree, depth, split, (2 * (middle - 1)).astype(np.int32), len(inside))
                known[inside] = np.where(left, known[inside], middle[place])
                node[:], node[inside] = -1, 2 * place + 1 - left
                low, high = (np.stack(pair, axis=1).ravel() for pair in ((low[split], middle), (middle, high[split])))
        except VeilBoostError as error:
            refused = error.code
        found.append(known - first)
    outcome = _read(victim, party.config, np.stack(found, axis=1), f"{2**party.config.max_depth} nodes of a tree")
    return Deviation(name, tries, outcome, refused)


def _read(victim: PartyTable, config: TrainingConfig, found: Int64Array, source: str) -> Outcome:
    """How many bins (rows, columns) were read. Columns of one shape are permuted: each is scored by the nearest."""
    shared = ColumnBlock.build(victim.columns, victim.rows, config, None, None).shared
    if shared is None:
        raise TypeError("the bins are not shared by all trees")
    own = shared.bins[0].astype(np.int64)
    right = found[:, :, None] == own[:, None, :]
    hits = right[:, np.arange(found.shape[1]), right.mean(axis=0).argmax(axis=1)]
    common = float(np.mean([np.bincount(column).max() / len(column) for column in own.T]))
    sentence = f"{source} gave {int(hits.sum())} of {hits.size} bins"
    return share_right("bins read", hits, common, sentence)


TIMES = 1 << 14  # how often a target row is counted


def multiplied_row(tables: Tables, active: PartyName, protocol: str, config: TrainingConfig) -> Deviation:
    """A passive party of `lattice` or `sealed` counts one row many times, to read its label from its winning column.

    In tree k, of depth 1, it takes row k with gradient g, adds TIMES (g + 1/2) to the first bin of a column and
    TIMES (g - 1/2) to that of another, and subtracts the same from the next bin: the first column wins if g is
    positive, the second if not. Multiplication under encryption gives the sums that are computed here in the clear.
    """
    labels, spec = tables[active].label, protocol_named(protocol)
    # In runs, where sums have more room than gradients need.
    config = replace(config, max_depth=1, options={**config.options, "layout": "runs"})
    if labels is None:
        raise MissingLabel(f"{active} has no labels")
    current: list[Round] = []
    found = np.full(config.n_estimators, -1.0)
    marked = _NO_INTS  # the first slots of the two columns, in this round's order

    def added(asked: Asked, state: RoundState) -> Int64Array:
        nonlocal marked
        sums = np.zeros((asked.answers, 2, state.block.layout.slots), dtype=np.int64)
        half, g = 1 << current[-1].scale.g_exponent - 1, int(current[-1].gradients[0, state.number, 0])
        marked, more = state.shuffle.starts[:2], TIMES * np.array([g + half, g - half])
        sums[0, 0, marked], sums[0, 0, marked + 1] = more, -more
        return sums

    def ask(message: Message) -> Message:
        if isinstance(message, messages.SplitRequest):
            slot = int(message.handles[0]) // 2
            found[message.tree[0]] = 0.0 if slot == marked[0] else 1.0 if slot == marked[1] else -1.0
        return message

    def observed(context: ActiveContext) -> VerticalActive:
        role: VerticalActive = spec.roles["active"](context)
        begin = role.begin_round
        role.begin_round = lambda start: (current.append(start), begin(start))[1]
        return role

    def multiplying(context: PassiveContext) -> VerticalPassive:
        streams = protocol == "lattice"
        return VerticalPassive(context, LatticePassiveCipher(context, lambda _: "auto", streams, noise=added))

    refused = None
    try:
        dishonest = replace(spec, roles={"active": observed, "passive": multiplying})
        run_deviating(tables, active, dishonest, config, ask, lambda message: message)
    except VeilBoostError as error:
        refused = error.code
    hits = found == labels[: len(found)]
    sentence = f"{int(hits.sum())} of {len(hits)} chosen labels were read, one per tree"
    outcome = share_right("labels read", hits, max(labels.mean(), 1 - labels.mean()), sentence)
    return Deviation("multiplied row", f"counts a row {TIMES} times to read its label", outcome, refused)
