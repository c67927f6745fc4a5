"""A day of a cluster on real parts: each chapter waits for what was promised, and what was recorded is judged.

    python -m pytest tests/e2e/test_day.py -n0 -s

Two controllers, Spark beside each, a console, six workers on hosts of their own, of which four run in the morning.  The
job has two operators, two tables, one of them windowed, and a local topic; real flights flow through it.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from flights.demo.view import View
from flights.wire import APP, SUMS
from tests.e2e.day_run import OTHER, RATE, Day, app_of, busy, running
from tests.faults.recorded.history import Strike
from trimtab_client import Client
from trimtab_protocol.messages.proposals import ProposalStatus
from trimtab_protocol.messages.status import Status
from trimtab_sandbox.configuration import BROKER, CONTROLLER

pytestmark = pytest.mark.timeout(3600)

MORNING = {"w0", "w1", "w2", "w3"}
FACTOR = 3.0
"""The load at its height."""


def test_a_day(tmp_path: Path) -> None:
    with View(Console(file=sys.stdout, width=180)) as view:
        day = Day(tmp_path, view)
        with day.cluster, day:
            lives_through(day)
            violations = day.judge()
        for name, seconds in day.chapters:
            print(f"{seconds:6.1f} s  {name}")
        print("CPU seconds:", {part.value: round(cpu) for part, cpu in day.cluster.cpu_seconds().items()})
    assert [f"{row.broken}: {row.text}" for row in violations] == []
    assert day.cluster.left_over().processes == 0


def lives_through(day: Day) -> None:
    """All chapters."""
    with day.open_console() as console:
        for name, chapter in CHAPTERS.items():
            with day.chapter(name):
                chapter(day, console)


# ---------------------------------------------------------------------- the morning: plans wait for an operator
def first_placement(day: Day, console: Client) -> None:
    """An app without state is placed when an operator approves."""
    day.trimtab("scale", APP, str(len(MORNING)), "--reason", "four in the morning")
    day.trimtab("resume")
    waits = proposed(day)
    assert "first placement" in waits.reason
    approved(day, console, waits)
    day.at_rest("placed", lambda status: busy(status) == MORNING)


def proposed(day: Day, after: str = "") -> ProposalStatus:
    """A plan waits, and nothing moves."""
    status = day.seen(
        "a plan waits", lambda status: any(row.plan != after and row.rejected is None for row in status.proposals)
    )
    assert not status.plans_in_flight
    (row,) = status.proposals
    return row


def approved(day: Day, console: Client, waits: ProposalStatus) -> None:
    """It is carried out as it was shown, under its name."""
    console.approve(waits.plan, reason="go")
    done = day.ended(f"plan {waits.plan} is carried out", lambda row: row.plan == waits.plan)
    assert (done.migrations, done.failed, done.stopped) == (waits.moves_total, 0, None)


def rejection(day: Day, console: Client) -> None:
    """A few key groups grow; the plan for that is rejected, and nothing moves."""
    day.heat("w0")
    waits = proposed(day)
    console.reject(waits.plan, reason="not at noon")
    rounds = len(day.watch.rounds)
    told = day.seen("it is rejected", lambda status: any(row.rejected for row in status.proposals))
    later = day.seen("two windows more", lambda status: (status.window_end or 0.0) > (told.window_end or 0.0) + 10.0)
    assert [row.rejected and row.rejected.endswith(": not at noon") for row in later.proposals] == [True]
    assert len(day.watch.rounds) == rounds


def approval(day: Day, console: Client) -> None:
    """Others grow: that asks for another plan, which is approved."""
    (rejected,) = day.last.proposals
    day.heat("w2")
    approved(day, console, proposed(day, after=rejected.plan))


# ---------------------------------------------------------------------- the afternoon: the controllers act
def succession(day: Day, console: Client) -> None:
    """The leader is stopped in order; one that acts by itself takes over."""
    day.start_standby(OTHER)
    generation = day.last.epoch.generation
    assert day.cluster.stop(CONTROLLER) == 0
    day.another_leads(generation)
    assert app_of(day.at_rest("the successor steers")).mode == "act"


def collocation(day: Day, console: Client) -> None:
    """What talks to each other comes together, and its events skip the broker."""

    def together(status: Status) -> bool:
        app = app_of(status)
        return (app.collocation or 0.0) > 0.95 and (app.local_sends or 0.0) > 0.4

    day.at_rest("what talks is together", together)
    assert any(row.reason.startswith("collocation") for row in day.watch.rounds.values())
    day.balanced()


def hot_key_groups(day: Day, console: Client) -> None:
    """A few key groups of a worker grow: it is balanced without a word."""
    begun = time.time()
    day.heat("w3")
    done = day.ended("a plan for it", lambda row: row.started_at > begun and row.reason.startswith("load distance"))
    assert (done.failed, done.stopped) == (0, None)
    day.balanced()


def rule(day: Day, console: Client) -> None:
    """A rule moves what breaks it, and is gone when it is taken back."""
    target = next(worker for worker in sorted(MORNING) if worker != day.owner(SUMS, day.coldest))
    day.trimtab(
        *("rule", "add", "its-own-place", "--kind", "pin", "--reason", "a debugger waits there"),
        *("--app", APP, "--operator", SUMS, "--key-groups", str(day.coldest), "--worker", target),
    )
    day.at_rest("the rule is kept", lambda status: status.rules and day.owner(SUMS, day.coldest) == target)
    console.remove_rule("its-own-place", reason="it is found")
    day.at_rest("no rule", lambda status: status.rules == ())


def move_and_undo(day: Day, console: Client) -> None:
    """An operator moves what belongs together, and takes it back."""
    names = day.names_of([day.coldest])
    source = {name: day.owner(*place) for name, place in names.items()}
    target = next(worker for worker in sorted(MORNING) if worker not in source.values())
    begun = time.time()
    day.trimtab("move", *names, target, "--reason", "a look at them")
    moved = day.ended("the move", lambda row: row.started_at > begun and "a look at them" in row.reason)
    assert (moved.migrations, moved.failed) == (len(names), 0)
    console.undo(moved.plan, reason="seen")
    back = day.ended("the undoing", lambda row: row.started_at > moved.started_at and "seen" in row.reason)
    assert (back.migrations, back.failed) == (len(names), 0)
    assert {name: day.owner(*place) for name, place in names.items()} == source


def drain(day: Day, console: Client) -> None:
    """A worker is emptied and stopped; when that is taken back, its agent starts it, and it has work again."""
    day.trimtab("drain", "w1", "--reason", "a new disk")
    day.at_rest("w1 is off", lambda status: "w1" not in running(status))
    assert day.processes_of("w1") == []
    day.trimtab("undrain", "w1")
    day.at_rest("w1 is back", lambda status: "w1" in busy(status))


def more_load(day: Day, console: Client) -> None:
    """The load triples: workers of the pool come, and have work."""
    day.trimtab("scale", APP, "auto")
    day.producer.set_rate(FACTOR * RATE)
    day.at_rest("more workers", lambda status: len(busy(status)) > len(MORNING))


def less_load(day: Day, console: Client) -> None:
    """It falls back: those that are too many are emptied and stopped."""
    day.producer.set_rate(RATE)
    day.at_rest("as many workers as in the morning", lambda status: len(running(status)) == len(MORNING))
    assert len(day.last.pool) == 2


# ---------------------------------------------------------------------- the evening: what goes wrong
def killed_worker(day: Day, console: Client) -> None:
    """A worker is killed: others take over, standbys are named again, and there are as many workers as before."""
    before = app_of(day.last)
    assert before.n_minus_1_pct is not None
    victim = max(sorted(busy(day.last)), key=lambda worker: len(day.key_groups_of(worker)))
    at = time.time()
    day.kill_worker(victim)
    day.seen("its death", lambda status: victim not in running(status))
    over_at = time.time()
    day.at_rest("redundancy", lambda status: len(busy(status)) >= len(MORNING))
    day.strikes.append(Strike(case="a worker killed", at=at, over_at=over_at, steered_at=time.time(), dead=(victim,)))


def killed_leader(day: Day, console: Client) -> None:
    """The leader is killed amid a plan: the other one takes over, and ends it."""
    day.start_standby(day.standby())
    generation = day.last.epoch.generation
    with day.a_long_plan("killed amid it") as (plan, moves):
        at = time.time()
        day.cluster.kill(day.leader)
    over_at = time.time()
    day.another_leads(generation)
    done = day.ended(f"plan {plan}", lambda row: row.plan == plan)
    assert (done.migrations, done.failed, done.stopped) == (moves, 0, None)
    day.at_rest("the successor steers")
    day.strikes.append(
        Strike(case="the leader killed", at=at, over_at=over_at, steered_at=time.time(), spares_job=True)
    )
    day.start_standby(day.standby())


def rolling_restart(day: Day, console: Client) -> None:
    """Each worker is drained, stopped and started, one after the other."""
    workers = running(day.last)
    before = {worker: [each.pid for each in day.processes_of(worker)] for worker in workers}
    begun = time.time()
    day.trimtab("rolling-restart", APP, "--reason", "a new version")
    ended = f"restarted {len(workers)} of {len(workers)} workers"
    day.seen(ended, lambda status: any(ended in row.text for row in status.decisions if row.at > begun))
    day.at_rest("all have work", lambda status: busy(status) == workers)
    for worker, pids in before.items():
        after = [each.pid for each in day.processes_of(worker)]
        assert after, worker
        assert not set(pids) & set(after), worker


def stop(day: Day, console: Client) -> None:
    """A plan is stopped amid it: what has moved stays, and nothing else moves."""
    with day.a_long_plan("stopped amid it") as (plan, moves):
        console.stop(app=APP, reason="enough")
    done = day.ended(f"plan {plan}", lambda row: row.plan == plan)
    assert str(done.stopped).endswith(": enough")
    assert done.migrations + done.failed == moves
    assert done.failed > 0
    day.at_rest("it is steered")


def restarted_broker(day: Day, console: Client) -> None:
    """The broker is restarted: all come back by themselves."""
    at = time.time()
    day.cluster.stop(BROKER)
    day.cluster.start_broker()
    over_at = time.time()
    day.at_rest("it is steered")
    day.strikes.append(Strike(case="the broker restarted", at=at, over_at=over_at, steered_at=time.time()))


def night(day: Day, console: Client) -> None:
    """All is worked off, and nothing more is commanded: what is written down then is whole."""
    day.finish()
    day.trimtab("pause", "--reason", "the day is written down")
    day.seen("nothing in flight", lambda status: status.paused is not None and not status.plans_in_flight)


CHAPTERS: dict[str, Callable[[Day, Client], None]] = {
    "a first placement waits for approval, and is carried out": first_placement,
    "a plan for hot key groups is rejected": rejection,
    "the next one is approved": approval,
    "the leader is stopped in order": succession,
    "what talks to each other comes together": collocation,
    "hot key groups are spread": hot_key_groups,
    "a rule, and its end": rule,
    "a move, and its undoing": move_and_undo,
    "a drain, and its end": drain,
    "the load triples": more_load,
    "the load falls back": less_load,
    "a worker is killed": killed_worker,
    "the leader is killed amid a plan": killed_leader,
    "a rolling restart": rolling_restart,
    "a plan is stopped": stop,
    "the broker is restarted": restarted_broker,
    "the night": night,
}
