"""Protocols are composed: no protocol's class derives from another protocol's, and there is one class for each side."""

from __future__ import annotations

import pytest

from veilboost.protocols.registry import all_protocols
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.protocols.vertical.roles import Leaves, PassiveCipher, Selector, StatisticsCipher

pytestmark = pytest.mark.fast


def derived(kind):
    """Classes of this package that derive from it directly; tests may have their own."""
    all_protocols()
    return [each for each in kind.__subclasses__() if each.__module__.startswith("veilboost.")]


@pytest.mark.parametrize("side", [VerticalActive, VerticalPassive])
def test_there_is_one_class_for_each_side(side):
    assert derived(side) == []


@pytest.mark.parametrize("interface", [StatisticsCipher, PassiveCipher, Selector, Leaves])
def test_nothing_derives_from_what_a_protocol_supplies(interface):
    own = derived(interface)
    assert own
    assert [further for each in own for further in derived(each)] == []
