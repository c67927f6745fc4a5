"""What somebody who was woken at night reads first: the state, who leads, the last decision, and what to do."""

from dataclasses import replace

import pytest

from tests.controller.cli.status_examples import APP, LEADER, NOW, STANDBY, STATUS, node, shown
from trimtab_controller.cli.status import LEVELS, SHOWN_NODES, intents_documents
from trimtab_controller.seen import Seen, State, summary
from trimtab_models.elastic.matching import NodeLevel
from trimtab_protocol.messages.intents import AddRule, Drain, Intent, Pause
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.refused_hosts import RefusedHost, RefusedHosts
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.status import (
    ConcernStatus,
    DecisionStatus,
    HoldStatus,
    HostStatus,
    SizeStatus,
    Status,
    decode_status,
    encode_status,
)


def test_what_operators_want_is_shown_with_who_and_why() -> None:
    drain = Drain(worker=WorkerId("w2"), by="ann@desk", at=NOW - 90.0, reason="new disk")
    drains = {f"drain/w{n}": replace(drain, worker=WorkerId(f"w{n}"), at=NOW - 100.0 - n) for n in range(3, 14)}
    lines = shown(STATUS, intents={drain.key: drain, "x/1": None, **drains})
    at = lines.index("what operators want")
    assert lines[at + 1] == "  drain w2, by ann@desk 90 s ago: new disk"
    assert lines[at + 11] == "  and 3 more (--json has all)"
    assert "  x/1: this version cannot read it" in shown(STATUS, intents={"x/1": None})
    assert "what operators want" not in shown(STATUS)
    assert "  unknown: the topic of intents cannot be read" in shown(STATUS, intents=None)
    assert [row["by"] for row in intents_documents({drain.key: drain, "x/1": None}, NOW) or ()] == ["ann@desk", None]


def test_a_rule_that_has_ended_by_itself_is_not_wanted_any_more() -> None:
    rule = Rule(name="disk", kind=RuleKind.FREEZE, reason="a disk fails", until=NOW)
    over = AddRule(rule=rule, by="ann@desk", at=NOW - 60.0, reason="a disk fails")
    lasting = replace(over, rule=replace(rule, name="other", until=NOW + 1.0))
    both = {over.key: over, lasting.key: lasting}
    told = [line for line in shown(STATUS, intents=both) if "keep rule" in line]
    assert told == ["  keep rule other (freeze), by ann@desk 60 s ago: a disk fails"]
    assert "what operators want" not in shown(STATUS, intents={over.key: over})
    assert [row["key"] for row in intents_documents(both, NOW) or ()] == [lasting.key]


def test_the_first_lines_say_how_it_stands() -> None:
    lines = shown(STATUS, LEADER, STANDBY)
    assert lines[:2] == [
        "prod  ACTING  ctl-1:2817 leads, 1 stands by, epoch 3.15, snapshot 4 s old",
        "last decision 4 s ago: nothing: load distance 2.3 pp, inside the band of 5.0 pp",
    ]
    assert "  orders  load distance 2.2 pp (noise 0.5), mean load 50.0 %, 63 key groups" in lines


def test_the_hosts_that_refused_messages_name_are_said_as_what_they_are() -> None:
    rows = tuple(
        RefusedHost(
            topic="trimtab.prod.reports", host=HostId(f"h{number}"), fault="unsigned", messages=40 - number, at=at
        )
        for number, at in enumerate([STATUS.at - 5.0] * 12)
    )
    refused = replace(
        STATUS, rejected={"trimtab.prod.reports.unsigned": 500}, refused_hosts=RefusedHosts(worst=rows, more=3)
    )
    assert decode_status(encode_status(refused)) == refused
    lines = shown(refused)
    start = lines.index("refused messages") + 1
    assert lines[start : start + 3] == [
        "  trimtab.prod.reports.unsigned: 500",
        "  by the host that they name, which may not be the one that sent them:",
        "    h0: 40 trimtab.prod.reports.unsigned, the last 5 s ago",
    ]
    assert lines[start + 11 : start + 13] == [
        "    h9: 31 trimtab.prod.reports.unsigned, the last 5 s ago",
        "    and 5 more",
    ]
    nameless = replace(STATUS, rejected={"trimtab.prod.status.oversized": 1})
    assert not [line for line in shown(nameless) if "they name" in line]


