"""Runs the solver in a warm process.  If it does not answer in time, it is killed and Flux answers."""

import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from trimtab_controller.solver.answer import Answer, NoAnswer, Question

log = logging.getLogger(__name__)

HARD_LIMIT_GRACE_S = 1.0
"""How long after its time limit the solver is killed; normally it keeps the limit by itself."""
GRACE_PER_ROW_S = 5e-5
"""Additional time for each key group and flow.  In a large problem the search notices its limit late, by up to a tenth
of this."""
START_LIMIT_S = 60.0
"""How long the solver's process may take to start; it imports numpy, possibly on a busy machine."""
RESTART_DELAY_S = 10.0
"""How long after its end the process is restarted, unless a question comes first; it may be unable to start."""

Serve = Callable[[Connection], None]


def serve(connection: Connection) -> None:
    """The solver process: a question in, an answer out, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller handles Ctrl-C and ends this process
    from trimtab_controller.solver.balance import answer

    connection.send(None)
    while True:
        try:
            question: Question = connection.recv()
        except EOFError:
            return
        connection.send(answer(question))


def serve_collocating(connection: Connection) -> None:
    """Like `serve`, but load OR-Tools and ALBIC before the first question, so that no plan waits for it."""
    import trimtab_models.albic.model
    import trimtab_models.albic.solve  # noqa: F401

    serve(connection)


class SolverProcess:
    """Asks one question at a time; `poll` returns the answer shortly after `time_limit_s` at the latest."""

    def __init__(self, *, serve: Serve = serve, clock: Callable[[], float] = time.monotonic) -> None:
        self._serve = serve
        self._clock = clock
        self._question: Question | None = None
        self._sender: threading.Thread | None = None
        self._deadline = 0.0
        self._start_at = 0.0
        self.kills = 0
        self._start()

    @property
    def pid(self) -> int | None:
        """The id of the current process."""
        return self._process.pid

    def ask(self, question: Question) -> None:
        """Ask a question."""
        if self._question is not None:
            raise ValueError("one question at a time")
        if self._connection.closed:
            self._start()
        self._question = question
        self._deadline = self._clock() + self._limit_s(question)
        # A large question does not fit in the pipe, so writing blocks until the process reads.
        self._sender = threading.Thread(target=_send, args=(self._connection, question), daemon=True)
        self._sender.start()

    def poll(self) -> Answer | NoAnswer | None:
        """The answer, or None while there is none yet."""
        if self._connection.closed:
            if self._clock() >= self._start_at:
                self._start()
            return None
        try:
            while self._connection.poll():
                received: Answer | NoAnswer | None = self._connection.recv()
                if received is not None:
                    self._question = None
                    return received
                self._become_ready()
        except (EOFError, OSError):
            log.warning("the solver process died")
            return self._fall_back()
        if self._question is None or self._clock() < self._deadline:
            return None
        log.warning("the solver exceeded its time limit, killing it")
        return self._fall_back()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        if self._sender is not None:
            self._sender.join()  # it ends, because its process is gone
        self._connection.close()

    def _limit_s(self, question: Question) -> float:
        grace_s = HARD_LIMIT_GRACE_S + GRACE_PER_ROW_S * question.rows
        return (0.0 if self._ready else START_LIMIT_S) + question.time_limit_s + grace_s

    def _become_ready(self) -> None:
        self._ready = True
        if self._question is not None:
            self._deadline = self._clock() + self._limit_s(self._question)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._ready = False
        self._sender = None
        self._process: BaseProcess = context.Process(target=self._serve, args=(theirs,), daemon=True, name="solver")
        self._process.start()
        theirs.close()

    def _fall_back(self) -> Answer | NoAnswer | None:
        self.kills += 1
        self.close()
        self._start_at = self._clock() + RESTART_DELAY_S
        question, self._question = self._question, None
        return None if question is None else instead_or_nothing(question)


def _send(connection: Connection, question: Question) -> None:
    with suppress(OSError):  # the process has died; `poll` notices it
        connection.send(question)


def instead_or_nothing(question: Question) -> Answer | NoAnswer:
    """The plan of Flux, computed in this process within the same limit; an error becomes a NoAnswer.

    Flux says nothing about a potential plan.
    """
    if question.potential:
        return NoAnswer(reason="the solver did not answer")
    from trimtab_controller.solver.balance import answer_instead

    try:
        return answer_instead(question)
    except (ValueError, ArithmeticError, LookupError) as error:
        log.exception("Flux failed")
        return NoAnswer(reason=f"the solver did not answer and Flux failed: {error}")
