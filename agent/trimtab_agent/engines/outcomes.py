"""What a worker answers to commands, kept for their repeats.  Independent of Faust.

A command may have several answers: a prepare first yields `prepared` and, after the source's release, `took`.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from trimtab_protocol.messages.commands import Ack, Command, Phase, Refusal
from trimtab_protocol.messages.names import CommandId

MAX_REMEMBERED = 10_000
"""Number of commands whose answers the worker keeps for repeats."""
MAX_DETAIL = 4000
"""Characters of a refusal's detail."""

Report = Callable[[Ack], None]


class CommandOutcomes:
    """The outcomes of one command and their listener.

    An agent that restarted sends the command again and then receives all outcomes.
    """

    def __init__(self, command: Command, report: Report, clock: Callable[[], float] = time.time) -> None:
        self._command = command
        self._report = report
        self._clock = clock
        self._acks: list[Ack] = []

    def say(self, phase: Phase, **told: Any) -> None:
        """Report an outcome; `told` = further fields of its ack."""
        ack = Ack.to(self._command, phase, at=self._clock(), **told)
        self._acks.append(ack)
        self._report(ack)

    def refuse(self, refusal: Refusal, detail: str) -> None:
        """The command was not carried out, nothing irrevocable happened; after `prepared`: nothing was taken over."""
        self.say(Phase.REFUSED, refusal=refusal, detail=detail[:MAX_DETAIL] or None)

    def repeat(self, report: Report) -> None:
        """Report all outcomes so far, and all later ones, to a new listener."""
        self._report = report
        for ack in self._acks:
            report(ack)


class Answers:
    """The newest `MAX_REMEMBERED` answers by command."""

    def __init__(self) -> None:
        self._answers: OrderedDict[CommandId, CommandOutcomes] = OrderedDict()

    def known(self, command: CommandId) -> CommandOutcomes | None:
        """The answer to a command that was received before; None for a new one."""
        return self._answers.get(command)

    def begin(self, command: Command, report: Report, clock: Callable[[], float] = time.time) -> CommandOutcomes:
        """Begin the answer to a new command."""
        answer = self._answers[command.id] = CommandOutcomes(command, report, clock)
        if len(self._answers) > MAX_REMEMBERED:
            self._answers.popitem(last=False)
        return answer
