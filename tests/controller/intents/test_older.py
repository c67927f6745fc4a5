"""What is asked of a controller of 0.1.0: it knows few requests, and refuses the others where nobody sees it."""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from tests.console.fleet import APP, NOW, Fleet
from tests.controller.intents.test_plans import looked
from trimtab_controller.intents import actions, maintenance, plans, restart, rules
from trimtab_controller.intents.change import Asked, Change, Fault, Refusal
from trimtab_protocol.messages.intents import (
    AcceptJournal,
    AddRule,
    Approve,
    Drain,
    ForgetApp,
    ForgetWorker,
    Intent,
    MoveKeyGroups,
    Pause,
    Reject,
    RollingRestart,
    Scale,
    Stop,
    Undrain,
)
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.status import HoldStatus, SizeStatus, Status

FLEET = Fleet(workers=4, key_groups=64)
STATUS = FLEET.status(intents=None)
NODES = tuple(replace(row, startable=True) for row in STATUS.nodes)
LEADS = replace(STATUS, nodes=NODES, hold=HoldStatus(id="h-1", text="the journal is lost"))
WORKER, HOST = FLEET.worker(1), NODES[1].host
RULE = Rule(name="disk-fails", kind=RuleKind.EXCLUDE, reason="test", hosts=(str(HOST),))

KNOWN: dict[type, Callable[[Asked], Change]] = {
    Drain: lambda asked: actions.drain(asked, WORKER),
    Pause: actions.pause,
    AcceptJournal: actions.accept_journal,
}
NEW: dict[type, Callable[[Asked], Change]] = {
    Stop: lambda asked: actions.stop(asked, APP, with_pause=True),
    ForgetApp: lambda asked: actions.forget_app(asked, APP),
    ForgetWorker: lambda asked: actions.forget_worker(asked, WORKER),
    Scale: lambda asked: actions.scale(asked, APP, 3),
    Undrain: lambda asked: actions.undrain(asked, WORKER),
    RollingRestart: lambda asked: restart.rolling_restart(asked, APP),
    Approve: lambda asked: plans.approve(asked, "3.16"),
    Reject: lambda asked: plans.reject(asked, "3.16"),
    MoveKeyGroups: lambda asked: plans.move(asked, plans.placings([f"{APP}/sums/0"], WORKER), looked()),
    AddRule: lambda asked: rules.add(asked, RULE, looked()),
}
ALSO_NEW: list[Callable[[Asked], Change]] = [
    lambda asked: plans.undo(asked, "3.14", looked()),
    lambda asked: maintenance.maintenance(asked, HostId(HOST), 3600.0),
]


def asked(status: Status) -> Asked:
    return Asked(by="ann", at=NOW, reason="test", status=status)


def leaving(status: Status) -> Status:
    """The controller makes the app smaller by that worker."""
    size = SizeStatus(text="4", workers=4, leaving=(WorkerId(WORKER),))
    return replace(status, apps=tuple(replace(row, size=size) for row in status.apps))


def test_every_request_is_either_known_to_it_or_new() -> None:
    assert KNOWN.keys() | NEW.keys() == set(get_args(Intent))
    for kind, ask in KNOWN.items():
        ((_, intent),) = ask(asked(LEADS)).records
        assert type(intent) is kind


@pytest.mark.parametrize("ask", [*NEW.values(), *ALSO_NEW])
def test_what_it_does_not_know_is_refused_and_not_written(ask: Callable[[Asked], Change]) -> None:
    with pytest.raises(
        Refusal, match=r"older than 0\.2\.0 and does not know .*, so nothing was written: it knows"
    ) as told:
        ask(asked(leaving(LEADS)))
    assert told.value.fault is Fault.CONFLICT


@pytest.mark.parametrize("kind", [Stop, ForgetWorker, Scale, Undrain, RollingRestart, Approve, Reject, AddRule])
def test_where_none_leads_it_is_written_with_a_warning(kind: type) -> None:
    away = tuple(replace(row, state=WorkerState.AWAY) for row in NODES) if kind is ForgetWorker else NODES
    silent = replace(leaving(LEADS), at=NOW - 60, nodes=away, hold=None)
    change = NEW[kind](asked(silent))
    assert [type(intent) for _, intent in change.records][-1] is kind
    assert any("but no controller is running" in each for each in change.caveats)
    (old,) = [each for each in change.caveats if "older than 0.2.0" in each]
    assert "if such a one leads again, it does not know" in old
    newer = NEW[kind](asked(replace(silent, intents={})))
    assert [each for each in change.caveats if each != old] == list(newer.caveats)
