"""Verdicts follow the numbers: the same target says yes, partly or no for numbers that are made up."""

from __future__ import annotations

from typing import Any

import pytest

from papers.fedxgboost import losses, overhead, timing
from papers.maskedxgboost import attacks, communication, curves, table3, theorem3
from papers.rows import over_seeds, the

pytestmark = pytest.mark.fast


def test_published_numbers_of_maskedxgboost_table_3() -> None:
    ratio = {
        data: the(table3.PUBLISHED, "seconds_per_tree", method="HE-XGBoost", data=data)
        / the(table3.PUBLISHED, "seconds_per_tree", method="MaskedXGBoost", data=data)
        for data in ("adult", "nomao", "default_credit", "higgs46k")
    }
    # The first two stand in the abstract, the others only in the table.
    assert ratio == pytest.approx({"adult": 4.82, "nomao": 6.72, "default_credit": 3.56, "higgs46k": 4.27}, abs=0.01)


def timed(masked: float, encrypted: float) -> list[dict[str, Any]]:
    seconds = {"XGBoost-NonPrivate": 0.1, "MaskedXGBoost": masked, "HE-XGBoost": encrypted}
    keys = {"MaskedXGBoost": ("W = 1", "W = 3"), "HE-XGBoost": ("512 bits",)}
    values = ("seconds_per_tree", "cpu_seconds_per_tree", "megabytes_per_tree", "rounds_per_tree", "peak_rss_mb")
    return [
        {"data": data, "method": method, "key": key, "seed": 0} | dict.fromkeys(values, value)
        for data in ("adult", "bank")
        for method, value in seconds.items()
        for key in keys.get(method, ("",))
    ]


@pytest.mark.parametrize(("masked", "encrypted", "holds"), [(1.0, 5.0, "yes"), (5.0, 1.0, "no")])
def test_table_3(masked: float, encrypted: float, holds: str) -> None:
    rows = table3.table(over_seeds(timed(masked, encrypted), ("data", "method", "key", "seed")))
    assert table3.RULE.verdict(rows) == holds
    assert the(rows, "paper_times_masked", data="adult", method="HE-XGBoost") == pytest.approx(4.82, abs=0.01)
    assert the(rows, "times_masked_w3", data="adult", method="HE-XGBoost") == encrypted / masked


@pytest.mark.parametrize(("leads", "holds"), [((0.1, 0.1), "yes"), ((0.1, -0.1), "partly"), ((-0.1, -0.1), "no")])
def test_utility(leads: tuple[float, float], holds: str) -> None:
    rows = [
        {"data": "adult", "method": method, "reading": reading, "eps_ap": epsilon, "auc": 0.7 + lead}
        for epsilon, ahead in zip((1.0, 8.0), leads, strict=True)
        for method, reading, lead in (
            ("MaskedXGBoost", curves.ENTRY, ahead),
            ("MaskedXGBoost", curves.COMPOSED, -ahead),  # what does not decide
            ("XGBoost-LDP", curves.COMPOSED, 0.0),
            ("FedXGBoost-LDP", curves.COMPOSED, -0.05),
        )
    ]
    assert curves.UTILITY_RULE.verdict(rows) == holds


def test_the_reason_of_utility_has_the_shares_of_the_reading_that_decides() -> None:
    rows = [
        {"data": data, "method": method, "reading": reading, "eps_ap": epsilon, "auc": auc, "passive_share": share}
        for data in ("adult", "bank")
        for method, reading, epsilon, auc, share in (
            ("active party alone", "", 0.0, 0.6, 0.0),
            ("MaskedXGBoost", curves.ENTRY, 1.0, 0.5, 0.9),  # not the largest budget
            ("MaskedXGBoost", curves.ENTRY, 8.0, 0.7, 0.5 if data == "bank" else 0.25),
            ("MaskedXGBoost", curves.COMPOSED, 8.0, 0.65, 0.125),
        )
    ]
    why = curves.utility_claim(rows).why
    assert why.startswith("Of the splits at eps_AP = 8, 25.0% to 50.0% are the passive party's where epsilon is of one")
    assert "12.5% to 12.5% where it is of the whole vector" in why
    assert "Adult 0.700, 0.650, 0.600; Bank 0.700, 0.650, 0.600" in why


@pytest.mark.parametrize(("masked", "others", "holds"), [(0.1, -0.1, "yes"), (-0.1, -0.1, "partly"), (-0.1, 0.1, "no")])
def test_convergence(masked: float, others: float, holds: str) -> None:
    measured = [
        {
            "data": "adult",
            "method": method,
            "reading": "composed",
            "eps_ap": 8.0,
            "eps_pp": 1.0,
            "auc": [0.7, 0.7 + rise],
        }
        for method, rise in (("MaskedXGBoost", masked), ("XGBoost-LDP", others), ("FedXGBoost-LDP", others))
    ]
    assert curves.CONVERGENCE_RULE.verdict(curves.convergence_table(measured)) == holds


