"""A worker's side of the socket without Faust: the real link, before an app of eight key groups that obeys at once."""

import asyncio
import dataclasses
import inspect
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import trimtab_agent
from trimtab_agent.engines import outcomes
from trimtab_agent.engines.faust import agent_link
from trimtab_protocol.messages.commands import Ack, Command, Phase
from trimtab_protocol.messages.local import Statistics
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import KeyGroupSample, WorkerState

APP, OPERATOR, WORKER = AppId("flights"), OperatorId("sums"), WorkerId(os.environ["TRIMTAB_WORKER"])
NEW = {"standbys": 2, "unknown": "no base yet"}


class App:
    """The ports behind the link: steering and collector."""

    refusal = waits_for = None

    def operators(self) -> dict[OperatorId, int]:
        return {OPERATOR: 8}

    async def execute(self, command: Command, report: Any) -> None:
        print("obeys", command.kind, flush=True)
        of_its_own = vars(outcomes).get("Rejoined")  # in 0.1.0; since then an outcome is its ack
        report(
            of_its_own(generation=4, epoch=command.epoch)
            if of_its_own
            else Ack.to(command, Phase.REJOINED, at=time.time(), generation=4)
        )

    def skip(self) -> None:
        """Nothing was counted."""

    def collect(self, *, at_ms: int, interval_s: float) -> Statistics:
        known = {field.name for field in dataclasses.fields(Statistics)}
        samples = [
            KeyGroupSample(key_group=KeyGroup(APP, OPERATOR, at), worker=WORKER, cpu_s=0.001, tuples_in=10)
            for at in range(8)
        ]
        return Statistics(
            at_ms=at_ms, interval_s=interval_s, state=WorkerState.RUNNING, cpu_s=0.01, epoch=Epoch(1, 1), generation=4,
            complete=True, key_groups=tuple(samples), pairs=(),
            **{name: value for name, value in NEW.items() if name in known},
        )  # fmt: skip


async def main() -> None:
    """Until SIGTERM."""
    print("code", trimtab_agent.__file__, file=sys.stderr)
    app, ended = App(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    connection: Any = vars(agent_link).get("AgentConnection") or vars(agent_link)["Link"]  # its name in 0.1.0
    names = {"steering", "executor", "status"} & inspect.signature(connection.__init__).parameters.keys()
    parts: dict[str, Any] = dict.fromkeys(names, app)
    link = connection(app=APP, worker=WORKER, socket=Path(os.environ["TRIMTAB_SOCKET"]), collector=app, **parts)
    await link.start()
    await ended.wait()
    await link.stop()
    print("faults", dict(link.faults), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
