"""The C++ kernels. Arrays are C-contiguous; outputs are allocated by the caller."""

from collections.abc import Sequence

from numpy import bool_, float32, float64, int32, int64, uint8, uint16
from numpy.typing import NDArray

def bin_columns_u8(
    columns: Sequence[NDArray[float32]],
    cuts: Sequence[NDArray[float32]],
    bins: NDArray[uint8],
    first_column: int,
    threads: int,
) -> None: ...
def bin_columns_u16(
    columns: Sequence[NDArray[float32]],
    cuts: Sequence[NDArray[float32]],
    bins: NDArray[uint16],
    first_column: int,
    threads: int,
) -> None: ...
def histogram_u8(
    bins: NDArray[uint8],
    offsets: NDArray[int32],
    gradients: NDArray[int32],
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    group: NDArray[int32],
    out: NDArray[int64],
    threads: int,
) -> None: ...
def histogram_u16(
    bins: NDArray[uint16],
    offsets: NDArray[int32],
    gradients: NDArray[int32],
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    group: NDArray[int32],
    out: NDArray[int64],
    threads: int,
) -> None: ...
def node_totals(
    gradients: NDArray[int32],
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    group: NDArray[int32],
    out: NDArray[int64],
) -> None: ...
def route_u8(
    bins: NDArray[uint8],
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    column: NDArray[int32],
    goes_left: NDArray[uint8],
    left: NDArray[uint8],
) -> None: ...
def route_u16(
    bins: NDArray[uint16],
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    column: NDArray[int32],
    goes_left: NDArray[uint8],
    left: NDArray[uint8],
) -> None: ...
def add_to_rows(
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    group: NDArray[int32],
    weight: NDArray[float32],
    margin: NDArray[float64],
) -> None: ...
def complete_sums(
    built: NDArray[int64],
    build: NDArray[int64],
    last: NDArray[int64],
    derive: NDArray[int64],
    parent: NDArray[int64],
    every: NDArray[int64],
) -> None: ...
def take_nodes(counts: NDArray[int64], chosen: NDArray[bool_], whole: NDArray[uint8], part: NDArray[uint8]) -> None: ...
def put_nodes(counts: NDArray[int64], chosen: NDArray[bool_], part: NDArray[uint8], whole: NDArray[uint8]) -> None: ...
def split_rows(
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    left: NDArray[uint8],
    children: NDArray[int32],
    starts: NDArray[int64],
) -> None: ...
def split_gains(
    sums: NDArray[int64],
    offsets: NDArray[int32],
    missing: NDArray[uint8],
    kind: NDArray[uint8],
    totals: NDArray[int64],
    g_unit: float,
    h_unit: float,
    reg_lambda: float,
    reg_alpha: float,
    min_child_weight: float,
    max_delta_step: float,
    gains: NDArray[float64],
    order: NDArray[int32],
    best_handle: NDArray[int32],
    best_gain: NDArray[float64],
    threads: int,
) -> None: ...
