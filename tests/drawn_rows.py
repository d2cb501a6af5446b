"""Training on pooled rows that uses, in each round, the rows whose ids are drawn, as horizontal jobs do."""

from __future__ import annotations

import numpy as np
import pytest

from veilboost.boost import booster
from veilboost.boost.booster import RowSample
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import Simulation, simulate_training
from veilboost.protocols.horizontal.sampling import RowSampler
from veilboost.types import BoolArray


def trained_on_drawn_rows(table: PartyTable, config: TrainingConfig, held_out: BoolArray | None = None) -> Simulation:
    fit = np.arange(table.rows) if held_out is None else np.flatnonzero(~held_out)
    sampler, original = RowSampler(table.ids[fit], config), booster.sample_rows

    def sample(pool, gradients, number, config):
        drawn = sampler.drawn(number)
        return original(pool, gradients, number, config) if drawn is None else RowSample(drawn, pool[:0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(booster, "sample_rows", sample)
        return simulate_training({"a": table}, "a", "plain", config, held_out=held_out)
