"""A broker that takes connections, and answers nothing else; it may be deaf."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

NO_APIS = bytes(6)
"""Of an answer to ApiVersions: no error, and no request that it knows."""


class Broker:
    """`port` on 127.0.0.1; `heard` = how many requests have come."""

    port = 0
    heard = 0

    def __init__(self, *, deaf: bool) -> None:
        self.deaf = deaf

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                request = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                self.heard += 1
                if not self.deaf:
                    answer = request[4:8] + NO_APIS
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
