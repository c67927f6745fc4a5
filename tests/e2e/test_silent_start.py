"""A worker starts while the broker takes connections and answers nothing: from the first request of a kind on."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import Detour, MemberBroker
from tests.e2e.proxy import Proxy
from tests.e2e.steering.cluster import until
from tests.e2e.test_honest_words import PARTITIONS, Job
from trimtab_sandbox.broker import Broker, Topic, free_ports
from trimtab_sandbox.processes import Processes

pytestmark = [pytest.mark.scenario, pytest.mark.light]

SAYS_WITHIN_S, ENDS_WITHIN_S, STARTS_WITHIN_S = 20.0, 8.0, 60.0
REQUESTS = {
    "ApiVersions": 18,
    "Metadata": 3,
    "InitProducerId": 22,
    "CreateTopics": 19,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "SyncGroup": 14,
    "ListOffsets": 2,
    "OffsetFetch": 9,
    "Fetch": 1,
}
"""What a start asks, by its number in Kafka's protocol."""


class Hush(Proxy):
    """A proxy that is cut by the first request of a kind, which nobody gets."""

    at: int | None = None
    """The kind, by its number; None: nothing cuts it."""

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        if self.at is not None and source in self._open and source.getsockname()[1] == self.port:
            asked = source.recv(65536, socket.MSG_PEEK)
            while len(asked) > 6:  # 4 bytes of length, 2 with the kind; requests of a start come whole
                if int.from_bytes(asked[4:6]) == self.at:
                    self.cut()
                    self.at = None
                    return
                asked = asked[4 + int.from_bytes(asked[:4]) :]
        super()._forward(source, target)

    @property
    def is_silent(self) -> bool:
        return not self._whole.is_set()


@pytest.fixture(scope="module")
def hushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Hush]]:
    """A broker, and the proxy through which workers reach it."""
    folder, [behind] = tmp_path_factory.mktemp("hushed"), free_ports(1)
    with (
        Processes(folder / "logs") as processes,
        contextlib.closing(Hush(behind)) as proxy,
        MemberBroker(folder / "broker", processes, detours=[Detour(proxy=proxy.port, behind=behind)]) as broker,
    ):
        yield broker, proxy


@pytest.mark.parametrize("ends", [False, True], ids=["it answers again", "the worker is told to end"])
@pytest.mark.parametrize("request_kind", REQUESTS)
def test_a_start_that_is_not_answered(
    hushed: tuple[Broker, Hush], unique: str, tmp_path: Path, request_kind: str, ends: bool
) -> None:
    broker, proxy = hushed
    broker.create_topics([Topic(name=f"{unique}-in", partitions=PARTITIONS)])  # the worker makes the changelog

    async def play() -> None:
        with Processes(tmp_path / "logs") as processes:
            job = Job(broker, unique, tmp_path, processes, f"127.0.0.1:{proxy.port}")
            server = await job.agent.serve(tmp_path / "agent.sock")
            job.send(20)
            proxy.at = REQUESTS[request_kind]
            worker = job.start()
            assert await until(lambda: proxy.is_silent, STARTS_WITHIN_S), "it never asks"

            def lines() -> list[str]:
                log = worker.log.read_text(errors="replace")
                return [line for line in log.splitlines() if "waiting for Kafka to" in line]

            assert await until(lambda: bool(lines()) or not worker.alive, SAYS_WITHIN_S), "it does not say so"
            print(lines())
            assert worker.alive
            assert f"127.0.0.1:{proxy.port}" in lines()[0]
            began = time.monotonic()
            if ends:
                await asyncio.to_thread(worker.stop, 60.0)
                assert worker.exit_code == 0
                assert time.monotonic() - began < ENDS_WITHIN_S
                proxy.mend()
                worker = job.start()
            else:
                proxy.mend()
            await job.done(20)
            print(f"{request_kind}: done {time.monotonic() - began:.1f} s later, said {len(lines())} times")
            assert len(lines()) <= 3
            await job.stop(worker)
            server.close()

    try:
        asyncio.run(play())
    finally:
        proxy.at = None
        proxy.mend()
