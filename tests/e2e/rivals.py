"""Controllers as processes that stand for the lead of one played cluster."""

import os
import subprocess
import urllib.request
from collections.abc import Callable, Mapping

from tests.e2e.played_cluster import PROGRAM, World
from tests.waiting import wait_for
from trimtab_sandbox.broker import free_ports


class Rival:
    """One of several controllers of the world."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        bootstrap: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.world = world
        self.port = free_ports(1)[0]
        self.config = world.folder / f"{name}.toml"
        self.config.write_text(world.configuration(self.port, world.folder / name, bootstrap))
        self._log = world.folder / f"{name}.log"
        with self._log.open("wb") as output:
            command = [*PROGRAM, "controller", "run", "--act", "--config", str(self.config)]
            own = {**os.environ, **(environment or {})}
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=own)
        world.running.append(self.process)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def leads(self) -> bool:
        """By its own word: the last one counts."""
        words = {
            "acting as generation": True,
            "the lease is back": True,
            "no commands until": False,
            "no longer the leader": False,
            "nothing is commanded until": False,  # the previous version's words
            "leads no longer": False,
        }
        last = max(words, key=self.log.rfind)
        return last in self.log and words[last]

    def role(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as page:
            text = page.read().decode()
        [role] = [
            line for line in text.splitlines() if line.startswith("trimtab_controller_role{") and line.endswith(" 1.0")
        ]
        return role.partition('role="')[2].partition('"')[0]

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        wait(what, condition, self)


def wait(what: str, condition: Callable[[], bool], *rivals: Rival) -> None:
    wait_for(condition, what, every_s=0.02, log=lambda: "\n\n".join(rival.log for rival in rivals))


def wait_for_leader(*rivals: Rival) -> tuple[Rival, Rival]:
    """The leader and the standby."""
    wait("election", lambda: any(r.leads for r in rivals) and any("standby: waiting" in r.log for r in rivals), *rivals)
    leader, standby = sorted(rivals, key=lambda rival: not rival.leads)
    return leader, standby
