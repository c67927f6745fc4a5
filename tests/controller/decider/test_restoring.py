"""Moves go to standbys where the balance allows it, and to nobody that would get too far from the mean."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controller.decider.decider_situations import a_plan, a_window, a_worker, owned, plannable
from tests.narrow import of_type
from trimtab_controller.decider.policies.admission import SolveWanted
from trimtab_controller.decider.policies.restores import onto_copies, with_restores
from trimtab_controller.decider.values.decision import Planned, describe
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.copies import Held
from trimtab_controller.decider.window.restores import Restores
from trimtab_controller.decider.window.view import PlannableView
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.plan import Move, PlanReason
from trimtab_controller.solver.answer import Answer
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import Basis
from trimtab_protocol.messages.snapshot import HostWindow

APP, OPERATOR = AppId("app"), OperatorId("sums")
WORKERS = [WorkerId(f"w{number}") for number in range(4)]
SETTINGS = Settings()


def view(
    owners: list[int], loads: list[float], *, draining: bool = True, sizes: list[int | None] | None = None
) -> PlannableView:
    """Worker 0 is drained, or not."""
    rows = [
        owned(KeyGroup(APP, OPERATOR, at), WORKERS[owner], load, size)
        for at, (owner, load, size) in enumerate(zip(owners, loads, sizes or [1000] * len(owners), strict=True))
    ]
    workers = [a_worker(name, f"h-{name}", draining=draining and name == WORKERS[0]) for name in WORKERS]
    return plannable(workers, rows)


def wanted(found: PlannableView) -> SolveWanted:
    reason = PlanReason.DRAIN if found.draining else PlanReason.LOAD_DISTANCE
    return SolveWanted(view=found, reason=reason, detail="", balancing=not found.draining)


def distances(found: PlannableView, moves: tuple[tuple[int, int], ...]) -> list[float]:
    """Of each worker from the mean of those that stay, in pp."""
    owner = [WORKERS.index(row.owner) for row in found.key_groups]
    for at, target in moves:
        owner[at] = target
    sums = [0.0] * len(WORKERS)
    for at, row in zip(owner, found.key_groups, strict=True):
        sums[at] += row.load
    kept = [worker.capacity for worker in found.workers if not worker.draining]
    return [total - sum(sums) / sum(kept) for total in sums]


def distance(found: PlannableView, moves: tuple[tuple[int, int], ...]) -> float:
    rows = zip(distances(found, moves), found.workers, strict=True)
    return max(max(0.0, each) if worker.draining else abs(each) for each, worker in rows)


def answer(found: PlannableView, *moves: tuple[int, int]) -> Answer:
    return Answer(
        moves=moves, status="feasible", before=50.0, load_distance=distance(found, moves), lower_bound=0.0, solve_s=0.1
    )


def placed(found: PlannableView, standbys: dict[int, int], copies: dict[int, dict[int, float]] | None = None) -> Held:
    """Standbys by key group, and what copies on disk lack by key group and worker."""
    rows = [
        (row.owner, *([WORKERS[standbys[at]]] if at in standbys else [])) for at, row in enumerate(found.key_groups)
    ]
    return Held(
        placement=Placement(cluster="c", app=APP, epoch=Epoch(1, 1), owners={OPERATOR: tuple(rows)}),
        on_disk={
            KeyGroup(APP, OPERATOR, at): {WORKERS[worker]: share for worker, share in shares.items()}
            for at, shares in (copies or {}).items()
        },
    )


def better(wanted_: SolveWanted, made: Answer, held: Held, settings_: Settings, **known: object) -> Answer:
    """The answer with other targets; `known` = what was learned of restores."""
    return onto_copies(wanted_, made, Restores(held=held, **known), settings_)  # type: ignore[arg-type]


def test_moves_of_equal_load_change_places_so_that_both_go_to_their_standbys() -> None:
    found = view([0, 0, 1, 2, 3], [10.0, 10.0, 10.0, 10.0, 20.0])
    made = answer(found, (0, 1), (1, 2))
    told = better(wanted(found), made, placed(found, {0: 2, 1: 1}), SETTINGS)
    assert told == replace(made, moves=((0, 2), (1, 1)))


def test_restores_leave_the_host_that_has_most_of_them() -> None:
    found = view([0, 0, 0, 0, 1, 2, 3], [10.0] * 4 + [30.0] * 3, sizes=[900, 800, 50, 70, 1, 1, 1])
    made = answer(found, (0, 1), (1, 1), (2, 2), (3, 3))
    told = better(wanted(found), made, Held(), SETTINGS)
    restoring = [sum(found.owned[at].state_bytes or 0 for at, target in told.moves if target == to) for to in (1, 2, 3)]
    assert max(restoring) <= 950, "the two large ones are apart"
    assert [sum(target == to for _, target in told.moves) for to in (1, 2, 3)] == [2, 1, 1], "loads are as they were"
    heavy = view([0, 0, 0, 1, 2, 3], [30.0, 30.0, 5.0, 10.0, 70.0, 65.0], sizes=[900, 800, 50, 1, 1, 1])
    made = answer(heavy, (0, 1), (1, 1), (2, 3))
    assert better(wanted(heavy), made, Held(), SETTINGS) is made, "the balance comes first"


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_same_key_groups_move_more_to_standbys_and_nobody_gets_too_far(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 10))
    workers = st.integers(0, len(WORKERS) - 1)
    owners = data.draw(st.lists(workers, min_size=count, max_size=count))
    loads = data.draw(st.lists(st.sampled_from([0.2, 1.0, 4.0, 20.0]), min_size=count, max_size=count))
    sizes = data.draw(st.lists(st.sampled_from([None, 0, 10, 5000]), min_size=count, max_size=count))
    found = view(owners, loads, draining=data.draw(st.booleans()), sizes=sizes)
    free = [place for place, worker in enumerate(found.workers) if not worker.draining]
    chosen = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    moves = tuple((at, target) for at in chosen if (target := data.draw(st.sampled_from(free))) != owners[at])
    standbys = {at: data.draw(workers) for at in range(count)}
    standbys = {at: standby for at, standby in standbys.items() if standby != owners[at]}
    made = answer(found, *moves)
    told = better(wanted(found), made, placed(found, standbys), SETTINGS)

    assert [at for at, _ in told.moves] == [at for at, _ in moves]
    assert all(target in free and target != owners[at] for at, target in told.moves)
    tolerance = 2.5 if found.draining else 0.5
    for before, after in zip(distances(found, moves), distances(found, told.moves), strict=True):
        assert abs(after) <= max(abs(before), tolerance) + 1e-6
    known = [size for size in sizes if size is not None]
    weight = [max(1, max(known, default=0) if size is None else size) for size in sizes]

    def warm(targets: tuple[tuple[int, int], ...]) -> int:
        return sum(weight[at] for at, target in targets if standbys.get(at) == target)

    def all_warm(targets: tuple[tuple[int, int], ...]) -> float:
        """When the last host ends, in restores that lack nothing; each worker has a host of its own."""
        learned, pace = LearnedRestores(), Restores().pace(HostId("h"))
        on = [
            [learned.size(weight[at]) for at, target in targets if target == worker] for worker in range(len(WORKERS))
        ]
        return max(max(pace * sum(each), max(each, default=0.0)) for each in on)

    assert warm(told.moves) >= warm(moves)
    if not any(standbys.get(at) in free for at in chosen):
        assert all_warm(told.moves) <= all_warm(moves) + 1e-6
    assert abs(told.load_distance - distance(found, told.moves)) < 1e-6


def test_a_plan_knows_the_cores_of_its_hosts_and_says_how_many_moves_go_to_copies() -> None:
    found = view([0, 0, 1, 2, 3], [10.0, 10.0, 10.0, 10.0, 20.0])
    moves = (
        Move(key_group=KeyGroup(APP, OPERATOR, at), source=WORKERS[0], target=target, state_bytes=8)
        for at, target in enumerate(WORKERS[1:3])
    )
    plan = a_plan(*moves, hosts=found.hosts, before=9.0, planned=1.0)
    hosts = {"h-w0": 4.0, "h-w1": 2.0, "h-w2": None, "h-w3": 8.0}
    rows = (
        HostWindow(host=HostId(name), covered_s=10.0, cpu=None, cores=cores, basis=Basis.CONFIG)
        for name, cores in hosts.items()
    )
    seen = a_window(10.0, (), (), hosts=tuple(rows))
    told = of_type(
        Planned, with_restores(Planned(plan=plan), seen, placed(found, {0: 1, 1: 1}, {0: {1: 0.5}, 1: {2: 0.25}}))
    )
    assert dict(told.plan.cores) == {HostId("h-w0"): 4.0, HostId("h-w1"): 2.0}, "not of w3, to which nothing moves"
    assert [move.lacking_bytes for move in told.plan.moves] == [None, 2], "a standby lacks nothing"
    assert describe(told).startswith("app: 2 moves (1 to standbys, 1 to copies on disk), load distance 9.0 -> 1.0")
    assert with_restores(Planned(plan=plan), None, Held()) == Planned(plan=plan)
