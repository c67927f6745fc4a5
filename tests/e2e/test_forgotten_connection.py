"""Hand-over records where the network forgets connections that stand idle, as a load balancer does."""

import asyncio
import time
from pathlib import Path

import pytest
from aiokafka.errors import KafkaTimeoutError

from tests.brokers import Detour, MemberBroker
from tests.e2e.proxy import Proxy
from tests.fuzz.fuzzed.samples import RELEASED
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover import channel as channel_module
from trimtab_agent.engines.faust.handover.channel import Channel
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_sandbox.broker import Topic, free_ports
from trimtab_sandbox.processes import Processes


def test_a_hand_over_record_does_not_wait_for_a_connection_that_the_network_has_forgotten(
    unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "IDLE_MS", 1_000)
    [behind] = free_ports(1)
    proxy = Proxy(behind)
    shared = PluginState(cluster=unique, app=AppId("app"), worker=WorkerId("w0"))
    connection = {"bootstrap_servers": f"127.0.0.1:{proxy.port}", "request_timeout_ms": 90_000}
    channel = Channel(shared, connection, on_placement=lambda: None, on_handover=lambda *_: None)

    async def play() -> None:
        await channel.publish(RELEASED)
        await asyncio.sleep(3.0)  # idle for longer than IDLE_MS
        proxy.forget()
        await channel.publish(RELEASED)

        proxy.forget()
        began = time.monotonic()
        with pytest.raises(KafkaTimeoutError):
            await channel.publish(RELEASED)
        assert time.monotonic() - began < 30.0, "not for request_timeout_ms"
        await channel.publish(RELEASED)
        await channel.close()

    with Processes(tmp_path / "logs") as processes:
        broker = MemberBroker(tmp_path / "broker", processes, detours=[Detour(proxy=proxy.port, behind=behind)])
        with broker:
            broker.create_topics([Topic(name=shared.topics.handover, partitions=1)])
            asyncio.run(play())
    proxy.close()
