"""The spec of `paillier`; its cost in operations on ciphertexts, and the work that can be done before a job."""

from __future__ import annotations

import math

from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.crypto.paillier.integers import MARGIN, window_for
from veilboost.crypto.paillier.keys import PreparedOwner, PreparedRandomness, generate_key
from veilboost.privacy.statement import Statement, Status
from veilboost.protocols import spec
from veilboost.protocols.cost import ASSIGNMENTS, Cost, Needs, PlannedJob, Room, Shape, Units
from veilboost.protocols.paillier.active import PaillierCipher
from veilboost.protocols.paillier.messages import PaillierOptions, PaillierRound, PaillierSums, options_of
from veilboost.protocols.paillier.passive import PaillierPassiveCipher
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer, StatisticsRequest
from veilboost.protocols.vertical.passive import passive_by

_KEY_BITS = PaillierOptions().key_bits
_OWNER, _OTHER = _KEY_BITS // 2 + MARGIN, _KEY_BITS + MARGIN  # bits of an exponent: modulo a prime's square, modulo n^2
_MOST_WINDOW, _INDEPENDENT = 8, 32  # of the masks that re-randomise packages
_POWER, _ENTRY, _HALF = 1.2, 2.2, 0.7  # multiplications for a bit of an exponent, an entry, a factor in halves
_GRADIENT_BITS = 21  # with its sign
_CIPHERTEXT = 512  # bytes, of a 2048-bit key
_HALVES = 620  # of a ciphertext taken apart, as two integers


def tree_units(job: PlannedJob, columns: int, shape: Shape, first: bool) -> Units:
    """Count the operations of one tree.

    `factors`: table entries that are multiplied into encryptions. `added`: additions, counted once for all columns in
    which ciphertexts have the same bins. `multiplied`: multiplications modulo n^2 that pack sums and re-randomise
    packages, in the first tree also those for its table. `packages`: ciphertexts that are returned and decrypted.
    """
    slots = columns * job.bins
    pair, capacity = _pair(job.rows)
    packages = float(sum(math.ceil(built * slots / capacity) for built in shape.built))
    bases, entries = _packing_table(job.rows, job.trees, len(shape.nodes), slots)
    table = (1 + _INDEPENDENT) * _POWER * _OTHER + entries * _ENTRY
    return {
        "factors": 2.0 * job.rows * _digits(_OWNER, window_for(_OWNER, job.rows * job.trees)),
        "added": sum(
            built * _added(total / built, columns, job.bins)
            for built, total in zip(shape.built, shape.built_rows, strict=True)
        ),
        "multiplied": sum(shape.built) * slots * pair + packages * bases * _HALF + (table if first else 0.0),
        "packages": packages,
    }


def job_units(job: PlannedJob) -> Units:
    """Entries of the table with which the key owner encrypts."""
    window = window_for(_OWNER, job.rows * job.trees)
    return {"entries": 2.0 * _digits(_OWNER, window) * 2**window}


# Operations on ciphertexts dominate; everything else is negligible.
COST = Cost(
    here=("rows", "factors", "packages"),
    there=("rows", "added", "multiplied"),
    answered=(*ASSIGNMENTS, "packages"),
    scale=100,
    reach=40,
    most_trees=2,
    far=(2, 6, 2, 8, 1),
    once_here=("start", "entries"),
    once_there=("start",),
    tree_units=tree_units,
    job_units=job_units,
    asks_ahead=True,
    for_each=("packages",),
)


def memory(job: PlannedJob, columns: int) -> Needs:
    """Tables of powers modulo the two factors, and ciphertexts as bytes and as integers."""
    n = float(job.rows)
    own = _HALVES / 2 * job_units(job)["entries"]  # modulo the primes, whose squares are half as long
    other = _HALVES * _packing_table(job.rows, job.trees, job.depth, columns * job.bins)[1]
    return Needs(
        here=Room(n * _CIPHERTEXT + own, n * 4 * _CIPHERTEXT),
        there=Room(n * (_CIPHERTEXT + _HALVES) + other, n * 3 * _CIPHERTEXT),
    )


