"""Server, participants, comparer and authority as daemons of their own, over mutual TLS."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import call
from veilboost import HorizontalClassifier
from veilboost.config import TrainingConfig
from veilboost.errors import (
    AgainstPolicy,
    CheckpointFailed,
    ImpossibleSetting,
    JobExists,
    PeerRefused,
    PeerUnreachable,
    StateDiffers,
    VeilBoostError,
)
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.coordinator import Coordinator
from veilboost.party.daemon import Daemon, PartyHost
from veilboost.party.federation import Federation, coordinate
from veilboost.party.identity import peer_identity
from veilboost.party.job import Job, JobParty, load_job
from veilboost.party.messages import Propose
from veilboost.party.policy import Policy
from veilboost.party.runs import RunFolder
from veilboost.party.sections import commented_toml
from veilboost.party.settings import CertificateSettings, DataSettings, Limits, PartySettings, PeerSettings, load_party
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.privacy.accountant import compose
from veilboost.privacy.event import event_from_dict
from veilboost.wire.message import encode
from veilboost.wire.rpc import Kind, Packet
from veilboost.wire.transcript import read_transcript

HELPERS = {"judge": "comparer", "notary": "authority"}
OWNERS = ("north", "south", "east")
HUB = "hub"
QUIET = {"epsilon": 0, "guard": "allow"}
CONFIG = TrainingConfig(objective="binary", n_estimators=6, max_bin=8, options=QUIET)


class Town:
    """The files of all parties, and the daemons of all but the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.everyone = (HUB, *OWNERS, *HELPERS)
        init_authority(folder, "town")
        rng = np.random.default_rng(3)
        self.daemons: dict[str, Daemon] = {}
        for name in (*reversed(HELPERS), *OWNERS, HUB):  # whoever is dialled first: files hold addresses
            issue(folder, name, ["localhost", "127.0.0.1"])
            if name in OWNERS:
                values = rng.normal(size=(150, 3)).round(3)
                late = (values.sum(axis=1) + rng.normal(size=150) > 0).astype(np.int64)
                town = np.array(["a", "b"])[rng.integers(2, size=150)]
                table = {"id": np.arange(150), "town": town, "late": late}
                pq.write_table(pa.table(table | {f"x{k}": values[:, k] for k in range(3)}), folder / f"{name}.parquet")
            self.settle(name)
            if name != HUB:
                self.serve(name)

    def settle(self, name: str, listen: str = "127.0.0.1:0", wait_seconds: float = 10.0, **policy: object) -> None:
        names = ("mal", "secagg")
        settings = PartySettings(
            name=name,
            certificates=CertificateSettings(Path(f"{name}.crt"), Path(f"{name}.key"), Path("ca.crt")),
            data=DataSettings(Path(f"{name}.parquet"), id="id", label="late") if name in OWNERS else None,
            listen=listen,
            runs=Path(f"runs-{name}"),
            n_jobs=1,
            peers={
                helper: PeerSettings(f"127.0.0.1:{self.daemons[helper].port}", "in")
                for helper in HELPERS
                if helper in self.daemons and name not in (helper, HUB)
            },
            limits=Limits(wait_seconds=wait_seconds, request_seconds=10.0),
            policy=Policy(
                **{
                    "protocols": names,
                    "allow_unprotected": names,
                    "peers": {other: ("any",) for other in self.everyone if other != name},
                }
                | policy
            ),
        )
        (self.folder / f"{name}.toml").write_text(commented_toml(settings, f"The settings of {name}."))

    def serve(self, name: str) -> None:
        self.daemons[name] = Daemon(load_party(self.folder / f"{name}.toml"))

    def job(self, protocol: str, name: str = "credit", config: TrainingConfig = CONFIG) -> Path:
        helpers = HELPERS if protocol == "mal" else {}
        parties = {HUB: JobParty(role="server", connect="in")}
        for other in (*OWNERS, *helpers):
            address = f"127.0.0.1:{self.daemons[other].port}"
            parties[other] = JobParty(address, role=helpers.get(other, "participant"))
        if protocol == "secagg":
            config = replace(config, max_depth=2, options={} if config.options == QUIET else config.options)
        job = Job(name=name, parties=parties, protocol=protocol, training=config)
        path = self.folder / f"{name}.toml"
        path.write_text(commented_toml(job, "A job."))
        return path

    def driver(self, job: Path) -> Coordinator:
        return coordinate(load_party(self.folder / f"{HUB}.toml"), load_job(job))

    def simulated(self, protocol: str, config: TrainingConfig = CONFIG) -> str:
        tables = {}
        for name in OWNERS:
            settings = load_party(self.folder / f"{name}.toml")
            tables[name] = settings.data.load()
        if protocol == "secagg":
            config = replace(config, max_depth=2, options={})
        return simulate_training(tables, SERVER, protocol, config).model.sha256()

    def close(self) -> None:
        for daemon in self.daemons.values():
            daemon.stop()


