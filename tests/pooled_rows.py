"""Rows of a `Town` that all its parties know, and the scores that pooled tables and shares would give them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parties import PARTIES, Town
from veilboost.boost.objective import make_objective
from veilboost.data.load import load_table
from veilboost.model.joined import join


def tables(town: Town) -> dict[str, pa.Table]:
    return {party: pq.read_table(town.folder / f"{party}.parquet") for party in PARTIES}


def known_to_all(town: Town) -> list[str]:
    return sorted(set.intersection(*(set(table["id"].to_pylist()) for table in tables(town).values())))


def new_rows(town: Town, ids: list[str]) -> pa.Table:
    """The bank's columns of these people, in this order, without labels."""
    bank = tables(town)["bank"].drop_columns(["label"])
    place = {id: at for at, id in enumerate(bank["id"].to_pylist())}
    return bank.take([place[id] for id in ids])


def expected(town: Town, ids: list[str]) -> list[float]:
    """What the whole model gives, if it and the tables were pooled."""
    columns = []
    for party in PARTIES:
        table = load_table(
            town.folder / f"{party}.parquet", id="id", **({"label": "label"} if party == "bank" else {})
        ).sorted_by_id()
        columns += table.take(np.searchsorted(table.ids, ids)).columns
    model = join({party: town.run_folder(party).load_share() for party in PARTIES})
    return make_objective("binary").predict(model.margins(columns)).tolist()
