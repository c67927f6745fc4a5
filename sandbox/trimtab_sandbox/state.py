"""The record of a sandbox that runs on after its command has ended, for `status` and `down`."""

import json
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import FILE, Name, Range, Text, Wire, converted, document
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.settings.paths import FilePath
from trimtab_sandbox.configuration import shutdown_order
from trimtab_sandbox.marks import bound, end_marked, marked, marked_workers, signal_process
from trimtab_sandbox.processes import STOP_LIMIT_S, LeftOver

VERSION = 1
SOCKETS_PREFIX = "trimtab-"
"""Prefix of the temporary folder for sockets (see `make_socket_folder`)."""


class StateError(Exception):
    """The record of a sandbox is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedProcess:
    """One process of the sandbox."""

    pid: Annotated[int, Range(1, 2**31 - 1)]
    log: FilePath


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxState:
    """The record, kept as `state.json` in the sandbox's folder."""

    WIRE: ClassVar = Wire(version=VERSION, version_key="version")

    cluster: Name
    mark: Annotated[str, Text(1000)]
    bootstrap_servers: Annotated[str, Text(1000)]
    sockets: FilePath
    processes: Mapping[Name, StartedProcess]
    ports: Mapping[Name, tuple[Annotated[int, Range(0, 65_535)], ...]]

    def save(self, folder: Path) -> None:
        """Write the record."""
        _path(folder).write_text(json.dumps(document(self), indent=1) + "\n", encoding="utf-8")

    def alive(self) -> dict[str, bool]:
        """Process name -> whether it runs."""
        living = {process.pid for process in marked(self.mark)}
        return {name: started.pid in living for name, started in self.processes.items()}

    def of_agents(self) -> dict[str, list[int]]:
        """Worker -> the ids of its processes, for workers that an agent has started: as ordered, or again."""
        recorded = {started.pid for started in self.processes.values()}
        running = marked_workers(self.mark)
        return {worker: pids for worker, pids in running.items() if not recorded.intersection(pids)}

    def end(self) -> LeftOver:
        """End all processes in order, also workers that agents have started; returns what is left.

        SIGTERM, a bounded wait, SIGKILL.
        """
        recorded = {name: [started.pid] for name, started in self.processes.items()}
        for phase in shutdown_order({**recorded, **self.of_agents()}):
            running = self.of_agents()  # once more: the controller may have had one started until it ended
            self._end_phase({pid for name in phase for pid in (*recorded.get(name, ()), *running.get(name, ()))})
        alive = end_marked(self.mark)
        shutil.rmtree(self.sockets, ignore_errors=True)
        return LeftOver(processes=alive, ports=len(bound(port for ports in self.ports.values() for port in ports)))

    def _end_phase(self, pids: set[int]) -> None:
        for process in marked(self.mark):
            if process.pid in pids:
                signal_process(process, signal.SIGTERM)
                signal_process(process, signal.SIGCONT)  # a stopped process does not handle SIGTERM
        deadline = time.monotonic() + STOP_LIMIT_S
        while pids & {process.pid for process in marked(self.mark)} and time.monotonic() < deadline:
            time.sleep(0.05)


def load_state(folder: Path) -> SandboxState | None:
    """The record in the folder; None if there is none.  Raises StateError if it is damaged.

    Strict, because processes and a folder are removed by it.
    """
    folder = folder.resolve()
    path = _path(folder)
    if not path.exists():
        return None
    try:
        state = converted(json.loads(path.read_text(encoding="utf-8")), SandboxState, defaults=FILE)
        if state.sockets.resolve() != folder / "sockets" and not state.sockets.name.startswith(SOCKETS_PREFIX):
            raise BadMessage(Fault.RANGE, "sockets", str(state.sockets), "a folder that a sandbox has made")
    except (ValueError, RecursionError) as error:
        raise StateError(f"{path} is no record of a sandbox: {error}") from error
    return state


def forget_state(folder: Path) -> None:
    """Remove the record."""
    _path(folder).unlink(missing_ok=True)


def _path(folder: Path) -> Path:
    return folder / "state.json"
