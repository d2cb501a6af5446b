"""Deviations that only tests run, beside those of `veilboost.audit.deviations`.

The paper of `masked` (appendix G) says that parties that deviate harm only themselves: here it is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from veilboost.audit.attack import Outcome, balanced_accuracy, share_right
from veilboost.audit.attacks.bins import SumsReader
from veilboost.audit.deviations import Deviation, Tables, run_deviating
from veilboost.audit.replay import rounds
from veilboost.audit.solvers import least_squares
from veilboost.audit.sources import views_of_simulation
from veilboost.boost.bins import BinLayout
from veilboost.config import TrainingConfig
from veilboost.errors import MissingLabel, VeilBoostError
from veilboost.party.simulation import simulate_training
from veilboost.protocols.masked.active import MaskedCipher
from veilboost.protocols.masked.messages import Masks, NoisedVectors
from veilboost.protocols.masked.parameters import MaskedOptions
from veilboost.protocols.masked.spec import SPEC as MASKED
from veilboost.protocols.spec import RoleFactory
from veilboost.protocols.vertical.active import VerticalActive, active_by
from veilboost.protocols.vertical.messages import ColumnsOffered
from veilboost.types import BoolArray, Float32Array, Float64Array, Int32Array, Int64Array, PartyName
from veilboost.wire.message import Message


def reverse_sum(tables: Tables, active: PartyName, victim: PartyName, protocol: str, config: TrainingConfig) -> Outcome:
    """An active party that puts powers of two in place of gradients: which bins of its victim's rows it reads."""
    rows, bits = tables[active].rows, config.gradient_bits
    number = -1

    def choose(labels: Float64Array, margin: Float64Array) -> tuple[Float64Array, Float64Array]:
        nonlocal number
        number += 1
        return chosen_gradients(number, rows, bits)

    config = replace(config, objective="auto", min_child_weight=0.0, max_depth=1, base_score=0.0)
    run = simulate_training(tables, active, protocol, config, custom_loss=choose, record="payload")
    views, truth = views_of_simulation(run, tables)
    view, block = views[active], truth.block(victim)
    offered = view.received(ColumnsOffered, victim)[0]
    layout = BinLayout(offered.offsets, offered.missing, offered.kind)
    reader, hits = SumsReader(view, layout, victim), list[BoolArray]()
    for one in rounds(view, victim):
        sums = reader.read(one.levels[0], one.opening)
        if sums is None or block.shared is None:
            raise TypeError(f"the sums of {protocol} cannot be read here")
        for channel in (0, 1):
            batch = batch_of(one.number, channel, rows, bits)
            if len(batch):
                found = spelled(sums[0, :, channel], layout, len(batch))
                own = block.shared.bins[0][batch].astype(np.int64)
                # Columns of one shape change places every round: each is scored by the one it comes nearest to.
                right = found[:, :, None] == own[:, None, :]
                hits.append(right[:, np.arange(layout.features), right.mean(axis=0).argmax(axis=1)].all(axis=1))
    every = np.concatenate(hits)
    sentence = f"{int(every.sum())} of {len(every)} rows spelled in {len(hits)} sums have all their bins read"
    return share_right("rows read", every, 0.0, sentence)


def chosen_gradients(number: int, rows: int, bits: int) -> tuple[Float64Array, Float64Array]:
    """g and h of one round: of `2 bits` rows, half in either, each row another power of two; zero elsewhere."""
    g, h = np.zeros(rows), np.zeros(rows)
    for values, batch in ((g, batch_of(number, 0, rows, bits)), (h, batch_of(number, 1, rows, bits))):
        values[batch] = 2.0 ** np.arange(len(batch))
    return g, h


def batch_of(number: int, channel: int, rows: int, bits: int) -> Int64Array:
    """The rows that a round spells in g (channel 0) or h (channel 1)."""
    first = (2 * number + channel) * bits
    return np.arange(min(first, rows), min(first + bits, rows))


