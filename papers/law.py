"""The joint law of the noisy sums, without masks: for utility curves, where only the outcome of noise is of interest.

m'(g + Bc) = m'g + c'R with R = B'm, whose W entries are independent N(0, n_A sigma2^2): the null-space part of the
noise is gone from the sums. `LAW` is a protocol that draws these sums from gradients in the clear. It is in no list of
protocols and reveals everything to the passive party: for experiments in one process, never between parties.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from veilboost import _native
from veilboost.boost.rows import RowGroups
from veilboost.errors import UnexpectedMessage
from veilboost.protocols.masked.active import MaskedCipher
from veilboost.protocols.masked.messages import BestGains, Masks, NoisedVectors
from veilboost.protocols.masked.parameters import Noise, layout_bound, left_of, rows_left
from veilboost.protocols.masked.passive import noisy_gains
from veilboost.protocols.masked.spec import SPEC
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.messages import BeginRound, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.protocols.vertical.roles import (
    ActiveContext,
    ActiveRound,
    Openings,
    PassiveCipher,
    PassiveContext,
    PassiveJob,
)
from veilboost.protocols.vertical.round_state import RoundState, own_best
from veilboost.types import Float64Array, Int32Array
from veilboost.wire.message import ArraySpec, Reveals


def noisy_sums(left: Float64Array, kappa: Float64Array, vectors: int, key: bytes) -> Float64Array:
    """Left sums (candidates, 2) as W noise vectors would leave them, noise of standard deviation kappa.

    (c'R, d'R) for independent directions c and d: both normal, correlated by c'd, which is a coordinate of a random
    direction.
    """
    drawn = np.empty((1, len(left) * (vectors + 2)), dtype=np.float32)
    _native.normals(np.frombuffer(key, dtype=np.uint8), drawn)
    normal = drawn.reshape(len(left), vectors + 2).astype(np.float64)
    x, y, direction = normal[:, 0], normal[:, 1], normal[:, 2:]
    together = direction[:, 0] / np.sqrt((direction**2).sum(axis=1))
    other = together * x + np.sqrt(np.maximum(1.0 - together**2, 0.0)) * y
    return left + kappa[:, None] * np.stack((x, other), axis=1)


@dataclass(frozen=True)
class ClearRound(BeginRound):
    """Active to passive: the round's gradients in the clear."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        *BeginRound.reveals,
        Reveals("gradient and hessian of every row: in the first round these are the labels", "passive"),
    )
    gradients: Annotated[Int32Array, ArraySpec("int32", 3)]
    g_unit: float
    h_unit: float


class LawCipher(MaskedCipher):
    """Sends gradients once a round and takes the best scores."""

    def openings(self, current: ActiveRound, openings: Openings) -> Openings:
        start = current.start
        g_unit, h_unit = start.scale.g_unit, start.scale.h_unit
        return {
            name: ClearRound(**vars(each), gradients=start.gradients, g_unit=g_unit, h_unit=h_unit)
            for name, each in openings.items()
        }


def law_active(context: ActiveContext) -> VerticalActive:
    return VerticalActive(context, LawCipher(context))


class LawPassiveCipher(PassiveCipher):
    """Sums exactly, adds the noise that masks would have left, and scores."""

    def begin_training(self, job: PassiveJob) -> None:
        super().begin_training(job)
        rows, trees = self.context.rows, job.trees_per_round
        self._noise = Noise.of(job.config, rows, layout_bound(job.block.layout), trees)
        self._ones = np.ones((trees, rows, 2), dtype=np.int32)

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, ClearRound):
            raise UnexpectedMessage("a round of another protocol")
        self._clear = message

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> BestGains:
        block, bins, layout, noise = state.block, state.bins, state.block.layout, self._noise
        sums = block.histogram(bins, self._clear.gradients, build)
        units = (self._clear.g_unit, self._clear.h_unit)
        totals = build.totals(self._clear.gradients) * np.array(units)
        g, h = (left_of(sums[:, :, kind], layout).reshape(build.nodes, -1) * units[kind] for kind in (0, 1))
        rows = rows_left(block.histogram(bins, self._ones, build)[:, :, 0], layout).reshape(build.nodes, -1)
        positions: list[int] = state.build.tolist()  # of the nodes to sum, which a request ahead does not name
        self._best = dict.fromkeys(positions, 0)
        gains = np.full(build.nodes, -np.inf)
        for node, (position, count) in enumerate(zip(positions, build.counts.tolist(), strict=True)):
            handles = ((rows[node] >= noise.least_active) & (rows[node] < count)).nonzero()[0]
            if not len(handles):
                continue
            active = rows[node, handles]
            left = np.stack((g[node, handles], h[node, handles]), axis=1)
            key = self.context.randomness.for_request("law", state.number, state.depth, node).bytes(32)
            noisy = noisy_sums(left, noise.left_in_sums(active, count), noise.vectors, key)
            if self.job.config.order == "first":
                noisy[:, 1] = left[:, 1]
            scores = noisy_gains(noisy, totals[node], self.job.config, noise.options.noisy_h)
            top = int(scores.argmax())
            gains[node], self._best[position] = scores[top], int(handles[top])
        return BestGains(gains)

    def chosen(self, message: SplitRequest) -> SplitRequest:
        return own_best(message, self._best)


def law_passive(context: PassiveContext) -> VerticalPassive:
    return VerticalPassive(context, LawPassiveCipher(context))


LAW = replace(
    SPEC,
    name="masked-law",
    summary="experiments only: the noise that masked leaves in sums, on gradients in the clear",
    messages=(*(m for m in SPEC.messages if m not in (BeginRound, Masks, NoisedVectors)), ClearRound),
    roles={"active": law_active, "passive": law_passive},
)
