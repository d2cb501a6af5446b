"""What a refusal tells a peer: a code and fixed words. What the owner reads: everything."""

from __future__ import annotations

import ast
import errno
import hashlib
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import veilboost
from parties import Town, make_certificates
from veilboost.errors import AgainstPolicy, ConstantColumn, VeilBoostError, coded_errors
from veilboost.party.daemon import Daemon, PartyHost
from veilboost.party.federation import coordinate
from veilboost.party.identity import peer_identity
from veilboost.party.job import load_job
from veilboost.party.messages import Propose
from veilboost.party.predicting import LivePredictor
from veilboost.party.settings import DataSettings, load_party
from veilboost.party.vertical_session import VerticalSession
from veilboost.wire.grpc import StreamLink
from veilboost.wire.message import encode
from veilboost.wire.rpc import Caller, Kind, Packet, failure_body, failure_from, failure_text

SECRETS = ("hiv_status", "seropositive", "patient-4711", "clinic-files", "oncology")
TEXT = "column 'hiv_status' is 'seropositive' for patient-4711 in /srv/clinic-files/oncology.parquet"


def holds_secret(content: bytes | str) -> list[str]:
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    return [secret for secret in SECRETS if secret in text]


# --- every error class ------------------------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize("cls", list(coded_errors()), ids=lambda cls: cls.code)
def test_every_error_crosses_as_its_code_and_fixed_words(cls: type[VeilBoostError]) -> None:
    error = cls(TEXT, f"look at {TEXT}")
    assert TEXT in str(error), "the owner reads all of it"
    body = failure_body(error)
    assert not holds_secret(body)
    assert body.decode().split("\n") == [cls.code, cls.summary, ""]
    assert len(cls.summary) > 10
    assert not holds_secret(failure_text(error))
    heard = failure_from("shop", body)
    assert cls.code in str(heard)
    assert not holds_secret(failure_body(heard)), "nor when another party passes it on"


@pytest.mark.fast
def test_the_search_for_secrets_finds_a_broken_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin sends the owner's texts: every error tells all secrets, none would without."""
    errors = [cls(TEXT, f"look at {TEXT}") for cls in coded_errors()]
    assert not any(holds_secret(failure_body(error)) for error in errors)
    monkeypatch.setattr(VeilBoostError, "for_peer", lambda error: (error.what, error.remedy))
    assert all(holds_secret(failure_body(error)) == list(SECRETS) for error in errors)


@pytest.mark.fast
def test_a_public_text_crosses_as_it_is() -> None:
    error = AgainstPolicy("51 boosting rounds are more than 50", "raise max_trees", public=True)
    assert failure_body(error) == b"VB-1612\n51 boosting rounds are more than 50\nraise max_trees"
    assert pickle.loads(pickle.dumps(error)).public  # noqa: S301


