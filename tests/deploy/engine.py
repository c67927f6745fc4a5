"""Docker for a test: the engine that runs, or one of our own in a scratch folder, on loopback only."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.paths import ROOT

PACKAGES = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "docker-compose": "docker-compose",
    "mmdebstrap": "mmdebstrap",
}
"""Program -> Debian's package that has it."""
LIMIT_S = 600.0
"""What is waited for takes a minute or two on free cores, and many times that on busy ones."""
START_LIMIT_S = 60.0
STOP_LIMIT_S = 60.0
BASE = "trimtab-test-base"


class CannotTest(Exception):
    """Something is missing that the test needs; the message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A running engine: the environment of its clients, and the image that ours are made from (None: the default)."""

    environment: Mapping[str, str]
    base: str | None

    def docker(self, *arguments: str, given: str | None = None, limit_s: float = 60.0) -> str:
        """Run `docker`; its standard output.  Raises CannotTest."""
        return run(["docker", *arguments], self.environment, given=given, limit_s=limit_s)


def run(command: list[str], environment: Mapping[str, str], *, given: str | None = None, limit_s: float = 60.0) -> str:
    """Run a command at the top of the checkout; its standard output.  Raises CannotTest with the end of its errors."""
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env=dict(environment),
            input=given,
            stdin=None if given is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotTest(f"{' '.join(command[:6])}: not done after {limit_s:g} s") from error
    if ended.returncode != 0:
        story = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-25:])
        raise CannotTest(f"{' '.join(command[:6])}: exit code {ended.returncode}\n{story}")
    return ended.stdout


def until(condition: Callable[[], Any], what: str, tick_s: float = 0.5) -> Any:
    """Wait until the condition is true; what it returned.  Raises CannotTest."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise CannotTest(f"not within {LIMIT_S:g} s: {what}")
        time.sleep(tick_s)
    return found


def install_missing() -> None:
    """Install Debian's packages where programs are missing.  Raises CannotTest without the right to."""
    path = f"/usr/bin:/usr/sbin:{os.environ['PATH']}"
    missing = sorted({package for program, package in PACKAGES.items() if shutil.which(program, path=path) is None})
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise CannotTest(f"missing: Debian's packages {', '.join(missing)}; install them, or run this as root")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-q"], environment, limit_s=300)
    run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing], environment, limit_s=600)


@contextmanager
def engine(scratch: Path) -> Iterator[Engine]:
    """The engine that answers, or else one of our own, which ends with the context and leaves nothing."""
    install_missing()
    # Debian's client and engine are of one version; another client in front of them may not be.
    environment = {**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}", "DOCKER_BUILDKIT": "0"}
    if _answers(environment):
        yield Engine(environment=environment, base=os.environ.get("TRIMTAB_BASE"))
        return
    environment["DOCKER_HOST"] = f"unix://{scratch}/docker.sock"
    with (scratch / "dockerd.log").open("w") as log:
        process = subprocess.Popen(_command(scratch), env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not _answers(environment):
            if process.poll() is not None or time.monotonic() > deadline:
                raise CannotTest("\n".join((scratch / "dockerd.log").read_text().splitlines()[-15:]))
            time.sleep(0.3)
        run(["sh", str(ROOT / "tests/deploy/base.sh"), BASE], environment, limit_s=600)
        yield Engine(environment=environment, base=BASE)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_LIMIT_S)
        process.kill()
        process.wait()
        subprocess.run(["umount", str(scratch / "exec/netns/default")], capture_output=True, check=False)
        for folder in ("data", "exec"):
            shutil.rmtree(scratch / folder, ignore_errors=True)
            if (scratch / folder).exists():
                print(f"left over: {scratch / folder}", file=sys.stderr)


def _command(scratch: Path) -> list[str]:
    """No bridge, no packet filter, no forwarding."""
    folders = ["--data-root", str(scratch / "data"), "--exec-root", str(scratch / "exec")]
    places = ["--pidfile", str(scratch / "dockerd.pid"), "-H", f"unix://{scratch}/docker.sock"]
    off = ["bridge=none", "iptables=false", "ip6tables=false", "ip-forward=false", "ip-masq=false"]
    return ["dockerd", *folders, *places, *(f"--{each}" for each in off), "--userland-proxy=false"]


def _answers(environment: Mapping[str, str]) -> bool:
    command = ["docker", "version"]
    try:
        return (
            subprocess.run(command, env=dict(environment), capture_output=True, timeout=20, check=False).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
