"""A Ray cluster that runs already, in processes of its own, reached by its address."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("ray")
BIN = Path(sys.executable).parent
# A token would be asked for otherwise, which the head and whoever comes must share.
ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
# How long the head waits for the server that it starts per client; Ray's 30 s are too short on a busy machine.
HEAD = {**ENVIRONMENT, "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "150"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def cluster():
    """The address of a head with two processors."""
    folder = tempfile.mkdtemp(prefix="vb", dir="/tmp")  # the names of Ray's sockets are bounded in length
    port = free_port()
    command = [BIN / "ray", "start", "--head", "--block", "--num-cpus=2", "--include-dashboard=false"]
    command += [f"--temp-dir={folder}", f"--port={free_port()}", f"--ray-client-server-port={port}"]
    head = subprocess.Popen(
        list(map(str, command)), env=HEAD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert head.stdout is not None
        said = next((line for line in head.stdout if "Ray runtime started" in line), None)
        assert said is not None, "the head did not start"
        yield f"ray://127.0.0.1:{port}"
    finally:
        head.send_signal(signal.SIGTERM)
        head.communicate(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def simulated(*options: str) -> dict[str, object]:
    command = [
        BIN / "veilboost",
        "simulate",
        "--demo-data",
        "--trees=2",
        "--depth=3",
        "--no-baselines",
        "--json",
        *options,
    ]
    for attempt in range(3):
        try:
            done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=90)
        except subprocess.TimeoutExpired:  # Ray's client may hang while it gives up a connection to a busy head
            assert attempt < 2
        else:
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)
    raise AssertionError


def test_a_cluster_that_runs_gives_the_same_model(cluster: str) -> None:
    here, there = simulated(), simulated("--engine", cluster)
    assert there["model_sha256"] == here["model_sha256"]
    assert (here["engine"], there["engine"]) == ("local", "ray")
    assert there["workers"] == 2
