"""A machine whose first process is systemd, in a container: the Debian packages and their units on it.

`python -m tests.deploy.machine`, or as a part of `make test-deploy`.  No broker runs: what the daemons do with Kafka is
shown elsewhere.
"""

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.deploy.engine import CannotTest, Engine, engine, run, until
from tests.paths import ROOT

NAME = "trimtab-test-machine"
PACKAGES = ("trimtab-agent", "trimtab-controller", "trimtab-console")
NEXT_VERSION = "99.0"
DOCKERFILE = """
FROM {base}
RUN mkdir -p /usr/share/man/man1 && apt-get update && apt-get install -y --no-install-recommends \\
    adduser openjdk-17-jre-headless procps python3 systemd systemd-sysv && rm -rf /var/lib/apt/lists/*
STOPSIGNAL SIGRTMIN+3
CMD ["/sbin/init"]
"""
AGENT = """
[agent]
cluster = "c"
host = "h1"
interval_s = 1.0
state_dir = "/var/lib/trimtab"
socket = "/run/trimtab/agent.sock"
[kafka]
bootstrap_servers = "127.0.0.1:9"
[metrics]
listen = "127.0.0.1:9101"
"""
CONTROLLER = """
[controller]
cluster = "c"
[kafka]
bootstrap_servers = "127.0.0.1:9"
[stream]
checkpoint_dir = "/var/lib/trimtab-controller/stream"
[metrics]
listen = "127.0.0.1:9100"
"""
CONSOLE = """
[console]
cluster = "c"
[kafka]
bootstrap_servers = "127.0.0.1:9"
"""
ASK_CONSOLE = "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:8750/', timeout=5).status)"
WORKER = "[Service]\nWatchdogSec=8\nExecStartPost=/bin/sh -c '/usr/bin/sleep 100000 >/dev/null 2>&1 &'\n"
"""A process that the agent's unit starts stands for its workers; a short watchdog makes the test short."""


