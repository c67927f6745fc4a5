"""What several tests of the decider speak of: an app on two workers, a round of it, a word to the second worker."""

from trimtab_controller.execution.state import Round
from trimtab_protocol.messages.commands import Command, CommandKind
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId

APP, OPERATOR = AppId("app"), OperatorId("sums")
W0, W1 = WorkerId("w0"), WorkerId("w1")


def kg(partition: int, app: AppId = APP) -> KeyGroup:
    return KeyGroup(app, OPERATOR, partition)


def a_round(ended_at: float | None) -> Round:
    return Round(
        plan="1.2",
        app=APP,
        reason="r",
        status="optimal",
        fallback=False,
        before=30.0,
        planned=2.0,
        lower_bound=1.0,
        started_at=900.0,
        handovers=(),
        ended_at=ended_at,
    )


def to_w1(kind: CommandKind, issued_at: float = 1000.0) -> Command:
    """A stop or a start."""
    return Command(
        cluster="c",
        kind=kind,
        epoch=Epoch(1, 2),
        host=HostId("h1"),
        worker=W1,
        app=None,
        issued_at=issued_at,
        deadline=issued_at + 60.0,
    )