@pytest.fixture
def town(tmp_path):
    made = Town(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("protocol", ["mal", "secagg"])
def test_everybody_ends_with_the_model_of_a_simulation(town, protocol, caplog):
    caplog.set_level("INFO", "veilboost")
    with town.driver(town.job(protocol)) as driver:
        assert driver.check().errors == dict.fromkeys((HUB, *driver.others))
        run, outcome = driver.train()
    assert list(town.folder.glob("runs-*/**/*key*")) == [], "their jobs are finished"
    expected = town.simulated(protocol)
    for folder in (run, *(RunFolder(town.folder / f"runs-{name}" / "credit") for name in OWNERS)):
        part = folder.load_share()
        assert join({part.party: part}).sha256() == expected
        assert folder.status["state"] == "finished"
        assert any(read_transcript(folder.path / "transcript"))
    assert not outcome.dropped
    assert run.status["reports"] == outcome.reports
    for name, report in outcome.reports.items():  # its owner has it, too
        assert RunFolder(town.folder / f"runs-{name}" / "credit").status["report"] == report
    assert set(outcome.reports) == (set(OWNERS) if protocol == "mal" else set())
    listed = json.loads(call("jobs", "list", "--config", f"{HUB}.toml", "--json", folder=town.folder).stdout)["runs"]
    assert [(each["job"], each["role"], each["rounds"]) for each in listed] == [("credit", "server", 6)]
    for name, role in HELPERS.items() if protocol == "mal" else ():
        listed = json.loads(call("jobs", "list", "--config", f"{name}.toml", "--json", folder=town.folder).stdout)
        assert [(each["job"], each["role"], each["state"]) for each in listed["runs"]] == [("credit", role, "finished")]
        helper = RunFolder.open(town.folder / f"runs-{name}", "credit")
        assert (helper.status["state"], helper.status["role"], helper.status["active"]) == ("finished", role, HUB)
        assert {entry.peer for entry in read_transcript(helper.path / "transcript")} > set(OWNERS)
        for owner in OWNERS:  # both ends record what a participant and a helper exchange
            own = read_transcript(town.folder / f"runs-{owner}" / "credit" / "transcript")
            ends = [
                sorted((entry.message, entry.size) for entry in entries if entry.peer == peer)
                for entries, peer in ((own, name), (read_transcript(helper.path / "transcript"), owner))
            ]
            assert len(ends[0]) == 2
            assert ends[0] == ends[1]
    roles = ["participant"] * len(OWNERS) + (list(HELPERS.values()) if protocol == "mal" else [])
    accepted = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "job_accepted"]
    assert sorted(accepted) == sorted(f"takes part as {role}" for role in roles)
    finished = [record.fields["job"] for record in caplog.records if getattr(record, "event", "") == "job_finished"]
    assert finished == ["credit"] * (len(roles) + 1)
    for name in OWNERS:
        rounds = town.daemons[name].host.metrics.registry.get_sample_value("veilboost_rounds_total")
        assert rounds == outcome.share.skeleton.trees_per_round * CONFIG.n_estimators
        ledger = RunFolder(town.folder / f"runs-{name}" / "credit").ledger
        assert {event["protocol"] for event in ledger["events"]} == {protocol}
    with town.driver(town.job(protocol)) as driver, pytest.raises(JobExists):
        driver.train()


def test_a_policy_that_does_not_name_the_protocol_refuses(town):
    town.daemons["east"].stop()
    town.settle("east", protocols=("plain",))
    town.serve("east")
    with town.driver(town.job("mal")) as driver:
        answers = driver.check().errors
        assert "VB-1612" in str(answers["east"])
        assert answers["north"] is None
        with pytest.raises(PeerRefused, match="east"):
            driver.train()
    assert not (town.folder / "runs-east" / "credit").exists()
    with town.driver(town.job("mal", "second")) as driver:  # nobody's table is taken by the job that failed
        assert driver.check().errors["north"] is None


