"""The feature side of `sealed`: as in `lattice`, with noise in every cell before it leaves, where it is asked for."""

from __future__ import annotations

import hashlib

import numpy as np

from veilboost.boost.columns import CutProposal
from veilboost.config import TrainingConfig
from veilboost.crypto.fingerprint import fingerprint
from veilboost.engine.shards import summed
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.privacy.quantiles import cell_counts, noisy_cuts
from veilboost.protocols.common.lattice_passive import LatticePassive
from veilboost.protocols.common.messages import SplitAnswer, SplitRequest
from veilboost.protocols.common.round_state import RoundState
from veilboost.protocols.sealed.accounting import (
    cell_sigmas,
    cells_event,
    cuts_event,
    cuts_sigma,
    exact_cells_event,
    feature_multiplier,
    noise_bits,
    refuse_noise,
    sides_event,
)
from veilboost.protocols.sealed.options import options_of
from veilboost.types import Float32Array, Int32Array, Int64Array


class SealedPassive(LatticePassive):
    """Noise inside the ciphertext: the active party never sees an exact histogram."""

    def cut_proposal(self, config: TrainingConfig, fit_rows: Int32Array | None) -> CutProposal | None:
        options = options_of(config)
        if options.eps_features == 0:
            return None
        # Quantiles of the data would tell of the person whom the noise in the cells hides. Other rows to fit on meet
        # other noise, and are booked beside the first.
        columns = len(self.context.columns)
        self._fit_content = b"" if fit_rows is None else hashlib.blake2b(fit_rows.tobytes(), digest_size=16).digest()
        self.context.account.spend(cuts_event(options, columns, self._fit_content.hex()))
        sigma = cuts_sigma(options, columns)

        def propose(number: int, values: Float32Array) -> Float32Array:
            generator = self.context.randomness.for_request("cuts", number, config.max_bin, self._fit_content)
            return noisy_cuts(generator, summed(cell_counts, values), config.max_bin, sigma)

        return propose

    @property
    def noise_bits(self) -> int:
        return noise_bits(options_of(self.config))

    def noise(self, blocks: int, slots: int) -> Int64Array | None:
        options, state = options_of(self.config), self.state
        if options.eps_features == 0:
            self.context.account.spend(exact_cells_event(state.number, state.depth))
            return None
        classes = 2 if self.trees_per_round == 1 else self.trees_per_round
        refuse_noise(self.config, classes, state.block.layout.features, self.incoming.sizes)
        # The same request again meets the same noise; another meets other noise, which is booked beside the first.
        content = self._content()
        multiplier = feature_multiplier(options, self.config.n_estimators, self.config.max_depth, classes)
        self.context.account.spend(cells_event(multiplier, state.number, state.depth, classes, content.hex()))
        generator = self.context.randomness.for_request("cells", state.number, state.depth, content)
        sigmas = cell_sigmas(self.config, classes, state.block.layout.features)
        drawn = [discrete_gaussian(generator, sigma, blocks * slots).reshape(blocks, slots) for sigma in sigmas]
        return np.stack(drawn, axis=1)

    def _content(self) -> bytes:
        """Of all that the answer's exact sums depend on beside our own columns: ciphertexts, rows, columns, cuts."""
        incoming, columns = self.incoming, self.state.columns
        blocks = incoming.blocks
        return fingerprint(
            self.context.randomness.for_request("fingerprint").bytes(16),
            incoming.ciphertext.packed,
            incoming.ciphertext.seed,
            bytes([incoming.sizes.log_delta]),
            incoming.rows.listed(),
            blocks.begin,
            blocks.end,
            blocks.run,
            incoming.node,
            b"" if columns is None else columns,
            self._fit_content,
        )

    def _split(self, message: SplitRequest, state: RoundState) -> SplitAnswer:
        answer = super()._split(message, state)
        self.context.account.spend(sides_event(state.number, state.depth))
        return answer
