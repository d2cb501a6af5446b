"""What a job spends stands in its party's ledger, and a job that would overdraw it never starts."""

from __future__ import annotations

import json
import stat
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from parties import CONFIG, Town, make_certificates
from veilboost.cli.main import app
from veilboost.errors import AgainstPolicy, JobCancelled, NothingToResume, PeerRefused
from veilboost.party.booking import Booking
from veilboost.party.coordinator import Watch
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.settings import load_party
from veilboost.party.simulation import simulate_training
from veilboost.privacy.accountant import DEFAULT_DELTA, gaussian_epsilon
from veilboost.privacy.event import Adjacency, Gaussian
from veilboost.privacy.ledger import Ledger
from veilboost.protocols import registry
from veilboost.protocols.plain.active import PlainCipher
from veilboost.protocols.plain.passive import PlainPassiveCipher
from veilboost.protocols.plain.spec import SPEC as PLAIN
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.types import Role

DELTA = DEFAULT_DELTA  # a policy's own
NOISE = 0.3
ROUNDS, ROWS = CONFIG.n_estimators, 162  # rounds, and common rows of the two


def event(role, number):
    return Gaussian(
        NOISE,
        what="a number with noise",
        adjacency=Adjacency.LABEL if role is Role.ACTIVE else Adjacency.PASSIVE_RECORD,
        adversary="passive parties" if role is Role.ACTIVE else "the active party",
        protocol="noisy",
        release=f"round {number}",
        paper_epsilon=1.0,
        paper_delta=1e-3,
    )


class NoisyCipher(PlainCipher):
    """Spends once a round, and keeps what noise it would have drawn."""

    drawn: list[tuple[int, bytes]] = []  # noqa: RUF012

    def shown(self, start):
        self.context.account.spend(event(Role.ACTIVE, start.number))
        self.drawn.append((start.number, self.context.randomness.for_request("noise", start.number).bytes(8)))
        return super().shown(start)


class NoisyPassiveCipher(PlainPassiveCipher):
    def open_round(self, message):
        self.context.account.spend(event(Role.PASSIVE, message.number))
        super().open_round(message)


def plan(config, rows, role, columns=1):
    return [event(role, number) for number in range(config.n_estimators)]


NOISY = replace(
    PLAIN,
    name="noisy",
    roles={
        "active": lambda context: VerticalActive(context, NoisyCipher(context)),
        "passive": lambda context: VerticalPassive(context, NoisyPassiveCipher(context)),
    },
    plan=plan,
    exact_messages=lambda config, first: (),
)
JOB_COSTS = gaussian_epsilon(NOISE * ROUNDS**0.5, DELTA)


@pytest.fixture(autouse=True)
def noisy(monkeypatch):
    """One more protocol, for these tests alone."""
    careless = replace(NOISY, name="careless", plan=None)
    known = {**registry.all_protocols(), "noisy": NOISY, "careless": careless}
    monkeypatch.setattr(registry, "all_protocols", lambda: known)
    monkeypatch.setattr(NoisyCipher, "drawn", [])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


class Pair:
    """A bank that drives and a shop that answers, in this process, over real links."""

    def __init__(self, folder, certificates):
        self.town = Town(folder, certificates, rows=200)
        self.folder = folder
        self._daemon = None

    def settle(self, bank=None, shop=None):
        for party, budget in (("bank", bank), ("shop", shop)):
            allowed = ("plain", "noisy", "careless")
            policy = {"protocols": allowed, "allow_unprotected": allowed} | (budget or {})
            self.town.settle(party, policy=policy)
        self.restart()

    def restart(self):
        self.close()
        self._daemon = Daemon(load_party(self.folder / "shop.toml"))

    def driver(self, name="first", protocol="noisy", watch=None):
        job = self.town.write_job({"shop": f"127.0.0.1:{self._daemon.port}"}, name)
        settings = load_job(job)
        return coordinate(
            load_party(self.folder / "bank.toml"),
            replace(settings, protocol=protocol),
            watch,
        )

    def train(self, name="first", protocol="noisy", resume=False, watch=None):
        with self.driver(name, protocol, watch) as driver:
            return driver.train(resume)

    def answer(self, *arguments):
        """What the command line prints, in this process."""
        result = CliRunner().invoke(app, [self._word(word) for word in (*arguments, "--json")])
        assert result.exit_code == 0, result.exception
        return json.loads(result.stdout)

    def refused(self, *arguments):
        """The code of a refusal."""
        return CliRunner().invoke(app, [self._word(word) for word in arguments]).exception.code

    def _word(self, word):
        return str(self.folder / word) if str(word).endswith((".toml", ".json")) else str(word)

    def ledger(self, party):
        return Ledger(self.folder / f"runs-{party}" / "ledger.sqlite")

    def close(self):
        if self._daemon is not None:
            self._daemon.stop()
            self._daemon = None


