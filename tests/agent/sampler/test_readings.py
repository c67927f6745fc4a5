"""Real counters of real processes."""

import os
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
    try:
        before = reader.read({BUSY: busy.pid, GONE: gone.pid})
        assert (before.workers[BUSY] is None, before.workers[GONE]) == (False, None)
        while psutil.Process(busy.pid).cpu_times().user < before.workers[BUSY].cpu_s + 0.1:
            time.sleep(0.1)
        use = derive(before, reader.read({BUSY: busy.pid, GONE: gone.pid}), limits, 0.6)
    finally:
        busy.kill()
        busy.wait()

    assert set(use.workers) == {BUSY}
    spent = use.workers[BUSY].cpu_s
    assert spent is not None
    assert 0.0 < spent <= 0.7  # of 0.6 s; other processes compete
    assert use.host.cpu_s is not None
    assert before.own.pid == os.getpid()
    assert (before.own.waited_s is None) is not Path("/proc/self/schedstat").exists()
    assert reader.read({BUSY: busy.pid}).workers == {BUSY: None}


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
