"""Parties of `masked` that deviate. Its paper (appendix G) says that they harm only themselves: here it is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from veilboost.audit.experiments import Deviation, Tables, run_deviating
from veilboost.audit.result import balanced_accuracy, share_right
from veilboost.audit.solvers import least_squares
from veilboost.config import TrainingConfig
from veilboost.errors import MissingLabel, VeilBoostError
from veilboost.protocols.masked.active import MaskedCipher
from veilboost.protocols.masked.messages import Masks, NoisedVectors
from veilboost.protocols.masked.options import MaskedOptions
from veilboost.protocols.masked.spec import SPEC as MASKED
from veilboost.protocols.spec import RoleFactory
from veilboost.protocols.vertical.active import VerticalActive, active_by
from veilboost.types import BoolArray, Float32Array, PartyName
from veilboost.wire.message import Message

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
        stopped = error.what
    outcome = None
    if answers:
        bare = clear(rows, width)
        seen = answers[0].vectors[:rows][bare].astype(np.float64)
        # Rows under no mask have one of two values, one for each label.
        guess = (seen < (seen.min() + seen.max()) / 2).astype(np.float64)
        sentence = f"{len(seen)} of {rows} rows come back in the clear, which gives {{value:.3f}} of their labels"
        outcome = balanced_accuracy(label[bare], guess, sentence)
    return Deviation("passive", f"masks that are {kind}", stopped, outcome)


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
    return Deviation("active", f"coefficients of {share:g} of the agreed length", None, outcome)


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