@pytest.mark.parametrize(("rise", "holds"), [(0.1, "yes"), (-0.1, "no")])
def test_ablation(rise: float, holds: str) -> None:
    rows = [
        {"data": "adult", "reading": reading, "eps_pp": eps, "final_auc": 0.7 + rise * at}
        for reading in curves.READINGS
        for at, eps in enumerate(curves.EPSILONS_PP)
    ]
    assert curves.ABLATION_RULE.verdict(rows) == holds


@pytest.mark.parametrize(("paper", "ours", "holds"), [(0.5, 1.0, "no"), (0.5, 0.5, "yes"), (0.8, 0.5, "no")])
def test_attacks_on_labels(paper: float, ours: float, holds: str) -> None:
    assert attacks.LABEL_RULE.verdict([{"paper": paper, "ours": ours}]) == holds


@pytest.mark.parametrize(("paper", "ours", "holds"), [(0.5, 1.0, "partly"), (0.5, 0.5, "yes"), (0.8, 0.9, "no")])
def test_attacks_on_features(paper: float, ours: float, holds: str) -> None:
    rows = [{"paper": paper, "ours": ours, "eps_pp": eps} for eps in attacks.EPSILONS_PP]
    assert attacks.FEATURE_RULE.verdict(rows) == holds


def test_formulas_of_appendix_f_give_the_papers_numbers() -> None:
    formula = {kind.name: kind.by_formula for kind in communication.KINDS}
    for row in communication.PUBLISHED:
        assert formula[row["method"]] == pytest.approx(row["megabytes"], rel=0.07)


def test_the_printed_bound_of_theorem_3_is_passed() -> None:
    found = theorem3._deltas(6.0, 1.0)
    assert found["printed"] == pytest.approx(8.8e-5, rel=0.01)
    assert found["true"] == pytest.approx(2.36e-4, rel=0.01)


@pytest.mark.parametrize(("noise", "encryption", "holds"), [(0.11, 1.0, "yes"), (0.3, 1.0, "partly"), (0.3, 0.2, "no")])
def test_fedxgboost_times(noise: float, encryption: float, holds: str) -> None:
    published = timing.PUBLISHED[timing.CREDIT_1]
    measured = []
    for row in published:
        first = "First" in row["parameter"]
        seconds = {"Plain XGBoost": 0.1, "Paillier Encryption": encryption}.get(
            row["method"], noise * (0.9 if first else 1)
        )
        values = dict.fromkeys(timing._VALUES, seconds)
        measured.append(
            {"data": timing.CREDIT_1, "method": row["method"], "parameter": row["parameter"], "seed": 0, **values}
        )
    rows = timing.table(measured)
    assert timing.RULE.verdict(rows) == holds
    assert the(rows, "paper_times_plain", method="Paillier Encryption") == 6.0


@pytest.mark.parametrize(("late", "holds"), [((0.301, 0.301), "yes"), ((0.301, 0.4), "partly"), ((0.4, 0.4), "no")])
def test_losses(late: tuple[float, float], holds: str) -> None:
    key = {"data": "x", "epsilon": 1.0, "form": "as published", "test_auc": [0.5, 0.6]}
    measured = [{**key, "mechanism": "none", "order": "second", "loss": [0.5, 0.3], "test_loss": [0.5, 0.3]}]
    measured += [
        {**key, "mechanism": "laplace", "order": order, "loss": [0.5, loss], "test_loss": [0.5, loss]}
        for order, loss in zip(("second", "first"), late, strict=True)
    ]
    rows = losses.table(measured)
    assert losses.RULE.verdict(rows) == holds
    assert rows[1]["not_learnt"] == pytest.approx((late[0] - 0.3) / 0.2)


@pytest.mark.parametrize(("smm", "model", "holds"), [(0.1, "m", "yes"), (9.0, "m", "partly"), (9.0, "n", "no")])
def test_smm_overhead(smm: float, model: str, holds: str) -> None:
    few = [(method.name, method.reading) for method in overhead.METHODS]
    many = [(name, overhead.MANY) for name in overhead.SMM]
    measured = [
        {"data": "synthetic", "rows": 1000, "protocol": name, "key": key, "seed": 0}
        | dict.fromkeys(overhead._VALUES, smm if name in overhead.SMM else 1.0)
        | {"sha256": model if name in overhead.SMM else "m"}
        for name, key in (*few, *many)
    ]
    assert overhead.RULE.verdict(overhead.table(measured)) == holds
