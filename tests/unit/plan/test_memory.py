"""Memory that is predicted is what a process needs, and belongs to the party that needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.plan.predict import cost_of
from veilboost.protocols.cost import PlannedJob
from veilboost.protocols.memory import PROGRAM, memory_of
from veilboost.protocols.registry import all_protocols, protocol_named

pytestmark = pytest.mark.fast

PEAK = """
import sys
from veilboost.plan.calibrate import measure
from papers.measure import peak_rss_mb
from veilboost.protocols.cost import PlannedJob
rows, columns, people = map(int, sys.argv[2:])
measure(sys.argv[1], PlannedJob(rows, (columns,) if people else (2, columns), 2, 2, 16, people))
print(peak_rss_mb() * 2**20)
"""


def job_of(protocol: str, rows: int, columns: int) -> PlannedJob:
    people = 5 if protocol_named(protocol).setting == "horizontal" else 0
    return PlannedJob(rows, (columns,) if people else (2, columns), 2, 2, 16, people)


@pytest.mark.parametrize(
    ("protocol", "rows", "columns"),
    [("plain", 500_000, 4), ("lattice", 60_000, 12), ("smm1", 40_000, 16)],
)
def test_a_process_needs_as_much_as_predicted(protocol: str, rows: int, columns: int) -> None:
    job = job_of(protocol, rows, columns)
    words = [sys.executable, "-c", PEAK, protocol, str(rows), str(columns), str(job.participants)]
    told = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    if not told:
        pytest.skip("this system does not tell a process's peak memory")
    assert told > 1.3 * PROGRAM
    assert memory_of(protocol, job, 0.0).together == pytest.approx(told, rel=0.3)


@settings(deadline=None)
@given(st.sampled_from(list(all_protocols())), st.integers(100, 10**7), st.integers(1, 50))
def test_more_rows_need_more_and_one_process_no_more_than_all_parties(protocol: str, rows: int, columns: int) -> None:
    job, larger = job_of(protocol, rows, columns), job_of(protocol, 10 * rows, columns)
    made, more = memory_of(protocol, job, 0.0), memory_of(protocol, larger, 0.0)
    others = job.participants or 1
    assert PROGRAM <= max(made.here, made.others) <= made.together <= made.here + others * made.others
    # A larger job may choose a way to encrypt that needs less memory.
    assert more.together > made.together or cost_of(protocol).note(job) != cost_of(protocol).note(larger)
    assert memory_of(protocol, job, 1e9).here >= made.here + 1e9


def test_memory_is_of_the_party_that_needs_it() -> None:
    rows = 1_000_000
    plain = memory_of("plain", PlannedJob(rows, (2, 40)), 0.0)
    federboost, ldp, smm2 = (memory_of(name, PlannedJob(rows, (2, 40)), 0.0) for name in ("federboost", "ldp", "smm2"))
    assert federboost.here == plain.here + 40 * rows  # the other's bins
    assert ldp.here > plain.here + 30 * rows  # where noise is drawn
    assert ldp.others == plain.others
    assert smm2.others > 2 * smm2.here
    several = memory_of("federboost", PlannedJob(rows, (2, 40, 40)), 0.0)
    assert several.here == plain.here + 80 * rows
    assert several.together > several.here + 2 * 5 * 40 * rows
    mal, secagg = (memory_of(name, PlannedJob(rows, (9,), participants=4), 0.0) for name in ("mal", "secagg"))
    assert mal.here > PROGRAM + 9 * rows
    assert secagg.here == PROGRAM  # the server has nobody's rows


def test_masks_go_in_chunks_until_a_single_one_is_larger() -> None:
    few, many = (
        memory_of("masked", PlannedJob(rows, (4, 40)), 0.0).others
        - memory_of("plain", PlannedJob(rows, (4, 40)), 0.0).others
        for rows in (10**6, 10**8)
    )
    assert few == pytest.approx(3 * 8 * 2**20)
    assert many == pytest.approx(3 * 8 * 10**8)
