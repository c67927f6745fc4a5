"""Pages with table routes, web views, `ask()`, channels in memory and the leader's timers, while key groups move."""

import asyncio
import itertools
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.steering.answers import ALL, LATE_S, AnswersCluster, Reply, asked
from tests.e2e.steering.cluster import until, worker

pytestmark = [pytest.mark.e2e, pytest.mark.light]

BUSY_LATE_S = 2.0
"""Beside other tests."""
HEARD_S = 0.2
"""How long after a new owner has said so it may be heard here: a pause has begun so much earlier than it seems."""


async def move_and_ask(cluster: AnswersCluster, count: int, late_s: float = LATE_S) -> tuple[list[Reply], list[Reply]]:
    """Move key groups while all workers are asked for all keys; the wrong answers, and those missing not in a pause.

    A pause lasts until `late_s` after the new owner said so.
    """
    moves: list[tuple[float, float]] = []
    async with cluster.asking():
        await asyncio.sleep(2.0)
        began = time.time()
        for number in range(count):
            moves.append(await cluster.move(number))
            await asyncio.sleep(1.5 + late_s)
        ended = time.time()
    views = [await cluster.get(name, "/router/totals/") for name in cluster.workers]
    pauses = [(took - pause - HEARD_S, took + late_s) for took, pause in moves]
    replies = [reply for reply in cluster.replies["total"] if began < reply.asked_at < ended]
    late = [reply for reply in replies if not any(begin < reply.at and reply.asked_at < end for begin, end in pauses)]
    missing, wrong = [r for r in replies if r.status != 200], cluster.wrong(replies)
    print(
        f"{count} moves, {len(replies)} asked, {len(late)} not in a pause; {len(wrong)} wrong, {len(missing)} missing, "
        f"{sum(r in late for r in missing)} of them not in a pause"
    )
    owners = [cluster.url(row[0]) for row in cluster.rows[ALL]]
    for view in views:
        assert {p: url for url, topics in view.items() for ps in topics.values() for p in ps} == dict(enumerate(owners))
    assert len(late) > 10 * count
    return wrong, [reply for reply in late if reply in missing]


def test_all_workers_answer_with_the_owners_value_after_each_move(tmp_path: Path) -> None:
    async def play() -> None:
        async with asked(tmp_path, standbys=1, asks=True) as cluster:
            began, questions = time.time(), asyncio.create_task(cluster.feed("questions", 2.0))
            async with cluster.asking("ask", 4.0, limit_s=60.0):
                assert await move_and_ask(cluster, 4, BUSY_LATE_S) == ([], [])
            questions.cancel()
            assert await until(lambda: not cluster.unanswered(), 60.0), "questions without an end"
            assert await until(lambda: cluster.noted("read-on") == cluster.noted("asked-on"), 60.0), "lost in a channel"
            assert {reply.status for reply in cluster.replies["ask"]} == {200}
            assert len({name for _, name in cluster.leaders(began)}) == 1

    asyncio.run(play())


def test_keys_that_events_and_tables_write_differently_are_asked_at_their_owners(tmp_path: Path) -> None:
    """All has Faust's defaults.  What no key of an event places is no worker's, and the answer says so."""

    keys = [str(number) for number in range(10)]

    async def play() -> None:
        async with asked(tmp_path) as cluster:
            for count in (5, 10):
                await cluster.feed_plain(5)
                answers = {}
                for kind in ("text", "number", "bytes"):
                    for _ in range(20):
                        answers[kind] = await cluster.plain_answers(kind, keys)
                        if answers[kind] == {(200, count)}:
                            break
                        await asyncio.sleep(0.5)
                print(answers)
                assert answers == {kind: {(200, count)} for kind in answers}
                assert await cluster.plain_answers("value", ["1"]) == {(503, None)}
                await cluster.move(0)
                await cluster.move(1)

    asyncio.run(play())


@pytest.mark.scenario
@pytest.mark.parametrize("standbys", [0, 1])
def test_twenty_moves_leave_no_answer_wrong(standbys: int, tmp_path: Path) -> None:
    async def play() -> None:
        async with asked(tmp_path, standbys=standbys) as cluster:
            assert await move_and_ask(cluster, 20) == ([], [])

    asyncio.run(play())


@pytest.mark.scenario
def test_every_ask_is_answered_while_workers_move_join_leave_and_die(tmp_path: Path) -> None:
    """Pages ask an agent, and so does another agent in the middle of its events."""

    async def play() -> None:
        waited: dict[str, float] = {}
        async with asked(tmp_path, asks=True, slow_s=0.1, inputs_per_s=1.0) as cluster:
            began, questions = time.time(), asyncio.create_task(cluster.feed("questions", 4.0))
            async with cluster.asking("ask", 6.0, limit_s=60.0):
                for number in range(3):
                    await cluster.move(number)
                cluster.start(joins := worker(3))
                waited["join"] = await cluster.settled()
                assert await cluster.terminate(joins) == 0
                waited["leave"] = await cluster.settled()
                dead, died_at = cluster.alive.pop(cluster.workers[1]), time.time()
                dead.send(signal.SIGKILL)
                waited["kill"] = await cluster.settled(90.0)
            questions.cancel()
            assert await until(lambda: not cluster.unanswered(), 60.0), "questions without an end"
            replies, leaders = cluster.replies["ask"], cluster.leaders(began)
        lost = [r for r in replies if r.status != 200 and not (r.worker == "w1" and r.at >= died_at)]
        slowest = max(reply.at - reply.asked_at for reply in replies if reply.status == 200)
        print(
            f"{len(replies)} asked and {cluster.sent['questions']} by agents, {len(lost)} without an answer, "
            f"slowest {slowest:.1f} s, settled after {waited}"
        )
        assert lost == []
        assert len(replies) > 50
        for log in (tmp_path / "run" / "logs").glob("w*.log"):
            assert "begun events were not finished" not in log.read_text()
        led = [name for name, _ in itertools.groupby(name for _, name in leaders)]
        assert len(led) == len(set(led)) <= 2, "the timer of the leader has run on several workers"

    asyncio.run(play())
