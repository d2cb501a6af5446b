"""The threads that all kernels share: they stay, they survive a fork, and no signal ends up with them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.fast
DEADLINE = 60.0
# In a process of its own: the threads of the tests' process are those of all tests before.
PRELUDE = """
import os, resource, signal, threading
import numpy as np
from veilboost import _native

rng = np.random.default_rng(3)
gradients = rng.integers(-(2**20), 2**20, size=(1, 900_000, 2)).astype(np.int32)
order = np.arange(900_000, dtype=np.int32)
begin, end, group = np.array([0]), np.array([900_000]), np.zeros(1, dtype=np.int32)
before = set(os.listdir("/proc/self/task"))

def sums(threads):
    out = np.empty((1, 2), dtype=np.int64)
    _native.node_totals(gradients, order, begin, end, group, out, threads)
    return out.tolist()

def started():
    return set(os.listdir("/proc/self/task")) - before

right = gradients.sum(axis=1, dtype=np.int64).tolist()
"""


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_threads_are_started_once_and_not_for_one_part() -> None:
    script = """
assert sums(1) == right and not started()
for _ in range(50):
    assert sums(3) == right
print(len(started()))
"""
    assert run(script) == "2"


def test_calls_at_the_same_time_have_threads_of_their_own() -> None:
    script = """
wrong = []
def some():
    before.add(str(threading.get_native_id()))  # it may be listed for a moment after it has ended
    for _ in range(20):
        if sums(3) != right:
            wrong.append(1)
for _ in range(3):
    callers = [threading.Thread(target=some) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
print(len(wrong), 2 <= len(started()) <= 8)
"""
    assert run(script) == "0 True"


def test_a_process_that_forked_starts_threads_of_its_own() -> None:
    script = """
assert sums(3) == right
child = os.fork()
if not child:
    signal.alarm(30)  # ends a child that waits for threads it does not have
    before |= set(os.listdir("/proc/self/task"))
    os._exit(0 if sums(3) == right and len(started()) == 2 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sums(3) == right, len(started()))
"""
    assert run(script) == "0 True 2"


def test_no_signal_is_delivered_to_them() -> None:
    script = """
assert sums(3) == right
for task in started():
    with open(f"/proc/self/task/{task}/status") as file:
        print(next(line.split()[1] for line in file if line.startswith("SigBlk")))
"""
    blocked = [int(mask, 16) for mask in run(script).splitlines()]
    assert len(blocked) == 2
    for mask in blocked:
        assert all(mask >> number - 1 & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM))


def test_where_no_thread_can_be_started_the_caller_does_all_parts() -> None:
    script = """
sums(1)
with open("/proc/self/statm") as file:
    pages = int(file.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 2_000_000,) * 2)  # less than a stack
print(sums(3) == right, len(started()))
"""
    assert run(script) == "True 0"