@pytest.fixture
def pair(tmp_path, certificates):
    made = Pair(tmp_path, certificates)
    made.settle()
    yield made
    made.close()
    made.town.close()


def test_a_simulation_keeps_an_account_per_party(pair):
    tables = {name: load_party(pair.folder / f"{name}.toml").data.load() for name in ("bank", "shop")}
    from veilboost.align.clear import align_by_id

    runs = [simulate_training(align_by_id(tables), "bank", "noisy", CONFIG, unsafe_noise_seed=3) for _ in range(2)]
    assert runs[0].accounts["bank"].events == tuple(plan(CONFIG, 0, Role.ACTIVE))
    assert runs[0].accounts["shop"].events == tuple(plan(CONFIG, 0, Role.PASSIVE))
    first, second = NoisyCipher.drawn[:ROUNDS], NoisyCipher.drawn[ROUNDS:]
    assert first == second
    for _ in range(2):  # the seed of the job decides no noise: eight bytes agree by chance once in 2^64
        simulate_training(align_by_id(tables), "bank", "noisy", CONFIG)
    third, fourth = NoisyCipher.drawn[2 * ROUNDS : 3 * ROUNDS], NoisyCipher.drawn[3 * ROUNDS :]
    assert third != fourth
    assert first not in (third, fourth)


def test_both_ledgers_hold_what_was_drawn_and_both_runs_say_so(pair):
    run, _ = pair.train()
    for party, role in (("bank", Role.ACTIVE), ("shop", Role.PASSIVE)):
        ledger = pair.ledger(party)
        planned = plan(CONFIG, 0, role)
        if party == "shop":
            planned = [replace(each, adversary="bank") for each in planned]  # the receiver is named
        assert ledger.events() == tuple(planned)
        assert ledger.reserved() == {}
        assert ledger.spent(DELTA) == pytest.approx(JOB_COSTS)
        folder = pair.town.run_folder(party, "first")
        kept = folder.ledger
        assert kept["party"] == party
        assert len(kept["events"]) == ROUNDS
        told = pair.answer("privacy", "spent", folder.path)
        (composed,) = told["composed"]
        assert composed["epsilon"] == pytest.approx(JOB_COSTS)
        assert told["paper"][0]["epsilon_per_release"] == 1.0
        shown = pair.answer("ledger", "show", "--party", f"{party}.toml")
        assert shown["spent"] == pytest.approx(JOB_COSTS)
    assert run.status["state"] == "finished"


def test_what_a_protocol_without_noise_shows_stands_beside_what_has_an_epsilon(pair):
    limits = {"epsilon_per_job": JOB_COSTS * 1.01, "epsilon_total": JOB_COSTS * 1.01}
    pair.settle(bank=limits, shop=limits)
    pair.train("exact", protocol="plain")  # limits on epsilon do not speak of it
    pair.train("noisy")
    for party, peer in (("bank", "shop"), ("shop", "bank")):
        assert pair.ledger(party).spent(DELTA) == pytest.approx(JOB_COSTS)
        shown = pair.answer("ledger", "show", "--party", f"{party}.toml")
        assert shown["spent"] == shown["bounded"] == pytest.approx(JOB_COSTS)
        assert [(job["exact_releases"] > 0, job["bounded"] > 0) for job in shown["jobs"]] == [
            (True, False),
            (False, True),
        ]
        assert {item["to"] for item in shown["exact"]} == {peer}
        assert {(item["rows"], item["times"], item["jobs"]) for item in shown["exact"]} == {(ROWS, ROUNDS, 1)}
        with_noise = "passive parties" if party == "bank" else "bank"
        assert {name for name, told in shown["by_peer"].items() if told["bounded"]} == {with_noise}
        assert shown["by_peer"][with_noise]["bounded"] == pytest.approx(JOB_COSTS)
        assert shown["by_peer"][peer]["exact_releases"] == 2 * ROUNDS
        text = CliRunner().invoke(app, ["ledger", "show", "--party", str(pair.folder / f"{party}.toml")]).stdout
        assert f"epsilon {JOB_COSTS:.3f} with noise" in text
        assert f"{2 * ROUNDS} exact releases" in text
    assert any("sums of gradients" in item["what"] and item["bins"] for item in shown["exact"])


