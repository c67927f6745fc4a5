"""Maintenance of a host: its workers are drained and stay off until a time.  All raise Refusal."""

from trimtab_controller.intents.actions import drain, undrain
from trimtab_controller.intents.change import Asked, Change, ChangeRefused, RefusalKind, check_seen, several
from trimtab_controller.intents.names import Node
from trimtab_controller.intents.revoked import STOP_THERE, check_heard, told_of_dropped
from trimtab_protocol.messages.intents import Drain, Intent, drain_key
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.wording import counted, first_few, what_there_is


def maintenance(asked: Asked, host: HostId, for_s: float) -> Change:
    """Drain all workers of the host and keep them off; after `for_s` seconds they are started again."""
    check_seen(asked)
    hosts = {row.host for row in asked.nodes}
    if host not in hosts:
        there = what_there_is(sorted(hosts))
        raise ChangeRefused(RefusalKind.UNKNOWN, f"no host {host!r} reports; {there}{told_of_dropped(asked)}")
    until = asked.at + for_s
    here = sorted(row.worker for row in asked.nodes if row.host == host)
    check_heard(asked, here, STOP_THERE)
    kept = [each for each in here if is_lasting(asked.intents.get(drain_key(each)))]
    if not (workers := [each for each in here if each not in kept]):
        text = f"operators drain all workers of {host} without an end: they stay off anyway, see `trimtab undrain`"
        raise ChangeRefused(RefusalKind.CONFLICT, text)
    drains = [
        Drain(worker=each, by=asked.by, at=asked.at, reason=asked.reason, until=until, host=host) for each in workers
    ]
    text = (
        f"maintenance of {host} for {for_s / 60.0:.0f} min: {counted(len(workers), 'worker')} will be drained as the "
        f"budget of each round allows, then stopped, and started again at its end: {first_few(workers)}; "
        f"`trimtab maintenance {host} --end` ends it earlier"
    )
    return several(drains, text, (*drain(asked, Node(host)).caveats, *_stay_off(kept)))


def _stay_off(kept: list[WorkerId]) -> tuple[str, ...]:
    return (f"but {first_few(kept)} stay off also after it: an operator drains them without an end",) if kept else ()


def is_lasting(intent: Intent | None) -> bool:
    """Whether it is a drain without an end, which a maintenance must not give one."""
    return isinstance(intent, Drain) and intent.until is None


def end(asked: Asked, host: HostId) -> Change:
    """End a maintenance: workers that were stopped are started.  The host need not report."""
    keys = [key for key, each in asked.intents.items() if isinstance(each, Drain) and each.host == host]
    if not keys:
        return undrain(asked, Node(host))
    again = f"{counted(len(keys), 'worker')} may run again"
    text = f"the maintenance of {host} ends: {again}; those that were stopped are started"
    return Change(key=keys[0], records=tuple((key, asked.takes_back) for key in keys), text=text)
