"""What every horizontal protocol must keep, whatever it protects."""

from __future__ import annotations

import importlib.resources
import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scenes import HORIZONTAL_SCENES
from scenes import horizontal_config as config
from scenes import horizontal_tables as tables
from veilboost.config import TrainingConfig
from veilboost.errors import EmptyTable, ImpossibleParameter, MissingColumn, MixedTypes, UnexpectedMessage
from veilboost.party.simulation import SERVER, HorizontalFederation, simulate_training
from veilboost.privacy.statement import Status
from veilboost.protocols.registry import protocols_of
from veilboost.types import Column

PROTOCOLS = list(protocols_of("horizontal").values())
pytestmark = [pytest.mark.fast, pytest.mark.parametrize("spec", PROTOCOLS, ids=lambda spec: spec.name)]

# Messages that a run of two bounded losses does not need.
RARE = {
    "secagg": {"ScaleRequest", "ScaleAnswer", "MetricRequest", "MaskedMetric"},
    "mal": {"ExtremesMissing", "RowsHeldBack"},
}


@pytest.mark.parametrize("name", HORIZONTAL_SCENES)
def test_every_participant_ends_with_the_servers_model(spec, name):
    run = HorizontalFederation(spec.name, tables(name), config(name), coded=True).train()
    assert len(run.model.trees) == 4 * run.model.trees_per_round
    for part in run.parts.values():
        assert part is not None
        assert part.skeleton is not None
        assert np.array_equal(part.records.threshold, run.outcome.part.records.threshold)
        assert part.skeleton.config == run.outcome.part.skeleton.config


def test_only_declared_messages_travel_and_all_declared_ones_do(spec):
    run = simulate_training(tables(), SERVER, spec.name, config())
    sent = {entry.message for transcript in run.transcripts.values() for entry in transcript.entries}
    assert sent | RARE[spec.name] == {message.type_name() for message in spec.messages}


def test_messages_reach_whom_their_classes_say(spec):
    run = simulate_training(tables(), SERVER, spec.name, config())
    reveals = {message.type_name(): {item.to for item in message.reveals} for message in spec.messages}
    roles = {name: name if name in spec.roles else "participant" for name in run.transcripts}
    for name, transcript in run.transcripts.items():
        for entry in transcript.entries:
            if entry.direction == "received":
                assert reveals[entry.message] <= {roles[name]}, entry.message


def test_the_ledger_knows_what_left(spec):
    run = simulate_training(tables(), SERVER, spec.name, config())
    assert all(account.events for account in run.accounts.values())
    assert all(event.protocol == spec.name for account in run.accounts.values() for event in account.events)


def test_a_seed_repeats_a_run(spec):
    runs = [simulate_training(tables(), SERVER, spec.name, config(), unsafe_noise_seed=1) for _ in range(2)]
    assert runs[0].model.sha256() == runs[1].model.sha256()
    assert runs[0].bytes_sent == runs[1].bytes_sent


def test_impossible_federations_are_refused(spec):
    with pytest.raises(EmptyTable):
        simulate_training({}, SERVER, spec.name, config())
    with pytest.raises(ImpossibleParameter, match="role"):
        simulate_training({"server": tables()["p0"]}, SERVER, spec.name, config())
    with pytest.raises(ImpossibleParameter):
        simulate_training(
            tables(), SERVER, spec.name, TrainingConfig.from_dict(config().to_dict() | {"options": {"no_such": 1}})
        )


def test_different_columns_and_kinds_are_refused_before_any_row_leaves(spec):
    parts = tables()
    first, *rest = parts["p1"].columns
    for column, error in [
        (replace(first, name="other"), MissingColumn),
        (Column(first.name, np.zeros(parts["p1"].rows, dtype=np.int32), ("x",)), MixedTypes),
    ]:
        federation = HorizontalFederation(
            spec.name, {**parts, "p1": replace(parts["p1"], columns=(column, *rest))}, config()
        )
        with pytest.raises(error, match=r"p1|numbers"):
            federation.train()
        assert federation.peers.rounds == 0
        assert not federation.accounts["p0"].events


def test_an_introduction_of_another_protocol_is_refused(spec):
    other = next(each for each in PROTOCOLS if each.name != spec.name)
    stranger = HorizontalFederation(other.name, tables(), config()).participants["p1"].introduce()
    federation = HorizontalFederation(spec.name, tables(), config())
    federation.server._context.introductions["p1"] = stranger
    with pytest.raises(UnexpectedMessage, match="p1 introduced itself"):
        federation.train()


def test_the_statement_speaks_for_participants_and_the_page_repeats_it(spec):
    assert spec.statement.worst_for("participant") in tuple(Status)
    folder = Path(inspect.getfile(spec.roles["server"])).parent
    text = (folder / "LEAKAGE.md").read_text(encoding="utf-8")
    assert importlib.resources.files(f"veilboost.protocols.{spec.name}").joinpath("LEAKAGE.md").is_file()
    for message in spec.messages:
        assert f"`{message.type_name()}`" in text, f"{message.type_name()} is not named"
        for item in message.reveals:
            assert f'"{item.what}"' in text, f"not in its own words: {item.what}"
    for protection in spec.statement.protections:
        assert f"**{protection.status}**" in text
        assert protection.why in text
