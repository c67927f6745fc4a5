"""What a worker keeps warm, and that opening it keeps nobody waiting."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.agent.engines.faust.tables.followed import APP, SUMS, App, Ownership, key_group
from trimtab_agent.engines.faust.safety.troubles import Troubles
from trimtab_agent.engines.faust.steering.standby_reconciler import WARMED_AT_ONCE, StandbyReconciler
from trimtab_agent.engines.faust.tables.bulk_restore import BulkRestore
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader
from trimtab_agent.engines.faust.tables.standbys import Standbys
from trimtab_agent.engines.faust.transport.thread import GenerationOver
from trimtab_protocol.messages.names import Epoch, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement

HERE, OTHER = WorkerId("here"), WorkerId("other")


class Handover:
    generation = 1

    def __init__(self) -> None:
        self.checks = 0
        self.over_after: int | None = None

    def check(self, generation: int) -> None:
        self.checks += 1
        if self.over_after is not None and self.checks > self.over_after:
            raise GenerationOver("a rebalance")


class PluginState:
    worker = HERE
    faust_standbys = 1
    placement: Placement | None = None

    def place(self, *rows: tuple[WorkerId, ...]) -> None:
        self.placement = Placement(cluster="c", app=APP, epoch=Epoch(1, 1), owners={SUMS: rows})


class Situation:
    def __init__(self, partitions: int) -> None:
        self.shared: Any = PluginState()
        self.handover: Any = Handover()
        self.tail = ChangelogReader({}, BulkRestore({}))
        ownership: Any = Ownership(partitions)
        self.prepared: list[KeyGroup] = []
        standbys = Standbys(App(), ownership, self.tail, Troubles().tell)
        self.following = StandbyReconciler(
            self.shared,
            ownership,
            standbys,
            self.handover,
            prepared=lambda: self.prepared,
            ready=self.ready,
            changed=lambda: None,
        )
        self.is_ready = True

    async def ready(self) -> bool:
        return self.is_ready

    def at(self, position: int) -> None:
        """Let the reader have read all changelogs so far."""
        state = SimpleNamespace(has_valid_position=True, position=position, lso=9)
        subscription = SimpleNamespace(assignment=SimpleNamespace(state_value=lambda _: state))
        self.tail._changed = False  # as after the seek
        self.tail._advance(SimpleNamespace(_subscription=SimpleNamespace(subscription=subscription)))

    @property
    def followed(self) -> list[int]:
        return sorted(tp.partition for tp in self.tail.followed)


def test_what_the_placement_and_hand_overs_name_is_warm_and_nothing_else() -> None:
    made = Situation(6)
    made.shared.place((HERE,), (OTHER, HERE), (OTHER,), (), (HERE,), (OTHER,))
    made.prepared = [key_group(2)]
    asyncio.run(made.following.warm([key_group(5), key_group(2)], 1))
    asyncio.run(made.following.settle())
    assert made.followed == [1, 2, 4], "0 is owned here, 5 is not placed here any more"


def test_nothing_is_begun_while_the_worker_is_not_ready() -> None:
    made = Situation(3)
    made.shared.place((HERE,), (OTHER, HERE), (OTHER, HERE))
    made.is_ready = False
    asyncio.run(made.following.settle())
    assert made.followed == []


async def test_a_command_waits_for_a_few_key_groups_only() -> None:
    made = Situation(40)
    made.shared.place(*[(OTHER, HERE)] * 39)
    found = []

    async def command() -> None:
        while not made.followed:
            await asyncio.sleep(0)
        await made.following.warm([key_group(39)], 1)
        found.extend(made.followed)

    await asyncio.gather(made.following.settle(), command())
    assert 39 in found
    assert len(found) <= 2 * WARMED_AT_ONCE
    assert len(made.followed) == 38, "all but the one that is owned and the one that cannot be used"


def test_a_table_that_cannot_be_used_does_not_keep_the_others_cold() -> None:
    made = Situation(12)
    made.shared.place(*[(OTHER, HERE)] * 12)
    asyncio.run(made.following.settle())
    assert made.followed == [1, 2, *range(4, 12)]


def test_a_rebalance_ends_it() -> None:
    made = Situation(40)
    made.shared.place(*[(OTHER, HERE)] * 40)
    made.handover.over_after = 5
    asyncio.run(made.following.settle())
    assert len(made.followed) <= WARMED_AT_ONCE


def test_what_it_should_stand_by_for_is_cold_until_all_is_here_that_was_there_when_it_began() -> None:
    made = Situation(6)
    assert made.following.cold is None, "nobody has placed anything yet"
    made.shared.place((OTHER, HERE), (OTHER, HERE), (OTHER, HERE), (OTHER,), (HERE, OTHER), (OTHER, OTHER, HERE))
    assert made.following.cold == 2, "0 is owned here, 4 not yet; 5 has it as the target of a hand-over, behind"
    asyncio.run(made.following.settle())
    assert made.following.cold == 2, "they have the changelogs up to offset 4 of 8"
    made.at(8)
    assert made.following.cold == 2
    made.at(9)
    assert made.following.cold == 0
    made.following._standbys.stop()
    assert made.following.cold == 2, "a rebalance: nothing is followed"
