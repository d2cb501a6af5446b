"""The passive role of `sealed`: as in `lattice`, and with `eps_features` it adds noise to every cell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veilboost.boost.columns import CutProposal
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.crypto.fingerprint import content_digest
from veilboost.engine.shards import summed
from veilboost.privacy.discrete import cell_counts, discrete_gaussian, noisy_cuts
from veilboost.protocols.lattice.layouts import Asked
from veilboost.protocols.lattice.passive import LatticePassiveCipher
from veilboost.protocols.sealed import parameters
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveCipher, PassiveJob
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import Float32Array, Int32Array, Int64Array
from veilboost.wire.message import Message


class SealedPassiveCipher(PassiveCipher):
    """Adds noise inside the ciphertexts, so that with `eps_features` the active party never sees exact histograms."""

    @property
    def shuffles(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] - known when a round starts
        return self._lattice.shuffles

    def cut_proposal(self, config: TrainingConfig, fit_rows: Int32Array | None) -> CutProposal | None:
        options = parameters.options_of(config)
        if options.eps_features == 0:
            return None
        # Exact quantiles would reveal the record that the noise in the cells hides.
        columns = len(self.context.columns)
        sigma = parameters.cuts_sigma(options, columns)
        self._cuts = b""

        def propose(number: int, values: Float32Array) -> Float32Array:
            counts, event = summed(cell_counts, values), parameters.cuts_event(options, columns, number)
            digest = content_digest(self.context.randomness, repr(event), config.max_bin, counts)
            self._cuts += digest
            self.context.account.spend(replace(event, content=digest.hex()))
            return noisy_cuts(self.context.randomness.for_request("cuts", digest), counts, config.max_bin, sigma)

        return propose

    def begin_training(self, job: PassiveJob) -> None:
        super().begin_training(job)
        self._options = parameters.options_of(job.config)
        self._lattice = LatticePassiveCipher(
            self.context, parameters.layout_of, noise_bits=parameters.noise_bits(self._options), noise=self.noise
        )
        self._lattice.begin_training(job)

    def open_round(self, message: BeginRound) -> None:
        self._lattice.open_round(message)

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Message:
        return self._lattice.answer(message, state, build)

    def other(self, message: Message, state: RoundState | None) -> Message:
        return self._lattice.other(message, state)

    def noise(self, asked: Asked, state: RoundState) -> Int64Array | None:
        """Return the noise on a level's sums, (answers, families, slots); None if there is none."""
        if self._options.eps_features == 0:
            return None
        config, layout, trees = self.job.config, state.block.layout, self.job.trees_per_round
        classes = 2 if trees == 1 else trees
        parameters.refuse_noise(config, classes, asked.largest_sum, layout.features)
        # A repeated request gets the same noise; any other gets new noise, which is booked as well.
        multiplier = parameters.feature_multiplier(self._options, config.n_estimators, config.max_depth, classes)
        event = parameters.cells_event(multiplier, state.number, state.depth, classes)
        # The digest covers everything that the exact sums depend on: ciphertexts, rows, columns and their cut points.
        columns = b"" if state.columns is None else state.columns
        digest = content_digest(self.context.randomness, repr(event), *asked.content, columns, self._cuts)
        self.context.account.spend(replace(event, content=digest.hex()))
        generator, shape = self.context.randomness.for_request("cells", digest), (asked.answers, layout.slots)
        sigmas = parameters.cell_sigmas(config, classes, layout.features)
        drawn = [discrete_gaussian(generator, sigma, shape[0] * shape[1]).reshape(shape) for sigma in sigmas]
        return np.stack(drawn, axis=1)
