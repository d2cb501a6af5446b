"""Work is counted, costs of units are found again, and predictions follow the job."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from veilboost.boost.booster import RoundResult
from veilboost.cli.main import app
from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, UnreadableFile, UnsupportedCombination
from veilboost.plan import calibrate as calibrating
from veilboost.plan import calibrate as measuring
from veilboost.plan.calibrate import (
    Calibration,
    Measured,
    Meter,
    calibrate,
    fit,
    load_calibrations,
    measure,
    save_calibrations,
)
from veilboost.plan.predict import cost_of, predict, units_of, vertical_units
from veilboost.protocols.cost import PlannedJob, tree_shape
from veilboost.protocols.registry import BUILT_IN, all_protocols, protocol_named, protocols_of
from veilboost.wire.message import Done
from veilboost.wire.transcript import LINES, Network

pytestmark = pytest.mark.fast

JOB = PlannedJob(10_000, (4, 6), trees=10, depth=5, bins=32)
PLAIN = cost_of("plain")
NAMES = ("once_here", "once_there", "here", "there", "sent", "answered", "rounds", "largest")


def free(protocol: str, **given_: dict[str, float]) -> Calibration:
    """Nothing costs anything but what is named."""
    return Calibration(**{name: given_.get(name, {}) for name in NAMES})


def test_every_protocol_has_a_cost_model() -> None:
    assert all(spec.cost is not None and spec.relative_cost is not None for spec in BUILT_IN)


def test_a_model_names_units_that_are_counted() -> None:
    for name, spec in all_protocols().items():
        job = PlannedJob(1000, (4,), participants=3) if spec.setting == "horizontal" else JOB
        cost = cost_of(name)
        work = units_of(cost, job)
        for field in ("here", "there", "sent", "answered", "steps", "once_here", "once_there"):
            assert set(getattr(cost, field)) <= set(work), (name, field)


# --- counting ---------------------------------------------------------------------------------------------


def test_a_tree_has_the_shape_that_its_rows_allow() -> None:
    shape = tree_shape(10_000, 4)
    assert (shape.nodes, shape.built) == ((1, 2, 4, 8), (1, 1, 2, 4))
    assert shape.built_rows[0] == 10_000
    assert tree_shape(40, 6).nodes == (1, 2, 2, 2, 2, 2)  # too few rows to split on


def test_work_grows_with_what_it_is_counted_in() -> None:
    base = vertical_units(PLAIN, JOB, 6)
    more = vertical_units(PLAIN, PlannedJob(20_000, (4, 6), trees=30, depth=5, bins=32), 6)
    assert more["rows"] == pytest.approx(6 * base["rows"])
    assert more["table_p"] == pytest.approx(2 * base["table_p"])
    assert more["first_rows"] == pytest.approx(2 * base["first_rows"])
    assert more["start"] == base["start"]


@settings(deadline=None)
@given(st.integers(2, 10**9), st.integers(1, 200), st.integers(1, 8))
def test_lattice_sends_what_its_rows_and_bins_need_on_every_line(rows: int, columns: int, depth: int) -> None:
    for line in LINES.values():
        job = PlannedJob(rows, (1, columns), 1, depth, 32, network=line)
        work = vertical_units(cost_of("lattice"), job, columns)
        assert work["ciphertexts"] >= 16 * rows
        assert work["answers"] >= 2 * 8 * columns * 32
        assert all(work[unit] > 0 for unit in ("encryption", "summation", "decryption"))
        assert work["masks"] >= 0
        assert cost_of("lattice").note(job).startswith(f"layout auto for {line}: level")


def test_lattice_is_planned_for_the_line() -> None:
    """Expansion is counted: on a slow line fewer bytes and more arithmetic."""
    job, cost = PlannedJob(24_000, (11, 12), trees=60, depth=6, bins=32), cost_of("lattice")
    lan, wan = (vertical_units(cost, replace(job, network=LINES[line]), 12) for line in ("lan", "wan"))
    assert wan["ciphertexts"] + wan["answers"] < (lan["ciphertexts"] + lan["answers"]) / 3
    assert wan["summation"] > 2 * lan["summation"]
    assert "levels 1 to 6 as vectors under reused masks" in cost.note(replace(job, network=LINES["lan"]))
    assert "levels 4 to 6 densely" in cost.note(replace(job, network=LINES["wan"]))
    costs = Calibration({}, {}, {}, {}, {"ciphertexts": 1.0}, {"answers": 1.0}, {}, {})
    for line in ("lan", "wan"):
        made = predict("lattice", job, costs, LINES[line])
        work = vertical_units(cost, replace(job, network=LINES[line]), 12)
        assert made.bytes_sent + made.bytes_answered == work["ciphertexts"] + work["answers"]
        assert made.note == cost.note(replace(job, network=LINES[line]))


# --- fitting ----------------------------------------------------------------------------------------------


def test_costs_are_found_again() -> None:
    """Runs that cost exactly what units say give those costs back, whatever was not among them."""
    jobs = [
        PlannedJob(rows, (own, other), trees, depth, 16)
        for rows, own, other, depth, trees in (
            (1000, 2, 2, 2, 1), (3000, 4, 2, 3, 2), (9000, 2, 6, 4, 3), (2000, 8, 3, 5, 4), (50_000, 3, 3, 3, 5),
            (7000, 3, 9, 6, 1), (800, 5, 5, 4, 7), (400_000, 4, 7, 4, 2),
        )
    ]  # fmt: skip
    runs: list[Measured] = []
    for job in jobs:
        work = units_of(PLAIN, job)
        there = 1e-4 * work["levels"] + 2e-9 * work["cells_p"]
        runs.append(
            Measured(job, 1e-3, 1e-8 * work["table_p"], 3e-8 * work["rows"], there, 8 * work["rows"], 5.0, 9.0, 1.0)
        )
    costs = fit("plain", runs)
    later = PlannedJob(2_000_000, (10, 20), 50, 6, 16)
    work = units_of(PLAIN, later)
    made = predict("plain", later, costs)
    assert made.bytes_sent == pytest.approx(8 * work["rows"], rel=1e-3)
    expected = 1e-3 + 1e-8 * work["table_p"] + 3e-8 * work["rows"] + 1e-4 * work["levels"] + 2e-9 * work["cells_p"]
    assert made.together == pytest.approx(expected, rel=0.02)
    assert all(cost >= 0 for cost in costs.here.values())


def test_a_part_that_took_nearly_nothing_does_not_decide() -> None:
    """Relative errors of a part that the clock did not see would outweigh all others."""
    jobs = [PlannedJob(rows, (2, 2), trees, 3, 16) for rows, trees in ((1000, 1), (4000, 2), (9000, 3), (30_000, 2))]
    runs = [Measured(job, 0.0, 0.0, 1e-6 * job.rows * job.trees, 0.05, 1.0, 1.0, 1.0, 1.0) for job in jobs]
    runs[0] = replace(runs[0], here=1e-9)
    later = PlannedJob(1_000_000, (2, 2), 5, 3, 16)
    assert predict("plain", later, fit("plain", runs)).seconds_here == pytest.approx(5.0, rel=0.1)


def test_a_meter_tells_sides_and_phases_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock runs on while others have the processor: what counts is the processor's time at each stamp."""
    # begin; a handler before the first round; one within it; the end of the round; the end.
    stamps = iter([(0.0, 0.0), (2.0, 1.0), (4.0, 2.0), (10.0, 5.0), (30.0, 7.0), (31.0, 7.5), (33.0, 8.5)])
    monkeypatch.setattr(Meter, "_now", staticmethod(lambda: next(stamps)))
    meter = Meter()
    handle = meter.timed(lambda message: message if message is first else lambda: first)
    first = Done()
    assert handle(first) is first
    later = meter.timed(lambda message: message)(first)
    assert later is first
    meter.watch(RoundResult(0, 24.0, {}))  # it began at 7.0 by the clock, halfway from 4.0 to 10.0
    assert meter.read() == ((pytest.approx(2.5), 1.0), (pytest.approx(3.0), 2.0))