def test_a_participants_table_that_is_not_fit_tells_no_names(town):
    table = pq.read_table(town.folder / "east.parquet")
    pq.write_table(table.append_column("hiv_status", pa.array(np.ones(table.num_rows))), town.folder / "east.parquet")
    with town.driver(town.job("secagg")) as driver, pytest.raises(PeerRefused, match="VB-1107") as refused:
        driver.train()
    assert "hiv_status" not in str(refused.value)
    folder = town.folder / f"runs-{HUB}"
    assert not any(b"hiv_status" in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    status = RunFolder(town.folder / "runs-east" / "credit").status
    assert status["state"] == "failed"
    assert "hiv_status" in status["error"]


def test_a_budget_too_small_for_the_columns_refuses_before_anything_is_sent(town):
    town.daemons["east"].stop()
    town.settle("east", epsilon_per_job=1.0)
    town.serve("east")
    with town.driver(town.job("mal")) as driver, pytest.raises(PeerRefused, match="epsilon_per_job"):
        driver.train()


@pytest.mark.parametrize(("limit", "fits"), [(2.0, True), (1.0, False)])
def test_sums_with_noise_are_booked_and_kept_within_the_owners_budget(town, limit, fits):
    town.daemons["east"].stop()
    town.settle("east", epsilon_per_job=limit)
    town.serve("east")
    with town.driver(town.job("secagg", config=replace(CONFIG, options={"epsilon": 1.5}))) as driver:
        if not fits:
            with pytest.raises(PeerRefused, match="epsilon_per_job"):
                driver.train()
            return
        driver.train()
    events = [event_from_dict(each) for each in RunFolder(town.folder / "runs-east" / "credit").ledger["events"]]
    assert 1.0 < compose(events, 1e-5).epsilon <= 1.5


def test_a_participant_that_is_gone_is_a_clear_error(town):
    job = town.job("secagg")
    town.daemons["east"].stop()
    settings = load_party(town.folder / f"{HUB}.toml")
    settings = replace(settings, limits=replace(settings.limits, wait_seconds=1.0))
    with coordinate(settings, load_job(job)) as driver, pytest.raises(PeerUnreachable, match="east"):
        driver.train()


@pytest.mark.parametrize(("least", "starts"), [(2, True), (3, False)])
def test_mal_starts_without_a_participant_if_enough_are_there(town, least, starts):
    job = town.job("mal", config=replace(CONFIG, options=QUIET | {"least_participants": least}))
    town.daemons["east"].stop()
    settings = load_party(town.folder / f"{HUB}.toml")
    settings = replace(settings, limits=replace(settings.limits, wait_seconds=0.5))
    with coordinate(settings, load_job(job)) as driver:
        if not starts:
            with pytest.raises(
                PeerUnreachable, match=r"2 of 3 participants can be reached, and the job needs 3: .*east"
            ):
                driver.train()
            return
        run, outcome = driver.train()
    assert set(outcome.dropped) == set(run.status["dropped"]) == {"east"}
    assert set(outcome.reports) == {"north", "south"}
    assert RunFolder(town.folder / "runs-north" / "credit").status["state"] == "finished"
    assert run.status["state"] == "finished"


def watched(town, job, name, change):
    """The driver, and what it hears of one participant changed: by `change(message)`, before it is asked."""
    driver = town.driver(job)
    make = driver._caller

    def caller(party, *rest, **named):
        found = make(party, *rest, **named)
        if party == name:
            send = found.send
            found.send = lambda message: change(message) or send(message)
        return found

    driver._caller = caller
    return driver


def test_the_comparer_waits_no_longer_than_its_owner_says_and_the_others_finish(town):
    """East agrees and is never heard of again: the comparer waits, says who is missing, and the others train."""
    town.daemons["judge"].stop()
    port = town.daemons["judge"].port
    town.settle("judge", listen=f"127.0.0.1:{port}", wait_seconds=0.5)
    town.serve("judge")

    def gone(message):
        if message.type_name() == "RowsRequest":
            raise PeerUnreachable("east is gone")

    with watched(town, town.job("mal"), "east", gone) as driver:
        _, outcome = driver.train()
    assert set(outcome.dropped) == {"east"}
    assert set(outcome.reports) == {"north", "south"}
    entries = list(read_transcript(town.folder / "runs-north" / "credit" / "transcript"))
    sent = [entry.message for entry in entries if entry.direction == "sent"]
    assert sent.count("RowsHeldBack") == sent.count("MaskedRows") == 1


def test_a_connection_that_breaks_is_opened_again(town):
    """secagg: the link is cut in the middle of training; nothing is asked or answered twice."""
    cut = []

    def break_link(message):
        if message.type_name() == "SumsRequest" and len(cut) < 2:
            cut.append(message)
            if len(cut) == 2:
                driver._callers[list(driver.others).index("east")].close()

    driver = watched(town, town.job("secagg"), "east", break_link)
    with driver:
        run, outcome = driver.train()
    assert len(cut) == 2
    assert not outcome.dropped
    part = run.load_share()
    assert join({part.party: part}).sha256() == town.simulated("secagg")


@pytest.mark.parametrize("protocol", ["secagg", "mal"])
def test_validation_rows_stay_with_their_participants(town, protocol):
    path = town.job(protocol, config=replace(CONFIG, n_estimators=4))
    job = replace(load_job(path), validation=0.3)
    path.write_text(commented_toml(job, "A job."))
    with town.driver(path) as driver:
        _, outcome = driver.train()
    assert outcome.metric == "logloss"
    assert all(result.validation is not None for result in outcome.history)
    with pytest.raises(ImpossibleSetting, match="validation"):
        replace(job, validation=0.0, training=replace(job.training, early_stopping_rounds=2))


# --- resuming -------------------------------------------------------------------------------------------------


def stopping(town, job, when):
    """A driver that is interrupted, as with Ctrl-C, before it sends the first message that `when` accepts."""

    def stop(message):
        if when(message):
            raise KeyboardInterrupt

    return watched(town, job, "east", stop)


def named(name):
    return lambda message: message.type_name() == name


def in_round(number, depth=1):
    return lambda message: message.type_name() == "SumsRequest" and (message.number, message.depth) == (number, depth)


def models(town, name="credit"):
    parts = [RunFolder(town.folder / f"runs-{party}" / name).load_share() for party in (HUB, *OWNERS)]
    return {join({part.party: part}).sha256() for part in parts}


def rounds_asked(town, since):
    entries = list(read_transcript(town.folder / "runs-north" / "credit" / "transcript"))[since:]
    return sum(entry.message == "SumsRequest" for entry in entries)


@pytest.mark.parametrize("number", [0, 1, 4])
def test_an_interrupted_job_resumes_to_the_same_model(town, number):
    job = town.job("secagg")
    with stopping(town, job, in_round(number)) as driver, pytest.raises(KeyboardInterrupt):
        driver.train()
    folder = RunFolder(town.folder / f"runs-{HUB}" / "credit")
    assert folder.state == "cancelled"
    asked = rounds_asked(town, 0)
    for name in OWNERS[:2]:  # also after a restart of participants
        port = town.daemons[name].port
        town.daemons[name].stop()
        town.settle(name, listen=f"127.0.0.1:{port}")
        town.serve(name)
    done = call("train", job.name, "--config", f"{HUB}.toml", "--json", "--resume", folder=town.folder)
    assert done.returncode == 0, done.stderr
    assert models(town) == {town.simulated("secagg")}
    every = 2 * CONFIG.n_estimators  # two levels each
    assert rounds_asked(town, 0) - asked == every - 2 * max(number - 1, 0)
    assert list(town.folder.glob("runs-*/**/*key*")) == []
    again = call("train", job.name, "--config", f"{HUB}.toml", "--resume", folder=town.folder)
    assert "is finished" in again.stderr


@pytest.mark.parametrize("when", [in_round(3), named("TrainedModel"), named("Finish")], ids=["round", "model", "end"])
def test_training_goes_on_by_itself_when_a_participant_is_restarted(town, when):
    job, restarted = town.job("secagg"), []
    address = town.daemons["east"].port

    def restart(message):
        if when(message) and not restarted:
            restarted.append(message)
            town.daemons["east"].stop()
            town.settle("east", listen=f"127.0.0.1:{address}")
            town.serve("east")

    with watched(town, job, "east", restart) as driver:
        _, outcome = driver.train()
    assert restarted
    assert not outcome.dropped
    assert list(town.folder.glob("runs-*/**/*key*")) == []
    assert len(outcome.history) == CONFIG.n_estimators
    assert models(town) == {town.simulated("secagg")}


def test_a_job_whose_trees_are_complete_resumes_by_sending_the_model(town):
    job = town.job("secagg")
    with stopping(town, job, named("Finish")) as driver, pytest.raises(KeyboardInterrupt):
        driver.train()
    states = {name: RunFolder(town.folder / f"runs-{name}" / "credit").status["state"] for name in OWNERS}
    assert states["north"] == "finished" != states["east"]
    with town.driver(job) as driver:
        driver.train(resume=True)
    assert models(town) == {town.simulated("secagg")}


def test_a_resumed_job_needs_the_same_table(town):
    job = town.job("secagg")
    with stopping(town, job, in_round(3)) as driver, pytest.raises(KeyboardInterrupt):
        driver.train()
    table = pq.read_table(town.folder / "east.parquet")
    pq.write_table(table.slice(1), town.folder / "east.parquet")
    with town.driver(job) as driver, pytest.raises(PeerRefused, match="VB-1710"):
        driver.train(resume=True)
    pq.write_table(table, town.folder / "east.parquet")
    with town.driver(job) as driver:
        driver.train(resume=True)
    assert models(town) == {town.simulated("secagg")}


@pytest.mark.parametrize("party", [HUB, "east"])
def test_a_party_that_lost_its_last_checkpoint_takes_the_others_back(town, party):
    job = town.job("secagg")
    with stopping(town, job, in_round(4, 0)) as driver, pytest.raises(KeyboardInterrupt):
        driver.train()
    asked = rounds_asked(town, 0)
    kept = sorted((town.folder / f"runs-{party}" / "credit" / "checkpoint").iterdir())
    assert [path.name for path in kept] == ["2.checkpoint", "3.checkpoint"]
    kept[1].unlink()
    with town.driver(job) as driver:
        driver.train(resume=True)
    assert rounds_asked(town, 0) - asked == 2 * (CONFIG.n_estimators - 2)
    assert models(town) == {town.simulated("secagg")}


def test_parties_without_a_common_checkpoint_stop(town):
    job = town.job("secagg")
    with stopping(town, job, in_round(4)) as driver, pytest.raises(KeyboardInterrupt):
        driver.train()
    for path in (town.folder / "runs-east" / "credit" / "checkpoint").iterdir():
        path.unlink()
    with town.driver(job) as driver, pytest.raises(StateDiffers, match="no checkpoint in common"):
        driver.train(resume=True)


def test_a_refused_start_leaves_the_trees_of_the_interrupted_job(town):
    job = town.job("secagg")
    with stopping(town, job, in_round(3)) as driver, pytest.raises(KeyboardInterrupt):
        driver.train()
    port = town.daemons["east"].port
    town.daemons["east"].stop()
    town.settle("east", listen=f"127.0.0.1:{port}", protocols=("plain",))
    town.serve("east")
    with town.driver(job) as driver, pytest.raises(PeerRefused):
        driver.train()
    town.daemons["east"].stop()
    town.settle("east", listen=f"127.0.0.1:{port}")
    town.serve("east")
    with town.driver(job) as driver:
        driver.train(resume=True)
    assert models(town) == {town.simulated("secagg")}


def test_an_owner_limits_how_often_rounds_are_begun_again(town):
    port = town.daemons["east"].port
    town.daemons["east"].stop()
    town.settle("east", listen=f"127.0.0.1:{port}", max_rewinds=2)
    town.serve("east")
    job = town.job("secagg")
    for resume in (False, True):
        with stopping(town, job, in_round(3)) as driver, pytest.raises(KeyboardInterrupt):
            driver.train(resume)
    with town.driver(job) as driver, pytest.raises(PeerRefused, match="max_rewinds"):
        driver.train(resume=True)


def test_mal_resumes_at_its_only_exchange(town):
    job = town.job("mal")
    with stopping(town, job, named("TrainedModel")) as driver, pytest.raises(KeyboardInterrupt):
        driver.train()
    with town.driver(job) as driver:
        driver.train(resume=True)
    assert models(town) == {town.simulated("mal")}


def test_only_the_server_drives(town):
    job = load_job(town.job("mal"))
    with pytest.raises(AgainstPolicy):
        coordinate(load_party(town.folder / "north.toml"), job)


def test_the_command_line_trains_at_the_server(town):
    job = town.job("mal")
    done = call("train", job.name, "--config", f"{HUB}.toml", "--json", folder=town.folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rounds"] == 6
    assert set(told["reports"]) == set(OWNERS)
    frame = pq.read_table(town.folder / "north.parquet").to_pandas().drop(columns=["id", "late"])
    model = HorizontalClassifier.load(town.folder / "runs-north" / "credit")
    late = pq.read_table(town.folder / "north.parquet")["late"].to_numpy()
    assert model.score(frame, late) > 0.6
    shown = call("jobs", "show", "credit", "--config", "north.toml", "--json", folder=town.folder)
    assert json.loads(shown.stdout)["report"] == told["reports"]["north"]
    for name in (HUB, "north"):
        text = call("jobs", "show", "credit", "--config", f"{name}.toml", folder=town.folder).stdout
        assert "exposed rows" in text.replace("\n", " ")
        assert "{" not in text
    again = town.job("mal", "second")
    done = call("train", again.name, "--config", f"{HUB}.toml", folder=town.folder)
    assert "exposed rows" in done.stdout
    again = town.job("mal", "third")
    done = call("check", again.name, "--config", f"{HUB}.toml", "--json", folder=town.folder)
    assert json.loads(done.stdout)["ready"], done.stderr


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"without": HUB}, "0 parties have role = 'server'"),
        ({"alignment": "ecdh"}, "remove the key alignment"),
        ({"protocol": "mal", "without": "judge"}, "comparer"),
        ({"protocol": "secagg"}, "role"),
    ],
)
def test_impossible_jobs_are_refused(town, change, text):
    job = load_job(town.job("mal"))
    without = change.pop("without", None)
    parties = {name: party for name, party in job.parties.items() if name != without}
    with pytest.raises(ImpossibleSetting, match=text):
        replace(job, parties=parties, **change)


