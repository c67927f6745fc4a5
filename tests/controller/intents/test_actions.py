"""What an operator's request becomes, by what is known of the cluster."""

import inspect
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.console.fleet import APP, NOW, Fleet
from trimtab_controller.intents import actions, plans
from trimtab_controller.intents.change import (
    Asked,
    Change,
    ChangeRefused,
    RefusalKind,
    app_named,
    host_named,
    node_named,
    worker_named,
)
from trimtab_controller.intents.policies import BLIND, POLICIES
from trimtab_protocol.actions import ACTIONS
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.intents import (
    AcceptJournal,
    Drain,
    ForgetApp,
    ForgetWorker,
    Intent,
    MoveKeyGroups,
    Pause,
    RequestedMove,
    RollingRestart,
    Scale,
    Stop,
    TakenBack,
    Undrain,
    decode_intent,
)
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId
from trimtab_protocol.messages.reason_text import WORKERS_DIFFER
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.status import HoldStatus, HostStatus, RuleStatus, Status

FLEET = Fleet(workers=4, key_groups=64)
STATUS = FLEET.status()
HOLD = HoldStatus(id="h-1", text="the journal is older than the placement")
WORKER = FLEET.worker(1)
SUMS = OperatorId("sums")
BACK = TakenBack(by="ann", at=NOW, reason="kernel update")
STARTABLE = replace(STATUS, nodes=tuple(replace(row, startable=True) for row in STATUS.nodes))


def asked(status: Status | None = STATUS, **intents: Intent | None) -> Asked:
    return Asked(by="ann", at=NOW, reason="kernel update", status=status, intents=intents)


def written(change: Change) -> list[Intent]:
    """The intents of a change, as the controller reads them."""
    intents = [intent for _, intent in change.records if intent is not None and not isinstance(intent, TakenBack)]
    assert len(intents) == len(change.records)
    for intent in intents:
        assert decode_intent(intent.key.encode(), encoded(intent)) == intent
    return intents


def own(**fields: object) -> dict[str, object]:
    return {**fields, "by": "ann", "at": NOW, "reason": "kernel update"}


NO_WINDOW = replace(STATUS, nodes=(), hosts=(), apps=(), window_end=None)
"""Of a controller that has led since a moment ago."""


@pytest.mark.parametrize("status", [NO_WINDOW, None])
def test_which_workers_there_are_is_not_known_before_the_first_window(status: Status | None) -> None:
    why = "no window has come since this controller leads" if status else "no controller has reported yet"
    with pytest.raises(ChangeRefused, match=f"^which workers run is not known: {why}: ask again") as refused:
        plans.rolling_restart(asked(status), APP)
    assert refused.value.fault is RefusalKind.CONFLICT
    change = actions.drain(asked(status), WORKER)  # an operator who knows its name need not wait
    assert written(change) == [Drain(**own(worker=WORKER))]  # type: ignore[arg-type]
    told = f"but whether {WORKER} is a worker is not known: {why}; a host is drained only after that"
    assert change.caveats[-1] == (told if status else "no controller has reported yet: the drain starts when one leads")


def test_all_workers_of_a_host_are_drained_and_taken_back() -> None:
    (host,) = {row.host for row in STATUS.nodes if row.worker == WORKER}
    workers = sorted(row.worker for row in STATUS.nodes if row.host == host)
    change = actions.drain(asked(), host)
    assert written(change) == [Drain(**own(worker=worker)) for worker in workers]  # type: ignore[arg-type]
    assert change.text.startswith(f"1 worker of {host} will be drained")
    keys = {f"drain/{worker}": None for worker in workers}
    ended = actions.undrain(asked(**keys), host)
    assert ended.records == tuple((key, BACK) for key in keys)
    assert ended.text == f"the drain of 1 worker of {host} is cancelled: key groups may go there again"
    assert actions.undrain(asked(), host).text == f"nothing to do: {host} is not being drained"
    with pytest.raises(ChangeRefused, match="no worker or host 'nobody' reports"):
        actions.drain(asked(), "nobody")


