"""Changes one field of one message of a job whose parties are all in this process."""

from __future__ import annotations

import dataclasses
import random
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from outcomes import outcome_of

sys.path.append(str(Path(__file__).resolve().parents[1]))
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
    tables: Mapping[str, PartyTable]
    driver: str
    config: TrainingConfig
    classes: tuple[str, ...] | None

    @staticmethod
    def of(protocol: str) -> SmallJob:
        spec = all_protocols()[protocol]
        config = TrainingConfig(
            objective="binary", n_estimators=2, max_depth=2, max_bin=4, options=QUICK_OPTIONS.get(protocol, {})
        )
        config = replace(config, **spec.fixed)
        columns = make_columns(5, rows=60, numeric=4)
        if spec.setting == "horizontal":
            pooled = PartyTable(np.arange(60), tuple(columns), make_labels(5, columns))
            parts = np.array_split(np.arange(60), 3)
            return SmallJob(
                {f"p{at}": pooled.take(part) for at, part in enumerate(parts)}, simulation.SERVER, config, None
            )
        try:
            validate(ResolvedJob(spec, config))
        except UnsupportedCombination:
            config = dataclasses.replace(config, categories="ordinal")
        tables = split_among(columns, make_labels(5, columns), 2)
        return SmallJob(tables, "p0", config, declared(tables["p0"], config, protocol))

    def train(self, protocol: str, change: Changes) -> str:
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
        with (
            mock.patch.object(simulation, "MemoryChannel", Channel),
            mock.patch.object(simulation, "MemoryAccount", Account),
            mock.patch.object(
                simulation.HorizontalFederation, "_introduce", lambda self, name: change(introduce(self, name))
            ),
        ):
            run = simulation.simulate_training(
                self.tables, self.driver, protocol, self.config, classes=self.classes, unsafe_noise_seed=0
            )
        return run.model.sha256()


def change_messages(protocol: str, jobs: int, seed: int) -> tuple[Counter[str], list[dict[str, str]]]:
    """Outcomes of jobs of a protocol, each with one changed message."""
    job, nothing = SmallJob.of(protocol), Changes(0, random.Random(0))
    expected = job.train(protocol, nothing)
    counts, bad = Counter[str](), list[dict[str, str]]()
    for number in range(jobs):
        rng = random.Random(f"{seed} {protocol} {number}")
        change, models = Changes(1 + rng.randrange(nothing.count), rng), list[str]()
        found = outcome_of(lambda change=change, models=models: models.append(job.train(protocol, change)), 60.0)
        if found == "accepted":
            found = "same model" if models == [expected] else "other model"
            found = found if change.what else "not sent"
        counts[found.split(":")[0]] += 1
        if found.startswith("bad"):
            bad.append({"protocol": protocol, "job": str(number), "changed": change.what, "outcome": found})
    return counts, bad
