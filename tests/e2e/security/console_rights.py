"""A console whose Kafka user may only read: it says what it lacks, and goes on when the right is there."""

import json
import subprocess
import time

import pytest

from tests.e2e.played_cluster import PROGRAM
from tests.e2e.security.secured_broker import LIMIT_S, Secured
from trimtab_client import Access, Client, ProblemError, Unreachable
from trimtab_sandbox.broker import free_ports
from trimtab_sandbox.processes import Processes


def trimtab(*arguments: str) -> str:
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return done.stdout.strip()


def check_console(secured: Secured) -> None:
    """The intents topic exists; the user `reader` has the rights of `trimtab acl --role reader`."""
    (port,) = free_ports(1)
    path = secured.folder / "console.toml"
    path.write_text(
        f'[console]\ncluster = "{secured.cluster}"\nport = {port}\n'
        f'[access]\ntokens = "{secured.folder / "tokens.toml"}"\n{secured.section("reader")}'
    )
    token = trimtab("console", "token", "ann", "--role", "operator", "--config", str(path))
    with Processes(secured.folder / "console-logs") as processes:
        processes.start("console", [*PROGRAM, "console", "--config", str(path)])
        with Client(Access(address=f"http://127.0.0.1:{port}", token=token), patience_s=0) as console:
            wait_until_read(console)
            assert console.pause(reason="test", dry_run=True).intents == ("pause",)
            with pytest.raises(ProblemError) as refused:
                console.pause(reason="test", key="k1")
            problem = refused.value.problem
            assert (problem.status, problem.title) == (503, "Service Unavailable"), problem
            assert problem.detail.endswith("this client needs the rights of `trimtab acl --role operator`"), problem
            assert list(console.intents()) == []

            rules = trimtab(
                "acl", "--cluster", secured.cluster, "--role", "operator", "--operator", "User:reader", "--json"
            )
            secured.add(json.loads(rules))
            assert console.pause(reason="test", key="k1").written, "the same key may be tried again"
            assert [(row.kind, row.by) for row in console.intents()] == [("pause", "ann")]


def wait_until_read(console: Client) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            if (found := console.cluster()).read:
                assert found.fault is None
                return
        except Unreachable:
            pass  # it is not listening yet
        assert time.monotonic() < deadline
        time.sleep(0.1)
