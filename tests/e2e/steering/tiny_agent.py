"""An agent that notes what the plug-ins say, and sends what it is told."""

import asyncio
import contextlib
import time
from pathlib import Path

from tests.e2e.steering.run_setup import CLUSTER, HOST
from trimtab_protocol.messages.commands import Ack, Command
from trimtab_protocol.messages.local import PROTOCOL, Hello, Statistics, Welcome, decode_frame, encode_frame
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import WorkerState


class Agent:
    """The other end of the plug-ins' socket, for all workers at once."""

    def __init__(self) -> None:
        self.hellos: dict[WorkerId, Hello] = {}
        self.statistics: dict[WorkerId, tuple[float, Statistics]] = {}
        self.acks: list[Ack] = []
        self.news = asyncio.Event()
        self._writers: dict[WorkerId, asyncio.StreamWriter] = {}

    def states(self) -> dict[WorkerId, tuple[WorkerState, int | None]]:
        """State and generation of each worker."""
        return {name: (each.state, each.generation) for name, (_, each) in self.statistics.items()}

    async def serve(self, path: Path) -> asyncio.Server:
        return await asyncio.start_unix_server(self._connected, path=str(path), limit=1 << 24)

    async def send(self, command: Command) -> None:
        if command.worker in self._writers:
            self._writers[command.worker].write(encode_frame(command))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = None
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            hello = decode_frame((await reader.readuntil(b"\n"))[:-1])
            assert isinstance(hello, Hello)
            if hello.worker in self._writers:  # as the real one does: another process has the name
                writer.close()
                return
            self.hellos[hello.worker], self._writers[hello.worker] = hello, writer
            protocol = PROTOCOL if hello.protocol > 1 else None
            writer.write(encode_frame(Welcome(cluster=CLUSTER, host=HOST, interval_s=0.5, protocol=protocol)))
            while True:
                match decode_frame((await reader.readuntil(b"\n"))[:-1]):
                    case Ack() as ack:
                        self.acks.append(ack)
                    case Statistics() as statistics:
                        self.statistics[hello.worker] = (time.time(), statistics)
                self.news.set()
                self.news.clear()
        if hello is not None and self._writers.get(hello.worker) is writer:
            del self._writers[hello.worker]
        writer.close()


def told_by(ack: Ack | None) -> str:
    """What a worker has answered, for people."""
    return "no answer" if ack is None else f"{ack.phase} {ack.refusal or ''} {ack.detail or ''}".strip()
