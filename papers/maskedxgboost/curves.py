"""Figures 4, 5, 9, 11, 12 and 15: AUC over test rows, after each tree and at the end, for many budgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from papers.fingerprint import small_run
from papers.law import LAW
from papers.maskedxgboost.setting import (
    APPENDIX,
    CONFIG,
    DEPTH,
    EPSILONS,
    FIRST_FOUR,
    PAPER,
    SETS,
    THE_OTHERS,
    TREES,
    table_of,
)
from papers.measure import learning, training_seconds
from papers.noise import DELTA, NON_PRIVATE, Method, federboost, masked
from papers.rows import Line, Row, Rows, by, curve, picked, point, the
from papers.rules import Rule
from papers.target import PAPER_NAMES, Cell, Claim, Context, Near, Target
from veilboost.data.table import PartyTable
from veilboost.protocols.masked.theorems import advanced_share, largest_ratio
from veilboost.report.plots import line_chart, sheet

MASKED, LDP, FIRST_ORDER, FEDERBOOST = "MaskedXGBoost", "XGBoost-LDP", "FedXGBoost-LDP", "FederBoost"
COMPOSED, EACH, ENTRY, ENERGY = "composed", "per release", "one entry, composed", "fixed energy"
READINGS = (COMPOSED, EACH)
ALONE = "active party alone"
RULES = ("literal", "clamp")  # for a noisy hessian out of range, beside rejecting the candidate
EPS_PP = 1.0  # section 6.2
QUICK_ROWS = 8_000


@dataclass(frozen=True)
class Curve:
    """A method at one budget of the active party (0: it has none) and one of the passive party."""

    method: Method
    eps_ap: float = 0.0
    eps_pp: float = EPS_PP

    @property
    def alone(self) -> bool:
        return self.method.name == ALONE


def masked_curve(reading: str, eps_ap: float, eps_pp: float = EPS_PP, noisy_h: str = "reject") -> Curve:
    """Theorems 2 and 3 as printed; W = 1 is all that Theorem 3 leaves at eps_PP = 1."""
    method = masked(reading, eps_ap, formulas="printed", noise_vectors=1, eps_pp=eps_pp, noisy_h=noisy_h)
    name = MASKED if noisy_h == "reject" else f"{MASKED}, {noisy_h}"
    return Curve(replace(method, name=name), eps_ap, eps_pp)


def entry_curve(eps_ap: float) -> Curve:
    """Theorem 2's bound for one entry of a vector, which is what the baselines hide at the same epsilon."""
    epsilon, delta = advanced_share(eps_ap, DELTA, TREES * DEPTH)
    options = {"formulas": "printed", "noise_vectors": 1, "eps_pp": EPS_PP, "delta_ap": delta}
    return Curve(Method(MASKED, ENTRY, LAW.name, {"budget": "entry", "eps_ap": epsilon, **options}), eps_ap)


def energy_curve(rows: int, eps_pp: float) -> Curve:
    """Every entry of a masked vector has noise of deviation 1, the bound of a gradient; eps_PP moves it into the null
    space."""
    ratio = largest_ratio(eps_pp, 1.0 / rows, 1, (rows,), True)
    sigma2 = 1.0 / math.sqrt(1.0 + 2.0 * ratio)
    options = {"sigma1": math.sqrt(ratio) * sigma2, "sigma2": sigma2, "noise_vectors": 1, "eps_pp": eps_pp}
    return Curve(Method(MASKED, ENERGY, LAW.name, options), EPS_AP, eps_pp)


def ldp_curve(name: str, mechanism: str, score: str, reading: str, eps_ap: float) -> Curve:
    """Noise on each gradient, anew at every level. Section 6.2: composed by the advanced bound, as for the masks."""
    whole = (eps_ap, DELTA)
    epsilon, delta = advanced_share(*whole, TREES * DEPTH) if reading == COMPOSED else whole
    options = {"mechanism": mechanism, "score": score, "per_node": True, "epsilon": epsilon, "delta": delta}
    return Curve(Method(name, reading, "ldp", options), eps_ap, 0.0)


