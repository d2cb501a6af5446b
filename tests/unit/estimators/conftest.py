"""A small town for the estimators: 240 people, six columns, two of them categories, some values missing."""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def people() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    rows = 240
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, rows).astype(float),
            "income": rng.normal(30, 8, rows).round(1),
            "branch": rng.integers(1, 6, rows),
            "basket": rng.gamma(2.0, 20.0, rows).round(1),
            "visits": rng.integers(0, 12, rows),
            "city": rng.choice(["Aachen", "Bonn", "Celle", "Dresden"], rows),
        }
    )
    risk = (
        0.05 * (frame["age"] - 45) - 0.1 * (frame["income"] - 30) + 0.03 * frame["basket"] + (frame["city"] == "Bonn")
    )
    frame.loc[rng.random(rows) < 0.1, "income"] = np.nan
    frame.loc[rng.random(rows) < 0.1, "city"] = None
    frame["value"] = (risk + rng.normal(0, 0.5, rows)).round(2)
    frame["late"] = (frame["value"] > frame["value"].median()).astype(int)
    frame["customer_id"] = rng.permutation(1000)[:rows]
    return frame


@pytest.fixture
def bank(people: pd.DataFrame) -> pd.DataFrame:
    """The active party: 200 of the people."""
    return people[["customer_id", "age", "income", "branch", "late"]].iloc[:200].reset_index(drop=True)


@pytest.fixture
def shop(people: pd.DataFrame) -> pd.DataFrame:
    """The passive party: 210 of the people, 170 of them the bank's, in another order."""
    known = people[["customer_id", "basket", "visits", "city"]].iloc[30:]
    return known.sample(frac=1.0, random_state=3).reset_index(drop=True)
