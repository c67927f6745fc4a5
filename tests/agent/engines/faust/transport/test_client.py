"""What a worker does that starts while brokers take connections, and answer nothing."""

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import faust
import pytest

from tests.agent.engines.faust.steered import transport_of
from tests.agent.engines.faust.transport.brokers import (
    COORDINATOR,
    METADATA,
    NEW_PRODUCER,
    NEW_TOPICS,
    VERSIONS,
    listening,
)
from trimtab_agent.engines.faust.transport import client as client_module
from trimtab_agent.engines.faust.transport import producer as producer_module
from trimtab_agent.engines.faust.transport import thread as thread_module
from trimtab_agent.engines.faust.transport.client import BrokerWaits, silent_brokers
from trimtab_agent.engines.faust.transport.thread import SteeredThread

QUICK = {"ASK_AGAIN_S": 0.05, "FIRST_WORD_S": 0.1, "LAST_WORD_S": 0.4, "PROBE_S": 0.5}
LIMIT_S = 120.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in QUICK.items():
        monkeypatch.setattr(client_module, name, seconds)
    monkeypatch.setattr(producer_module, "CONNECT_LIMIT_S", 1.0)


def app_on(port: int, **settings: Any) -> Any:
    """An app whose broker has this port."""
    times = {"broker_request_timeout": 1.0, "broker_session_timeout": 0.9, "broker_heartbeat_interval": 0.3}
    app = faust.App("ks", broker=f"kafka://127.0.0.1:{port}", web_enabled=False, **{**times, **settings})
    app.transport = transport_of(app, SimpleNamespace(tell=print))
    return app


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.getMessage().startswith("waiting for Kafka")]


@pytest.mark.parametrize(
    ("deaf_to", "what", "who"),
    [
        pytest.param(VERSIONS, "connect", "no broker answers at", id="all"),
        pytest.param(METADATA, "connect", "no broker answers at", id="metadata"),
        pytest.param(NEW_PRODUCER, "connect", None, id="a new producer"),
        pytest.param(NEW_TOPICS, "make the topic sums", None, id="a new topic"),
    ],
)
async def test_a_start_waits_for_a_silent_broker_says_so_and_goes_on(
    caplog: pytest.LogCaptureFixture, deaf_to: int, what: str, who: str | None
) -> None:
    async with listening(deaf=False) as broker:
        app = app_on(broker.port)
        broker.make_topics("sums")
        broker.deaf_to = {deaf_to}
        producer = app.producer

        async def start() -> None:
            await producer.start()
            await producer.create_topic("sums", 1, 1)

        starting = asyncio.create_task(start())
        async with asyncio.timeout(LIMIT_S):
            while broker.heard < 8 or (who is not None and len(told(caplog)) < 2):
                await asyncio.sleep(0.01)
            assert not starting.done()
            if who is None:  # then it takes new connections, until now
                broker.deaf_to = {deaf_to, VERSIONS}
                while not told(caplog):
                    await asyncio.sleep(0.01)
                who = f"broker 1 at 127.0.0.1:{broker.port} does not answer"
            broker.deaf_to = set()
            await starting
        assert re.fullmatch(rf"waiting for Kafka to {what}, for \d+ s: {who}.*", told(caplog)[0])
        assert str(broker.port) in told(caplog)[0]
        await producer.stop()


async def test_a_topic_is_made_though_another_who_waits_for_it_is_cancelled() -> None:
    async with listening(deaf=False) as broker:
        broker.make_topics("sums")
        producer = app_on(broker.port).producer
        await producer.start()
        broker.deaf_to = {NEW_TOPICS}
        first, other = (asyncio.create_task(producer.create_topic("sums", 1, 1)) for _ in range(2))
        await asyncio.wait([first, other], timeout=0.1)
        other.cancel()
        await asyncio.wait([other])
        broker.deaf_to = set()
        await asyncio.wait_for(first, LIMIT_S)
        await producer.stop()


async def test_a_worker_that_is_told_to_stop_while_its_consumer_connects_ends_at_once() -> None:
    async with listening(deaf=True) as broker:
        app = app_on(broker.port, broker_request_timeout=60.0, broker_session_timeout=40.0)
        thread = SteeredThread(app.consumer)
        starting = asyncio.create_task(thread.start())
        async with asyncio.timeout(LIMIT_S):
            while not broker.heard:
                await asyncio.sleep(0.01)
            await thread.stop()
            await starting


async def test_a_worker_that_stops_waits_for_its_group_as_long_as_the_broker_takes_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_module, "STOP_LOOK_S", 0.1)
    async with listening(deaf=False) as broker:
        broker.make_topics()
        broker.deaf_to = {COORDINATOR}
        app = app_on(broker.port, broker_request_timeout=60.0, broker_session_timeout=40.0)
        thread = SteeredThread(app.consumer)
        await thread.start()
        seen = broker.heard
        thread.thread_loop.call_soon_threadsafe(thread._consumer._subscription.subscribe, {"in"})
        async with asyncio.timeout(LIMIT_S):
            while broker.heard < seen + 2:  # a new connection and the question
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(thread.stop())
            assert not (await asyncio.wait([stopping], timeout=0.6))[0]
            broker.deaf = True
            await stopping
        assert "ends without leaving its group" in caplog.text


async def test_who_is_silent_is_named_also_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(deaf=True) as deaf, listening(deaf=False) as other:
        client = app_on(deaf.port).producer._new_producer().client
        assert await silent_brokers(client) == f"no broker answers at 127.0.0.1:{deaf.port}"
        rows = [(1, "127.0.0.1", other.port, None), (2, "127.0.0.1", deaf.port, None)]
        client.cluster.update_metadata(SimpleNamespace(API_VERSION=1, brokers=rows, controller_id=1, topics=[]))
        client._sync_task = asyncio.create_task(asyncio.sleep(0.0))
        async with asyncio.timeout(LIMIT_S):
            while (silent := await silent_brokers(client)) != f"broker 2 at 127.0.0.1:{deaf.port} does not answer":
                assert silent is not None
                assert silent.endswith(f", broker 2 at 127.0.0.1:{deaf.port} does not answer")
        deaf.deaf = False
        monkeypatch.setattr(client_module, "PROBE_S", LIMIT_S)
        assert await silent_brokers(client) is None


async def test_lines_about_a_wait_become_rarer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 4:
            raise asyncio.CancelledError

    async def silent(_: object) -> str:
        return "broker 2 does not answer"

    monkeypatch.setattr(client_module, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(client_module, "silent_brokers", silent)
    with pytest.raises(asyncio.CancelledError):
        await BrokerWaits(object)._tell("connect")
    assert slept == [0.1, 0.2, 0.4, 0.4, 0.4]
    assert told(caplog) == ["waiting for Kafka to connect, for 0 s: broker 2 does not answer"] * 4
