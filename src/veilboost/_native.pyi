"""The C++ kernels. Arrays are C-contiguous; outputs are allocated by the caller."""

from collections.abc import Sequence
from typing import Any

from numpy import bool_, float32, float64, int8, int32, int64, uint8, uint16, uint64
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
    joint_bins: NDArray[uint16],
    joint_columns: NDArray[int32],
    joint_counts: NDArray[int32],
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
    joint_bins: NDArray[uint16],
    joint_columns: NDArray[int32],
    joint_counts: NDArray[int32],
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
    threads: int,
) -> None: ...
def smaller_totals(
    gradients: NDArray[int32],
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    group: NDArray[int32],
    out: NDArray[int64],
    threads: int,
) -> None: ...
def route_u8(
    bins: NDArray[uint8],
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    column: NDArray[int32],
    goes_left: NDArray[uint8],
    left: NDArray[uint8],
    threads: int,
) -> None: ...
def route_u16(
    bins: NDArray[uint16],
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    column: NDArray[int32],
    goes_left: NDArray[uint8],
    left: NDArray[uint8],
    threads: int,
) -> None: ...
def add_to_rows(
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    group: NDArray[int32],
    weight: NDArray[float32],
    margin: NDArray[float64],
    threads: int,
) -> None: ...
def complete_sums(
    built: NDArray[int64],
    build: NDArray[int64],
    last: NDArray[int64],
    derive: NDArray[int64],
    parent: NDArray[int64],
    every: NDArray[int64],
) -> None: ...
def smaller_siblings(counts: NDArray[int64], smaller: NDArray[int64]) -> None: ...
def number_children(
    group: NDArray[int32], position: NDArray[int64], sizes: NDArray[int32], children: NDArray[int32]
) -> None: ...
def plan_level(
    counts: NDArray[int64],
    summed: NDArray[int64],
    above: NDArray[int64],
    position: NDArray[int64],
    h_unit: float,
    min_child_weight: float,
    min_node_rows: int,
    derives: bool,
    totals: NDArray[int64],
    plan: NDArray[int64],
) -> tuple[int, int, int]: ...
def children_ahead(
    at: NDArray[int64],
    position: NDArray[int32],
    totals: NDArray[int64],
    starts: NDArray[int32],
    left: NDArray[int64],
    h_unit: float,
    least: float,
    either: bool,
    may_split: NDArray[bool_],
) -> None: ...
def increasing_below(values: NDArray[int32], limit: int) -> bool: ...
def refused_splits(
    position: NDArray[int32],
    tree: NDArray[int32],
    node: NDArray[int32],
    starts: NDArray[int32],
    handles: NDArray[int32],
    set_starts: NDArray[int32],
    set_bins: int,
    counts: NDArray[int64],
    numbers: NDArray[int32],
    group: NDArray[int32],
    first_tree: int,
    siblings: bool,
    min_node_rows: int,
    candidates: int,
) -> int: ...
def nodes_ahead(
    counts: NDArray[int64], named: NDArray[int32], min_node_rows: int, least_summed: int, nodes: NDArray[int64]
) -> tuple[int, int]: ...
def best_offers(
    gains: Sequence[NDArray[float64]],
    handles: Sequence[NDArray[int32]],
    open: NDArray[int64],
    least: float,
    gamma: float,
    position: NDArray[int64],
    owner: NDArray[int32],
    gain: NDArray[float64],
    handle: NDArray[int32],
) -> int: ...
def take_nodes(counts: NDArray[int64], chosen: NDArray[bool_], whole: NDArray[uint8], part: NDArray[uint8]) -> None: ...
def put_nodes(counts: NDArray[int64], chosen: NDArray[bool_], part: NDArray[uint8], whole: NDArray[uint8]) -> None: ...
def split_rows(
    rows: NDArray[int32],
    begin: NDArray[int64],
    end: NDArray[int64],
    part_of: NDArray[int32],
    parts: Sequence[NDArray[uint8]],
    packed: Sequence[bool],
    children: NDArray[int32],
    starts: NDArray[int64],
    threads: int,
) -> None: ...
def split_gains(
    sums: NDArray[int64],
    offsets: NDArray[int32],
    missing: NDArray[uint8],
    kind: NDArray[uint8],
    totals: NDArray[int64],
    open: NDArray[int64],
    g_unit: float,
    h_unit: float,
    reg_lambda: float,
    reg_alpha: float,
    min_child_weight: float,
    max_delta_step: float,
    allowed: NDArray[uint8],
    direction: NDArray[int8],
    bounds: NDArray[float64],
    cat_threshold: int,
    gains: NDArray[float64],
    order: NDArray[int32],
    best_handle: NDArray[int32],
    best_gain: NDArray[float64],
    threads: int,
) -> None: ...
def leaf_weights(
    totals: NDArray[int64],
    g_unit: float,
    h_unit: float,
    reg_lambda: float,
    reg_alpha: float,
    max_delta_step: float,
    weights: NDArray[float64],
) -> None: ...
def left_sets(
    order: NDArray[int32],
    nodes: NDArray[int64],
    handles: NDArray[int32],
    offsets: NDArray[int32],
    missing: NDArray[uint8],
    kind: NDArray[uint8],
    starts: NDArray[int32],
    bins: NDArray[int32],
) -> int: ...
def sets_fit(
    handles: NDArray[int32],
    offsets: NDArray[int32],
    missing: NDArray[uint8],
    kind: NDArray[uint8],
    starts: NDArray[int32],
    bins: NDArray[int32],
) -> bool: ...
def splits_of(
    handles: NDArray[int32],
    offsets: NDArray[int32],
    missing: NDArray[uint8],
    kind: NDArray[uint8],
    set_starts: NDArray[int32],
    set_bins: NDArray[int32],
    feature: NDArray[int32],
    place: NDArray[int32],
    default_left: NDArray[bool_],
    left: NDArray[uint8],
) -> None: ...
def left_sums(
    sums: NDArray[int64],
    offsets: NDArray[int32],
    missing: NDArray[uint8],
    kind: NDArray[uint8],
    nodes: NDArray[int64],
    handles: NDArray[int32],
    set_starts: NDArray[int32],
    set_bins: NDArray[int32],
    left: NDArray[int64],
    bins: NDArray[int64],
) -> None: ...
def normals(key: NDArray[uint8], out: NDArray[float32]) -> None: ...
def make_masks_u8(
    bins: NDArray[uint8],
    rows: NDArray[int32],
    column: NDArray[int32],
    goes_left: NDArray[uint8],
    scales: NDArray[float32],
    key: NDArray[uint8],
    first: int,
    masks: NDArray[float32],
    threads: int,
) -> None: ...
def make_masks_u16(
    bins: NDArray[uint16],
    rows: NDArray[int32],
    column: NDArray[int32],
    goes_left: NDArray[uint8],
    scales: NDArray[float32],
    key: NDArray[uint8],
    first: int,
    masks: NDArray[float32],
    threads: int,
) -> None: ...
def add_masks(
    masks: NDArray[float32],
    values: NDArray[float64],
    coefficients: NDArray[float64],
    noised: NDArray[float32],
    grams: NDArray[float64],
    threads: int,
) -> None: ...
def left_sums_u8(
    bins: NDArray[uint8],
    rows: NDArray[int32],
    column: NDArray[int32],
    goes_left: NDArray[uint8],
    noised: NDArray[float32],
    out: NDArray[float64],
    threads: int,
) -> None: ...
def left_sums_u16(
    bins: NDArray[uint16],
    rows: NDArray[int32],
    column: NDArray[int32],
    goes_left: NDArray[uint8],
    noised: NDArray[float32],
    out: NDArray[float64],
    threads: int,
) -> None: ...
def add_by_bin_u8(
    bins: NDArray[uint8], column: int, step: NDArray[float64], margin: NDArray[float64], threads: int
) -> None: ...
def add_by_bin_u16(
    bins: NDArray[uint16], column: int, step: NDArray[float64], margin: NDArray[float64], threads: int
) -> None: ...
def pair_sums(
    cells: NDArray[uint16],
    widths: NDArray[int32],
    pairs: NDArray[int32],
    bits: int,
    out: NDArray[int64],
    threads: int,
) -> None: ...
def logistic_gradients(
    margin: NDArray[float64], y: NDArray[float64], g: NDArray[float64], h: NDArray[float64], threads: int
) -> None: ...
def fixed_pairs(
    g: NDArray[float64],
    h: NDArray[float64],
    weight: NDArray[float64],
    g_scale: float,
    h_scale: float,
    limit: float,
    pairs: NDArray[int32],
    threads: int,
) -> bool: ...
def logistic_pairs(
    margin: NDArray[float64], pairs: NDArray[int32], g_scale: float, h_scale: float, threads: int
) -> None: ...
def curve_supported() -> bool: ...
def curve_multiply(points: NDArray[uint8], scalar: bytes, out: NDArray[uint8], threads: int) -> bool: ...
def curve_map(uniform: NDArray[uint8], out: NDArray[uint8], threads: int) -> None: ...
def lattice_engines() -> list[str]: ...
def lattice_transform(coefficients: NDArray[int64], prime: int, engine: str, out: NDArray[uint64]) -> None: ...

