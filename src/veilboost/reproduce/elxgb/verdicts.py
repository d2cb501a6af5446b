"""Table 4: who protects what, as the verdicts on our own protocols, each by the attack that it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from veilboost.audit.attacks import name_of
from veilboost.privacy.statement import Status
from veilboost.protocols.registry import all_protocols, protocols_of
from veilboost.report.plots import table_chart
from veilboost.reproduce.context import Context
from veilboost.reproduce.elxgb.setting import PAPER
from veilboost.reproduce.summary import picked, the
from veilboost.reproduce.target import Cell, Claim, Row, Target

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


def cells(context: Context) -> list[Cell]:
    return [Cell({"protocol": name}, partial(_stated, name), 0.1) for name in protocols_of("vertical")]


def table(measured: Sequence[Row]) -> list[Row]:
    """A line for each protocol and what it is to protect."""
    return [
        {
            "protocol": row["protocol"],
            "exact": row["exact"],
            **direction,
            "paper_scheme": the(PUBLISHED, "scheme", protocol=row["protocol"]),
            "paper_label": the(PUBLISHED, "label", protocol=row["protocol"]),
            "paper_bucket": the(PUBLISHED, "bucket", protocol=row["protocol"]),
        }
        for row in measured
        for direction in row["directions"]
    ]


def claim(rows: Sequence[Row]) -> Claim:
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
        "no" if lost else "yes",
        "A tick in the paper's table means that a message is encrypted or noisy; a status here means that the best "
        "attack we know was run on what the other side saw, at the default parameters. ELXGB's later trees show most "
        "labels at the published noise (Table 5), and whoever sends the sides of a split in the clear shows the order "
        "of its values. Schemes that are not among our protocols are published only.",
    )


def plot(rows: Sequence[Row]) -> str:
    head = ("protocol", "whose", "what", "status", "decisive attack", "the paper on labels, buckets")
    lines = [
        (
            str(row["protocol"]),
            str(row["victim"]),
            str(row["subject"]),
            str(row["status"]),
            str(row["attack"] or "-"),
            f"{row['paper_label']}, {row['paper_bucket']}" if row["paper_scheme"] else "-",
        )
        for row in rows
    ]
    return table_chart("ELXGB, Table 4, as verdicts on our protocols", head, lines)


TABLE_4 = Target(
    PAPER, "table-4", "what is protected: verdicts on our protocols", (), PUBLISHED, cells, table, claim, plot
)
