"""`veilboost train` for rows in different hands: the server drives."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.markup import escape

from veilboost.cli.console import print_json, seconds_text, stderr, stdout
from veilboost.errors import NothingToResume


def train_horizontally(job: Path, config: Path, resume: bool, as_json: bool) -> None:
    """Train at the server, and tell how it went."""
    from veilboost.party.exchange import read_exchanges, traffic_by_peer, traffic_dict
    from veilboost.party.horizontal_drive import HorizontalDriver
    from veilboost.party.horizontal_settings import load_horizontal_job
    from veilboost.party.live import LiveView
    from veilboost.party.settings import load_party

    if resume:
        raise NothingToResume("horizontal jobs keep no checkpoints", "start it anew, under another name")
    settings = load_horizontal_job(job)
    began = time.perf_counter()
    view = LiveView(settings.training.n_estimators, stderr(), shown=not as_json)
    with HorizontalDriver(load_party(config), settings, view.watch) as driver, view:
        run, outcome = driver.train()
    seconds = time.perf_counter() - began
    told: dict[str, Any] = {
        "job": settings.name,
        "protocol": settings.protocol,
        "run": str(run.path),
        "participants": list(settings.participants),
        "dropped": dict(outcome.dropped),
        "reports": {name: dict(report) for name, report in outcome.reports.items()},
        "rounds": len(outcome.history),
        "seconds": seconds,
        "traffic": None if settings.record == "none" else traffic_dict(traffic_by_peer(*read_exchanges(run.path))),
    }
    if as_json:
        print_json(told)
        return
    console = stdout()
    console.print(
        f"[bold]{escape(settings.name)}[/] is trained: {len(outcome.history)} rounds with "
        f"{len(outcome.reports)} participants in {seconds_text(seconds)}"
    )
    for name, why in outcome.dropped.items():
        console.print(f"{escape(name)} was lost on the way: {escape(why)}", soft_wrap=True)
    console.print(f"run folder {escape(str(run.path))}", soft_wrap=True)
