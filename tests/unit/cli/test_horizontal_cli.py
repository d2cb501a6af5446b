"""`simulate` with rows in different hands, and the network model."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from veilboost.cli.main import app
from veilboost.errors import ImpossibleParameter, UnknownProtocol, UnsupportedCombination, VeilBoostError
from veilboost.protocols.registry import protocol_named
from veilboost.wire.network import Network
from veilboost.wire.transcript import Entry

pytestmark = pytest.mark.fast


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 4))
    label = (values.sum(axis=1) + rng.normal(size=400) > 0).astype(int)
    path = tmp_path / "all.parquet"
    columns = {f"x{k}": values[:, k] for k in range(4)}
    pq.write_table(pa.table({"id": np.arange(400), "label": label} | columns), path)
    return path


def simulate(table, *options):
    arguments = ["simulate", "--data", str(table), "--id", "id", "--label", "label", *options]
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_mal_with_the_options_of_its_own(table):
    out = simulate(
        table, "--setting", "horizontal", "--protocol", "mal", "--participants", "3", "--buckets", "8", "--eps", "4",
        "--trees", "10", "--network", "20mbit,100ms", "--threads", "1", "--json",
    )  # fmt: skip
    told = json.loads(out)
    assert (told["participants"], told["depth"], told["max_bin"], told["trees"]) == (3, 1, 8, 10)
    assert told["options"]["epsilon"] == 4.0
    assert told["rounds"] == 3
    assert told["auc"] > 0.6
    assert told["network_seconds"] > 0.6
    assert told["privacy"]["participant0"]
    assert told["labels_broken"] is False
    assert set(told["learned"]) == {"server", "participant0", "participant1", "participant2", "comparer", "authority"}


def test_noise_off_and_masks_not_needed(table):
    out = simulate(
        table, "--protocol", "mal", "--participants", "20", "--eps", "inf", "--allow-unmasked", "--buckets", "16",
        "--trees", "5", "--no-baselines", "--json",
    )  # fmt: skip
    told = json.loads(out)
    assert told["options"] == {"epsilon": 0.0, "guard": "allow"}
    assert told["labels_broken"] is True
    assert told["exposed_rows"] > 100


def test_secagg_and_a_report_for_people(table, tmp_path):
    out = simulate(
        table, "--protocol", "secagg", "--participants", "2", "--trees", "5", "--depth", "2", "--save",
        str(tmp_path / "model"),
    )  # fmt: skip
    assert "one participant alone" in out
    assert "sound" in out
    assert (tmp_path / "model").is_dir()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--protocol", "mal", "--parties", "2"], UnsupportedCombination),
        (["--protocol", "mal", "--setting", "vertical"], UnsupportedCombination),
        (["--protocol", "plain", "--setting", "horizontal"], UnsupportedCombination),
        (["--protocol", "plain", "--participants", "3"], UnsupportedCombination),
        (["--protocol", "secagg", "--eps", "1"], UnsupportedCombination),
        (["--protocol", "mal", "--eps", "0"], ImpossibleParameter),
        (["--protocol", "mal", "--setting", "diagonal"], ImpossibleParameter),
        (["--protocol", "mal", "--participants", "0"], ImpossibleParameter),
        (["--protocol", "mal", "--participants", "1000"], VeilBoostError),
        (["--protocol", "mal", "--validation-size", "0.2"], UnsupportedCombination),
        (["--protocol", "mal", "--trees", "2", "--network", "fast"], ImpossibleParameter),
    ],
)
def test_what_does_not_go_together_is_refused(table, options, error):
    with pytest.raises(error):
        simulate(table, *options, "--no-baselines")


def test_a_horizontal_name_where_columns_are_divided():
    with pytest.raises(UnknownProtocol, match="rows in different hands"):
        protocol_named("mal")


def test_networks():
    line = Network.parse("20mbit,100ms")
    assert line == Network(2e7, 0.1)
    assert line.seconds(2, 2_500_000) == pytest.approx(1.4)
    entries = [
        Entry(0.0, "sent", "a", "M", 1000),
        Entry(0.0, "sent", "b", "M", 1000),
        Entry(0.0, "received", "a", "M", 500),
        Entry(0.0, "received", "b", "M", 500),
        Entry(0.0, "sent", "a", "M", 0),
    ]
    assert line.replay(entries) == pytest.approx(3 * 0.1 + 8 * 3000 / 2e7)
    for text in ("", "20mbit", "0mbit,1ms", "20mb,1ms", "-1mbit,1ms"):
        with pytest.raises(ImpossibleParameter):
            Network.parse(text)
