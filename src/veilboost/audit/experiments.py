"""What a party that deviates gains, and whether the other side notices: runs with one dishonest party.

MaskedXGBoost's appendix G says that deviating harms only the one who does it. Here that is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from veilboost.audit.attacks.reverse_sum import batch_of, chosen_gradients, spelled
from veilboost.audit.replay import rounds
from veilboost.audit.result import Outcome, balanced_accuracy, share_right
from veilboost.audit.sources import views_of_simulation
from veilboost.audit.sums import SumsReader
from veilboost.boost.layout import BinLayout
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import MissingLabel, VeilBoostError
from veilboost.party.session import PassiveSession, TrainingJob, train_active
from veilboost.party.simulation import simulate_training, simulated_randomness
from veilboost.protocols.common.messages import ColumnsOffered
from veilboost.protocols.masked.messages import Masks, NoisedVectors
from veilboost.protocols.masked.options import MaskedOptions
from veilboost.protocols.registry import protocol_named
from veilboost.types import BoolArray, Float32Array, Float64Array, PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.codec import Catalogue
from veilboost.wire.memory import MemoryChannel
from veilboost.wire.message import Message
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
    views, truth = views_of_simulation(run, tables, config)
    view, block = views[active], truth.block(victim)
    offered = view.received(ColumnsOffered, victim)[0]
    layout = BinLayout(offered.offsets, offered.missing, offered.kind)
    reader, hits = SumsReader(view, layout), list[BoolArray]()
    for one in rounds(view, victim):
        sums = reader.read(one.levels[0])
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


def deviating_masks(tables: Tables, active: PartyName, config: TrainingConfig, kind: str) -> Deviation:
    """A passive party of `masked` that sends other masks than it should: zero, small, dependent, or on one row.

    The last kind has the length that was agreed on, all of it on as many rows as there are vectors: nothing that the
    active party checks is wrong, and all other rows' gradients come back in the clear.
    """
    change = {"zero": _zero, "small": _small, "dependent": _dependent, "one row": _on_one_row}[kind]
    width = MaskedOptions.from_dict(config.options).vectors
    answers: list[NoisedVectors] = []

    def ask(message: Message) -> Message:
        if isinstance(message, NoisedVectors):
            answers.append(message)
        return message

    def answer(message: Message) -> Message:
        if not isinstance(message, Masks) or not len(message.nodes):
            return message
        # One round of one tree: at the root every candidate has all rows.
        rows = tables[active].rows
        shaped = message.masks.reshape(-1, width, rows) if message.masks.size % (width * rows) == 0 else None
        return message if shaped is None else replace(message, masks=change(shaped).astype(np.float32).ravel())

    stopped = None
    try:
        run_deviating(tables, active, "masked", replace(config, n_estimators=1, max_depth=1), ask, answer)
    except VeilBoostError as error:
        stopped = error.what
    label = tables[active].label
    if label is None:
        raise MissingLabel(f"{active} has no labels")
    outcome = None
    if answers:
        clear = answers[0].vectors[: len(label)].astype(np.float64)
        # Rows under no mask have one of two values, one for each label.
        guess = (clear < np.median(np.unique(np.round(clear[width:], 4)))).astype(np.float64)
        outcome = balanced_accuracy(
            label[width:], guess[width:], "rows that the masks leave out come back in the clear: {value:.3f}"
        )
    return Deviation("passive", f"masks that are {kind}", stopped, outcome)


def run_deviating(
    tables: Tables, active: PartyName, protocol: str, config: TrainingConfig, ask: Change, answer: Change
) -> None:
    """Train with passive parties that see each request through `ask` and send each answer through `answer`."""
    spec = protocol_named(protocol)
    catalogue, here = Catalogue(spec.messages), Transcript(active)
    sessions = {
        name: PassiveSession(spec, name, table, randomness=simulated_randomness(config, name))
        for name, table in tables.items()
        if name != active
    }

    def channel(name: PartyName, session: PassiveSession) -> MemoryChannel:
        return MemoryChannel(lambda asked: answer(session.side.handle(ask(asked))), catalogue, here, Transcript(name))

    peers = Peers({name: channel(name, session) for name, session in sessions.items()})
    job = TrainingJob(spec, config, tuple(tables))
    train_active(job, active, tables[active], peers, randomness=simulated_randomness(config, active))


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