def test_a_resumed_job_books_exact_releases_once(pair):
    with pytest.raises(JobCancelled):
        pair.train(protocol="plain", watch=stop_after(3))
    assert {item.times for item in pair.ledger("shop").exact()} == {3}
    pair.restart()
    pair.train(protocol="plain", resume=True)
    for party in ("bank", "shop"):
        assert {(item.times, item.jobs) for item in pair.ledger(party).exact()} == {(ROUNDS, 1)}
        pair.ledger(party).verify()


def test_a_job_resumes_as_often_as_the_passive_owner_allows(pair):
    pair.settle(shop={"max_rewinds": 0, "assignments_total": ROUNDS * CONFIG.max_depth})
    with pytest.raises(JobCancelled):
        pair.train(protocol="plain", watch=stop_after(3))
    pair.restart()
    with pytest.raises(PeerRefused, match="max_rewinds") as refused:
        pair.train(protocol="plain", resume=True)
    assert str(pair.folder) not in str(refused.value)
    pair.settle(shop={"max_rewinds": 1, "assignments_total": ROUNDS * CONFIG.max_depth})
    pair.train(protocol="plain", resume=True)  # no round was begun again, so its assignments are those of one run
    shown = pair.answer("ledger", "show", "--party", "shop.toml")
    assert shown["assignments"] == shown["assignments_budget"] == ROUNDS * CONFIG.max_depth
    with pytest.raises(PeerRefused, match="assignments_total"):
        pair.train("second", protocol="plain")


@pytest.mark.parametrize("rule", ["epsilon_per_job", "epsilon_total"])
def test_a_passive_owner_refuses_an_overdraft_before_the_job_starts(pair, rule):
    pair.settle(shop={rule: JOB_COSTS * 0.99})
    with pair.driver() as driver:
        assert rule in str(driver.check().errors["shop"])
    with pytest.raises(PeerRefused, match=rule):
        pair.train()
    assert pair.ledger("shop").rows() == ()
    assert pair.ledger("bank").events() == ()  # nothing was released by the other side either
    assert pair.ledger("bank").reserved() == {}
    assert not (pair.folder / "runs-shop" / "first").exists()


@pytest.mark.parametrize("rule", ["epsilon_per_job", "epsilon_total"])
def test_an_active_owner_refuses_an_overdraft_before_anybody_is_asked(pair, rule):
    pair.settle(bank={rule: JOB_COSTS * 0.99})
    with pair.driver() as driver:
        found = driver.check()
        assert rule in str(found.errors["bank"])
        assert found.parties["shop"] == {}, "nobody is asked"
        with pytest.raises(AgainstPolicy, match=rule):
            driver.train()
    assert not (pair.folder / "runs-bank" / "first").exists()
    assert not (pair.folder / "runs-shop" / "first").exists()


def test_budgets_add_up_over_jobs(pair):
    pair.settle(shop={"epsilon_total": JOB_COSTS * 2.01})
    pair.train("one")
    pair.train("two")
    with pytest.raises(PeerRefused, match="epsilon_total"):
        pair.train("three")
    assert {event.release for event in pair.ledger("shop").events()} == {f"round {at}" for at in range(ROUNDS)}
    assert pair.ledger("shop").spent(DELTA) == pytest.approx(2 * JOB_COSTS)


def test_what_nobody_planned_is_stopped_before_it_leaves(pair):
    allowed = gaussian_epsilon(NOISE * 3**0.5, DELTA) * 1.0001
    pair.settle(shop={"epsilon_total": allowed})
    with pytest.raises(PeerRefused, match="epsilon_total"):
        pair.train(protocol="careless")
    assert len(pair.ledger("shop").events()) == 3
    assert pair.ledger("shop").spent(DELTA) <= allowed


def stop_after(rounds):
    def watch(result):
        if result.number + 1 == rounds:
            raise JobCancelled("enough")

    return Watch(round=watch)


