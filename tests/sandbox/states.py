"""What a sandbox writes down of itself."""

from collections.abc import Mapping
from pathlib import Path

from trimtab_sandbox.processes import Child, Processes
from trimtab_sandbox.state import SandboxState, StartedProcess


def state_of(
    processes: Processes,
    children: Mapping[str, Child],
    sockets: Path,
    ports: Mapping[str, tuple[int, ...]] | None = None,
) -> SandboxState:
    """With these of its processes."""
    return SandboxState(
        cluster="c",
        mark=processes.mark,
        bootstrap_servers="127.0.0.1:9",
        sockets=sockets,
        processes={name: StartedProcess(pid=child.pid, log=child.log) for name, child in children.items()},
        ports=dict(ports or {}),
    )
