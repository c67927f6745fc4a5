"""The command machine and time, as transcripts: deadlines, and what is remembered for how long."""

import pytest

from tests.agent.commands.agent_transcripts import (
    W0,
    W9,
    ack,
    act,
    command,
    connected,
    machine,
    owning,
    received,
)
from trimtab_agent.commands import ledger
from trimtab_agent.commands.events import AckDelivered, Admitted, SendAck, WorkerAcked, Write
from trimtab_agent.commands.ledger import REMEMBER_S
from trimtab_protocol.messages.commands import CommandKind, Phase


def test_what_is_long_over_is_forgotten_once_it_is_delivered() -> None:
    m = machine(connected(), owning(3))
    rejoin = command(CommandKind.REJOIN)
    act(m, received(rejoin))
    act(m, WorkerAcked(worker=W0, ack=ack(rejoin, Phase.REJOINED)))
    after = rejoin.deadline + REMEMBER_S + 1

    m.on_tick(after)
    assert act(m, received(rejoin), after) == [SendAck(ack=ack(rejoin, Phase.REJOINED))]
    for phase in (Phase.ACCEPTED, Phase.REJOINED):
        delivered = AckDelivered(command_id=rejoin.id, phase=phase)
        assert [len(act(m, delivered)) for _ in range(2)] == [1, 0], "written once"
    m.on_tick(after)
    assert act(m, received(rejoin), after)[0] == Write(
        entry=Admitted(command=rejoin, ack=ack(rejoin, Phase.EXPIRED, after, detail="3601.0 s too late"))
    )


def test_memory_is_bounded_and_what_is_under_way_is_the_last_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_REMEMBERED", 20)
    m = machine(connected())
    under_way = command(CommandKind.REJOIN, 0)
    act(m, received(under_way))
    for number in range(1, 30):
        act(m, received(command(CommandKind.REJOIN, number, worker=W9)))

    remembered = [entry.command for entry in m.entries() if isinstance(entry, Admitted)]
    assert len(remembered) == 20
    assert remembered[0] == under_way
