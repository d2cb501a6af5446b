"""Attacks by the computing service (CSP) of `hmac_csp`: ids from their digests, alone and with the authority's key."""

from __future__ import annotations

from functools import partial

import numpy as np

from veilboost.align.hmac_csp import AlignmentKey, HashedRows
from veilboost.align.ids import DIGEST_BYTES, canonical_ids
from veilboost.audit.attack import Attack, Outcome, balanced_accuracy
from veilboost.audit.view import Truth, View
from veilboost.crypto.fingerprint import HASHES, KEY_BYTES, keyed_digests
from veilboost.types import PartyName

MOST_IDS = 10_000  # candidates that are tested


def _ids(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Test candidates, of which half are ids of the victim, against its digests.

    The attacker tries every key that it has; without one, a key of zeros.
    """
    sent = view.received(HashedRows, victim)
    true = canonical_ids(truth.tables[victim].ids[:MOST_IDS])
    if not sent or not true:
        return None
    digests = {row.tobytes() for each in sent for row in each.digests}
    keys = {each.key.tobytes() for each in view.sent(AlignmentKey)}
    candidates = [*true, *(each + b"?" for each in true)]
    guess = np.zeros(len(candidates))
    for key in keys or {bytes(KEY_BYTES)}:
        for name in HASHES:
            found = keyed_digests(candidates, key, name, DIGEST_BYTES)
            guess += [row.tobytes() in digests for row in found]
    known = "the key of the authority" if keys else "no key"
    return balanced_accuracy(
        np.arange(len(candidates)) < len(true),
        guess > 0,
        f"{len(candidates)} candidates, half of them ids of {victim}, with {known}: {{value:.3f}} are recognised",
    )


_attack = partial(Attack, adversary="csp", data="ids", messages=(HashedRows,), run=_ids)
csp_active_ids = _attack(key="csp_active_ids", name="ids of the active party from digests", victim="active")
csp_passive_ids = _attack(key="csp_passive_ids", name="ids of a passive party from digests", victim="passive")
