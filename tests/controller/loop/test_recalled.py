"""What a leader finds in its predecessor's status."""

from dataclasses import replace

import pytest

from tests.controller.decider.talking_job import APP, HEAD, TAIL, TalkingJob
from trimtab_controller.decider.events import SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.state import Execution
from trimtab_controller.loop.recovery import recalled_costs
from trimtab_controller.loop.status_builder import StatusBuilder
from trimtab_models.albic.fit import TupleCost, Unknown
from trimtab_protocol.messages.status import decode_status, encode_status


def test_what_remote_tuples_cost_is_found_in_the_status_of_a_predecessor() -> None:
    decider, job = Decider(Settings(), Requirements(max_age_s=1e9), Execution(generation=1), acting=False), TalkingJob()
    for _ in range(6):
        snapshot = job.window()
        decider.on_event(snapshot.end_ms / 1000.0, SnapshotArrived(snapshot=snapshot))
    told = StatusBuilder("c", acting=True).status(1e6, decider, Execution(generation=1), {})
    found = recalled_costs(decode_status(encode_status(told)))
    fits = decider.known.together[APP].fits
    for operator, fit in fits.items():
        assert (found[APP, operator].sending, found[APP, operator].receiving) == tuple(
            cost if isinstance(cost, TupleCost) else Unknown.FEW for cost in (fit.sending, fit.receiving)
        )
    assert isinstance(found[APP, HEAD].sending, TupleCost)
    assert isinstance(found[APP, TAIL].receiving, TupleCost)


@pytest.mark.parametrize("freedom", [None, 0.0])
def test_a_status_that_says_no_costs_recalls_none(freedom: float | None) -> None:
    assert recalled_costs(None) == {}
    decider, job = Decider(Settings(), Requirements(max_age_s=1e9), Execution(generation=1), acting=False), TalkingJob()
    for _ in range(3):
        snapshot = job.window()
        decider.on_event(snapshot.end_ms / 1000.0, SnapshotArrived(snapshot=snapshot))
    told = StatusBuilder("c", acting=True).status(1e6, decider, Execution(generation=1), {})
    [app] = told.apps
    assert app.remote_costs is not None
    rows = tuple(replace(row, sending=replace(row.sending, freedom=freedom)) for row in app.remote_costs.operators)
    changed = replace(told, apps=(replace(app, remote_costs=replace(app.remote_costs, operators=rows)),))
    assert recalled_costs(changed)[APP, HEAD].sending is Unknown.FEW
