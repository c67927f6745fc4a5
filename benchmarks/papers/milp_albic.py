"""Madsen, Zhou, Cao 2017, section 5: load balancing, scaling in, collocation."""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.albic.table import MERGE_SHARE, two_choices
from benchmarks.papers.row import Missing, Row
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import BalanceProblem, Ints
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import solve, solve_flux
from trimtab_models.instances.snapshot import MigrationBudget
from trimtab_models.simulation.rounds import Policy, Run, SimulatedRound, policy_named, simulate, summarise
from trimtab_models.simulation.workloads import Size, generated, uneven_cluster
from trimtab_models.solving import Deadline, Infeasible, Never, StopRule

CLUSTERS = (("Fig. 2", 20, 400), ("Fig. 3", 40, 800), ("Fig. 4", 60, 1_200))
CHANGES = (20, 50, 80)
BUDGETS = (10, 20, 50)
SOLVING_S = 1.0
PERIODS = 50
PAPERS_ROUNDS = 60
JOB = Size(nodes=20, key_groups=200)
TEN_MOVES = MigrationBudget(max_migrations=10)


def rows(*, long: bool) -> Iterator[Row | Missing]:
    """Figures 2 to 14."""
    yield from solver_performance()
    yield from scaling_in()
    yield from real_job_1()
    yield from synthetic(long=long)
    yield from real_job_2()
    yield from real_job_3(long=long)
    yield from real_job_4()
    yield Missing(figure="Fig. 8", what="overhead of migrations and of PoTC's merging", why="measured on EC2")
    yield Missing(
        figure="Fig. 9b", what="latency of migrations in seconds", why="measured on EC2; for moves see Fig. 9a"
    )
    yield Missing(figure="Fig. 1, 6", what="illustrations", why="no figures")


def play(policy: str, workload: str, size: Size, rounds: int, budget: MigrationBudget) -> tuple[SimulatedRound, ...]:
    """The rounds of a policy."""
    run = simulate(generated(workload, size, rounds=rounds, seed=0, budget=budget), policy_named(policy), seed=0)
    assert isinstance(run, Run)
    return run.rounds


# --- 5.1 --------------------------------------------------------------------------------------------------------------


def solver_performance() -> Iterator[Row]:
    """Load distance by cluster; node loads change by 20, 50, 80 %."""
    for figure, nodes, key_groups in CLUSTERS:
        ours, baseline, gaps = [], [], []
        for change in CHANGES:
            for budget in BUDGETS:
                problem = replace(uneven_cluster(nodes, key_groups, change, seed=1), max_migrations=budget)
                stop = Deadline(time.process_time, time.process_time() + SOLVING_S)
                milp, flux = solve(problem, stop=stop, seed=0), solve_flux(problem, stop=Never(), seed=0)
                assert isinstance(milp, BalanceResult)
                assert isinstance(flux, BalanceResult)
                ours.append(milp.score.load_distance)
                gaps.append(milp.gap_pp)
                baseline.append(flux.score.load_distance)
        below = int((np.array(ours) < np.array(baseline)).sum())
        yield Row(
            figure=figure, what=f"load distance, {nodes} nodes, {key_groups:,} key groups, {SOLVING_S:g} s",
            paper="MILP below Flux always", ours=f"below in {below} of {len(ours)}, median {np.median(ours):.2f}",
            baseline=f"Flux: median {np.median(baseline):.2f}; our gap to the bound: at most {max(gaps):.2f} pp",
        )  # fmt: skip


def scaling_in() -> Iterator[Row]:
    """10 of 60 nodes are draining, 1 or 5 others are full; the baseline empties first, then balances."""
    for full in (1, 5):
        problem = overloaded(full)
        integrated, separate = (drained(problem, policy) for policy in (policy_named("milp"), empty_first))
        yield Row(
            figure="Fig. 5", what=f"load distance after rounds 1, 3; rounds to empty, OL{full}",
            paper="good much sooner, empty as soon",
            ours=f"{integrated[0][0]:.1f}, {integrated[0][2]:.1f}; {integrated[1]} rounds",
            baseline=f"empty first: {separate[0][0]:.1f}, {separate[0][2]:.1f}; {separate[1]} rounds",
        )  # fmt: skip


def overloaded(full: int) -> CollocationProblem:
    """60 nodes, 1,200 key groups, 20 moves a round; 10 nodes draining, `full` others at 100 % load."""
    balance = uneven_cluster(60, 1_200, 0, seed=2)
    load = balance.load.copy()
    for node in range(10, 10 + full):
        own = balance.home == node
        load[own] *= 100 / load[own].sum()
    return without_flows(replace(balance, load=load, removing=np.arange(60) < 10, max_migrations=20))


