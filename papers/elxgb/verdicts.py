"""Table 4: who protects what, as the verdicts on our own protocols, each by the attack that it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from papers.elxgb.setting import PAPER
from papers.pictures import table_chart
from papers.rows import Line, Row, Rows, picked, the
from papers.rules import Rule
from papers.target import Cell, Claim, Context, Target
from veilboost.audit.attacks import name_of
from veilboost.privacy.statement import Status
from veilboost.protocols.registry import all_protocols

_KINDS = ("data", "bucket", "threshold", "label")
_PRINTED = (
    ("SecureBoost", "paillier", "yes yes no no", "high", "distributed", "low"),
    ("PIVODL", None, "yes yes no no", "less high", "distributed", "less high"),
    ("FedXGBoost-SMM", "smm2", "yes no no yes", "high", "distributed", "less high"),
    ("SS-XGB", None, "yes yes no yes", "less high", "distributed", "low"),
    ("MP-FedXGB", None, "yes yes no yes", "high", "distributed", "less high"),
    ("SGBoost", None, "yes yes no yes", "high", "centralized", "less high"),
    ("ELXGB", "elxgb", "yes yes yes yes", "high", "centralized", "high"),
)
PUBLISHED: tuple[Row, ...] = tuple(
    {
        "scheme": scheme,
        "protocol": protocol,
        **dict(zip(_KINDS, marks.split(), strict=True)),
        "accuracy": accuracy,
        "model": model,
        "efficiency": efficiency,
    }
    for scheme, protocol, marks, accuracy, model, efficiency in _PRINTED
)
_HOLDS = (Status.SOUND, Status.HEURISTIC)


def _stated(name: str) -> dict[str, Any]:
    """From the protocol's own statement, which a test holds against attacks."""
    spec = all_protocols()[name]
    attacks = {(each.victim, each.subject): name_of(each) for each in spec.evidence}
    lines = [
        {
            "victim": victim,
            "subject": subject,
            "status": str(spec.statement.worst_for(victim, subject)),
            "attack": attacks.get((victim, subject), ""),
        }
        for victim, subject in spec.statement.directions
    ]
    return {"exact": spec.exact, "source": spec.source, "directions": lines}


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    return [Cell({"protocol": name}, partial(_stated, name), partial(_stated, name), 0.1) for name in all_protocols()]


def table(lines: list[Line]) -> Rows:
    """A line for each protocol and what it is to protect."""
    printed = ("scheme", "label", "bucket")
    return [
        {
            "protocol": row["protocol"],
            "exact": row["exact"],
            **direction,
            **{f"paper_{name}": the(PUBLISHED, name, protocol=row["protocol"]) for name in printed},
        }
        for row in lines
        for direction in row["directions"]
    ]


RULE = Rule(
    "Cases: each line of elxgb's statement about labels or features of a party; its status is sound or heuristic. A "
    "status rests on the attacks of the audit.",
    0.0,
    lambda rows: [0.0 if row["status"] in _HOLDS else -1.0 for row in picked(rows, protocol="elxgb")],
)


def claim(rows: Rows) -> Claim:
    mine = {(row["victim"], row["subject"]): row for row in picked(rows, protocol="elxgb")}
    kept = [f"{victim}'s {what}" for (victim, what), row in mine.items() if row["status"] in _HOLDS]
    lost = [
        f"{victim}'s {what} ({row['status']}{', by ' + row['attack'] if row['attack'] else ''})"
        for (victim, what), row in mine.items()
        if row["status"] not in _HOLDS
    ]
    safest = sorted({row["protocol"] for row in rows if row["subject"] == "labels" and row["status"] == Status.SOUND})
    return Claim(
        "ELXGB protects data, buckets, thresholds and labels; SecureBoost neither thresholds nor labels; FedXGBoost "
        "(SMM) neither buckets nor thresholds",
        f"of elxgb hold: {', '.join(kept) or 'none'}; do not: {', '.join(lost) or 'none'}. Labels are sound with "
        f"{', '.join(safest) or 'no protocol'}",
        "A tick in the paper's table means that a message is encrypted or noisy; a status here means that the best "
        "attack we know was run on the other party's view, at the default parameters. ELXGB's later trees reveal most "
        "labels at the published noise (Table 5), and a party that sends left/right assignments in the clear reveals "
        "the order of its values. Schemes that are not among our protocols are published only.",
    )


def plot(rows: Rows, label: str) -> str:
    head = ("protocol", "whose", "what", "status", "decisive attack", "the paper on labels, buckets")
    lines = [
        (
            *(str(row[name] or "-") for name in ("protocol", "victim", "subject", "status", "attack")),
            f"{row['paper_label']}, {row['paper_bucket']}" if row["paper_scheme"] else "-",
        )
        for row in rows
    ]
    return table_chart(f"{label}, as verdicts on our protocols", head, lines)


TITLE = "what is protected: verdicts on our protocols"
TABLE_4 = Target(PAPER, "table-4", TITLE, (), PUBLISHED, cells, table, RULE, claim, plot, {})
