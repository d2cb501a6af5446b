"""The active role of `elxgb`: HENS grows the first tree, DPNS the others (ELXGB section 6.2)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace

import numpy as np

from veilboost.boost.grower import Level, Round
from veilboost.boost.split import Candidates, leaf_weights
from veilboost.crypto.fingerprint import content_digest
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.fixedpoint import Scale
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.protocols.elxgb.messages import LocalGains, NoisyRound
from veilboost.protocols.elxgb.parameters import ElxgbOptions, gradient_event, leaf_event, leaf_ranges, ranges_of
from veilboost.protocols.lattice.active import LatticeCipher
from veilboost.protocols.paillier.active import PaillierCipher
from veilboost.protocols.vertical import roles
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.messages import StatisticsRequest
from veilboost.protocols.vertical.perturb import Perturbation, multiplier, released_gradients, with_counts
from veilboost.types import Float64Array, Int64Array, PartyName
from veilboost.wire.channel import Answer, Peers, Pending
from veilboost.wire.message import Message

_HENS: dict[str, Callable[[roles.ActiveContext], roles.StatisticsCipher]] = {
    "paillier": PaillierCipher,
    "lattice": LatticeCipher,
}


def elxgb_active(context: roles.ActiveContext) -> VerticalActive:
    options = ElxgbOptions.from_dict(context.config.options)
    if options.clock:
        context = replace(context, peers=ClockedPeers(context.peers, options.clock))
    private = options.private_leaves and options.mechanism != "none"
    hens = _HENS[options.backend](context)
    # A party that missed the level above has no sums to derive siblings from.
    hens.derives_siblings = hens.derives_siblings and not options.clock
    hens.asks_ahead = hens.asks_ahead and not options.clock
    leaves = NoisyLeaves(context) if private else None
    return VerticalActive(context, hens, leaves=leaves, later=DpnsCipher(context))


class DpnsCipher(roles.StatisticsCipher):
    """DPNS (ELXGB Algorithm 2): sends noisy gradients and receives best gains.

    It adds noise once per tree, the same for all parties, and scores its own columns by the same noisy gradients, so
    that the winning split depends only on what passive parties received. Leaf weights are computed from the true
    gradients, the paper's cache.
    """

    def __init__(self, context: roles.ActiveContext) -> None:
        super().__init__(context)
        self.derives_siblings = False  # the passive party scores, so every open node is requested
        self._options = ElxgbOptions.from_dict(self.config.options)
        self.asks_ahead = not self._options.clock
        self.noisy_gains = self._options.mechanism != "none"
        self._ranges = ranges_of(self.config, self._options, context.trees_per_round)

    def shown(self, start: Round) -> Round:
        clean, scale = start.gradients, start.scale
        perturbation = None
        if self._options.mechanism != "none":
            # In Algorithm 3 each number has its own (epsilon, delta), not a share of a joint budget.
            each = multiplier(self._options) / math.sqrt(self._ranges.channels)
            options = replace(self._options, noise_multiplier=each)
            perturbation = Perturbation(options, self._ranges, self.config.gradient_bits)
            clean, scale = perturbation.clean(clean, scale), perturbation.scale()  # Alg. 3, line 2: clipped to C
        released = np.zeros(clean.shape[:2], dtype=np.bool_)
        released[:, start.fit] = True
        event = gradient_event(self._options, self._ranges, start.trees, f"round {start.number} gradients")
        grid = self._ranges, scale  # Alg. 3, line 3
        self._sent = released_gradients(self.context, event, perturbation, grid, clean, released, "elxgb", start.number)
        return replace(start, gradients=with_counts(self._sent, scale), scale=scale)

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        grid = asdict(current.start.scale)
        return {name: NoisyRound(**vars(each), **grid, gradients=self._sent) for name, each in openings.items()}

    def enter(self, current: roles.ActiveRound, level: Level) -> tuple[roles.ActiveRound, Level]:
        return current, replace(level, totals=level.fit.totals(current.start.gradients))

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        """Alg. 2, lines 8 to 10. Only the owner knows its best candidate: handle 0 stands for it."""
        answers = self.context.peers.collect(waiting, LocalGains)
        for name, answer in answers.items():
            if answer.gain.shape != (len(level.open),) or np.isnan(answer.gain).any():
                raise MalformedMessage(f"{name} sent scores of other nodes, or scores that are not numbers")
        best = np.zeros(len(level.open), dtype=np.int32)
        return {name: Candidates(best, answer.gain) for name, answer in answers.items()}


class NoisyLeaves(roles.Leaves):
    """Leaf sums with noise for the whole range of one row's gradient and hessian."""

    def __init__(self, context: roles.ActiveContext) -> None:
        super().__init__(context)
        self._options = ElxgbOptions.from_dict(self.config.options)
        self._ranges = leaf_ranges(self.config, context.trees_per_round)

    def begin_round(self, start: Round) -> None:
        self._start, self._closed = start, b""
        self._event = leaf_event(self._options, self._ranges, start.trees, f"round {start.number} leaves")

    def weights(self, current: roles.ActiveRound, level: Level, leaves: Int64Array, scale: Scale) -> Float64Array:
        noisy, randomness, ranges = level.totals[leaves], self.context.randomness, self._ranges
        # The digest covers these leaves and all earlier ones.
        law = repr((self._event, ranges, scale))
        self._closed = content_digest(randomness, law, self._closed, self._start.gradients, noisy)
        generator = randomness.for_request("elxgb leaves", self._start.number, self._closed)
        for at, (width, unit) in enumerate(((2.0 * ranges.g, scale.g_unit), (ranges.h or 0.0, scale.h_unit))):
            if width:
                noisy[:, at] += discrete_gaussian(generator, multiplier(self._options) * width / unit, len(noisy))
        np.maximum(noisy[:, 1], 0, out=noisy[:, 1])  # sums of hessians are not negative
        return leaf_weights(noisy, scale, self.config)

    def end_round(self) -> None:
        """The leaves of a round are disjoint, so they are one release."""
        self.context.account.spend(replace(self._event, content=self._closed.hex()))


