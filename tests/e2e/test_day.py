"""A day of a cluster on real parts: each chapter waits for what was promised, and what was recorded is judged.

    python -m pytest tests/e2e/test_day.py -n0 -s

Two brokers, two controllers, Spark, a console, and six workers on hosts of their own, of which four run in the morning.
The job has two operators, two tables, one of them windowed, and a local topic; real flights flow through it.
"""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest
from rich.console import Console

from flights.cpu import CpuMeter
from flights.demo.view import View
from flights.wire import APP, EXTRACT, SUMS
from tests.e2e.day_run import CAPACITIES, LIMIT_S, RATE, SECOND_BROKER, Day, app_of, busy, running
from tests.faults.recorded.history import Strike
from tests.paths import ROOT
from trimtab_client import Client, ProblemError
from trimtab_protocol.messages.status import ProposalStatus, RoundStatus, Status
from trimtab_sandbox.configuration import CONTROLLER

pytestmark = [pytest.mark.alone, pytest.mark.timeout(3600)]

MORNING = {"w0", "w1", "w2", "w3"}
PICTURE = ROOT / "out" / "day.png"
FACTOR = 4.0
"""The load at its height."""
MANY = 16
"""Moves of a plan that takes a while."""


def test_a_day(tmp_path: Path) -> None:
    with View(Console(file=sys.stdout, width=180)) as view:
        day = Day(tmp_path, view)
        with day.cluster, CpuMeter(lambda: day.cluster.pids) as cpu, day:
            lives_through(day)
            day.draw(PICTURE)
            violations = day.judge()
        for name, seconds in day.chapters:
            print(f"{seconds:6.1f} s  {name}")
        print("CPU seconds:", {part.value: round(used) for part, used in cpu.seconds().items()})
    assert [f"{row.broken}: {row.text}" for row in violations] == []
    assert day.cluster.left_over().processes == 0


def lives_through(day: Day) -> None:
    """All chapters."""
    with day.operated() as console:
        for name, chapter in CHAPTERS.items():
            with day.chapter(name):
                chapter(day, console)


# ---------------------------------------------------------------------- the morning: plans wait for an operator
def first_plan(day: Day, console: Client) -> None:
    """An app without state is placed; what the group has made of it may be even already.  What waits is approved."""

    def decided(status: Status) -> bool:
        whole = all(app.missing_standbys == 0 and app.not_ready is None for app in status.apps)
        return bool(status.proposals or (status.apps and whole))

    day.trimtab("scale", APP, str(len(MORNING)), "--reason", "four in the morning")
    day.trimtab("resume")
    if day.seen("the first plan waits, or nothing has to move", decided).proposals:
        approved(day, console)
    day.at_rest("placed", lambda status: busy(status) == MORNING)


def proposed(day: Day) -> ProposalStatus:
    """A plan waits, and nothing moves."""

    def waits(status: Status) -> bool:
        return any(row.plan != day.rejected and row.rejected is None for row in status.proposals)

    status = day.seen("a plan waits", waits)
    assert not status.plans_in_flight
    (row,) = status.proposals
    return row


def approved(day: Day, console: Client) -> ProposalStatus:
    """A plan is carried out as it was shown, under its name.  While loads change, another one may take its place."""
    while not begins(day, console, waits := proposed(day)):
        pass
    done = day.ended(f"plan {waits.plan} is carried out", lambda row: row.plan == waits.plan)
    assert (done.migrations, done.failed, done.stopped) == (waits.moves_total, 0, None)
    return waits


def begins(day: Day, console: Client, waits: ProposalStatus) -> bool:
    """Whether it does when it is approved."""
    return is_answered(
        day, waits, lambda: console.approve(waits.plan, reason="go"), lambda: waits.plan in day.watch.rounds
    )


def rejection(day: Day, console: Client) -> None:
    """A few key groups grow; the plan for that is rejected, and nothing moves."""
    day.start_standby()
    day.heat("w0")
    while not is_rejected(day, console, waits := proposed(day)):
        pass
    day.rejected, told = waits.plan, day.last
    assert [str(row.rejected).endswith(": not at noon") for row in told.proposals] == [True]
    day.seen("another window", lambda status: (status.window_end or 0.0) > (told.window_end or 0.0))


def is_rejected(day: Day, console: Client, waits: ProposalStatus) -> bool:
    """Whether it is when that is asked for."""
    return is_answered(
        day,
        waits,
        lambda: console.reject(waits.plan, reason="not at noon"),
        lambda: any(row.plan == waits.plan and row.rejected for row in day.last.proposals),
    )


