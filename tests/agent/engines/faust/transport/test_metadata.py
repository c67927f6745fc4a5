"""Waiting for topics that the broker, or this client, does not know yet."""

import asyncio
from types import SimpleNamespace

import pytest

from trimtab_agent.engines.faust.transport import metadata
from trimtab_agent.engines.faust.transport.metadata import TopicMetadata


class Client:
    """An aiokafka client that learns of topics at one of its updates."""

    def __init__(self, known_after: dict[str, int]) -> None:
        self.known_after = known_after
        self.updates = 0
        self.asked: set[str] = set()
        self.cluster = SimpleNamespace(partitions_for_topic=self.partitions_for_topic)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0, 1} if self.updates >= self.known_after.get(topic, 1000) else None

    def add_topic(self, topic: str) -> None:
        self.asked.add(topic)

    async def force_metadata_update(self) -> None:
        self.updates += 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("FIRST_LOOK_AFTER_S", "WAIT_AT_MOST_S", "LOOK_AGAIN_AFTER_S", "LOOK_AGAIN_AT_MOST_S"):
        monkeypatch.setattr(metadata, pause, 0.001)


def test_it_asks_until_all_are_known_and_not_at_all_when_they_are() -> None:
    client = Client({"old": 0, "new": 3})
    topics = TopicMetadata(client)

    assert asyncio.run(topics.wait_for(["old", "new"], 60.0)) == frozenset()
    assert (client.updates, client.asked) == (3, {"new"})
    assert asyncio.run(topics.wait_for(["old", "new"], 60.0)) == frozenset()
    assert client.updates == 3


async def test_what_is_not_there_is_waited_for_once_and_found_later(caplog: pytest.LogCaptureFixture) -> None:
    client = Client({"old": 0, "late": 40})
    topics = TopicMetadata(client)

    assert await topics.wait_for(["old", "late"], 0.01) == {"late"}
    before = client.updates
    assert before < 40
    assert await topics.wait_for(["old", "late"], 1000.0) == {"late"}, "it is looked for in the background"
    while client.updates < 40:
        await asyncio.sleep(0.001)
    assert await topics.wait_for(["old", "late"], 1000.0) == frozenset()
    topics.stop()
    assert caplog.text.count("['late']") == 1


@pytest.mark.parametrize("is_made", [True, False])
async def test_what_was_there_before_is_made_again_and_waited_for_once_more(*, is_made: bool) -> None:
    gone: list[str] = []

    client = Client({"kept": 0, "deleted": 0})

    def make_again(topic: str) -> bool:
        gone.append(topic)
        if is_made:
            client.known_after[topic] = client.updates + 2
        return is_made

    topics = TopicMetadata(client, make_again)
    assert await topics.wait_for(["kept", "deleted", "never there"], 0.01) == {"never there"}
    client.known_after["deleted"] = 10_000
    missing = await topics.wait_for(["kept", "deleted", "never there"], 0.01)
    assert missing == ({"never there"} if is_made else {"deleted", "never there"})
    topics.stop()
    assert gone == ["deleted"]


async def test_a_topic_that_nobody_creates_is_asked_for_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is an error in the worker's log (aiokafka's)."""
    monkeypatch.undo()
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        await asyncio.sleep(0)

    monkeypatch.setattr(metadata, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(metadata, "asyncio", SimpleNamespace(sleep=sleep, ensure_future=asyncio.ensure_future))

    client = Client({})
    topics = TopicMetadata(client)

    assert await topics.wait_for(["missing"], 30.0) == {"missing"}
    assert now == pytest.approx(30.0)
    assert client.updates < 40
    while now < 3630.0:
        await asyncio.sleep(0)
    assert client.updates < 40 + 130, "in an hour"
    topics.stop()
