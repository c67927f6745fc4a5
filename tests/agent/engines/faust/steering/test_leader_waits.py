"""The leader of a group waits for a placement that it has not read yet."""

import asyncio
from dataclasses import replace

from faust.assignor.client_assignment import ClientAssignment

from tests.agent.engines.faust.steering.test_commands_to_worker import APP, ME, OTHER, SETTINGS, SUMS, Worker, has_state
from trimtab_agent.engines.faust.group.member_data import MemberData, packed
from trimtab_agent.engines.faust.steering.group_watcher import GroupWatcher
from trimtab_protocol.messages.names import Epoch
from trimtab_protocol.messages.placement import Placement


async def test_a_leader_waits_for_the_placement_in_parts_that_a_member_has_read() -> None:
    worker = Worker()
    told = [member(1), member(3), member(9, sends="it along"), b"not to be understood"]

    waiting = asyncio.ensure_future(worker.watcher.before_assignment(told))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    worker.shared.offer(replace(PLACED, epoch=Epoch(1, 2), part_size=1))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    worker.shared.offer(replace(PLACED, epoch=Epoch(1, 3), part_size=1))
    await asyncio.wait_for(waiting, 60.0)


def test_it_does_not_wait_for_ever_and_not_at_all_for_what_it_knows() -> None:
    worker = Worker()
    worker.parts = replace(worker.parts, settings=replace(SETTINGS, assignment_placement_limit_s=0.05))
    watcher = GroupWatcher(worker.parts, named_topics=dict, unfit_parts=list, is_empty=has_state)
    asyncio.run(asyncio.wait_for(watcher.before_assignment([member(9)]), 60.0))
    asyncio.run(worker.watcher.before_assignment([member(1)]))


PLACED = Placement(cluster="c", app=APP, epoch=Epoch(1, 1), owners={SUMS: ((OTHER, ME),)})


def member(number: int, sends: str | None = None) -> bytes:
    nothing = ClientAssignment(actives={}, standbys={})
    data = MemberData(
        assignment=nothing, url="", changelog_distribution={}, epoch=[1, number], placement=sends and packed(PLACED)
    )
    return bytes(data.dumps())
