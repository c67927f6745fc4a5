"""Whom Faust's router asks for a key: real apps, joined by hand, and the hand-over records that they read."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from tests.agent.engines.faust.group.test_assignor import FIRST, Worker, placement, rejoin
from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.steering import handover_receiver
from trimtab_agent.engines.faust.steering.handover_receiver import HandoverReceiver
from trimtab_agent.engines.faust.steering.pending_handovers import PendingHandovers
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, WorkerId

MOVED, KEPT, SOURCE = TP("ks-counts-changelog", 0), TP("ks-counts-changelog", 1), TP("in", 0)
GROUP = {MOVED, SOURCE}
URLS = [f"http://w{number}:6066" for number in range(3)]
BEFORE, AFTER = placement(1, [("w0",)] * 6, [("w1",)] * 6), placement(2, [("w2", "w0"), *[("w0",)] * 5], [("w1",)] * 6)


class Asked(Worker):
    """A worker whose router is asked, and that reads hand-over records."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.routes = self.assignor.routes
        self.handover = SimpleNamespace(generation=3)
        ownership = SimpleNamespace(
            known=lambda key_groups: all(each.operator == FIRST for each in key_groups),
            moved=lambda key_groups, *how: self.routes.moved(GROUP if key_groups else (), *how),
        )
        self.assignor.app.producer = SimpleNamespace(key_partition=lambda topic, key: TP(topic, int(key)))
        parts: Any = SimpleNamespace(
            shared=self.shared, handover=self.handover, ownership=ownership, pending=PendingHandovers()
        )
        self.receiver = HandoverReceiver(parts)

    def joined(self, generation: int, *, stable: bool = True) -> None:
        self.assignor.app.consumer_generation_id = self.handover.generation = generation
        self.routes.rebalancing()
        if stable:
            self.routes.stable(self.assignor.assigned_actives())

    def asks(self, tp: TP = MOVED) -> str | None:
        """Which address is asked; None: 503."""
        try:
            key = str(tp.partition).encode()
            ask = self.assignor.external_key_store if tp == SOURCE else self.assignor.key_store
            return str(ask(tp.topic, key))
        except KeyError:
            return None

    def reads(self, **changed: Any) -> None:
        fields: dict[str, Any] = {
            "kind": HandoverKind.TOOK,
            "cluster": "c",
            "app": AppId("ks"),
            "handover": "h",
            "epoch": Epoch(1, 2),
            "generation": 3,
            "source": WorkerId("w0"),
            "target": WorkerId("w2"),
            "key_groups": (KeyGroup(AppId("ks"), FIRST, 0),),
        }
        asyncio.run(self.receiver.receive(HandoverRecord(**{**fields, **changed}), 0.0))


@pytest.fixture
def workers() -> list[Asked]:
    """Three of them; w0 owns all key groups of the first operator, w1 those of the second."""
    found = [Asked(number) for number in range(3)]
    found[0].shared.offer(BEFORE)
    rejoin({f"m{number}": worker for number, worker in enumerate(found)}, leader="m0")
    for worker in found:
        worker.joined(3)
    return found


def give(workers: list[Asked]) -> None:
    """W0 gives the key group away, and w2 takes it."""
    for worker, own in ((workers[0], False), (workers[2], True)):
        active = worker.assignor._active_tps
        worker.assignor._active_tps = active | GROUP if own else active - GROUP
    workers[0].routes.given(GROUP)
    workers[2].routes.taken(GROUP)


def test_all_ask_the_new_owner_as_soon_as_it_says_so_and_the_old_one_never_answers(workers: list[Asked]) -> None:
    assert [worker.asks() for worker in workers] == [URLS[0]] * 3

    give(workers)
    assert [worker.asks() for worker in workers] == [None, URLS[0], URLS[2]]

    for worker in workers:
        worker.shared.offer(AFTER)
        worker.reads()
    assert [worker.asks() for worker in workers] == [URLS[2]] * 3
    assert [worker.asks(SOURCE) for worker in workers] == [URLS[2]] * 3
    assert [worker.asks(KEPT) for worker in workers] == [URLS[0]] * 3
    views = [worker.assignor.changelog_distribution for worker in workers]
    assert [view[URLS[2]][MOVED.topic] for view in views] == [[0]] * 3
    assert [view[URLS[0]][MOVED.topic] for view in views] == [[1, 2, 3, 4, 5]] * 3


@pytest.mark.parametrize(
    "forged", [{"target": WorkerId("w9")}, {"target": WorkerId("w1")}, {"generation": 2}, {"generation": 4}]
)
def test_a_record_that_placement_or_group_do_not_confirm_changes_nothing(
    workers: list[Asked], forged: dict[str, Any]
) -> None:
    for worker in workers:
        worker.shared.offer(AFTER)
        worker.reads(**forged)

    assert [worker.asks() for worker in workers] == [URLS[0]] * 3


def test_a_record_waits_for_its_placement_and_many_of_them_are_dropped(
    workers: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover_receiver, "MAX_UNCONFIRMED", 20)
    for number in range(60):
        workers[1].reads(handover=f"invented-{number}", target=WorkerId("w9"))
    workers[1].reads()
    assert workers[1].asks() == URLS[0]
    assert len(workers[1].receiver._unconfirmed) == 20

    workers[1].shared.offer(AFTER)
    workers[1].receiver.confirm()

    assert workers[1].asks() == URLS[2]


def test_an_owner_asks_itself_whatever_a_record_says(workers: list[Asked]) -> None:
    for worker in workers:
        worker.shared.offer(AFTER)
        worker.reads()  # before w2 has taken it

    assert [worker.asks() for worker in workers] == [URLS[0], URLS[2], URLS[0]]


def test_the_next_rebalance_decides_and_state_is_restored_before_it_is_asked_for(workers: list[Asked]) -> None:
    give(workers)
    workers[1].shared.offer(placement(3, [("w1",), *[("w0",)] * 5], [("w1",)] * 6))

    rejoin({f"m{number}": worker for number, worker in enumerate(workers)}, leader="m0")
    for worker in workers:
        worker.joined(4, stable=False)

    assert [worker.asks() for worker in workers] == [URLS[1], None, URLS[1]]
    assert [worker.asks(KEPT) for worker in workers] == [URLS[0]] * 3, "who keeps it has its state"
    workers[1].joined(4)
    assert workers[1].asks() == URLS[1]
    workers[0].joined(6, stable=False)
    assert workers[0].asks(KEPT) is None, "another worker may have owned it in generation 5"


def test_a_worker_that_stood_still_beyond_its_session_answers_for_nothing(workers: list[Asked]) -> None:
    fence = Fence(10.0)
    workers[0].assignor.app._consumer = SimpleNamespace(fence=fence)
    fence.heard(0.0)  # when the machine started

    assert (workers[0].asks(), workers[1].asks()) == (None, URLS[0])