def test_all_workers_of_a_zone_are_drained_and_taken_back() -> None:
    hosts = sorted({row.host for row in STATUS.nodes})
    zoned = tuple(HostStatus(host=host, zone=f"rack-{min(at, 1)}") for at, host in enumerate(hosts))
    status = replace(STATUS, hosts=zoned)
    workers = sorted(row.worker for row in STATUS.nodes if row.host != hosts[0])
    change = actions.drain(asked(status), "zone:rack-1")
    assert written(change) == [Drain(**own(worker=worker)) for worker in workers]  # type: ignore[arg-type]
    assert change.text.startswith(f"{len(workers)} workers of zone:rack-1 will be drained")
    keys: dict[str, Intent | None] = {f"drain/{worker}": None for worker in workers}
    assert actions.undrain(asked(status, **keys), "zone:rack-1").records == tuple((key, BACK) for key in keys)
    assert actions.undrain(asked(status), "zone:rack-1").records == ()
    with pytest.raises(ChangeRefused, match=r"no host of zone 'rack-9' reports; there are rack-0, rack-1"):
        actions.drain(asked(status), "zone:rack-9")
    with pytest.raises(ChangeRefused, match=r"no agent names one, see \[host\] in agent.toml"):
        actions.drain(asked(replace(STATUS, hosts=tuple(replace(row, zone=None) for row in zoned))), "zone:rack-1")


def test_of_one_host_nobody_could_take_over() -> None:
    alone = replace(STARTABLE, nodes=tuple(replace(row, host=HostId("h")) for row in STARTABLE.nodes))
    change = actions.drain(asked(alone), "h")
    assert change.caveats == ("but no other worker could take its key groups: it keeps them until there is one",)
    with pytest.raises(ChangeRefused, match="all workers of orders are on h: nobody could take over"):
        plans.rolling_restart(asked(alone), APP)


def test_all_workers_that_run_and_that_agents_can_start_are_restarted() -> None:
    running = tuple(sorted(row.worker for row in STATUS.nodes if row.state is WorkerState.RUNNING))
    change = plans.rolling_restart(asked(STARTABLE), APP)
    assert written(change) == [RollingRestart(**own(app=APP, workers=running))]  # type: ignore[arg-type]
    key = f"restart/{APP}"
    with pytest.raises(ChangeRefused, match="is being restarted already"):
        plans.rolling_restart(asked(STARTABLE, **{key: None}), APP)
    first, *others = STARTABLE.nodes
    partly = replace(STARTABLE, nodes=(replace(first, startable=False), *others))
    change = plans.rolling_restart(asked(partly), APP)
    assert written(change) == [RollingRestart(**own(app=APP, workers=running[1:]))]  # type: ignore[arg-type]
    assert change.caveats == (f"but {first.worker} stay as they are: their agents cannot start them",)
    assert actions.cancel_restart(asked(**{key: None}), APP).records == ((key, BACK),)
    assert actions.cancel_restart(asked(), APP).text == f"nothing to do: {APP} is not being restarted"


def test_a_drain_says_which_rules_keep_key_groups() -> None:
    freeze = Rule(name="release", kind=RuleKind.FREEZE, reason="they deploy", app="ord*")
    over = replace(freeze, name="old", until=NOW - 1.0)
    other = replace(freeze, name="else", app="other")
    ruled = replace(STARTABLE, rules=tuple(RuleStatus(rule=each) for each in (freeze, over, other)))
    told = "but rule release (freeze) keeps key groups: a worker that has one of them is not stopped"
    for change in (
        actions.drain(asked(ruled), WORKER),
        actions.drain(asked(ruled), STATUS.nodes[0].host),
        plans.rolling_restart(asked(ruled), APP),
    ):
        assert change.caveats == (told,)