def _packing_table(rows: int, trees: int, depth: int, slots: int) -> tuple[int, float]:
    """Bases and entries of the table that re-randomises packages."""
    window = window_for(_OTHER, 2 ** (depth - 1) * slots * trees // _pair(rows)[1], _MOST_WINDOW)
    bases = _digits(_OTHER, window) + _INDEPENDENT
    return bases, float(bases * 2**window)


def _pair(rows: int) -> tuple[int, int]:
    """Bits of a sum of pairs, and the number of sums per package."""
    bits = 2 * (_GRADIENT_BITS + math.ceil(math.log2(rows)))
    return bits, (_KEY_BITS - 1) // bits


def _digits(bits: int, window: int) -> int:
    return -(-bits // window)


def _added(items: float, features: int, bins: int) -> float:
    """Additions of `sums_by_label`, which halves the columns repeatedly and merges rows that agree in a half."""
    if not features:
        return 0.0
    codes = float(bins) ** min(features, 12)
    merged = codes * -math.expm1(items * math.log1p(-1 / codes)) if codes < 1e9 else items
    half = features // 2
    below = _added(merged, half, bins) + _added(merged, features - half, bins) if features > 1 else 0.0
    return items - merged + below


def security_bits(config: TrainingConfig) -> int:
    """The cost of factoring the modulus according to NIST SP 800-57; for short keys according to the literature."""
    return {512: 57, 1024: 80, 2048: 112, 3072: 128}[options_of(config).key_bits]


def _make(config: TrainingConfig, values: int) -> bytes:
    """Make a key and this number of encryptions of zero under it."""
    options = options_of(config)
    key = generate_key(options.key_bits, Csprng(), options.allow_insecure_key)
    return PreparedOwner.prepare(key, values, Csprng()).to_bytes()


def _load(randomness: JobRandomness, kept: bytes) -> JobRandomness:
    return PreparedRandomness(randomness.key, PreparedOwner.from_bytes(kept))


PRECOMPUTATION = spec.Precomputation(applies=lambda config: True, make=_make, load=_load)


SPEC = spec.ProtocolSpec(
    name="paillier",
    summary="passive parties sum gradients under Paillier encryption; the model equals the unencrypted one",
    source="SecureBoost (Cheng et al.), SecureBoost+ (Chen et al.), the papers' HE-XGBoost",
    exact=True,
    limits_splits=True,
    statement=Statement(
        (
            spec.of_active(
                data="gradients",
                status=Status.SOUND,
                why="Paillier encryption with a key of 2048 bits or more, under the decisional composite residuosity "
                "assumption, against parties that follow the protocol",
            ),
            spec.SHARED_NODES,
            spec.OWN_ASSIGNMENTS,
            spec.of_passive(
                data="features, many rows",
                status=Status.HEURISTIC,
                why="exact sums per bin and the left/right assignments of every winning split are sent; with thirty "
                "rows or more for every sum of one bin our attacks left most bins unrecovered",
                needs_secrets=False,
            ),
            spec.EXACT_SUMS_OF_FEW_ROWS,
        )
    ),
    messages=(*LIFECYCLE, PaillierRound, StatisticsRequest, PaillierSums),
    roles={"active": active_by(PaillierCipher), "passive": passive_by(PaillierPassiveCipher)},
    exact_messages=lambda config, first: (StatisticsRequest, PaillierSums, SplitAnswer),
    options=PaillierOptions,
    security_bits=security_bits,
    cost=COST,
    memory=memory,
    relative_cost=1000,
    evidence=(spec.LABELS_BY_NODES, spec.OWN_FEATURES, spec.FEATURES_BY_SUMS),
    precompute=PRECOMPUTATION,
)
