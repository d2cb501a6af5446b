"""What tests of protocols need, ours and those of other packages; it needs pytest."""

import pytest

pytest.register_assert_rewrite("veilboost.testing.contract")
