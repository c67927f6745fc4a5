"""What was answered to each command: a repeat is answered again, not carried out again."""

from collections import OrderedDict

from trimtab_agent.engines.outcomes import Outcome, Report
from trimtab_protocol.messages.names import CommandId

MAX_REMEMBERED = 10_000
"""Commands whose answers the worker keeps, to answer a repeat."""


class Answer:
    """The outcomes of one command, and where they go; an agent that restarted asks again, and hears all of them."""

    def __init__(self, report: Report) -> None:
        self._outcomes: list[Outcome] = []
        self._report = report

    def say(self, outcome: Outcome) -> None:
        """Report an outcome."""
        self._outcomes.append(outcome)
        self._report(outcome)

    def repeat(self, report: Report) -> None:
        """Report all outcomes so far to another listener, who gets the later ones too."""
        self._report = report
        for outcome in self._outcomes:
            report(outcome)


class Answers:
    """The newest `MAX_REMEMBERED` answers by command."""

    def __init__(self) -> None:
        self._answers: OrderedDict[CommandId, Answer] = OrderedDict()

    def known(self, command: CommandId) -> Answer | None:
        """The answer to a command that has been seen."""
        return self._answers.get(command)

    def begin(self, command: CommandId, report: Report) -> Answer:
        """The answer to a new command."""
        answer = self._answers[command] = Answer(report)
        if len(self._answers) > MAX_REMEMBERED:
            self._answers.popitem(last=False)
        return answer
