"""Values as JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast


def plain(value: Any) -> Any:
    """The same with text as keys and lists for tuples; what JSON has no number for (NaN, infinity) becomes None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast(Sequence[Any], value)]
    return value