def test_a_worker_that_leaves_is_told_apart_from_one_that_an_operator_drains() -> None:
    [app] = STATUS.apps
    size = SizeStatus(text="1 worker", leaving=(WorkerId("orders-1"),))
    nodes = tuple(replace(row, draining=True) for row in STATUS.nodes)
    lines = shown(replace(STATUS, apps=(replace(app, size=size),), nodes=nodes), width=120)
    rows = {line.split()[0]: line.split()[-1] for line in lines if line.strip().startswith("orders-")}
    assert rows == {"orders-1": "leaving", "orders-2": "draining"}


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_wider_than_the_terminal_and_a_worker_has_one_line(width: int) -> None:
    lines = shown(STATUS, width=width)
    assert max(map(len, lines)) <= width
    assert ["orders-1", "host-orders-1", "72", "61", "94", "12,345", "180", "MB", "1", "32"] in [
        line.split() for line in lines
    ]
    [plan] = [number for number, line in enumerate(lines) if "3.14  load distance 8.6 above 5.0" in line]
    assert lines[plan + 1].strip() == "8.6 -> 0.7 (0.4 planned), 13 key groups moved, pause 0.20 s"


AHEAD = {"trimtab.prod.snapshots.future_dated": 7}


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        (replace(STATUS, acting=False), State.DRY_RUN, "DRY RUN"),
        (replace(STATUS, hold=HoldStatus(id="h", text="no entry")), State.HOLD, "trimtab resume --accept-journal"),
        (replace(STATUS, at=NOW - 65), State.SILENT, "No status from the controller for 65 s"),
        (replace(STATUS, window_end=None), State.ACTING, "no snapshot yet"),
        (
            replace(STATUS, window_end=NOW - 600),
            State.ACTING,
            "No new windows arrive, or the controller's clock is ahead.",
        ),
        (replace(STATUS, window_end=None, rejected=AHEAD), State.ACTING, "the controller's clock is behind"),
        (replace(STATUS, window_end=NOW - 600, rejected=AHEAD), State.ACTING, "the controller's clock is behind"),
        (replace(STATUS, coverage=0.5), State.ACTING, "old, from 50% of the hosts"),
    ],
)
def test_what_is_not_as_it_should_be_comes_with_its_remedy(status: Status, state: State, words: str) -> None:
    assert Seen(status=status, controllers=(LEADER,), now=NOW).state is state
    lines = shown(status, width=120)
    assert state.upper() in lines[0]
    assert any(words in line for line in lines[:6])


def test_windows_that_were_once_refused_are_no_problem_when_others_come() -> None:
    assert not any("clock" in line for line in shown(replace(STATUS, rejected=AHEAD), width=120)[:6])


def test_a_controller_that_seems_silent_may_have_another_clock() -> None:
    assert any("Is its host's clock right?" in line for line in shown(replace(STATUS, at=NOW - 185), width=160))


@pytest.mark.parametrize(
    ("status", "runbook"),
    [
        (
            replace(STATUS, decisions=(DecisionStatus(at=NOW, kind="skip", reason="hosts_lost", text="-"),)),
            "hosts_lost",
        ),
        (replace(STATUS, decisions=(DecisionStatus(at=NOW, kind="plan", reason="drain", text="-"),)), None),
        (replace(STATUS, hold=HoldStatus(id="h", text="no entry")), "journal"),
        (replace(STATUS, at=NOW - 65, hold=HoldStatus(id="h", text="no entry")), "no_leader"),
    ],
)
def test_what_is_wrong_names_its_runbook(status: Status, runbook: str | None) -> None:
    assert Seen(status=status, controllers=(LEADER,), now=NOW).runbook == runbook
    assert any(line.endswith(f"trimtab runbook {runbook}") for line in shown(status)) == (runbook is not None)


FULL = ConcernStatus(kind="over_capacity", app=APP, text="orders-1 uses 110 % of its capacity, its key groups 3 %")
PAUSE = Pause(by="ann@ops", at=NOW, reason="deploy")
PAUSED = replace(
    STATUS,
    paused=PAUSE.told,
    decisions=(*STATUS.decisions, DecisionStatus(at=NOW, kind="skip", reason="paused", text="nothing: paused")),
)


