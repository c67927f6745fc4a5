"""Rebalances after a loss without standbys: members say which copies of state they have on their disks."""

import pytest

from tests.agent.engines.faust.group.test_assignor import FIRST, SECOND, Worker, placement, rejoin
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.decode import Fault


@pytest.fixture
def workers() -> dict[str, Worker]:
    """Three of them; m1 owns everything of the first operator, and m0 everything of the second."""
    found = {f"m{number}": Worker(number) for number in range(3)}
    for worker in found.values():
        worker.shared.offer(placement(1, [("w1",)] * 6, [("w0",)] * 6))
    rejoin(found, leader="m0")
    return found


def test_orphans_go_to_members_with_a_copy_of_that_operator(workers: dict[str, Worker]) -> None:
    workers["m0"].shared.copies = (Copy(FIRST, 1, 70), Copy(FIRST, 4, 70))
    workers["m2"].shared.copies = (Copy(FIRST, 4, 90), Copy(SECOND, 0, 5), Copy(FIRST, 0, 5))
    del workers["m1"]

    rejoin(workers, leader="m2")

    owned = {name: worker.owns("in") for name, worker in workers.items()}
    assert 1 in owned["m0"]
    assert {0, 4} <= set(owned["m2"])
    assert [len(each) for each in owned.values()] == [3, 3]
    assert workers["m0"].owns("mid") == [0, 1, 2, 3, 4, 5], "what has an owner stays"


@pytest.mark.parametrize("said", [{"o": ["first"], "p": [1]}, {"o": ["first"], "p": [-1], "n": [5]}, [1], {"p": "x"}])
def test_copies_that_are_nonsense_are_counted_and_the_group_goes_on(
    workers: dict[str, Worker], said: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab_agent.engines.faust.group.assignor.write_copies", lambda _: said)
    del workers["m1"]

    rejoin(workers, leader="m2")

    assert [len(worker.owns("in")) for worker in workers.values()] == [3, 3]
    assert sum(workers["m2"].shared.refused[fault] for fault in (Fault.RANGE, Fault.TYPE, Fault.MISSING)) == 2
