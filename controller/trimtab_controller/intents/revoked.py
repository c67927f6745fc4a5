"""Hosts whose word does not count: with `host_signatures = "enforce"`, what they have not signed is dropped.

Nothing can move to or from such a host, since nobody would hear that it has.  Raises Refusal.
"""

from collections.abc import Iterable

from trimtab_controller.intents.change import Asked, ChangeRefused, RefusalKind
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.wording import first_few

STOP_THERE = "stop it on the host itself, and others take over"
"""What to do with a worker of which the controller hears nothing."""


def is_revoked(asked: Asked, host: HostId) -> bool:
    """Whether the key of the host is revoked, and what it says is dropped for that."""
    found = asked.status.signatures if asked.status else None
    return found is not None and found.enforced and host in found.revoked


def check_heard(asked: Asked, workers: Iterable[WorkerId], instead: str = "") -> None:
    """Raises Refusal if one of these workers is on a host whose key is revoked; `instead` = what else could be done."""
    for worker, host in revoked_of(asked, workers).items():
        text = f"the key of {host} is revoked, so what its agent says of {worker} is dropped"
        enroll = f"`trimtab keys enroll {host}`"
        then = f"{instead}, or {enroll}" if instead else f"{enroll} gives it a new key"
        raise ChangeRefused(RefusalKind.CONFLICT, f"{text}, and nothing can move to or from there; {then}")


def revoked_of(asked: Asked, workers: Iterable[WorkerId]) -> dict[WorkerId, HostId]:
    """Those of the workers that are on a host whose key is revoked, each with the host."""
    wanted = set(workers)
    hosts = {row.worker: row.host for row in asked.nodes if row.worker in wanted}
    return {worker: host for worker, host in sorted(hosts.items()) if is_revoked(asked, host)}


def left_out(revoked: dict[WorkerId, HostId]) -> tuple[str, ...]:
    """What is said of workers that are left out, one line for each host."""
    hosts = dict.fromkeys(revoked.values())
    return tuple(f"but not {first_few(_on(revoked, host))}: the key of {host} is revoked" for host in hosts)


def _on(revoked: dict[WorkerId, HostId], host: HostId) -> list[WorkerId]:
    return [worker for worker, where in revoked.items() if where == host]


def told_of_dropped(asked: Asked) -> str:
    """After a name that does not report: for which hosts what is said is dropped, if for any."""
    found = asked.status.signatures if asked.status else None
    if asked.status is None or found is None or not found.enforced:
        return ""
    heard = {row.host for row in asked.status.hosts} | {row.host for row in asked.nodes}
    hosts = {**found.doubted, **dict.fromkeys(found.revoked, "revoked")}
    dropped = [f"{host} ({why})" for host, why in sorted(hosts.items()) if host not in heard]
    return f"; what is said for these hosts is dropped: {first_few(dropped)}" if dropped else ""
