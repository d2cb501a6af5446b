"""One rule for writing ids as bytes, the same at every party.

- A whole number is its decimal digits, with a minus sign where it is negative: 7 is `7`.
- A text is brought to Unicode's form NFC, white space around it is dropped (what `str.strip` drops), and the rest is
  kept as it is: leading zeros, upper and lower case, signs and inner spaces all count. `007` is not `7`.
- Numbers at one party and text at another are the same id where these texts are equal: 7 and `7` are, 7 and `007`
  are not.
- What comes out is UTF-8.

Refused, with how many rows but never with a value: numbers and text in one column, anything that is neither, ids
without a character, and two rows that come out the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, cast

from veilboost.errors import DuplicateIds, MissingId, MixedTypes
from veilboost.types import AnyArray


def canonical_ids(ids: AnyArray) -> list[bytes]:
    """The ids of a party's rows by the rule above, in the order of the rows."""
    values = cast(list[Any], ids.tolist())
    if ids.dtype.kind in "iu" or all(type(value) is int for value in values):
        found = [b"%d" % value for value in values]
    elif ids.dtype.kind == "U" or all(isinstance(value, str) for value in values):
        found = _texts(values)
    else:
        numbers = sum(type(value) is int for value in values)
        texts = sum(isinstance(value, str) for value in values)
        raise MixedTypes(
            f"of {len(values)} ids {numbers} are whole numbers and {texts} are text", "make them all the same kind"
        )
    _refuse_repeats(found)
    return found


def _texts(values: Sequence[str]) -> list[bytes]:
    normalize = unicodedata.normalize
    try:
        found = [normalize("NFC", value).strip().encode() for value in values]
    except UnicodeEncodeError as error:  # half of a surrogate pair: no text at all
        raise MixedTypes("an id holds characters that are not text", "write the ids as valid Unicode") from error
    empty = found.count(b"")
    if empty:
        raise MissingId(f"{empty} of {len(found)} ids are empty")
    return found


def _refuse_repeats(found: Sequence[bytes]) -> None:
    repeats = len(found) - len(set(found))
    if repeats:
        raise DuplicateIds(f"{repeats} of {len(found)} rows repeat an id, once ids are written in their common form")
