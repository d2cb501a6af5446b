"""The label side of `federboost`: gets all buckets once and grows the trees alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from veilboost.boost.columns import ColumnBlock, LevelBins
from veilboost.boost.grower import Choices, Level, Round
from veilboost.boost.layout import KIND_CODES, BinLayout
from veilboost.boost.sides import Sides
from veilboost.boost.split import Candidates
from veilboost.errors import MalformedMessage
from veilboost.protocols.federboost.messages import BucketRound, Buckets, BucketSplits, BucketsRequest
from veilboost.protocols.vertical.active import LastSplit, VerticalActive
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.sums import LevelSums
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName
from veilboost.wire.channel import Pending
from veilboost.wire.message import Done

_NO_BITS = np.empty(0, dtype=np.uint8)
_KINDS = {code: kind for kind, code in KIND_CODES.items()}


class FederBoostActive(VerticalActive):
    """Sums and routes by the buckets it was given; the owners only hear which of their candidates won."""

    def begin_training(self, held_out: BoolArray | None, bin_weights: Float64Array | None) -> Sequence[int]:
        features = super().begin_training(held_out, bin_weights)
        answers = self.context.peers.ask(dict.fromkeys(self.context.peers.names, BucketsRequest()), Buckets)
        self._given = {
            name: self._block_of(name, self.layouts[name], answer.buckets) for name, answer in answers.items()
        }
        return features

    def _block_of(self, name: PartyName, layout: BinLayout, buckets: AnyArray) -> ColumnBlock:
        """Columns of which only the buckets are known: no values, no cuts."""
        if layout.has_sets or buckets.shape != (self.context.rows, layout.features):
            raise MalformedMessage(f"{name} sent buckets of other rows or columns")
        if (buckets >= layout.widths).any():
            raise MalformedMessage(f"{name} sent a bucket that is not there")
        narrow = buckets.astype(np.uint8 if layout.widest <= 256 else np.uint16)
        unknown = (np.empty(0, dtype=np.float32),) * layout.features
        return ColumnBlock(
            rows=self.context.rows,
            kinds=tuple(_KINDS[int(code)] for code in layout.kind),
            values=unknown,
            categories=(0,) * layout.features,
            cuts=unknown,
            layout=layout,
            shared=LevelBins([narrow], [unknown], per_node=False),
            max_bin=self.config.max_bin,
            binning=self.config.binning,
            threads=self.context.threads,
        )

    # --- the round --------------------------------------------------------------------------------------

    def begin_round(self, start: Round) -> None:
        super().begin_round(start)
        columns = dict(zip(self.context.order, start.columns, strict=True))
        self._foreign = {
            name: block if (chosen := columns[name]) is None else block.subset(chosen)
            for name, block in self._given.items()
        }
        self._sums = {name: LevelSums() for name in self._given}

    def round_message(self, start: Round, party: PartyName, opening: BeginRound) -> BucketRound:
        return BucketRound(opening.number, _NO_BITS, opening.all_columns, opening.columns)

    def ask_statistics(self, requests: Mapping[PartyName, StatisticsRequest]) -> Mapping[PartyName, Pending]:
        return {}  # everything is known here

    def read_statistics(self, level: Level, pending: Mapping[PartyName, Pending]) -> Mapping[PartyName, Candidates]:
        build = level.fit.of(level.build)
        offers: dict[PartyName, Candidates] = {}
        for name, block in self._foreign.items():
            built = block.histogram(block.level_bins(level.fit, level.follow), self.start.gradients, build)
            sums = self._sums[name].complete(level, built)
            offers[name] = self.score(sums, block.layout, level.totals[level.open])
        return offers

    def split(self, level: Level, offers: Sequence[Candidates], choices: Choices) -> tuple[Sides, Sides]:
        bits = LastSplit(choices, level.fit.of(choices.position), level.follow.of(choices.position))
        told: dict[PartyName, BucketSplits] = {}
        for owner, name in enumerate(self.context.order):
            at = np.flatnonzero(choices.owner == owner)
            if not len(at):
                continue
            if owner == self.owner:
                bits.take(owner, *self._split_own(level, offers[owner], choices, at))
                continue
            positions, handles = choices.position[at], choices.handle[at]
            told[name] = BucketSplits(self._tree_of(level, positions), level.node[positions], handles)
            block = self._foreign[name]
            bins, splits = block.level_bins(level.fit, level.follow), block.splits_of(handles, [])
            bits.take(
                owner,
                block.route(bins, level.fit.of(positions), splits),
                block.route(bins, level.follow.of(positions), splits),
            )
        self.context.peers.ask(told, Done)
        return bits.left