def test_a_restart_says_that_versions_that_differ_are_not_drained() -> None:
    assert "the hosts after the first are not drained" in plans.rolling_restart(asked(STARTABLE), APP).text
    reason = f"{WORKERS_DIFFER}: orders-1 against orders-2"
    mixed = replace(STARTABLE, nodes=tuple(replace(row, steering=False, reason=reason) for row in STARTABLE.nodes))
    change = plans.rolling_restart(asked(mixed), APP)
    told = f"but without a drain, one worker at a time, since nothing may move: {reason}"
    assert [each for each in change.caveats if "drain, one" in each] == [told]


def rebalancing(*places: int) -> Status:
    """All of these workers are in a rebalance."""
    rows = enumerate(STARTABLE.nodes)
    return replace(
        STARTABLE,
        nodes=tuple(replace(row, state=WorkerState.REBALANCING) if place in places else row for place, row in rows),
    )


def test_while_almost_all_workers_rebalance_a_restart_is_refused_for_now() -> None:
    late = ", ".join(row.worker for row in STARTABLE.nodes[1:])
    with pytest.raises(
        ChangeRefused,
        match=f"^workers of orders that run and can be restarted: 1, .*; {late} do not run yet, ask again when they",
    ):
        plans.rolling_restart(asked(rebalancing(1, 2, 3)), APP)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (STATUS, "no agent can start a worker of orders: expected `app` and `command`"),
        (
            replace(STARTABLE, nodes=STARTABLE.nodes[:1]),
            "workers of orders that run and can be restarted: 1, expected 2 to",
        ),
        (
            replace(STATUS, nodes=(*STATUS.nodes[:1], replace(STARTABLE.nodes[1], state=WorkerState.RECOVERING))),
            "can be restarted: 0, expected 2 to .*; orders-.* do not run yet, ask again when they do",
        ),
        (replace(STARTABLE, apps=tuple(replace(row, mode="dry-run") for row in STATUS.apps)), "is dry-run"),
    ],
)
def test_a_restart_that_cannot_work_is_refused(status: Status, why: str) -> None:
    with pytest.raises(ChangeRefused, match=why):
        plans.rolling_restart(asked(status), APP)


@pytest.mark.parametrize(
    ("status", "caveat"),
    [
        (None, "no controller has reported yet: the drain starts when one leads"),
        (replace(STATUS, at=NOW - 60), "but no controller is running: the drain starts when one leads again"),
        (replace(STATUS, hold=HOLD), "but the controller is on hold and moves nothing"),
        (replace(STATUS, acting=False), "but the controller is a dry run"),
        (replace(STATUS, nodes=STATUS.nodes[1:2]), "but no other worker could take its key groups"),
    ],
)
def test_a_drain_that_does_not_start_at_once_says_why(status: Status | None, caveat: str) -> None:
    (told,) = actions.drain(asked(status), WORKER).caveats
    assert told.startswith(caveat)


def test_whether_it_is_paused_is_told_by_the_intents_and_not_by_the_status_before_them() -> None:
    paused = replace(STATUS, paused="paused by bob: lunch")
    (told,) = actions.drain(asked(pause=Pause(**own())), WORKER).caveats  # type: ignore[arg-type]
    assert told == "but the controller is paused: the drain starts after `trimtab resume`"
    assert actions.drain(asked(paused), WORKER).caveats == (), "it has been resumed since"
    not_read = replace(asked(paused), intents=None)
    assert actions.drain(not_read, WORKER).caveats == (told,)


def test_a_pause_and_its_end() -> None:
    change = actions.pause(asked(None))
    assert written(change) == [Pause(**own())]  # type: ignore[arg-type]
    ended = actions.resume(asked(None, pause=written(change)[0]))
    assert (ended.records, ended.text) == ((("pause", BACK),), "the controller decides again")
    unreadable = actions.resume(asked(None, pause=None))
    assert unreadable.records == (("pause", BACK),)
    idle = actions.resume(asked())
    assert (idle.records, idle.key) == ((), "pause")
    assert idle.text.startswith("nothing to do: the controller is not paused")


