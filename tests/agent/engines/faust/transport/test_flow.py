"""Faust's queues, as Faust makes them: they are emptied once for each assignment, when the flow opens."""

import faust

from trimtab_agent.engines.faust.transport.consumer import keep_what_waits


def test_what_waits_is_kept_while_the_flow_is_open_and_dropped_when_it_opens_again() -> None:
    app = faust.App("flow", web_enabled=False)
    flow, queue = app.flow_control, app.tables.changelog_queue
    keep_what_waits(flow)

    queue.force_put_nowait("before the first assignment")
    flow.resume()
    assert queue.empty()
    assert flow.is_active()

    queue.force_put_nowait("of a standby")
    flow.resume()
    assert queue.get_nowait() == "of a standby"

    queue.force_put_nowait("of the assignment before")
    flow.suspend()
    assert not flow.is_active()
    flow.resume()
    assert queue.empty()
    assert flow.is_active()
