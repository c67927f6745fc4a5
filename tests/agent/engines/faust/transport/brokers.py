"""A broker that takes connections; it may be deaf, to all requests or to some."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiokafka.protocol.admin import ApiVersionResponse_v0, CreateTopicsResponse_v1
from aiokafka.protocol.metadata import MetadataResponse_v1
from aiokafka.protocol.transaction import InitProducerIdResponse_v0

VERSIONS, METADATA, NEW_PRODUCER, NEW_TOPICS, COORDINATOR = 18, 3, 22, 19, 10
"""Numbers of requests, as Kafka's protocol has them."""
NO_APIS = bytes(6)
"""Of an answer to ApiVersions: no error, and no request that it knows."""


class Broker:
    """`port` on 127.0.0.1; `heard` = how many requests have come."""

    port = 0
    heard = 0

    def __init__(self, *, deaf: bool) -> None:
        self.deaf = deaf
        self.deaf_to: set[int] = set()
        self.answers: dict[int, bytes] = {}
        """By number of the request; to all others it says that it knows no request."""

    def make_topics(self, *topics: str) -> None:
        """Answer what a worker asks that starts and makes these topics; its group has no coordinator."""
        versions = [(METADATA, 1, 1), (NEW_PRODUCER, 0, 0), (NEW_TOPICS, 1, 1), (COORDINATOR, 0, 0)]
        self.answers = {
            VERSIONS: ApiVersionResponse_v0(0, versions).encode(),
            METADATA: MetadataResponse_v1([(1, "127.0.0.1", self.port, None)], 1, []).encode(),
            NEW_PRODUCER: InitProducerIdResponse_v0(0, 0, 7, 0).encode(),
            NEW_TOPICS: CreateTopicsResponse_v1([(topic, 0, None) for topic in topics]).encode(),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                request = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                self.heard += 1
                asked = int.from_bytes(request[:2])
                if not self.deaf and asked not in self.deaf_to:
                    answer = request[4:8] + self.answers.get(asked, NO_APIS)
                    writer.write(len(answer).to_bytes(4) + answer)
        writer.close()


@asynccontextmanager
async def listening(*, deaf: bool) -> AsyncIterator[Broker]:
    """A broker while the block runs."""
    broker = Broker(deaf=deaf)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