def test_a_drain_by_an_operator_is_revoked_and_one_by_the_controller_is_contradicted() -> None:
    key = f"drain/{WORKER}"
    assert actions.undrain(asked(**{key: None}), WORKER).records == ((key, BACK),)
    assert actions.undrain(asked(), WORKER).text == f"nothing to do: {WORKER} is not being drained"
    (app,) = STATUS.apps
    assert app.size is not None
    leaving = replace(STATUS, apps=(replace(app, size=replace(app.size, leaving=(WORKER,))),))
    assert written(actions.undrain(asked(leaving), WORKER)) == [Undrain(**own(worker=WORKER))]  # type: ignore[arg-type]
    assert actions.undrain(asked(leaving, **{key: None}), WORKER).records == ((key, BACK),)


def test_plans_are_stopped_of_one_app_or_of_all_and_a_pause_comes_first() -> None:
    change = actions.stop(asked(), None)
    assert written(change) == [Stop(**own(app=None))]  # type: ignore[arg-type]
    assert change.text.startswith("stopping plan 3.15: released key groups arrive")
    both = actions.stop(asked(), APP, with_pause=True)
    assert written(both) == [Pause(**own()), Stop(**own(app=APP))]  # type: ignore[arg-type]
    assert (both.key, both.text.endswith("no new one starts until `trimtab resume`")) == (f"stop/{APP}", True)
    wishes = [
        MoveKeyGroups(
            moves=(RequestedMove(key_group=KeyGroup(app, SUMS, 1), worker=WORKER),), by="b", at=1.0, reason="r"
        )
        for app in (APP, AppId("other"))
    ]
    waiting = asked(**{wish.key: wish for wish in wishes})
    one, every = actions.stop(waiting, APP), actions.stop(waiting, None)
    assert one.records == ((wishes[0].key, BACK), (f"stop/{APP}", Stop(**own(app=APP))))  # type: ignore[arg-type]
    assert "where they are; requests to move or undo that wait are taken back: 1; new ones may follow" in one.text
    assert {key for key, said in every.records if said == BACK} == {wish.key for wish in wishes}
    quiet = replace(STATUS, rounds=())
    assert actions.stop(asked(quiet), None).text.startswith("no plan was reported in flight; stopping any that is")


def test_only_the_hold_that_was_seen_is_accepted() -> None:
    held = asked(replace(STATUS, hold=HOLD))
    for expected in (None, "h-1"):
        change = actions.accept_journal(held, expected)
        assert written(change) == [AcceptJournal(**own(hold="h-1"))]  # type: ignore[arg-type]
        assert HOLD.text in change.text
    with pytest.raises(ChangeRefused, match="found another hold, h-1, expected h-0"):
        actions.accept_journal(held, "h-0")
    with pytest.raises(ChangeRefused, match="the controller is not on hold") as refused:
        actions.accept_journal(asked())
    assert refused.value.fault is RefusalKind.CONFLICT


def test_an_app_has_so_many_workers_until_it_follows_its_demand_again() -> None:
    change = actions.scale(asked(), APP, 5)
    assert (written(change), change.caveats) == ([Scale(**own(app=APP, workers=5))], ())  # type: ignore[arg-type]
    (caveat,) = actions.scale(asked(), APP, 6).caveats
    assert caveat.startswith("but only 4 run, and 1 more can be started")
    (caveat,) = actions.scale(asked(), APP, 3).caveats
    assert caveat.startswith("but 4 run, and 0 of them can be stopped: without a `hook`")
    assert actions.scale(asked(STARTABLE), APP, 3).caveats == ()
    (caveat,) = actions.scale(asked(pause=Pause(**own())), APP, 4).caveats  # type: ignore[arg-type]
    assert caveat == "but the controller is paused: it happens after `trimtab resume`"
    key = f"scale/{APP}"
    assert actions.scale_auto(asked(**{key: None}), APP).records == ((key, BACK),)
    assert actions.scale_auto(asked(), APP).text == f"nothing to do: nobody has set the size of {APP}"
    for workers in (0, 10_001):
        with pytest.raises(ChangeRefused, match="expected a number of workers from 1 to 10000"):
            actions.scale(asked(), APP, workers)


