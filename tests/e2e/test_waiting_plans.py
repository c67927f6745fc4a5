"""Plans that wait for an operator, on a real broker with played workers: expired, solved again, rejected, approved."""

import json
from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from tests.e2e.played_cluster import APP, World, wait_until_it_acts
from trimtab_controller.execution.state import Proposal
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.names import KeyGroup

pytestmark = pytest.mark.scenario

HEAVY, LIGHT = 0.06, 0.01
"""CPU of a key group, in cores: of those that became heavier, and of all others."""
QUIET_WINDOWS = 6


def asking(world: World, approval_s: float) -> None:
    """A controller whose plans wait for so long."""
    for process in world.running:
        process.kill()
        process.wait()
    settings = world.configuration(world.metrics_port, world.folder / "checkpoints")
    world.config.write_text(f'{settings}[plans]\nmode = "approve"\napproval_s = {approval_s}\n')
    world.log.write_text("")
    world.start()
    wait_until_it_acts(world)


def waiting(world: World) -> Proposal | None:
    """The plan that waits, by the journal."""
    executions = world.executions()
    return executions[-1].proposals.get(APP) if executions else None


def pass_windows(world: World, heavy: Collection[KeyGroup], until: Callable[[], bool], what: str) -> None:
    """Let windows pass in which some key groups are heavier than the others; all are alike if none is."""
    for _ in range(60):
        if until():
            return
        rows = world.snapshot().key_groups
        if heavy:
            rows = tuple(replace(row, cpu=HEAVY if row.key_group in heavy else LIGHT) for row in rows)
        world.publish_window(key_groups=rows)
    pytest.fail(f"no {what}\n{world.log_text()}")


def next_proposal(world: World, after: str | None, heavy: Collection[KeyGroup] = ()) -> Proposal:
    """The plan that waits next, once that with the id `after` waits no more."""

    found: list[Proposal] = []

    def look() -> bool:
        row = waiting(world)
        found[:] = [row] if row is not None and row.waits and row.id != after else []
        return bool(found)

    pass_windows(world, heavy, look, f"plan that waits, other than {after}")
    return found[0]


def settled(world: World, heavy: Collection[KeyGroup]) -> Proposal:
    """The plan that waits once smoothed loads have become those of the last windows: no other one replaces it."""
    found = next_proposal(world, None, heavy)
    left = QUIET_WINDOWS

    def look() -> bool:
        nonlocal found, left
        row = waiting(world)
        left = left - 1 if row == found else QUIET_WINDOWS
        found = row if row is not None else found
        return left == 0

    pass_windows(world, heavy, look, "plan that goes on waiting")
    return found


def phases(world: World, plan: str) -> list[str]:
    """What the events tell of a plan, oldest first."""
    rows = [json.loads(line) for line in world.trimtab("events", "--kind", "plan", "--json").splitlines()]
    return [row["phase"] for row in rows if row["plan"] == plan]


def unmoved(world: World, plan: Proposal) -> set[KeyGroup]:
    """The key groups that a plan leaves where they are."""
    return set(world.owners) - {move.key_group for move in plan.plan.moves}


def test_a_plan_expires_is_solved_again_rejected_and_at_last_approved(world: World) -> None:
    asking(world, approval_s=10.0)
    first = next_proposal(world, None)
    second = next_proposal(world, first.id)
    assert second.at >= first.expires_at, "the first has expired before another one was proposed"

    asking(world, approval_s=300.0)  # the one that waits now expires soon, the next one stays
    third = next_proposal(world, second.id)
    heavy = unmoved(world, third)
    next_proposal(world, third.id, heavy)  # the third leaves all the load that came where it is
    fourth = settled(world, heavy)
    assert {move.key_group for move in fourth.plan.moves} & heavy

    told = world.trimtab("reject", fourth.id, "--reason", "not at noon")
    assert f"plan {fourth.id} of {APP} is not carried out" in told
    pass_windows(world, heavy, lambda: not getattr(waiting(world), "waits", False), "rejection")
    rejected = waiting(world)
    assert rejected is not None
    assert (rejected.id, rejected.waits) == (fourth.id, False)
    assert str(rejected.rejected).endswith(": not at noon")
    left = iter(range(QUIET_WINDOWS))
    pass_windows(world, heavy, lambda: next(left, None) is None, "end of the quiet windows")
    assert waiting(world) == rejected, "nothing else is proposed"

    heavy = unmoved(world, fourth)
    next_proposal(world, fourth.id, heavy)  # the loads have changed: the rejection says nothing of that
    fifth = settled(world, heavy)
    assert [each.kind for each in world.commands] == [], "nothing has moved"
    assert f"no plan '9.9' waits for approval; there is {fifth.id}" in world.trimtab("approve", "9.9", code=1)

    world.trimtab("approve", fifth.id, "--reason", "go")
    pass_windows(world, heavy, lambda: waiting(world) is None, "beginning of the approved plan")
    begun = world.executions()[-1].rounds[APP]
    assert begun.plan == fifth.id
    shown = {move.key_group: move.target for move in fifth.plan.moves}
    assert {name: row.target for row in begun.handovers for name in row.key_groups} == shown
    before = dict(world.owners)
    world.hand_over_rest()
    assert world.owners == before | shown, "exactly what was shown"
    world.check_placements()
    assert {name for each in world.commands if each.kind is CommandKind.PREPARE for name in each.key_groups} == set(
        shown
    )
    assert [phases(world, row.id) for row in (first, third, fourth)] == [
        ["proposed", "expired"],
        ["proposed", "withdrawn"],
        ["proposed", "rejected"],
    ]
    assert phases(world, fifth.id)[:2] == ["proposed", "begun"]