def test_a_run_is_measured_on_both_sides() -> None:
    job = PlannedJob(2000, (3, 3), trees=2, depth=3, bins=16)
    found = measure("plain", job)
    assert found.seconds > 0
    assert min(found.here, found.there, found.once_here) > 0
    assert found.sent > 2 * 2000  # gradients of every row
    assert found.rounds >= 2
    again = measure("plain", job)
    assert (again.sent, again.answered, again.largest) == (found.sent, found.answered, found.largest)


@pytest.mark.parametrize(("protocol", "participants"), [("plain", 0), ("secagg", 3)])
def test_drawing_numbers_is_no_part_of_a_run(protocol: str, participants: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, drawn = itertools.count(), 1_000_000
    drawing = measuring._tables  # pyright: ignore[reportPrivateUsage]

    def slowly(job: PlannedJob, seed: int) -> Any:
        for _ in itertools.islice(clock, drawn):
            pass
        return drawing(job, seed)

    monkeypatch.setattr(measuring, "_tables", slowly)
    monkeypatch.setattr(Meter, "_now", staticmethod(lambda: 2 * (float(next(clock)),)))
    columns = (3,) if participants else (3, 3)
    found = measure(protocol, PlannedJob(600, columns, trees=2, depth=2, bins=8, participants=participants))
    assert 0 < found.seconds < drawn


def test_horizontal_jobs_are_measured_too() -> None:
    found = measure("secagg", PlannedJob(600, (3,), trees=2, depth=2, bins=8, participants=3))
    assert found.there > 0
    assert found.answered > 0


def test_bytes_of_a_job_that_was_not_measured_are_close() -> None:
    """Seconds depend on the machine's mood; bytes do not."""
    costs = calibrate("mal")
    job = PlannedJob(30_000, (7,), trees=3, depth=1, bins=12, participants=5)
    assert predict("mal", job, costs).bytes_answered == pytest.approx(measure("mal", job).answered, rel=0.1)


@pytest.mark.parametrize(
    ("like", "job"), [("plain", JOB), ("secagg", PlannedJob(6_000, (5,), 4, 3, 16, participants=4))]
)
def test_a_protocol_that_declares_no_cost_is_planned_all_the_same(
    like: str, job: PlannedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(all_protocols(), "other", replace(protocol_named(like), name="other", cost=None))
    monkeypatch.setattr(calibrating, "_TURNS", (float("inf"),))
    monkeypatch.setattr(calibrating, "_MANY_ROWS", 300)
    made, found = predict("other", job, calibrate("other")), measure("other", job)
    assert made.bytes_sent == pytest.approx(found.sent, rel=0.25)
    assert made.bytes_answered == pytest.approx(found.answered, rel=0.25)
    assert made.seconds > 0


def test_a_protocol_of_two_is_put_together_from_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tree of `elxgb` is encrypted as in `paillier`, later ones are noised as in `ldp`."""
    monkeypatch.setattr("veilboost.plan.calibrate.measure", lambda *_: pytest.fail("it is known"))
    known = {
        "paillier": free("paillier", once_here={"entries": 5.0}, here={"factors": 1.0}, sent={"rows": 512.0}),
        "ldp": free("ldp", once_here={"start": 9.0}, here={"rows": 2.0}, sent={"rows": 8.0}),
    }
    costs = calibrate("elxgb", known=known)
    made, alone = predict("elxgb", JOB, costs), predict("elxgb", replace(JOB, trees=1), costs)
    work = vertical_units(cost_of("elxgb"), JOB, 6)
    assert made.seconds_here == pytest.approx(5 * work["entries"] + work["first_factors"] + 2 * 9 * 10_000)
    assert made.bytes_sent == pytest.approx(10_000 * (512 + 9 * 8))
    assert alone.bytes_sent == pytest.approx(predict("paillier", replace(JOB, trees=1), known["paillier"]).bytes_sent)


# --- predicting -------------------------------------------------------------------------------------------


def test_messages_that_stream_do_not_grow_with_the_rows() -> None:
    job, costs = PlannedJob(10**9, (4, 6)), {"largest": {"rows": 100.0}}
    more = {
        name: predict(name, job, free(name, **costs)).memory_here - predict(name, job, free(name)).memory_here
        for name in ("lattice", "sealed")
    }
    assert 0 < more["lattice"] < 1e8
    assert more["sealed"] > 9e10  # a level's ciphertexts in one


def test_parties_work_at_the_same_time_and_share_the_drivers_line() -> None:
    costs = free("plain", there={"cells_p": 1.0}, sent={"rows": 1.0}, here={"slots_p": 1.0}, rounds={"levels": 1.0})
    job = PlannedJob(1000, (2, 4, 8), trees=3, depth=4, bins=16)
    made = predict("plain", job, costs, Network.parse("8kbit,1s"))
    each = [vertical_units(PLAIN, job, count) for count in (4, 8)]
    assert made.seconds_others == pytest.approx(each[1]["cells_p"])
    assert made.together == pytest.approx(made.seconds_here + each[0]["cells_p"] + each[1]["cells_p"])
    assert made.seconds_here == pytest.approx(each[0]["slots_p"] + each[1]["slots_p"])
    assert made.bytes_sent == pytest.approx(2 * each[0]["rows"])
    assert made.seconds_network == pytest.approx(2 * made.rounds + made.bytes_sent / 1000)
    assert made.to_dict()["seconds_per_tree"] == pytest.approx(made.seconds / 3)


@pytest.mark.parametrize(("protocol", "options"), [("plain", {}), ("ldp", {"mechanism": "none"})])
def test_a_level_takes_one_exchange_more_with_several_passive_parties(
    protocol: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without noise, which can end a tree early.
    monkeypatch.setattr(calibrating, "cost_of", lambda name: replace(cost_of(name), options=options))
    costs = free(protocol, rounds={"start": 2.0, "trees": 1.0, "levels": 1.0})
    for columns in ((3, 3), (3, 3, 3)):
        job = PlannedJob(2000, columns, trees=2, depth=4, bins=16)
        assert predict(protocol, job, costs).rounds == pytest.approx(measure(protocol, job).rounds, rel=0.15)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": 1}, {"features": (3,)}, {"features": (0, 0)}, {"features": (-1, 2)}, {"depth": 0}, {"trees": 0},
        {"bins": 1},
    ],
)  # fmt: skip
def test_impossible_jobs_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        PlannedJob(**({"rows": 100, "features": (2, 2)} | wrong))


# --- kept, and asked for ----------------------------------------------------------------------------------


def test_calibrations_are_kept_for_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cache" / "plan.json"
    assert load_calibrations(file) == {}
    save_calibrations(file, {"plain": free("plain", here={"rows": 2.0})})
    assert load_calibrations(file) == {"plain": free("plain", here={"rows": 2.0})}
    monkeypatch.setattr("platform.node", lambda: "another machine")
    assert load_calibrations(file) == {}
    file.write_text("{")
    with pytest.raises(UnreadableFile):
        load_calibrations(file)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which everything is known, so that nothing is measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    rows = {
        name: free(name, here={"rows": 1e-6} if spec.setting == "vertical" else {"table": 1e-7})
        for name, spec in all_protocols().items()
    }
    file = tmp_path / "veilboost" / "plan.json"
    save_calibrations(file, rows)
    return file


def ask(*words: str) -> Any:
    import json

    done = CliRunner().invoke(app, ["plan", *words, "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return json.loads(done.stdout)


def test_the_command_tells_every_protocol(kept: Path) -> None:
    told = ask("--rows", "1e8", "--features", "40,60", "--parties", "2", "--network", "1gbit,20ms")
    assert [each["protocol"] for each in told["predictions"]] == list(protocols_of("vertical"))
    assert {(each["trees"], each["depth"]) for each in told["predictions"] if each["protocol"] != "sealed"} == {
        (100, 6)
    }
    assert all(each["seconds"] == pytest.approx(1e-6 * 1e8 * each["trees"]) for each in told["predictions"])
    told = ask("--rows", "1000", "--features", "31", "--parties", "3", "--protocol", "secagg", "--protocol", "plain")
    assert told["features"] == [11, 10, 10]
    assert {each["protocol"] for each in told["predictions"]} == {"secagg", "plain"}
    shown = CliRunner().invoke(app, ["plan", "--rows", "1e6", "--features", "4,6", "--protocol", "lattice"])
    assert "lattice" in shown.stdout
    assert "without network time" in " ".join(shown.stdout.split())


def test_the_command_states_the_layout(kept: Path) -> None:
    for rows, stated in (("24000", "vectors under reused masks"), ("1e8", "levels 1 to 6 in runs")):
        (told,) = ask("--rows", rows, "--features", "11,12", "--bins", "32", "--protocol", "lattice")["predictions"]
        assert stated in told["note"]
    shown = CliRunner().invoke(app, ["plan", "--rows", "24000", "--features", "11,12", "--protocol", "lattice"])
    assert "layout auto for a line of 50 ms and 100 Mbit/s: level" in " ".join(shown.stdout.split())
    for line, stated in (("lan", "levels 1 to 6 as vectors"), ("far", "levels 2 to 6 densely")):
        words = ("--rows", "24000", "--features", "11,12", "--bins", "32", "--protocol", "lattice", "--network", line)
        assert stated in ask(*words)["predictions"][0]["note"]


@pytest.mark.parametrize(
    ("rows", "words", "size"),
    [("1e8", (), (40, 5)), ("1e4", (), (10, 3)), ("1e8", ("--trees", "60", "--depth", "4"), (60, 4))],
)
def test_a_job_is_planned_with_the_trees_that_it_would_have(
    kept: Path, rows: str, words: tuple[str, ...], size: tuple[int, int]
) -> None:
    """`sealed` chooses trees and depth for its budget and rows, unless they are given."""
    (told,) = ask("--rows", rows, "--features", "4,6", "--protocol", "sealed", *words)["predictions"]
    run = protocol_named("sealed").completed(TrainingConfig(), int(float(rows)))
    assert (told["trees"], told["depth"]) == size
    assert words or size == (run.n_estimators, run.max_depth)
    assert told["seconds"] == pytest.approx(1e-6 * float(rows) * size[0])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), UnsupportedCombination),
        (("--rows", "1e6"), UnsupportedCombination),
        (("--rows", "1e6", "--features", "a,b"), InvalidParameter),
        (("--rows", "1e6", "--features", "3,4", "--parties", "3"), UnsupportedCombination),
        (("--rows", "1e6", "--features", "3,4", "--protocol", "magic"), InvalidParameter),
        (("--rows", "1e6", "--features", "3,4", "--network", "fast"), InvalidParameter),
        (("--rows", "inf", "--features", "3,4"), InvalidParameter),
    ],
)
def test_what_cannot_be_planned_is_refused(kept: Path, words: tuple[str, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        ask(*words)


def test_what_is_not_known_is_measured_once(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(name: str, watch: Any = None, known: Any = None) -> Calibration:
        asked.append(name)
        return free(name, here={"rows": 1.0})

    monkeypatch.setattr("veilboost.plan.calibrate.calibrate", measured)
    kept.unlink()
    words = ("--rows", "100", "--features", "3,4", "--protocol", "plain")
    assert ask(*words) == ask(*words)
    assert asked == ["plain"]
    assert ask("--calibrate", "--protocol", "ldp") == {"calibrated": ["ldp"]}
    assert asked == ["plain", "ldp"]
