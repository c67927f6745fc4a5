"""The two sides of a hand-over tell the app what a rebalance would tell it, in this order among the other steps."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP

from trimtab_agent.engines.faust.handover.handover import Denied, KeyGroupHandover
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.transport.in_work import EventsInWork, InWork
from trimtab_agent.engines.faust.transport.thread import CommitRefused
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
    ) -> None:
        self.askers = iter(())
        """Whether an agent waits for an answer, each time that this is looked at."""
        self.told: list[str] = []
        self.told_of: list[set[TP]] = []
        app = faust.App("shop", web_enabled=False)
        self.app: Any = SimpleNamespace(
            consumer_generation_id=GENERATION,
            rebalancing=False,
            should_stop=False,
            consumer=self._consumer(commit, oldest, longest_s),
            producer=SimpleNamespace(flush=self._step("flush")),
            crash=self._step("crash"),
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
        app.on_partitions_revoked.connect(lost)
        app.on_partitions_assigned.connect(gained)
        note = self.told.append
        ownership: Any = SimpleNamespace(
            sources=lambda _: {SOURCE},
            changelogs=lambda _: {CHANGELOG},
            holds=lambda _: False,
            own=lambda _: note("own"),
            disown=lambda _: note("disown"),
            restored_to=lambda *_: None,
            table=lambda _: SimpleNamespace(call_recover_callbacks=self._step("app: recovered")),
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
        self.handover = KeyGroupHandover(self.app, ownership, standbys, SteeringSettings())

    def _consumer(self, commit: Exception | None, oldest: Callable[[], InWork | None], longest_s: float) -> Any:
        note, seen = self.told.append, EventsInWork()
        seen.note(SOURCE, longest_s)

        async def run(step: Any, *arguments: Any) -> None:
            note(step)

        async def drain(*_: Any) -> bool:
            note("drain")
            return True

        async def highwaters(*_: Any) -> dict[TP, int]:
            return {CHANGELOG: 12}

        return SimpleNamespace(
            is_open=True,
            thread=SimpleNamespace(
                run=run,
                pause="pause",
                attach="attach",
                request_rejoin="rejoin",
                prove_by_commit=self._step("commit", commit),
            ),
            withheld=set(),
            blocked=set(),
            asking=lambda _: {SOURCE} if next(self.askers, False) else set(),
            block=lambda _: None,
            unblock=lambda _: None,
            forget=lambda _: None,
            start_at=lambda _: None,
            go_on_at=lambda _: None,
            drain=drain,
            take_back=drain,
            wait_for_commit=self._step("wait for commit"),
            next_offset=lambda _: 5,
            highwaters=highwaters,
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

    given = asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert worker.told == ["pause", "drain", "app: revoked", "flush", "wait for commit", "commit", "disown"]
    assert worker.told_of == [ALL]
    assert (given.offsets, given.ends) == ({SOURCE: 5}, {CHANGELOG: 12})


def test_agents_that_ask_get_their_answers_while_what_they_ask_still_flows() -> None:
    worker = Worker()
    worker.askers = iter((True, True, False))

    asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert worker.told[:6] == ["pause", "drain", "pause", "drain", "pause", "drain"]
    assert worker.told[6:] == ["app: revoked", "flush", "wait for commit", "commit", "disown"]


def test_the_new_owner_tells_its_app_before_the_first_event() -> None:
    worker = Worker()

    asyncio.run(worker.handover.take([MOVED], {SOURCE: 5}, {CHANGELOG: 12}, GENERATION))

    assert worker.told == ["commit", "own", "app: assigned", "app: recovered", "attach"]
    assert worker.told_of == [ALL]


def test_an_owner_that_keeps_the_key_group_tells_its_app_that_it_has_it_again() -> None:
    worker = Worker(commit=CommitRefused("the broker is away"))

    with pytest.raises(CommitRefused):
        asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert worker.told[2:] == [
        *("app: revoked", "flush", "wait for commit", "commit"),
        *("drain", "app: assigned", "attach"),
    ]


def test_a_key_group_does_not_stand_still_while_kafka_takes_no_outputs() -> None:
    """A partition of any output has no leader, for example: the flush would wait for 20 minutes."""
    worker = Worker()
    worker.app.producer.flush = asyncio.Event().wait
    worker.handover._settings = SteeringSettings(commit_limit_s=0.01)

    with pytest.raises(Denied, match="Kafka has not taken what this worker has written"):
        asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert worker.told == ["pause", "drain", "app: revoked", "drain", "app: assigned", "attach"]


def test_a_key_group_whose_changelog_has_lost_its_end_is_restored_and_not_given_away() -> None:
    """The new owner would go on with what the changelog lacks, and so would its next one without it."""
    worker = Worker(ahead="sums-changelog/3 ends at 12, this worker had written up to 20")

    with pytest.raises(Denied, match="the changelog sums-changelog/3 ends at 12, this worker had written up to 20"):
        asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert worker.told[5:] == ["commit", "rejoin", "drain", "app: assigned", "attach"]


def test_a_worker_whose_app_cannot_let_go_ends_as_in_a_rebalance() -> None:
    worker = Worker(revoked=RuntimeError("no room"))

    with pytest.raises(RuntimeError, match="no room"):
        asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert "crash" in worker.told
    assert "commit" not in worker.told


def in_work(age_s: float) -> InWork:
    return InWork(tp=SOURCE, offset=187, age_s=age_s)


def test_a_key_group_with_an_event_held_for_longer_than_any_before_is_refused_before_it_stops() -> None:
    worker = Worker(oldest=lambda: in_work(34.0))

    with pytest.raises(Denied, match=r"orders/3 offset 187 is in work for 34 s, and nobody knows .*limit 10 s"):
        asyncio.run(worker.handover.release([MOVED], GENERATION, 20.0))

    assert worker.told == []


def test_a_key_group_whose_batch_has_long_to_go_is_refused_before_it_stops() -> None:
    worker = Worker(oldest=lambda: in_work(5.0), longest_s=60.0)

    with pytest.raises(Denied, match=r"offset 187 is in work for 5 s, for 60 s as those before it"):
        asyncio.run(worker.handover.release([MOVED], GENERATION, 20.0))

    assert worker.told == []


def test_a_release_waits_for_the_flush_of_a_batch_and_stops_the_key_group_only_then() -> None:
    began = time.monotonic()
    worker = Worker(oldest=lambda: in_work(57.9 + time.monotonic() - began), longest_s=60.0)

    asyncio.run(worker.handover.release([MOVED], GENERATION, 20.0))

    assert time.monotonic() - began > 0.05, "it stops two seconds before the end"
    assert worker.told[:2] == ["pause", "drain"]


def test_ordinary_events_are_waited_for_after_the_stop() -> None:
    worker = Worker(oldest=lambda: in_work(3.0), longest_s=4.0)

    asyncio.run(worker.handover.release([MOVED], GENERATION))

    assert worker.told[:2] == ["pause", "drain"]