class LatticeSecret:
    def __init__(self, families: int, key: bytes, engine: str) -> None: ...
    def public_key(self, seed: bytes, out: NDArray[uint8]) -> None: ...
    def encrypt(
        self,
        values: NDArray[int32],
        group: NDArray[int32],
        rows: NDArray[int32],
        begin: NDArray[int64],
        end: NDArray[int64],
        run: NDArray[int32],
        log_delta: int,
        seed: bytes,
        noise: bytes,
        out: NDArray[uint8],
        threads: int,
    ) -> None: ...
    def decrypt(
        self,
        sums: NDArray[uint64],
        masks: NDArray[uint8],
        run: NDArray[int32],
        log_delta: int,
        out: NDArray[int64],
        threads: int,
    ) -> bool: ...

class LatticePublic:
    def __init__(self, families: int, seed: bytes, packed: NDArray[uint8], engine: str) -> None: ...
    def sum(
        self,
        ciphertext: NDArray[uint8],
        seed: bytes,
        bins: Sequence[NDArray[Any]],
        matrix: NDArray[int32],
        rows: NDArray[int32],
        begin: NDArray[int64],
        end: NDArray[int64],
        run: NDArray[int32],
        feature_start: NDArray[int32],
        feature_width: NDArray[int32],
        log_flood: int,
        log_delta: int,
        added: NDArray[int64],
        noise: bytes,
        sums: NDArray[uint64],
        masks: NDArray[uint8],
        threads: int,
    ) -> bool: ...

