"""The key groups that name this worker are those of a full look, whatever changes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trimtab_agent.engines.faust.steering.standby_reconciler import NamedHere
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement

APP, HERE = AppId("shop"), WorkerId("w0")
WORKERS = [WorkerId(f"w{number}") for number in range(3)]
ROW = st.lists(st.sampled_from(WORKERS), max_size=3, unique=True).map(tuple)
OWNERS = st.dictionaries(st.sampled_from([OperatorId("a"), OperatorId("b")]), st.lists(ROW, max_size=12), max_size=2)


def looked_up(placement: Placement) -> dict[OperatorId, list[int]]:
    return {operator: [at for at, row in enumerate(rows) if HERE in row] for operator, rows in placement.owners.items()}


@given(st.lists(st.tuples(OWNERS, st.sampled_from([None, 2, 3])), min_size=1, max_size=4), st.data())
def test_following_changes_is_a_full_look(publications: list[tuple[Any, int | None]], data: st.DataObject) -> None:
    named = NamedHere(HERE)
    assert named.follow(None) == {}
    for number, (owners, size) in enumerate(publications):
        placement = Placement(cluster="c", app=APP, epoch=Epoch(1, number), owners=owners, part_size=size)
        for _ in range(3):
            found = {operator: sorted(each) for operator, each in named.follow(placement).items()}
            assert found == looked_up(placement)
            places = [(operator, at) for operator, rows in placement.owners.items() for at in range(len(rows))]
            if places:
                operator, at = data.draw(st.sampled_from(places))
                changed = {KeyGroup(APP, operator, at): data.draw(ROW)}
                placement = placement.changed(placement.epoch, changed)
    assert named.follow(None) == {}
