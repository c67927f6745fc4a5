"""What somebody who was woken at night reads first: the state, who leads, the last decision, and what to do."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.controller.cli.status_examples import APP, LEADER, NOW, ROUND, STANDBY, STATUS, node, shown
from trimtab_controller.cli.operator import CommandError
from trimtab_controller.cli.preview import view_of
from trimtab_controller.cli.status import (
    BRIEF_APPS,
    FEW,
    LEVELS,
    NO_TUPLES,
    SHOWN_NODES,
    app_line,
    brief_status,
    collocation_line,
    intents_documents,
)
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.collocation import LocalTopic
from trimtab_controller.loop.status_builder import local_topic_text
from trimtab_controller.seen import Seen, State, summary
from trimtab_models.albic.fit import Unknown
from trimtab_models.elastic.matching import NodeLevel
from trimtab_protocol.messages.intents import AddRule, Drain, Intent, Pause
from trimtab_protocol.messages.names import AppId, HostId, OperatorId, WorkerId
from trimtab_protocol.messages.refused_hosts import RefusedHost, RefusedHosts
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.status import (
    CapacityStatus,
    CollocationStatus,
    ConcernStatus,
    DecisionStatus,
    FixedStatus,
    HoldStatus,
    HostStatus,
    LocalTopicStatus,
    OperatorCostStatus,
    PoolStatus,
    RedundancyStatus,
    RemoteCostStatus,
    SizeStatus,
    Status,
)
from trimtab_protocol.wording import local_time

# ---- everything that a status may tell, as operators see it


DIFFER, MISSING = "workers differ in their topics: a against b", "the broker does not know these topics: orders"
UNUSED = {"used_pct": None, "demand_pct": None, "backlog": None, "memory_bytes": None, "steering": False}
NONE = RemoteCostStatus(unknown="no tuples between key groups")
DEAR = RemoteCostStatus(value=98.4e-6, error=12.2e-6, significant=True)
ORDERS = replace(
    STATUS.apps[0],
    collocation=0.9,
    local_sends=0.75,
    missing_standbys=7,
    redundancy=RedundancyStatus(since=1000.0, measured_s=48.2, lacking=0, planned_s=50.0, bound_s=40.4),
    stale_key_groups=4,
    unknown_load=0.031,
    n_minus_1_pct=81.4,
    n_minus_1_bound_pct=79.0,
    n_minus_1_worker=WorkerId("orders-2"),
    n_minus_1_lost=(WorkerId("orders-7"),),
    following_share=0.043,
    capacity=CapacityStatus(
        headroom=1.5, potential=2.0, bound=2.25, first="host h1", heaviest="orders/sums/7", accuracy=0.934
    ),
    remote_costs=CollocationStatus(
        operators=(OperatorCostStatus(operator=OperatorId("head"), sending=DEAR, receiving=NONE),),
        obtainable=0.958,
        worth_cores=0.43,
    ),
    size=SizeStatus(
        text="4 workers, demand 3.60 of 4.00 cores (90%), wanted 6",
        restart_s=120.0,
        measured_restart_s=14.4,
        own_settings=("max_workers = 4", 'mode = "act"'),
        leaving=(WorkerId("orders-1"),),
    ),
    fixed=(
        FixedStatus(worker=WorkerId("orders-7"), reason="worker_missing", text=""),
        FixedStatus(worker=WorkerId("orders-8"), reason="worker_missing", text=""),
        FixedStatus(worker=WorkerId("orders-9"), reason="worker_not_steering", text="store memory:"),
    ),
)
WHOLE = replace(
    STATUS,
    apps=(ORDERS,),
    nodes=(
        node("orders-1", 61.25, draining=True, level="light"),
        node("orders-2", 39.0, key_groups=31, draining=True, level="heavy"),
        node("orders-3", 3.25, used_pct=110.4, level="heavy"),
        node("orders-4", used_pct=99.0, demand_pct=130.2, level="moderate", steering=False),
        node("a", steering=False, reason=DIFFER),
        node("b", steering=False, reason=DIFFER),
        node("c", reason=MISSING),
        node("d", None, app=None, state=WorkerState.AWAY, reason="its start failed: no command", **UNUSED),
        node("e", None, app=None, state=WorkerState.AWAY, absence=Absence.CRASHED, reason="crashed 10 times", **UNUSED),
        node("f", None, app=None, state=WorkerState.AWAY, absence=Absence.STOPPED, **UNUSED),
    ),
    hosts=(
        HostStatus(
            host=HostId("h0"),
            used_pct=88.25,
            memory_bytes=2_000_000_000,
            memory_limit_bytes=4_100_000_000,
            received_bytes_s=1_250_000.0,
            sent_bytes_s=999.0,
            demand_pct=91.0,
            bottleneck="CPU 91 %",
            level="heavy",
            disk_total_bytes=250_000_000_000,
            disk_free_bytes=31_000_000_000,
        ),
        HostStatus(host=HostId("h1")),
    ),
    pool=tuple(
        PoolStatus(app=AppId(app), worker=WorkerId(w), host=HostId(h), capacity=1.0)
        for app, w, h in (("orders", "w5", "h5"), ("orders", "w6", "h6"), ("clicks", "c1", "h1"))
    ),
    concerns=(
        ConcernStatus(kind="over_capacity", app=APP, text="orders-3 uses 110 % of its capacity, its key groups 3 %"),
    ),
    rejected={"trimtab.prod.reports.unsigned": 500},
    refused_hosts=RefusedHosts(
        worst=tuple(
            RefusedHost(
                topic="trimtab.prod.reports",
                host=HostId(f"h{n}"),
                fault="unsigned",
                messages=40 - n,
                at=STATUS.at - 5.0,
            )
            for n in range(12)
        ),
        more=3,
    ),
    rounds=(
        replace(
            ROUND,
            plan="3.15",
            ended_at=None,
            handovers={"done": 2, "releasing": 1, "waiting": 1, "failed": 0},
            migrations=6,
            recovery_planned_s=12.34,
            recovery_bound_s=9.0,
        ),
        ROUND,
        replace(ROUND, plan="3.12", after=None, incomparable="w2 joined"),
        replace(
            ROUND,
            plan="3.11",
            recovery_planned_s=12.34,
            recovery_bound_s=9.0,
            recovery_s=13.0,
            saved_planned_pp=3.28,
            saved_pp=3.46,
        ),
    ),
)
DRAIN = Drain(worker=WorkerId("w2"), by="ann@desk", at=NOW - 90.0, reason="new disk")


def test_a_status_with_all_that_there_may_be() -> None:
    expected = Path(__file__).with_name("whole_status.txt").read_text(encoding="utf-8")
    lines = shown(WHOLE, LEADER, STANDBY, width=100, intents={DRAIN.key: DRAIN, "x/1": None})
    assert "\n".join(lines) + "\n" == expected.replace("13:45:10", local_time(NOW - 90)[-8:])


def test_what_there_is_none_of_is_left_out() -> None:
    assert [line for line in shown(STATUS, width=120) if not line.startswith(" ")][2:] == [
        "", "apps", "", "workers", "", "last plans", "", "earlier decisions",
    ]  # fmt: skip
    apps = shown(STATUS, width=120)[3:6]
    assert apps == ["apps", "  orders  load distance 2.2 pp (noise 0.5), mean load 50.0 %, 63 key groups", ""]
    bare = replace(STATUS.apps[0], missing_standbys=0, capacity=CapacityStatus(), size=SizeStatus(text="1 worker"))
    assert shown(replace(STATUS, apps=(bare,)), width=120)[4:7] == [*apps[1:2], "          size: 1 worker", ""]
    many = tuple(HostStatus(host=HostId(f"h{number}"), used_pct=float(number)) for number in range(100))
    hosts = shown(replace(STATUS, hosts=many))
    assert "hosts, 20 of 100: the most used" in hosts
    assert "received/s  sent/s  bottleneck" in hosts[hosts.index("hosts, 20 of 100: the most used") + 1], "no disk"


def test_a_rule_that_has_ended_by_itself_is_not_wanted_any_more() -> None:
    rule = Rule(name="disk", kind=RuleKind.FREEZE, reason="a disk fails", until=NOW)
    over = AddRule(rule=rule, by="ann@desk", at=NOW - 60.0, reason="a disk fails")
    lasting = replace(over, rule=replace(rule, name="other", until=NOW + 1.0))
    both = {over.key: over, lasting.key: lasting}
    told = [line for line in shown(STATUS, intents=both) if "keep rule" in line]
    assert told == ["  keep rule other (freeze), by ann@desk 60 s ago: a disk fails"]
    assert "what operators want" not in shown(STATUS, intents={over.key: over})
    assert [row["key"] for row in intents_documents(both, NOW) or ()] == [lasting.key]


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


def test_names_from_outside_are_no_markup() -> None:
    lines = shown(replace(STATUS, apps=(replace(STATUS.apps[0], not_ready="no [bold]window[/] \x1b[31m"),)))
    assert any("no [bold]window[/]" in line for line in lines)


def test_the_levels_are_those_of_the_model() -> None:
    assert tuple(level.value for level in NodeLevel) == LEVELS


# --- status apps ------------------------------------------------------------------------------------------------------


def test_what_remote_tuples_cost_is_a_line_of_the_app() -> None:
    def line(sending: RemoteCostStatus, receiving: RemoteCostStatus, **more: float) -> str:
        none = RemoteCostStatus(unknown="no tuples between key groups")
        rows = (
            OperatorCostStatus(operator=OperatorId("head"), sending=sending, receiving=none),
            OperatorCostStatus(operator=OperatorId("tail"), sending=none, receiving=receiving),
        )
        app = replace(STATUS.apps[0], remote_costs=CollocationStatus(operators=rows, **more))
        told = " ".join(" ".join(shown(replace(STATUS, apps=(app,)))).split())
        assert collocation_line(app) in told
        return collocation_line(app)

    dear = RemoteCostStatus(value=98.4e-6, error=12.2e-6, significant=True)
    doubtful = RemoteCostStatus(value=-4e-6, error=20e-6)
    unknown = RemoteCostStatus(unknown="no tuple was local")
    few = RemoteCostStatus(unknown=FEW)
    assert line(dear, doubtful, obtainable=0.958, worth_cores=0.43) == (
        "remote tuples: head sends at 98 ± 12 us more CPU each; at most 96% can be local, to save 0.43 cores"
    )
    assert line(doubtful, unknown, obtainable=1.0, worth_cores=0.0) == (
        "remote tuples: no significant cost, head sends at -4 ± 20 us; at most 100% can be local"
    )
    assert line(unknown, unknown) == "remote tuples: their cost is unknown, no tuple was local"
    none = replace(
        STATUS.apps[0], local_sends=0.0,
        remote_costs=CollocationStatus(operators=(OperatorCostStatus(operator=OperatorId("head"), sending=unknown,
                                                                     receiving=unknown),)),
    )  # fmt: skip
    assert collocation_line(none) == (
        "remote tuples: their cost is unknown, no tuple was local; a first topic in local= of the plug-in would show it"
    )
    not_yet = RemoteCostStatus()
    assert line(not_yet, not_yet, obtainable=0.58) == "remote tuples: their cost is unknown; at most 58% can be local"
    assert line(dear, few) == (
        "remote tuples: head sends at 98 ± 12 us more CPU each; tail receives: not known, too few key groups differ"
    )
    assert (NO_TUPLES, FEW) == (Unknown.NO_TUPLES, Unknown.FEW)
    assert collocation_line(STATUS.apps[0]) == ""


def test_a_topic_that_could_be_local_is_a_line_of_the_app_with_the_source_and_error_of_what_it_saves() -> None:
    ends = OperatorId("extract"), OperatorId("sums")
    words = LocalTopic(topic="words", source=ends[0], target=ends[1], cores=0.4, error=0.1, measured_at=ends)
    text = local_topic_text(words, 2.1)
    assert text == (
        "topic words between extract and sums could be local: about 0.40 ± 0.10 cores of 2.10, by what extract and "
        "sums were measured to save per local tuple; add local=[words]"
    )
    assert local_topic_text(replace(words, error=None, measured_at=()), 2.1) == (
        "topic words between extract and sums could be local: about 0.40 cores of 2.10, by the stated "
        "remote_tuple_cpu_s, whose error is not known; add local=[words]"
    )
    topic = LocalTopicStatus(topic="words", source=ends[0], target=ends[1], cores=0.4, text=text)
    status = replace(STATUS, apps=(replace(STATUS.apps[0], remote_costs=CollocationStatus(topics=(topic,))),))
    assert text in " ".join(" ".join(shown(status)).split())
    assert f"orders: {text}" in brief_status(Seen(status=status, controllers=(LEADER,), now=NOW))


# ---- what `trimtab sandbox status` says of windows and plans, in a few lines


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


# ---- what a command says that needs a whole window, while there is none


@pytest.mark.parametrize(
    ("reason", "then"),
    [
        (SkipReason.WORKER_INCOMPLETE, "`trimtab runbook worker_incomplete` says what to do"),
        (SkipReason.WINDOW_TOO_EARLY, "ask again after the next window"),
    ],
)
def test_it_says_what_is_missing_and_what_to_do(reason: SkipReason, then: str) -> None:
    known = WindowResult()
    known.views = {AppId("orders"): NotReady(reason=reason, detail="w1", app=AppId("orders"))}
    with pytest.raises(CommandError) as refusal:
        view_of(known, None, "--app")
    assert str(refusal.value) == f"no complete snapshot: {reason}: w1; {then}"


def test_key_groups_without_an_owner_or_a_warm_standby_come_with_what_was_planned() -> None:
    gap = RedundancyStatus(since=1000.0, measured_s=190.0, lacking=12, planned_s=60.0, bound_s=44.6)
    for found, said in (
        (gap, "12 lack an owner or a warm standby for 190 s (60 planned, bound 45)"),
        (replace(gap, planned_s=None, bound_s=None), "for 190 s (nothing planned)"),
    ):
        line = str(app_line(replace(ORDERS, redundancy=found)))
        assert said in line
        assert "lack a standby" not in line, "it is told once"