class Machine:
    """The container, once it has booted."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def call(self, *command: str, given: str | None = None, limit_s: float = 60.0) -> str:
        """Run a command on it; its standard output.  Raises CannotTest."""
        stdin = ["-i"] if given is not None else []
        return self._engine.docker("exec", *stdin, NAME, *command, given=given, limit_s=limit_s)

    def shell(self, line: str) -> str:
        """Run a line of shell on it, whatever its exit code; its standard output."""
        return self.call("sh", "-c", f"{line}\ntrue").strip()

    def write(self, path: str, text: str) -> None:
        """Write a file on it."""
        self.call("sh", "-c", f"mkdir -p $(dirname {path}) && cat > {path}", given=text)

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.call("systemctl", "show", "-p", name, "--value", unit).strip()

    def await_state(self, unit: str, state: str) -> None:
        """Wait until a unit is in a state.  Raises CannotTest."""
        until(lambda: self.show(unit, "ActiveState") == state, f"{unit} {state}")

    def install(self, package: Path) -> None:
        """Install a package with dpkg."""
        self._engine.docker("cp", str(package), f"{NAME}:/root/{package.name}", limit_s=120)
        self.call("dpkg", "--install", f"/root/{package.name}", limit_s=300)


@contextmanager
def machine(running: Engine) -> Iterator[Machine]:
    """A machine that has booted; it ends with the context."""
    with tempfile.TemporaryDirectory(prefix="trimtab-machine-") as folder:
        (Path(folder) / "Dockerfile").write_text(DOCKERFILE.format(base=running.base or "debian:bookworm-slim"))
        running.docker("build", "--network=host", "-t", NAME, folder, limit_s=900)
    version = running.docker("info", "--format", "{{.CgroupVersion}}").strip()
    groups = "/sys/fs/cgroup" if version == "2" else "/sys/fs/cgroup/systemd"
    # Not --privileged: that asks for every capability, and where this runs one may be lacking.
    rights = ["--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
    places = ["--tmpfs", "/run", "--tmpfs", "/run/lock", "-v", f"{groups}:{groups}:rw", "--cgroupns=host"]
    try:
        running.docker("run", "-d", "--name", NAME, "--network=none", *rights, *places, "-e", "container=docker", NAME)
        booted = Machine(running)
        until(
            lambda: booted.shell("systemctl is-system-running") in {"running", "degraded"}, "a machine that has booted"
        )
        yield booted
    finally:
        running.docker("rm", "-f", NAME)


def prove(machine: Machine, say: Callable[[str], None], packages: dict[str, Path]) -> None:
    """What docs/guides/install.md says of packages and units."""
    for name in PACKAGES:
        machine.install(packages[name])
        expect(machine.shell(f"systemctl is-enabled {name}"), "enabled", f"{name} after its installation")
        expect(machine.show(name, "ActiveState"), "inactive", f"{name} without a configuration")
    say("packages installed; nothing runs without a configuration")
    run_and_kill(machine, say)
    refuse(machine, say)
    upgrade(machine, say, packages)
    remove(machine, say)


def run_and_kill(machine: Machine, say: Callable[[str], None]) -> None:
    """The daemons start, and are started again when they crash or hang; the agent's workers go on."""
    machine.write("/etc/systemd/system/trimtab-agent.service.d/test.conf", WORKER)
    machine.write("/etc/trimtab/agent.toml", AGENT)
    machine.write("/etc/trimtab/controller.toml", CONTROLLER)
    machine.write("/etc/trimtab/console.toml", CONSOLE)
    machine.call("systemctl", "daemon-reload")
    machine.call("systemctl", "start", *PACKAGES, limit_s=120)
    worker = machine.shell("pgrep -u trimtab -x sleep")
    for name in PACKAGES:
        until(partial(machine.show, name, "StatusText"), f"a status of {name}")
        say(f"{name} runs: {machine.show(name, 'StatusText')}")
        kill(machine, name, "KILL")
    say("all killed and started again by systemd")
    expect(machine.call("python3", "-c", ASK_CONSOLE).strip(), "200", "the console's first page")
    kill(machine, "trimtab-agent", "STOP")
    say("an agent that hung was killed by systemd's watchdog, and started again")
    machine.call("systemctl", "restart", "trimtab-agent")
    alive(machine, worker, "crash, hang and restart of the agent")
    say("a worker went on through crash, hang and restart of its agent")


def kill(machine: Machine, name: str, signal: str) -> None:
    """Send a signal to a daemon, and wait until systemd has started another."""
    before = machine.show(name, "MainPID")
    machine.call("kill", f"-{signal}", before)
    until(lambda: machine.show(name, "MainPID") not in {before, "0"}, f"{name} started again")
    machine.await_state(name, "active")


def refuse(machine: Machine, say: Callable[[str], None]) -> None:
    """A wrong configuration is not tried again and again."""
    for name in PACKAGES:
        path = f"/etc/trimtab/{name.removeprefix('trimtab-')}.toml"
        good = machine.call("cat", path)
        machine.write(path, "[nonsense]\n")
        machine.shell(f"systemctl restart {name}")
        machine.await_state(name, "failed")
        expect(machine.show(name, "ExecMainStatus"), "2", f"exit code of {name}")
        machine.write(path, good)
        machine.call("systemctl", "restart", name, limit_s=120)
    say("a wrong configuration ends a daemon once, with exit code 2")


