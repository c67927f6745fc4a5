"""The solver process: answers, is kept warm, and is killed when it does not answer."""

import time
from dataclasses import replace
from multiprocessing.connection import Connection
from threading import Thread
from unittest.mock import ANY

import numpy as np
import psutil
import pytest

from tests.narrow import of_type
from tests.waiting import LIMIT_S, wait_for
from trimtab_controller.solver.answer import Answer, Flows, Hosts, Method, NoAnswer, Placing, Potential, Question
from trimtab_controller.solver.balance import answer, answer_instead
from trimtab_controller.solver.process import (
    GRACE_PER_ROW_S,
    HARD_LIMIT_GRACE_S,
    RESTART_DELAY_S,
    START_LIMIT_S,
    Serve,
    SolverProcess,
    serve,
    serve_collocating,
)

SEARCH_S = 30.0
"""What a question gives the search, which needs a fraction of a second."""


def question(*, owners: tuple[int, ...] = (0,) * 6, draining: tuple[bool, bool] = (False, False)) -> Question:
    """Six key groups of 10 % on the first of two workers; three moves balance them."""
    return Question(
        load=np.full(len(owners), 10.0),
        state_bytes=np.ones(len(owners), np.int64),
        operator=np.zeros(len(owners), np.int32),
        owner=np.array(owners, np.int32),
        capacity=np.ones(2),
        draining=np.array(draining),
        flows=None,
        max_migrations=3,
        max_load_distance=10.0,
        time_limit_s=SEARCH_S,
    )


def serve_for_ever(connection: Connection) -> None:
    connection.send(None)
    connection.recv()
    while True:
        time.sleep(0.01)


def serve_and_die(connection: Connection) -> None:
    connection.send(None)
    connection.recv()


def serve_none(connection: Connection) -> None:
    """Ready, and then deaf, as one that is stopped."""
    connection.send(None)
    time.sleep(LIMIT_S)


def end_at_once(connection: Connection) -> None:
    connection.close()


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def answer_of(process: SolverProcess) -> Answer | NoAnswer:
    found = wait_for(process.poll, "an answer", every_s=0.01)
    assert found is not None
    return found


def wait_until_ready(process: SolverProcess) -> None:
    assert wait_for(lambda: process._ready or process.poll(), "it is ready", every_s=0.01) is True


def test_the_balance_model_answers_in_places() -> None:
    found = of_type(Answer, answer(question()))
    assert (found.status, found.before, found.load_distance, found.lower_bound) == ("optimal", 30.0, 0.0, 0.0)
    assert len(found.moves) == 3
    assert {(type(key_group), target) for key_group, target in found.moves} == {(int, 1)}
    by_flux = of_type(Answer, answer(replace(question(), method=Method.FLUX)))
    assert (by_flux.fallback, by_flux.load_distance) == (False, 0.0)
    assert of_type(Answer, answer_instead(question())) == replace(by_flux, fallback=True, solve_s=ANY)
    assert answer(question(draining=(True, True))) == NoAnswer(reason="all nodes are draining")


@pytest.mark.parametrize(("disk", "moved"), [(10_000.0, 2), (2_000.0, 0)])
def test_albic_exchanges_no_key_groups_where_a_disk_has_no_room_for_arrivals(disk: float, moved: int) -> None:
    """Key groups 0 and 1 are on the first worker, each of them talks to one on the second: an exchange joins them."""
    free = np.full(2, np.inf)
    asked = replace(
        question(owners=(0, 0, 1, 1)),
        state_bytes=np.full(4, 1_000),
        operator=np.array([0, 0, 1, 1], np.int32),
        flows=Flows(
            source=np.array([0, 1], np.int32),
            target=np.array([2, 3], np.int32),
            rate=np.full(2, 100.0),
            send_cost=np.full(2, 0.02),
            receive_cost=np.full(2, 0.02),
            by_broker=np.zeros(2, np.bool_),
        ),
        max_migrations=4,
        max_load_distance=3.0,
        method=Method.ALBIC,
        hosts=Hosts(
            host=np.arange(2, dtype=np.int32),
            cpu=free,
            memory=free,
            disk=np.full(2, disk),
            link=np.full((2, 2), np.inf),
        ),
    )
    found = of_type(Answer, answer(asked))
    assert len(found.moves) == moved
    assert found.collocation is not None
    assert found.collocation.planned == moved / 2
    assert found.load_distance <= 3.0


