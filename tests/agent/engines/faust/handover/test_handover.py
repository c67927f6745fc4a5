"""The two sides of a hand-over tell the app what a rebalance would tell it, in this order among the other steps."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP

from trimtab_agent.engines.faust.handover.handover import Denied, KeyGroupHandover
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.transport.in_work import EventsInWork, InWork
from trimtab_agent.engines.faust.transport.thread import CommitRefused, GenerationOver
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId

GENERATION = 7
MOVED = KeyGroup(AppId("shop"), OperatorId("sums"), 3)
SOURCE, CHANGELOG = TP("orders", 3), TP("sums-changelog", 3)
ALL = {SOURCE, CHANGELOG}


class Worker:
    """A hand-over on a worker whose other parts note what they are asked for; the app has connected both signals."""

    def __init__(
        self,
        *,
        commit: Exception | None = None,
        revoked: Exception | None = None,
        oldest: Callable[[], InWork | None] = lambda: None,
        longest_s: float = 0.0,
        ahead: str | None = None,
        ends_after_s: float = 0.0,
        flushes: bool = True,
        abandoned: str | None = None,
        behind: Sequence[float] = (),
    ) -> None:
        """`ends_after_s` = how long the broker takes to say where changelogs end.

        `behind` = how long an agent needs for what another one of its topic has begun, at each look.
        """
        self.behind = iter(behind)
        self.askers = iter(())
        """Whether an agent waits for an answer, each time that this is looked at."""
        self.ends_after_s = ends_after_s
        self.told: list[str] = []
        self.told_of: list[set[TP]] = []
        app = faust.App("shop", web_enabled=False)
        self.app: Any = SimpleNamespace(
            consumer_generation_id=GENERATION,
            rebalancing=False,
            should_stop=False,
            consumer=self._consumer(commit, oldest, longest_s),
            producer=SimpleNamespace(flush=self._step("flush") if flushes else asyncio.Event().wait),
            crash=self._step("crash"),
            monitor=app.monitor,
            on_partitions_revoked=app.on_partitions_revoked,
            on_partitions_assigned=app.on_partitions_assigned,
        )

        async def lost(_: Any, tps: set[TP], **__: Any) -> None:
            self._note("app: revoked", tps)
            if revoked is not None:
                raise revoked

        async def gained(_: Any, tps: set[TP], **__: Any) -> None:
            self._note("app: assigned", tps)

        self._connected = lost, gained  # signals hold their receivers weakly
        self.app.consumer.abandoned = lambda _: abandoned
        app.on_partitions_revoked.connect(lost)
        app.on_partitions_assigned.connect(gained)
        note = self.told.append
        table = faust.Table(app, name="sums")
        table.call_recover_callbacks = self._step("app: recovered")
        ownership: Any = SimpleNamespace(
            sources=lambda key_groups: {TP("orders", each.partition) for each in key_groups},
            changelogs=lambda key_groups: {TP("sums-changelog", each.partition) for each in key_groups},
            holds=lambda _: False,
            own=lambda _: note("own"),
            disown=lambda _: note("disown"),
            restored_to=lambda *_: None,
            table=lambda _: table,
        )
        standbys: Any = SimpleNamespace(
            keep=lambda _: None,
            leave=lambda _: None,
            is_followed=lambda _: True,
            has=lambda _: True,
            ahead=lambda _: ahead,
            prefer=lambda _: None,
            prefer_no_more=lambda _: None,
        )
        self.handover = KeyGroupHandover(
            self.app, ownership, standbys, SteeringSettings(commit_limit_s=0.5 if flushes else 0.01)
        )

    def _consumer(self, commit: Exception | None, oldest: Callable[[], InWork | None], longest_s: float) -> Any:
        note, seen = self.told.append, EventsInWork()
        seen.note(SOURCE, longest_s)

        async def run(step: Any, *arguments: Any) -> None:
            note(step)

        async def drain(*_: Any) -> bool:
            note("drain")
            return True

        async def ends(_: object, limit_s: float) -> dict[TP, int]:
            async with asyncio.timeout(limit_s):
                await asyncio.sleep(self.ends_after_s)
            return {CHANGELOG: 12}

        return SimpleNamespace(
            is_open=True,
            thread=SimpleNamespace(
                run=run,
                pause="pause",
                attach="attach",
                request_rejoin="rejoin",
                prove_by_commit=self._step("commit", commit),
                ends=ends,
            ),
            withheld=set(),
            blocked=set(),
            asking=lambda _: {SOURCE} if next(self.askers, False) else set(),
            block=lambda _: None,
            unblock=lambda _: None,
            forget=lambda _: None,
            begin_behind=lambda tps: self._note("behind", set(tps)),
            start_at=lambda _: None,
            go_on_at=lambda _: None,
            drain=drain,
            take_back=drain,
            wait_for_commit=self._step("wait for commit"),
            next_offset=lambda _: 5,
            bring_forward=lambda _: next(self.behind, 0.0),
            oldest_in_work=lambda _: oldest(),
            in_work=seen,
        )

    def _step(self, name: str, fault: Exception | None = None) -> Any:
        async def step(*_: Any) -> None:
            self.told.append(name)
            if fault is not None:
                raise fault

        return step

    def _note(self, what: str, tps: set[TP]) -> None:
        self.told.append(what)
        self.told_of.append(tps)


def test_the_old_owner_tells_its_app_after_the_last_event_and_before_the_last_commit() -> None:
    worker = Worker()
    worker.app.monitor.track_tp_end_offset(SOURCE, 20)

    given = asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert worker.told == ["pause", "drain", "app: revoked", "flush", "wait for commit", "commit", "disown"]
    assert worker.app.monitor.tp_end_offsets == {}
    assert worker.told_of == [ALL]
    assert (given.offsets, given.ends) == ({SOURCE: 5}, {CHANGELOG: 12})


def in_work(age_s: float) -> InWork:
    return InWork(tp=SOURCE, offset=187, age_s=age_s)


STOPS, COMMITS = ["pause", "drain", "app: revoked"], ["flush", "wait for commit", "commit"]
HAS_IT_AGAIN = ["drain", "app: assigned", "attach"]


@pytest.mark.parametrize(
    ("made", "error", "told"),
    [
        pytest.param(
            {"commit": CommitRefused("the broker is away")},
            "the broker is away",
            [*STOPS, *COMMITS, *HAS_IT_AGAIN],
            id="its commit is refused",
        ),
        pytest.param(
            {"ends_after_s": 30.0},  # the app has written nothing lately: its flush has not met that broker
            r"does not say within .* where the changelogs end",
            [*STOPS, *COMMITS, *HAS_IT_AGAIN],
            id="the broker of the changelogs is silent",
        ),
        pytest.param(
            {"flushes": False},  # a partition of any output has no leader, for example: it would wait for 20 minutes
            "Kafka has not taken what this worker has written",
            [*STOPS, *HAS_IT_AGAIN],
            id="Kafka takes no outputs",
        ),
        pytest.param(
            {"ahead": "sums-changelog/3 ends at 12, this worker had written up to 20"},
            "the changelog sums-changelog/3 ends at 12, this worker had written up to 20",
            [*STOPS, *COMMITS, "rejoin", *HAS_IT_AGAIN],  # the new owner would go on with what the changelog lacks
            id="its changelog has lost its end",
        ),
        pytest.param(
            {"abandoned": "orders/3 offset 187"},
            "orders/3 offset 187 was not acknowledged, and nobody works on it",
            ["pause", "drain", *HAS_IT_AGAIN],
            id="an event was not acknowledged",
        ),
        pytest.param(
            {"behind": (30.0,)},
            "an agent needs about 30 s for what another one of its topic has begun .limit 5 s",
            [],
            id="an agent is far behind another one of its topic",
        ),
        pytest.param(
            {"oldest": lambda: in_work(34.0)},
            r"orders/3 offset 187 is in work for 34 s, and nobody knows .*limit 10 s",
            [],
            id="an event is held for longer than any before",
        ),
        pytest.param(
            {"oldest": lambda: in_work(5.0), "longest_s": 60.0},
            r"offset 187 is in work for 5 s, for 60 s as those before it",
            [],
            id="a batch has long to go",
        ),
    ],
)
def test_a_key_group_that_cannot_be_released_goes_on_with_its_owner(
    made: dict[str, Any], error: str, told: list[str]
) -> None:
    worker = Worker(**made)

    with pytest.raises((Denied, CommitRefused), match=error):
        asyncio.run(worker.handover.release([MOVED], GENERATION, 20.0))

    assert worker.told == told


def test_agents_that_ask_get_their_answers_while_what_they_ask_still_flows() -> None:
    worker = Worker()
    worker.askers = iter((True, True, False))

    asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert worker.told[:6] == ["pause", "drain", "pause", "drain", "pause", "drain"]
    assert worker.told[6:] == ["app: revoked", "flush", "wait for commit", "commit", "disown"]


def test_the_new_owner_tells_its_app_before_the_first_event() -> None:
    worker = Worker()

    taken = partial(worker.told.append, "taken")  # however long the app then takes
    asyncio.run(worker.handover.take([MOVED], {SOURCE: 5}, {CHANGELOG: 12}, GENERATION, taken))

    assert worker.told == ["commit", "own", "taken", "app: assigned", "app: recovered", "attach"]
    assert worker.told_of == [ALL]


def test_a_table_is_recovered_once_however_many_of_its_key_groups_come() -> None:
    """The app may go through the whole table then, and all of them wait."""
    worker, another = Worker(), KeyGroup(MOVED.app, MOVED.operator, 4)
    offsets, ends = {SOURCE: 5, TP("orders", 4): 5}, {CHANGELOG: 12, TP("sums-changelog", 4): 12}

    asyncio.run(worker.handover.take([MOVED, another], offsets, ends, GENERATION, lambda: None))

    assert worker.told.count("app: recovered") == 1


def test_a_worker_whose_app_cannot_let_go_ends_as_in_a_rebalance() -> None:
    worker = Worker(revoked=RuntimeError("no room"))

    with pytest.raises(RuntimeError, match="no room"):
        asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert "crash" in worker.told
    assert "commit" not in worker.told


def test_a_release_waits_for_the_flush_of_a_batch_and_stops_the_key_group_only_then() -> None:
    began = time.monotonic()
    worker = Worker(oldest=lambda: in_work(57.9 + time.monotonic() - began), longest_s=60.0)

    asyncio.run(worker.handover.release([MOVED], GENERATION, 20.0))

    assert time.monotonic() - began > 0.05, "it stops two seconds before the end"
    assert worker.told[:2] == ["pause", "drain"]


def test_a_key_group_goes_on_while_an_agent_takes_what_another_one_has_begun() -> None:
    worker = Worker(behind=(8.0, 4.0, 0.1))

    asyncio.run(worker.handover.release([MOVED], GENERATION, 20.0))

    assert worker.told[:2] == ["pause", "drain"]
    assert next(worker.behind, None) is None, "it looked until little was left"


def test_ordinary_events_are_waited_for_after_the_stop() -> None:
    worker = Worker(oldest=lambda: in_work(3.0), longest_s=4.0)

    asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert worker.told[:2] == ["pause", "drain"]


def test_a_release_that_a_join_in_place_meets_goes_on_when_the_join_is_over() -> None:
    worker = Worker()
    consumer = worker.app.consumer

    async def play() -> None:
        async def commit(*_: Any) -> None:
            consumer.joining = True  # the claim has the key group
            asyncio.get_running_loop().call_later(0.05, joined)

        def joined() -> None:
            worker.app._consumer = SimpleNamespace(group_generation=GENERATION + 1)
            consumer.joining = False

        consumer.thread.prove_by_commit = commit
        await worker.handover.release([MOVED], GENERATION)

    with pytest.raises(GenerationOver):
        asyncio.run(play())

    assert "disown" not in worker.told
    assert worker.told[-3:] == ["drain", "app: assigned", "attach"]


def test_a_release_that_a_join_in_place_meets_leaves_it_to_a_rebalance_that_follows() -> None:
    worker = Worker()
    consumer = worker.app.consumer

    async def commit(*_: Any) -> None:
        consumer.joining = True
        asyncio.get_running_loop().call_later(0.05, revoked)

    def revoked() -> None:
        worker.app.rebalancing, consumer.joining = True, False

    consumer.thread.prove_by_commit = commit
    with pytest.raises(GenerationOver):
        asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert "attach" not in worker.told


async def committed(tps: Any) -> dict[TP, int]:
    return dict.fromkeys(tps, 5)


def test_what_nobody_owned_is_taken_over_from_the_committed_offset_and_the_end_of_its_changelog() -> None:
    worker, looks = Worker(), iter((False, False, True))
    worker.handover._standbys.has = lambda _: next(looks)  # type: ignore[method-assign, assignment]

    worker.app.consumer.thread.committed = committed
    asyncio.run(worker.handover.adopt([MOVED], GENERATION))

    assert worker.told == ["behind", "own", "app: assigned", "app: recovered", "attach"]
    assert worker.told_of == [{SOURCE}, ALL]


def test_each_of_what_nobody_owned_begins_as_soon_as_its_state_is_here() -> None:
    worker, other, looks = Worker(), MOVED._replace(partition=4), iter((False, True))
    late = TP("sums-changelog", 4)

    async def ends(tps: Any, _: float) -> dict[TP, int]:
        return dict.fromkeys(tps, 12)

    worker.handover._standbys.has = lambda ends: late not in ends or next(looks)  # type: ignore[method-assign, assignment]
    worker.app.consumer.thread.committed, worker.app.consumer.thread.ends = committed, ends
    asyncio.run(worker.handover.adopt([other, MOVED], GENERATION))

    assert worker.told_of[1::2] == [ALL, {TP("orders", 4), late}]


def test_what_nobody_owned_is_not_taken_over_with_more_than_its_changelog_has() -> None:
    worker = Worker(ahead="sums-changelog/3 ends at 12, this worker had written up to 20")
    worker.app.consumer.thread.committed = committed
    with pytest.raises(Denied, match="ends at 12"):
        asyncio.run(worker.handover.adopt([MOVED], GENERATION))

    assert worker.told == []


def test_what_nobody_owned_is_not_taken_over_in_a_generation_that_is_over() -> None:
    worker = Worker()

    def look(_: Any) -> bool:
        worker.app.consumer.joining = True
        return False

    worker.handover._standbys.has = look  # type: ignore[method-assign, assignment]
    worker.app.consumer.thread.committed = committed
    with pytest.raises(GenerationOver):
        asyncio.run(worker.handover.adopt([MOVED], GENERATION))

    assert worker.told == []
