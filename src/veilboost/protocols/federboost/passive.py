"""The passive role of `federboost`: sends its randomized buckets once, and keeps thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilboost.boost.columns import ColumnBlock
from veilboost.boost.rows import RowGroups
from veilboost.config import ProtocolOptions
from veilboost.crypto.fingerprint import content_digest
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.fields import param
from veilboost.privacy.event import Adjacency, Event, ExactRelease, RandomizedResponse
from veilboost.privacy.mechanism import randomized_response
from veilboost.protocols.federboost.messages import BucketRound, Buckets, BucketSplits, BucketsRequest
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveCipher
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.wire.message import Done, Message


class FederBoostPassiveCipher(PassiveCipher):
    """Randomizes the bucket of every value once per job, and does not sum or route anything during training."""

    receives_samples = False

    def open_round(self, message: BeginRound) -> None:
        """A round has only a number and columns."""
        if not isinstance(message, BucketRound) or len(message.fit):
            raise UnexpectedMessage("a round of another protocol")
        self._split = set[tuple[int, int]]()  # the nodes of the round that are split here

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Message:
        raise UnexpectedMessage("federboost does not sum at passive parties: the active party has the buckets")

    def other(self, message: Message, state: RoundState | None) -> Message:
        if self.job.block.shared is None:
            raise UnexpectedMessage("federboost computes buckets once, but this job computes them at every node")
        if isinstance(message, BucketsRequest):
            return self._buckets(self.job.block)
        if isinstance(message, BucketSplits):
            if state is None:
                raise UnexpectedMessage("a split arrived outside a round")
            return self._keep(message, state)
        return super().other(message, state)

    def _buckets(self, block: ColumnBlock) -> Buckets:
        """The buckets of all rows and columns. Missing values have a bucket of their own, treated like the others."""
        options = FederBoostOptions.from_dict(self.job.config.options)
        true = block.shared_bins.bins[0]
        # Drawn once per job: a repeated request or a resumed job gets the same. Other buckets get other noise.
        digest = content_digest(self.context.randomness, repr(options), block.layout.widths, true)
        sent = true.astype(np.uint16)
        for column, width in enumerate(block.layout.widths.tolist()):
            if width == 1:
                continue  # a single bucket reveals nothing
            # One event per column: a record has a value in each of them, so it costs the sum.
            self.context.account.spend(bucket_event(options, width, f"column {column} buckets", digest.hex()))
            if options.mechanism == "response":
                randomness = self.context.randomness.for_request("federboost", column, digest)
                values = true[:, column].astype(np.int64)
                sent[:, column] = randomized_response(randomness, values, width, options.epsilon)
        return Buckets(sent)

    def _keep(self, message: BucketSplits, state: RoundState) -> Done:
        """Store the splits with thresholds of true values, by which prediction routes."""
        count, first = len(message.tree), state.number * self.job.trees_per_round
        if not count or len(message.node) != count or len(message.handles) != count:
            raise MalformedMessage("a split's arrays are empty or have different lengths")
        if (message.handles < 0).any() or (message.handles >= 2 * state.block.layout.slots).any():
            raise MalformedMessage("a split names a candidate that does not exist")
        if (message.tree < first).any() or (message.tree >= first + self.job.trees_per_round).any():
            raise MalformedMessage("a split names a tree of another round")
        keys = list(zip(message.tree.tolist(), message.node.tolist(), strict=True))
        if len(set(keys)) != count or not self._split.isdisjoint(keys) or int(message.node.min()) < 0:
            raise MalformedMessage("a node is already split, or named twice")
        splits = state.block.splits_of(message.handles)
        rules = state.block.rules_of(splits, state.block.shared_bins, np.zeros(count, dtype=np.int64))
        self._split.update(keys)
        self.job.rules.note(message.tree, message.node, rules, state.columns)
        return Done()


@dataclass(frozen=True)
class FederBoostOptions(ProtocolOptions):
    """The noise on buckets."""

    mechanism: str = param("response", "randomized response, or true buckets (none)", choices=("response", "none"))
    epsilon: float = param(
        4.0, "epsilon of the bucket of one value; a record of d columns costs d times as much", low=0, low_open=True
    )


def bucket_event(options: FederBoostOptions, buckets: int, release: str, content: str = "") -> Event:
    about: dict[str, Any] = {"adversary": "the active party", "adjacency": Adjacency.PASSIVE_RECORD}
    about |= {"protocol": "federboost", "release": release, "content": content}
    if options.mechanism == "none":
        return ExactRelease(what="buckets of values", **about)
    about |= {"what": "buckets of values, under randomized response", "paper_epsilon": options.epsilon}
    return RandomizedResponse(epsilon=options.epsilon, categories=buckets, **about)