def expansion_tiles(depth: NDArray[int32], slots: int) -> int: ...

class ExpansionSecret:
    def __init__(self, key: bytes, engine: str) -> None: ...
    def public_keys(self, seed: bytes, depth: int, out: NDArray[uint8], threads: int) -> None: ...
    def encrypt(
        self,
        values: NDArray[int32],
        group: NDArray[int32],
        rows: NDArray[int32],
        begin: NDArray[int64],
        end: NDArray[int64],
        depth: NDArray[int32],
        log_delta: int,
        seed: bytes,
        noise: bytes,
        out: NDArray[uint8],
        threads: int,
    ) -> None: ...
    def decrypt(
        self,
        sums: NDArray[uint8],
        masks: NDArray[uint8],
        depth: NDArray[int32],
        slots: int,
        bits: int,
        log_delta: int,
        out: NDArray[int64],
        threads: int,
    ) -> None: ...

class ExpansionPublic:
    def __init__(self, seed: bytes, packed: NDArray[uint8], depth: int, engine: str) -> None: ...
    def sum(
        self,
        ciphertext: NDArray[uint8],
        seed: bytes,
        bins: Sequence[NDArray[Any]],
        matrix: NDArray[int32],
        rows: NDArray[int32],
        begin: NDArray[int64],
        end: NDArray[int64],
        depth: NDArray[int32],
        feature_start: NDArray[int32],
        slots: int,
        log_flood: int,
        log_delta: int,
        bits: int,
        added: NDArray[int64],
        noise: bytes,
        sums: NDArray[uint8],
        masks: NDArray[uint8],
        threads: int,
    ) -> bool: ...

class LatticeMasks:
    def __init__(self, seed: bytes, rows: int, engine: str) -> None: ...
    def encrypt(
        self,
        values: NDArray[int32],
        key: bytes,
        log_delta: int,
        bits: int,
        out: NDArray[uint8],
        part: NDArray[uint8],
        threads: int,
    ) -> None: ...
    def make(
        self,
        bins: NDArray[Any],
        offsets: NDArray[int32],
        first: int,
        noise: bytes,
        masks: NDArray[uint8],
        hiding: NDArray[int8],
        threads: int,
    ) -> None: ...

