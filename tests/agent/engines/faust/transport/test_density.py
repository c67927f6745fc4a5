"""Looks find how many records a log has, wherever they lie in it, and soon."""

from collections.abc import Callable

import pytest
from faust.types import TP

from trimtab_agent.engines.faust.transport.density import FAR, READ, TURNS, Density

ONE = TP("jobs", 0)
END = 400_000
LOOKS = 10


class Log:
    """The records of a partition."""

    def __init__(self, survives: Callable[[int], bool]) -> None:
        self.offsets = [offset for offset in range(END) if survives(offset)]

    def after(self, offset: int) -> list[int]:
        return [each for each in self.offsets if each >= offset]

    def density(self, offset: int) -> float:
        """As it is found there: by the next records."""
        ahead = self.after(offset)[:READ]
        return len(ahead) / ((ahead[-1] if ahead else END - 1) + 1 - offset)


def turn(density: Density, unread: range, found: Callable[[int], float | None]) -> list[int]:
    """Look as the consumer does; returns the offsets."""
    places: list[int] = []
    density.begin_turn()
    while len(places) < LOOKS and (place := density.place_to_look(ONE, unread)) is not None:
        density.look(ONE, place, found(place))
        places.append(place)
    return places


@pytest.mark.parametrize(
    "survives",
    [
        pytest.param(lambda offset: offset % 50 == 0, id="evenly"),
        pytest.param(lambda offset: offset < 7_500 or offset % 7_000 == 0, id="a short dense head"),
        pytest.param(lambda offset: offset < 150_000 or offset % 500 == 0, id="a long dense head"),
        pytest.param(lambda offset: offset >= 340_000 or offset % 100 == 0, id="a dense tail"),
        pytest.param(lambda offset: not 60_000 < offset < 390_000 or offset % 100 == 0, id="dense at both ends"),
        pytest.param(lambda offset: 150_000 < offset < 300_000 or offset % 100 == 0, id="dense in the middle"),
    ],
)
def test_what_waits_is_known_after_one_turn_and_until_it_is_read(survives: Callable[[int], bool]) -> None:
    log, density = Log(survives), Density()
    density.begin(ONE, 0)
    for number, offset in enumerate(log.offsets):
        density.read(ONE, offset)
        if number < 2 or number % 1_000:
            if number == 2:
                turn(density, range(offset + 1, END), log.density)
            continue
        unread = range(offset + 1, END)
        turn(density, unread, log.density)
        true = len(log.offsets) - number - 1
        assert density.records(ONE, unread) == pytest.approx(true, rel=0.3, abs=1_000), offset


def test_nobody_looks_at_what_is_near_and_hardly_anybody_where_all_is_alike() -> None:
    density = Density()
    density.begin(ONE, 0)
    assert turn(density, range(1, END), lambda _: 1.0) == [], "nothing was read yet"
    density.read(ONE, 0)
    density.read(ONE, 1)
    assert turn(density, range(2, FAR), lambda _: 1.0) == []
    assert len(turn(density, range(2, END), lambda _: 1.0)) <= 5
    assert turn(density, range(2, END), lambda _: 1.0) == []


def test_where_nobody_answers_it_goes_by_what_is_known_and_asks_again_later() -> None:
    density = Density()
    density.begin(ONE, 0)
    for offset in (0, 1):
        density.read(ONE, offset)
    unread = range(2, END)
    turn(density, unread, lambda _: None)
    assert density.records(ONE, unread) is None, "nobody has answered"
    undecided = END - 100_000  # by a transaction
    turn(density, unread, lambda offset: 0.5 if offset < undecided else None)
    assert density.records(ONE, unread) == pytest.approx(END / 2, rel=0.2)
    assert any(place >= undecided for place in turn(density, unread, lambda _: 0.5))


def test_a_place_is_looked_at_again_since_compaction_goes_on() -> None:
    density = Density()
    density.begin(ONE, 0)
    for offset in (0, 100):
        density.read(ONE, offset)
    unread = range(101, END)
    turn(density, unread, lambda _: 1.0)
    assert density.records(ONE, unread) == pytest.approx(END, rel=0.2)
    for _ in range(TURNS + 2):
        turn(density, unread, lambda _: 0.01)
    assert density.records(ONE, unread) == pytest.approx(END / 100, rel=0.1)
