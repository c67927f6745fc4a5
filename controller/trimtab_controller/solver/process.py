"""The solver's own process: kept warm, killed when it does not answer in time, and then the greedy method answers."""

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from trimtab_controller.solver.answer import Answer, NoAnswer, Question

log = logging.getLogger(__name__)

HARD_LIMIT_GRACE_S = 1.0
"""The solver keeps its time limit by itself; so much later it is killed."""
START_LIMIT_S = 60.0
"""Importing numpy on a busy machine."""

Serve = Callable[[Connection], None]


def serve(connection: Connection) -> None:
    """The solver process: a question in, an answer out, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the controller, which ends this process
    os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: the searches are sequential, idle threads only cost
    from trimtab_controller.solver.balance import answer

    connection.send(None)
    while True:
        try:
            question: Question = connection.recv()
        except EOFError:
            return
        connection.send(answer(question))


def serve_collocating(connection: Connection) -> None:
    """The same, with OR-Tools loaded before the first question: no plan is to wait for it."""
    import trimtab_models.albic.model  # noqa: F401

    serve(connection)


class SolverProcess:
    """Asks one question at a time; `poll` brings the answer within `time_limit_s` and a little."""

    def __init__(self, *, serve: Serve = serve, clock: Callable[[], float] = time.monotonic) -> None:
        self._serve = serve
        self._clock = clock
        self._question: Question | None = None
        self._deadline = 0.0
        self.kills = 0
        self._start()

    @property
    def busy(self) -> bool:
        """Whether a question waits for its answer."""
        return self._question is not None

    @property
    def pid(self) -> int | None:
        """The id of the present process."""
        return self._process.pid

    def ask(self, question: Question) -> None:
        """Hand in a question."""
        if self._question is not None:
            raise ValueError("one question at a time")
        self._question = question
        self._deadline = self._clock() + self._limit_s(question)
        try:
            self._connection.send(question)
        except OSError:
            self._deadline = self._clock()  # it has died: poll answers

    def poll(self) -> Answer | NoAnswer | None:
        """The answer, or None while there is none yet."""
        try:
            while self._connection.poll():
                received: Answer | NoAnswer | None = self._connection.recv()
                if received is not None:
                    self._question = None
                    return received
                self._become_ready()
        except (EOFError, OSError):
            log.warning("the solver process has died")
            return self._fall_back()
        if self._question is None or self._clock() < self._deadline:
            return None
        log.warning("the solver did not answer within its limit and is killed")
        return self._fall_back()

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.join()

    def _limit_s(self, question: Question) -> float:
        return (0.0 if self._ready else START_LIMIT_S) + question.time_limit_s + HARD_LIMIT_GRACE_S

    def _become_ready(self) -> None:
        self._ready = True
        if self._question is not None:
            self._deadline = self._clock() + self._limit_s(self._question)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._ready = False
        self._process: BaseProcess = context.Process(target=self._serve, args=(theirs,), daemon=True, name="solver")
        self._process.start()
        theirs.close()

    def _fall_back(self) -> Answer | NoAnswer | None:
        self.kills += 1
        self.close()
        self._start()
        question, self._question = self._question, None
        return None if question is None else greedy_or_nothing(question)


def greedy_or_nothing(question: Question) -> Answer | NoAnswer:
    """The greedy answer, bounded by the same limit, in this process; a fault in it is a reason, not a crash."""
    from trimtab_controller.solver.balance import answer_greedily

    try:
        return answer_greedily(question)
    except (ValueError, ArithmeticError, LookupError) as error:
        log.exception("the greedy method failed")
        return NoAnswer(reason=f"the solver did not answer and the greedy method failed: {error}")
