"""Real counters of real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from tests.agent.sampler.host_readings import reading
from trimtab_agent.commands.processes import WorkerProcesses, identify
from trimtab_agent.sampler.derive import derive
from trimtab_agent.sampler.readings import CounterReader, Quotas, find_limits, find_quotas
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import Basis

BUSY, GONE = WorkerId("busy"), WorkerId("gone")


def test_a_busy_process_is_seen_and_a_gone_one_is_unknown() -> None:
    quotas = find_quotas()
    limits = find_limits(quotas, None)
    reader = CounterReader(quotas, limits.basis)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    began = time.monotonic()
    try:
        before = reader.read({BUSY: busy.pid, GONE: gone.pid})
        assert (before.workers[BUSY] is None, before.workers[GONE]) == (False, None)
        while psutil.Process(busy.pid).cpu_times().user < before.workers[BUSY].cpu_s + 0.1:
            time.sleep(0.1)
        after = reader.read({BUSY: busy.pid, GONE: gone.pid})
        took_s = time.monotonic() - began
        use = derive(before, after, limits, took_s)
    finally:
        busy.kill()
        busy.wait()

    assert set(use.workers) == {BUSY}
    spent = use.workers[BUSY].cpu_s
    assert spent is not None
    assert 0.0 < spent <= took_s + 0.1  # other processes compete
    assert use.host.cpu_s is not None
    assert before.own.pid == os.getpid()
    assert (before.own.waited_s is None) is not Path("/proc/self/schedstat").exists()
    assert reader.read({BUSY: busy.pid}).workers == {BUSY: None}


POOL = """
import os, time
def compute():
    while time.process_time() < 0.4: pass
compute()
if not os.fork():
    if not os.fork():
        compute()
        print("done", flush=True)
    time.sleep(60)
os.wait()
"""


def test_a_pool_of_processes_counts_to_its_worker_while_it_lives_and_workers_not_to_their_agent() -> None:
    reader = CounterReader(find_quotas(), Basis.HOST)
    own = reader.read({}).own
    worker = subprocess.Popen([sys.executable, "-c", POOL], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"done\n"
        found = reader.read({BUSY: worker.pid}).workers[BUSY]
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.communicate()
    spent = reader.read({}).own

    assert found is not None
    assert found.cpu_s > 0.7  # in ticks of 10 ms
    assert own is not None
    assert spent is not None
    assert spent.cpu_s - own.cpu_s < 0.3


def test_without_a_free_descriptor_all_is_unknown(no_descriptor: Callable[[], AbstractContextManager[None]]) -> None:
    quotas = find_quotas()
    limits = find_limits(quotas, None)
    reader = CounterReader(quotas, limits.basis)
    process = identify(os.getpid())
    assert process is not None
    processes = WorkerProcesses(cluster="demo", socket=Path("a.sock"), logs=Path())
    processes.watch(BUSY, process)
    before = reader.read({BUSY: os.getpid()})
    with no_descriptor():
        blind = reader.read({BUSY: os.getpid()})
        free, ended = reader.free_memory_bytes(), list(processes.ended())

    assert blind == reading(blind.monotonic_s, workers={BUSY: None})
    assert (free, ended) == (None, [])
    for earlier, later in ((before, blind), (blind, reader.read({BUSY: os.getpid()}))):
        assert derive(earlier, later, limits, 1.0).host.cpu_s is None


def test_what_a_hypervisor_gives_to_others_counts_as_used(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = CounterReader(Quotas(cpu=None, memory=None), Basis.HOST)
    times = psutil.cpu_times()
    counted = []
    for stolen in (0.0, 5.0):
        monkeypatch.setattr(psutil, "cpu_times", lambda stolen=stolen: times._replace(steal=stolen))
        counted.append(reader.read({}).cpu_s or 0.0)
    assert counted[1] - counted[0] == pytest.approx(5.0)
