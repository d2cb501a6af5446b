"""Secure inference: exactly the plaintext prediction, whatever the values, and refusals on every side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import make_columns, make_labels, split_among, train
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.data.table import PartyTable
from veilboost.errors import (
    ForeignColumns,
    InvalidParameter,
    MalformedMessage,
    MissingShare,
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.party.simulation import simulate_prediction
from veilboost.secure_inference.attributes import MISSING, Attribute, Directory, at_most, attributes_of, ordered
from veilboost.secure_inference.messages import (
    SECURE_MESSAGES,
    BlindedNodes,
    Directions,
    DirectoryRequest,
    EncryptedNodes,
    PublishTask,
    RegisterAttributes,
    SecureQuery,
    ServiceKeyRequest,
)
from veilboost.secure_inference.paillier import DECOY
from veilboost.secure_inference.roles import EncryptedModel, MemoryService, ServiceAuthority, encrypt_share
from veilboost.secure_inference.scheme import KnownService, generate, public_service, secret_service
from veilboost.types import Column
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done

pytestmark = pytest.mark.fast
ROWS = 120
SHORT = {"key_bits": 512, "allow_insecure_key": True}


def trained(objective="binary", categories="onehot", protocol="plain", trees=2, depth=3):
    columns = make_columns(7, rows=ROWS, numeric=3, categorical=1, missing=0.1)
    columns[0] = Column("n0", np.nan_to_num(columns[0].values, nan=-0.0))  # one without missing values
    tables = split_among(columns, make_labels(7, columns, objective), 2)
    config = TrainingConfig.from_dict(
        {"objective": objective, "n_estimators": trees, "max_depth": depth, "max_bin": 6, "categories": categories}
    )
    return tables, train(tables, config, protocol)


def service(tables, run, categories="onehot", **more):
    attributes = {name: attributes_of(name, table.columns, categories) for name, table in tables.items()}
    return MemoryService(run.shares, "p0", attributes, **(SHORT | more))


def plaintext(run, tables, objective="binary"):
    scores = make_objective(objective, classes=3).predict(simulate_prediction(run.shares, "p0", tables))
    return scores[:, None] if scores.ndim == 1 else scores


def columns_of(tables):
    return {column.name: column for table in tables.values() for column in table.columns}


def take(tables, rows):
    return {name: table.take(rows) for name, table in tables.items()}


@pytest.fixture(scope="module")
def served():
    tables, run = trained()
    return tables, run, service(tables, run)


def hard_rows(run, tables):
    """Rows on every threshold and next to it, zeros of both signs, huge, tiny, missing, unknown categories."""
    values = {name: [] for name in columns_of(tables)}
    for part in run.shares.values():
        for record in range(part.records.count):
            rule = part.records.rule(record)
            name = part.columns[rule.feature].name
            if rule.left_set is None:
                at = rule.threshold
                values[name] += [
                    at,
                    np.nextafter(at, np.float32(-np.inf)),
                    np.nextafter(at, np.float32(np.inf)) if at < 1e38 else at,
                ]
    usual = np.float32([0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, np.nan, 1.0, -1.0])
    count = max(len(found) for found in values.values()) + len(usual)
    made = {}
    for name, table in tables.items():
        columns = []
        for column in table.columns:
            if column.categories is None:
                every = np.resize(np.concatenate((np.float32(values[column.name]), usual)), count)
                columns.append(Column(column.name, every.astype(np.float32)))
            else:
                names = (*column.categories, "~ never seen")
                columns.append(
                    Column(column.name, np.arange(-1, count - 1, dtype=np.int32) % (len(names) + 1) - 1, names)
                )
        made[name] = PartyTable(np.arange(count), tuple(columns))
    return made


@pytest.mark.parametrize(
    ("objective", "categories"),
    [("binary", "onehot"), ("binary", "ordinal"), ("multiclass", "onehot"), ("regression", "ordinal")],
)
def test_predictions_are_those_of_the_plaintext_model(objective, categories):
    tables, run = trained(objective, categories)
    user = service(tables, run, categories).user()
    rows = take(tables, np.arange(40))
    assert np.array_equal(user.predict(columns_of(rows), 40), plaintext(run, rows, objective))


def test_values_on_a_threshold_negative_zero_large_and_missing(served):
    tables, run, ready = served
    rows = hard_rows(run, tables)
    count = rows["p0"].rows
    assert count > 9
    assert np.array_equal(ready.user().predict(columns_of(rows), count), plaintext(run, rows))


def test_a_model_of_elxgb_is_served_with_passive_parties_offline():
    columns = make_columns(7, rows=ROWS, numeric=4)
    tables = split_among(columns, make_labels(7, columns), 2)
    config = TrainingConfig(
        n_estimators=2, max_depth=2, max_bin=6, categories="ordinal", options={"backend": "lattice", "epsilon": 2.0}
    )
    run = train(tables, config, "elxgb")
    ready = service(tables, run, "ordinal")
    asked = len(ready.transcripts["p1"].entries)
    rows = take(tables, np.arange(30))
    assert np.array_equal(ready.user().predict(columns_of(rows), 30), plaintext(run, rows))
    assert len(ready.transcripts["p1"].entries) == asked


def test_all_queued_users_walk_together_and_rounds_are_levels(served, monkeypatch):
    tables, run, ready = served
    user, rows = ready.user(), columns_of(take(tables, np.arange(6)))
    queries = [user._service.encrypt_rows(user.directory.rows_of(rows, 6)[low : low + 2]) for low in (0, 2, 4)]
    way = ready.model._csp
    before = way.rounds
    scores = ready.model.predict(queries)
    assert way.rounds - before <= 3
    assert np.array_equal(np.concatenate(scores), plaintext(run, take(tables, np.arange(6))))


def test_only_declared_messages_travel_and_each_says_what_it_reveals(served):
    _, _, ready = served
    ready.user()
    sent = {entry.message for transcript in ready.transcripts.values() for entry in transcript.entries}
    assert sent <= {message.type_name() for message in SECURE_MESSAGES}
    assert all("reveals" in vars(message) for message in SECURE_MESSAGES)


def test_the_same_node_never_looks_the_same_and_signs_turn(served):
    _, _, ready = served
    service_ = ready.model._service
    rows = service_.encrypt_rows(np.zeros((1, ready.directory.size), dtype=np.int64))
    node = ready.model._vectors[:1]
    one = np.zeros(1, dtype=np.int64)
    first, again = (service_.blind(node, rows, one, one)[0] for _ in range(2))
    width = first.shape[1] // (ready.directory.size + 1)
    slots = (first.reshape(-1, width) != again.reshape(-1, width)).any(axis=1)
    assert slots.all()
    turned = service_.blind(node, rows, one.repeat(40), one.repeat(40))[1]
    assert 5 < turned.sum() < 35


def test_decoys_say_nothing_of_the_value_they_stand_beside():
    """All that the CSP could decrypt beside the node's own slot has the sign of a coin."""
    secret, public = generate("paillier", Csprng(), 512, True)
    size = 60
    service_, csp = public_service("paillier", public, size), secret_service("paillier", secret, size)
    node, one = service_.encrypt_nodes([(1, 0)]), np.zeros(1, dtype=np.int64)
    for value in (-(2**31), 2**31):
        blinded, turned = service_.blind(node, service_.encrypt_rows(np.full((1, size), value)), one, one)
        entries = csp._private.public.read(blinded.reshape(size + 1, -1))
        positive = np.array([2 * found < csp._private.public.n for found in csp._owner.decrypt(entries[2:])])
        assert 12 < positive.sum() < 48
        assert len(turned) == 1


