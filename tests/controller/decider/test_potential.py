"""The potential plan that a size rests on: when the solver is asked, and what its answer changes.

The solver is the real one.  Where it gives no answer, the pass over the key groups decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from tests.controller.decider.decider_situations import APP, a_load, a_node, a_window, kg
from tests.controller.decider.deciders import NEEDS, SETTINGS, answer, execution
from tests.controller.decider.hosted_job import Ticks
from tests.controller.decider.sized_apps import ACT, facts, verdict, word
from tests.narrow import of_type, only_one
from trimtab_controller.decider.events import Action, Decided, SnapshotArrived, Solve, SolverAnswered
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.policies.potential import PotentialLoads
from trimtab_controller.decider.policies.sizes import STANDS_S
from trimtab_controller.decider.values.decision import Resized, SizeDirection, SizeVerdict, Skip
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.solver.answer import Answer, Method, NoAnswer
from trimtab_controller.solver.balance import answer as solved
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.snapshot import PairWindow

SOLVER, PASS = "; potential plan: solver", "; potential plan: one pass, as the solver gave no answer"
QUICK = replace(ACT, scale_up_delay_s=20.0, scale_down_delay_s=20.0)
SIZES_ALONE = replace(SETTINGS, min_windows=1000)


@dataclass
class Job:
    """`loads` = cores of the key groups of each worker; `talks` = pairs of them with tuples per second."""

    loads: Sequence[Sequence[float]]
    scaling: ScalingSettings = QUICK
    settings: Settings = SIZES_ALONE
    capacity: float = 1.0
    talks: dict[tuple[int, int], float] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    state_bytes: Sequence[int] = ()
    acting: bool = True
    answers: bool = True
    at: float = 1000.0
    asked: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.owners: dict[KeyGroup, WorkerId] = {}
        for place, loads in enumerate(self.loads):
            for _ in loads:
                self.owners[kg(len(self.owners))] = WorkerId(f"w{place}")
        present = execution(self.owners)
        self.decider = Decider(
            self.settings, NEEDS, present, acting=self.acting, scaling=self.scaling, rules=self.rules
        )

    @property
    def verdict(self) -> SizeVerdict:
        return self.decider.known.sizes[APP]

    def window(self) -> SnapshotArrived:
        """The next one; one worker more can be started."""
        self.at += 10.0
        cpu = [load for loads in self.loads for load in loads]
        nodes = [
            a_node(f"w{place}", capacity=self.capacity, cpu=sum(loads), standbys=0, declared=APP)
            for place, loads in enumerate(self.loads)
        ]
        idle = replace(
            nodes[0], worker=WorkerId("w9"), host=HostId("h9"), app=None, state=WorkerState.AWAY, cpu=None,
            steering=False, absence=Absence.STOPPED,
        )  # fmt: skip
        state_bytes = self.state_bytes or [1000] * len(cpu)
        rows = [
            a_load(each, owner, cpu[each.partition], state_bytes=state_bytes[each.partition])
            for each, owner in self.owners.items()
        ]
        pairs = tuple(
            PairWindow(source=kg(one), target=kg(other), tuples_s=rate, bytes_s=0.0)
            for (one, other), rate in self.talks.items()
        )
        return SnapshotArrived(snapshot=a_window(self.at, [*nodes, idle], rows, pairs=pairs))

    def play(self, windows: int = 2) -> list[Action]:
        """So many windows, with the solver's answers; the last actions."""
        actions: list[Action] = []
        for _ in range(windows):
            actions = self.decider.on_event(self.at + 11.0, self.window())
            while actions and isinstance(actions[-1], Solve):
                view = actions.pop().view
                assert view.potential is not None
                self.asked.append(self.at)
                found: Answer | NoAnswer = NoAnswer(reason="late")
                if self.answers:
                    found = solved(question_of(view, self.settings, 10.0), Ticks())
                actions += self.decider.on_event(self.at + 1.0, SolverAnswered(answer=found))
        return actions


def resized(actions: list[Action]) -> Resized:
    return of_type(Resized, only_one(Decided, actions).decision)


# ---- a smaller cluster


UNEVEN = Job(
    [[0.39], [0.39], [0.26, 0.26], [0.26]], scaling=replace(QUICK, target_utilisation=0.8), state_bytes=[1, 1, 9, 9, 9]
)
"""Two workers can carry 3 + 3 and 2 + 2 + 2; the heaviest first, each on the emptier one, gives 3 + 2 + 2 and 3 + 2."""
POOL = Rule(name="fast", kind=RuleKind.POOL, reason="SSDs", key_groups=((0, 2),), workers=("w0", "w1", "w2"))
POOLED = Job([[0.5], [0.5], [0.5], [0.05], [0.05]], rules=(POOL,), state_bytes=[1, 9, 9, 5, 9])
"""Four workers can carry this, but the three heavy key groups must share two of them."""


def again(job: Job, **changes: object) -> Job:
    return replace(job, asked=[], **changes)  # type: ignore[arg-type]


