"""The parameters of Paillier encryption, for every protocol that has them, and what can be done before a job."""

from __future__ import annotations

from dataclasses import dataclass

from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.crypto.paillier.keys import PreparedOwner, PreparedRandomness, check_key_bits, generate_key
from veilboost.fields import param
from veilboost.protocols.spec import Precomputation


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


def _make(config: TrainingConfig, values: int) -> bytes:
    """A key, and so many encryptions of zero under it."""
    options = options_of(config)
    key = generate_key(options.key_bits, Csprng(), options.allow_insecure_key)
    return PreparedOwner.prepare(key, values, Csprng()).to_bytes()


def _load(randomness: JobRandomness, kept: bytes) -> JobRandomness:
    return PreparedRandomness(randomness.key, PreparedOwner.from_bytes(kept))


PRECOMPUTATION = Precomputation(applies=lambda config: True, make=_make, load=_load)
