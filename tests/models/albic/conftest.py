"""Clusters with flows, in one line each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.models.clusters import cluster as balance_cluster
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.problem import BalanceProblem

BALANCE = set(BalanceProblem.__dataclass_fields__)


def build(homes: list[int], loads: Any, flows: list[tuple[int, int, float]], **changes: Any) -> CollocationProblem:
    """Key group k is on node `homes[k]`; one operator per key group at first; `changes` are fields of either problem.

    `loads` may be one number for all.
    """
    count, nodes = len(homes), changes.pop("nodes", max(homes, default=0) + 1)
    given = {name: changes.pop(name) for name in list(changes) if name in BALANCE}
    loads = given.pop("load", np.broadcast_to(np.array(loads, float), (count,)).copy())
    source, target, rate = zip(*flows, strict=True) if flows else ((), (), ())
    operator = changes.pop("operator", list(range(count)))
    return CollocationProblem(
        balance=balance_cluster(given.pop("home", homes), loads, nodes, **given),
        operator=np.array(operator, np.int64),
        source=np.array(source, np.int64),
        target=np.array(target, np.int64),
        rate=np.array(rate, np.float64),
        **changes,
    )


@pytest.fixture(scope="session")
def cluster() -> Callable[..., CollocationProblem]:
    return build
