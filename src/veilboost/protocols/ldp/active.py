"""The label side of `ldp`: noisy gradients go out, best candidates come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from veilboost.boost.grower import Choices, Level, Round
from veilboost.boost.layout import BinLayout
from veilboost.boost.rows import RowGroups
from veilboost.boost.sides import Sides
from veilboost.boost.split import Candidates
from veilboost.crypto.content import content_digest
from veilboost.errors import MalformedMessage
from veilboost.fixedpoint import Scale
from veilboost.protocols.ldp.accounting import gradient_event, totals_event
from veilboost.protocols.ldp.messages import LdpRequest, LdpRound, LdpScores
from veilboost.protocols.ldp.options import LdpOptions, ranges_of
from veilboost.protocols.ldp.scores import score
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.leaves import LeafRows, node_totals
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.perturb import Perturbation, with_counts
from veilboost.protocols.vertical.roles import ActiveContext
from veilboost.types import BoolArray, Float64Array, Int32Array, Int64Array, PartyName
from veilboost.wire.channel import Pending

_NOTHING = np.empty((0, 0, 0), dtype=np.int32)
_NO_TOTALS = np.empty((0, 0), dtype=np.int64)


class LdpActive(VerticalActive):
    """Perturbs once per tree, or at every level, and scores its own columns by the same noisy gradients.

    So which split wins, which the passive parties see, is made from what they were given. Leaf weights come from the
    true gradients, unless `private_leaves` is set.
    """

    def __init__(self, context: ActiveContext) -> None:
        super().__init__(context)
        self.derives_siblings = False  # the passive side scores, so it must be asked for every open node
        self._options = LdpOptions.from_dict(self.config.options)
        self._ranges = ranges_of(self.config, self._options, context.trees_per_round)
        self._perturbation = Perturbation(self._options, self._ranges, self.config.gradient_bits)

    # --- releases ---------------------------------------------------------------------------------------

    def begin_round(self, start: Round) -> None:
        if self._options.mechanism == "none":
            channels = 1 if self._options.score == "first" else 2
            self._clean = start.gradients[..., :channels]
            scale = start.scale if channels == 2 else Scale(start.scale.g_exponent, self.config.gradient_bits)
        else:
            self._clean = self._perturbation.clean(start.gradients, start.scale)
            scale = self._perturbation.scale()
        start = replace(start, scale=scale)
        self._sent = _NOTHING
        if not self._options.per_node:
            released = np.zeros(self._clean.shape[:2], dtype=np.bool_)
            released[:, start.fit] = True
            start = self._release(start, f"round {start.number}", released)
        self._leaves = LeafRows(RowGroups.root(start.fit, start.trees))
        super().begin_round(start)

    def _release(self, start: Round, name: str, released: BoolArray) -> Round:
        """Book and make what the passive parties see, the same for all of them: two noises could be averaged."""
        # A retry or a resumed job has the same gradients and draws the same noise; other gradients, or noise of another
        # law, draw another.
        event = gradient_event(self._options, self._ranges, start.trees, f"{name} gradients")
        law = repr((event, self._ranges, start.scale))
        digest = content_digest(self.context.randomness, law, self._clean, released)
        randomness = self.context.randomness.for_request("ldp", name, digest)
        self.context.account.spend(replace(event, content=digest.hex()))
        if self._options.mechanism == "none":
            self._sent = np.where(released[..., None], self._clean, np.int32(0))
        else:
            self._sent = self._perturbation.noisy(self._clean, released, randomness)
        return replace(start, gradients=self.context.block.placed(with_counts(self._sent, start.scale)))

    def round_message(self, start: Round, party: PartyName, opening: BeginRound) -> LdpRound:
        return LdpRound(
            opening.number,
            opening.fit,
            opening.all_columns,
            opening.columns,
            start.scale.g_exponent,
            start.scale.h_exponent,
            self._sent,
        )

    # --- the level --------------------------------------------------------------------------------------

    def candidates(self, level: Level) -> Sequence[Candidates]:
        name = f"round {self.start.number} level {level.depth}"
        self._for_level, self._told = _NOTHING, _NO_TOTALS
        if self._options.per_node:  # FedXGBoost Alg. 6, line 1: M(g) for the users of this very node
            self.start = self._release(self.start, name, _rows_of(level.fit.of(level.open), self._clean))
            self._for_level = self._sent
        totals = node_totals(self.start.gradients, level.fit)
        if self._options.paper_form:  # Alg. 6, lines 1 and 2: G is exact, and sent
            channels = self._clean.shape[2]
            totals[:, :channels] = node_totals(with_counts(self._clean, self.start.scale), level.fit)[:, :channels]
            self._told = totals[level.build, :channels]
            content = content_digest(self.context.randomness, level.build, self._told)
            self.context.account.spend(totals_event(f"{name} sums", content.hex()))
        return super().candidates(replace(level, totals=totals))

    def score(self, sums: Int64Array, layout: BinLayout, totals: Int64Array) -> Candidates:
        return score(sums, layout, totals, self.start.scale, self.config, self.context.threads)

    def ask_statistics(self, requests: Mapping[PartyName, StatisticsRequest]) -> Mapping[PartyName, Pending]:
        return self.context.peers.send(
            {
                name: LdpRequest(
                    asked.depth,
                    asked.split,
                    asked.fit_left,
                    asked.follow_left,
                    asked.build,
                    self._for_level,
                    self._told,
                )
                for name, asked in requests.items()
            }
        )

    def read_statistics(self, level: Level, pending: Mapping[PartyName, Pending]) -> Mapping[PartyName, Candidates]:
        offers: dict[PartyName, Candidates] = {}
        for name, answer in self.context.peers.collect(pending, LdpScores).items():
            most = max(2 * self.round_layouts[name].slots, 1)
            nodes = (len(level.open),)
            if answer.handle.shape != nodes or answer.gain.shape != nodes:
                raise MalformedMessage(f"{name} scored other nodes")
            if (answer.handle < 0).any() or (answer.handle >= most).any() or np.isnan(answer.gain).any():
                raise MalformedMessage(f"{name} offers a candidate that is not there, or a score that is no number")
            offers[name] = Candidates(answer.handle, answer.gain)
        return offers

    def split(self, level: Level, offers: Sequence[Candidates], choices: Choices) -> tuple[Sides, Sides]:
        fit_left, follow_left = super().split(level, offers, choices)
        self._leaves.split(level.fit, choices.position, fit_left)
        return fit_left, follow_left

    def leaf_weights(self, totals: Int64Array, scale: Scale) -> Float64Array:
        if self._options.private_leaves:
            totals, scale = node_totals(self.start.gradients, self._leaves.close()), self.start.scale
            np.maximum(totals[:, 1], 0, out=totals[:, 1])  # hessians sum to no less, whatever the noise says
        return super().leaf_weights(totals, scale)


def _rows_of(groups: RowGroups, clean: Int32Array) -> BoolArray:
    """Which rows of which tree stand in these nodes."""
    found = np.zeros(clean.shape[:2], dtype=np.bool_)
    for tree, begin, end in zip(groups.group.tolist(), groups.begin.tolist(), groups.end.tolist(), strict=True):
        found[tree, groups.rows[begin:end]] = True
    return found
