"""Trades between pairs of nodes: what is looked up, what is kept in sums, what is never broken."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab_models.balance.evaluate import is_allowed
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.tabu import Band, Search, SearchState
from trimtab_models.balance.trades import SortedKeyGroups, Trader
from trimtab_models.solving import Never

quick = settings(max_examples=30)


def cluster(
    seed: int, nodes: int = 8, per_node: int = 6, *, limited: bool = False, marked: bool = False
) -> BalanceProblem:
    random = np.random.default_rng(seed)
    count = nodes * per_node
    home = np.repeat(np.arange(nodes), per_node)
    home[random.random(count) < 0.05] = -1
    usage = random.integers(0, 4, (1 if limited else 0, count)).astype(float)
    placed = home >= 0
    used = np.array([np.bincount(home[placed], row[placed], nodes) for row in usage]).reshape(-1, nodes)
    return BalanceProblem(
        load=random.uniform(0, 10, count) * random.uniform(0.5, 1.5, nodes)[home],
        cost_bytes=random.integers(1, 100, count).astype(float),
        home=home,
        pinned=random.random(count) < 0.1,
        capacity=random.choice([0.5, 1.0, 2.0], nodes),
        removing=np.arange(nodes) < (2 if marked else 0),
        usage=usage,
        limit=np.maximum(used, 10.0),
        max_migrations=int(random.integers(0, count // 2)),
        max_cost_bytes=float(random.integers(0, 1500)),
    )


def placed(problem: BalanceProblem) -> np.ndarray:
    """Unplaced key groups on the last node: always kept, and where its limit is broken nothing may be added."""
    return np.where(problem.home < 0, len(problem.capacity) - 1, problem.home)


@quick
@given(st.integers(0, 10**6))
def test_a_shelf_gives_the_neighbours_that_a_scan_finds(seed):
    problem = cluster(seed)
    board = SearchState(problem, placed(problem))
    random = np.random.default_rng(seed)
    for key_group in np.flatnonzero(problem.movable)[::3]:
        board.move(int(key_group), int(random.integers(8)))
    nodes = np.array([1, 3, 4])
    sorted_key_groups = SortedKeyGroups(board, nodes)
    for kind in (0, 1):
        sought = random.uniform(-2, 14, 3)
        found, which = sorted_key_groups.nearest(nodes, kind, sought)
        for position, (node, load) in enumerate(zip(nodes, sought, strict=True)):
            on_shelf = (board.at == node) & problem.movable & ((board.at != board.home) == bool(kind))
            loads = np.sort(problem.load[on_shelf])
            expected = [loads[loads < load].max(initial=-1), loads[loads >= load].min(initial=99)]
            assert sorted(problem.load[found[which == position]]) == [each for each in expected if -1 < each < 99]


@quick
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from([0.5, 2.0, 8.0]))
def test_trades_gain_and_break_nothing_and_keep_the_sums(seed, limited, marked, width):
    problem = cluster(seed, limited=limited, marked=marked)
    start = placed(problem)
    problem = problem.tolerating(start)
    band = Band(under=width, over=width)
    board = SearchState(problem, start)
    before = band.violations(problem.deviations(start), problem.removing).sum()
    reached = Trader(board, band, np.random.default_rng(seed), Never(), thrift=0.5).run(10**6)
    after = band.violations(problem.deviations(board.at), problem.removing)
    assert is_allowed(problem, board.at) or not is_allowed(problem, start)
    assert after.sum() <= before + 1e-9
    assert reached == (after.max() <= 1e-8)
    np.testing.assert_allclose(board.deviations, problem.deviations(board.at), atol=1e-9)
    np.testing.assert_allclose(board.used, problem.usages(board.at), atol=1e-9)
    np.testing.assert_allclose(board.spent, board.prices[:, board.at != problem.home].sum(axis=1), atol=1e-9)


@quick
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_a_search_keeps_the_sums_and_notes_only_allowed_plans(seed, limited, marked):
    problem = cluster(seed, limited=limited, marked=marked)
    start = placed(problem)
    problem = problem.tolerating(start)
    board = SearchState(problem, start)
    search = Search(board, Band(under=1.0, over=1.0), np.random.default_rng(seed))
    search.run(patience=20, steps=40, stop=Never())
    for noted in (search.best_at, search.least_at):
        assert is_allowed(problem, noted) or not is_allowed(problem, start)
    np.testing.assert_allclose(board.deviations, problem.deviations(board.at), atol=1e-9)
    np.testing.assert_allclose(board.used, problem.usages(board.at), atol=1e-9)
    np.testing.assert_allclose(board.spent, board.prices[:, board.at != problem.home].sum(axis=1), atol=1e-9)


def test_the_most_loaded_trades_with_the_least_loaded_in_one_round():
    """Four nodes at 60, 40, 20 and 0: the round moves 30 from the first to the last, and 10 between the others."""
    problem = BalanceProblem.plain(
        load=np.array([30.0, 30.0, 30.0, 10.0, 20.0]),
        home=np.array([0, 0, 1, 1, 2]),
        capacity=np.ones(4),
        max_migrations=2,
    )
    board = SearchState(problem, problem.home)
    trader = Trader(board, Band(under=0.0, over=0.0), np.random.default_rng(0), Never(), thrift=0.5)
    assert trader.run(10)
    assert np.bincount(board.at, problem.load, 4).tolist() == [30.0, 30.0, 30.0, 30.0]
