"""Whatever is encoded decodes to itself; whatever else arrives is refused with a code."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from veilboost.errors import MalformedMessage, UnknownMessage, WireError
from veilboost.types import Float64Array, Int32Array
from veilboost.wire.message import (
    ArraySpec,
    Catalogue,
    Done,
    Message,
    Reveals,
    decode,
    decode_all,
    encode,
    frame_size,
    join_frames,
)

pytestmark = pytest.mark.fast


@dataclass(frozen=True)
class Sample(Message):
    reveals: ClassVar[tuple[Reveals, ...]] = ()
    count: int
    rate: float
    flag: bool
    text: str
    names: tuple[str, ...]
    vector: Annotated[Int32Array, ArraySpec("int32", 1)]
    cube: Annotated[Float64Array, ArraySpec("float64", 3)]


@dataclass(frozen=True)
class Other(Message):
    reveals: ClassVar[tuple[Reveals, ...]] = ()
    count: int


@dataclass(frozen=True)
class Rate(Message):
    reveals: ClassVar[tuple[Reveals, ...]] = ()
    rate: float


KNOWN = Catalogue([Sample, Done])
samples = st.builds(
    Sample,
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(),
    st.lists(st.text(), max_size=4).map(tuple),
    hnp.arrays(np.int32, st.integers(0, 20)),
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=3, max_dims=3, min_side=0, max_side=4)),
)


@given(samples)
def test_round_trip(message):
    frame = encode(message)
    assert frame_size(message) == len(frame)
    back = decode(frame, KNOWN)
    assert isinstance(back, Sample)
    for item in dataclasses.fields(Sample):
        ours, theirs = getattr(message, item.name), getattr(back, item.name)
        if isinstance(ours, np.ndarray):
            assert theirs.dtype == ours.dtype
            assert theirs.shape == ours.shape
            np.testing.assert_array_equal(theirs, ours)
            assert not theirs.flags.writeable or theirs.size == 0
        else:
            assert theirs == ours
            assert type(theirs) is type(ours)


@given(samples, st.data())
def test_any_change_of_length_is_refused(message, data):
    frame = encode(message)
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(WireError):
        decode(frame[:cut], KNOWN)
    with pytest.raises(WireError):
        decode(frame + bytes(data.draw(st.integers(1, 40))), KNOWN)


@given(st.lists(samples, min_size=1, max_size=4), st.data())
def test_messages_that_are_sent_together_come_back_each_with_its_frame(messages, data):
    frames = [encode(message) for message in messages]
    body = join_frames(frames)
    found = decode_all(body, KNOWN)
    assert [frame for _, frame in found] == frames
    assert [encode(message) for message, _ in found] == frames
    assert all(message.cube.flags.aligned for message, _ in found)
    with pytest.raises(WireError):
        decode_all(body + bytes(data.draw(st.integers(1, 40))), KNOWN)
    with pytest.raises(WireError):
        decode_all(body[: data.draw(st.integers(len(body) - len(frames[-1]) + 1, len(body) - 1))], KNOWN)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(frame):
    with pytest.raises(WireError):
        decode(frame, KNOWN)


@given(samples, st.data())
def test_a_changed_header_byte_is_refused_or_still_a_message(message, data):
    """Never another exception than ours, whatever byte is wrong."""
    frame = bytearray(encode(message))
    at = data.draw(st.integers(0, min(len(frame), 200) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(WireError):
        decode(bytes(frame), KNOWN)


def test_an_unknown_type_is_refused():
    with pytest.raises(UnknownMessage):
        decode(encode(Other(3)), KNOWN)


@pytest.mark.parametrize("wrong", [True, 1.5, "1", None, [1]])
def test_a_field_of_the_wrong_type_is_refused(wrong):
    frame = encode(dataclasses.replace(Other(3), count=wrong))
    with pytest.raises(MalformedMessage):
        decode(frame, Catalogue([Other]))


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" + b"0" * 400])
def test_a_number_that_is_no_float_is_refused(number):
    """Python's reader of JSON accepts these; comparisons with limits do not refuse NaN."""
    frame, prefix = encode(Rate(0.5)), struct.Struct("<4sHHII")
    *first, size, arrays = prefix.unpack_from(frame)
    longer = prefix.pack(*first, size + len(number) - 3, arrays)
    with pytest.raises(MalformedMessage, match="rate"):
        decode(longer + frame[prefix.size :].replace(b"0.5", number), Catalogue([Rate]))


def test_wrong_dtype_or_dimensions_are_refused():
    @dataclass(frozen=True)
    class Twin(Message):
        reveals: ClassVar[tuple[Reveals, ...]] = ()
        values: Annotated[Float64Array, ArraySpec("float64", 1)]

    @dataclass(frozen=True)
    class Impostor(Message):
        reveals: ClassVar[tuple[Reveals, ...]] = ()
        values: Annotated[Float64Array, ArraySpec("int64", 1)]

        @classmethod
        def type_name(cls):
            return "Twin"

    with pytest.raises(MalformedMessage):
        decode(encode(Impostor(np.arange(3))), Catalogue([Twin]))


def test_a_version_from_the_future_is_refused():
    frame = bytearray(encode(Done()))
    frame[4] += 1
    with pytest.raises(MalformedMessage, match="version"):
        decode(bytes(frame), KNOWN)


@pytest.mark.parametrize("sizes", [(0, 2**63, 1), (0, 2**62, 2**62), (2**32, 2**32, 2**32), (2**64 - 1, 0, 0)])
def test_impossible_shapes_are_refused(sizes):
    frame = bytearray(encode(Sample(1, 0.0, True, "", (), np.empty(0, np.int32), np.empty((0, 0, 0)))))
    _, _, type_size, scalar_size, count = struct.unpack_from("<4sHHII", frame)
    assert count == 4
    struct.pack_into("<4Q", frame, 16 + type_size + scalar_size, 0, *sizes)
    with pytest.raises(MalformedMessage):
        decode(bytes(frame), KNOWN)
