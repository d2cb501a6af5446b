"""What FedXGBoost-SMM costs: the measurement that the paper leaves to future work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from papers.fedxgboost.setting import CONFIG, CREDIT_1, CREDIT_2, PAPER, paillier
from papers.measure import cost_cell
from papers.noise import Method
from papers.rows import Line, Row, Rows, by, picked
from papers.rules import Rule
from papers.tables import synthetic
from papers.target import SECONDS, Cell, Claim, Context, Near, Target
from veilboost.data.table import PartyTable
from veilboost.report.plots import line_chart, sheet

PUBLISHED: tuple[Row, ...] = (
    {"statement": "FedXGBoost-SMM is lossless, with lower overhead than encryption, which is to be measured in future"},
)
SYNTHETIC = "synthetic"
ROWS = (1_000, 3_000, 10_000, 30_000, 100_000)
SHORT, LONG = 512, 2048
PLAIN, SMM = "plain", ("smm1", "smm2")
FEW, MANY = "16 vectors", "0.6 n vectors"  # the default, which hides little of the masked data; and enough
ANEW = "cuts of each node"  # Algorithm 4: from the users of the node, instead of once from all
METHODS = (
    Method(PLAIN, "", "plain", {}),
    replace(paillier(SHORT), name="paillier"),
    Method("lattice", "", "lattice", {}),
    *(Method(name, FEW, name, {}) for name in SMM),
)
SMALL = (1_000, 3_000)  # rows at which so many kernel vectors can be sent that they hide what they mask
BY_NODE = tuple(Method(name, ANEW, name, {}, {"proposal": "local"}) for name in (PLAIN, *SMM))
LONG_KEY = replace(paillier(LONG), name="paillier")
POINT_ROWS = 10_000  # where Paillier also has a key that protects
_VALUES = (
    "sha256", "seconds_per_tree", "cpu_seconds_per_tree", "megabytes_per_tree", "rounds_per_tree", "peak_rss_mb"
)  # fmt: skip


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    def cell(data: str, table: PartyTable, method: Method, seed: int) -> Cell:
        key = {"data": data, "rows": table.rows, "protocol": method.name, "key": method.reading, "seed": seed}
        return cost_cell(key, table, method, replace(CONFIG, n_estimators=1, random_state=seed), _VALUES, warm_up=False)

    sizes = [synthetic(rows) for rows in (ROWS[:4] if context.quick else ROWS)]
    found = [cell(SYNTHETIC, table, method, 0) for table in sizes for method in METHODS]
    found.append(cell(SYNTHETIC, synthetic(POINT_ROWS), LONG_KEY, 0))
    for rows in SMALL:
        many = [Method(name, MANY, name, {"r": rows, "share": 0.6}) for name in SMM]
        found += [cell(SYNTHETIC, synthetic(rows), method, 0) for method in (LONG_KEY, *many, *BY_NODE)]
    return found + [cell(name, context.table(name), method, 0) for name in sets for method in METHODS]


def table(lines: list[Line]) -> Rows:
    found = [{name: line[name] for name in line if name != "sha256"} for line in lines]
    for line, made in zip(lines, found, strict=True):
        cuts = ANEW if line["key"] == ANEW else ""
        plain = picked(lines, protocol=PLAIN, data=line["data"], rows=line["rows"], key=cuts)
        made["times_plain"] = line["cpu_seconds_per_tree"] / plain[0]["cpu_seconds_per_tree"] if plain else None
        made["same_model_as_plain"] = bool(plain) and line["sha256"] == plain[0]["sha256"]
    return found


def _pairs(rows: Rows) -> list[tuple[Row, Row]]:
    """At each small size: SMM with vectors enough to hide what it masks, and each key of Paillier."""
    own = [row for row in picked(rows, data=SYNTHETIC) if row["rows"] in SMALL]
    return [
        (row, other)
        for row in own
        for other in own
        if row["key"] == MANY and other["protocol"] == "paillier" and other["rows"] == row["rows"]
    ]


def _amounts(rows: Rows) -> list[float]:
    values = ("cpu_seconds_per_tree", "megabytes_per_tree")
    exact = [1.0 if row["same_model_as_plain"] else -1.0 for row in rows if row["protocol"] in SMM]
    return [min(exact), *(1.0 - row[value] / other[value] for row, other in _pairs(rows) for value in values)]


RULE = Rule(
    "With 0.6 n kernel vectors, because with fewer than half of the rows the masked data is not hidden, on "
    f"{' and '.join(f'{rows:,}' for rows in SMALL)} rows. Cases: all models of SMM equal plain's; for each protocol, "
    "size and key of Paillier (512 and 2048 bits), SMM takes no more processor seconds, and sends no more bytes. "
    "Amounts are ratios.",
    0.1,
    _amounts,
    partly=0.1,
)


def _listed(rows: Rows) -> str:
    return "; ".join(
        f"{row['protocol']} {row['key']}".strip()
        + f" {row['cpu_seconds_per_tree']:.2f} s and {row['megabytes_per_tree']:.1f} MB"
        for row in rows
    )


def claim(rows: Rows) -> Claim:
    own = picked(rows, data=SYNTHETIC)
    small, most = max(SMALL), max(row["rows"] for row in own)
    smm = [row for row in rows if row["protocol"] in SMM]
    exact = sum(row["same_model_as_plain"] for row in smm)
    share = {name: [row for row in _pairs(rows) if row[0]["protocol"] == name] for name in SMM}
    bytes_times = max(row["megabytes_per_tree"] / other["megabytes_per_tree"] for row, other in _pairs(rows))
    quicker = sum(
        row["cpu_seconds_per_tree"] < other["cpu_seconds_per_tree"] for pairs in share.values() for row, other in pairs
    )
    return Claim(
        "FedXGBoost-SMM is lossless and has lower overhead than encryption (not measured in the paper)",
        f"one tree of 8 columns with {small} rows: {_listed(picked(own, rows=small))}; with {most} rows: "
        f"{_listed(picked(own, rows=most))}; {exact} of {len(smm)} models of smm1 and smm2 equal that of plain",
        f"With vectors enough to hide the masked data SMM is quicker than Paillier in {quicker} of "
        f"{len(_pairs(rows))} comparisons and sends up to {bytes_times:.0f} times the bytes: kernel vectors are as "
        "many numbers as rows squared. With 16 vectors it is quick, and its masks hide nothing of the masked data. "
        "Packed lattice encryption is exact too, and holds where both SMM protocols fall to linear programming.",
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


REPEATS = {"cpu_seconds_per_tree": SECONDS, "megabytes_per_tree": Near(0.0, 0.05)}
TITLE = "time and bytes of FedXGBoost-SMM, which the paper left open"
TARGET = Target(PAPER, "smm-overhead", TITLE, (CREDIT_2, CREDIT_1), PUBLISHED, cells, table, RULE, claim, plot, REPEATS)
