"""Table 3: seconds per tree of six methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from papers.maskedxgboost.setting import CONFIG, PAPER, SETS, table_of
from papers.measure import cost_cell
from papers.noise import Method, federboost, ldp
from papers.rows import Line, Row, Rows, by, picked, the
from papers.rules import Rule
from papers.target import PAPER_NAMES, SECONDS, Cell, Claim, Context, Near, Target
from veilboost.protocols.masked.parameters import PAPER_SETTING
from veilboost.report.plots import bar_chart, sheet

HE, MASKED, CLEAR = "HE-XGBoost", "MaskedXGBoost", "XGBoost-NonPrivate"
_PUBLISHED: dict[str, tuple[float, ...]] = {
    CLEAR: (0.25, 0.15, 0.58, 0.17, 0.38, 0.15),
    MASKED: (3.95, 1.54, 11.17, 2.21, 5.17, 1.77),
    HE: (25.22, 7.43, 47.70, 11.71, 18.41, 11.91),
    "XGBoost-LDP": (3.47, 1.41, 4.78, 1.29, 2.85, 1.45),
    "FedXGBoost-LDP": (3.27, 1.18, 3.72, 1.23, 2.22, 1.03),
    "FederBoost": (2.15, 1.11, 3.11, 1.05, 1.95, 0.95),
}
PUBLISHED: tuple[Row, ...] = tuple(
    {"method": method, "data": data, "seconds_per_tree": seconds}
    for method, line in _PUBLISHED.items()
    for data, seconds in zip(SETS, line, strict=True)
)
_EPSILON = 4.0  # the time does not depend on it
# Theorem 3 allows one vector at the eps_PP of section 6.2, and three (appendix F) from 3 ln 2 on.
VECTORS: dict[int, dict[str, Any]] = {1: {"noise_vectors": 1}, 3: {"noise_vectors": 3, "eps_pp": 3.0}}
_POINT = 2048  # key bits of the one point that a user's key would have; the others have the papers' 512
_VALUES = ("seconds_per_tree", "cpu_seconds_per_tree", "megabytes_per_tree", "rounds_per_tree", "peak_rss_mb")


def methods() -> list[Method]:
    trees, depth = CONFIG.n_estimators, CONFIG.max_depth
    noised = (
        ldp("gaussian", "second", "composed", _EPSILON, trees, depth),
        ldp("laplace", "first", "composed", _EPSILON, trees, depth),
    )
    return [
        Method(CLEAR, "", "plain", {}),
        *(
            Method(MASKED, f"W = {w}", "masked", {**PAPER_SETTING["options"], "eps_ap": _EPSILON, **own})
            for w, own in VECTORS.items()
        ),
        Method(HE, "512 bits", "paillier", {"key_bits": 512, "allow_insecure_key": True}),
        replace(noised[0], name="XGBoost-LDP", reading=""),
        replace(noised[1], name="FedXGBoost-LDP", reading=""),
        replace(federboost("per release", 1.0, 1), name="FederBoost", reading=""),
    ]


def _cell(context: Context, name: str, method: Method, seed: int) -> Cell:
    # Encryption takes long and every tree takes as long as the first: one tree is enough.
    encrypted = method.name == HE
    trees = 1 if encrypted else 2
    key = {"data": name, "method": method.name, "key": method.reading, "seed": seed}
    config = replace(CONFIG, n_estimators=trees, random_state=seed)
    return cost_cell(key, table_of(context, name), method, config, _VALUES, warm_up=not encrypted)


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    found = [_cell(context, name, each, 0) for name in sets for each in methods()]
    small = min(sets, key=lambda name: table_of(context, name).rows, default=None)
    if small is not None:
        found.append(_cell(context, small, Method(HE, f"{_POINT} bits", "paillier", {"key_bits": _POINT}), 0))
    return found


def table(lines: list[Line]) -> Rows:
    for line in lines:
        own, printed = picked(lines, data=line["data"]), picked(PUBLISHED, data=line["data"])
        against = {"times_nonprivate": {"method": CLEAR}}
        against |= {f"times_masked_w{w}": {"method": MASKED, "key": f"W = {w}"} for w in VECTORS}
        for name, wanted in against.items():
            other = the(own, "cpu_seconds_per_tree", **wanted)
            line[name] = None if other is None else line["cpu_seconds_per_tree"] / other
        published = the(printed, "seconds_per_tree", method=line["method"])
        line["paper_seconds_per_tree"] = published
        line["paper_times_masked"] = published / the(printed, "seconds_per_tree", method=MASKED)
    return lines


def _ratios(rows: Rows, bits: int, w: int) -> dict[str, float]:
    """How many times longer encryption takes than masks, by data set."""
    own = picked(rows, method=HE, key=f"{bits} bits")
    return {row["data"]: row[f"times_masked_w{w}"] for row in own if row[f"times_masked_w{w}"] is not None}


RULE = Rule(
    "Processor seconds per tree. Cases: each data set, with W = 1 and with W = 3 noise vectors; encryption with the "
    "paper's 512 bits takes longer than masks. The amount is the ratio less 1.",
    0.1,
    lambda rows: [ratio - 1.0 for w in VECTORS for ratio in _ratios(rows, 512, w).values()],
)


def claim(rows: Rows) -> Claim:
    listed = "; ".join(
        f"W = {w}: "
        + ", ".join(f"{PAPER_NAMES[name]} {ratio:.1f}" for name, ratio in _ratios(rows, bits, w).items())
        + (f" with {bits} bits" if bits != 512 else "")
        for bits in (512, _POINT)
        for w in VECTORS
    )
    sent = [row["megabytes_per_tree"] for row in picked(rows, method=MASKED, key="W = 1")]
    cipher = [row["megabytes_per_tree"] for row in picked(rows, method=HE, key="512 bits")]
    times = [mask / he for mask, he in zip(sent, cipher, strict=True)]
    ratios = _ratios(rows, 512, 1)
    most, least = (
        f"{ratios[name]:.1f} on {PAPER_NAMES[name]}"
        for name in (max(ratios, key=lambda name: ratios[name]), min(ratios, key=lambda name: ratios[name]))
    )
    return Claim(
        "MaskedXGBoost takes 4.82 (Adult) to 6.72 (Nomao) times less time per tree than Paillier; the other methods "
        "with noise take less still",
        f"encryption with 512 bits takes so many times MaskedXGBoost's processor seconds: {listed}",
        f"Seconds of masks grow with W and with the passive party's columns: at W = 1 the ratio is {most} and {least}. "
        "Nomao has 118 columns here, where the paper counts 10. The direction is what can be compared: the paper's "
        "machine had 40 cores, the paper does not state its key or W, and our protocols are other code. The paper's "
        "own Table 3 also holds 3.56 (Credit 2) and 4.27 (Higgs), which its abstract leaves out. Masks send "
        f"{min(times):.0f} to {max(times):.0f} times the bytes of the 512-bit ciphertexts at W = 1.",
    )


def plot(rows: Rows, label: str) -> str:
    seconds, errors = (
        {
            PAPER_NAMES[data]: {f"{row['method']} {row['key']}".strip(): row[value] for row in own}
            for data, own in by(rows, "data")
        }
        for value in ("cpu_seconds_per_tree", "cpu_seconds_per_tree_sd")
    )
    ours = bar_chart("measured", "processor seconds per tree", seconds, errors=errors, log=True)
    named = ((PAPER_NAMES[data], own) for data, own in by(PUBLISHED, "data"))
    printed = {data: {row["method"]: row["seconds_per_tree"] for row in own} for data, own in named}
    theirs = bar_chart("as published", "seconds per tree", printed, log=True)
    return sheet(f"{label}: time per tree", [ours, theirs])


REPEATS = {"cpu_seconds_per_tree": SECONDS, "megabytes_per_tree": Near(0.0, 0.05)}
TARGET = Target(
    PAPER, "table-3", "seconds per tree of six methods", SETS, PUBLISHED, cells, table, RULE, claim, plot, REPEATS
)
