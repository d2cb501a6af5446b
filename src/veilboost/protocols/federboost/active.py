"""The active role of `federboost`: receives all buckets once and grows the trees alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from veilboost.boost.bins import KIND_CODES, BinLayout
from veilboost.boost.columns import ColumnBlock, LevelBins
from veilboost.boost.grower import Level
from veilboost.boost.rows import Assignments
from veilboost.errors import MalformedMessage
from veilboost.protocols.federboost.messages import BucketRound, Buckets, BucketSplits, BucketsRequest
from veilboost.protocols.vertical import roles
from veilboost.protocols.vertical.messages import SplitRequest
from veilboost.types import AnyArray, PartyName
from veilboost.wire.message import Done

_NO_BITS = np.empty(0, dtype=np.uint8)
_KINDS = {code: kind for kind, code in KIND_CODES.items()}


class FederBoostCipher(roles.StatisticsCipher):
    """Sums and routes by the received buckets; the owners are only informed which of their candidates won."""

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:
        answers = self.context.peers.ask(dict.fromkeys(self.context.peers.names, BucketsRequest()), Buckets)
        self._received = {name: self._block_of(name, layouts[name], answer.buckets) for name, answer in answers.items()}

    def _block_of(self, name: PartyName, layout: BinLayout, buckets: AnyArray) -> ColumnBlock:
        """Return columns with known buckets but without values and cut points."""
        if layout.has_sets or buckets.shape != (self.context.rows, layout.features):
            raise MalformedMessage(f"{name} sent buckets of other rows or columns")
        if (buckets >= layout.widths).any():
            raise MalformedMessage(f"{name} sent a bucket that does not exist")
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

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        self._blocks = {
            name: self._received[name] if opening.all_columns else self._received[name].subset(opening.columns)
            for name, opening in openings.items()
        }
        return {name: BucketRound(**vars(replace(each, fit=_NO_BITS))) for name, each in openings.items()}

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests) -> roles.Waiting:
        return {}  # everything is known here

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        build, gradients = level.fit.of(level.build), current.start.gradients
        return {
            name: block.histogram(block.level_bins(level.fit, level.routed), gradients, build)
            for name, block in self._blocks.items()
        }

    def route(
        self, current: roles.ActiveRound, level: Level, requests: Mapping[PartyName, SplitRequest]
    ) -> Mapping[PartyName, tuple[Assignments, Assignments]]:
        won = {name: BucketSplits(each.tree, each.node, each.handles) for name, each in requests.items()}
        self.context.peers.hold(won, Done)  # nothing here waits for the owners
        assignments: dict[PartyName, tuple[Assignments, Assignments]] = {}
        for name, request in requests.items():
            block, positions = self._blocks[name], request.position.astype(np.int64)
            bins, splits = block.level_bins(level.fit, level.routed), block.splits_of(request.handles)
            fit, routed = (block.route(bins, rows.of(positions), splits) for rows in (level.fit, level.routed))
            assignments[name] = fit, routed
        return assignments
