"""The self-fence, with a clock that is told what time it is."""

import pytest

from trimtab_agent.engines.faust.safety import fence as module
from trimtab_agent.engines.faust.safety.fence import Fence


class FlowControl:
    active = True

    def is_active(self) -> bool:
        return self.active


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module, "uptime", lambda: now[0])
    return now


def test_before_the_first_join_nothing_is_held_back(clock: list[float]) -> None:
    clock[0] = 1e9
    assert Fence(10.0).lets_through()


def test_open_while_the_session_lasts_counted_from_the_sending_of_the_heartbeat(clock: list[float]) -> None:
    fence = Fence(10.0)
    fence.heard(100.0)

    assert not fence.closed(110.0)
    assert fence.closed(110.1)


def test_after_a_refused_event_it_stays_shut_until_the_next_generation(clock: list[float]) -> None:
    fence = Fence(10.0)
    fence.heard(100.0)
    clock[0] = 111.0
    assert not fence.lets_through()

    fence.heard(111.0)  # the broker still knows us: what is held back may leave, but the queue has a hole
    assert not fence.closed(111.0)
    assert not fence.lets_through()

    fence.renew()
    assert fence.lets_through()


def test_a_lost_membership_shuts_it_at_once(clock: list[float]) -> None:
    fence = Fence(10.0)
    fence.heard(100.0)
    fence.lose()

    assert fence.closed(100.0)
    assert not fence.lets_through()


def test_streams_ask_it_through_the_flow_control(clock: list[float]) -> None:
    fence, flow = Fence(10.0), FlowControl()
    fence.guard(flow)
    fence.heard(100.0)
    assert flow.is_active()

    clock[0] = 111.0
    assert not flow.is_active()

    fence.renew()
    fence.heard(111.0)
    FlowControl.active = False
    try:
        assert not flow.is_active()
    finally:
        FlowControl.active = True
