"""What a host is made of: the type of its CPU, and how fast one core is.

The speed is measured by a loop of what an agent of a stream job does all day: decode a record, update a dict, encode
the result.  CPU time counts, not time on the clock, so other processes on the host, and quotas, change little.  The
best of several runs counts, since anything else can only make a run slower.
"""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

from trimtab_agent.sampler.cgroup import read_text

RUNS, RECORDS = 20, 300
RECORDS_PER_S = 100_000.0
"""CPU seconds are counted against this: a core of speed 1 handles so many records per second."""
RECORD = json.dumps({"key": "k-17", "carrier": "AA", "delay": 12.5, "legs": [1, 2, 3], "at": 1_700_000_000})
MAX_TYPE = 100
"""Length of the name of a type."""


def find_type(cores: float, root: Path = Path("/")) -> str | None:
    """Model of the CPU and number of the machine's cores as one name; None if the system does not tell the model."""
    text = read_text(root / "proc/cpuinfo") or ""
    found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(\S.*)$", text, re.MULTILINE)
    model = re.sub(r"[^A-Za-z0-9.]+", "-", found[1]).strip("-.") if found else ""
    return f"{model[:MAX_TYPE]}-x{cores:g}" if model else None


def measure_speed(clock: Callable[[], float] = time.thread_time) -> float:
    """How many times as fast as a core of speed 1 a core of this host is; takes about 0.1 s."""
    return RECORDS / (min(_run(clock) for _ in range(RUNS)) * RECORDS_PER_S)


def _run(clock: Callable[[], float]) -> float:
    """CPU seconds of one run, at least a microsecond."""
    begun, totals = clock(), dict[str, float]()
    for number in range(RECORDS):
        record = json.loads(RECORD)
        key = f"{record['carrier']}-{number % 64}"
        totals[key] = totals.get(key, 0.0) + record["delay"]
        json.dumps({"key": key, "total": totals[key]})
    return max(1e-6, clock() - begun)
