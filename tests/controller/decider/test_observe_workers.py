"""Workers that declare different operators, only report, share a name or run another app."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, OPERATOR, W0, W1, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import WHOLE, look, owned, reason_of, snapshot
from trimtab_controller.decider.memory.observe import Liveness
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.view import MeasuredView
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.snapshot import KeyGroupWindow, NodeWindow, PairWindow, Snapshot

# ---- what the workers declare


TOTALS = OperatorId("totals")


def declaring(*operators: dict[OperatorId, int] | None) -> tuple[NodeWindow, ...]:
    return tuple(node(worker, operators=said) for worker, said in zip((W0, W1), operators, strict=True))


def of(operator: OperatorId, *owners: WorkerId) -> list[KeyGroupWindow]:
    return [replace(owned(at, owner), key_group=KeyGroup(APP, operator, at)) for at, owner in enumerate(owners)]


def seen_with(declared: tuple[NodeWindow, ...], *rows: KeyGroupWindow) -> Snapshot:
    return replace(WHOLE, nodes=declared, key_groups=rows)


def test_the_key_groups_are_those_that_the_workers_declare_whatever_the_placement_says() -> None:
    renamed = {TOTALS: 2}
    found = look(seen_with(declaring(renamed, renamed), *of(OPERATOR, W0, W0, W1), *of(TOTALS, W0, W1)))
    assert isinstance(found, MeasuredView)
    assert found.owners == {KeyGroup(APP, TOTALS, 0): W0, KeyGroup(APP, TOTALS, 1): W1}, "of before the change: none"


def test_of_an_operator_with_fewer_key_groups_than_before_the_others_are_gone() -> None:
    found = look(seen_with(declaring({OPERATOR: 2}, {OPERATOR: 2}), *of(OPERATOR, W0, W1, W1)))
    assert isinstance(found, MeasuredView)
    assert found.owners == {kg(0): W0, kg(1): W1}


def test_what_is_declared_and_not_reported_is_missing() -> None:
    more = {OPERATOR: 3, TOTALS: 2}
    found = look(seen_with(declaring(more, more), *WHOLE.key_groups, *of(TOTALS, W0)))
    assert isinstance(found, NotReady)
    assert (found.reason, found.detail) == (
        SkipReason.KEY_GROUPS_MISSING,
        "1 key groups were not reported: totals/1",
    )


def test_workers_that_declare_different_operators_are_named_with_what_they_declare() -> None:
    sides = declaring({OPERATOR: 3, TOTALS: 2}, {OPERATOR: 4, TOTALS: 2})
    found = look(seen_with(sides, *of(OPERATOR, W0, W0, W1), *of(TOTALS, W0, W1)))
    assert isinstance(found, NotReady)
    assert (found.reason, found.detail) == (
        SkipReason.OPERATORS_DIFFER,
        "its workers declare different operators; w0: sums with 3 key groups; w1: sums with 4 key groups",
    )
    found = look(seen_with(declaring({OPERATOR: 3}, {OPERATOR: 3, TOTALS: 2}), *WHOLE.key_groups))
    assert isinstance(found, NotReady)
    assert found.detail.endswith("w0: no more than the others; w1: totals with 2 key groups")


def test_that_workers_differ_is_said_rather_than_that_they_do_not_steer_meanwhile() -> None:
    """The plug-ins see it, too: none hands over while the versions of the app differ."""
    nodes = tuple(replace(row, steering=False) for row in declaring({OPERATOR: 3}, {TOTALS: 3}))
    assert reason_of(look(seen_with(nodes, *WHOLE.key_groups))) is SkipReason.OPERATORS_DIFFER
    same = tuple(replace(row, steering=False) for row in declaring({OPERATOR: 3}, {OPERATOR: 3}))
    assert reason_of(look(seen_with(same, *WHOLE.key_groups))) is SkipReason.WORKER_NOT_STEERING


def test_workers_that_only_report_are_named_with_their_reasons() -> None:
    reason, w2 = "workers differ in their topics: w0 against w1", WorkerId("w2")
    nodes = (node(w2, steering=False), *(node(name, steering=False, reason=reason) for name in (W0, W1)))
    found = look(replace(WHOLE, nodes=nodes))
    assert isinstance(found, NotReady)
    assert found.detail == f"workers that only report: w2 (no reason is given), w0, w1 ({reason})"
    waiting = replace(WHOLE, nodes=(node(W0, reason="the broker does not know these topics: a"), node(W1)))
    assert isinstance(look(waiting), MeasuredView)


def test_while_an_agent_does_not_say_it_the_placement_tells_the_key_groups() -> None:
    assert isinstance(look(seen_with(declaring({OPERATOR: 3}, None), *WHOLE.key_groups)), MeasuredView)
    renamed = seen_with(declaring({TOTALS: 3}, None), *of(TOTALS, W0, W0, W1))
    assert reason_of(look(renamed)) is SkipReason.KEY_GROUPS_MISSING


def test_pairs_of_key_groups_that_are_gone_are_left_out() -> None:
    pairs = tuple(
        PairWindow(source=kg(0), target=target, tuples_s=1.0, bytes_s=1.0)
        for target in (kg(1), kg(2), KeyGroup(APP, TOTALS, 0))
    )
    seen = seen_with(declaring({OPERATOR: 2}, {OPERATOR: 2}), *of(OPERATOR, W0, W1))
    found = look(replace(seen, pairs=pairs))
    assert isinstance(found, MeasuredView)
    assert found.flows == {(kg(0), kg(1)): 1.0}


def test_two_workers_under_one_name_are_named_with_their_hosts() -> None:
    found = look(replace(WHOLE, nodes=(node(W0, also_on=(HostId("h7"),)), node(W1))))
    assert isinstance(found, NotReady)
    assert (found.reason, found.detail) == (
        SkipReason.WORKER_TWICE,
        "workers that run on several hosts under one name: w0 (h0, h7)",
    )


def test_who_owns_nothing_and_declares_other_operators_stops_no_plan_of_the_others() -> None:
    """Any host may say that it runs the app: its word does not count against that of all owners."""
    foreign = node(WorkerId("w9"), operators={TOTALS: 7})
    nodes = (node(W0, operators={OPERATOR: 3}), node(W1, operators={OPERATOR: 3}), foreign)
    found = look(replace(WHOLE, nodes=nodes))
    assert isinstance(found, MeasuredView)
    assert [worker.id for worker in found.workers] == [W0, W1]
    assert [(each.id, each.reason) for each in found.fixed] == [("w9", SkipReason.OPERATORS_DIFFER)]
    assert found.sizes == {OPERATOR: 3}


def test_owners_that_differ_and_workers_of_an_app_without_a_placement_stop_its_plans() -> None:
    foreign = node(WorkerId("w9"), operators={TOTALS: 7})
    apart = (node(W0, operators={OPERATOR: 3}), node(W1, operators={TOTALS: 3}), foreign)
    assert reason_of(look(replace(WHOLE, nodes=apart))) is SkipReason.OPERATORS_DIFFER
    alike = (node(W0, operators={OPERATOR: 3}), node(W1, operators={OPERATOR: 3}), foreign)
    assert reason_of(look(replace(WHOLE, nodes=alike), placement=None)) is SkipReason.OPERATORS_DIFFER


OTHER = AppId("other")


def test_a_worker_that_was_started_again_with_another_app_is_none_of_this_one() -> None:
    liveness = Liveness()
    seen = replace(WHOLE, nodes=(node(W0), node(W1, app=OTHER)), key_groups=tuple(owned(at, W0) for at in range(3)))
    for part in (WHOLE, seen):
        liveness.observe(part, [W0, W1])
    found = look(seen, liveness=liveness)
    assert isinstance(found, MeasuredView)
    assert [worker.id for worker in found.workers] == [W0], "nothing is planned for w1, and nobody waits for it"


def test_an_app_whose_workers_all_have_another_one_now_has_none() -> None:
    nodes = (node(W0, app=OTHER), node(W1, app=OTHER))
    liveness = Liveness()
    liveness.observe(replace(WHOLE, nodes=nodes), [W0, W1])
    found = look(replace(WHOLE, nodes=nodes, key_groups=()), liveness=liveness)
    assert isinstance(found, NotReady)
    assert (found.reason, found.detail) == (SkipReason.NO_WORKERS, "no worker reports")


def test_with_a_forgotten_app_go_its_silent_hosts_but_none_on_which_another_one_ran() -> None:
    other, shared = AppId("other"), HostId("h0")
    before = snapshot(
        [node(W0), node(W1, app=other), node(WorkerId("w2"), app=other, host=shared), node(WorkerId("w3"), app=other)],
        [],
    )
    liveness = Liveness()
    liveness.observe(before, [])
    liveness.forget_app(other, reporting=[HostId("h3")])
    assert sorted(liveness.hosts) == ["h0", "h3"], "not h1; h3 reports still"
    liveness.forget_worker(W0, reporting=[])
    assert sorted(liveness.hosts) == ["h3"], "nobody else is known to have run on h0"