class LateParties(UserWarning):
    """A level went on without late parties."""


class ClockedPeers(Peers):
    """Peers that are requested for statistics in one thread each, with a time limit; other requests wait for all peers.

    The next request to a late party waits until it has answered, so the party stays in step and may be on time again.
    """

    def __init__(self, peers: Peers, seconds: float) -> None:
        super().__init__({})
        self._peers = peers
        self._seconds = seconds
        self._workers = {name: ThreadPoolExecutor(1, f"request to {name}") for name in peers.names}
        self._last: dict[PartyName, Future[Message]] = {}  # of peers whose last request was for statistics

    @property
    def names(self) -> tuple[PartyName, ...]:
        return self._peers.names

    def send(self, messages: Mapping[PartyName, Message]) -> Mapping[PartyName, Pending]:
        direct = {name: request for name, request in messages.items() if not isinstance(request, StatisticsRequest)}
        for name in direct:
            if name in self._last:
                self._last.pop(name).result()  # raises the error of a late answer
        pending: dict[PartyName, Pending] = dict(self._peers.send(direct))
        if len(direct) < len(messages):
            self._peers.rounds += 1
        for name, request in messages.items():
            if name not in direct:
                self._last[name] = self._workers[name].submit(self._ask, name, request)
                pending[name] = self._last[name].result
        return pending

    def hold(self, messages: Mapping[PartyName, Message], kind: type[Answer]) -> Mapping[PartyName, Pending]:
        """Send these at once: the clock of a level must not include the work of the requests before it."""
        return {name: lambda found=found: found for name, found in self.ask(messages, kind).items()}

    def _ask(self, name: PartyName, request: Message) -> Message:
        return self._peers.request(name, request)()

    def collect(self, pending: Mapping[PartyName, Pending], kind: type[Answer]) -> dict[PartyName, Answer]:
        running = {name: self._last[name] for name in pending if name in self._last}
        if not running:
            return self._peers.collect(pending, kind)
        wait(running.values(), return_when=FIRST_COMPLETED)  # "start the clock after collecting the first"
        wait(running.values(), timeout=self._seconds)
        late = [name for name, future in running.items() if not future.done()]
        if late:
            warnings.warn(f"a level went on without {', '.join(late)}", LateParties, stacklevel=2)
        answers: dict[PartyName, Answer] = {}
        for name, future in running.items():
            if name in late:
                continue
            answer = future.result()
            if not isinstance(answer, kind):
                raise UnexpectedMessage(f"{name} answered {answer.type_name()} instead of {kind.type_name()}")
            answers[name] = answer
        return answers