def test_decoys_and_factors_are_as_large_as_they_must_be(served):
    """Decoys beyond twice the range of differences, and factors forty bits beyond these."""
    _, _, ready = served
    assert DECOY >= 2 * (2 * MISSING)
    factors = [ready.model._service._factor() for _ in range(200)]
    assert min(factors) >= DECOY << 40
    n = ready.csp._service._private.public.n
    assert max(factors) * (DECOY + MISSING + 1) < n // 2
    assert len({factor.bit_length() for factor in factors}) > 100


def test_a_node_by_a_column_that_is_not_in_the_directory_is_refused(served):
    _, run, ready = served
    part = run.shares["p1"]
    with pytest.raises(ForeignColumns, match="not registered"):
        Directory(ready.directory.attributes[:1]).nodes_of("p1", part.columns, part.records)


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
def test_integers_stand_in_the_order_of_floats(x, y):
    a, b = ordered(np.float32([x, y]))
    assert (a < b) == (np.float32(x) < np.float32(y))
    assert (a <= at_most(np.float32(y))) == (np.float32(x) < np.float32(y))
    assert -MISSING < a < MISSING


# --- refusals ---------------------------------------------------------------------------------------------------


def test_a_users_vector_of_the_wrong_length_key_or_group_is_refused(served):
    _, _, ready = served
    good = ready.model._service.encrypt_rows(np.zeros((2, ready.directory.size), dtype=np.int64))
    other_key = generate("paillier", Csprng(), 1024, True)[1]
    other = public_service("paillier", other_key, ready.directory.size)
    wrong = [
        good[:, :-1],
        good[:, : -good.shape[1] // ready.directory.size],
        np.zeros_like(good),
        np.full_like(good, 255),
        other.encrypt_rows(np.zeros((1, ready.directory.size), dtype=np.int64)),
    ]
    own = ready.model._key
    ready.model.check(SecureQuery(good, own))
    for rows in wrong:
        with pytest.raises(MalformedMessage):
            ready.model.handle(SecureQuery(rows, own))
    foreign = KnownService(ready.directory, "paillier", other_key).fingerprint
    for key in (foreign, own[:-1], own[:0]):  # a key of the same length could not be told otherwise
        with pytest.raises(MalformedMessage, match="another key"):
            ready.model.handle(SecureQuery(good, key))
    with pytest.raises(UnexpectedMessage):
        ready.model.handle(Done())


def test_the_csp_refuses_unknown_attributes_and_foreign_ciphertexts(served):
    _, _, ready = served
    service_, size = ready.model._service, ready.directory.size
    rows, one = service_.encrypt_rows(np.zeros((1, size), dtype=np.int64)), np.zeros(1, dtype=np.int64)
    for serial in (0, size + 1, -1):
        node = service_._rows(service_._encrypt([serial] + [0] * size), size + 1)
        with pytest.raises(MalformedMessage, match="directory"):
            ready.csp.handle(BlindedNodes(service_.blind(node, rows, one, one)[0]))
    with pytest.raises(MalformedMessage):
        ready.csp.handle(BlindedNodes(np.zeros((1, 10), dtype=np.uint8)))
    with pytest.raises(MalformedMessage):
        ready.csp.handle(BlindedNodes(np.zeros_like(ready.model._vectors[:1])))
    with pytest.raises(UnexpectedMessage):
        ready.csp.handle(Done())


@pytest.mark.parametrize("answer", [lambda a: Directions(np.append(a.positive, np.uint8(0))), lambda a: Done()])
def test_a_csp_that_answers_too_much_or_nothing_is_noticed(served, answer):
    tables, _, ready = served

    class Odd:
        def send(self, message):
            return lambda: answer(ready.csp.handle(message))

    model = ready.model
    kept = model._csp
    model._csp = Peers({"csp": Odd()})
    try:
        with pytest.raises((MalformedMessage, UnexpectedMessage)):
            ready.user().predict(columns_of(take(tables, np.arange(2))), 2)
    finally:
        model._csp = kept


def test_a_party_that_encrypts_other_nodes_than_its_own_is_refused(served):
    _, run, ready = served
    skeleton = run.shares["p0"].skeleton
    known = KnownService.of(ready.authority.handle("p0", DirectoryRequest()))
    nodes = {name: encrypt_share(part, known) for name, part in run.shares.items()}

    def model(given):
        return EncryptedModel(skeleton, given, known, Peers({}))

    model(nodes)
    name = max(nodes, key=lambda name: len(nodes[name].tree))
    own = nodes[name]
    for wrong in (
        EncryptedNodes(own.tree[:-1], own.node[:-1], own.vectors[:-1], own.key),
        EncryptedNodes(own.tree, own.node, own.vectors[:-1], own.key),
        EncryptedNodes(np.append(own.tree, own.tree[:1]), own.node, own.vectors, own.key),
        EncryptedNodes(own.tree, own.node, own.vectors[:, :-1], own.key),
        EncryptedNodes(own.tree, own.node + np.int32(1000), own.vectors, own.key),
        EncryptedNodes(own.tree, own.node, own.vectors, own.key[::-1].copy()),
    ):
        with pytest.raises(MalformedMessage):
            model(nodes | {name: wrong})
    with pytest.raises(MissingShare):
        model({"p0": nodes["p0"]})


def test_the_authority_gives_the_secret_key_to_the_csp_only_and_registers_each_party_once():
    authority = ServiceAuthority(512, True)
    with pytest.raises(UnexpectedMessage):
        authority.handle("user", DirectoryRequest())
    task = PublishTask(("a", "b"), "csp", "paillier")
    for wrong in (PublishTask(("b", "c"), "csp", "paillier"), PublishTask(("a", "b"), "b", "paillier")):
        with pytest.raises(MalformedMessage):
            authority.handle("a", wrong)
    with pytest.raises(InvalidParameter):
        authority.handle("a", PublishTask(("a", "b"), "csp", "rot13"))
    for _ in range(2):  # the same again is no harm
        authority.handle("a", task)
    with pytest.raises(UnexpectedMessage):
        authority.handle("a", PublishTask(("a", "b"), "other", "paillier"))
    own = {name: Directory((Attribute(name, f"x of {name}"),)).to_json() for name in "ab"}
    for _ in range(2):
        authority.handle("a", RegisterAttributes(own["a"]))
    changed = Directory((Attribute("a", "another column"),)).to_json()
    for party, text, error in (
        ("a", changed, UnexpectedMessage),
        ("z", own["a"], UnexpectedMessage),
        ("b", own["a"], MalformedMessage),
    ):
        with pytest.raises(error):
            authority.handle(party, RegisterAttributes(text))
    for asked in (DirectoryRequest(), ServiceKeyRequest()):
        with pytest.raises(UnexpectedMessage):
            authority.handle("csp", asked)
    authority.handle("b", RegisterAttributes(own["b"]))
    for party in ("a", "b", "user"):
        with pytest.raises(UnexpectedMessage):
            authority.handle(party, ServiceKeyRequest())
    assert len(authority.handle("csp", ServiceKeyRequest()).key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "[1]",
        '[{"party": "a"}]',
        '[{"party":"a","name":"x","categories":null,"one_hot":true,"missing":false}]',
    ],
)
def test_a_directory_that_cannot_be_read_is_refused(text):
    with pytest.raises(MalformedMessage):
        Directory.from_json(text)


def test_sets_of_categories_and_columns_that_are_not_there_are_refused(served):
    tables, _, ready = served
    column = Column("c", np.int32([0, 1]), ("a", "b"))
    with pytest.raises(UnsupportedCombination):
        attributes_of("a", [column], "sets")
    some = columns_of(tables)
    some.pop("n1")
    with pytest.raises(ForeignColumns):
        ready.user().predict(some, ROWS)