def lattice_add_rows(
    dense: NDArray[uint8], bins: NDArray[Any], starts: NDArray[int32], engine: str, sums: NDArray[uint64]
) -> None: ...
def lattice_answer(
    sums: NDArray[uint64],
    mask: NDArray[int32],
    hiding: NDArray[int8],
    part: NDArray[uint8],
    log_flood: int,
    log_delta: int,
    bits: int,
    mask_bytes: int,
    added: NDArray[int64],
    noise: bytes,
    engine: str,
    out: NDArray[uint64],
    threads: int,
) -> None: ...
def lattice_unmask(
    answers: NDArray[uint64],
    mask: NDArray[int32],
    masks: NDArray[uint8],
    key: bytes,
    log_delta: int,
    bits: int,
    engine: str,
    out: NDArray[int64],
    threads: int,
) -> None: ...
def service_primes() -> list[int]: ...
def tree_shap(
    first: NDArray[int64],
    left: NDArray[int32],
    feature: NDArray[int32],
    slot: NDArray[int32],
    cover: NDArray[float64],
    weight: NDArray[float64],
    group: NDArray[int32],
    went_left: NDArray[uint8],
    out: NDArray[float64],
    threads: int,
) -> None: ...

class ServiceSecret:
    def __init__(self, ternary: NDArray[int8], engine: str) -> None: ...
    def public_key(self, seed: bytes, noise: bytes, out: NDArray[uint8]) -> None: ...
    def decrypt(self, blinded: NDArray[uint8], out: NDArray[uint64], threads: int) -> bool: ...

class ServicePublic:
    def __init__(self, seed: bytes, packed: NDArray[uint8], engine: str) -> None: ...
    def encrypt(
        self,
        values: NDArray[int64],
        place: NDArray[int32],
        scale: NDArray[uint64],
        noise: bytes,
        out: NDArray[uint8],
        threads: int,
    ) -> None: ...
    def fits(self, rows: NDArray[uint8], threads: int) -> bool: ...
    def blind(
        self,
        nodes: NDArray[uint8],
        rows: NDArray[uint8],
        at_nodes: NDArray[int64],
        of_rows: NDArray[int64],
        factors: NDArray[uint64],
        offsets: NDArray[uint64],
        noise: bytes,
        out: NDArray[uint8],
        threads: int,
    ) -> None: ...

def goes_left(
    feature: NDArray[int32],
    threshold: NDArray[float32],
    default_left: NDArray[bool_],
    set_of: NDArray[int32],
    left_sets: NDArray[bool_],
    values: NDArray[float32],
    splits: NDArray[int32],
    rows: NDArray[int32],
    left: NDArray[bool_],
) -> None: ...
def walk_own(
    left: NDArray[int32],
    split_of: NDArray[int32],
    feature: NDArray[int32],
    threshold: NDArray[float32],
    default_left: NDArray[bool_],
    set_of: NDArray[int32],
    left_sets: NDArray[bool_],
    values: NDArray[float32],
    at: NDArray[int32],
    moving: NDArray[int64],
) -> int: ...
def sort_pairs(
    owner: NDArray[int32],
    run_starts: NDArray[int64],
    at: NDArray[int32],
    moving: NDArray[int64],
    walked: int,
    sorted: NDArray[int64],
    sizes: NDArray[int64],
) -> None: ...
def route_request(
    run_starts: NDArray[int64],
    members: NDArray[int32],
    member_after: NDArray[int32],
    tree_of: NDArray[int32],
    node_of: NDArray[int32],
    at: NDArray[int32],
    pairs: NDArray[int64],
    walked: int,
    low: int,
    tree: NDArray[int32],
    node: NDArray[int32],
    starts: NDArray[int32],
    rows: NDArray[int32],
    after: NDArray[int32],
) -> None: ...
def follow_route(
    left: NDArray[int32],
    follows: NDArray[bool_],
    pairs: NDArray[int64],
    packed: NDArray[uint8],
    at: NDArray[int32],
) -> bool: ...
def answer_route(
    keys: NDArray[int64],
    feature: NDArray[int32],
    threshold: NDArray[float32],
    default_left: NDArray[bool_],
    set_of: NDArray[int32],
    left_sets: NDArray[bool_],
    values: NDArray[float32],
    tree_of: NDArray[int32],
    least: NDArray[uint8],
    most: NDArray[uint8],
    max_depth: int,
    next: NDArray[uint8],
    tree: NDArray[int32],
    node: NDArray[int32],
    starts: NDArray[int32],
    rows: NDArray[int32],
    after: NDArray[int32],
    left: NDArray[uint8],
) -> int: ...
