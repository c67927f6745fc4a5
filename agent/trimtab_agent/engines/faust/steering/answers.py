"""Remembers the outcomes of each command, so that a repeated command is answered again but not carried out again."""

from collections import OrderedDict

from trimtab_agent.engines.outcomes import Outcome, Report
from trimtab_protocol.messages.names import CommandId

MAX_REMEMBERED = 10_000
"""Number of commands whose answers the worker keeps for repeats."""


class Answer:
    """The outcomes of one command and their listener.

    An agent that restarted sends the command again and then receives all outcomes.
    """

    def __init__(self, report: Report) -> None:
        self._outcomes: list[Outcome] = []
        self._report = report

    def say(self, outcome: Outcome) -> None:
        """Report an outcome."""
        self._outcomes.append(outcome)
        self._report(outcome)

    def repeat(self, report: Report) -> None:
        """Report all outcomes so far, and all later ones, to a new listener."""
        self._report = report
        for outcome in self._outcomes:
            report(outcome)


class Answers:
    """The newest `MAX_REMEMBERED` answers by command."""

    def __init__(self) -> None:
        self._answers: OrderedDict[CommandId, Answer] = OrderedDict()

    def known(self, command: CommandId) -> Answer | None:
        """The answer to a command that was received before; None for a new one."""
        return self._answers.get(command)

    def begin(self, command: CommandId, report: Report) -> Answer:
        """Begin the answer to a new command."""
        answer = self._answers[command] = Answer(report)
        if len(self._answers) > MAX_REMEMBERED:
            self._answers.popitem(last=False)
        return answer
