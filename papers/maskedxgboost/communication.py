"""Appendix F: bytes for one node, by the paper's formulas and as they are sent; and for a whole tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from papers.fingerprint import small_run
from papers.maskedxgboost.setting import CONFIG, DEPTH, PAPER
from papers.rows import Line, Row, Rows, the
from papers.rules import Rule
from papers.target import Cell, Claim, Context, Near, Target
from veilboost.data.table import PartyTable
from veilboost.party.simulation import simulate_training
from veilboost.protocols.masked.parameters import PAPER_SETTING
from veilboost.report.plots import bar_chart
from veilboost.types import Column

ROWS, CANDIDATES, VECTORS = 1_000, 32, 3  # n, l and W of the appendix
NUMBER = 8  # bytes
PUBLISHED: tuple[Row, ...] = (
    {"method": "other DP methods", "megabytes": 0.016},
    {"method": "MaskedXGBoost", "megabytes": 1.2},
    {"method": "HE method, 4096 bits", "megabytes": 2.1},
)


@dataclass(frozen=True)
class Kind:
    """A row of the comparison: how the appendix counts a node, and which protocol sends it."""

    name: str
    messages: int
    message_bytes: int
    protocol: str
    options: dict[str, Any]

    @property
    def by_formula(self) -> float:
        return self.messages * self.message_bytes / 1e6


def _encrypted(bits: int, **options: Any) -> Kind:
    # A ciphertext has twice the bits of the key.
    name, count = f"HE method, {bits} bits", 2 * ROWS + 2 * CANDIDATES
    return Kind(name, count, 2 * bits // 8, "paillier" if options else "", options)


_NUMBERS = (CANDIDATES * VECTORS + 2 * CANDIDATES) * ROWS + CANDIDATES
KINDS = (
    Kind("other DP methods", 2 * ROWS + CANDIDATES, NUMBER, "ldp", {"mechanism": "gaussian", "per_node": True}),
    Kind(
        "MaskedXGBoost",
        _NUMBERS,
        NUMBER,
        "masked",
        # Theorem 3 speaks of three vectors only from eps_PP > 3 ln 2 on.
        {**PAPER_SETTING["options"], "noise_vectors": VECTORS, "eps_pp": 3.0},
    ),
    _encrypted(4096),
    _encrypted(2048, key_bits=2048),
    _encrypted(512, key_bits=512, allow_insecure_key=True),
)


def one_column() -> dict[str, PartyTable]:
    """A passive party with one column of 33 bins, so 32 candidates; the active party has nothing but labels."""
    rng = np.random.default_rng(0)
    values = rng.permutation(np.arange(ROWS) % (CANDIDATES + 1)).astype(np.float32)
    label = (values + rng.normal(scale=8.0, size=ROWS) > CANDIDATES / 2).astype(np.float64)
    ids = np.arange(ROWS)
    return {"active": PartyTable(ids, (), label), "passive": PartyTable(ids, (Column("x", values),))}


def _sent(kind: Kind, depth: int) -> float:
    """Megabytes of a job of one tree, with all that opens it."""
    config = replace(CONFIG, n_estimators=1, max_depth=depth, max_bin=CANDIDATES + 1, options=kind.options)
    run = simulate_training(one_column(), "active", kind.protocol, config)
    return run.bytes_sent / 1e6


def _measured(kind: Kind) -> dict[str, Any]:
    return {"node": _sent(kind, 1), "tree": _sent(kind, DEPTH)} if kind.protocol else {"node": None, "tree": None}


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    return [
        Cell(
            {"method": kind.name},
            partial(_measured, kind),
            small_run(kind.protocol, replace(CONFIG, options=kind.options)) if kind.protocol else list,
            3.0,
        )
        for kind in KINDS
    ]


def table(lines: list[Line]) -> Rows:
    kinds = {kind.name: kind for kind in KINDS}
    return [
        {
            "method": row["method"],
            "formula_megabytes_per_node": kinds[row["method"]].by_formula,
            "paper_megabytes_per_node": the(PUBLISHED, "megabytes", method=row["method"]),
            "measured_megabytes_per_node": row["node"],
            "measured_megabytes_per_tree": row["tree"],
        }
        for row in lines
    ]


def _amounts(rows: Rows) -> list[float]:
    found: list[float] = []
    for what in ("node", "tree"):
        sent = {row["method"]: row[f"measured_megabytes_per_{what}"] for row in rows}
        found.append(1.0 - sent["MaskedXGBoost"] / sent["HE method, 2048 bits"])
    return found


RULE = Rule(
    "What is sent, against a key of 2048 bits. Cases: a tree of one node and a tree of depth 6; masks take no more "
    "bytes than ciphertexts. Amounts: 1 less the ratio.",
    0.05,
    _amounts,
)


def claim(rows: Rows) -> Claim:
    formula, node, tree = (
        {row["method"]: row[f"{kind}_megabytes_per_{what}"] for row in rows}
        for kind, what in (("formula", "node"), ("measured", "node"), ("measured", "tree"))
    )
    noise, masks, long, usual = "other DP methods", "MaskedXGBoost", "HE method, 4096 bits", "HE method, 2048 bits"
    return Claim(
        "for n = 1000, l = 32, W = 3 a node costs 16 KB (other DP methods), 1.2 MB (MaskedXGBoost) and 2.1 MB "
        "(Paillier of 4096 bits): less than encryption",
        f"the formulas give {formula[noise]:.3f}, {formula[masks]:.2f} and {formula[long]:.2f} MB, and "
        f"{formula[usual]:.2f} MB for a key of 2048 bits; sent for a tree of one node: {node[masks]:.2f} MB of masks "
        f"and vectors, {node[usual]:.2f} MB of Paillier 2048; for a tree of depth {DEPTH}: {tree[masks]:.2f} and "
        f"{tree[usual]:.2f} MB",
        "The arithmetic is right, the comparison is not: it takes a key of 4096 bits where 2048 are usual, and counts "
        "encrypted gradients for every node although they are sent once per tree. Masks must be sent for every node "
        "of every level, and grow with columns. Our messages carry masks as 4-byte numbers and pack sums into "
        "ciphertexts.",
    )


def plot(rows: Rows, label: str) -> str:
    names = {
        "paper_megabytes_per_node": "a node, the paper",
        "formula_megabytes_per_node": "a node, its formula",
        "measured_megabytes_per_node": "a node, sent",
        "measured_megabytes_per_tree": "a tree of depth 6, sent",
    }
    bars = {row["method"]: {words: row[name] for name, words in names.items() if row[name] is not None} for row in rows}
    return bar_chart(f"{label}: bytes of a node and of a tree", "megabytes", bars, log=True)


REPEATS = {"node": Near(0.0, 0.02), "tree": Near(0.0, 0.02)}
TARGET = Target(
    PAPER, "appendix-f", "bytes of a node and of a tree", (), PUBLISHED, cells, table, RULE, claim, plot, REPEATS
)
