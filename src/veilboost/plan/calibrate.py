"""What a unit of work costs here: small runs, and costs of units that explain them best."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost import __version__
from veilboost.errors import UnreadableFile
from veilboost.plan.measure import Measured, measure
from veilboost.plan.units import cost_of, of_first, of_later, units_of
from veilboost.protocols.cost import ONCE, InTurn, PlannedJob, Units
from veilboost.protocols.registry import protocol_named
from veilboost.types import Float64Array

FILE = "plan.json"
_FORMAT = "veilboost-plan 3"
UnitCosts = Mapping[str, float]  # by unit
# Jobs are run in turns, and the quickest run of each counts: the rest is noise, which comes and goes. Who takes part in
# a turn, by seconds.
_TURNS = (float("inf"), 3.0, *3 * (0.5,), *8 * (0.1,))
# A smallest run whose size is not declared: rows to begin with, until so many or so many seconds are reached.
_FEW_ROWS, _MANY_ROWS, _MOMENT = 100, 2_000, 0.02
_LEAST_SHARE = 0.1  # of a run's seconds: smaller parts of it are fitted no better than parts of this size


@dataclass(frozen=True)
class Calibration:
    """UnitCosts of a protocol's units: seconds before the first round and in rounds, here and there; bytes sent and
    answered, answers waited for, and the largest message."""

    once_here: UnitCosts
    once_there: UnitCosts
    here: UnitCosts
    there: UnitCosts
    sent: UnitCosts
    answered: UnitCosts
    rounds: UnitCosts
    largest: UnitCosts


def calibrate(
    protocol: str,
    watch: Callable[[int, int], None] | None = None,
    known: Mapping[str, Calibration] | None = None,
) -> Calibration:
    """Train some small jobs of different shapes, and fit. `watch` is told how many of how many are done.

    A protocol whose first tree is another's is put together out of both; what of them is `known` is not measured again.
    """
    declared = protocol_named(protocol).cost
    if isinstance(declared, InTurn):
        parts = ((known or {}).get(name) or calibrate(name, watch) for name in (declared.first, declared.later))
        return in_turn(declared, *parts)
    jobs = list(_jobs(protocol))
    best: dict[PlannedJob, Measured] = {}
    for turn, most in enumerate(_TURNS):
        for at, job in enumerate(jobs):
            if watch is not None:
                watch(turn * len(jobs) + at, len(_TURNS) * len(jobs))
            if job not in best:
                best[job] = measure(protocol, job)
            elif best[job].seconds < most:
                best[job] = min(best[job], measure(protocol, job), key=lambda run: run.seconds)
    return fit(protocol, list(best.values()))


def fit(protocol: str, runs: Sequence[Measured]) -> Calibration:
    """UnitCosts that explain the runs with the smallest relative errors; no unit costs less than nothing."""
    cost = cost_of(protocol)
    units = [units_of(cost, run.job) for run in runs]
    single = [units_of(cost, replace(run.job, trees=1)) for run in runs]
    least = [_LEAST_SHARE * run.seconds for run in runs]
    # A message is at most what a whole tree sends one way.
    shapes = tuple(dict.fromkeys((*cost.sent, *cost.answered)))
    return Calibration(
        once_here=_solve(cost.once_here, units, [run.once_here for run in runs], least),
        once_there=_solve(cost.once_there, units, [run.once_there for run in runs], least),
        here=_solve(cost.here, units, [run.here for run in runs], least),
        there=_solve(cost.there, units, [run.there for run in runs], least),
        sent=_solve(cost.sent, units, [run.sent for run in runs]),
        answered=_solve(cost.answered, units, [run.answered for run in runs]),
        rounds=_solve(cost.steps, units, [run.rounds for run in runs]),
        largest=_solve(shapes, single, [run.largest for run in runs]),
    )


def in_turn(turns: InTurn, first: Calibration, later: Calibration) -> Calibration:
    """The first tree, and all that is done once, as in one protocol, all other trees as in another."""
    of_all = cost_of(turns.first)

    def joined(name: str) -> UnitCosts:
        of_one, of_other = getattr(first, name), getattr(later, name)
        return {of_first(unit, of_all): cost for unit, cost in of_one.items()} | {
            of_later(unit): cost for unit, cost in of_other.items() if unit not in ONCE
        }

    return Calibration(**{field.name: joined(field.name) for field in fields(Calibration)})


def _jobs(protocol: str) -> Iterator[PlannedJob]:
    """Shapes in which rows, columns, levels, bins and trees differ, so that their costs can be told apart."""
    cost = cost_of(protocol)
    far = cost.reach
    if protocol_named(protocol).setting == "horizontal":
        scale = cost.scale or _scale(protocol, PlannedJob(_FEW_ROWS, (4,), 2, 2, 8, 3))
        for rows, people, columns, depth, bins, trees in (
            (1, 3, 4, 2, 8, 2), (3, 6, 4, 3, 16, 4), (10, 4, 8, 4, 16, 2), (3, 4, 12, 3, 8, 3), (10, 8, 4, 3, 32, 2),
            (far, 4, 6, 3, 16, 2), (far // 2, 3, 9, 4, 32, 3), (1, 10, 6, 5, 16, 2),
        ):  # fmt: skip
            yield PlannedJob(scale * rows, (columns,), trees, depth, bins, people)
        return
    scale = cost.scale or _scale(protocol, PlannedJob(_FEW_ROWS, (4, 4), 1, 3, 16))
    for rows, own, other, depth, bins, trees in (
        (1, 4, 4, 3, 16, 1), (3, 4, 4, 6, 16, 2), (10, 4, 4, 4, 16, 3), (3, 9, 2, 4, 32, 1), (3, 2, 9, 4, 32, 2),
        (1, 4, 8, 5, 64, 3), (10, 6, 6, 5, 32, 2), (1, 2, 2, 4, 16, 6), (far, *cost.far),
    ):  # fmt: skip
        yield PlannedJob(scale * rows, (own, other), min(trees, cost.most_trees), depth, bins)


def _scale(protocol: str, job: PlannedJob) -> int:
    """Rows of the smallest run, of a protocol that does not declare them: as many as take a moment."""
    while job.rows < _MANY_ROWS and measure(protocol, job).seconds < _MOMENT:
        job = replace(job, rows=3 * job.rows)
    return job.rows


def _solve(
    names: Sequence[str], units: Sequence[Units], measured: Sequence[float], least: Sequence[float] = ()
) -> UnitCosts:
    """`least`: what is less need not be met more closely than this."""
    if not names:
        return {}
    optimize: Any = import_module("scipy.optimize")
    target = np.maximum(np.array(measured), 1e-9)
    within = np.maximum(target, least) if len(least) else target
    work = np.array([[each[name] for name in names] for each in units])
    scale = np.maximum(work.max(axis=0), 1e-12)
    found: Float64Array = optimize.nnls(work / scale / within[:, np.newaxis], target / within)[0] / scale
    return dict(zip(names, found.tolist(), strict=True))


# --- kept between commands ----------------------------------------------------------------------------------


def cache_file() -> Path:
    """Where calibrations are kept: the user's cache, as the system has it."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "veilboost" / FILE


def load_calibrations(file: Path) -> dict[str, Calibration]:
    """Those of this machine and release; none where there is no file, or it is of another.

    Raises
    ------
    UnreadableFile
        The file is damaged.
    """
    try:
        kept: Any = json.loads(file.read_text(encoding="utf-8"))
        if kept["format"] != _FORMAT or kept["of"] != _whose():
            return {}
        return {str(name): Calibration(**costs) for name, costs in cast(dict[str, Any], kept["protocols"]).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError):
        raise UnreadableFile(
            f"{file} is not a calibration", "remove it, and veilboost plan --calibrate again"
        ) from None


def save_calibrations(file: Path, found: Mapping[str, Calibration]) -> None:
    kept = {name: vars(each) for name, each in found.items()}
    text = json.dumps({"format": _FORMAT, "of": _whose(), "protocols": kept}, indent=1)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(file)


def _whose() -> dict[str, str]:
    """A home folder may be shared between machines."""
    return {"release": __version__, "machine": platform.node(), "processor": platform.machine()}