@pytest.mark.fast
def test_public_texts_name_nothing_but_parties_jobs_rules_and_counts() -> None:
    """Whoever makes a text public meets this list, and thinks about what the text holds."""
    allowed = {
        "self.settings.name", "self.job.name", "self.job.driver", "job.name", "job.driver", "me", "named", "role",
        "roles[role]", "peer.party", "peer.fingerprint", "peer.fingerprint[:16]", "peer.not_after", "asked_run",
        "self._alignment.name", "self.role", "self.peer", "version", "VERSION", "most >> 20", "self._most >> 20",
            "peer", "own", "party", "older", "release", "__version__", "major", "minor", "account.links", "sessions",
                "settings.name", "run.path.name", "days", "self._settings.name", "message.generation",
                "self.status.run", "status.label", "status.now", "hours", "job.continues",
                    "config.objective", "spec.name", "LIMITING", "_WITHOUT_LIMITS",
    }  # fmt: skip
    shown: set[str] = set()
    for path in Path(veilboost.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            for word in call.keywords:
                if word.arg == "public" and ast.unparse(word.value) != "False":
                    sent = call.args if ast.unparse(word.value) == "True" else [word.value]
                    assert all(isinstance(each, ast.Constant | ast.JoinedStr) for each in sent), "write the text here"
                    texts = (part for each in sent for part in ast.walk(each))
                    shown |= {ast.unparse(part.value) for part in texts if isinstance(part, ast.FormattedValue)}
    assert shown == allowed & shown, shown - allowed
    assert len(shown) > 5


# --- a party, without sockets -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.mark.parametrize(
    "error",
    [
        ConstantColumn(TEXT),
        FileNotFoundError(errno.ENOENT, TEXT, "/srv/clinic-files/oncology.parquet"),
        ValueError(TEXT),
        KeyError("hiv_status"),
        MemoryError(TEXT),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_goes_wrong_within_a_request(
    tmp_path: Path,
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    town = Town(tmp_path, certificates, rows=200)
    text = town.write_job({"shop": "127.0.0.1:1"}).read_text()

    def fail(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(VerticalSession, "handle", fail)
    host = PartyHost(load_party(tmp_path / "shop.toml"), lambda name, seconds: pytest.fail("nobody is asked"))
    body = encode(Propose(text, dry_run=False, resume=False))
    packet = Packet(Kind.REQUEST, b"a" * 16, 1, body, hashlib.sha256(body).digest())
    answer = host.handle(peer_identity((certificates / "bank.crt").read_bytes()), packet)
    assert answer.kind is Kind.FAILURE
    assert not holds_secret(answer.body)
    log = caplog.text
    assert [(record.name, record.levelname) for record in caplog.records] == [("veilboost.party.daemon", "WARNING")]
    assert type(error).__name__ in log or "VB-1107" in log
    assert not holds_secret(log), "a log may be read by more people than the table"


# --- over TLS ---------------------------------------------------------------------------------------------


class Clinic:
    """A bank that drives, and a shop whose table, columns and ids are secrets. What the bank receives is kept."""

    def __init__(self, folder: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.town = Town(folder, certificates, rows=200, overlap=False)
        (folder / "clinic-files").mkdir()
        self.path = folder / "clinic-files" / "oncology.parquet"
        self.received: list[bytes] = []
        received = self.received
        original = Caller._receive

        def receive(caller: Caller, link: StreamLink) -> Packet | None:
            packet = original(caller, link)
            if packet is not None:
                received.append(packet.envelope() + packet.body)
            return packet

        monkeypatch.setattr(Caller, "_receive", receive)
        self.settle()

    def settle(self, features: tuple[str, ...] | None = None, **policy: object) -> None:
        data = DataSettings(Path("clinic-files/oncology.parquet"), id="id", features=features)
        self.town.settle("shop", data=data, policy=policy)

    def write(self, **columns: object) -> None:
        rng = np.random.default_rng(1)
        table = {"id": [f"c{at:05d}" for at in range(200)], "hiv_status": rng.normal(size=200)} | columns
        pq.write_table(pa.table(table), self.path)

    def train(self) -> None:
        daemon = Daemon(load_party(self.folder / "shop.toml"))
        try:
            job = load_job(self.town.write_job({"shop": f"127.0.0.1:{daemon.port}"}))
            with coordinate(load_party(self.folder / "bank.toml"), job) as driver:
                driver.train()
        finally:
            daemon.stop()

    def bank_knows(self) -> list[str]:
        """The secrets in all that the bank received, and in all that it wrote down."""
        files = [path for path in (self.folder / "runs-bank").rglob("*") if path.is_file()]
        return [
            found for content in (*self.received, *(p.read_bytes() for p in files)) for found in holds_secret(content)
        ]


@pytest.fixture
def clinic(tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> Clinic:
    made = Clinic(tmp_path, certificates, monkeypatch)
    made.write()
    return made


IDS = [f"c{at:05d}" for at in range(200)]


@pytest.mark.parametrize(
    ("code", "columns", "features", "owner_reads"),
    [
        ("VB-1103", {"id": ["patient-4711", "patient-4711", *IDS[2:]]}, None, "row"),
        ("VB-1107", {"hiv_status": np.ones(200)}, None, "hiv_status"),
        ("VB-1108", {"hiv_status": np.full(200, np.nan)}, None, "hiv_status"),
        ("VB-1109", {"hiv_status": [b"seropositive"] * 200}, None, "hiv_status"),
        ("VB-1110", {"hiv_status": np.r_[np.inf, np.arange(199.0)]}, None, "hiv_status"),
        ("VB-1112", {}, ("oncology",), "oncology"),
        ("VB-1111", {}, ("id", "hiv_status"), "id"),
    ],
)
def test_a_table_that_is_not_fit_tells_the_peer_its_code_alone(
    clinic: Clinic,
    caplog: pytest.LogCaptureFixture,
    code: str,
    columns: dict[str, object],
    features: tuple[str, ...] | None,
    owner_reads: str,
) -> None:
    clinic.settle(features)
    clinic.write(**columns)
    with pytest.raises(VeilBoostError) as refused:
        clinic.train()
    assert f"shop refused ({code}: " in str(refused.value)
    assert not holds_secret(str(refused.value))
    assert clinic.received
    assert clinic.bank_knows() == []
    status = clinic.town.run_folder("shop").status
    assert status["state"] == "failed"
    assert status["error"].startswith(code)
    assert owner_reads in status["error"]
    assert code in caplog.text
    assert not holds_secret(caplog.text)


@pytest.mark.parametrize("how", ["missing", "no parquet", "forbidden"])
def test_a_file_that_cannot_be_read_tells_no_path(clinic: Clinic, how: str) -> None:
    if how == "missing":
        clinic.path.unlink()
    elif how == "no parquet":
        clinic.path.write_text("patient-4711 is seropositive")
    else:
        clinic.path.unlink()
        clinic.path.mkdir()
    with pytest.raises(VeilBoostError) as refused:
        clinic.train()
    assert "VB-1101" in str(refused.value)
    assert not holds_secret(str(refused.value))
    assert clinic.bank_knows() == []
    assert "oncology.parquet" in clinic.town.run_folder("shop").status["error"]


@pytest.mark.parametrize("rule", [{"tables": ("other",)}, {"columns": ("n1",)}], ids=["tables", "columns"])
def test_rules_about_the_owners_names_are_not_explained_to_a_peer(clinic: Clinic, rule: dict[str, object]) -> None:
    data = DataSettings(Path("clinic-files/oncology.parquet"), id="id", table="oncology", features=("hiv_status",))
    clinic.town.settle("shop", data=data, policy=rule)
    with pytest.raises(VeilBoostError, match="VB-1612: the owner's policy refuses the request"):
        clinic.train()
    assert clinic.bank_knows() == []


def test_a_prediction_tells_no_more(clinic: Clinic, caplog: pytest.LogCaptureFixture) -> None:
    clinic.train()
    run = clinic.town.run_folder("bank")
    clinic.received.clear()
    clinic.write(hiv_status=["seropositive", *map(str, range(199))])  # of another kind than the model knows
    daemon = Daemon(load_party(clinic.folder / "shop.toml"))
    try:
        job = clinic.town.write_job({"shop": f"127.0.0.1:{daemon.port}"})
        run.save_job(job.read_text())  # the shop has another port now
        bank = load_party(clinic.folder / "bank.toml")
        assert bank.data is not None
        with pytest.raises(VeilBoostError) as refused:
            LivePredictor(bank, run).predict(bank.data.load().without_label())
    finally:
        daemon.stop()
    assert "shop refused (VB-1306: " in str(refused.value)
    assert clinic.received
    assert not any(holds_secret(content) for content in clinic.received)
    assert "VB-1306" in caplog.text
    assert not holds_secret(caplog.text)
    assert "hiv_status" in clinic.town.run_folder("shop").status["error"], "the owner finds it here"


def test_a_list_of_revoked_certificates_that_cannot_be_read(
    clinic: Clinic, certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_party(clinic.folder / "shop.toml")
    revoked = clinic.folder / "clinic-files" / "oncology.crl"
    daemon = Daemon(replace(settings, certificates=replace(settings.certificates, revoked=revoked)))
    try:
        job = load_job(clinic.town.write_job({"shop": f"127.0.0.1:{daemon.port}"}))
        with coordinate(load_party(clinic.folder / "bank.toml"), job) as driver:
            told = driver.check().errors["shop"]
    finally:
        daemon.stop()
    assert told is not None
    assert "VB-1601" in told
    assert not holds_secret(told)
    assert "oncology.crl" in caplog.text
