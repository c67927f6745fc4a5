"""Checks before and after the start of a sandbox: installed modules and connected workers."""

import sys
from collections.abc import Iterable
from importlib.util import find_spec

from prometheus_client.parser import text_string_to_metric_families

from trimtab_process.health import answer_on
from trimtab_protocol.settings.listen import Listen
from trimtab_sandbox.configuration import LOOPBACK

WORKER_MODULES = ("faust", "mode", "aiokafka", "rocksdict")
"""Modules of the extra `faust`, which workers import.  A sandbox runs its workers with its own interpreter."""
CONSOLE_MODULES = ("fastapi", "uvicorn")
"""Modules of the extra `console`, without which a sandbox has none."""
CONNECTED = "trimtab_agent_workers_connected"
ANSWER_LIMIT_S, MOST_BYTES = 2.0, 10_000_000


def missing_modules(names: Iterable[str] = WORKER_MODULES) -> list[str]:
    """The modules that are not installed; imports nothing."""
    # Do not call find_spec for loaded modules: once imported, Faust has no spec.
    return [name for name in names if sys.modules.get(name) is None and find_spec(name) is None]


def connected_workers(metrics_port: int) -> int:
    """Number of workers connected to the agent that serves metrics on this port; 0 while it does not answer."""
    listen = Listen(address=LOOPBACK, port=metrics_port)
    try:
        _, page = answer_on(listen, "/metrics", limit_s=ANSWER_LIMIT_S, most=MOST_BYTES)
    except OSError:
        return 0
    for family in text_string_to_metric_families(page.decode("utf-8", errors="replace")):
        if family.name == CONNECTED:
            return sum(int(sample.value) for sample in family.samples)
    return 0
