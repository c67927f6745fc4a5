"""The command machine and time, as transcripts: deadlines, and what is remembered for how long."""

import pytest

from tests.agent.commands.agent_transcripts import (
    NOW,
    W0,
    W9,
    ack,
    act,
    answered,
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


def test_silence_until_the_deadline_is_expired_and_a_late_answer_still_passes() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))

    assert m.wake_at == release.deadline
    assert m.on_tick(NOW + 59) == ()
    assert list(m.on_tick(NOW + 60)) == answered(release, Phase.EXPIRED, NOW + 60, detail="no answer by the deadline")
    assert (m.wake_at, m.on_tick(NOW + 61)) == (None, ())
    said = ack(release, Phase.RELEASED, NOW + 62)
    assert act(m, WorkerAcked(worker=W0, ack=said), NOW + 62) == answered(release, Phase.RELEASED, NOW + 62)


def test_a_prepared_standby_does_not_expire() -> None:
    m = machine(connected(), owning(4))
    prepare = command(CommandKind.PREPARE)
    act(m, received(prepare))
    act(m, WorkerAcked(worker=W0, ack=ack(prepare, Phase.PREPARED)))

    assert m.on_tick(NOW + 100) == ()


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