def test_every_refusal_is_coded(town):
    with pytest.raises(VeilBoostError, match="VB-"):
        load_job(town.folder / "nothing.toml")


def test_a_participant_without_the_run_has_nothing_to_resume(town):
    job = town.job("secagg")
    host = PartyHost(load_party(town.folder / "north.toml"), lambda name, seconds: pytest.fail("nobody is asked"))
    server = peer_identity((town.folder / f"{HUB}.crt").read_bytes())
    body = encode(Propose(job.read_text(), dry_run=False, resume=True))
    answer = host.handle(server, Packet(Kind.REQUEST, b"a" * 16, 1, body, hashlib.sha256(body).digest()))
    assert answer.kind is Kind.FAILURE
    assert b"VB-1703" in answer.body
    assert not (town.folder / "runs-north" / job.stem).exists()


def test_a_program_drives_a_horizontal_job_like_any_other(town):
    federation = Federation(town.job("secagg"), town.folder / f"{HUB}.toml")
    assert federation.check().errors == dict.fromkeys((HUB, *OWNERS))
    done = federation.train(progress=False)
    assert (done.protocol, done.participants, done.rounds, done.dropped) == ("secagg", list(OWNERS), 6, {})
    assert set(done.traffic) == set(OWNERS)
    frame = pq.read_table(town.folder / "north.parquet").to_pandas().drop(columns=["id", "late"])
    found = federation.predict(frame)
    model = HorizontalClassifier.load(town.folder / "runs-north" / "credit")
    assert np.array_equal(found.scores, model.predict_proba(frame)[:, 1])
    assert federation.transcript()


def test_a_model_that_the_driver_cannot_write_ends_its_run_as_failed(town, monkeypatch):
    save = RunFolder.save_share

    def full_disk(run, part):
        if run.path.parent.name == f"runs-{HUB}":
            raise CheckpointFailed("the model share cannot be written (No space left on device)")
        save(run, part)

    monkeypatch.setattr(RunFolder, "save_share", full_disk)
    with town.driver(town.job("secagg")) as driver, pytest.raises(CheckpointFailed):
        driver.train()
    status = RunFolder(town.folder / f"runs-{HUB}" / "credit").status
    assert status["state"] == "failed"
    assert "No space left" in status["error"]
