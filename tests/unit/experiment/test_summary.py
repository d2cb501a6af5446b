"""One summary of a run in either setting: what programs read of it, and what people do."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from support import make_columns, make_labels, split_among
from veilboost.cli.summary import print_summary
from veilboost.config import TrainingConfig
from veilboost.errors import UnsupportedCombination
from veilboost.experiment.problem import Problem, draw_rows
from veilboost.experiment.run import RunOptions, run
from veilboost.experiment.summary import RunSummary
from veilboost.protocols.registry import protocol_named

pytestmark = pytest.mark.fast

BOTH = {
    "protocol", "objective", "rows_train", "rows_test", "features", "trees", "trees_per_round", "depth", "metric",
    "value", "auc", "auc_xgboost", "fit_seconds", "fit_seconds_xgboost", "bytes_sent", "bytes_sent_by_party",
    "messages", "rounds", "model_sha256", "status", "protections", "learned", "privacy", "random_state",
}  # fmt: skip
KEYS = {
    "plain": BOTH
    | {
        "rows", "rows_validation", "parties", "active", "columns", "auc_active_only", "seconds_per_tree",
        "seconds_per_tree_xgboost", "peak_rss_mb", "security_bits", "n_jobs", "engine", "workers",
    },
    "secagg": BOTH
    | {
        "setting", "rows_by_participant", "participants", "dropped", "max_bin", "options", "auc_one_participant",
        "train_seconds", "prepare_seconds", "validation", "reports", "exposed_rows", "labels_broken",
    },
}  # fmt: skip


def problem(parties: int, held_out: bool = False) -> Problem:
    columns = make_columns(3, 400, numeric=4, categorical=1)
    tables = split_among(columns, make_labels(3, columns), parties)
    test = draw_rows(400, 0.25, (0,))
    train = {name: table.take(~test) for name, table in tables.items()}
    watched = draw_rows(300, 0.2, (1,)) if held_out else None
    return Problem("p0", train, {name: table.take(test) for name, table in tables.items()}, watched)


def simulated(protocol: str, **options: object) -> RunSummary:
    config = TrainingConfig(objective="binary", n_estimators=4, max_depth=2, max_bin=16)
    given = problem(2 if protocol == "plain" else 1, held_out=True)
    return run(given, protocol_named(protocol), config, RunOptions(participants=3, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["plain", "secagg"])
def test_programs_find_the_keys_they_know(protocol: str) -> None:
    done = simulated(protocol, baselines=False)
    told = done.to_dict()
    assert set(told) == KEYS[protocol]
    assert told["auc"] == told["value"] == done.together
    assert (told["auc_xgboost"], done.alone, done.central) == (None, None, None)
    assert sum(told["bytes_sent_by_party"].values()) == told["bytes_sent"]
    assert set(told["learned"]) == set(done.members)
    attacked = replace(done, findings=[])
    assert set(attacked.to_dict()) == KEYS[protocol] | {"findings"}


@pytest.mark.parametrize("protocol", ["plain", "secagg"])
def test_a_page_tells_what_the_summary_does(protocol: str) -> None:
    done = simulated(protocol, curves=True, audit=True)
    facts = done.facts()
    assert list(facts.quality.values()) == [done.alone, done.together, done.central]
    assert facts.curves["test rows"][-1] == (4.0, done.together)
    assert len(facts.curves["validation rows"]) == 4
    assert set(facts.parties) == set(done.members) == set(facts.bytes_sent)
    assert len(facts.findings or ()) == len(done.findings or ()) > 0
    assert sum(each["bytes"] for each in facts.exchanges) == sum(done.bytes_sent.values())
    json.dumps(facts.to_dict(), allow_nan=False)


def test_people_read_of_many_participants_what_fits_on_a_screen() -> None:
    config = TrainingConfig(objective="binary", n_estimators=2, max_depth=2, max_bin=16)
    done = run(problem(1), protocol_named("secagg"), config, RunOptions(participants=9))
    out = io.StringIO()
    lost = replace(done, dropped={"participant8": "no answer"}, reports={"participant0": {"exposed_rows": 3}})
    print_summary(Console(file=out, width=200), lost, None)
    text = out.getvalue()
    assert "and 3 more parties" in text
    assert "participant5 and 3 more" in text
    assert "participant6" not in text
    assert "alone, one participant" in text
    assert "together, 9 participants" in text
    assert "participant8 dropped out: no answer" in text
    assert "3 labels were sent although" in text


def test_lines_of_a_network() -> None:
    done = simulated("secagg", baselines=False)
    told = done.on_network("8mbit,1s")
    assert told["network_seconds"] > told["network_seconds_own_lines"] > 2 * done.busiest[0]


def test_early_stopping_needs_rows_to_watch() -> None:
    config = TrainingConfig(objective="binary", early_stopping_rounds=2)
    with pytest.raises(UnsupportedCombination, match="validation"):
        run(problem(2), protocol_named("plain"), config, RunOptions())
