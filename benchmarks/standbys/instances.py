"""Random instances of the standby model."""

import numpy as np

from trimtab_models.standbys.problem import UNPLACED, StandbyProblem

MEAN_LOAD = 50.0
FOLLOWING_SHARE = 0.2


def instance(
    workers: int,
    key_groups: int,
    seed: int,
    *,
    balanced: bool,
    share: float = FOLLOWING_SHARE,
    hosts: int | None = None,
    alike: bool = True,
) -> StandbyProblem:
    """Key groups with log-normal loads and states (sigma 1), at a mean load of 50 % of all workers, without standbys.

    `balanced`: owners by largest load first, as a balanced cluster has them; else equal numbers at random.  `hosts`:
    the workers share so many hosts.  Not `alike`: capacities of 0.5, 1 and 2.
    """
    random = np.random.default_rng(seed)
    load = random.lognormal(0, 1, key_groups)
    capacity = np.ones(workers) if alike else random.choice([0.5, 1.0, 2.0], workers)
    load *= MEAN_LOAD * capacity.sum() / load.sum()
    owner = random.permutation(np.arange(key_groups) % workers)
    if balanced:
        held = np.zeros(workers)
        for key_group in np.argsort(-load).tolist():
            at = int(((held + load[key_group]) / capacity).argmin())
            owner[key_group] = at
            held[at] += load[key_group]
    levels = [np.arange(workers)]
    if hosts is not None:
        levels.append(np.arange(workers) % hosts)
    return StandbyProblem(
        owner=owner.astype(np.int64),
        load=load,
        follow=share * load,
        state_bytes=random.lognormal(15, 1, key_groups),
        capacity=capacity,
        removing=np.zeros(workers, np.bool_),
        levels=np.array(levels, np.int64),
        present=np.full((key_groups, 0), UNPLACED, np.int64),
        frozen=np.zeros(key_groups, np.bool_),
        wanted=1,
        usage=np.zeros((0, key_groups)),
        limit=np.zeros((0, workers)),
    )
