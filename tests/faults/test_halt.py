"""A matrix that is told to end judges what it has played."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.played import runs
from tests.faults.played.campaign import Played
from tests.faults.played.cells import Cell, chosen
from tests.faults.played.halt import Halt, Interrupted
from tests.faults.played.runs import run_matrix
from tests.faults.recorded.history import Strike
from tests.faults.recorded.verdict import ALWAYS, IN_ROUNDS, Cost, Verdict

CELLS = chosen(["worker killed:idle", "worker killed:window", "worker killed:decided"])


@pytest.fixture
def halt() -> Iterator[Halt]:
    """It listens during the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    made = Halt()
    made.listen()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


class NoStage:
    """A stage on which nothing runs; `log` = what was done with it."""

    log: list[str] = []  # noqa: RUF012 - one for all stages of a test, emptied by the fixture

    def __init__(self, *_: object) -> None:
        self.folder = Path()

    def __enter__(self) -> "NoStage":
        self.log.append("begun")
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append("ended")

    def come_to_rest(self) -> None:
        self.log.append("at rest")

    def record(self, strikes: list[Strike]) -> None:
        self.log.append(f"recorded {len(strikes)}")


def played(cell: Cell, *, interrupted: bool) -> Played:
    strike = Strike(case=str(cell), at=1.0, over_at=2.0, steered_at=3.0)
    said = Counter(["worker disconnected"])
    return Played(cell=cell, began_at=0.0, target=None, strike=strike, said=said, interrupted=interrupted)


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a signal arrive: "amid" the second cell, or "at rest" behind the last one; or the last be "not reached"."""

    def at(when: str) -> None:
        class NoCampaign:
            def __init__(self, stage: NoStage, seed: int, halt: Halt) -> None:
                self._halt = halt

            def play(self, cell: Cell) -> Played:
                try:
                    with self._halt.cell():
                        if when == "amid" and cell == CELLS[1]:
                            signal.raise_signal(signal.SIGTERM)
                except Interrupted:
                    return played(cell, interrupted=True)
                if when == "not reached" and cell == CELLS[2]:
                    return replace(played(cell, interrupted=False), failure="no round", struck=False)
                return played(cell, interrupted=False)

            def end_a_hand_over(self) -> None:
                if when == "at rest":
                    signal.raise_signal(signal.SIGINT)

        def judge(stage: NoStage) -> Verdict:
            count = int(stage.log[-2].removeprefix("recorded "))
            costs = tuple(Cost(strike=played(cell, interrupted=False).strike, **NOTHING) for cell in CELLS[:count])
            seen = ALWAYS if when == "not reached" else (*ALWAYS, *IN_ROUNDS)
            return Verdict(violations=(), costs=costs, seen=Counter(seen))

        NoStage.log.clear()
        for name, fake in (("Stage", NoStage), ("Campaign", NoCampaign), ("judge", judge)):
            monkeypatch.setattr(runs, name, fake)
        monkeypatch.setattr(runs, "MOST_CELLS", len(CELLS))

    return at


NOTHING: dict[str, Any] = dict.fromkeys(("lost", "repeated", "allowed", "unowned_s", "held_up_s", "unsteered_s"), 0)


def test_a_signal_amid_a_cell_ends_the_matrix_and_the_cells_before_are_judged(
    halt: Halt, signalled: Callable[[str], None]
) -> None:
    signalled("amid")
    results = list(run_matrix([*CELLS, *chosen(["host speaks:idle"])], Path(), None, seed=1, halt=halt))  # type: ignore[arg-type]
    assert [result.cell for result in results] == CELLS[:2]
    assert [result.not_played for result in results] == [[], ["interrupted by a signal"]]
    assert all(result.cost is not None and not result.broken for result in results)
    assert NoStage.log == ["begun", "at rest", "recorded 2", "ended"]


def test_a_signal_behind_the_cells_of_a_stage_lets_them_be_judged(halt: Halt, signalled: Callable[[str], None]) -> None:
    signalled("at rest")
    results = list(run_matrix([*CELLS, *chosen(["host speaks:idle"])], Path(), None, seed=1, halt=halt))  # type: ignore[arg-type]
    assert [result.cell for result in results] == CELLS
    assert all(not result.not_played and not result.broken for result in results)
    assert NoStage.log == ["begun", "at rest", "recorded 3", "ended"]


def test_cells_without_hand_overs_are_judged_also_when_the_one_with_a_hand_over_was_not_reached(
    halt: Halt, signalled: Callable[[str], None]
) -> None:
    signalled("not reached")
    results = list(run_matrix(CELLS, Path(), None, seed=1, halt=halt))  # type: ignore[arg-type]
    assert [result.broken for result in results] == [[], [], []]
    assert [result.not_played for result in results] == [[], [], ["its moment was not reached: no round"]]


def test_a_signal_that_can_lose_nothing_and_a_second_one_end_the_process(halt: Halt) -> None:
    with pytest.raises(SystemExit, match="143"):
        signal.raise_signal(signal.SIGTERM)  # no cell has been played
    assert not halt.asked
    with pytest.raises(Interrupted, match="SIGINT"), halt.cell():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(SystemExit, match="130"):
        signal.raise_signal(signal.SIGINT)  # while the stage comes to rest


def test_a_stage_that_is_judged_has_nothing_left_to_lose(halt: Halt) -> None:
    with halt.cell():
        pass
    halt.judged()
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
