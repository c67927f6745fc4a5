"""What can go wrong between a program and the console."""

from trimtab_protocol.console_documents import Problem


class ConsoleError(Exception):
    """Base of all errors of this package.

    `key` = the idempotency key of the change that was asked for: ask again with it to have it carried out once.
    """

    key: str | None = None


class BadAccess(ConsoleError):
    """Address, token or certificate cannot be used; nothing was sent."""


class Unreachable(ConsoleError):
    """No answer came.  Whether a change was carried out is unknown.  `for_good`: the same would happen again."""

    def __init__(self, text: str, *, for_good: bool = False) -> None:
        self.for_good = for_good
        super().__init__(text)


class BadAnswer(ConsoleError):
    """The answer is not what this version of the client understands."""


class Changed(ConsoleError):
    """A list changed in a way that its pages do not fit together: read it again."""


class ProblemError(ConsoleError):
    """The console refused the request: its problem details (RFC 9457).

    `retry_after_s` = how long it asks to wait, None if it does not say.
    """

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        self.problem = problem
        self.retry_after_s = retry_after_s
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status
