"""The clusters of the balance experiments (Madsen et al. 2017, section 5.1): equal numbers, unequal loads.

Key-group loads are +-20 % around equal ones, mean node load 50; then 20 % of the nodes change by a given percentage of
their load, half up and half down, through a random 30-100 % of their key groups. The paper leaves the last range open.
"""

import numpy as np

from trimtab_models.balance.problem import Problem

NODE_LOAD = 50.0
SPREAD = 0.2
CHANGED = 0.2  # of the nodes
FEWEST = 0.3  # least share of a changed node's key groups that change
LEAST = 0.02  # least share of its load that a key group keeps


def uneven_cluster(nodes: int, key_groups: int, change_percent: float, seed: int) -> Problem:
    """The balance problem without budgets, after node loads have changed by `change_percent`."""
    random = np.random.default_rng(seed)
    home = np.sort(np.arange(key_groups) % nodes)
    load = NODE_LOAD * nodes / max(1, key_groups) * random.uniform(1 - SPREAD, 1 + SPREAD, key_groups)
    for at, node in enumerate(random.choice(nodes, min(nodes, max(2, round(CHANGED * nodes))), replace=False)):
        own = np.flatnonzero(home == node)
        if not len(own):
            continue
        grows, share = at % 2 == 0, change_percent / 100
        fewest = FEWEST if grows else min(1.0, max(FEWEST, share + 0.05))  # no load may fall below 0
        touched = random.permutation(own)[: max(1, int(np.ceil(random.uniform(fewest, 1.0) * len(own))))]
        added = (1 if grows else -1) * share * load[own].sum()
        load[touched] *= max(LEAST, 1 + added / load[touched].sum())
    return Problem(
        load=load,
        cost_bytes=np.ones(key_groups),
        home=home,
        pinned=np.zeros(key_groups, np.bool_),
        in_flight=np.zeros(key_groups, np.bool_),
        capacity=np.ones(nodes),
        removing=np.zeros(nodes, np.bool_),
        usage=np.zeros((0, key_groups)),
        limit=np.zeros((0, nodes)),
    )