def test_a_resumed_job_draws_the_same_noise_and_spends_once(pair):
    pair.settle(bank={"epsilon_total": JOB_COSTS * 1.01}, shop={"epsilon_total": JOB_COSTS * 1.01})
    with pytest.raises(JobCancelled):
        pair.train(watch=stop_after(3))
    assert pair.ledger("bank").reserved() == {}
    assert len(pair.town.run_folder("shop", "first").ledger["events"]) == 3
    pair.restart()
    pair.train(resume=True)
    by_round = {}
    for number, noise in NoisyCipher.drawn:
        assert by_round.setdefault(number, noise) == noise
    assert len(by_round) == ROUNDS
    for party in ("bank", "shop"):
        assert len(pair.ledger(party).events()) == ROUNDS
        pair.ledger(party).verify()


def test_a_key_ends_with_its_job(pair):
    with pytest.raises(JobCancelled):
        pair.train(watch=stop_after(3))
    folders = {party: pair.town.run_folder(party, "first").path for party in ("bank", "shop")}
    keys = {(folder / "job.key").read_bytes() for folder in folders.values()}
    assert len(keys) == 2
    assert {stat.S_IMODE((folder / "job.key").stat().st_mode) for folder in folders.values()} == {0o600}
    pair.restart()
    pair.train(resume=True)
    for file in pair.folder.rglob("*"):
        assert not file.is_file() or not any(key in file.read_bytes() for key in keys), file


def test_a_job_that_starts_anew_draws_other_noise_and_spends_again(pair):
    with pytest.raises(JobCancelled):
        pair.train(watch=stop_after(3))
    pair.train()
    assert len(pair.ledger("bank").events()) == 3 + ROUNDS
    assert len(pair.ledger("shop").events()) == 3 + ROUNDS
    assert NoisyCipher.drawn[0][1] != NoisyCipher.drawn[3][1]


def test_a_restart_that_the_budget_forbids_leaves_the_old_run_to_resume(pair):
    pair.settle(bank={"epsilon_total": JOB_COSTS * 1.01})
    with pytest.raises(JobCancelled):
        pair.train(watch=stop_after(3))
    with pytest.raises(AgainstPolicy, match="epsilon_total"):
        pair.train()
    pair.train(resume=True)
    assert len(pair.ledger("bank").events()) == ROUNDS


def test_what_a_killed_attempt_set_aside_is_given_back_when_its_job_comes_again(pair):
    pair.settle(bank={"epsilon_total": JOB_COSTS * 1.5})
    killed = Booking(load_party(pair.folder / "bank.toml"), "first")
    pair.ledger("bank").reserve(killed.job, JOB_COSTS, DELTA, lambda: None)
    with pytest.raises(AgainstPolicy, match="epsilon_total"):
        pair.train("another")
    assert pair.ledger("bank").reserved() == {killed.job: JOB_COSTS}
    told = pair.answer("ledger", "close", killed.job, "--party", "bank.toml")
    assert told["given_back"] == pytest.approx(JOB_COSTS)
    pair.train("another")


def test_other_rows_never_meet_the_noise_of_a_job(pair):
    with pytest.raises(JobCancelled):
        pair.train(watch=stop_after(2))
    folder = pair.town.run_folder("shop", "first")
    rows = folder.alignment
    folder.save_alignment([rows])
    with pytest.raises(NothingToResume, match="common rows"):
        folder.save_alignment([rows[::-1].copy()])
    with pytest.raises(NothingToResume, match="common rows"):
        folder.save_alignment([rows, rows[:0]])


def test_a_damaged_ledger_stops_the_job(pair):
    pair.train("one")
    path = pair.ledger("shop").path
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(PeerRefused, match="VB-1801"):
        pair.train("two")
    assert pair.refused("ledger", "verify", "--ledger", path) == "VB-1801"
    whole = pair.ledger("bank")
    head = whole.verify().hash
    assert pair.answer("ledger", "verify", "--party", "bank.toml", "--head", head)["rows"] == len(whole.rows())
    assert pair.refused("ledger", "verify", "--party", "bank.toml", "--head", "0" * 64) == "VB-1801"
    exported = pair.answer("ledger", "export", "--party", "bank.toml")
    assert exported["head"]["hash"] == head
    pair.answer("ledger", "export", "--party", "bank.toml", "--out", "out.json")
    assert json.loads((pair.folder / "out.json").read_text()) == exported
