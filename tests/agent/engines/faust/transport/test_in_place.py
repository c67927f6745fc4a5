"""How a worker joins in place: what it offers, which answers count, and when it falls back."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import IllegalGenerationError, KafkaConnectionError, UnknownMemberIdError
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest
from faust.types import TP

from trimtab_agent.engines.faust.safety.fence import Fence, uptime
from trimtab_agent.engines.faust.safety.in_place import COMMON, OWN, MemberInPlace
from trimtab_agent.engines.faust.settings import InPlace
from trimtab_agent.engines.faust.transport.in_place import JOINS, JoinInPlace, in_place_rebalance_s

MINE = frozenset({TP("in", 0), TP("in", 1)})


class Coordinator:
    """aiokafka's coordinator, as far as a join needs it; `answers` = what comes for each request."""

    group_id, coordinator_id, member_id, generation = "g", 7, "m", 4
    _session_timeout_ms = _rebalance_timeout_ms = 1000
    _heartbeat_interval_ms = 3000
    _retry_backoff_ms = 0
    _group_instance_id = None
    _performed_join_prepare = False

    def __init__(self) -> None:
        self.offered: list[list[str]] = []
        self.connections: list[Any] = []
        self.answers: list[Any] = []
        self.revoked = 0
        self._client = SimpleNamespace(send=self._answer)
        self._rejoin_needed_fut: Any = Future()

    async def _answer(self, node: int, request: Any, group: Any) -> Any:
        self.connections.append(group)
        if isinstance(request, JoinGroupRequest):
            self.offered.append([name for name, _ in request._group_protocols])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _send_req(self, request: Any) -> Any:
        raise AssertionError("a join must have a connection of its own")

    async def ensure_active_group(self, subscription: Any, before: Any) -> Any:
        self.revoked += 1
        return subscription.assignment if await self._do_rejoin_group(subscription) else None

    async def _do_rejoin_group(self, subscription: Any) -> bool:
        raise AssertionError("replaced")

    async def _perform_assignment(self, _: Any) -> dict[str, Any]:
        self._on_metadata_change()
        return {}

    def _on_metadata_change(self) -> None:
        raise AssertionError("replaced")

    async def _on_join_complete(self, *_: Any) -> None: ...

    async def _stop_heartbeat_task(self) -> None: ...

    def _start_heartbeat_task(self) -> None: ...

    def _lookup_assignor(self, name: str) -> str:
        return name

    def request_rejoin(self) -> None:
        if not self._rejoin_needed_fut.done():
            self._rejoin_needed_fut.set_result(None)

    def coordinator_dead(self) -> None: ...


class Worker:
    """One worker whose leader is another one."""

    def __init__(self, mode: InPlace = InPlace.ON) -> None:
        self.coordinator, self.member = Coordinator(), MemberInPlace[TP](Fence(10.0, 30.0))
        self.in_place, self.why_not = True, ""
        self.keeps: list[tuple[bool, bool]] = []
        self.told_in: list[int] = []
        self.renewed: list[frozenset[TP]] = []
        self.revoke = False
        assignor = SimpleNamespace(
            metadata=self._metadata, leader_says=lambda _: (self.in_place, self.revoke), protocol=COMMON
        )
        self.joins = JoinInPlace(self.coordinator, assignor, self.member, self, lambda step: step(), mode=lambda: mode)
        self.subscription = SimpleNamespace(topics={"in"}, active=True, assignment=object())

    def _metadata(self, topics: Any, *, keeps: bool, in_place: bool, generation: int) -> Any:
        self.told_in.append(generation)
        self.keeps.append((keeps, in_place))
        return SimpleNamespace(encode=lambda: b"data")

    def may_keep(self) -> str | None:
        return self.why_not or None

    def owned(self) -> frozenset[TP]:
        return MINE

    def renew(self, assignment: Any, new: frozenset[TP], generation: int) -> None:
        assert self.member.barrier
        self.renewed.append(new)

    def answer(self, generation: int, *given: int, protocol: str = OWN, leader: str = "other") -> None:
        rows = ConsumerProtocolMemberAssignment(0, [("in", list(given))], b"").encode()
        self.coordinator.answers += [
            SimpleNamespace(
                error_code=0, member_id="m", generation_id=generation, group_protocol=protocol, leader_id=leader
            ),
            SimpleNamespace(error_code=0, member_assignment=rows),
        ]

    def join(self) -> Any:
        return asyncio.run(self.coordinator.ensure_active_group(self.subscription, None))


