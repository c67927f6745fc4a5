"""The stack of docker-compose.yml with host networking, as a test sees and kills it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.engine import CannotTest, Engine, run
from trimtab_client import Access, Client, ConsoleError

PROJECT = "trimtab-test"
FILES = ("docker-compose.yml", "deploy/docker/docker-compose.host.yml")
TARGETS = ("agent", "worker", "console", "broker", "controller")
PORTS = {"controller": 9100, "standby": 9110, "agent-1": 9101, "agent-2": 9102, "agent-3": 9103}
"""Service -> its metrics port."""
CONSOLE_PORT = 8750
NEEDED = (9092, 9093, 7077, 8080, 8081, CONSOLE_PORT, *PORTS.values())


@dataclass(frozen=True, slots=True)
class Container:
    """What the engine says of a container."""

    pid: int
    restarts: int
    running: bool
    health: str | None
    exit_code: int
    started_at: str


class Stack:
    """The containers of one project."""

    def __init__(self, engine: Engine, scratch: Path) -> None:
        self._engine = engine
        self._scratch = scratch
        self._access: Access | None = None
        self._environment = {**engine.environment, **({"TRIMTAB_BASE": engine.base} if engine.base else {})}
        path = self._environment["PATH"]
        program = ["docker-compose"] if shutil.which("docker-compose", path=path) else ["docker", "compose"]
        self._compose = [*program, "-p", PROJECT, *(word for file in FILES for word in ("-f", file))]

    def build(self, target: str) -> int:
        """Build an image; its size in bytes."""
        base = ["--build-arg", f"BASE={self._engine.base}"] if self._engine.base else []
        name = f"trimtab-{target}"
        options = ["--network=host", "-f", "deploy/docker/Dockerfile", "--target", target, *base, "-t", name]
        run(["docker", "build", *options, "."], self._environment, limit_s=1800)
        return int(self._engine.docker("image", "inspect", "-f", "{{.Size}}", name))

    def compose(self, *arguments: str, given: str | None = None, limit_s: float = 120.0) -> str:
        """Run a command of Compose; its standard output."""
        return run([*self._compose, *arguments], self._environment, given=given, limit_s=limit_s)

    def container(self, service: str) -> Container:
        """The container of a service."""
        found = json.loads(self._engine.docker("inspect", self.id_of(service)))[0]
        state = found["State"]
        return Container(
            pid=state["Pid"],
            restarts=found["RestartCount"],
            running=state["Running"] and not state["Restarting"],
            health=state.get("Health", {}).get("Status"),
            exit_code=state["ExitCode"],
            started_at=state["StartedAt"],
        )

    def id_of(self, service: str) -> str:
        """The id of the service's container."""
        label = f"label=com.docker.compose.project={PROJECT}"
        found = self._engine.docker(
            "ps", "-aq", "--filter", label, "--filter", f"label=com.docker.compose.service={service}"
        ).split()
        if len(found) != 1:
            raise CannotTest(f"service {service}: found {len(found)} containers, expected one")
        return found[0]

    def kill(self, service: str) -> None:
        """kill -9 of its process, as a crash: the engine starts it again, which it does not after `docker kill`."""
        os.kill(self.container(service).pid, signal.SIGKILL)

    def last_line(self, service: str) -> str:
        """The last line that it has logged to standard output."""
        return self._engine.docker("logs", "--tail", "1", self.id_of(service)).strip()

    def status(self) -> dict[str, Any]:
        """`trimtab status --json`; empty when it cannot be had."""
        for service in ("standby", "controller"):
            try:
                return dict(json.loads(self.compose("exec", "-T", service, "trimtab", "status", "--json")))
            except (CannotTest, json.JSONDecodeError):
                continue
        return {}

    def workers_in_console(self) -> set[str]:
        """The workers that the console shows by TLS to a viewer; empty when it does not answer, or knows none."""
        try:
            with Client(self._console_access(), patience_s=0) as console:
                return {row.worker for row in console.workers()}
        except (CannotTest, ConsoleError):
            return set()

    def _console_access(self) -> Access:
        """A token of its own, and the certificate that the stack has made.  Raises CannotTest."""
        if self._access is None:
            config = ["--config", "/etc/trimtab/console.toml"]
            ca = self._scratch / "console.pem"
            ca.write_text(self.compose("exec", "-T", "console", "cat", "/var/lib/trimtab/console.pem"))
            token = self.compose("exec", "-T", "console", "trimtab", "console", "token", "test-deploy", *config)
            self._access = Access(address=f"https://localhost:{CONSOLE_PORT}", token=token.strip(), ca=ca)
        return self._access

    def show(self) -> str:
        """`trimtab status`, and the health of everybody, for a message."""
        told = [f"{service}: {self.ready(service)[1]}" for service in PORTS]
        ended = subprocess.run(
            [*self._compose, "exec", "-T", "controller", "trimtab", "status"],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return "\n".join([*told, ended.stdout, ended.stderr])

    def ready(self, service: str) -> tuple[bool, str]:
        """What its health says, and whether it is well."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORTS[service]}/readyz", timeout=5) as page:
                return True, page.read().decode().strip()
        except urllib.error.HTTPError as error:
            return False, error.read().decode().strip()
        except OSError as error:
            return False, f"no answer: {error}"

    def metric(self, service: str, name: str, label: str = "") -> float | None:
        """The value of a metric with this label; None when it is not served."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORTS[service]}/metrics", timeout=5) as page:
                text = page.read().decode()
        except OSError:
            return None
        rows = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return next((float(value) for labels, value in rows if label in labels), None)

    def leader(self) -> str | None:
        """The service that leads."""
        role = "trimtab_controller_role"
        return next(
            (each for each in ("controller", "standby") if self.metric(each, role, 'role="leading"') == 1), None
        )


def ports_taken() -> list[int]:
    """The ports that the stack needs and another process has."""
    taken = []
    for port in NEEDED:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                taken.append(port)
    return taken
