"""A short part of the fuzzing, the same on every run; `make drill` tries a million inputs."""

from __future__ import annotations

import pytest
from fuzz import SHARES, fuzz
from lies import VARIANTS, change_messages

from veilboost.protocols.registry import all_protocols


@pytest.mark.parametrize("target", SHARES)
def test_changed_input_is_accepted_or_refused_with_a_code(target: str) -> None:
    counts, bad = fuzz([target], 300, seed=1)
    assert not bad
    assert sum(counts[target].values()) == 300
    assert len(counts[target]) > 1 or target == "failures", "nothing was refused, or nothing accepted"


@pytest.mark.parametrize("job", [*all_protocols(), *VARIANTS])
def test_a_changed_message_ends_in_a_model_or_a_coded_error(job: str) -> None:
    counts, bad = change_messages(job, 6, seed=0)
    assert not bad
    assert sum(counts.values()) == 6
