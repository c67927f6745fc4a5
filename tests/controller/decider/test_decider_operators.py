"""Operators that change: the placement follows what the workers declare."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, OPERATOR, W0, W1
from tests.controller.decider.deciders import BALANCED, NEEDS, ON_W0, SETTINGS, decider, execution, only, window
from trimtab_controller.decider.events import ExecutionChanged, SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.values.decision import Adopted, Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.execution.state import placement_of
from trimtab_protocol.messages.names import Epoch, KeyGroup, OperatorId

TOTALS = OperatorId("totals")


def declared(event: SnapshotArrived, *operators: dict[OperatorId, int]) -> SnapshotArrived:
    """The window, with what its workers declare."""
    nodes = zip(event.snapshot.nodes, operators, strict=True)
    return SnapshotArrived(snapshot=replace(event.snapshot, nodes=tuple(replace(n, operators=o) for n, o in nodes)))


def test_the_placement_follows_renamed_merged_and_shrunk_operators_and_says_so() -> None:
    counts = OperatorId("counts")
    before = {**ON_W0, KeyGroup(APP, counts, 0): W1, KeyGroup(APP, counts, 1): W1}
    now = {KeyGroup(APP, TOTALS, 0): W0, KeyGroup(APP, counts, 0): W1}
    made = decider(execution(before))
    made.on_event(1011.0, window(before))
    decision = only(made.on_event(1021.0, declared(window(now, 1020.0), *[{TOTALS: 1, counts: 1}] * 2)))
    assert decision == Adopted(
        app=APP,
        owners=now,
        detail="operators gone: sums; new: totals; of another size: counts (2 key groups before, now 1): the placement "
        "follows the reports",
    )
    adopted = placement_of("c", APP, Epoch(1, 2), decision.owners, made._situation.execution.placements[APP])
    assert adopted.owners == {TOTALS: ((W0,),), counts: ((W1,),)}


def test_while_workers_of_two_versions_run_nothing_is_decided() -> None:
    versions = declared(window(BALANCED), {OPERATOR: 3}, {TOTALS: 3})
    decision = only(decider(execution(BALANCED)).on_event(1011.0, versions))
    assert isinstance(decision, Skip)
    assert decision.reason is SkipReason.OPERATORS_DIFFER
    assert decision.detail == (
        "app: operators_differ: its workers declare different operators; w0: sums with 3 key groups; "
        "w1: totals with 3 key groups"
    )


def test_what_key_groups_did_is_forgotten_with_them() -> None:
    settings = replace(SETTINGS, min_windows=2)
    made = Decider(settings, NEEDS, execution(BALANCED), acting=True)
    for end_s in (1010.0, 1020.0):
        made.on_event(end_s + 1, window(BALANCED, end_s))
    renamed = {KeyGroup(APP, TOTALS, at): W0 for at in range(3)}
    made.on_event(1022.0, ExecutionChanged(execution=execution(renamed)))
    decision = only(made.on_event(1031.0, declared(window(renamed, 1030.0), *[{TOTALS: 3}] * 2)))
    assert isinstance(decision, Skip)
    assert decision.reason is SkipReason.TOO_FEW_WINDOWS
    assert made._situation.memory.history[APP].windows == 1
