"""The parameters of `paillier`."""

from __future__ import annotations

from dataclasses import dataclass

from veilboost.config import ProtocolOptions, TrainingConfig, param
from veilboost.crypto.paillier.keys import check_key_bits


@dataclass(frozen=True)
class PaillierOptions(ProtocolOptions):
    """How large the key is."""

    key_bits: int = param(
        2048, "bits of the modulus: 2048 or 3072; 512 or 1024 only with allow_insecure_key", low=512, high=3072
    )
    allow_insecure_key: bool = param(False, "allow the short keys of published experiments, which protect nobody")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_key_bits(self.key_bits, self.allow_insecure_key)


def options_of(config: TrainingConfig) -> PaillierOptions:
    return PaillierOptions.from_dict(config.options)