@pytest.fixture
def worker() -> Worker:
    """One that has joined, and may keep what it has."""
    worker = Worker()
    worker.answer(4, 0, 1)
    assert worker.join() is not None
    return worker


def test_the_first_join_offers_both_names_and_the_next_only_its_own(worker: Worker) -> None:
    worker.answer(5, 0, 1, 2)
    assert worker.join() is worker.subscription.assignment
    assert worker.coordinator.offered == [[OWN, COMMON], [OWN]]
    assert worker.coordinator.connections == [JOINS] * 4
    assert worker.keeps == [(False, True), (True, True)]
    assert worker.coordinator.revoked == 1
    assert worker.renewed == [{TP("in", 2)}]
    assert worker.told_in == [-1, 4]  # else the broker might answer with the assignment that generation 4 began with
    assert not worker.member.barrier


def test_a_lost_answer_leaves_the_barrier_and_the_claim(worker: Worker) -> None:
    worker.coordinator.answers = [KafkaConnectionError()]
    assert worker.join() is None
    assert worker.member.barrier
    assert worker.coordinator._rejoin_needed_fut.done()
    worker.answer(6, 0, 1)
    worker.join()
    assert not worker.member.barrier
    assert worker.coordinator.revoked == 1


def test_it_revokes_what_the_answer_lacks(worker: Worker) -> None:
    worker.answer(5, 0)
    worker.join()
    assert worker.renewed == []
    assert worker.member.barrier
    worker.answer(6, 0, 1)
    worker.join()
    assert worker.coordinator.revoked == 2
    assert worker.joins.stopped == 1


def test_it_revokes_when_the_leader_says_so_and_then_prefers_the_common_name(worker: Worker) -> None:
    worker.in_place = False
    worker.answer(5, 0, 1)
    worker.join()
    assert worker.renewed == []
    worker.in_place = True
    worker.answer(6, 0, 1, protocol=COMMON)
    worker.join()
    assert worker.coordinator.offered[-1] == [COMMON, OWN]
    assert worker.coordinator.revoked == 2


def test_it_joins_again_when_all_shall_revoke_though_it_has_nothing(worker: Worker) -> None:
    worker.joins.stop_all("a test")
    worker.in_place, worker.revoke = False, True
    worker.answer(5)
    assert worker.join() is None
    assert worker.coordinator._rejoin_needed_fut.done()
    worker.in_place, worker.revoke = True, False
    worker.answer(6, 0, 1, protocol=COMMON)
    worker.join()
    assert not worker.member.barrier
    assert worker.keeps[1:] == [(False, False), (False, False)]  # somebody may not have heard of it


@pytest.mark.parametrize("why", ["doubt", "fence", "not restored", "thrown out", "new subscription"])
def test_any_doubt_means_that_it_revokes_first(worker: Worker, why: str) -> None:
    if why == "doubt":
        worker.joins.stop("a test")
    elif why == "fence":
        worker.member.fence.tripped = True
    elif why == "not restored":
        worker.why_not = "its tables are not restored"
    elif why == "thrown out":
        worker.member.thrown_out()
    else:
        worker.subscription.assignment = None
    worker.answer(5, 0, 1)
    worker.join()
    assert worker.coordinator.revoked == 2
    assert worker.keeps[-1] == (False, True)


