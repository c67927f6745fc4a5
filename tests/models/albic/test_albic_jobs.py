"""The jobs of the paper (Madsen et al. 2017, section 5), round by round. Figures: benchmarks/albic/table.py."""

import numpy as np

from trimtab_models.albic.solve import AlbicParams, Strategy, solve
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.solve import BalanceParams
from trimtab_models.instances.snapshot import MigrationBudget
from trimtab_models.simulation.rounds import EXACT, Perception, policy_named, simulate
from trimtab_models.simulation.workloads import DriftingJob, generated_job, real_job_1, real_job_2, real_job_3

SHORT = BalanceParams(effort=Effort(steps=100, patience=100), polish=Effort(steps=0))


def albic(**params):
    chosen = AlbicParams(**{"balance": SHORT} | params)
    return lambda problem, stop, seed: solve(problem, stop=stop, seed=seed, params=chosen).balance.allocation


def rounds_of(job, policy, count, moves=10, perception=EXACT):
    moments = generated_job(job, rounds=count, seed=0, budget=MigrationBudget(max_migrations=moves))
    return simulate(moments, policy, seed=0, perception=perception).rounds


def test_section_5_4_real_job_2_is_collocated_in_12_rounds_and_then_left_alone():
    rounds = rounds_of(real_job_2(), albic(), 18)
    assert rounds[11].obtained >= 0.95
    assert max(each.migrations for each in rounds) <= 10
    assert max(each.load_distance for each in rounds) <= 5.5
    assert np.mean([each.migrations for each in rounds[12:]]) <= 1
    assert rounds[-1].load_index <= 51


def test_section_5_4_real_job_3_is_half_collocated_in_12_rounds():
    rounds = rounds_of(real_job_3(), albic(), 12)
    assert rounds[11].obtained >= 0.95
    assert max(each.load_distance for each in rounds) <= 5.5
    assert 0.45 < rounds[-1].collocation < 0.6
    assert rounds[-1].load_index <= 76


def test_one_pair_a_round_is_the_paper_s_pace():
    rounds = rounds_of(real_job_2(8, 3), albic(strategy=Strategy.ONE_PAIR), 4)
    obtained = [each.obtained for each in rounds]
    assert 0 < obtained[0] < obtained[-1] < 0.5 < rounds_of(real_job_2(8, 3), albic(), 4)[-1].obtained


def test_section_5_2_real_job_1_stays_within_1_pp():
    params = BalanceParams(effort=Effort(steps=600), polish=Effort(steps=0))
    for policy in (policy_named("milp", params), policy_named("albic", params)):
        distances = [each.load_distance for each in rounds_of(real_job_1(), policy, 5, moves=13)]
        assert max(distances) <= 1.0
        assert np.mean(distances) <= 0.7  # with a tenth of the default effort


def test_section_5_4_cola_moves_almost_everything_where_albic_keeps_to_its_budget():
    cola = rounds_of(real_job_2(), policy_named("cola"), 1)
    assert cola[0].migrations > 150
    assert cola[0].obtained > 0.95


def test_smoothing_and_a_dead_band_cut_migrations_under_noise():
    job = DriftingJob(
        nodes=10, key_groups=100, operators=("count",), edges=(), skew=0.3, drift=0.05, memory=0.95, communication=0.0
    )
    restless = rounds_of(job, albic(band=0.0), 20, perception=Perception(noise=0.05))[8:]
    calm = rounds_of(job, albic(band=2.0), 20, perception=Perception(noise=0.05, smoothing=0.3))[8:]
    moves, distance = (
        [float(np.mean([getattr(each, name) for each in run])) for run in (restless, calm)]
        for name in ("migrations", "load_distance")
    )
    assert moves[1] <= 0.2 * moves[0]
    assert distance[1] <= distance[0] + 0.4
