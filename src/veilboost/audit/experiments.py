"""What a party that deviates gains, and whether the other side notices: runs with one dishonest party."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from veilboost.audit.attacks.bins import batch_of, chosen_gradients, spelled
from veilboost.audit.replay import rounds
from veilboost.audit.result import Outcome, share_right
from veilboost.audit.sources import views_of_simulation
from veilboost.audit.sums import SumsReader
from veilboost.boost.bins import BinLayout
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import simulate_training
from veilboost.party.training import PassiveSession, TrainingJob, train_active
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.vertical.messages import ColumnsOffered
from veilboost.types import BoolArray, Float64Array, PartyName
from veilboost.wire.channel import MemoryChannel, Peers
from veilboost.wire.message import Catalogue, Message
from veilboost.wire.transcript import Transcript

Tables = Mapping[PartyName, PartyTable]
Change = Callable[[Message], Message]


@dataclass(frozen=True)
class Deviation:
    """What became of a run with a dishonest party: the error that stopped it, if any, and what it gained."""

    who: str
    what: str
    stopped: str | None
    outcome: Outcome | None


def reverse_sum(tables: Tables, active: PartyName, victim: PartyName, protocol: str, config: TrainingConfig) -> Outcome:
    """An active party that puts powers of two in place of gradients: which bins of its victim's rows it reads."""
    rows, bits = tables[active].rows, config.gradient_bits
    number = -1

    def choose(margin: Float64Array, labels: Float64Array) -> tuple[Float64Array, Float64Array]:
        nonlocal number
        number += 1
        return chosen_gradients(number, rows, bits)

    config = replace(config, objective="auto", min_child_weight=0.0, max_depth=1, base_score=0.0)
    run = simulate_training(tables, active, protocol, config, custom_loss=choose, record="payload")
    views, truth = views_of_simulation(run, tables)
    view, block = views[active], truth.block(victim)
    offered = view.received(ColumnsOffered, victim)[0]
    layout = BinLayout(offered.offsets, offered.missing, offered.kind)
    reader, hits = SumsReader(view, layout), list[BoolArray]()
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


def run_deviating(
    tables: Tables, active: PartyName, spec: ProtocolSpec, config: TrainingConfig, ask: Change, answer: Change
) -> None:
    """Train with passive parties that see each request through `ask` and send each answer through `answer`."""
    catalogue, here = Catalogue(spec.messages), Transcript(active)
    sessions = {name: PassiveSession(spec, name, table) for name, table in tables.items() if name != active}

    def channel(name: PartyName, session: PassiveSession) -> MemoryChannel:
        return MemoryChannel(lambda asked: answer(session.side.handle(ask(asked))), catalogue, here, Transcript(name))

    peers = Peers({name: channel(name, session) for name, session in sessions.items()})
    job = TrainingJob(spec, config, tuple(tables))
    train_active(job, active, tables[active], peers)