def test_the_process_answers_by_each_method() -> None:
    process = SolverProcess(serve=serve_collocating, clock=Clock())
    try:
        for method in Method:
            process.ask(replace(question(), method=method))
            found = of_type(Answer, answer_of(process))
            assert (found.collocation is not None) is (method is Method.ALBIC)
            assert found.load_distance <= 10.0
        assert process.kills == 0
    finally:
        process.close()


def test_one_warm_process_answers_question_after_question() -> None:
    process = SolverProcess(serve=serve, clock=Clock())
    try:
        pid = process.pid
        for _ in range(3):
            process.ask(question())
            with pytest.raises(ValueError, match="one question"):
                process.ask(question())
            found = of_type(Answer, answer_of(process))
            assert not found.fallback
        assert (process.pid, process.kills, process.poll()) == (pid, 0, None)
    finally:
        process.close()
    assert not psutil.pid_exists(pid or 0)


@pytest.mark.parametrize("method", [Method.MILP, Method.ALBIC])
def test_a_potential_plan_has_loads_and_no_moves(method: Method) -> None:
    asked = replace(question(draining=(True, False)), method=method, potential=True, max_migrations=6)
    found = of_type(Answer, answer(asked))
    assert (found.moves, found.potential) == ((), Potential(loads=(0.0, 60.0), left=0, in_time=True))
    kept = np.array([True, *[False] * 5])
    frozen = Placing(class_of=np.full(6, -1, np.int32), allowed=np.zeros((0, 2), np.bool_), frozen=kept)
    assert of_type(Answer, answer(replace(asked, placing=frozen))).potential == Potential(
        loads=(10.0, 50.0), left=1, in_time=True
    )


def test_flux_says_nothing_of_a_potential_plan() -> None:
    clock = Clock()
    process = SolverProcess(serve=serve_for_ever, clock=clock)
    try:
        wait_until_ready(process)
        process.ask(replace(question(), potential=True))
        clock.now += SEARCH_S + HARD_LIMIT_GRACE_S + 0.1
        assert isinstance(answer_of(process), NoAnswer)
    finally:
        process.close()


@pytest.mark.parametrize("fault", [serve_for_ever, serve_and_die])
def test_a_solver_that_does_not_answer_is_replaced_and_flux_answers(fault: Serve) -> None:
    clock = Clock()
    process = SolverProcess(serve=fault, clock=clock)
    try:
        pid = process.pid
        wait_until_ready(process)
        process.ask(question())
        clock.now += SEARCH_S + HARD_LIMIT_GRACE_S + 0.1
        found = of_type(Answer, answer_of(process))
        assert (found.fallback, found.load_distance, process.kills) == (True, 0.0, 1)
        assert not psutil.pid_exists(pid or 0)
        process.ask(question())
        assert process.pid != pid
        clock.now += START_LIMIT_S + SEARCH_S + HARD_LIMIT_GRACE_S + 0.1
        assert isinstance(answer_of(process), Answer)
    finally:
        process.close()


def test_a_solver_that_does_not_read_its_question_is_killed_too() -> None:
    """A fleet's question is larger than the pipe, and reading it takes a while."""
    clock = Clock()
    process = SolverProcess(serve=serve_none, clock=clock)
    try:
        wait_until_ready(process)
        asked = question(owners=(0,) * 20_000)
        asking = Thread(target=process.ask, args=(asked,), daemon=True)
        asking.start()
        asking.join(LIMIT_S / 2)
        assert not asking.is_alive(), "whoever asks goes on"
        limit_s = SEARCH_S + HARD_LIMIT_GRACE_S + 20_000 * GRACE_PER_ROW_S
        clock.now = limit_s - 0.1
        assert process.poll() is None
        clock.now = limit_s + 0.1
        found = of_type(Answer, process.poll())
        assert (found.fallback, process.kills) == (True, 1)
    finally:
        process.close()


def test_a_solver_that_cannot_start_is_not_started_again_at_once() -> None:
    clock = Clock()
    process = SolverProcess(serve=end_at_once, clock=clock)
    try:
        first = process.pid
        assert wait_for(lambda: process.poll() or process.kills, "it has ended", every_s=0.01) == 1
        clock.now = RESTART_DELAY_S - 0.1
        assert (process.poll(), process.pid) == (None, first)
        clock.now = RESTART_DELAY_S
        assert process.poll() is None
        assert process.pid != first
    finally:
        process.close()
