"""The feature side of `sealed`: as in `lattice`, with noise in every cell before it leaves, where it is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veilboost.boost.columns import CutProposal
from veilboost.config import TrainingConfig
from veilboost.crypto.content import content_digest
from veilboost.engine.shards import summed
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.privacy.quantiles import cell_counts, noisy_cuts
from veilboost.protocols.lattice.passive import LatticePassive
from veilboost.protocols.sealed.accounting import (
    cell_sigmas,
    cells_event,
    cuts_event,
    cuts_sigma,
    feature_multiplier,
    noise_bits,
    refuse_noise,
)
from veilboost.protocols.sealed.options import options_of
from veilboost.types import Float32Array, Int32Array, Int64Array


class SealedPassive(LatticePassive):
    """Noise inside the ciphertext: the active party never sees an exact histogram."""

    def cut_proposal(self, config: TrainingConfig, fit_rows: Int32Array | None) -> CutProposal | None:
        options = options_of(config)
        if options.eps_features == 0:
            return None
        # Quantiles of the data would tell of the person whom the noise in the cells hides.
        columns = len(self.context.columns)
        sigma = cuts_sigma(options, columns)
        self._cuts = b""

        def propose(number: int, values: Float32Array) -> Float32Array:
            counts, event = summed(cell_counts, values), cuts_event(options, columns, number)
            digest = content_digest(self.context.randomness, repr(event), config.max_bin, counts)
            self._cuts += digest
            self.context.account.spend(replace(event, content=digest.hex()))
            return noisy_cuts(self.context.randomness.for_request("cuts", digest), counts, config.max_bin, sigma)

        return propose

    @property
    def noise_bits(self) -> int:
        return noise_bits(options_of(self.config))

    def noise(self, blocks: int, slots: int) -> Int64Array | None:
        options, state = options_of(self.config), self.state
        if options.eps_features == 0:
            return None
        classes = 2 if self.trees_per_round == 1 else self.trees_per_round
        refuse_noise(self.config, classes, state.block.layout.features, self.incoming.sizes)
        # The same request again meets the same noise; another meets other noise, which is booked beside the first.
        multiplier = feature_multiplier(options, self.config.n_estimators, self.config.max_depth, classes)
        event = cells_event(multiplier, state.number, state.depth, classes)
        digest = self._digest(repr(event))
        self.context.account.spend(replace(event, content=digest.hex()))
        generator = self.context.randomness.for_request("cells", digest)
        sigmas = cell_sigmas(self.config, classes, state.block.layout.features)
        drawn = [discrete_gaussian(generator, sigma, blocks * slots).reshape(blocks, slots) for sigma in sigmas]
        return np.stack(drawn, axis=1)

    def _digest(self, law: str) -> bytes:
        """Of all that the answer's exact sums depend on: ciphertexts, rows, columns and their cuts."""
        incoming, columns = self.incoming, self.state.columns
        blocks = incoming.blocks
        return content_digest(
            self.context.randomness,
            law,
            incoming.ciphertext.packed,
            incoming.ciphertext.seed,
            incoming.sizes.log_delta,
            incoming.rows.listed(),
            blocks.begin,
            blocks.end,
            blocks.run,
            b"" if columns is None else columns,
            self._cuts,
        )