def test_who_asks_for_a_rebalance_revokes_and_says_that_all_shall(worker: Worker) -> None:
    worker.joins.stop_all("a test")
    worker.answer(5, 0, 1)
    worker.join()
    assert worker.keeps[-1] == (False, False)
    worker.answer(6, 0, 1)
    worker.join()
    assert worker.keeps[-1] == (True, True)


def test_topics_that_have_changed_stop_all_but_not_those_that_a_new_leader_sees_for_the_first_time(
    worker: Worker,
) -> None:
    worker.answer(5, 0, 1, leader="m")
    worker.join()
    assert (worker.member.doubt, worker.coordinator.revoked) == (None, 1)
    worker.coordinator._on_metadata_change()
    assert worker.member.doubt == "topics have changed"
    worker.answer(6, 0, 1)
    worker.join()
    assert worker.keeps[-1] == (False, False)


def test_an_error_in_between_makes_it_revoke(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "renew", lambda *_: 1 / 0)
    worker.answer(5, 0, 1)
    worker.join()
    assert worker.member.barrier
    worker.answer(6, 0, 1)
    worker.join()
    monkeypatch.setattr(worker, "owned", lambda: 1 / 0)
    worker.answer(7, 0, 1)
    worker.join()
    assert worker.coordinator.revoked == 3


def test_a_group_that_refuses_its_name_makes_it_revoke(worker: Worker) -> None:
    worker.coordinator.answers = [SimpleNamespace(error_code=23)]
    assert worker.join() is None
    assert worker.member.doubt is not None
    worker.answer(6, 0, 1, protocol=COMMON)
    worker.join()
    assert worker.coordinator.offered[-1] == [OWN, COMMON]


def test_a_worker_that_leaves_in_place_never_claims() -> None:
    worker = Worker(InPlace.LEAVE)
    worker.in_place = False
    for generation in (4, 5):
        worker.answer(generation, 0, 1, protocol=COMMON)
        worker.join()
    assert worker.keeps == [(False, False)] * 2
    assert worker.coordinator.offered == [[COMMON, OWN]] * 2


def test_answers_for_a_generation_that_it_leaves_change_nothing(worker: Worker) -> None:
    worker.member.claim(MINE)
    beat = SimpleNamespace(error_code=IllegalGenerationError.errno)
    worker.joins.heard(HeartbeatRequest("g", 4, "m"), beat, uptime())
    assert beat.error_code == 0
    commit = OffsetCommitRequest("g", 4, "m", -1, [])
    refused = SimpleNamespace(topics=[("in", [(0, UnknownMemberIdError.errno)])])
    with pytest.raises(IllegalGenerationError):  # and aiokafka does not leave the group
        worker.joins.heard(commit, refused, uptime())


def test_answers_for_its_own_generation_are_left_as_they_are(worker: Worker) -> None:
    beat = SimpleNamespace(error_code=IllegalGenerationError.errno)
    worker.joins.heard(HeartbeatRequest("g", 4, "m"), beat, uptime())
    assert beat.error_code == IllegalGenerationError.errno
    refused = SimpleNamespace(topics=[("in", [(0, UnknownMemberIdError.errno)])])
    worker.joins.heard(OffsetCommitRequest("g", 4, "m", -1, []), refused, uptime())


def test_the_rebalance_time_out_outlives_a_session() -> None:
    assert in_place_rebalance_s(60.0, 60.0, 3.0) == 72.0
    assert in_place_rebalance_s(60.0, 10.0, 1.0) == 60.0


@pytest.mark.parametrize(("configured_ms", "found_ms"), [(3000, 250), (100, 100)])
def test_a_member_asks_often_whether_the_group_rebalances(
    configured_ms: int, found_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Coordinator, "_heartbeat_interval_ms", configured_ms)
    assert Worker().coordinator._heartbeat_interval_ms == found_ms
