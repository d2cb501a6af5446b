"""What FedXGBoost-SMM costs: the measurement that the paper leaves to future work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from papers.fedxgboost.setting import CONFIG, CREDIT_1, CREDIT_2, PAPER, paillier
from papers.measure import cost_cell
from papers.noise import Method
from papers.rows import Line, Row, Rows, by, picked, the
from papers.tables import synthetic
from papers.target import Cell, Claim, Context, Target
from veilboost.data.table import PartyTable
from veilboost.report.plots import line_chart, sheet

PUBLISHED: tuple[Row, ...] = (
    {"statement": "FedXGBoost-SMM is lossless, with lower overhead than encryption, which is to be measured in future"},
)
SYNTHETIC = "synthetic"
ROWS = (1_000, 3_000, 10_000, 30_000, 100_000)
SHORT, LONG = 512, 2048
PLAIN, SMM = "plain", ("smm1", "smm2")
METHODS = (
    Method(PLAIN, "", "plain", {}),
    replace(paillier(SHORT), name="paillier"),
    Method("lattice", "", "lattice", {}),
    *(Method(name, "", name, {}) for name in SMM),
)
POINT_ROWS = 10_000  # where Paillier also has a key that protects
_VALUES = (
    "sha256", "seconds_per_tree", "cpu_seconds_per_tree", "megabytes_per_tree", "rounds_per_tree", "peak_rss_mb"
)  # fmt: skip


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    def cell(data: str, table: PartyTable, method: Method, seed: int) -> Cell:
        key = {"data": data, "rows": table.rows, "protocol": method.name, "key": method.reading, "seed": seed}
        return cost_cell(key, table, method, replace(CONFIG, n_estimators=1, random_state=seed), _VALUES, warm_up=False)

    seeds = context.seeds(3)
    sizes = [synthetic(rows) for rows in (ROWS[:4] if context.quick else ROWS)]
    found = [cell(SYNTHETIC, table, method, seed) for table in sizes for method in METHODS for seed in seeds]
    found.append(cell(SYNTHETIC, synthetic(POINT_ROWS), replace(paillier(LONG), name="paillier"), 0))
    real = [(data, context.table(data)) for data in sets]
    return found + [cell(*each, method, seed) for each in real for method in METHODS for seed in seeds]


def table(lines: list[Line]) -> Rows:
    models = {(line["data"], line["rows"]): line["sha256"] for line in lines if line["protocol"] == PLAIN}
    for line in lines:
        plain = the(lines, "cpu_seconds_per_tree", protocol=PLAIN, data=line["data"], rows=line["rows"])
        line["times_plain"] = None if plain is None else line["cpu_seconds_per_tree"] / plain
        line["same_model_as_plain"] = line.pop("sha256") == models.get((line["data"], line["rows"]))
    return lines


def claim(rows: Rows) -> Claim:
    most = max(row["rows"] for row in rows if row["data"] == SYNTHETIC)
    at = {(row["protocol"], row["key"]): row for row in rows if row["data"] == SYNTHETIC and row["rows"] == most}
    listed = "; ".join(
        f"{' '.join(name).strip()} {row['cpu_seconds_per_tree']:.2f} s and {row['megabytes_per_tree']:.1f} MB"
        for name, row in at.items()
    )
    smm = [row for row in rows if row["protocol"] in SMM]
    exact = all(row["same_model_as_plain"] for row in smm)
    ours = max(at[name, ""]["cpu_seconds_per_tree"] for name in SMM)
    lower = ours < at["paillier", f"{SHORT} bits"]["cpu_seconds_per_tree"]
    return Claim(
        "FedXGBoost-SMM is lossless and has lower overhead than encryption (not measured in the paper)",
        f"one tree of {most} rows and 8 columns: {listed}; the models of smm1 and smm2 "
        f"{'equal' if exact else 'do not all equal'} that of plain",
        "yes" if exact and lower else "partly" if exact or lower else "no",
        "Lower than Paillier's in time; in bytes smm1 sends a number for every row and bin, far more than Paillier. "
        "Packed lattice encryption is exact too, about as quick, and holds where both SMM protocols fall to linear "
        "programming: what made SMM attractive was the comparison with the slowest encryption.",
    )


def plot(rows: Rows, label: str) -> str:
    own = [{**row, "name": f"{row['protocol']} {row['key']}".strip()} for row in picked(rows, data=SYNTHETIC)]
    charts: list[str] = []
    for value, y_label, title in (
        ("cpu_seconds_per_tree", "processor seconds", "Time of a tree"),
        ("megabytes_per_tree", "megabytes", "Bytes of a tree"),
    ):
        lines = {name: [(row["rows"], row[value]) for row in of] for name, of in by(own, "name")}
        charts.append(line_chart(title, "rows", y_label, lines, log_x=True, log_y=True))
    return sheet("FedXGBoost-SMM: what a tree costs (8 columns, depth 6, 32 bins)", charts)


TITLE = "time and bytes of FedXGBoost-SMM, which the paper left open"
TARGET = Target(PAPER, "smm-overhead", TITLE, (CREDIT_2, CREDIT_1), PUBLISHED, cells, table, claim, plot)
