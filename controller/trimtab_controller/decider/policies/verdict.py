"""Judges the size of an app: stay, out by n, or in by these workers, with the reason in words.

A pure function of the facts of a window, the settings, the need so far, the app's own last changes, and an operator's
word.  What is wanted is decided when it was wanted without a break for the delay, and nothing stands against it.  Then
the solver is asked for the potential plan that the change depends on, and the window is judged again by its answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from trimtab_controller.decider.policies.size_facts import SizeFacts, helps
from trimtab_controller.decider.policies.smaller import (
    ROUNDING,
    allowed_distance,
    cheapest,
    leavers,
    rests_on,
    solves,
    to_ask,
    why_none,
)
from trimtab_controller.decider.values.decision import PoolWorker, SizeDirection, SizeQuestion, SizeVerdict
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.execution.state import SizeChange
from trimtab_protocol.messages.intents import Scale
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.wording import counted, first_few

HOUR_S = 3600.0
GAP_S = 120.0
"""How long nothing may be known of an app until a need is no longer continuous.  In a fleet that is never whole single
windows are missing all the time; they neither confirm a need nor end it."""
EFFECTIVE = 0.1
"""The part of the expected growth of the rate below which a scale-out was in vain, as in Flink's autoscaler."""
BEHIND = 0.05
"""The share of its capacity that an app must be behind for its rate to be expected to grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingNeed:
    """A need without a break since the window that began at `since`; `seen` = end of the last such window."""

    direction: SizeDirection
    since: float
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aim:
    """The number wanted, why, and what stands against any other one; `by_word`: an operator wants it.

    `asks` = what the solver is to be asked before; `rests` = which potential plan it rests on, in words.
    """

    wanted: int
    why: str
    drain: tuple[WorkerId, ...] = ()
    by_word: bool = False
    asks: SizeQuestion | None = None
    rests: str = ""


def judge(
    facts: SizeFacts,
    settings: ScalingSettings,
    *,
    need: LastingNeed | None = None,
    changes: Sequence[SizeChange] = (),
    word: Scale | None = None,
    frozen: str | None = None,
) -> tuple[SizeVerdict, LastingNeed | None]:
    """The verdict after this window, and the need that it leaves.  `frozen` = why no size changes by itself now."""
    present = len(facts.staying)
    aim = _by_word(facts, word) if word is not None else _by_demand(facts, settings)
    change = aim.wanted - present
    direction = SizeDirection.OUT if change > 0 else SizeDirection.IN if change < 0 else SizeDirection.STAY
    now = _continued(need, direction, facts)
    vain = word is None and direction is SizeDirection.OUT and _in_vain(facts, settings, changes)
    asked = facts if word is not None else facts.expected()
    obstacle, asks = "", None
    if now is not None:
        obstacle = _obstacle(asked, settings, now, changes, by_word=word is not None, vain=vain, frozen=frozen)
        if direction is SizeDirection.OUT and word is None and not obstacle:
            aim, obstacle = _unless_collocated(aim, asked, settings)
        if aim.asks is not None and not obstacle:
            obstacle = "the solver is asked"
            asks = aim.asks
    due = now is not None and not obstacle
    anyone = word is not None or present < settings.min_workers
    pool = tuple(each for each in facts.pool if helps(each) or anyone)
    keep, start, short = _to_add(facts.leaving, pool, max(0, change) if due else 0)
    acts = word is not None or settings.mode is Mode.ACT
    wanted_outside = due and (change > 0 or not acts)
    verdict = SizeVerdict(
        app=facts.app,
        detail=f"{_head(facts)}{_tail(aim, now, obstacle, facts)}",
        direction=direction,
        workers=present,
        wanted=aim.wanted,
        desired=_desired(facts, settings, changes, aim.wanted if wanted_outside else None),
        asked=facts.asked,
        capacity=facts.capacity,
        rate=facts.rate,
        by_word=word is not None,
        due=due,
        keep=keep,
        start=start,
        drain=aim.drain if due else (),
        short=short,
        crowded=tuple(each.worker for each in facts.pool if each not in pool),
        in_vain=vain,
        asks=asks,
    )
    return verdict, now


def _desired(facts: SizeFacts, settings: ScalingSettings, changes: Sequence[SizeChange], due: int | None) -> int:
    """The number for whoever adds and removes workers from outside; `due`: the number that is wanted now.

    Workers that were asked for have time to come, and none goes before it is empty.
    """
    present, last = len(facts.staying), changes[-1] if changes else None
    busy = sum(1 for worker in facts.workers if worker.id in facts.leaving and worker.key_groups)
    if due is not None:
        return max(due, present + busy) if due > present else due + busy
    awaited = last is not None and last.after > last.before and facts.end_s - last.at < _patience(facts, settings)
    return max(present + busy, last.after if last is not None and awaited else 0)


def _by_word(facts: SizeFacts, word: Scale) -> _Aim:
    """What an operator wants."""
    present = len(facts.staying)
    by = f"{word.by} wants {word.workers}: {word.reason}"
    if word.workers >= present:
        return _Aim(wanted=word.workers, why=by, by_word=True)
    able = cheapest(facts)[: present - max(1, word.workers)]
    if len(able) < present - word.workers:
        tied = any(worker.removable and worker.tied for worker in facts.staying)
        by = f"{by}; {why_none(facts) if tied else 'no agent could start any other worker again'}"
    return _Aim(wanted=present - len(able), why=by, drain=tuple(worker.id for worker in able), by_word=True)


def _by_demand(facts: SizeFacts, settings: ScalingSettings) -> _Aim:
    """What the demand wants, within the limits."""
    present, found = len(facts.staying), facts.utilisation
    if facts.unmeasured:
        return _Aim(wanted=present, why=f"the capacity of {first_few(facts.unmeasured)} is unknown")
    if present < settings.min_workers:
        wanted, why = settings.min_workers, f"min_workers is {settings.min_workers}"
    elif max(found, facts.expected().utilisation) > settings.max_utilisation + ROUNDING:
        more = max(_to_target(each, settings) for each in (facts, facts.expected()))
        wanted = min(present + more, max(present, settings.max_workers))
        why = f"demand above {settings.max_utilisation:.0%}"
        why += f" by {facts.ahead.soon}" if found <= settings.max_utilisation + ROUNDING else ""
        if wanted == present:
            return _Aim(wanted=present, why=f"{why}, but max_workers is {settings.max_workers}")
    elif found < settings.min_utilisation - ROUNDING or present > settings.max_workers:
        above = present > settings.max_workers
        why = f"max_workers is {settings.max_workers}" if above else f"demand below {settings.min_utilisation:.0%}"
        if facts.blocked:
            return _Aim(wanted=present, why=f"{why}, but {_waits(facts)}")
        kept = facts.kept_for()
        some = leavers(kept, settings)
        asks, rests = None, ""
        if some.remain is not None and to_ask(kept, some.remain):
            times = kept.demand / facts.demand if facts.demand else 1.0
            distance = allowed_distance(kept, settings, some.remain) / times
            asks = SizeQuestion(remain=some.remain, load_distance=distance)
        elif some.remain is not None:
            rests = rests_on(kept, solver=solves(kept, settings, some.remain) is not None)
        if not some.workers:
            by = "" if kept is facts or not leavers(facts, settings).workers else f" at {facts.ahead.later}"
            return _Aim(wanted=present, why=f"{why}, but {some.obstacle}{by}", rests=rests)
        gone = tuple(worker.id for worker in some.workers)
        return _Aim(wanted=present - len(gone), why=why, drain=gone, asks=asks, rests=rests)
    else:
        why = f"inside band {settings.min_utilisation:.0%} to {settings.max_utilisation:.0%}"
        return _Aim(wanted=present, why=why)
    return _Aim(wanted=wanted, why=why)


def _to_target(facts: SizeFacts, settings: ScalingSettings) -> int:
    """How many workers bring the utilisation to the target; a step at most doubles the app, or adds one."""
    capacities = [worker.capacity for worker in facts.workers if worker.id in facts.leaving]
    capacities += [worker.gain for worker in facts.pool if helps(worker)]
    usual = median([worker.capacity for worker in facts.staying] or capacities or [1.0])
    capacity, count = facts.capacity, len(facts.staying)
    most = max(1, count)
    for added in range(1, most + 1):
        capacity += capacities[added - 1] if added <= len(capacities) else usual
        needed = facts.demand + facts.arrears + facts.fixed * (count + added)
        if needed <= settings.target_utilisation * capacity + ROUNDING:
            return added
    return most


def _patience(facts: SizeFacts, settings: ScalingSettings) -> float:
    """How long a worker that was asked for is waited for (s): as configured, or as long as one has taken."""
    return max(settings.restart_s, facts.restart_s)


def _continued(need: LastingNeed | None, direction: SizeDirection, facts: SizeFacts) -> LastingNeed | None:
    """The need after this window."""
    if direction is SizeDirection.STAY:
        return None
    unbroken = need is not None and need.direction is direction and facts.start_s - need.seen <= GAP_S
    since = need.since if need is not None and unbroken else facts.start_s
    return LastingNeed(direction=direction, since=since, seen=facts.end_s)


def _obstacle(
    facts: SizeFacts,
    settings: ScalingSettings,
    need: LastingNeed,
    changes: Sequence[SizeChange],
    *,
    by_word: bool,
    vain: bool,
    frozen: str | None,
) -> str:
    """What a wanted change waits for; empty if for nothing."""
    if facts.starting:
        return f"waiting for {first_few(facts.starting)} to run"
    if need.direction is SizeDirection.IN and facts.leaving:
        return f"waiting until {first_few(facts.leaving)} {'is' if len(facts.leaving) == 1 else 'are'} drained"
    last = changes[-1] if changes else None
    if settings.hook and last is not None and len(facts.staying) < last.after:
        left_s = last.at + _patience(facts, settings) - facts.end_s
        if need.direction is SizeDirection.OUT and left_s > 0.0:
            return f"waiting for what the hook adds, {left_s:.0f} s at most"
    if by_word:
        return ""
    delay_s = settings.scale_up_delay_s if need.direction is SizeDirection.OUT else settings.scale_down_delay_s
    held_s = facts.end_s - need.since
    if vain:
        return "but the last scale-out did not raise the rate"
    if frozen is not None:
        return f"but {frozen}"
    recent = [change.at for change in changes if change.at > facts.end_s - HOUR_S]
    if len(recent) >= settings.max_changes_per_hour and not facts.leaving:
        return f"{len(recent)} changes in the last hour, and {settings.max_changes_per_hour} may be"
    return f"decided after {delay_s:.0f} s" if held_s < delay_s - ROUNDING else ""


def _waits(facts: SizeFacts) -> str:
    return f"key groups at {first_few(facts.blocked)} wait for something else than CPU"


def _unless_collocated(aim: _Aim, facts: SizeFacts, settings: ScalingSettings) -> tuple[_Aim, str]:
    """A scale-out, and why it waits: the potential plan brings the app to the target without it, or is asked for.

    Plans for collocation are made anyway, and once one is sought in vain nothing more can be saved.  It does not hold
    up an app that is asked for more than it has.
    """

    def enough(saving: float) -> bool:
        return facts.asked - saving <= settings.target_utilisation * facts.capacity

    remain = facts.remaining()
    if facts.utilisation > 1.0 or not enough(max(facts.most_saved, facts.saving)):
        return aim, ""
    if to_ask(facts, remain):
        return replace(aim, asks=SizeQuestion(remain=remain)), ""
    plan, fits = facts.potentials.get(remain), solves(facts, settings, remain)
    saving = plan.saving if plan is not None and fits else 0.0
    solver = plan is not None and (plan.in_time or enough(saving))
    if not solver:
        saving = facts.saving
    waits = saving > 0.0 and enough(saving)
    aim = replace(aim, rests=rests_on(facts, solver=solver))
    return aim, f"waiting for collocation, which saves {saving:.2f} cores" if waits else ""


def _in_vain(facts: SizeFacts, settings: ScalingSettings, changes: Sequence[SizeChange]) -> bool:
    """Whether the last change added workers, and inputs wait all the same at the rate of before.

    It is judged for an hour; after that one more is tried.
    """
    last = changes[-1] if changes else None
    if last is None or last.after <= last.before or not last.before:
        return False
    if facts.rate is None or not last.rate:
        return False
    settled = _patience(facts, settings) <= facts.end_s - last.at <= HOUR_S
    expected = last.rate * (1.0 + EFFECTIVE * (last.after / last.before - 1.0))
    return settled and facts.behind > BEHIND * facts.capacity and facts.rate < expected


def _to_add(
    leaving: tuple[WorkerId, ...], pool: tuple[PoolWorker, ...], count: int
) -> tuple[tuple[WorkerId, ...], tuple[PoolWorker, ...], int]:
    """So many workers: first those that are to leave and still run, then those of the pool; how many are short."""
    keep = leaving[:count]
    start = pool[: count - len(keep)]
    return keep, start, count - len(keep) - len(start)


def _head(facts: SizeFacts) -> str:
    count = len(facts.staying)
    share = f" ({facts.utilisation:.0%})" if math.isfinite(facts.utilisation) else ""
    return f"{counted(count, 'worker')}, demand {facts.asked:.2f} of {facts.capacity:.2f} cores{share}"


def _tail(aim: _Aim, need: LastingNeed | None, obstacle: str, facts: SizeFacts) -> str:
    leaving = f"; {first_few(facts.leaving)} leave{'s' if len(facts.leaving) == 1 else ''}" if facts.leaving else ""
    if need is None:
        return f", {aim.why}{aim.rests}{leaving}"
    held = "" if aim.by_word else f" for {facts.end_s - need.since:.0f} s"
    return f", wanted {aim.wanted}: {aim.why}{held}{', ' if obstacle else ''}{obstacle}{aim.rests}{leaving}"
