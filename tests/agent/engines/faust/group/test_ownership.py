"""What a worker knows of the app's topics: which of them the broker does not have."""

import time
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP

from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.safety.troubles import TOLD_S, Trouble
from trimtab_agent.engines.faust.steering.worker_status import FaustWorkerStatus
from trimtab_protocol.messages.names import AppId, OperatorId, WorkerId

APP = AppId("app")


def a_worker(known: set[str]) -> tuple[Ownership, FaustWorkerStatus]:
    """What a worker has of itself, on a broker that knows these topics."""
    thread = SimpleNamespace(partition_count=lambda topic: 4 if topic in known else None)
    app: Any = SimpleNamespace(consumer=SimpleNamespace(thread=thread, out_of_reach=lambda: None))
    ownership, unused = Ownership(app, APP), SimpleNamespace()
    shared = PluginState(cluster="c", app=APP, worker=WorkerId("w0"))
    parts: Any = SimpleNamespace(
        app=app,
        shared=shared,
        ownership=ownership,
        standbys=unused,
        reconciler=unused,
        handover=unused,
        work=unused,
        side=unused,
    )
    return ownership, FaustWorkerStatus(parts)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({"orders", "payments", "sums-changelog"}, None),
        ({"payments", "sums-changelog"}, "the broker does not know these topics: orders"),
        ({"orders"}, "the broker does not know these topics: payments, sums-changelog"),
    ],
)
def test_topics_that_the_broker_does_not_know_are_told(known: set[str], told: str | None) -> None:
    ownership, facts = a_worker(known)
    assert facts.waits_for is None, "nothing has been asked for yet"

    layout = Layout(
        named={OperatorId("sums"): frozenset({"orders", "sums-changelog"})},
        sources=frozenset({"orders", "payments"}),
        changelogs=frozenset({"sums-changelog"}),
    )
    ownership.learn(layout)

    assert facts.waits_for == told
    assert {topic for each in ownership.operators().values() for topic in each.topics} == known


def test_a_page_of_the_app_may_ask_whether_its_worker_has_anything() -> None:
    """Faust says so after a rebalance, and a hand-over comes without one."""
    app = faust.App("ks", web_enabled=False)
    app._assignment, app.unassigned = set(), True
    ownership, found = Ownership(app, APP), []
    for tps, own in (({TP("orders", 1)}, True), ({TP("orders", 2)}, True), ({TP("orders", 1), TP("orders", 2)}, False)):
        ownership._assign(tps, own=own)
        found.append(app.unassigned)
    assert found == [False, False, True]


def test_what_has_gone_wrong_with_inputs_and_state_is_told_for_an_hour_and_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ownership, facts = a_worker(set())
    ownership.learn(Layout(named={}, sources=frozenset({"orders"}), changelogs=frozenset()))
    now, troubles = 5000.0, facts._shared.troubles
    monkeypatch.setattr(time, "monotonic", lambda: now)
    seen = []
    for trouble in (None, Trouble.STATE_LOST, Trouble.INPUTS_LOST, Trouble.READ_AGAIN):
        if trouble is not None:
            troubles.tell(trouble, trouble.value)
        seen.append((facts.waits_for, facts.reset, facts.lost))
        now += 10.0

    missing = "the broker does not know these topics: orders"
    assert seen == [
        (missing, False, False),
        ("state_lost", False, True),
        ("inputs_lost", False, True),
        ("read_again", True, True),
    ]
    now = 5010.0 + TOLD_S  # what was told first is over
    assert (facts.waits_for, facts.lost) == ("read_again", True)
    troubles.tell(Trouble.INPUTS_LOST, "7 more")
    now = 5030.0 + TOLD_S
    assert (facts.waits_for, facts.reset, facts.lost) == ("7 more", False, True)
    now = 5010.0 + 2 * TOLD_S
    assert (facts.waits_for, facts.lost) == (missing, False)
