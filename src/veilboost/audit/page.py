"""Findings as one page of HTML that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from veilboost.audit.result import Finding
from veilboost.privacy.statement import Statement
from veilboost.report.page import Section, document
from veilboost.report.verdicts import findings_table, protections_table


def page(protocol: str, findings: Sequence[Finding], statement: Statement) -> str:
    """The page of one run."""
    return document(
        f"Audit of a run by {protocol}",
        "What each party could do with what it saw.",
        [
            Section("found", "What the attacks found", findings_table([found.to_dict() for found in findings])),
            Section(
                "claims",
                "What the protocol claims",
                protections_table([each.to_dict() for each in statement.protections]),
            ),
        ],
    )