def test_a_smaller_cluster_that_the_pass_cannot_balance_is_one_that_the_solver_can() -> None:
    job = again(UNEVEN)
    found = resized(job.play())
    assert (found.drain, found.detail.endswith(f"wanted 2: demand below 40% for 20 s{SOLVER}")) == (("w0", "w1"), True)
    assert resized(again(UNEVEN, answers=False).play()).drain == ("w0",), "the pass balances three workers"


def test_a_smaller_cluster_that_the_pass_balances_is_one_that_rules_forbid() -> None:
    job = again(POOLED)
    job.play(4)
    assert (job.verdict.direction, job.verdict.asks) == (SizeDirection.STAY, None)
    assert job.verdict.detail.endswith(f"4 workers could not be balanced below 85%{SOLVER}")
    assert job.asked == [1020.0, 1020.0], "for three workers and for four; neither is asked again in the next windows"
    found = resized(again(POOLED, answers=False).play())
    assert (len(found.drain), found.detail.endswith(PASS)) == (2, True)


def test_what_was_refused_is_asked_again_after_a_while_and_once_the_change_has_been_wanted_long_enough() -> None:
    job = again(POOLED)
    job.play(2 + round(STANDS_S / 10.0) + 2)
    assert job.asked == [1020.0, 1020.0, 1020.0 + STANDS_S + 10.0, 1020.0 + STANDS_S + 10.0]


def test_a_solver_that_gives_no_answer_is_left_alone_for_a_while() -> None:
    job = again(POOLED, answers=False, scaling=replace(QUICK, mode=Mode.ADVISE))
    job.play(10)
    assert job.asked == [1020.0]
    assert job.verdict.detail.endswith(f"{PASS} (advise: nothing is changed)")


def test_what_parting_key_groups_costs_counts_after_a_loss_too() -> None:
    """Two workers would be at 45 %, and the survivor of a loss at 90 %; with what the plan parts at 110 %."""
    seen = facts(3, 0.9, asks=True, standbys=1)
    assert verdict(replace(seen, potentials=plans("w01", "w02"))).wanted == 2
    parted = verdict(replace(seen, potentials=plans("w01", "w02", saving=-0.2)))
    assert "2 workers would be at 110% at least after the loss of a host" in parted.detail
    saved = verdict(replace(seen, demand=1.1, potentials=plans("w01", "w02", saving=0.5)))
    assert saved.wanted == 3, "what collocation is to save does not count"


# ---- more workers


def talking(loads: Sequence[float], **changes: object) -> Job:
    """Pairs of key groups that are apart, on two workers of half a core."""
    pairs = len(loads)
    places: list[list[float]] = [[], []]
    for load in (*loads, *loads):
        places[0].append(load / 2.0)
    made = Job([places[0][:pairs], places[0][:pairs]], capacity=0.5, **changes)  # type: ignore[arg-type]
    return replace(made, talks={(each, pairs + each): 1.5 for each in range(pairs)})


COLLOCATING = replace(SIZES_ALONE, method=Method.ALBIC, remote_tuple_cpu_s=0.02)
EVEN, ODD = [0.093] * 10, [0.225, 0.225, 0.16, 0.16, 0.16]


def test_collocation_that_the_pass_cannot_fit_avoids_a_new_worker() -> None:
    """Each pair saves 0.03 of its cores; then two workers carry 3 + 3 and 2 + 2 + 2 units of 0.065."""
    job = talking(ODD, settings=COLLOCATING, scaling=replace(QUICK, target_utilisation=0.8))
    assert isinstance(only_one(Decided, job.play(4)).decision, Skip)
    assert job.verdict.detail.endswith(f"waiting for collocation, which saves 0.15 cores{SOLVER}")
    assert job.asked == [1020.0], "the answer stands"
    assert list(resized(replace(job, asked=[], at=1000.0, answers=False).play()).start) == ["w9"]


def test_collocation_that_does_not_pay_for_its_restores_holds_up_no_new_worker() -> None:
    job = talking(EVEN, settings=COLLOCATING, state_bytes=[10**12] * 20)
    found = resized(job.play())
    assert (list(found.start), found.detail.endswith(SOLVER)) == (["w9"], True)
    by_pass = replace(job, asked=[], at=1000.0, answers=False)
    by_pass.play()
    assert by_pass.verdict.detail.endswith(f"waiting for collocation, which saves 0.30 cores{PASS}")


def test_what_an_autoscaler_follows_does_not_change_while_the_solver_is_asked_again() -> None:
    advise = replace(QUICK, mode=Mode.ADVISE)
    job = talking(EVEN, settings=COLLOCATING, state_bytes=[10**12] * 20, scaling=advise)
    job.play()
    assert (job.verdict.due, job.verdict.desired) == (True, 3)
    while job.at < 1020.0 + STANDS_S:
        asked = [each for each in job.decider.on_event(job.at + 11.0, job.window()) if isinstance(each, Solve)]
        assert (job.verdict.due, job.verdict.desired) == (True, 3)
        assert bool(asked) == (job.at == 1020.0 + STANDS_S)


