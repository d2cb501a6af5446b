"""Explanations between real parties over TLS: the policy decides, the quota counts, and the ledger has each release."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from two_parties import job_with, make_two, running, settings_of, trained
from veilboost.errors import PeerRefused, UnknownMessage
from veilboost.infer.joint import PredictionResponder
from veilboost.infer.messages import AllSplitsOfRows, SplitColumnsRequest
from veilboost.model.joined import join
from veilboost.party import booking, predicting
from veilboost.party.identity import PeerIdentity
from veilboost.party.messages import ProposePrediction
from veilboost.party.predicting import LivePredictor, PredictionSession, load_rows
from veilboost.party.runs import RunFolder
from veilboost.party.session import SessionContext
from veilboost.privacy.ledger import Ledger
from veilboost.wire.message import decode, encode


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_two(tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def bank(folder):
    return settings_of(folder, "bank")


@pytest.fixture(scope="module")
def shop(folder):
    return settings_of(folder, "shop")


@pytest.fixture(scope="module")
def run(bank, shop):
    with running(shop) as daemon:
        return trained(bank, job_with(daemon))


@pytest.fixture
def explain(bank, shop, run, folder, tmp_path):
    """Explain new rows with a shop that has this policy and a ledger of its own."""

    def call(**policy):
        changed = replace(shop, policy=replace(shop.policy, **policy), ledger=tmp_path / "ledger.sqlite")
        with running(changed) as daemon:
            run.save_job(run.job_text.replace(address_in(run.job_text), f"127.0.0.1:{daemon.port}"))
            predictor = LivePredictor(bank, run)
            rows = predictor.load(folder / "new.parquet")
            return predictor.explain(rows), predictor.predict(rows)

    return call


def address_in(text: str) -> str:
    return next(part for part in text.split('"') if part.startswith("127.0.0.1:"))


def releases(tmp_path):
    return Ledger(tmp_path / "ledger.sqlite").events()


def spent(shop):
    file = shop.runs / "predictions.json"
    return json.loads(file.read_text())["rows"] if file.exists() else 0


@pytest.mark.parametrize(
    ("level", "names"), [("party", {"shop"}), ("columns", {"shop#1", "shop#2"}), ("names", {"x_shop", "shade"})]
)
def test_explanations_add_up_and_are_booked(explain, run, shop, folder, tmp_path, level, names):
    before = spent(shop)
    (prediction, found), predicted = explain(explanations=level)
    assert {each for each, party in zip(found.feature_names, found.parties, strict=True) if party == "shop"} <= names
    np.testing.assert_allclose(prediction.scores, predicted.scores, atol=1e-12)
    assert prediction.ids.tolist() == predicted.ids.tolist()
    share = RunFolder(shop.runs / "first").load_share()
    model = join({"bank": run.load_share(), "shop": share})
    rows = {"bank": load_rows(folder / "new.parquet", "id", run.load_share().columns)}
    table = load_rows(folder / "shop.parquet", "id", share.columns)
    place = {name: at for at, name in enumerate(table.ids.tolist())}
    rows["shop"] = table.take(np.array([place[name] for name in rows["bank"].ids.tolist()]))
    whole = model.explain({name: each.columns for name, each in rows.items()})
    for party in ("bank", "shop"):
        ours, theirs = (
            each.values[:, [owner == party for owner in each.parties]].sum(axis=1) for each in (found, whole)
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    (booked,) = releases(tmp_path)
    assert (booked.rows, booked.assignments, booked.adversary) == (10, share.records.count, "bank")
    assert not booked.counted
    assert spent(shop) == before + 20, "an explanation counts as a prediction, and so does the prediction"


def test_a_policy_without_explanations_refuses_before_anything_is_spent(explain, shop, tmp_path):
    before = spent(shop)
    with pytest.raises(PeerRefused, match="VB-1612: the policy rule explanations refuses it"):
        explain()  # the default
    assert spent(shop) == before
    assert not releases(tmp_path)


def test_explanations_share_the_limit_on_assignments_with_jobs(explain, shop, tmp_path):
    splits = RunFolder(shop.runs / "first").load_share().records.count
    explain(explanations="party", assignments_total=2 * splits)
    explain(explanations="party", assignments_total=2 * splits)
    with pytest.raises(PeerRefused, match="VB-1612: the policy rule assignments_total refuses it"):
        explain(explanations="party", assignments_total=2 * splits)
    assert len(releases(tmp_path)) == 2


@pytest.mark.parametrize("message", [AllSplitsOfRows(0, 10), SplitColumnsRequest()])
def test_a_prediction_cannot_ask_for_splits_that_no_row_visits(shop, run, message):
    peer = PeerIdentity("bank", "", datetime.now(UTC), 1)
    context = SessionContext(shop, None, os.urandom(16), peer, None, None, {})
    session = PredictionSession(context, ProposePrediction("first", run.job_text, 10))
    try:
        with pytest.raises(UnknownMessage):
            decode(encode(message), session.catalogue)
    finally:
        session.give_up()


def test_nothing_is_answered_if_it_cannot_be_booked(explain, monkeypatch, tmp_path):
    answered = []
    original = predicting.ExplanationResponder.handle
    monkeypatch.setattr(
        predicting.ExplanationResponder,
        "handle",
        lambda self, message: (answered.append(message), original(self, message))[1],
    )
    monkeypatch.setattr(booking.Ledger, "append", lambda *_: 1 / 0)
    with pytest.raises(PeerRefused):
        explain()
    assert not answered


def test_the_depth_of_the_trees_is_that_of_the_trained_job_not_of_the_proposal(
    bank, shop, run, folder, tmp_path, monkeypatch
):
    depths = []

    def responder(share, values, max_depth):
        depths.append(max_depth)
        return PredictionResponder(share, values, max_depth)

    monkeypatch.setattr(predicting, "PredictionResponder", responder)
    with running(replace(shop, ledger=tmp_path / "ledger.sqlite")) as daemon:
        run.save_job(run.job_text.replace(address_in(run.job_text), f"127.0.0.1:{daemon.port}"))
        predictor = LivePredictor(bank, run)
        depth = predictor.job.training.max_depth
        predictor._text = predictor._text.replace(f"max_depth = {depth}", "max_depth = 16")
        assert "max_depth = 16" in predictor._text
        predictor.predict(predictor.load(folder / "new.parquet"))
    assert depths == [depth]
