"""A worker that speaks the plug-in's side of the agent's socket.

An agent can start it: `python fake_worker.py` connects as the environment says and answers like a plug-in.  It imports
nothing of the tests, so that it runs without their PYTHONPATH.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Sequence

from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.local import Hello, Statistics, Welcome, decode_frame, encode_frame
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import KeyGroupSample, WorkerState

APP, OPERATOR = AppId("flights"), OperatorId("sums")
ANSWERS = {
    CommandKind.PREPARE: (Phase.PREPARED, Phase.TOOK),
    CommandKind.RELEASE: (Phase.RELEASED,),
    CommandKind.ABANDON: (Phase.ABANDONED,),
    CommandKind.REJOIN: (Phase.REJOINED,),
}


class FakeWorker:
    """A worker that owns `owned` partitions, reports them, and answers every command in a moment."""

    def __init__(self, path: str, worker: str, owned: Sequence[int], interval_s: float = 0.2) -> None:
        self.path, self.worker, self.owned = path, WorkerId(worker), list(owned)
        self.interval_s = interval_s
        self.commands: list[Command] = []
        self.answer = True
        self.stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True)]
        self._threads[0].start()

    def _run(self) -> None:
        """Connect for ever."""
        while not self.stop.wait(0.1):
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(self.path)
                    self._speak(connection)
            except OSError:
                continue

    def _speak(self, connection: socket.socket) -> None:
        hello = Hello(
            app=APP, worker=self.worker, pid=os.getpid(), steering=True, reason=None,
            operators={OPERATOR: 8}, versions={"fake": "1"},
        )  # fmt: skip
        connection.sendall(encode_frame(hello))
        connection.settimeout(self.interval_s)
        buffer = b""
        while not self.stop.is_set():
            try:
                received = connection.recv(65536)
                if not received:
                    return
                buffer += received
            except TimeoutError:
                connection.sendall(encode_frame(self._statistics()))
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                self._obey(connection, decode_frame(line))

    def _obey(self, connection: socket.socket, frame: object) -> None:
        if not isinstance(frame, Command):
            assert isinstance(frame, Welcome)
            return
        self.commands.append(frame)
        for phase in ANSWERS[frame.kind] if self.answer else ():
            pause_s = 0.12 if phase is Phase.TOOK else None
            ack = Ack.to(frame, phase, at=time.time(), pause_s=pause_s)
            connection.sendall(encode_frame(ack))

    def _statistics(self) -> Statistics:
        samples = [
            KeyGroupSample(key_group=KeyGroup(APP, OPERATOR, p), worker=self.worker, cpu_s=0.001, tuples_in=10)
            for p in self.owned
        ]
        return Statistics(
            at_ms=round(time.time() * 1000), interval_s=self.interval_s, state=WorkerState.RUNNING, cpu_s=0.01,
            epoch=Epoch(1, 1), generation=4, complete=True, key_groups=tuple(samples), pairs=(),
        )  # fmt: skip

    def close(self) -> None:
        self.stop.set()
        self._threads[0].join(5)


def main() -> None:
    """A worker without key groups; SIGTERM ends it with exit code 7."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    FakeWorker(os.environ["TRIMTAB_SOCKET"], os.environ["TRIMTAB_WORKER"], []).stop.wait()


if __name__ == "__main__":
    main()
