"""What a question to the solver costs besides solving: CPU seconds and bytes of a round.

    python -m benchmarks.solver_question [--key-groups 100000] [--workers 1000] [--runs 5] [--solve 2]

One app of five operators.  Printed are medians of CPU seconds: build the question from the view, pickle it, unpickle
it, make the models' problem of it, and turn the answer into a plan (with its own way through the pipe).  Once for the
balance model, once for ALBIC with a flow from each key group to one of the next operator.  With `--solve`, both then
answer the question about the same app with flows within so many seconds: load distance before and after, bound, moves.
"""

import argparse
import pickle
import statistics
import time

import numpy as np

from trimtab_controller.decider.policies.admission import SolveWanted
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.policies.judgement import judge
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.owned import OwnedTable
from trimtab_controller.decider.window.view import PlannableView, Worker
from trimtab_controller.plan import PlanReason
from trimtab_controller.solver.answer import Answer, Method
from trimtab_controller.solver.balance import answer, answer_instead, collocation_problem_of, problem_of
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId

APP = AppId("app")
OPERATORS = 5
MIGRATIONS = 13
SETTINGS = {
    Method.MILP: Settings(max_migrations=MIGRATIONS),
    Method.ALBIC: Settings(max_migrations=MIGRATIONS, method=Method.ALBIC, remote_tuple_cpu_s=1e-5),
}


def view_of(key_groups: int, workers: int, *, flows: bool) -> PlannableView:
    """Uneven loads; every worker owns as many key groups as the others."""
    random = np.random.default_rng(1)
    partitions = key_groups // OPERATORS
    count = partitions * OPERATORS
    table = OwnedTable(
        app=APP,
        operators=tuple(OperatorId(f"operator-{place}") for place in range(OPERATORS)),
        workers=tuple(WorkerId(f"worker-{place:04}") for place in range(workers)),
        operator=np.repeat(np.arange(OPERATORS), partitions),
        partition=np.tile(np.arange(partitions), OPERATORS),
        owner=random.permutation(np.arange(count) % workers),
        load=random.exponential(0.5, count),
        state_bytes=random.integers(0, 1 << 24, count),
        traffic=np.full((2, count), np.nan),
    )
    rates = random.exponential(10.0, count).tolist()
    sent = {
        (table[place].key_group, KeyGroup(APP, table.operators[place // partitions + 1], place * 7 % partitions)): rate
        for place, rate in enumerate(rates[: count - partitions] if flows else ())
    }
    return PlannableView(
        app=APP,
        start_s=0.0,
        end_s=10.0,
        workers=tuple(
            Worker(id=name, host=HostId(f"host-{place // 4}"), capacity=1.0, draining=False)
            for place, name in enumerate(table.workers)
        ),
        key_groups=table,
        flows=sent,
    )


def measure(view: PlannableView, method: Method, runs: int) -> None:
    """Print one line of the table."""
    settings = SETTINGS[method]
    answered = answer_instead(question_of(view, settings, 60.0))
    assert isinstance(answered, Answer)
    wanted = SolveWanted(view=view, reason=PlanReason.LOAD_DISTANCE, detail="benchmark", balancing=True)
    make = collocation_problem_of if method is Method.ALBIC else problem_of
    rows, pickled = [], b""
    for _ in range(runs):
        marks = [time.process_time()]
        question = question_of(view, settings, 60.0)
        marks.append(time.process_time())
        pickled = pickle.dumps(question)
        marks.append(time.process_time())
        arrived = pickle.loads(pickled)
        marks.append(time.process_time())
        make(arrived)
        marks.append(time.process_time())
        judge(wanted, pickle.loads(pickle.dumps(answered)), settings)
        marks.append(time.process_time())
        rows.append(np.diff(marks))
    medians = [statistics.median(column) for column in zip(*rows, strict=True)]
    parts = " ".join(f"{seconds:9.4f}" for seconds in [*medians, sum(medians)])
    print(f"{method:6} {len(view.key_groups):10,} {len(view.flows):8,} {parts} {len(pickled):12,}")


def solve(view: PlannableView, method: Method, limit_s: float) -> None:
    """Print what a method finds in the time."""
    began, used = time.monotonic(), time.process_time()
    found = answer(question_of(view, SETTINGS[method], limit_s))
    assert isinstance(found, Answer)
    took, used = time.monotonic() - began, time.process_time() - used
    print(
        f"{method:6} {took:5.1f} s ({used:.1f} of CPU): load distance {found.before:.2f} -> {found.load_distance:.2f} "
        f"(bound {found.lower_bound:.2f}), {len(found.moves)} moves"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key-groups", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--solve", type=float, help="seconds")
    options = parser.parse_args()
    print("method key groups    flows     build    pickle  unpickle   problem    answer       sum        bytes")
    for method in SETTINGS:
        view = view_of(options.key_groups, options.workers, flows=method is Method.ALBIC)
        measure(view, method, options.runs)
    if options.solve:
        view = view_of(options.key_groups, options.workers, flows=True)
        for method in SETTINGS:
            solve(view, method, options.solve)


if __name__ == "__main__":
    main()
