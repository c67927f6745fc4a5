"""A key group whose hand-over has failed because of itself is left alone, longer each time, and status says why."""

from dataclasses import replace

import pytest

from trimtab_controller.decider.memory.failures import FIRST_S, LONGEST_S, LeftAlone
from trimtab_controller.execution.state import Execution, Handover, HandoverPhase, Round
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId

APP, T0 = AppId("shop"), 1000.0
ONE, OTHER = (KeyGroup(APP, OperatorId("sums"), partition) for partition in (1, 2))
WHY = "w0 on h0: drain_timeout (orders/1 offset 187 is in work for 34 s, and nobody knows for how long (limit 10 s))"


def ended(
    number: int,
    *key_groups: KeyGroup,
    phase: HandoverPhase = HandoverPhase.FAILED,
    refusal: Refusal | None = Refusal.DRAIN_TIMEOUT,
    lost: bool = False,
) -> Execution:
    """An execution whose last round had one hand-over, which has ended."""
    handover = Handover(
        id=f"1.{number}-0",
        key_groups=key_groups or (ONE,),
        previous=((WorkerId("w0"),),) * len(key_groups or (ONE,)),
        source=WorkerId("w0"),
        target=WorkerId("w1"),
        source_host=HostId("h0"),
        target_host=HostId("h1"),
        state_bytes=0,
        since=T0,
        phase=phase,
        detail=WHY,
        refusal=refusal,
    )
    row = Round(
        plan=f"1.{number}", app=APP, reason="drain w0", status="optimal", fallback=False, before=1.0, planned=0.0,
        lower_bound=0.0, started_at=T0, handovers=(handover,), lost=lost,
    )  # fmt: skip
    return Execution(generation=1, rounds={APP: row})


def test_each_failure_in_a_row_doubles_the_time_and_is_counted_once() -> None:
    left, now, seconds = LeftAlone(), T0, []
    for number in range(1, 10):
        for _ in range(3):  # the round stays in the state until the next one begins
            left.observe(now, ended(number))
        found = FIRST_S
        while ONE in left.pinned(now + found, APP):
            found += FIRST_S
        seconds.append(found)
        now += found

    assert seconds == [FIRST_S * 2**n for n in range(7)] + [LONGEST_S] * 2


def test_its_reason_is_told_and_a_hand_over_that_is_done_ends_it() -> None:
    left = LeftAlone()
    left.observe(T0, ended(1))
    assert left.describe(T0 + 10.0, APP) == f"left alone after a hand-over that failed: {ONE} for 20 s, {WHY}"

    left.observe(T0 + 11.0, ended(2, phase=HandoverPhase.DONE, refusal=None))
    assert (left.pinned(T0 + 11.0, APP), left.describe(T0 + 11.0, APP)) == (frozenset(), "")
    left.observe(T0 + 12.0, ended(3))
    assert left.describe(T0 + 12.0, APP).startswith(f"left alone after a hand-over that failed: {ONE} for 30 s"), (
        "the first"
    )


def test_those_that_failed_together_are_tried_one_after_the_other() -> None:
    left = LeftAlone()
    left.observe(T0, ended(1, ONE, OTHER))

    assert [left.pinned(T0 + FIRST_S * n - 1.0, APP) for n in (1, 2, 3)] == [{ONE, OTHER}, {OTHER}, frozenset()]


@pytest.mark.parametrize("refusal", [None, Refusal.GENERATION, Refusal.WORKER_AWAY, Refusal.UNSIGNED])
def test_what_is_not_because_of_the_key_group_holds_it_up_no_longer(refusal: Refusal | None) -> None:
    left = LeftAlone()
    left.observe(T0, ended(1, refusal=refusal))
    left.observe(T0, replace(ended(2, lost=True)))

    assert left.pinned(T0, APP) == frozenset()
