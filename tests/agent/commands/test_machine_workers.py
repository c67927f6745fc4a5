"""The command machine and its workers, as transcripts: who comes and goes, and who may answer what."""

from dataclasses import replace

import pytest

from tests.agent.commands.agent_transcripts import (
    NOW,
    PROCESS,
    W0,
    W1,
    ack,
    act,
    answered,
    command,
    connected,
    machine,
    owning,
    received,
)
from trimtab_agent.commands.events import ProcessEnded, TellWorker, WorkerAcked, WorkerDisconnected
from trimtab_protocol.messages.commands import Ack, CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import CommandId, Epoch, HostId


def test_a_worker_that_comes_back_is_asked_again_until_the_deadline() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))
    assert act(m, WorkerDisconnected(worker=W0)) == []

    assert act(m, connected(), NOW + 5) == [TellWorker(worker=W0, command=release)]
    assert act(m, connected(), NOW + 61) == []


def test_the_end_of_a_worker_s_process_refuses_what_it_was_doing() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))

    expected = answered(
        release, Phase.REFUSED, refusal=Refusal.WORKER_AWAY, detail="its process ended with unknown exit code"
    )
    assert act(m, ProcessEnded(worker=W0, process=PROCESS, exit_code=None)) == expected
    assert act(m, connected()) == []


@pytest.mark.parametrize(
    "said",
    [
        ack(command(CommandKind.RELEASE, 77), Phase.RELEASED),
        ack(command(CommandKind.RELEASE), Phase.TOOK),
        replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), epoch=Epoch(9, 9)),
        replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), host=HostId("h8")),
        replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), command_id=CommandId("ff")),
        replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), handover="ho9"),
    ],
    ids=["not asked", "phase of another kind", "epoch", "host", "id", "hand-over"],
)
def test_answers_that_nobody_asked_for_change_nothing(said: Ack) -> None:
    m = machine(connected(), owning(3))
    act(m, received(command(CommandKind.RELEASE)))
    before = list(m.entries())

    with pytest.raises(BadMessage):
        act(m, WorkerAcked(worker=W0, ack=said))
    assert list(m.entries()) == before


def test_another_worker_cannot_answer() -> None:
    m = machine(connected(), owning(3), connected(W1))
    release = command(CommandKind.RELEASE)
    act(m, received(release))

    with pytest.raises(BadMessage, match="a command given to w1"):
        act(m, WorkerAcked(worker=W1, ack=ack(release, Phase.RELEASED)))


@pytest.mark.parametrize(
    ("kind", "said"), [(CommandKind.RELEASE, Phase.RELEASED), (CommandKind.PREPARE, Phase.PREPARED)]
)
def test_an_answer_said_twice_is_sent_once(kind: CommandKind, said: Phase) -> None:
    m = machine(connected(), owning(*((3,) if kind is CommandKind.RELEASE else ())))
    asked = command(kind)
    act(m, received(asked))
    act(m, WorkerAcked(worker=W0, ack=ack(asked, said)))

    assert act(m, WorkerAcked(worker=W0, ack=ack(asked, said, NOW + 9))) == []


def test_after_its_end_a_command_has_no_other_end() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))
    act(m, WorkerAcked(worker=W0, ack=ack(release, Phase.RELEASED)))

    refused = ack(release, Phase.REFUSED, NOW + 9, refusal=Refusal.FAILED)
    assert act(m, WorkerAcked(worker=W0, ack=refused)) == []