def test_what_still_runs_is_not_forgotten() -> None:
    with pytest.raises(
        ChangeRefused, match=rf"worker {WORKER} still runs: {WORKER} on host-0001; stop it first"
    ) as refused:
        actions.forget_worker(asked(), WORKER)
    assert refused.value.fault is RefusalKind.CONFLICT
    with pytest.raises(ChangeRefused, match=f"app {APP} still runs: "):
        actions.forget_app(asked(), APP)
    away = replace(STATUS, nodes=tuple(replace(row, state=WorkerState.AWAY) for row in STATUS.nodes))
    for status in (away, None, replace(STATUS, at=NOW - 60)):
        assert written(actions.forget_worker(asked(status), WORKER)) == [
            ForgetWorker(**own(worker=WORKER))  # type: ignore[arg-type]
        ]
        assert written(actions.forget_app(asked(status), APP)) == [ForgetApp(**own(app=APP))]  # type: ignore[arg-type]
    assert actions.forget_app(asked(away), APP).caveats == ()
    assert "no controller is running: it happens when one leads" in actions.forget_app(asked(status), APP).caveats[0]
    assert actions.forget_app(asked(), "ordres").caveats == ("but no app 'ordres' is known; there is orders",)


def test_a_name_that_nobody_reports_is_refused_with_those_that_are() -> None:
    for refused, there in (
        (lambda: actions.drain(asked(), "nobody"), "are orders-0, orders-1"),
        (lambda: actions.scale(asked(), "nobody", 3), "is orders$"),
        (lambda: actions.stop(asked(), "nobody"), "is orders$"),
    ):
        with pytest.raises(ChangeRefused, match=f"'nobody' reports; there {there}") as found:
            refused()
        assert found.value.fault is RefusalKind.UNKNOWN
    assert actions.drain(asked(None), "nobody").records, "nobody is known yet"


# --- maintenance ------------------------------------------------------------------------------------------------------


[HOST] = {row.host for row in STATUS.nodes if row.worker == WORKER}
WORKERS = sorted(row.worker for row in STATUS.nodes if row.host == HOST)


def test_the_workers_of_a_host_stay_off_for_a_time_and_that_can_be_ended_without_its_reports() -> None:
    known = asked()
    change = actions.maintenance(known, HOST, 7200.0)
    expected = [Drain(**own(worker=each, until=known.at + 7200.0, host=HOST)) for each in WORKERS]  # type: ignore[arg-type]
    assert written(change) == expected
    assert change.text.startswith(
        f"maintenance of {HOST} for 2 h 0 min: {len(WORKERS)} worker{'s'[: len(WORKERS) - 1]} will be drained"
    )
    nobody = asked(None, **{each.key: each for each in expected})
    assert actions.end_maintenance(nobody, HOST).records == tuple((each.key, BACK) for each in expected)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ChangeRefused, match="no host 'nobody' reports"):
        actions.maintenance(asked(), "nobody", 60.0)
    unseen = replace(STATUS, nodes=(), hosts=(), apps=(), window_end=None)
    with pytest.raises(
        ChangeRefused, match=r"^which workers run is not known: no window has come since this controller"
    ):
        actions.maintenance(asked(unseen), HOST, 60.0)
    with pytest.raises(ChangeRefused, match="expected more than 0 s"):
        POLICIES["maintenance"](host=HOST, for_s=0.0)
    assert actions.end_maintenance(asked(), HOST).text == f"nothing to do: {HOST} is not being drained"


