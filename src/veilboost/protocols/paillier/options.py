"""The parameters of Paillier encryption, for every protocol that has them."""

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
    """The key's parameters, among whatever else a protocol's options hold."""
    known = PaillierOptions.names()
    return PaillierOptions.from_dict({name: value for name, value in config.options.items() if name in known})


def security_bits(config: TrainingConfig) -> int:
    """What factoring the modulus costs, as NIST SP 800-57 rates it; short keys as in the literature."""
    return {512: 57, 1024: 80, 2048: 112, 3072: 128}[options_of(config).key_bits]