def spelled(sums: Int64Array, layout: BinLayout, count: int) -> Int32Array:
    """The bin (rows of the batch, columns) of each row, from one channel of the root's sums (slots); -1 for none.

    Values were scaled to the grid by a power of two, which a column's total tells: it is that of all rows, 2^count - 1.
    """
    bins = np.full((count, layout.features), -1, dtype=np.int32)
    for column in range(layout.features):
        own = sums[layout.offsets[column] : layout.offsets[column + 1]]
        unit = int(own.sum()) // (2**count - 1) if count else 0
        if unit <= 0:
            continue
        for place, value in enumerate((own // unit).tolist()):
            inside = [row for row in range(count) if value >> row & 1]
            bins[inside, column] = place
    return bins


LEFT_OUT = 20  # one row in so many gets no mask: fewer than an honest mask leaves nearly bare by chance
NOTICED = 0.5  # of the length that coefficients should have


def deviating_masks(tables: Tables, active: PartyName, config: TrainingConfig, kind: str) -> Deviation:
    """A passive party that sends other masks than it should: zero, small, dependent, on one row each, or not on all.

    What the active party checks are lengths, independence and how many rows stand nearly bare. Rows that are left out
    come back in the clear.
    """
    change, clear = _KINDS[kind]
    width = MaskedOptions.from_dict(config.options).vectors
    rows, label = tables[active].rows, tables[active].label
    if label is None:
        raise MissingLabel(f"{active} has no labels")

    def answer(message: Message) -> Message:
        if not isinstance(message, Masks) or not len(message.nodes):
            return message
        # One round of one tree: at the root every candidate has all rows.
        return replace(message, masks=change(message.masks.reshape(-1, width, rows)).astype(np.float32).ravel())

    answers: list[NoisedVectors] = []
    stopped = None
    try:
        _first_root(tables, active, config, active_by(MaskedCipher), answers.append, answer)
    except VeilBoostError as error:
        stopped = error.code
    outcome = None
    if answers:
        bare = clear(rows, width)
        seen = answers[0].vectors[:rows][bare].astype(np.float64)
        # Rows under no mask have one of two values, one for each label.
        guess = (seen < (seen.min() + seen.max()) / 2).astype(np.float64)
        sentence = f"{len(seen)} of {rows} rows come back in the clear, which gives {{value:.3f}} of their labels"
        outcome = balanced_accuracy(label[bare], guess, sentence)
    return Deviation("masks", f"sends masks that are {kind}", outcome, stopped)


def shrunk_coefficients(tables: Tables, active: PartyName, config: TrainingConfig, share: float) -> Deviation:
    """An active party that multiplies masks by shorter coefficients than the agreed C.

    Its gradients are hidden less and the scores it gets are better. Whoever made the masks can take them off, and so
    sees how long the coefficients were: nothing in the protocol looks, but nothing hides it either.
    """
    width, rows = MaskedOptions.from_dict(config.options).vectors, tables[active].rows
    noticed: list[BoolArray] = []
    for factor in (share, 1.0):
        sent: list[Masks] = []
        answers: list[NoisedVectors] = []

        def answer(message: Message, sent: list[Masks] = sent) -> Message:
            if isinstance(message, Masks) and len(message.nodes):
                sent.append(message)
            return message

        _first_root(tables, active, config, _shrinking(factor), answers.append, answer)
        masks = np.concatenate([each.masks for each in sent]).reshape(-1, width, rows).astype(np.float64)
        kinds = 2 if answers[0].hessians else 1
        noised = np.concatenate([each.vectors for each in answers]).reshape(-1, kinds, rows).astype(np.float64)
        lengths = [np.linalg.norm(least_squares(b.T, g[0] - g[0].mean())) for b, g in zip(masks, noised, strict=True)]
        noticed.append(np.array(lengths) < NOTICED)
    outcome = share_right(
        "candidates noticed",
        noticed[0],
        float(np.mean(noticed[1])),
        f"coefficients of {share:g} of their length are seen to be short at {int(np.sum(noticed[0]))} of "
        f"{len(noticed[0])} candidates, and honest ones at {int(np.sum(noticed[1]))}",
    )
    return Deviation("coefficients", f"multiplies masks by {share:g} of the agreed length", outcome)


def _first_root(
    tables: Tables,
    active: PartyName,
    config: TrainingConfig,
    side: RoleFactory,
    seen: Callable[[NoisedVectors], None],
    answer: Callable[[Message], Message],
) -> None:
    """One tree of one level: `seen` gets what passive parties are sent, and `answer` what they send."""

    def ask(message: Message) -> Message:
        if isinstance(message, NoisedVectors):
            seen(message)
        return message

    spec = replace(MASKED, roles={**MASKED.roles, "active": side})
    run_deviating(tables, active, spec, replace(config, n_estimators=1, max_depth=1), ask, answer)


def _shrinking(share: float) -> RoleFactory:
    return lambda context: VerticalActive(context, MaskedCipher(context, length=share))


def _zero(masks: Float32Array) -> Float32Array:
    return np.zeros_like(masks)


def _small(masks: Float32Array) -> Float32Array:
    return masks * np.float32(1e-3)


def _dependent(masks: Float32Array) -> Float32Array:
    return np.repeat(masks[:, :1], masks.shape[1], axis=1)


def _on_one_row(masks: Float32Array) -> Float32Array:
    """Each vector as long as before, on a row of its own."""
    moved = np.zeros_like(masks)
    for vector in range(masks.shape[1]):
        moved[:, vector, vector] = np.linalg.norm(masks[:, vector], axis=1)
    return moved


def _not_on_all(masks: Float32Array) -> Float32Array:
    left = masks.copy()
    left[:, :, ::LEFT_OUT] = 0.0
    return left


_KINDS: dict[str, tuple[Callable[[Float32Array], Float32Array], Callable[[int, int], slice]]] = {
    "zero": (_zero, lambda rows, width: slice(0, rows)),
    "small": (_small, lambda rows, width: slice(0, rows)),
    "dependent": (_dependent, lambda rows, width: slice(0, rows)),
    "on one row": (_on_one_row, lambda rows, width: slice(width, rows)),
    "not on all rows": (_not_on_all, lambda rows, width: slice(0, rows, LEFT_OUT)),
}
