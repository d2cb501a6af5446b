"""Every message that opens a session has one."""

from __future__ import annotations

import inspect

import pytest

from veilboost.party.daemon import SESSIONS, session_for
from veilboost.party.messages import CONTROL_MESSAGES

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("opening", SESSIONS, ids=lambda opening: opening.__name__)
def test_an_opening_names_a_session_that_can_be_made_of_it(opening):
    factory = session_for(object.__new__(opening))
    _context, proposal = inspect.signature(factory).parameters.values()
    assert proposal.annotation == opening.__name__
    assert opening in CONTROL_MESSAGES
