"""A `secagg` job in one process whose participants are lost at chosen requests, and return at chosen rounds."""

from dataclasses import replace

import numpy as np

from veilboost.boost import booster
from veilboost.boost.booster import RowSample
from veilboost.boost.grower import LEAF, Tree
from veilboost.config import TrainingConfig
from veilboost.errors import PeerUnreachable
from veilboost.party.messages import Restore
from veilboost.party.simulation import HorizontalFederation, simulate_training
from veilboost.privacy.event import MemoryAccount
from veilboost.protocols.horizontal.roles import Returned
from veilboost.protocols.horizontal.sampling import RowSampler
from veilboost.protocols.secagg.messages import MetricRequest, RosterRequest, ScaleRequest, SumsRequest
from veilboost.wire.message import Done


def config_of(dropouts=1, **changes):
    options = {"dropouts": dropouts, **changes.pop("options", {})}
    given = {"objective": "binary", "n_estimators": 5, "max_depth": 3, "max_bin": 8, "options": options}
    return TrainingConfig.from_dict(given | changes)


def dealt(table, parts):
    return {f"p{at}": table.take(np.arange(at, table.rows, parts)) for at in range(parts)}


def point_of(message):
    """Where in a round a request is: "roster", "scale", the level, or "metric"."""
    if isinstance(message, SumsRequest):
        return message.number, message.depth
    for kind, name in ((RosterRequest, "roster"), (ScaleRequest, "scale"), (MetricRequest, "metric")):
        if isinstance(message, kind):
            return message.number, name
    return None


class Lossy(HorizontalFederation):
    """`losses`: for each participant, where it is lost. `returns`: for each, the round from which it can be reached.

    A participant that returns is another process: it knows its table, its last checkpoint and what it has booked.
    """

    def __init__(self, tables, config, losses=(), returns=(), restores=True, **rest):
        super().__init__("secagg", tables, config, unsafe_noise_seed=1, **rest)
        self.losses, self.returns, self.restores = dict(losses), dict(returns), restores
        self.states, self.changes, self.round = {}, [], 0
        self.gone, self.seen, self.books = set(), {name: [] for name in tables}, {}
        introductions = {}
        for name, role in self.participants.items():
            self.books[name] = MemoryAccount()
            self.participants[name] = type(role)(replace(role._context, account=self.books[name], session=b"s"))
            introductions[name] = self.participants[name].introduce()
        self.server._context = replace(
            self.server._context, keeper=self, introductions=introductions, changed=self.changes.append
        )

    def _answer(self, name, message):
        if isinstance(message, RosterRequest):
            self.round = message.number
        if name in self.losses and point_of(message) == self.losses[name]:
            del self.losses[name]
            self.gone.add(name)
        if name in self.gone:
            self._storing = self._storing - {name}
            raise PeerUnreachable(f"{name} is gone")
        role = self.participants[name]
        if isinstance(message, Restore):
            role.restore(message.trees, self.states[name][1])
            return Done()
        if self._due is not None and name in self._storing:
            state = role.state(self._due)
            self.states[name] = self._due, replace(state, margin=state.margin.copy())
            self._storing = self._storing - {name}
        answer = role.handle(message)
        self.seen[name].append((message, answer))
        return answer

    # --- the keeper of its server -------------------------------------------------------------------------------

    _due, _storing = None, frozenset()

    def resumed(self):
        return None

    def store(self, trees):
        self._due, self._storing = trees, set(self.peers.names)

    def keep(self, share, history):
        pass

    def readmit(self, name):
        coming = self.round + 1  # the round whose roster is formed now
        if name not in self.returns or coming < self.returns[name]:
            return None
        del self.returns[name]
        self.gone.discard(name)
        role = self.participants[name]
        self.participants[name] = type(role)(replace(role._context, attempt=b"again"))
        introduction = self.participants[name].introduce()
        if not self.restores or name not in self.states:
            return Returned(introduction, 0, None)
        trees, _ = self.states[name]
        return Returned(introduction, trees, Restore(trees, ""))


def counted(run_changes, names, rounds):
    """For each round, who took part in it, and the level at which it was cut (None: not)."""
    present, found = set(names), []
    changes = list(run_changes)
    for number in range(rounds):
        here = [each for each in changes if each.round == number]
        present |= {each.party for each in here if each.event == "returned"}
        lost = [each for each in here if each.event == "lost"]
        found.append((set(present), min((each.level for each in lost if each.level is not None), default=None)))
        present -= {each.party for each in lost}
    return found


def pooled(tables, config, rounds, held_out=None):
    """`plain` on pooled rows: each round uses the rows of its participants that are drawn, and is cut where it was."""
    names = list(tables)
    everyone = [(name, row) for name in names for row in range(tables[name].rows)]
    table = whole_of([tables[name] for name in names])
    of = np.array([name for name, _ in everyone])
    if held_out is not None:
        held_out = np.concatenate([held_out[name] for name in names])
    fit = np.arange(table.rows) if held_out is None else np.flatnonzero(~held_out)
    sampler = RowSampler(table.ids[fit], config)
    plain = replace(config, options={})
    sample, grow = booster.sample_rows, booster.grow

    def sampled(pool, gradients, number, config):
        drawn = sampler.drawn(number)
        drawn = np.ones(len(pool), bool) if drawn is None else drawn
        return RowSample(drawn & np.isin(of[pool], list(rounds[number][0])), pool[:0])

    def grown(finder, start, config, margin):
        cut = rounds[start.number][1]
        if cut is None:
            return grow(finder, start, config, margin)
        if cut == 0:
            leaf = np.array([LEAF], np.int32)
            return [Tree(leaf, leaf, np.zeros(1, np.float32), np.zeros(1), np.zeros(1))] * start.trees
        return grow(finder, start, replace(config, max_depth=cut), margin)

    booster.sample_rows, booster.grow = sampled, grown
    try:
        return simulate_training({"a": table}, "a", "plain", plain, held_out=held_out)
    finally:
        booster.sample_rows, booster.grow = sample, grow


def whole_of(tables):
    """One table with the rows of all."""
    first = tables[0]
    columns = tuple(
        replace(column, values=np.concatenate([each.columns[at].values for each in tables]))
        for at, column in enumerate(first.columns)
    )
    rest = {
        "ids": np.concatenate([each.ids for each in tables]),
        "label": np.concatenate([each.label for each in tables]),
        "weight": None if first.weight is None else np.concatenate([each.weight for each in tables]),
    }
    return replace(first, columns=columns, **rest)
