"""Which layout a job and its levels use: a function of sizes and the line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support import make_columns, make_labels, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.crypto.lattice.masks import mask_sizes
from veilboost.protocols.lattice.choice import (
    JobSizes,
    choose,
    dense_level,
    dense_price,
    leaf_bytes,
    runs_price,
    vectors_price,
)
from veilboost.protocols.lattice.layouts import BYTES_AT_ONCE
from veilboost.wire.channel import Peers
from veilboost.wire.transcript import LINES, Network

pytestmark = pytest.mark.fast

CREDIT = JobSizes(rows=24_000, slots=384, features=12, depth=6, rounds=60, value_bits=12)


def chosen(line: str | Network, job: JobSizes = CREDIT, layout: str = "auto") -> list[str]:
    network = LINES[line] if isinstance(line, str) else line
    return [each.layout for each in choose(layout, job, network).levels()]


def megabytes(line: str) -> float:
    return sum(each.price.sent + each.price.answered for each in choose("auto", CREDIT, LINES[line]).levels()) / 1e6


def arithmetic(line: str) -> float:
    prices = [each.price for each in choose("auto", CREDIT, LINES[line]).levels()]
    return sum(each.encryption + each.summation + each.decryption for each in prices)


# --- the four lines -------------------------------------------------------------------------------------------------


def test_a_fast_line_takes_the_least_arithmetic_and_a_slow_one_the_fewest_bytes() -> None:
    assert chosen("lan") == ["masks"] * 6
    assert chosen("metro") == ["masks"] * 5 + ["expansion"]
    assert chosen("wan")[0] == "masks"
    assert chosen("wan")[3:] == ["expansion"] * 3
    assert chosen("far") == ["masks"] + ["expansion"] * 5
    lines = ("lan", "metro", "wan", "far")
    assert sorted(map(megabytes, lines), reverse=True) == list(map(megabytes, lines))
    assert sorted(map(arithmetic, lines)) == list(map(arithmetic, lines))


@pytest.mark.parametrize("line", LINES)
def test_no_other_layout_is_predicted_to_be_faster(line: str) -> None:
    best = choose("auto", CREDIT, LINES[line]).seconds()
    others = {name: choose(name, CREDIT, LINES[line]).seconds() for name in ("runs", "root", "masks", "expansion")}
    assert best <= min(others.values())
    assert others["runs"] > 1.5 * best


def test_a_small_table_sends_as_little_on_a_fast_line_as_on_a_slow_one() -> None:
    """The demo, for one of its passive parties. In runs it sends 270 MB, as vectors 120 MB, for a few milliseconds."""
    demo = JobSizes(rows=2457, slots=334, features=7, depth=5, rounds=60, value_bits=12)
    for line in ("lan", "metro", "wan"):
        found = choose("auto", demo, LINES[line])
        assert [each.layout for each in found.levels()] == ["masks"] * 2 + ["expansion"] * 3
        assert demo.rounds * sum(each.price.sent for each in found.levels()) + found.once().sent < 30e6
        assert str(found).startswith(f"layout auto for {LINES[line]}: "), "the line is the one that was measured"
        fastest = min(choose(name, demo, LINES[line]).seconds() for name in ("runs", "root", "masks", "expansion"))
        assert found.seconds() < fastest + 0.02 * demo.rounds
    assert choose("auto", replace(demo, rounds=2), LINES["lan"]).keys is False, "5 MB of keys for two trees"


def test_runs_of_a_dense_level_are_shorter_on_a_slow_line() -> None:
    """A byte of an answer costs more there than a key switch."""
    prices = [leaf_bytes(LINES[line]) for line in ("far", "wan", "metro", "lan")]
    assert sorted(prices) == prices
    counts = np.array([4000, 1000], dtype=np.int64)
    near, distant = (dense_level(counts, [(384, 12)], 12, LINES[line]) for line in ("lan", "far"))
    assert near is not None
    assert distant is not None
    assert (near.blocks.run > distant.blocks.run).all()


# --- what is sent once ----------------------------------------------------------------------------------------------


def sizes(**other: int | bool) -> JobSizes:
    return JobSizes(**({**vars(CREDIT), **other}))


def test_masks_and_keys_must_pay_for_themselves() -> None:
    wan = LINES["wan"]
    assert choose("auto", CREDIT, wan).masks is not None
    assert choose("auto", sizes(rounds=1), wan).masks is None, "eight megabytes of masks for one tree"
    assert choose("auto", sizes(rounds=3), LINES["lan"]).masks is not None, "they are sent at once"
    assert choose("auto", CREDIT, wan).keys
    assert not choose("auto", sizes(rows=500, slots=50, features=2, depth=3, rounds=5), wan).keys, "5 MB for little"
    assert not choose("auto", sizes(depth=1), wan).keys, "only roots"
    assert not choose("auto", sizes(rows=10**6, value_bits=30, depth=2), wan).keys, "no sums fit"
    assert not choose("auto", CREDIT, LINES["lan"]).keys, "vectors need less arithmetic"


def test_what_a_job_names_is_used_whatever_the_line() -> None:
    for line in LINES:
        assert chosen(line, layout="runs") == ["runs"] * 6
        assert chosen(line, layout="root") == ["masks"] + ["runs"] * 5
        assert chosen(line, layout="masks") == ["masks"] * 6
        assert chosen(line, layout="expansion")[0] == "masks"
        assert "masks" not in chosen(line, layout="expansion")[1:]


def test_what_cannot_be_used_is_not() -> None:
    lan = LINES["lan"]
    assert choose("masks", sizes(rows=10**6), lan).masks is None, "one message is too long"
    assert choose("masks", sizes(slots=50_000, features=1600), lan).masks is None, "a gigabyte of masks"
    assert choose("masks", sizes(moving=True), lan).masks is None, "a mask belongs to a bin"
    nothing = choose("expansion", sizes(slots=0, features=0), lan)
    assert (nothing.masks, nothing.keys) == (None, False)
    assert "masks" not in chosen("lan", sizes(noisy=True))[1:], "noise is for one node of a level"
    assert dense_level(np.array([BYTES_AT_ONCE // 25 + 1]), [(384, 12)], 12, lan) is None
    assert dense_level(np.array([24_000]), [(384, 12)], 30, lan) is None


def test_a_root_costs_an_eighth_of_runs() -> None:
    found = mask_sizes(24_000, 20, 384, 12)
    assert found is not None
    runs, root = runs_price(np.array([24_000]), 384), vectors_price(1, 24_000, 384, 12, found)
    assert 8 * (root.sent + root.answered) < runs.sent + runs.answered
    assert 5 * root.over(LINES["lan"]) < runs.over(LINES["lan"])


def test_the_price_of_a_dense_level_counts_its_bytes() -> None:
    counts = np.array([4000, 300, 20], dtype=np.int64)
    level = dense_level(counts, [(384, 12), (64, 4)], 12, LINES["wan"])
    assert level is not None
    price = dense_price(level, 384)
    assert price.sent == 25 * counts.sum()
    assert price.over(Network(1e6, 1.0)) > 8e-6 * (price.sent + price.answered)


# --- jobs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "used"), [("lan", "VectorRequest"), ("far", "ExpandedRequest")])
def test_a_job_uses_what_was_chosen_for_its_line_and_the_model_is_that_of_plain(
    line: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = make_columns(3, rows=4000, numeric=12, categorical=0, missing=0.0)
    tables = split_among(columns, make_labels(3, columns, "binary"), 2)
    config = TrainingConfig(n_estimators=4, max_depth=5, max_bin=32, objective="binary")
    plain = sha(train(tables, config))
    opened = Peers.__init__
    monkeypatch.setattr(Peers, "__init__", lambda self, channels: opened(self, channels, LINES[line]))
    run = train(tables, config, "lattice")
    assert sha(run) == plain
    sent = {entry.message for entry in run.transcripts["p0"].entries if entry.direction == "sent"}
    assert sent & {"VectorRequest", "ExpandedRequest"} == {used}


def test_the_choice_says_what_it_chose_and_for_which_line() -> None:
    assert str(choose("auto", CREDIT, LINES["far"])) == (
        "layout auto for a line of 150 ms and 20 Mbit/s: level 1 as vectors under reused masks, levels 2 to 6 densely"
    )
    assert str(choose("auto", sizes(depth=1, rounds=1), LINES["far"])).endswith("Mbit/s: level 1 in runs")