def upgrade(machine: Machine, say: Callable[[str], None], packages: dict[str, Path]) -> None:
    """An upgrade restarts the daemons, and keeps what was edited and the agent's workers."""
    machine.write("/etc/default/trimtab-controller", "# edited\n")
    worker = machine.shell("pgrep -o -u trimtab -x sleep")
    for name in PACKAGES:
        before = machine.show(name, "MainPID")
        with tempfile.TemporaryDirectory(prefix="trimtab-next-") as folder:
            machine.install(as_version(packages[name], NEXT_VERSION, Path(folder)))
        machine.await_state(name, "active")
        if machine.show(name, "MainPID") == before:
            raise CannotTest(f"{name} was not started again by its upgrade")
        expect(machine.shell(f"dpkg-query -W -f '${{Version}}' {name}"), NEXT_VERSION, f"version of {name}")
    expect(machine.shell("cat /etc/default/trimtab-controller"), "# edited", "an edited file")
    expect(machine.call("cat", "/etc/trimtab/agent.toml").strip(), AGENT.strip(), "the agent's configuration")
    alive(machine, worker, "an upgrade of the agent")
    say("upgraded: edited files are kept, the worker went on")


def remove(machine: Machine, say: Callable[[str], None]) -> None:
    """Removal stops the daemons and keeps their files; a purge deletes their state."""
    machine.call("dpkg", "--remove", *PACKAGES, limit_s=120)
    for name in PACKAGES:
        expect(machine.show(name, "ActiveState"), "inactive", f"{name} after its removal")
        expect(machine.shell(f"ls /usr/lib/{name}"), "", f"/usr/lib/{name} after its removal")
    expect(machine.shell("cat /etc/default/trimtab-controller"), "# edited", "an edited file after removal")
    if not machine.shell("ls /var/lib/trimtab"):
        raise CannotTest("/var/lib/trimtab: found nothing after removal, expected the agent's journal")
    machine.call("dpkg", "--purge", *PACKAGES, limit_s=120)
    expect(
        machine.shell("ls /etc/default | grep trimtab; ls -d /var/lib/trimtab* /var/cache/trimtab*"), "", "after purge"
    )
    expect(machine.shell("ls /etc/trimtab"), "agent.toml\nconsole.toml\ncontroller.toml", "your own files after purge")
    say("removed: the state was kept; purged: it is gone")


def as_version(package: Path, version: str, folder: Path) -> Path:
    """A copy of a package with another version."""
    root, copy = folder / "root", folder / f"{package.name.partition('_')[0]}_{version}.deb"
    run(["dpkg-deb", "-R", str(package), str(root)], {"PATH": "/usr/bin:/bin"}, limit_s=120)
    control = root / "DEBIAN" / "control"
    control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", control.read_text()))
    run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "-b", str(root), str(copy)],
        {"PATH": "/usr/bin:/bin"},
        limit_s=300,
    )
    return copy


def alive(machine: Machine, pid: str, after: str) -> None:
    """Raise CannotTest unless the process still runs."""
    if machine.shell(f"ps -o comm= -p {pid}") != "sleep":
        raise CannotTest(f"the worker {pid} ended with: {after}")


def expect(found: str, expected: str, what: str) -> None:
    """Raise CannotTest unless they are equal."""
    if found != expected:
        raise CannotTest(f"{what}: found {found!r}, expected {expected!r}")


def built() -> dict[str, Path]:
    """The packages that `make deb` has built.  Raises CannotTest."""
    found = {name: sorted((ROOT / "out/packages").glob(f"{name}_*.deb")) for name in PACKAGES}
    if missing := [name for name, paths in found.items() if len(paths) != 1]:
        raise CannotTest(f"out/packages: found not one package of {', '.join(missing)}: run `make deb`")
    return {name: paths[0] for name, paths in found.items()}


def test_machine(running: Engine, say: Callable[[str], None]) -> None:
    """All of it on one machine.  Raises CannotTest, with what the units have logged."""
    packages = built()
    with machine(running) as booted:
        try:
            prove(booted, say, packages)
        except CannotTest:
            print(booted.shell("systemctl --failed --no-pager; journalctl --no-pager -n 60"), file=sys.stderr)
            raise


def main() -> int:
    """Start an engine if none runs, and test; the exit code."""
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="trimtab-deploy-") as scratch, engine(Path(scratch)) as running:
            test_machine(running, lambda text: print(f"{time.monotonic() - began:5.0f} s  {text}", flush=True))
    except CannotTest as error:
        print(f"test-deploy: FAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