@pytest.mark.parametrize(
    ("status", "intents", "state", "runbook"),
    [
        (PAUSED, {PAUSE.key: PAUSE}, State.PAUSED, "paused"),
        (STATUS, {PAUSE.key: PAUSE}, State.PAUSED, "paused"),  # it has just been paused
        (PAUSED, {}, State.ACTING, None),  # it has just been resumed
        (replace(PAUSED, paused=None), {}, State.ACTING, None),  # no window has come since
        (PAUSED, None, State.PAUSED, "paused"),
        (replace(PAUSED, paused=None), None, State.ACTING, None),
        (PAUSED, {PAUSE.key: None}, State.PAUSED, "paused"),
        (STATUS, {PAUSE.key: None}, State.ACTING, None),  # the controller cannot read it either
        (replace(PAUSED, concerns=(FULL,)), {}, State.ACTING, "over_capacity"),
    ],
)
def test_whether_it_is_paused_is_told_by_the_intents_as_they_are_now(
    status: Status, intents: dict[str, Intent | None] | None, state: State, runbook: str | None
) -> None:
    seen = Seen(status=status, controllers=(LEADER,), now=NOW, intents=intents)
    assert (seen.state, seen.runbook) == (state, runbook)
    lines = shown(status, width=120, intents=intents)
    told = "Paused by ann@ops: deploy. `trimtab resume` ends the pause."
    assert (told in lines) == (state is State.PAUSED)
    assert ("What to check and what to do: trimtab runbook paused" in lines) == (runbook == "paused")


def test_after_a_hold_its_runbook_is_not_named_any_more() -> None:
    held = replace(STATUS, decisions=(DecisionStatus(at=NOW, kind="skip", reason="journal", text="-"),))
    assert Seen(status=held, controllers=(LEADER,), now=NOW).runbook is None
    assert Seen(status=replace(held, hold=HoldStatus(id="h", text="no entry")), controllers=(), now=NOW).runbook == (
        "journal"
    )


def test_what_is_wrong_though_balancing_goes_on_stands_at_the_top_with_its_runbook() -> None:
    status = replace(STATUS, nodes=(node("orders-1", 3.25, used_pct=110.4), node("orders-2")), concerns=(FULL,))
    lines = shown(status, width=120)

    assert lines[2:4] == [
        "over_capacity (orders): orders-1 uses 110 % of its capacity, its key groups 3 %",
        "What to check and what to do: trimtab runbook over_capacity",
    ]
    [line] = [line.split() for line in lines if "host-orders-1" in line]
    assert (line[2:4], line[-2:]) == (["110", "3"], ["over", "capacity"])


def test_a_worker_that_is_asked_for_more_than_it_has_is_over_its_capacity_though_it_uses_less() -> None:
    nodes = (node("orders-1", used_pct=99.0, demand_pct=130.2), node("orders-2"))
    lines = shown(replace(STATUS, nodes=nodes), width=100)
    assert [line.endswith("over capacity") for line in lines if " host-orders-" in line] == [True, False]


def test_hosts_are_shown_with_what_was_measured_the_most_used_first() -> None:
    measured = HostStatus(
        host=HostId("h0"), used_pct=88.25, memory_bytes=2_000_000_000, memory_limit_bytes=4_100_000_000,
        received_bytes_s=1_250_000.0, sent_bytes_s=999.0, demand_pct=91.0, bottleneck="CPU 91 %", level="heavy",
    )  # fmt: skip
    lines = shown(replace(STATUS, hosts=(measured, HostStatus(host=HostId("h1")))))
    where = lines.index("hosts")
    assert [line.split() for line in lines[where + 1 : where + 5] if "─" not in line] == [
        ["host", "CPU", "%", "asked", "%", "memory", "of", "received/s", "sent/s", "bottleneck"],
        ["h0", "88", "91", "2", "GB", "4", "GB", "1", "MB", "999", "B", "CPU", "91", "%,", "heavy"],
        ["h1", *"???????"],
    ]
    assert max(map(len, lines)) <= 80
    with_disk = replace(measured, disk_total_bytes=250_000_000_000, disk_free_bytes=31_000_000_000)
    lines = shown(replace(STATUS, hosts=(with_disk, HostStatus(host=HostId("h1")))))
    where = lines.index("hosts")
    assert "received/s  sent/s  disk %  bottleneck" in lines[where + 1]
    assert " 88  CPU 91 %" in lines[where + 3]
    assert lines[where + 4 if "h1" in lines[where + 4] else where + 5].split() == ["h1", *"????????"]
    assert max(map(len, lines)) <= 80
    many = tuple(HostStatus(host=HostId(f"h{number}"), used_pct=float(number)) for number in range(100))
    assert "hosts, 20 of 100: the most used" in shown(replace(STATUS, hosts=many))
    assert "hosts" not in shown(STATUS)


