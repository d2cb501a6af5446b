"""Changes one field of one message of a job whose parties are all in this process.

A job is named by its protocol, or it is one of `VARIANTS`, whose messages a short job of the protocol does not send.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from outcomes import outcome_of

sys.path.append(str(Path(__file__).resolve().parents[1]))
import lossy
from support import QUICK_OPTIONS, declared
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import UnsupportedCombination, VeilBoostError
from veilboost.party import simulation
from veilboost.privacy.event import MemoryAccount
from veilboost.protocols.registry import all_protocols
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.testing.tables import make_columns, make_labels, split_among
from veilboost.wire.channel import MemoryChannel
from veilboost.wire.message import Catalogue, Message, decode, encode

# A participant of five is lost in the first round and returns for the second; rows with weights, some of them held out.
DROPOUTS, VALIDATED = "secagg with dropouts", ("mal with validation rows", "secagg with validation rows")
VARIANTS = {name: name.split()[0] for name in (DROPOUTS, *VALIDATED)}
NUMBERS = (0, 1, -1, 2, 1 << 31, -(1 << 31), (1 << 62), 7)


class Changes:
    """Changes one field of message number `at` of a job; counts all."""

    def __init__(self, at: int, rng: random.Random) -> None:
        self.at, self.rng, self.count, self.what = at, rng, 0, ""

    def __call__(self, message: Message) -> Message:
        self.count += 1
        fields = dataclasses.fields(message)
        if self.count != self.at or not fields:
            return message
        name = self.rng.choice(fields).name
        value = self._other(getattr(message, name))
        try:
            other = decode(encode(dataclasses.replace(message, **{name: value})), Catalogue([type(message)]))
        except (VeilBoostError, ValueError, OverflowError):  # it cannot be sent
            return message
        self.what = f"{message.type_name()}.{name}"
        return other

    def _other(self, value: Any) -> Any:
        rng = self.rng
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return rng.choice((*NUMBERS, value + 1, value - 1, 2 * value))
        if isinstance(value, float):
            return rng.choice((0.0, -1.0, 1e308, -value, value + 1))
        if isinstance(value, str):
            return rng.choice(("", value[:-1], value + value, value.replace("1", "9"), "\0"))
        if isinstance(value, tuple):
            return rng.choice(((), value[1:], value + value[:1], ("",) * 3))
        array = np.array(value)
        match rng.randrange(6):
            case 0 if array.size:
                array.flat[rng.randrange(array.size)] = self._element(array.dtype)
            case 1 if array.size:
                array[...] = self._element(array.dtype)
            case 2:
                array = array[:-1]
            case 3 if array.size:
                array = np.concatenate((array, array[:1]))
            case 4:
                array = array[:0]
            case _:
                array = array[::-1].copy()
        return array

    def _element(self, dtype: np.dtype[Any]) -> Any:
        if dtype.kind == "f":
            return self.rng.choice((np.nan, np.inf, -np.inf, 0.0, 1e30))
        if dtype.kind == "b":
            return self.rng.random() < 0.5
        info = np.iinfo(dtype)
        return self.rng.choice((0, 1, info.max, info.min, info.max // 2))


@dataclass(frozen=True)
class SmallJob:
    protocol: str
    tables: Mapping[str, PartyTable]
    driver: str
    config: TrainingConfig
    classes: tuple[str, ...] | None = None
    held_out: Mapping[str, Any] | None = None
    losses: bool = False

    @staticmethod
    def of(name: str) -> SmallJob:
        protocol = VARIANTS.get(name, name)
        spec = all_protocols()[protocol]
        config = TrainingConfig(
            objective="binary", n_estimators=2, max_depth=2, max_bin=4, options=QUICK_OPTIONS.get(protocol, {})
        )
        config = replace(config, **spec.fixed)
        columns = make_columns(5, rows=60, numeric=4)
        if spec.setting == "horizontal":
            weight = np.resize((0.5, 1.0), 60) if name in VALIDATED else None
            pooled = PartyTable(np.arange(60), tuple(columns), make_labels(5, columns), weight=weight)
            parts = np.array_split(np.arange(60), 5 if name == DROPOUTS else 3)
            tables = {f"p{at}": pooled.take(part) for at, part in enumerate(parts)}
            made = SmallJob(protocol, tables, simulation.SERVER, config)
            if name == DROPOUTS:
                return replace(made, config=replace(config, options={"dropouts": 1}), losses=True)
            if name in VALIDATED:
                held_out = {party: np.arange(table.rows) % 4 == 0 for party, table in tables.items()}
                return replace(made, config=replace(config, early_stopping_rounds=1), held_out=held_out)
            return made
        try:
            validate(ResolvedJob(spec, config))
        except UnsupportedCombination:
            config = dataclasses.replace(config, categories="ordinal")
        tables = split_among(columns, make_labels(5, columns), 2)
        return SmallJob(protocol, tables, "p0", config, declared(tables["p0"], config, protocol))

    def train(self, change: Changes) -> str:
        """The hash of the model. Raises `AssertionError` if a refused request was booked."""
        booked = 0

        class Channel(MemoryChannel):
            def send(self, message: Message) -> Any:
                before, is_changed = booked, change.count + 1 == change.at
                try:
                    return super().send(message)
                except VeilBoostError:
                    assert not is_changed or booked == before, "a refused request was booked"
                    raise

            def _carry(self, message: Message, *transcripts: Any) -> Message:
                return change(super()._carry(message, *transcripts))

        class Account(MemoryAccount):
            def spend(self, *events: Any) -> None:
                nonlocal booked
                booked += 1
                super().spend(*events)

        introduce = simulation.HorizontalFederation._introduce
        with ExitStack() as stack:
            for place, name, value in (
                (simulation, "MemoryChannel", Channel),
                (simulation, "MemoryAccount", Account),
                (lossy, "MemoryAccount", Account),
                (simulation.HorizontalFederation, "_introduce", lambda self, name: change(introduce(self, name))),
            ):
                stack.enter_context(mock.patch.object(place, name, value))
            if self.losses:
                return lossy.Lossy(self.tables, self.config, {"p1": (0, 1)}, {"p1": 1}).train().model.sha256()
            run = simulation.simulate_training(
                self.tables,
                self.driver,
                self.protocol,
                self.config,
                held_out=self.held_out,
                classes=self.classes,
                unsafe_noise_seed=0,
            )
        return run.model.sha256()


def change_messages(name: str, jobs: int, seed: int) -> tuple[Counter[str], list[dict[str, str]]]:
    """Outcomes of jobs of a protocol or variant, each with one changed message."""
    job, nothing = SmallJob.of(name), Changes(0, random.Random(0))
    expected = job.train(nothing)
    counts, bad = Counter[str](), list[dict[str, str]]()
    for number in range(jobs):
        rng = random.Random(f"{seed} {name} {number}")
        change, models = Changes(1 + rng.randrange(nothing.count), rng), list[str]()
        found = outcome_of(lambda change=change, models=models: models.append(job.train(change)), 60.0)
        if found == "accepted":
            found = "same model" if models == [expected] else "other model"
            found = found if change.what else "not sent"
        counts[found.split(":")[0]] += 1
        if found.startswith("bad"):
            bad.append({"protocol": name, "job": str(number), "changed": change.what, "outcome": found})
    return counts, bad
