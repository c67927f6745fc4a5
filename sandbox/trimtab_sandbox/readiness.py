"""Checks before and after the start of a sandbox: installed modules and connected workers."""

import sys
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec

from prometheus_client.parser import text_string_to_metric_families

from trimtab_sandbox.configuration import LOOPBACK

WORKER_MODULES = ("faust", "mode", "aiokafka", "rocksdict")
"""Modules of the extra `faust`, which workers import.  A sandbox runs its workers with its own interpreter."""
CONSOLE_MODULES = ("fastapi", "uvicorn")
"""Modules of the extra `console`, without which a sandbox has none."""
CONNECTED = "trimtab_agent_workers_connected"
ANSWER_LIMIT_S = 2.0


def missing_modules(names: Iterable[str] = WORKER_MODULES) -> list[str]:
    """The modules that are not installed; imports nothing."""
    # Do not call find_spec for loaded modules: once imported, Faust has no spec.
    return [name for name in names if sys.modules.get(name) is None and find_spec(name) is None]


def connected_workers(metrics_port: int) -> int:
    """Number of workers connected to the agent that serves metrics on this port; 0 while it does not answer."""
    # Not urllib, which would use a proxy from the environment.
    connection = HTTPConnection(LOOPBACK, metrics_port, timeout=ANSWER_LIMIT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode("utf-8", errors="replace")
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()
    for family in text_string_to_metric_families(text):
        if family.name == CONNECTED:
            return sum(int(sample.value) for sample in family.samples)
    return 0
