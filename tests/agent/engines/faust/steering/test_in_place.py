"""What the group watcher does at rebalances in place."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from tests.agent.engines.faust.steering.test_commands_to_worker import APP, ME, OTHER, Worker, has_state
from tests.fuzz.fuzzed.samples import SUMS
from trimtab_agent.engines.faust.steering.group_watcher import GroupWatcher
from trimtab_agent.engines.faust.transport.thread import GenerationOver
from trimtab_protocol.messages.names import Epoch, KeyGroup
from trimtab_protocol.messages.placement import Placement

FIRST, SECOND = KeyGroup(APP, SUMS, 0), KeyGroup(APP, SUMS, 1)
ORPHANS = frozenset({TP("in", 1), TP("log", 1)})


class Watched:
    """A watcher whose worker owns what `owned` says; `told` = what it has asked for, in order."""

    def __init__(self) -> None:
        self.owned, self.told = frozenset[KeyGroup](), list[Any]()
        self.fault: Exception | None = None
        self.taken, self.followed = set[KeyGroup](), {SECOND}
        worker = Worker()
        self.shared = worker.shared
        self.shared.newest = None
        ownership: Any = SimpleNamespace(
            owned=lambda: self.owned,
            holds=lambda key: key in self.taken,
            withhold=lambda tps: self.told.append(("withhold", tps)),
            key_group_of=lambda topic, partition: KeyGroup(APP, SUMS, partition) if topic != "own" else None,
            sources=lambda keys: {TP("in", key.partition) for key in keys},
            changelogs=lambda keys: {TP("log", key.partition) for key in keys},
            learn=lambda _: None,
        )
        assignor = SimpleNamespace(on_assignment=self.told.append, assigned_actives=set)
        thread = SimpleNamespace(run=self._run, stop_and_rejoin="stop")
        consumer = SimpleNamespace(thread=thread, commit_refused=self._nothing, _committed_offset={})
        self.parts = replace(
            worker.parts,
            app=SimpleNamespace(assignor=assignor, consumer=consumer),
            ownership=ownership,
            standbys=SimpleNamespace(is_followed=self.followed.issuperset),
            handover=SimpleNamespace(
                generation=5, adopt=self._adopt, adopt_topics=self._adopt, check=lambda generation: None
            ),
            reconciler=SimpleNamespace(settle=self._nothing, warm=self._warm),
        )  # type: ignore[arg-type]
        self.watcher = GroupWatcher(self.parts, named_topics=dict, unfit_parts=list, is_empty=has_state)

    async def _run(self, *step: Any) -> None:
        self.told.append(step)

    async def _nothing(self) -> None: ...

    async def _warm(self, what: Any, generation: int) -> None:
        self.told.append(("follow", set(what), generation))
        self.followed.update(what)

    async def _adopt(self, what: Any, generation: int) -> None:
        if self.fault is not None:
            raise self.fault
        while not (self.followed.issuperset(what) or TP("own", 0) in what):
            await asyncio.sleep(0)
        self.told.append(("adopt", set(what), generation))
        self.taken.update(what)

    def place(self, *owners: str) -> None:
        rows = tuple((owner,) for owner in owners)
        self.shared.newest = Placement(cluster="c", app=APP, epoch=Epoch(1, 1), owners={SUMS: rows}), ()  # type: ignore[dict-item]

    def renew(self, new: frozenset[TP]) -> None:
        async def play() -> None:
            self.watcher.renewed("assignment", new, 5)
            await asyncio.sleep(0)  # it begins
            while self.parts.work.begun is None:
                await asyncio.sleep(0.01)

        asyncio.run(play())


def test_what_others_are_placed_to_have_is_not_kept_through_a_join() -> None:
    """The first worker of an app that starts is given everything."""
    watched = Watched()
    assert watched.watcher.against_keeping() == "there is no placement"
    watched.place(ME, OTHER)
    watched.owned = frozenset({FIRST, SECOND})
    watched.watcher.stable()
    assert watched.watcher.against_keeping() == "it has begun with 1 key groups of workers that were away"
    watched.owned = frozenset({FIRST})
    assert watched.watcher.against_keeping() is None


def test_what_came_in_place_is_kept_whoever_is_placed_to_have_it() -> None:
    watched = Watched()
    watched.place(ME, OTHER)
    watched.owned = frozenset({FIRST})
    watched.watcher.stable()
    watched.owned = frozenset({FIRST, SECOND})
    assert watched.watcher.against_keeping() is None


def test_what_is_new_is_not_owned_before_it_is_taken_over() -> None:
    watched = Watched()
    watched.renew(ORPHANS | {TP("own", 0)})
    assert watched.told == [
        "assignment",
        ("withhold", ORPHANS | {TP("own", 0)}),
        ("adopt", {TP("own", 0)}, 5),
        ("adopt", {SECOND}, 5),
    ]
    assert watched.parts.pending.adopted == frozenset()


def test_what_is_not_followed_is_followed_until_it_is_taken_over_and_holds_up_nothing_else() -> None:
    watched = Watched()
    watched.renew(ORPHANS | {TP("in", 0), TP("log", 0)})
    assert watched.told[2:] == [("adopt", {SECOND}, 5), ("follow", {FIRST}, 5), ("adopt", {FIRST}, 5)]


def test_what_is_followed_no_more_is_followed_again() -> None:
    """A changelog that has lost its end is followed no more, and may be in no row of this worker."""
    watched = Watched()
    watched.followed.clear()
    watched.renew(ORPHANS)
    assert watched.told[2:] == [("follow", {SECOND}, 5), ("adopt", {SECOND}, 5)]


@pytest.mark.parametrize("new", [frozenset({TP("in", 1)}), ORPHANS])
def test_a_worker_that_cannot_take_over_revokes_and_joins_again(new: frozenset[TP]) -> None:
    watched = Watched()
    watched.fault = OSError("no room") if new == ORPHANS else None
    watched.renew(new)
    assert watched.told[-1] == ("stop", "what it was given cannot be taken over in place")


def test_another_join_in_place_ends_taking_over_without_a_stop() -> None:
    watched = Watched()
    watched.fault = GenerationOver("generation 5 is over")
    watched.renew(ORPHANS)
    assert [step for step in watched.told if step[:1] == ("stop",)] == []
    assert watched.parts.pending.adopted == {SECOND}  # kept warm for who is given it next