def without_flows(balance: BalanceProblem) -> CollocationProblem:
    """`balance` as a problem without flows, the input of policies."""
    nothing = np.zeros(0, np.int64)
    operator = np.zeros(len(balance.load), np.int64)
    return CollocationProblem(balance=balance, operator=operator, source=nothing, target=nothing, rate=np.zeros(0))


def empty_first(problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    """The paper's non-integrated way: first empties draining nodes evenly onto the others, then balances."""
    balance = problem.balance
    waiting = np.flatnonzero(balance.removing[balance.home])
    if not len(waiting):
        return policy_named("milp")(problem, stop, seed)
    allocation = balance.home.copy()
    kept = np.flatnonzero(balance.kept)
    leaving = waiting[: balance.max_migrations]
    allocation[leaving] = kept[np.arange(len(leaving)) % len(kept)]
    return allocation


def drained(problem: CollocationProblem, policy: Policy) -> tuple[list[float], int]:
    """Load distance per round, and the round in which the draining nodes become empty; 20 rounds at most."""
    distances: list[float] = []
    empty = 0
    for number in range(1, 21):
        plan = policy(problem, Never(), number)
        assert isinstance(plan, np.ndarray)
        distances.append(evaluate(problem.balance, plan).load_distance)
        problem = problem.moved_to(plan)
        if not empty and not problem.balance.removing[plan].any():
            empty = number
    return distances, empty


# --- 5.2 --------------------------------------------------------------------------------------------------------------


def real_job_1() -> Iterator[Row]:
    """Three operators x 100 key groups on 20 nodes."""
    size, budget = Size(nodes=20, key_groups=300), MigrationBudget(max_migrations=13)
    milp, flux = (summarise(play(name, "real-job-1", size, PERIODS, budget)) for name in ("milp", "flux"))
    yield Row(
        figure="Fig. 7", what=f"load distance of {PERIODS} periods, 13 moves each", paper="MILP < 1, Flux up to 7",
        ours=f"most {milp.after.max:.2f}, median {milp.after.p50:.2f}",
        baseline=f"Flux: most {flux.after.max:.2f}, median {flux.after.p50:.2f}",
    )  # fmt: skip
    moments = generated("real-job-1", size, rounds=10, seed=0, budget=budget)
    figures = [two_choices(each.problem.balance, merge_share=MERGE_SHARE, seed=0).load_distance for each in moments]
    yield Row(
        figure="Fig. 7", what=f"load distance of PoTC, merging takes {MERGE_SHARE:.0%} of the load (ours)",
        paper="not consistently good", ours=f"most {max(figures):.2f}", baseline=f"MILP: most {milp.after.max:.2f}",
    )  # fmt: skip
    few, free = (summarise(play("milp", "real-job-1", size, 20, each)) for each in (TEN_MOVES, MigrationBudget()))
    yield Row(
        figure="Fig. 9a", what="load distance by budget: 10 a round, unrestricted", paper="10 has spikes, free is best",
        ours=f"10: most {few.after.max:.2f}; free: most {free.after.max:.2f}",
        baseline=f"moves a round: {few.migrations / 20:.0f}; {free.migrations / 20:.0f}",
    )  # fmt: skip
    albic = play("albic", "real-job-1", size, 20, budget)
    yield Row(
        figure="5.4, text", what="collocation of job 1 that can be had", paper="about 5 %",
        ours=f"{albic[-1].collocation:.0%} after 20 rounds", baseline="chance on 20 nodes: 5 %",
    )  # fmt: skip


# --- 5.3 --------------------------------------------------------------------------------------------------------------


def synthetic(*, long: bool) -> Iterator[Row | Missing]:
    """One-to-one communication of some pairs of operators; COLA plans from scratch in round 1."""
    shares = (0.0, 0.25, 0.5, 0.75, 1.0) if long else (0.5,)
    for share in shares:
        yield compared("Fig. 10", Size(nodes=40, key_groups=800, one_to_one=share), f"{share:.0%} one-to-one")
    for nodes in (20, 60) if long else (20,):
        yield compared("Fig. 11", Size(nodes=nodes, key_groups=20 * nodes), f"{nodes} nodes, 50 % one-to-one")
    if not long:
        yield Missing(figure="Fig. 10, 11", what="other shares; 60 nodes", why="take minutes: --long")


def compared(figure: str, size: Size, name: str) -> Row:
    """ALBIC after 20 rounds of 20 moves, compared with COLA."""
    albic = play("albic", "one-to-one", size, 20, MigrationBudget(max_migrations=size.key_groups // 20))
    (cola,) = play("cola", "one-to-one", size, 1, MigrationBudget())
    return Row(
        figure=figure, what=f"collocation, load distance: {name}", paper="ALBIC up to 10 points more, less",
        ours=f"{albic[-1].collocation:.0%}, {albic[-1].load_distance:.1f} ({albic[-1].migrations} moves)",
        baseline=f"COLA: {cola.collocation:.0%}, {cola.load_distance:.1f} ({cola.migrations} moves)",
    )  # fmt: skip


# --- 5.4 --------------------------------------------------------------------------------------------------------------


def gaining(rounds: tuple[SimulatedRound, ...]) -> int:
    """The first round with 95 % of the collocation of the last one."""
    return next(each.number for each in rounds if each.collocation >= 0.95 * rounds[-1].collocation)


def real_job_2() -> Iterator[Row]:
    """Two operators with the same key."""
    many = play("albic", "real-job-2", JOB, 20, TEN_MOVES)
    one = play("albic-paper", "real-job-2", JOB, PAPERS_ROUNDS, TEN_MOVES)
    cola = play("cola", "real-job-2", JOB, 5, MigrationBudget())
    yield Row(
        figure="Fig. 12", what="collocation; rounds to 95 % of it", paper="about 90 %; about 60",
        ours=f"{many[-1].collocation:.0%}; {gaining(many)}",
        baseline=f"one pair a round: {one[-1].collocation:.0%} after {PAPERS_ROUNDS}",
    )  # fmt: skip
    yield Row(
        figure="Fig. 12", what="load distance", paper="below COLA's", ours=f"most {summarise(many).after.max:.2f}",
        baseline=f"COLA: most {summarise(cola).after.max:.2f}; one pair: {summarise(one).after.max:.2f}",
    )  # fmt: skip
    yield Row(
        figure="Fig. 12", what="load index", paper="100 -> 50", ours=f"{many[-1].load_index:.0f}",
        baseline=f"one pair: {one[-1].load_index:.0f} after {len(one)}; COLA: {cola[-1].load_index:.0f}, moves apart",
    )  # fmt: skip
    moves = np.mean([each.migrations for each in cola])
    yield Row(
        figure="Fig. 12", what="moves a round", paper="ALBIC 10, COLA close to 200 of 200",
        ours=f"{many[0].migrations}; {np.mean([each.migrations for each in many[-5:]]):.1f} when converged",
        baseline=f"COLA: {moves:.0f}; one pair: {one[-1].migrations}",
    )  # fmt: skip


def real_job_3(*, long: bool) -> Iterator[Row | Missing]:
    """A third operator with another key."""
    size = Size(nodes=20, key_groups=300)
    many = play("albic", "real-job-3", size, 20, TEN_MOVES)
    (cola,) = play("cola", "real-job-3", size, 1, MigrationBudget())
    yield Row(
        figure="Fig. 13", what="collocation; rounds to 95 % of it; load index", paper="half of job 2's; -; 75",
        ours=f"{many[-1].collocation:.0%}; {gaining(many)}; {many[-1].load_index:.0f}",
        baseline=f"COLA: {cola.collocation:.0%}, {cola.migrations} of 300 moved",
    )  # fmt: skip
    if long:
        one = play("albic-paper", "real-job-3", size, PAPERS_ROUNDS, TEN_MOVES)
        yield Row(
            figure="Fig. 13", what="one pair a round, after 60 rounds", paper="half of job 2's",
            ours=f"{one[-1].collocation:.0%}; {gaining(one)}; {one[-1].load_index:.0f}",
        )  # fmt: skip


def real_job_4() -> Iterator[Row]:
    """Nine operators: our reconstruction of the job from the text."""
    size = Size(nodes=20, key_groups=900)
    many = play("albic", "real-job-4", size, 25, MigrationBudget(max_migrations=30))
    (cola,) = play("cola", "real-job-4", size, 1, MigrationBudget())
    yield Row(
        figure="Fig. 14", what="collocation, load index; job reconstructed", paper="about 61 %, falling",
        ours=f"{many[-1].collocation:.0%}, {many[-1].load_index:.0f} after {len(many)} rounds",
        baseline=f"COLA: {cola.collocation:.0%}, {cola.migrations} of {size.key_groups} moved",
    )  # fmt: skip
