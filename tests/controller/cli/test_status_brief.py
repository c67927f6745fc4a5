"""What `trimtab sandbox status` says of windows and plans, in a few lines."""

from dataclasses import replace

from tests.controller.cli.status_examples import LEADER, NOW, ROUND, STATUS
from trimtab_controller.cli.status import BRIEF_APPS, brief_status
from trimtab_controller.seen import Seen
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.status import DecisionStatus


def test_in_brief_it_is_what_the_long_status_says() -> None:
    seen = Seen(status=STATUS, controllers=(LEADER,), now=NOW)
    assert brief_status(seen) == [
        "prod  ACTING  ctl-1:2817 leads, epoch 3.15, snapshot 4 s old",
        "orders: load distance 2.2 pp (noise 0.5), mean load 50.0 %, 63 key groups",
        "no plan in flight",
        "last decision 4 s ago: nothing: load distance 2.3 pp, inside the band of 5.0 pp",
        "the one before 90 s ago: plan 3.14: 13 moves",
    ]


def test_in_brief_a_plan_in_flight_a_fault_and_many_apps() -> None:
    apps = tuple(replace(STATUS.apps[0], app=AppId(f"a{n}"), not_ready="no windows") for n in range(BRIEF_APPS + 2))
    flying = replace(ROUND, ended_at=None, handovers={"done": 2, "waiting": 2})
    skip = DecisionStatus(at=NOW - 4, kind="skip", reason="stale_snapshot", text="nothing: old")
    status = replace(STATUS, apps=apps, rounds=(flying,), decisions=(skip,), window_end=None)
    lines = brief_status(Seen(status=status, controllers=(LEADER,), now=NOW))
    assert lines[0].endswith("no snapshot yet")
    assert lines[BRIEF_APPS : BRIEF_APPS + 3] == [
        f"a{BRIEF_APPS - 1}: not ready: no windows",
        "and 2 more apps",
        "plan in flight 3.14 of orders, started 90 s ago: load distance 8.6 above 5.0",
    ]
    assert lines[-2:] == [
        "last decision 4 s ago: nothing: old",
        "What to check and what to do: trimtab runbook stale_snapshot",
    ]
