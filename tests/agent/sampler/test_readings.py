"""Real counters of real processes."""

import os
import subprocess
import sys
import time

from trimtab_agent.sampler.derive import derive
from trimtab_agent.sampler.readings import CounterReader, find_limits, find_quotas
from trimtab_models.messages.names import WorkerId

BUSY, GONE = WorkerId("busy"), WorkerId("gone")


def test_a_busy_process_is_seen_and_a_gone_one_is_left_out() -> None:
    quotas = find_quotas()
    limits = find_limits(quotas, None)
    reader = CounterReader(quotas, limits.basis)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        before = reader.read({BUSY: busy.pid, GONE: gone.pid})
        time.sleep(0.6)
        use = derive(before, reader.read({BUSY: busy.pid, GONE: gone.pid}), limits, 0.6)
    finally:
        busy.kill()
        busy.wait()

    assert set(use.workers) == {BUSY}
    spent = use.workers[BUSY].cpu_s
    assert spent is not None
    assert 0.05 < spent <= 0.7  # of 0.6 s; other processes compete
    assert use.host.cpu_s is not None
    assert before.own.pid == os.getpid()
    assert BUSY not in reader.read({BUSY: busy.pid}).workers