def test_a_drain_without_an_end_gets_none_by_a_maintenance() -> None:
    lasting = Drain(**own(worker=WORKER))  # type: ignore[arg-type]
    with pytest.raises(ChangeRefused, match=f"operators drain all workers of {HOST} without an end"):
        actions.maintenance(asked(**{lasting.key: lasting}), HOST, 60.0)
    both = replace(STATUS, nodes=tuple(replace(row, host=HOST) for row in STATUS.nodes[:2]))
    change = actions.maintenance(asked(both, **{lasting.key: lasting}), HOST, 60.0)
    assert WORKER in {row.worker for row in both.nodes}
    assert [intent.worker for intent in written(change) if isinstance(intent, Drain)] == [
        row.worker for row in both.nodes if row.worker != WORKER
    ]
    assert change.caveats[-1] == f"but {WORKER} stay off also after it: an operator drains them without an end"
    short = replace(lasting, until=asked().at + 1.0)
    assert len(written(actions.maintenance(asked(both, **{short.key: short}), HOST, 60.0))) == 2, "it has an end"


# ---- the table of actions and the policies: each action has one, and it takes what a request says


ANY = inspect.Parameter.VAR_KEYWORD


def test_each_action_has_a_policy() -> None:
    assert POLICIES.keys() == ACTIONS.keys()


@pytest.mark.parametrize("name", ACTIONS)
def test_a_policy_takes_the_fields_of_its_action(name: str) -> None:
    parameters = inspect.signature(POLICIES[name]).parameters.values()
    if any(each.kind is ANY for each in parameters):
        return
    assert [each.name for each in parameters] == [each.name for each in ACTIONS[name].fields]


@pytest.mark.parametrize("until", [{"for_s": None}, {"for_s": 60.0}])
def test_a_wrong_name_is_refused_before_anything_is_known(until: dict[str, object]) -> None:
    with pytest.raises(ChangeRefused, match="expected a host's name") as refused:
        POLICIES["maintenance"](host="h 1", **until)
    assert refused.value.fault is RefusalKind.INVALID


def test_a_rule_that_says_too_little_is_refused_before_anything_is_known() -> None:
    with pytest.raises(ChangeRefused, match="expected workers beside the kind pin"):
        POLICIES["add-rule"](name="r", kind="pin", workers=[], priority=None)


def test_what_is_decided_without_a_status() -> None:
    back = POLICIES["scale"](app="a", workers=None), POLICIES["rolling-restart"](app="a", cancel=True)
    assert {each.func for each in (POLICIES["pause"](), *back)} == BLIND
    assert POLICIES["scale"](app="a", workers=3).func is actions.scale


# --- names ------------------------------------------------------------------------------------------------------------


READERS = {
    "a worker's name": worker_named, "an app's id": app_named, "a host's name": host_named,
}  # fmt: skip


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 201])
@pytest.mark.parametrize(("expected", "read"), READERS.items())
def test_what_is_no_name_is_refused(expected: str, read: Callable[[str], str], name: str) -> None:
    with pytest.raises(ChangeRefused) as found:
        read(name)
    assert (found.value.fault, str(found.value)) == (RefusalKind.INVALID, f"found {name[:200]!r}, expected {expected}")
    assert read("orders-1") == "orders-1"


def test_a_zone_is_told_from_a_worker_and_a_host_by_what_stands_before_it() -> None:
    assert [node_named(text) for text in ("orders-1", "zone:rack-1")] == ["orders-1", "zone:rack-1"]
    for text, expected in (("a b", "a worker's name"), ("zone:", "the name of a zone"), ("zone:a:b", "the name of a")):
        with pytest.raises(ChangeRefused, match=f"expected {expected}"):
            node_named(text)
