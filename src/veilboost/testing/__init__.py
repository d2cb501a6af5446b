"""Test support for protocols, built-in and of other packages; needs pytest."""

import pytest

pytest.register_assert_rewrite("veilboost.testing.contract")