def test_why_workers_only_report_or_what_they_lack_is_a_sentence_each() -> None:
    differ, missing = "workers differ in their topics: a against b", "the broker does not know these topics: orders"
    rows = (
        *(node(name, steering=False, reason=differ) for name in ("a", "b")),
        node("c", steering=False),
        node("d", steering=False, state=WorkerState.AWAY, reason="its start failed: no command"),
        node("g", steering=False, state=WorkerState.AWAY, absence=Absence.CRASHED, reason="crashed 10 times"),
        node("e", reason=missing),
        node("f"),
    )
    lines = shown(replace(STATUS, nodes=rows), width=120)
    where = lines.index("what workers report")
    assert lines[where + 1 : where + 7] == [
        "  c only reports: no reason given, see the agents' logs",
        f"  a, b only report: {differ}",
        f"  e runs, but {missing}",
        "  away: g: crashed 10 times",
        "  away: d: its start failed: no command",
        "",
    ]
    assert "what workers report" not in shown(STATUS)


def test_a_reason_to_do_nothing_is_looked_up_before_a_concern() -> None:
    lost = (DecisionStatus(at=NOW, kind="skip", reason="hosts_lost", text="-"),)
    assert Seen(status=replace(STATUS, concerns=(FULL,), decisions=lost), controllers=None, now=NOW).runbook == (
        "hosts_lost"
    )


def test_who_leads_may_be_unknown_or_nobody() -> None:
    assert "no leader, 1 stands by" in shown(STATUS, STANDBY)[0]
    assert summary(Seen(status=STATUS, controllers=None, now=NOW)) == {
        "state": "acting", "leader": None, "silent_s": 1.0, "snapshot_age_s": 4.0, "runbook": None,
    }  # fmt: skip


def test_of_many_workers_those_that_matter_are_shown() -> None:
    many = [node(f"w{number}", float(number), used_pct=None, demand_pct=None) for number in range(100)]
    many[7] = node("w7", None, app=None, state=WorkerState.AWAY, steering=False, used_pct=None, demand_pct=None)
    many[8] = node("w8", 8.0, used_pct=None, demand_pct=None, draining=True, key_groups=0)
    many[99] = node("w99", 99.0, backlog=None, memory_bytes=None)
    status = replace(STATUS, nodes=tuple(many))
    lines = shown(status)
    workers = [line.split()[0] for line in lines if " host-w" in line]
    assert workers == ["w8", "w7", *(f"w{number}" for number in range(99, 99 - SHOWN_NODES + 2, -1))]
    assert any("w7" in line and "  ?  " in line and line.endswith("away") for line in lines)
    assert any("w8" in line and line.endswith("drained") for line in lines)
    assert any("20 of 100" in line for line in lines)
    assert not any("orders" in line for line in lines if " host-w" in line), "there is one app only"
    assert sum(" host-w" in line for line in shown(status, all_nodes=True)) == 100


def test_long_names_are_folded_not_lost() -> None:
    long = WorkerId("a-worker-with-a-name-as-long-as-some-orchestrators-make-them-0123456789")
    lines = shown(replace(STATUS, nodes=(node(long), node("orders-2"))))
    assert max(map(len, lines)) <= 80
    assert "0123456789" in "".join("".join(lines).split())


def test_names_from_outside_are_no_markup() -> None:
    lines = shown(replace(STATUS, apps=(replace(STATUS.apps[0], not_ready="no [bold]window[/] \x1b[31m"),)))
    assert any("no [bold]window[/]" in line for line in lines)


def test_the_levels_are_those_of_the_model() -> None:
    assert tuple(level.value for level in NodeLevel) == LEVELS