def test_a_dry_run_asks_the_same_and_changes_nothing() -> None:
    job = talking(ODD, settings=COLLOCATING, scaling=replace(QUICK, target_utilisation=0.8), acting=False)
    job.decider.record(1011.0, job.window().snapshot)
    job.decider.record(1021.0, job.window().snapshot)
    found = job.decider.preview(1021.0, lambda view: solved(question_of(view, job.settings, 10.0), Ticks()))
    assert isinstance(found, Skip)
    assert job.verdict.detail.endswith(f"waiting for collocation, which saves 0.15 cores{SOLVER}")


# ---- when it is asked


def plans(*names: str, **changes: object) -> dict[frozenset[WorkerId], PotentialLoads | None]:
    """The solver's answer for these workers: each carries 0.6 cores."""
    remain = [WorkerId(name) for name in names]
    made = PotentialLoads(loads=dict.fromkeys(remain, 0.6), saving=0.0, complete=True, in_time=True)
    return {frozenset(remain): replace(made, **changes)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "changes"),
    [
        (facts(4, 4.1, asks=True, most_saved=3.0), {}),
        (facts(4, 3.6, asks=True, most_saved=0.7), {}),
        (facts(4, 3.6, asks=True, most_saved=3.0), {"word": word(6)}),
        (facts(4, 3.6, asks=False, most_saved=3.0), {}),
    ],
)
def test_nothing_is_asked_where_no_answer_could_hold_up_the_change(seen: object, changes: dict) -> None:
    found = verdict(seen, **changes)  # type: ignore[arg-type]
    assert (found.due, found.asks) == (True, None)


@pytest.mark.parametrize("demand", [3.6, 1.2])
def test_it_is_asked_when_nothing_else_stands_against_the_change(demand: float) -> None:
    seen = facts(4, demand, asks=True, most_saved=3.0)
    assert verdict(seen).asks is not None
    assert verdict(seen).detail.endswith(" s, the solver is asked")
    assert verdict(seen, held_s=5.0).asks is None, "the delay"
    assert verdict(seen, frozen="[plans] freeze holds").asks is None
    assert verdict(replace(seen, starting=(WorkerId("w77"),))).asks is None


@pytest.mark.parametrize(
    ("changes", "wanted", "rests"),
    [
        ({}, 2, SOLVER),
        ({"complete": False}, 4, SOLVER),
        ({"loads": {WorkerId("w02"): 0.9, WorkerId("w03"): 0.3}}, 4, SOLVER),
        ({"loads": {WorkerId("w02"): 0.9, WorkerId("w03"): 0.3}, "in_time": False}, 2, PASS),
        ({"in_time": False}, 2, SOLVER),
    ],
)
def test_a_search_that_was_cut_short_counts_only_for_what_it_has_found(changes: dict, wanted: int, rests: str) -> None:
    known = {**plans("w01", "w02", "w03", complete=False), **plans("w02", "w03", **changes)}
    found = verdict(facts(4, 1.2, asks=True, potentials=known))
    assert (found.wanted, found.detail.endswith(rests)) == (wanted, True)


@pytest.mark.parametrize(
    ("changes", "waits", "rests"),
    [
        ({"saving": 1.0}, True, SOLVER),
        ({"saving": 1.0, "in_time": False}, True, SOLVER),
        ({"saving": 0.5}, False, SOLVER),
        ({"saving": 0.5, "in_time": False}, True, PASS),
        ({"saving": 1.0, "complete": False}, False, SOLVER),
        ({"saving": 1.0, "loads": {WorkerId("w00"): 0.9}}, False, SOLVER),
    ],
)
def test_of_a_saving_that_was_not_searched_for_to_the_end_the_pass_may_find_more(
    changes: dict, waits: bool, rests: str
) -> None:
    known = plans("w00", "w01", "w02", "w03", **changes)
    found = verdict(facts(4, 3.6, asks=True, saving=0.9, potentials=known))
    assert (found.due, found.detail.endswith(rests)) == (not waits, True)


def test_a_change_waits_for_the_solver_for_one_window_at_most() -> None:
    job = again(UNEVEN)
    job.play(1)
    actions = job.decider.on_event(1021.0, job.window())
    asked = of_type(Solve, actions[-1])
    assert job.decider.on_event(1031.0, job.window()) == [], "the solver is still busy, and one question is open"
    assert (job.verdict.due, job.verdict.drain, job.verdict.detail.endswith(PASS)) == (True, ("w0",), True)
    late = SolverAnswered(answer=solved(question_of(asked.view, job.settings, 10.0), Ticks()))
    assert resized(job.decider.on_event(1032.0, late)).drain == ("w0", "w1")


def test_an_answer_to_another_question_is_none() -> None:
    job = again(UNEVEN)
    job.play(1)
    actions = job.decider.on_event(1021.0, job.window())
    assert isinstance(actions[-1], Solve)
    assert isinstance(resized(job.decider.on_event(1021.5, answer())), Resized)