def all_methods(readings: Sequence[str], epsilons: Sequence[float]) -> list[Curve]:
    """Those that do not change with eps_AP, then the others at every budget."""
    alone = Curve(replace(NON_PRIVATE, name=ALONE), eps_pp=0.0)
    found = [Curve(NON_PRIVATE, eps_pp=0.0), alone, Curve(replace(federboost(EACH, EPS_PP, 1), name=FEDERBOOST))]
    for reading in readings:
        for epsilon in epsilons:
            found.append(masked_curve(reading, epsilon))
            found.append(ldp_curve(LDP, "gaussian", "second", reading, epsilon))
            found.append(ldp_curve(FIRST_ORDER, "laplace", "first", reading, epsilon))
    return found


def _cells(
    context: Context, sets: Sequence[str], curves: Callable[[PartyTable], Sequence[Curve]], every_tree: bool
) -> list[Cell]:
    return [
        _cell(context, name, curve, seed, every_tree)
        for name in sets
        for curve in curves(_table(context, name))
        for seed in context.seeds
    ]


def _cell(context: Context, name: str, curve: Curve, seed: int, every_tree: bool) -> Cell:
    method, table = curve.method, _table(context, name)
    config = replace(CONFIG, options=method.options, **method.settings)

    def measure() -> Row:
        found = learning(_table(context, name), 0.5, seed, method.protocol, config, alone=curve.alone)
        areas = [round(area, 5) for area in found.auc]
        return {"auc": areas if every_tree else areas[-1], "passive_share": found.passive_share}

    key = {"data": name, "method": method.name, "reading": method.reading}
    key |= {"eps_ap": curve.eps_ap, "eps_pp": curve.eps_pp, "seed": seed}
    seconds = training_seconds(method.protocol, table.rows, len(table.columns) // 2, TREES) + 0.5
    return Cell(key, measure, small_run(method.protocol, config), seconds)


def _table(context: Context, name: str) -> PartyTable:
    return table_of(context, name, QUICK_ROWS if context.quick else 0)


REPEATS = {"auc": Near(0.02), "passive_share": Near(0.1)}


def _figure(
    title: str,
    published: tuple[Row, ...],
    cells: Callable[[Context, Sequence[str]], Sequence[Cell]],
    table: Callable[[list[Line]], Rows],
    rule: Rule,
    claim: Callable[[Rows], Claim],
    plot: Callable[[Rows, str], str],
    *places: tuple[str, tuple[str, ...], str],
) -> list[Target]:
    """A figure that the paper has twice: for some data sets in the text, for the others in an appendix."""
    return [
        Target(PAPER, f"figure-{number}", title, sets, published, cells, table, rule, claim, plot, REPEATS, group)
        for number, sets, group in places
    ]


# --- Figures 4 and 12: AUC after 60 trees against the active party's epsilon ------------------------------


def utility_cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    epsilons = (0.5, 2.0, 8.0) if context.quick else EPSILONS
    curves = all_methods(READINGS, epsilons)
    curves += [masked_curve(COMPOSED, epsilon, noisy_h=rule) for rule in RULES for epsilon in epsilons]
    curves += [entry_curve(epsilon) for epsilon in epsilons]
    return _cells(context, sets, lambda _: curves, False)


def _leads(rows: Rows, reading: str, name: str = MASKED) -> list[float]:
    """By how much MaskedXGBoost is above both others at each budget. Under ENTRY they are those of COMPOSED, whose
    epsilon is of one entry too."""
    ahead: list[float] = []
    for own in picked(rows, method=name, reading=reading):
        same = {"reading": COMPOSED if reading == ENTRY else reading, "data": own["data"], "eps_ap": own["eps_ap"]}
        others = [row["auc"] for other in (LDP, FIRST_ORDER) for row in picked(rows, method=other, **same)]
        ahead += [own["auc"] - max(others)] if others else []
    return ahead


def _won(leads: Sequence[float]) -> str:
    return (
        f"{sum(lead > 0 for lead in leads)} of {len(leads)} (mean lead {fmean(leads):+.3f})"
        if leads
        else "none measured"
    )


UTILITY_RULE = Rule(
    "Like is compared with like: the baselines' epsilon hides one entry of a vector, so MaskedXGBoost's is read in "
    "the same way (Theorem 2's bound for one entry, composed over all T D steps). Cases: each data set and budget; "
    "its AUC is not below that of XGBoost-LDP and of FedXGBoost-LDP.",
    0.005,
    lambda rows: _leads(rows, ENTRY),
)


def _beside_alone(rows: Rows) -> str:
    """At the largest budget: the share of splits that are the passive party's, and the AUC of both parties and of the
    active party alone."""
    readings = (ENTRY, COMPOSED)
    largest = max((row["eps_ap"] for row in rows), default=0.0)
    masks = picked(rows, method=MASKED, eps_ap=largest)
    shares = [[row["passive_share"] for row in picked(masks, reading=reading)] for reading in readings]
    if not all(shares):
        return "The share of the passive party's splits was not measured"
    one_entry, vector = (f"{min(own):.1%} to {max(own):.1%}" for own in shares)
    listed: list[str] = []
    for data, own in by(rows, "data"):
        noisy = [the(picked(masks, data=data), "auc", reading=reading) for reading in readings]
        areas = ", ".join(f"{area:.3f}" for area in (*noisy, the(own, "auc", method=ALONE)) if area is not None)
        listed.append(f"{PAPER_NAMES[data]} {areas}")
    return (
        f"Of the splits at eps_AP = {largest:g}, {one_entry} are the passive party's where epsilon is of one entry and "
        f"{vector} where it is of the whole vector; where the share is small, what is learned is mostly the active "
        f"party's own. AUC of the one, of the other and of the active party alone: {'; '.join(listed)}"
    )


def utility_claim(rows: Rows) -> Claim:
    best = max((row["auc"] for row in picked(rows, method=NON_PRIVATE.name)), default=float("nan"))
    others = ", ".join(f"{rule} in {_won(_leads(rows, COMPOSED, f'{MASKED}, {rule}'))}" for rule in RULES)
    return Claim(
        "MaskedXGBoost is far superior to XGBoost-LDP and FedXGBoost-LDP at every budget and rises towards the AUC "
        "without noise; it is above FederBoost but for the smallest budgets",
        f"it is above both where its epsilon is of one entry, as theirs, in {_won(_leads(rows, ENTRY))}; where it is "
        f"of the whole vector, as published, in {_won(_leads(rows, COMPOSED))}; with the whole epsilon for each "
        f"release in {_won(_leads(rows, EACH))}; without noise up to {best:.3f}",
        f"{_beside_alone(rows)}. Theorem 2 hides all entries of a vector at once, so that its noise "
        "grows with the rows, and Theorem 3 at eps_PP = 1 leaves a few percent of it in the null space. The paper "
        "does not say what becomes of a candidate whose noisy hessian is below 0 or above the node's; rejecting it, "
        f"as here, decides who splits. Other rules are above both baselines: {others}. The paper's curves need "
        "sigma1, sigma2, C and W, which it does not give.",
    )


def utility_plot(rows: Rows, label: str) -> str:
    charts: list[str] = []
    across = list(dict.fromkeys(row["method"] for row in rows if not row["eps_ap"]))
    names = [*dict.fromkeys(row["method"] for row in rows if row["eps_ap"]), *across]
    for data, own in by(rows, "data"):
        levels = {row["method"]: row["auc"] for row in own if not row["eps_ap"]}
        for reading in (*READINGS, ENTRY):
            some = [row for row in picked(own, reading=reading) if row["eps_ap"]]
            if reading == ENTRY:  # as that of the baselines composed
                some += [row for name in (LDP, FIRST_ORDER) for row in picked(own, reading=COMPOSED, method=name)]
            lines = {name: sorted(point(row, "eps_ap", "auc") for row in of) for name, of in by(some, "method")}
            title = f"{PAPER_NAMES[data]}, epsilon {reading}"
            charts.append(line_chart(title, "epsilon of the active party", "AUC", lines, across=levels, order=names))
    return sheet(f"{label}: AUC against epsilon", charts, names=names, across=across)


FIGURE_4, FIGURE_12 = _figure(
    "AUC of five methods against epsilon",
    (
        {"statement": "MaskedXGBoost is far superior to XGBoost-LDP and FedXGBoost-LDP at every epsilon"},
        {"statement": "with the increment of eps_AP the AUC of each method improves"},
        {"statement": "MaskedXGBoost performs like FederBoost at eps_AP = 0.5 on Credit 1 and Adult, and better above"},
    ),
    utility_cells,
    list,
    UTILITY_RULE,
    utility_claim,
    utility_plot,
    ("4", FIRST_FOUR, ""),
    ("12", THE_OTHERS, APPENDIX),
)

# --- Figures 5 and 11: AUC after each tree, for several budgets -------------------------------------------

RISE = 0.005  # of AUC between the first trees and the last: less is no rise


def convergence_cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    curves = all_methods((COMPOSED,), (0.5, 8.0) if context.quick else (0.5, 2.0, 8.0))
    return _cells(context, sets, lambda _: curves, True)


def convergence_table(lines: list[Line]) -> Rows:
    """How each curve rose and shook."""
    for line in lines:
        areas = np.array(line["auc"])
        few = max(len(areas) // 6, 1)
        line["first"], line["last"] = float(areas[:few].mean()), float(areas[-few:].mean())
        line["largest_drop"] = float((np.maximum.accumulate(areas) - areas).max())
    return lines


def _rises(rows: Rows) -> list[float]:
    largest = max((row["eps_ap"] for row in rows), default=0.0)
    return [
        (row["last"] - row["first"] - RISE) * (1.0 if row["method"] == MASKED else -1.0)
        for row in picked(rows, eps_ap=largest)
    ]


CONVERGENCE_RULE = Rule(
    "At the largest eps_AP. Cases: each data set and method; from the first sixth of the trees to the last sixth "
    f"the mean AUC of MaskedXGBoost rises by more than {RISE:g}, that of XGBoost-LDP and of FedXGBoost-LDP does not.",
    0.002,
    _rises,
)


def convergence_claim(rows: Rows) -> Claim:
    largest = max((row["eps_ap"] for row in rows), default=0.0)
    listed = [
        f"{PAPER_NAMES[row['data']]} {row['method']} {row['first']:.3f} to {row['last']:.3f}, "
        f"{row['passive_share']:.1%} of the splits the passive party's"
        for row in picked(rows, eps_ap=largest)
    ]
    alone = [
        f"{PAPER_NAMES[row['data']]} {row['first']:.3f} to {row['last']:.3f}" for row in picked(rows, method=ALONE)
    ]
    return Claim(
        "MaskedXGBoost rises steadily with the trees, and more with more epsilon; XGBoost-LDP and FedXGBoost-LDP shake "
        "and do not rise, even at eps_AP = 8",
        f"mean AUC of the first and the last trees at eps_AP = {largest:g}: {'; '.join(listed)}",
        "Leaf weights are computed from true gradients, as published, so that trees whose splits are chosen by "
        f"noise rise too. The active party alone: {'; '.join(alone) or 'not measured'}.",
    )


def convergence_plot(rows: Rows, label: str) -> str:
    charts: list[str] = []
    for data, own in by(rows, "data"):
        for epsilon in sorted({row["eps_ap"] for row in own} - {0.0}):
            lines = {row["method"]: curve(row, "auc") for row in own if row["eps_ap"] in (0.0, epsilon)}
            title = f"{PAPER_NAMES[data]}, epsilon {epsilon:g}"
            charts.append(line_chart(title, "trees", "AUC", lines, dashed=(NON_PRIVATE.name,)))
    return sheet(f"{label}: training", charts)


FIGURE_5, FIGURE_11 = _figure(
    "AUC after each tree for several budgets",
    (
        {"statement": "MaskedXGBoost's training is stable and its test AUC rises gradually, higher with more epsilon"},
        {"statement": "the AUC of XGBoost-LDP and FedXGBoost-LDP does not rise with more trees, even at eps_AP = 8"},
    ),
    convergence_cells,
    convergence_table,
    CONVERGENCE_RULE,
    convergence_claim,
    convergence_plot,
    ("5", SETS[:1], ""),
    ("11", SETS[1:], APPENDIX),
)

# --- Figures 9 and 15: what the passive party's epsilon does to MaskedXGBoost -----------------------------

EPSILONS_PP = (1.0, 2.0, 4.0, 8.0)
EPS_AP = 4.0


def ablation_cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    curves = [masked_curve(reading, EPS_AP, eps_pp) for reading in READINGS for eps_pp in EPSILONS_PP]

    def of(table: PartyTable) -> list[Curve]:
        return [*curves, *(energy_curve(table.rows, eps_pp) for eps_pp in EPSILONS_PP)]

    return _cells(context, sets, of, True)


def ablation_table(lines: list[Line]) -> Rows:
    return [{**line, "final_auc": line["auc"][-1], "final_auc_sd": line["auc_sd"][-1]} for line in lines]


def _gains(rows: Rows, *readings: str) -> list[float]:
    """The AUC at the largest eps_PP less that at the smallest."""
    found: list[float] = []
    for _, of_data in by(rows, "data"):
        for reading, of in by(of_data, "reading"):
            own = {row["eps_pp"]: row["final_auc"] for row in of}
            if not readings or reading in readings:
                found.append(own[EPSILONS_PP[-1]] - own[EPSILONS_PP[0]])
    return found


ABLATION_RULE = Rule(
    "Cases: each data set and reading (epsilon composed, per release, and noise of a fixed energy, of which eps_PP "
    "says what share lies in the null space); the AUC at the largest eps_PP is not below that at the smallest.",
    0.002,
    _gains,
    partly=1 / 3,
)


def ablation_claim(rows: Rows) -> Claim:
    listed: list[str] = []
    for data, of_data in by(rows, "data"):
        for reading, own in by(of_data, "reading"):
            areas = ", ".join(f"{row['final_auc']:.3f}" for row in own)
            listed.append(f"{PAPER_NAMES[data]} {reading} {areas}")
    budgets = ", ".join(f"{eps:g}" for eps in EPSILONS_PP)
    energy, scaled = _gains(rows, ENERGY), _gains(rows, *READINGS)
    return Claim(
        "the AUC improves with eps_PP, and training converges quickly at any eps_PP",
        f"AUC at eps_PP = {budgets} (eps_AP = {EPS_AP:g}): {'; '.join(listed)}",
        "A larger eps_PP puts more of the noise into the null space, where it costs nothing. At fixed energy the "
        f"AUC gains {fmean(energy):+.3f} from the smallest to the largest eps_PP in the mean; with Theorem 2's "
        f"scale, which grows with the rows and hides the effect, {fmean(scaled):+.3f}."
        if energy and scaled
        else "Not all readings were measured.",
    )


def ablation_plot(rows: Rows, label: str) -> str:
    charts: list[str] = []
    for data, own in by(rows, "data"):
        final = {how: [point(row, "eps_pp", "final_auc") for row in of] for how, of in by(own, "reading")}
        trees = {f"eps_PP {row['eps_pp']:g}": curve(row, "auc") for row in picked(own, reading=COMPOSED)}
        name = PAPER_NAMES[data]
        charts.append(line_chart(f"{name}, after 60 trees", "epsilon of the passive party", "AUC", final))
        charts.append(line_chart(f"{name}, epsilon {COMPOSED}", "trees", "AUC", trees))
    return sheet(f"{label}: eps_PP", charts)


FIGURE_9, FIGURE_15 = _figure(
    "the passive party's epsilon and AUC",
    ({"statement": "MaskedXGBoost's utility improves with higher eps_PP"},),
    ablation_cells,
    ablation_table,
    ABLATION_RULE,
    ablation_claim,
    ablation_plot,
    ("9", SETS[:1], ""),
    ("15", SETS[1:], APPENDIX),
)
