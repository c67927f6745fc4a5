"""`make test-deploy`: from an empty engine to images, a balanced stack, crashes survived, and nothing left.

It needs Debian's packages docker.io, docker-compose and mmdebstrap, which it installs as root where they are missing.
Without a running engine it starts one in a scratch folder.  It prints how long each step took.
"""

import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.deploy.engine import CannotTest, engine, until
from tests.deploy.machine import test_machine
from tests.deploy.stack import PORTS, TARGETS, Stack, ports_taken

HOSTS = ("1", "2", "3")
BEGAN = time.monotonic()


def main() -> int:
    """Run all steps; the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it cleans up
    if taken := ports_taken():
        print(f"test-deploy: the ports {taken} are taken on 127.0.0.1", file=sys.stderr)
        return 1
    try:
        with tempfile.TemporaryDirectory(prefix="trimtab-deploy-") as scratch, engine(Path(scratch)) as running:
            kind = running.docker("info", "--format", "{{.ServerVersion}}, {{.Driver}}, cgroup v{{.CgroupVersion}}")
            say(f"engine {kind.strip()}{' and base image' if running.base else ''}")
            test_machine(running, say)
            stack = Stack(running, Path(scratch))
            for target in TARGETS:
                say(f"image {target}: {stack.build(target) / 1e6:.0f} MB")
            try:
                prove(stack)
            except CannotTest:
                print(stack.show(), file=sys.stderr)
                for service in ("controller", "standby", "stream", "worker-1"):
                    print(f"==== {service}", stack.compose("logs", "--tail", "25", service), file=sys.stderr)
                raise
            finally:
                stack.compose("down", "-v", "--remove-orphans", limit_s=180)
            left = running.docker("ps", "-aq").split() + running.docker("volume", "ls", "-q").split()
            say(f"down, {len(left)} containers and volumes left")
            if running.base and left:
                raise CannotTest(f"left over: {left}")
    except CannotTest as error:
        print(f"test-deploy: FAILED: {error}", file=sys.stderr)
        return 1
    say("passed; the engine and its images are gone")
    return 0


def prove(stack: Stack) -> None:
    """Every promise of docs/guides/containers.md."""
    stack.compose("up", "-d", "--no-build", limit_s=300)
    say("up")
    until(lambda: all(stack.container(each).health == "healthy" for each in PORTS), "all healthy")
    say(f"all healthy; {stack.leader()}: {stack.ready(stack.leader() or 'controller')[1]}")
    until(lambda: running(stack.status()) == {"w1", "w2", "w3"}, "three workers running and steered")
    until(lambda: stack.workers_in_console() == {"w1", "w2", "w3"}, "three workers in the console")
    found = until(lambda: carried_out(stack.status()), "a plan carried out")
    until(lambda: stack.container("console").health == "healthy", "a healthy console")
    moved = f"plan {found['plan']} carried out: {found['migrations']} key groups moved"
    say(f"three workers, also in the console, and {moved}")
    kill_agent(stack)
    kill_worker(stack)
    drain_and_kill_leader(stack)
    starve(stack)
    check(stack)


def kill_agent(stack: Stack) -> None:
    """An agent that crashes comes back, and its worker does not notice."""
    worker, agent = stack.container("worker-1"), stack.container("agent-1")
    stack.kill("agent-1")
    began = time.monotonic()
    until(lambda: stack.container("agent-1").restarts > agent.restarts, "agent-1 started again")
    until(lambda: stack.ready("agent-1")[1].endswith("1 workers connected, 1 of them steered"), "agent-1 steers w1")
    if stack.container("worker-1").started_at != worker.started_at:
        raise CannotTest("worker-1 was started again when its agent was killed")
    say(f"agent-1 killed: back after {time.monotonic() - began:.0f} s, its worker ran on")


def kill_worker(stack: Stack) -> None:
    """A worker that crashes comes back and gets its key groups, and its agent does not notice."""
    worker, agent = stack.container("worker-2"), stack.container("agent-2")
    stack.kill("worker-2")
    began = time.monotonic()
    until(lambda: stack.container("worker-2").restarts > worker.restarts, "worker-2 started again")
    until(lambda: owned(stack.status(), "w2") > 0 and "w2" in running(stack.status()), "w2 running, with key groups")
    if stack.container("agent-2").started_at != agent.started_at:
        raise CannotTest("agent-2 was started again when its worker was killed")
    say(f"worker-2 killed: back with key groups after {time.monotonic() - began:.0f} s, its agent ran on")


def drain_and_kill_leader(stack: Stack) -> None:
    """A controller that crashes while it empties a worker: the worker is emptied all the same."""
    before = stack.leader()
    if before is None:
        raise CannotTest("no controller leads")
    stack.compose("exec", "-T", before, "trimtab", "drain", "w3", "--reason", "test-deploy")
    until(lambda: stack.metric(before, "trimtab_controller_plan_in_flight"), "a plan in flight", tick_s=0.02)
    stack.kill(before)
    began = time.monotonic()
    after = until(stack.leader, "a leader", tick_s=0.2)
    say(f"{before} killed with a plan in flight: {after} leads after {time.monotonic() - began:.0f} s")
    until(lambda: owned(stack.status(), "w3") == 0, "w3 empty")
    until(lambda: not stack.container("worker-3").running, "worker-3 ended by its agent")
    if code := stack.container("worker-3").exit_code:
        raise CannotTest(f"worker-3 ended with exit code {code}, expected 0 after a drain")
    until(lambda: all(stack.ready(each)[0] for each in ("controller", "standby")), "leader and standby well again")
    say(f"w3 emptied and ended in order {time.monotonic() - began:.0f} s after the kill; a standby is back")


def starve(stack: Stack) -> None:
    """A leader without windows is not healthy, and says why."""
    leader = stack.leader() or "controller"
    stack.compose("stop", "stream")
    began = time.monotonic()
    until(lambda: not stack.ready(leader)[0], "a leader without a stream that is not healthy")
    say(f"stream stopped: {time.monotonic() - began:.0f} s later {leader} says: {stack.ready(leader)[1]}")
    stack.compose("start", "stream")
    until(lambda: stack.ready(leader)[0], "a leader that is healthy again")
    say(f"stream started: {stack.ready(leader)[1]}")


def check(stack: Stack) -> None:
    """The app's own check: every flight that was sent was counted."""
    if stack.container("load").restarts:
        raise CannotTest("the load was started again, so it is not known what was sent")
    stack.compose("stop", "load")
    sent = stack.last_line("load")
    command = ["exec", "-T", "worker-1", "python3", "-m", "flights.check", "--bootstrap", "broker:9092"]
    say(f"flights: {stack.compose(*command, given=sent, limit_s=200).strip().splitlines()[-1]}")


# --- what the status says ---------------------------------------------------------------------------------------------


def running(status: dict[str, Any]) -> set[str]:
    """The workers that run and are steered."""
    return {row["worker"] for row in status.get("nodes", ()) if row["state"] == "running" and row["steering"]}


def owned(status: dict[str, Any], worker: str) -> int:
    """How many key groups the worker owns; -1 if it is not known."""
    return next((int(row["key_groups"]) for row in status.get("nodes", ()) if row["worker"] == worker), -1)


def carried_out(status: dict[str, Any]) -> dict[str, Any] | None:
    """The first plan that was carried out as a whole."""
    rows = (row for row in status.get("rounds", ()) if row["ended_at"] and row["migrations"] and not row["failed"])
    return next(rows, None)


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"{time.monotonic() - BEGAN:5.0f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
