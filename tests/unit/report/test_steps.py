"""A transcript cut into steps: every second and every byte is in exactly one of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import make_columns, make_labels, split_among, train
from veilboost.config import TrainingConfig
from veilboost.protocols.plain.spec import SPEC
from veilboost.report.facts import course, kind_of
from veilboost.wire.transcript import Direction, Entry

pytestmark = pytest.mark.fast

KIND = kind_of(SPEC.messages)


def conversation(*messages: str, peer: str = "shop") -> list[Entry]:
    """Requests by their names, each answered a second later."""
    found: list[Entry] = []
    for at, message in enumerate(messages):
        found += [Entry(3.0 * at, "sent", peer, message, 100), Entry(3.0 * at + 1, "received", peer, "Done", 10)]
    return found


def test_every_statistics_request_is_the_next_level() -> None:
    tree = ("PlainRound", "StatisticsRequest", "SplitRequest", "StatisticsRequest")
    way = course("bank", conversation("BeginTraining", *tree, *tree, "EndTraining"), KIND)
    assert [(step.name, step.requests) for step in way.steps] == [
        ("setting up", 1), ("opening rounds", 2), ("level 0", 4), ("level 1", 2), ("ending", 1),
    ]  # fmt: skip
    assert way.steps[2].bytes_sent == {"bank": 400, "shop": 40}
    assert way.steps[2].seconds == pytest.approx(12.0)
    assert way.waiting == {"shop": pytest.approx(10.0)}


def test_answers_belong_to_their_own_requests_if_several_were_sent_together() -> None:
    def entry(direction: Direction, message: str, size: int) -> Entry:
        return Entry(0.0, direction, "shop", message, size)

    together = [
        entry("sent", "PlainRound", 1), entry("sent", "StatisticsRequest", 2),
        entry("received", "Done", 10), entry("received", "PlainSums", 20),
        entry("sent", "SplitRequest", 4), entry("sent", "StatisticsRequest", 8),
        entry("received", "SplitAnswer", 40), entry("received", "PlainSums", 80),
    ]  # fmt: skip
    assert {step.name: step.bytes_sent for step in course("bank", together, KIND).steps} == {
        "opening rounds": {"bank": 1, "shop": 10},
        "level 0": {"bank": 2 + 4, "shop": 20 + 40},
        "level 1": {"bank": 8, "shop": 80},
    }


def test_alignment_is_a_step_of_its_own() -> None:
    found = conversation("Propose", "BeginAlignment", "EndAlignment", "BeginTraining", "PlainRound")
    assert [step.name for step in course("bank", found, KIND).steps] == [
        "setting up",
        "aligning rows",
        "opening rounds",
    ]


def test_where_there_are_no_levels_requests_name_the_steps() -> None:
    found = conversation("RowsRequest", "TrainedModel")
    assert [step.name for step in course("server", found, KIND).steps] == ["RowsRequest", "TrainedModel"]


def test_a_passive_party_sees_the_same_steps() -> None:
    sent = conversation("PlainRound", "StatisticsRequest", "StatisticsRequest")
    turned = [
        entry._replace(direction="received" if entry.direction == "sent" else "sent", peer="bank") for entry in sent
    ]
    there = course("shop", turned, KIND, asks="received")
    assert [step.to_dict() for step in there.steps] == [step.to_dict() for step in course("bank", sent, KIND).steps]
    assert there.waiting == {}


NAMES = ("BeginTraining", "PlainRound", "StatisticsRequest", "SplitRequest", "EndTraining", "Unheard")


@given(
    st.lists(
        st.tuples(
            st.floats(0, 5),
            st.sampled_from(("sent", "received")),
            st.sampled_from(("a", "b")),
            st.sampled_from(NAMES),
            st.integers(0, 999),
        )
    )
)
def test_nothing_is_lost_and_nothing_counts_twice(given_: list[tuple[float, str, str, str, int]]) -> None:
    now, entries = 0.0, list[Entry]()
    for pause, direction, peer, message, size in given_:
        now += pause
        entries.append(Entry(now, direction, peer, message, size))  # type: ignore[arg-type]
    way = course("me", entries, KIND)
    assert sum(sum(step.bytes_sent.values()) for step in way.steps) == sum(entry.size for entry in entries)
    whole = entries[-1].when - entries[0].when if entries else 0.0
    assert sum(step.seconds for step in way.steps) == pytest.approx(whole)


def test_a_real_run_has_as_many_levels_as_its_trees() -> None:
    columns = make_columns(0, 200)
    run = train(split_among(columns, make_labels(0, columns), 2), TrainingConfig(n_estimators=3, max_depth=4))
    skeleton = run.shares["p0"].skeleton
    assert skeleton is not None
    way = course("p0", run.transcripts["p0"].entries, KIND)
    levels = [step for step in way.steps if step.name.startswith("level ")]
    assert [step.name for step in levels] == [f"level {n}" for n in range(max(tree.depth for tree in skeleton.trees))]
    assert sum(sum(step.bytes_sent.values()) for step in way.steps) == run.bytes_sent
