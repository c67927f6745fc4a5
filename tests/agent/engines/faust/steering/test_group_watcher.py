"""What a worker looks at before it joins its group, and counts in rebalances; what is unknown counts as state."""

import asyncio
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.assignor.client_assignment import ClientAssignment

from tests.agent.engines.faust.steering.test_commands_to_worker import (
    APP,
    ME,
    OTHER,
    SETTINGS,
    Worker,
    release,
    told,
)
from tests.fuzz.fuzzed.samples import SUMS
from trimtab_agent.engines.faust.group.member_data import MemberData, packed
from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.steering import steering, worker_status
from trimtab_protocol.messages.commands import Phase, Refusal
from trimtab_protocol.messages.names import Epoch
from trimtab_protocol.messages.placement import Placement


def joined(*, empty: bool, placed: bool = False, loaded: bool = True) -> Worker:
    """A worker that has joined its group; `loaded`: whether it could read the placements' topic before."""
    worker = Worker()
    if not placed:
        worker.shared.newest = None
    side: Any = SimpleNamespace(started=False, start=lambda: None, placement_loaded=lambda: loaded)
    settings = replace(worker.parts.settings, placement_load_limit_s=0.01)

    async def is_empty(changelogs: Collection[str]) -> bool:
        return empty

    watcher = worker.watcher_with(is_empty=is_empty, side=side, settings=settings)
    asyncio.run(watcher.before_join(frozenset({"in"})))
    return worker


def test_an_app_without_placement_offsets_and_changelogs_is_fresh_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = joined(empty=True)
    assert worker.status.fresh
    assert worker.shared.empty_at is not None
    now = worker.shared.empty_at + worker_status.FRESH_S + 1.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert not worker.status.fresh


@pytest.mark.parametrize(
    "found",
    [{"empty": False}, {"empty": True, "placed": True}, {"empty": True, "loaded": False}],
    ids=["state", "placement", "placement unknown"],
)
def test_any_other_app_is_not(found: dict[str, bool]) -> None:
    assert not joined(**found).status.fresh


def test_an_app_is_not_empty_while_the_broker_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "STATE_LIMIT_S", 0.5)
    nowhere = {"bootstrap_servers": "127.0.0.1:1", "client_id": "t", "request_timeout_ms": 200}
    assert not asyncio.run(steering.is_empty(nowhere, "app", ["app-sums-changelog"]))


# --- apps and data folders that cannot be steered


def test_an_app_that_turns_out_to_be_unfit_is_measured_but_neither_steered_nor_kept_warm() -> None:
    worker, learnt = Worker(), list[Any]()
    worker.parts.ownership.learn = learnt.append  # type: ignore[method-assign, assignment]
    worker.parts.app._assignor = SimpleNamespace(replicas=0)
    named = {SUMS: frozenset({"in"})}
    watcher = worker.watcher_with(named=lambda: named, unfit=lambda: ["table lost: in memory"])

    async def join() -> None:
        await watcher.before_join(frozenset({"in"}))
        watcher.stable()

    asyncio.run(join())

    assert worker.status.refusal == "table lost: in memory"
    assert [layout.sources for layout in learnt] == [frozenset({"in"})]
    assert worker.parts.app.assignor.replicas == worker.shared.faust_standbys
    assert told(worker.hears(release())) == [(Phase.REFUSED, Refusal.NOT_STEERING, "table lost: in memory")]


def test_topics_with_answers_are_no_inputs_whatever_their_names() -> None:
    """Each worker has some of its own: its app would be taken for another version."""
    worker = Worker()
    worker.parts.app._reply_consumer._fetchers["answers-to-w0"] = None  # `ask(reply_to="answers-to-w0")`
    begun: Any = SimpleNamespace(started=True)

    asyncio.run(worker.watcher_with(side=begun).before_join(frozenset({"in", "answers-to-w0"})))

    assert worker.shared.layout == Layout(named={}, sources=frozenset({"in"}), changelogs=frozenset())


@pytest.mark.parametrize("where", ["datadir", "a table's store"])
def test_a_worker_with_the_data_folder_of_another_one_is_not_steered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    """Its databases are open there: no hand-over between the two would succeed."""
    monkeypatch.chdir(tmp_path)
    worker, folders = Worker(), list[Path]()
    worker.parts.app._assignor = SimpleNamespace(replicas=0)
    worker.parts.app.Table("sums", store=f"rocksdb://{tmp_path}/shared/sums")
    expected = [Path(worker.parts.app.conf.tabledir)]
    if where != "datadir":
        expected.append(tmp_path / "shared")
    side: Any = SimpleNamespace(started=False)
    watcher = worker.watcher_with(side=side)

    async def taken(folder: Path) -> bool:
        folders.append(folder)
        return folder != expected[-1]

    monkeypatch.setattr("trimtab_agent.engines.faust.safety.own_folder.hold", taken)

    asyncio.run(watcher.before_join(frozenset({"in"})))

    assert folders == expected
    told = f"datadir: another worker uses {folders[-1].resolve()}, and each needs a folder of its own"
    assert worker.status.refusal == told


# --- The leader of a group waits for a placement that it has not read yet


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
    watcher = worker.watcher_with(settings=replace(SETTINGS, assignment_placement_limit_s=0.05))
    asyncio.run(asyncio.wait_for(watcher.before_assignment([member(9)]), 60.0))
    asyncio.run(worker.watcher.before_assignment([member(1)]))


PLACED = Placement(cluster="c", app=APP, epoch=Epoch(1, 1), owners={SUMS: ((OTHER, ME),)})


def member(number: int, sends: str | None = None) -> bytes:
    nothing = ClientAssignment(actives={}, standbys={})
    data = MemberData(
        assignment=nothing, url="", changelog_distribution={}, epoch=[1, number], placement=sends and packed(PLACED)
    )
    return bytes(data.dumps())


# --- For how long a worker says that rebalances have stopped its inputs


@pytest.mark.parametrize(("empty_at", "first"), [(None, 1), (0.0, 0)])
def test_a_standstill_of_inputs_counts_unless_the_app_begins_with_it(empty_at: float | None, first: int) -> None:
    worker = Worker()
    worker.parts.shared.empty_at = empty_at
    worker.parts.shared.layout = Layout(named={}, sources=frozenset({"in"}), changelogs=frozenset())
    worker.parts.ownership.learn = lambda layout: None  # type: ignore[method-assign]
    worker.shared.refuse("measured only")
    assert worker.status.paused is None

    def counted() -> int:
        worker.watcher.rebalancing()
        worker.watcher.stable()
        assert worker.status.paused is not None
        return worker.status.paused[1]

    assert [counted(), counted()] == [first, first + 1]