def is_answered(day: Day, waits: ProposalStatus, ask: Callable[[], object], done: Callable[[], bool]) -> bool:
    """Whether what is asked of a plan that waits is done; loads that change may withdraw it first."""
    with suppress(ProblemError):  # it does not wait any more
        ask()

    def settled() -> bool:
        return done() or all(row.plan != waits.plan for row in day.last.proposals)

    day.until(settled, LIMIT_S, f"plan {waits.plan} is answered, or waits no more")
    return done()


def approval(day: Day, console: Client) -> None:
    """Others grow: that asks for another plan, which is approved.  The rejected one was never begun."""
    day.heat("w2")
    approved(day, console)
    assert day.rejected not in day.watch.rounds


# ---------------------------------------------------------------------- the afternoon: the controllers act
def succession(day: Day, console: Client) -> None:
    """The leader is stopped in order; one that acts by itself takes over."""
    day.until_it_stands_by()
    generation = day.last.epoch.generation
    assert day.cluster.stop(CONTROLLER) == 0
    day.another_leads(generation)
    assert app_of(day.at_rest("the successor steers")).mode == "act"


def collocation(day: Day, console: Client) -> None:
    """What talks to each other comes together, and its events skip the broker."""

    def together(status: Status) -> bool:
        app = app_of(status)
        return (app.collocation or 0.0) > 0.9 and (app.local_sends or 0.0) > 0.3

    day.balanced("what talks is together", together)


def hot_key_groups(day: Day, console: Client) -> None:
    """A few key groups of a worker grow: it is balanced without a word."""
    begun = time.time()
    day.heat("w3")
    done = day.ended("a plan for it", lambda row: row.started_at > begun and row.reason.startswith("load distance"))
    assert (done.failed, done.stopped) == (0, None)
    day.balanced("the hot ones are spread")


def rule(day: Day, console: Client) -> None:
    """A rule moves what breaks it, and is gone when it is taken back."""
    key_group = f"{APP}/{SUMS}/{day.coldest}"
    target = next(worker for worker in sorted(MORNING) if worker != day.owners()[key_group])
    day.trimtab(
        *("rule", "add", "its-own-place", "--kind", "pin", "--reason", "a debugger waits there"),
        *("--app", APP, "--operator", SUMS, "--key-groups", str(day.coldest), "--worker", target),
    )
    day.at_rest("the rule is kept", lambda status: status.rules and day.owners()[key_group] == target)
    console.remove_rule("its-own-place", reason="it is found")
    day.seen("no rule", lambda status: status.rules == ())


def done_or_refused(day: Day, since: float) -> RoundStatus | None:
    """The plan of a move, once it has ended; None if the key groups were there already."""

    def done() -> list[RoundStatus]:
        rows = day.watch.rounds.values()
        return [row for row in rows if row.ended_at and row.started_at > since and "a look at them" in row.reason]

    def refused() -> bool:
        return any(row.at > since and "is there already" in row.text for row in day.last.decisions)

    day.until(lambda: bool(done()) or refused(), LIMIT_S, "the move")
    return next(iter(done()), None)


def move_and_undo(day: Day, console: Client) -> None:
    """An operator moves what belongs together, and takes it back."""
    names = [f"{APP}/{operator}/{day.coldest}" for operator in (EXTRACT, SUMS)]
    moved = None
    while moved is None:  # a plan for balance that comes first may move them there
        before = day.owners()
        target = next(worker for worker in sorted(MORNING) if worker not in [before[name] for name in names])
        begun = time.time()
        day.trimtab("move", *names, target, "--reason", "a look at them")
        moved = done_or_refused(day, begun)
    assert (moved.migrations, moved.failed) == (len(names), 0)
    console.undo(moved.plan, reason="seen")
    back = day.ended("the undoing", lambda row: row.started_at > moved.started_at and "seen" in row.reason)
    assert (back.migrations, back.failed) == (len(names), 0)
    assert [day.owners()[name] for name in names] == [before[name] for name in names]


def drain(day: Day, console: Client) -> None:
    """A worker is emptied and stopped, and another one comes for it."""
    day.cool()
    day.trimtab("drain", "w1", "--reason", "a new disk")
    day.at_rest("another one for w1", lambda status: "w1" not in running(status) and len(busy(status)) == len(MORNING))
    assert day.processes_of("w1") == []


def more_load(day: Day, console: Client) -> None:
    """There is four times the load, and the drain is taken back: all of the pool and who was drained have work."""
    day.producer.set_rate(FACTOR * RATE)
    day.trimtab("undrain", "w1")
    day.trimtab("scale", APP, "auto")
    day.at_rest("all workers", lambda status: len(busy(status)) == len(CAPACITIES))


