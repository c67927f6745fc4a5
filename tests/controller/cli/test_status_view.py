"""What somebody who was woken at night reads first: the state, who leads, the last decision, and what to do."""

from dataclasses import replace

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
    brief_status,
    collocation_line,
    intents_documents,
)
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
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
    OperatorCostStatus,
    PoolStatus,
    RemoteCostStatus,
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


# --- status apps ------------------------------------------------------------------------------------------------------


def load_line(**figures: object) -> str:
    """The line of the app's load distance, if the app has these figures."""
    [app] = STATUS.apps
    lines = shown(replace(STATUS, apps=(replace(app, **figures),)), width=120)  # type: ignore[arg-type]
    [found] = [line for line in lines if "load distance 2.2 pp" in line]
    return found


def test_key_groups_that_a_crash_would_cost_a_restore_are_said() -> None:
    def line(missing: int | None) -> str:
        return load_line(missing_standbys=missing)

    assert line(7).endswith("63 key groups, 7 lack a standby")
    assert line(0).endswith("63 key groups")
    assert line(None).endswith("63 key groups")


def test_the_share_of_sends_that_skip_the_broker_is_said_if_it_is_known() -> None:
    def line(share: float | None) -> str:
        return load_line(collocation=0.9, local_sends=share)

    assert line(0.75).endswith("mean load 50.0 %, collocation 90%, local sends 75%, 63 key groups")
    assert line(0.0).endswith("collocation 90%, local sends 0%, 63 key groups")
    assert line(None).endswith("collocation 90%, 63 key groups")


def test_what_the_loss_of_a_host_leads_to_is_said_with_its_bound() -> None:
    app = replace(
        STATUS.apps[0],
        n_minus_1_pct=81.4,
        n_minus_1_bound_pct=79.0,
        n_minus_1_worker=WorkerId("orders-2"),
        n_minus_1_lost=(WorkerId("orders-7"),),
    )
    assert "N-1: 81 % at orders-2 after losing orders-7, bound 79 %" in " ".join(shown(replace(STATUS, apps=(app,))))
    assert "N-1" not in " ".join(shown(STATUS))
    measured = shown(replace(STATUS, apps=(replace(app, following_share=0.043),)), width=160)
    assert "bound 79 %; following a key group costs 4% of its load" in " ".join(measured)


def test_the_size_of_an_app_is_said_with_its_reason() -> None:
    size = SizeStatus(text="4 workers, demand 3.60 of 4.00 cores (90%), wanted 6: demand above 85% for 40 s")
    [app] = STATUS.apps
    lines = shown(replace(STATUS, apps=(replace(app, size=size),)), width=120)
    assert [line.strip() for line in lines if "size:" in line] == [f"size: {size.text}"]
    assert not any("size:" in line for line in shown(STATUS))


def test_how_long_workers_took_to_start_is_said_beside_the_configured_time() -> None:
    size = SizeStatus(text="1 worker", restart_s=120.0, measured_restart_s=14.4)
    [app] = STATUS.apps
    [line] = [line for line in shown(replace(STATUS, apps=(replace(app, size=size),)), width=120) if "size:" in line]
    assert line.strip() == "size: 1 worker; started workers ran after 14 s at most, restart_s is 120 s"
    unseen = replace(size, measured_restart_s=None)
    assert not any("ran after" in line for line in shown(replace(STATUS, apps=(replace(app, size=unseen),))))


def test_settings_of_the_app_alone_are_shown() -> None:
    size = SizeStatus(text="1 worker", own_settings=("max_workers = 4", 'mode = "act"'))
    [app] = STATUS.apps
    [line] = [line for line in shown(replace(STATUS, apps=(replace(app, size=size),)), width=120) if "size:" in line]
    assert line.strip() == 'size: 1 worker; own settings: max_workers = 4, mode = "act"'


def test_fixed_workers_are_listed_with_their_reasons_and_how_much_is_unknown() -> None:
    fixed = tuple(
        FixedStatus(worker=WorkerId(name), reason=reason, text=text)
        for name, reason, text in (
            ("orders-7", "worker_missing", ""),
            ("orders-8", "worker_missing", ""),
            ("orders-9", "worker_not_steering", "store memory:"),
        )
    )
    apps = tuple(replace(app, fixed=fixed, stale_key_groups=4, unknown_load=0.031) for app in STATUS.apps)
    lines = shown(replace(STATUS, apps=apps), width=120)

    at = lines.index("fixed workers: plans are made around them")
    assert lines[at + 1 : at + 3] == [
        "  orders: orders-7, orders-8: worker_missing",
        "  orders: orders-9: worker_not_steering, store memory:",
    ]
    assert [line for line in lines if line.endswith("63 key groups, 3.1% of the load is unknown")]
    assert "fixed workers: plans are made around them" not in shown(STATUS)


def test_levels_of_the_workers_are_a_line_of_the_app() -> None:
    levels = ("light", "heavy", "light", "moderate", "heavy", None)
    nodes = tuple(node(f"w{place}", level=level) for place, level in enumerate(levels))
    lines = " ".join(" ".join(shown(replace(STATUS, nodes=nodes))).split())
    assert "workers: 2 light, 1 moderate, 2 heavy (w1, w4)" in lines
    assert "workers:" not in " ".join(shown(STATUS)), "no level is known"


def test_headroom_is_a_line_of_the_app() -> None:
    capacity = CapacityStatus(
        headroom=1.5, potential=2.0, bound=2.25, first="host h1", heaviest="orders/sums/7", accuracy=0.934
    )
    lines = " ".join(" ".join(shown(replace(STATUS, apps=(replace(STATUS.apps[0], capacity=capacity),)))).split())
    assert (
        "headroom: 1.5 times the input until host h1 is full, 2.0 with free moves "
        "(bound 2.2, by orders/sums/7 alone); costs predict 93% of the CPU"
    ) in lines
    assert "headroom" not in " ".join(
        shown(replace(STATUS, apps=(replace(STATUS.apps[0], capacity=CapacityStatus()),)))
    )


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
    not_yet = RemoteCostStatus()
    assert line(not_yet, not_yet, obtainable=0.58) == "remote tuples: their cost is unknown; at most 58% can be local"
    assert line(dear, few) == (
        "remote tuples: head sends at 98 ± 12 us more CPU each; tail receives: not known, too few key groups differ"
    )
    assert (NO_TUPLES, FEW) == (Unknown.NO_TUPLES, Unknown.FEW)
    assert collocation_line(STATUS.apps[0]) == ""


def test_the_pool_of_each_app_is_a_line_and_its_workers_do_not_push_others_out_of_sight() -> None:
    pool = [PoolStatus(app=APP, worker=WorkerId(f"w{n}"), host=HostId(f"h{n}"), capacity=1.0) for n in (5, 6)]
    pool.append(PoolStatus(app=AppId("clicks"), worker=WorkerId("c1"), host=HostId("h1"), capacity=1.0))
    idle = [node(f"z{n}", None, state=WorkerState.AWAY, steering=False, absence=Absence.STOPPED) for n in range(40)]
    lines = shown(replace(STATUS, pool=tuple(pool), nodes=(*STATUS.nodes, *idle)), width=100)

    where = lines.index("pool")
    assert lines[where + 1 : where + 4] == [
        "  orders  2 workers can be started: w5 on h5, w6 on h6",
        "  clicks  1 worker can be started: c1 on h1",
        "",
    ]
    assert any(line.split()[:1] == ["orders-1"] for line in lines)
    assert any(line.split()[-1:] == ["stopped"] for line in lines)
    assert "pool" not in shown(STATUS)


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
