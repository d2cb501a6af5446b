"""Settings in TOML: strict to read, and written so that they explain themselves."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from veilboost.config import TrainingConfig
from veilboost.errors import ImpossibleSetting, UnknownProtocol, UnreadableSettings
from veilboost.party.job import Job, JobParty, load_job
from veilboost.party.policy import Policy
from veilboost.party.sections import commented_toml
from veilboost.party.settings import CertificateSettings, DataSettings, Limits, PartySettings, PeerSettings, load_party

pytestmark = pytest.mark.fast

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

PARTY = """
name = "bank"
[data]
path = "tables/bank.parquet"
id = "customer_id"
label = "default"
[certificates]
cert = "certs/bank.crt"
key = "/secret/bank.key"
ca = "../ca.crt"
[peers.shop]
address = "shop.example:7400"
[peers.telecom]
connect = "in"
[limits]
max_message_mb = 5
wait_seconds = 3
[policy]
protocols = ["plain"]
[policy.peers]
shop = ["any"]
"""
JOB = """
name = "credit"
alignment = "ecdh"
validation = 0.25
record = "payload"
protocol = "plain"
[parties.bank]
role = "active"
address = "bank.example:7400"
[parties.shop]
connect = "in"
[training]
max_depth = 3
learning_rate = 1
early_stopping_rounds = 5
[training.options]
noise = 0.5
rounds = 3
"""


def written(folder: Path, text: str, name: str = "file.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def load(kind: str, file: Path) -> PartySettings | Job:
    return load_party(file) if kind == "party" else load_job(file)


# --- reading ----------------------------------------------------------------------------------------------


def test_a_partys_file_is_read_with_paths_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, PARTY, "bank.toml")
    monkeypatch.chdir(tmp_path)
    found = load_party("bank.toml")
    assert found.data == DataSettings(path=tmp_path / "tables/bank.parquet", id="customer_id", label="default")
    assert found.certificates == CertificateSettings(
        tmp_path / "certs/bank.crt", Path("/secret/bank.key"), tmp_path / "../ca.crt"
    )
    assert found.runs == tmp_path / "runs"  # a default is relative to the file too
    assert found.peers == {"shop": PeerSettings("shop.example:7400"), "telecom": PeerSettings(connect="in")}
    assert found.limits == Limits(max_message_mb=5, wait_seconds=3.0)
    assert type(found.limits.wait_seconds) is float
    assert found.policy == Policy(protocols=("plain",), peers={"shop": ("any",)})
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.name = "shop"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_jobs_file_is_read(tmp_path: Path) -> None:
    found = load_job(written(tmp_path, JOB))
    assert found == Job(
        name="credit",
        parties={"bank": JobParty("bank.example:7400", role="active"), "shop": JobParty(connect="in")},
        alignment="ecdh",
        validation=0.25,
        record="payload",
        protocol="plain",
        training=TrainingConfig(
            max_depth=3, learning_rate=1.0, early_stopping_rounds=5, options={"noise": 0.5, "rounds": 3}
        ),
    )
    assert found.owners == ("bank", "shop")


def test_parties_keep_their_order_and_helpers_have_no_columns(tmp_path: Path) -> None:
    text = JOB.replace('"ecdh"', '"hmac_csp"') + "".join(
        f'[parties.{name}]\naddress = "{name}:1"\nrole = "{role}"\n'
        for name, role in (("zoo", "passive"), ("ta", "authority"), ("csp", "csp"), ("alp", "passive"))
    )
    found = load_job(written(tmp_path, text))
    assert found.owners == ("bank", "shop", "zoo", "alp")
    assert found.parties["ta"].role == "authority"


def test_the_table_is_loaded_as_the_settings_say(tmp_path: Path) -> None:
    table = pa.table({"id": [3, 1, 2], "code": [7, 8, 7], "age": [30.0, 40.0, 50.0], "y": [0, 1, 1], "w": [1, 2, 1]})
    pq.write_table(table, tmp_path / "t.dat")
    text = PARTY.split("[data]", maxsplit=1)[0] + (
        '[data]\npath = "t.dat"\nformat = "parquet"\nid = "id"\nlabel = "y"\nweight = "w"\n'
        'features = ["code"]\ncategorical = ["code"]\n[certificates]\ncert = "a"\nkey = "b"\nca = "c"\n'
    )
    data = load_party(written(tmp_path, text)).data
    assert data is not None
    loaded = data.load()
    assert loaded.names == ("code",)
    assert loaded.columns[0].categories == ("7", "8")
    assert loaded.rows == 3
    assert loaded.weight is not None
    query = dataclasses.replace(data, path=None, format=None, sql=f"FROM read_parquet('{tmp_path / 't.dat'}')")
    assert query.load().names == ("code",)


# --- refusals ---------------------------------------------------------------------------------------------

REFUSED = [
    # kind, what to replace, by what, what the message says beside the file's name
    ("party", 'name = "bank"', "", "the key 'name' is missing"),
    ("party", 'name = "bank"', 'name = "the bank"', "name='the bank' is not a name of"),
    ("party", 'name = "bank"', 'name = ""', "name is empty"),
    ("party", 'name = "bank"', 'name = "bank"\nport = 3', "no key 'port'; the keys are name"),
    ("party", 'name = "bank"', 'name = "bank"\nlisten = "7400"', "listen='7400' is not host:port"),
    ("party", 'name = "bank"', 'name = "bank"\nlisten = "a:65536"', "listen='a:65536' is not host:port"),
    ("party", 'name = "bank"', 'name = "bank"\nn_jobs = -1', "n_jobs=-1 is outside [0, 1024]"),
    ("party", 'name = "bank"', f'name = "bank"\nn_jobs = {10**400}', "n_jobs is outside [0, 1024]"),
    ("party", 'name = "bank"', 'name = "bank"\nn_jobs = 1.5', "n_jobs=1.5 is not a whole number"),
    ("party", 'name = "bank"', 'name = "bank"\nn_jobs = true', "n_jobs=True is not a whole number"),
    ("party", 'name = "bank"', 'name = "shop"', "shop is one of its own peers"),
    ("party", 'path = "tables/bank.parquet"', "", "[data]: the table has no path, uri or sql"),
    ("party", 'path = "tables/bank.parquet"', 'path = ""', "[data]: path is empty"),
    ("party", 'path = "tables/bank.parquet"', 'path = "a\\u0000b"', "[data]: path is not text: it has a zero byte"),
    ("party", 'id = "customer_id"', "id = 1", "[data]: id is a number, not text"),
    ("party", 'id = "customer_id"', "id = 1979-05-27", "[data]: id is date, not text"),
    ("party", 'id = "customer_id"', "features = [1]", "[data]: an entry of features is a number"),
    ("party", 'id = "customer_id"', 'features = "a"', "[data]: features is text, not a list of texts"),
    ("party", 'id = "customer_id"', 'categorical = ["a", "a"]', "[data]: categorical has the same entry twice"),
    ("party", 'id = "customer_id"', 'constant = "burn"', "[data]: constant='burn' is not one of error, drop, keep"),
    ("party", 'id = "customer_id"', 'wieght = "y"', "[data]: there is no key 'wieght'; did you mean weight?"),
    ("party", 'ca = "../ca.crt"', "", "[certificates]: the key 'ca' is missing; add ca: the certificate"),
    ("party", 'address = "shop.example:7400"', "", '[peers.shop]: connect = "out" needs an address'),
    ("party", 'connect = "in"', 'connect = "both"', "[peers.telecom]: connect='both' is not one of in, out"),
    ("party", "[peers.telecom]", '[peers."a b"]', "the key 'a b' in peers is not a name of"),
    ("party", "[peers.telecom]", "[limits.telecom]", "[limits]: there is no key 'telecom'"),
    ("party", "wait_seconds = 3", "wait_seconds = inf", "[limits]: wait_seconds=inf is outside"),
    ("party", "wait_seconds = 3", "connect_seconds = 0", "[limits]: connect_seconds=0 is outside [0.1, 3600]"),
    ("party", 'protocols = ["plain"]', "max_dept = 3", "[policy]: there is no key 'max_dept'; did you mean max_depth?"),
    ("party", 'shop = ["any"]', 'shop = ["all"]', "[policy]: an entry of peers.shop='all' is not a certificate's"),
    ("party", 'shop = ["any"]', 'shop = "any"', "[policy]: peers.shop is text, not a list of texts"),
    ("job", 'role = "active"', "", "0 parties have role = 'active', and exactly one drives the job"),
    ("job", 'connect = "in"', 'connect = "in"\nrole = "active"', "2 parties have role = 'active'"),
    (
        "job",
        'connect = "in"',
        'connect = "in"\nrole = "server"',
        "shop has role = 'server', and the roles of plain are active",
    ),
    ("job", 'name = "credit"', 'name = "credit"\nactive = "bank"', "the key 'active' was replaced by role"),
    (
        "job",
        'name = "credit"',
        'name = "credit"\nserver = "hub"',
        'was replaced by role; write role = "server" under [parties.hub]',
    ),
    ("job", 'protocol = "plain"', 'protocol = {name = "plain"}', 'by the key protocol; write protocol = "plain"'),
    ("job", 'connect = "in"', 'connect = "in"\nrole = "data"', 'shop]: role = "data" was renamed to "passive"'),
    (
        "job",
        'protocol = "plain"',
        'protocol = "secagg"',
        "bank has role = 'active', and the roles of secagg are server",
    ),
    ("job", 'alignment = "ecdh"', 'alignment = "luck"', "alignment='luck' is not one of prealigned, ecdh, hmac_csp"),
    ("job", 'alignment = "ecdh"', 'alignment = "hmac_csp"', "needs exactly one party with role = 'authority'"),
    ("job", "validation = 0.25", "validation = 0", "early_stopping_rounds needs validation rows"),
    ("job", "validation = 0.25", "validation = 1", "validation=1 is outside [0, 0.9]"),
    ("job", 'record = "payload"', 'record = "all"', "record='all' is not one of none, types, payload"),
    ("job", "rounds = 3", "rounds = []", "[training]: options holds something beside text, numbers"),
    ("job", 'address = "bank.example:7400"', "", "shop connects to bank, which has no address"),
    ("job", 'role = "active"', 'role = "csp"', "0 parties have role = 'active'"),
    ("job", 'connect = "in"', "", 'shop has connect = "out" and no address'),
    ("job", "max_depth = 3", "max_depth = 17", "[training]: max_depth=17 is outside [1, 16]"),
    ("job", "max_depth = 3", "depth = 3", "[training]: there is no key 'depth'; did you mean max_depth?"),
    ("job", "max_depth = 3", f"max_depth = {10**400}", "[training]: max_depth is outside [1, 16]"),
    ("job", "max_depth = 3", 'proposal = "local"\nweighted_bins = true', "[training]: weighted_bins needs"),
    ("job", "[training]", "training = 3\n[nothing]", "there is no key 'nothing'"),
]


@pytest.mark.parametrize(("kind", "old", "new", "said"), REFUSED)
def test_what_cannot_be_is_refused_with_file_key_and_what_is_allowed(
    kind: str, old: str, new: str, said: str, tmp_path: Path
) -> None:
    text = PARTY if kind == "party" else JOB
    assert old in text
    file = written(tmp_path, text.replace(old, new))
    with pytest.raises(ImpossibleSetting) as refused:
        load(kind, file)
    assert str(refused.value).startswith(f"VB-1611: {file}")
    assert said in str(refused.value)


def test_files_that_are_no_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSettings, match="No such file"):
        load_party(tmp_path / "none.toml")
    with pytest.raises(UnreadableSettings, match="cannot be read"):
        load_party(tmp_path)
    with pytest.raises(UnreadableSettings, match="line 1"):
        load_party(written(tmp_path, "name = bank"))
    for odd in (b"\xff\xfe", b"x = " + b"1" * 5000, b"x = " + b"[" * 100_000, b"#" * (2**20 + 1)):
        file = tmp_path / "odd.toml"
        file.write_bytes(odd)
        with pytest.raises(UnreadableSettings):
            load_job(file)


def test_an_error_does_not_show_a_query(tmp_path: Path) -> None:
    file = written(tmp_path, PARTY.replace('id = "customer_id"', 'sql = ["postgres://me:hunter2@db"]'))
    with pytest.raises(ImpossibleSetting, match="sql is a list") as refused:
        load_party(file)
    assert "hunter2" not in str(refused.value)


scalars = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
toml_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz_", min_size=1), inner, max_size=3),
    max_leaves=5,
)


def _sections(kind: str) -> dict[str, dict[str, Any]]:
    """Every table of the file, by its path."""
    values = tomllib.loads(PARTY if kind == "party" else JOB)
    found = {"": values}
    for name in ("data", "certificates", "limits", "policy", "training"):
        if name in values:
            found[name] = values[name]
    return found


SECTIONS = [(kind, name) for kind in ("party", "job") for name in _sections(kind)]


@quick
@given(where=st.sampled_from(SECTIONS), key=st.text(st.characters(codec="utf-8"), max_size=12), value=toml_values)
def test_a_key_that_nobody_declared_is_always_refused(
    tmp_path: Path, where: tuple[str, str], key: str, value: Any
) -> None:
    kind, section = where
    cls: Any = PartySettings if kind == "party" else Job
    declared = get_type_hints(cls)[section] if section else cls
    declared = DataSettings if section == "data" else declared
    assume(key not in {item.name for item in dataclasses.fields(declared)})
    file = written(tmp_path, _with(kind, section, key, value))
    with pytest.raises(ImpossibleSetting, match="there is no key"):
        load(kind, file)


@quick
@given(data=st.data(), where=st.sampled_from(SECTIONS), value=toml_values)
def test_any_value_under_any_key_is_taken_or_refused_and_never_fails_otherwise(
    tmp_path: Path, data: st.DataObject, where: tuple[str, str], value: Any
) -> None:
    kind, section = where
    cls: Any = PartySettings if kind == "party" else Job
    declared = (DataSettings if section == "data" else get_type_hints(cls)[section]) if section else cls
    key = data.draw(st.sampled_from([item.name for item in dataclasses.fields(declared)]))
    file = written(tmp_path, _with(kind, section, key, value))
    found, said = None, str(file)
    try:
        found = load(kind, file)
    except (ImpossibleSetting, UnknownProtocol) as error:
        said = str(error)
    if found is None:
        assert str(file) in said
        return
    assert load(kind, written(tmp_path, commented_toml(found, "again"), "again.toml")) == found


def _with(kind: str, section: str, key: str, value: Any) -> str:
    values = tomllib.loads(PARTY if kind == "party" else JOB)
    (values[section] if section else values)[key] = value
    return "\n".join(f"{_inline_key(name)} = {_inline(entry)}" for name, entry in values.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_inline_key(name)} = {_inline(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, str):
        return _inline_key(value)
    return str(value).lower()


def _inline_key(text: str) -> str:
    return '"' + "".join(f"\\U{ord(letter):08X}" for letter in text) + '"'


# --- writing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "text"), [("party", PARTY), ("job", JOB)])
def test_toml_to_settings_to_toml_is_the_same(kind: str, text: str, tmp_path: Path) -> None:
    found = load(kind, written(tmp_path, text))
    again = load(kind, written(tmp_path, commented_toml(found, "The same again."), "again.toml"))
    assert again == found
    assert list(again.peers if kind == "party" else again.parties) == list(  # pyright: ignore
        found.peers if kind == "party" else found.parties  # pyright: ignore
    )


def test_every_key_is_in_the_file_with_its_help(tmp_path: Path) -> None:
    party = PartySettings("bank", CertificateSettings(Path("a"), Path("b"), Path("c")), DataSettings(Path("d")))
    job = Job("credit", {"bank": JobParty("a:1", role="active"), "shop": JobParty("b:1")})
    for settings_ in (party, job):
        text = commented_toml(settings_, "About.")
        assert max(map(len, text.splitlines())) <= 120
        plain = " ".join(line.removeprefix("# ") for line in text.splitlines())
        for section in (settings_, *(getattr(settings_, item.name) for item in dataclasses.fields(settings_))):
            if not dataclasses.is_dataclass(section) or isinstance(section, type):
                continue
            for item in dataclasses.fields(section):
                help = item.metadata["info"].help
                assert help[1:].removesuffix(".") in plain, item.name
                assert f"{item.name} =" in text or f"[{item.name}" in text or f".{item.name}" in text, item.name


words = st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)


@quick
@given(
    name=names,
    peers=st.dictionaries(names, st.just(PeerSettings("host:1")), max_size=3),
    features=st.none() | st.lists(words, max_size=3, unique=True),
    label=st.none() | words,
    columns=st.lists(words, max_size=3, unique=True),
    epsilon=st.none() | st.floats(0, 1e300),
    rows=st.integers(1, 2**70),
)
def test_any_party_reads_back_as_it_was_written(
    tmp_path: Path, name: str, peers: Any, features: Any, label: Any, columns: Any, epsilon: Any, rows: int
) -> None:
    assume(name not in peers)
    made = PartySettings(
        name,
        CertificateSettings(tmp_path / "a", tmp_path / "b", tmp_path / "c"),
        DataSettings(path=tmp_path / "d", features=features, label=label),
        runs=tmp_path / "runs",
        peers=peers,
        policy=Policy(columns=columns, epsilon_total=epsilon, max_rows=min(rows, 2**60), peers={name: ["any"]}),
    )
    assert load_party(written(tmp_path, commented_toml(made, "Any."))) == made


@quick
@given(
    parameters=st.dictionaries(words, st.booleans() | st.integers() | st.floats(allow_nan=False) | words, max_size=4)
)
def test_any_protocol_options_read_back_as_they_were_written(tmp_path: Path, parameters: dict[str, Any]) -> None:
    made = Job("j", {"bank": JobParty(role="active")}, training=TrainingConfig(options=parameters))
    assert load_job(written(tmp_path, commented_toml(made, "Any."))) == made


def test_a_party_without_a_table_reads_back_too(tmp_path: Path) -> None:
    certificates = CertificateSettings(tmp_path / "a", tmp_path / "b", tmp_path / "c", tmp_path / "d")
    made = PartySettings("csp", certificates, runs=tmp_path / "r")
    text = commented_toml(made, "No table.")
    assert "# [data]" in text
    assert load_party(written(tmp_path, text)) == made
    shown = text.replace("# [data]", "[data]").replace('# path = "bank.parquet"', 'path = "bank.parquet"')
    found = load_party(written(tmp_path, shown))
    assert found.data == DataSettings(path=tmp_path / "bank.parquet")


def test_a_horizontal_job_without_a_protocol_is_one_of_secagg(tmp_path: Path) -> None:
    parties = '[parties.hub]\nrole = "server"\n' + "".join(
        f'[parties.{name}]\naddress = "{name}.example:7400"\n' for name in ("north", "south")
    )
    assert load_job(written(tmp_path, f'name = "credit"\n{parties}')).protocol == "secagg"
    chosen = load_job(written(tmp_path, f'name = "credit"\nprotocol = "secagg"\n{parties}'))
    assert chosen.owners == ("north", "south")
    vertical = parties.replace('"server"', '"active"')
    assert load_job(written(tmp_path, f'name = "credit"\n{vertical}')).protocol == "plain"