def less_load(day: Day, console: Client) -> None:
    """It falls back: those that are too many are emptied and stopped."""
    day.producer.set_rate(RATE)
    day.at_rest("as many workers as in the morning", lambda status: len(running(status)) == len(MORNING))
    assert len(day.last.pool) == 2
    turns = [key for key, _ in groupby(reason for _, reason in sorted(day.resized.items()))]
    assert turns[-2:] == ["out", "in"]
    day.trimtab("scale", APP, str(len(MORNING)), "--reason", "four in the evening")


# ---------------------------------------------------------------------- the evening: what goes wrong
def killed_worker(day: Day, console: Client) -> None:
    """A worker is killed: others take over, standbys are named again, and there are as many workers as before."""
    before = app_of(day.last)
    assert before.n_minus_1_pct is not None
    day.start_standby()
    victim = max(sorted(busy(day.last)), key=lambda worker: len(day.key_groups_of(worker)))
    at = time.time()
    day.kill_worker(victim)
    over_at = time.time()
    day.at_rest("redundancy", lambda status: len(running(status)) == len(MORNING))
    day.strikes.append(Strike(case="a worker killed", at=at, over_at=over_at, steered_at=time.time(), dead=(victim,)))


def rolling_restart(day: Day, console: Client) -> None:
    """Each worker is drained, stopped and started; the leader is killed amid the first drain, and another goes on."""
    day.until_it_stands_by()
    generation, workers = day.last.epoch.generation, running(day.last)
    before = {worker: [each.pid for each in day.processes_of(worker)] for worker in workers}
    begun = time.time()
    with day.first_prepare() as prepared:
        day.trimtab("rolling-restart", APP, "--reason", "a new version")
    at = time.time()
    day.cluster.kill(day.leader)
    over_at = time.time()
    day.another_leads(generation)
    day.strikes.append(
        Strike(case="the leader killed", at=at, over_at=over_at, steered_at=time.time(), spares_job=True)
    )
    drained = day.ended(f"plan {prepared[0]}", lambda row: row.plan == prepared[0])
    assert (drained.failed, drained.stopped) == (0, None)
    ended = f"restarted {len(workers)} of {len(workers)} workers"
    day.seen(ended, lambda status: any(ended in row.text for row in status.decisions if row.at > begun))
    day.at_rest("all have work", lambda status: busy(status) >= workers)
    for worker, pids in before.items():
        after = [each.pid for each in day.processes_of(worker)]
        assert after, worker
        assert not set(pids) & set(after), worker
    paused = app_of(day.last).disruption
    assert paused is not None
    assert paused.by_cause.get("starts_and_stops", 0.0) > 0.0


def stop(day: Day, console: Client) -> None:
    """A plan is stopped amid it: what has moved stays, and nothing else moves."""
    target = min(sorted(busy(day.last)), key=lambda worker: len(day.key_groups_of(worker)))
    names = [name for name, owner in day.owners().items() if owner != target][:MANY]
    with day.first_prepare() as prepared:
        console.move(names, target, reason="stopped amid it")
    console.stop(APP, reason="enough")
    done = day.ended(f"plan {prepared[0]}", lambda row: row.plan == prepared[0])
    assert str(done.stopped).endswith(": enough")
    assert done.migrations + done.failed == len(names)
    assert done.failed > 0
    day.at_rest("it is steered")


def restarted_broker(day: Day, console: Client) -> None:
    """A broker of two is restarted: the other one goes on with the copies, and all comes back by itself."""
    day.cluster.broker.until_in_sync()
    at = time.time()
    day.cluster.stop(SECOND_BROKER)
    day.cluster.start_broker()
    day.cluster.broker.until_in_sync()
    over_at = time.time()
    day.at_rest("it is steered")
    day.strikes.append(Strike(case="a broker restarted", at=at, over_at=over_at, steered_at=time.time()))


def night(day: Day, console: Client) -> None:
    """All is worked off, and nothing more is commanded: what is written down then is whole."""
    day.finish()
    day.trimtab("pause", "--reason", "the day is written down")
    day.seen("nothing in flight", lambda status: status.paused is not None and not status.plans_in_flight)


CHAPTERS: dict[str, Callable[[Day, Client], None]] = {
    "an app without state is placed, and a plan for it is approved": first_plan,
    "a plan for hot key groups is rejected": rejection,
    "the next one is approved": approval,
    "the leader is stopped in order": succession,
    "what talks to each other comes together": collocation,
    "hot key groups are spread": hot_key_groups,
    "a rule, and its end": rule,
    "a move, and its undoing": move_and_undo,
    "a drain": drain,
    "the load grows, and the drain ends": more_load,
    "the load falls back": less_load,
    "a worker is killed": killed_worker,
    "a rolling restart, and the leader is killed amid it": rolling_restart,
    "a plan is stopped": stop,
    "a broker is restarted": restarted_broker,
    "the night": night,
}
