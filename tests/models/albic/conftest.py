"""Clusters with flows, in one line each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.problem import BalanceProblem

BALANCE = set(BalanceProblem.__dataclass_fields__)


def build(homes: list[int], loads: Any, flows: list[tuple[int, int, float]], **changes: Any) -> CollocationProblem:
    """Key group k is on node `homes[k]`; capacity 1, one byte of state, no limits, one operator per key group at first.

    `changes` are fields of either problem.
    """
    count, nodes = len(homes), changes.pop("nodes", max(homes, default=0) + 1)
    fields: dict[str, Any] = {
        "load": np.broadcast_to(np.array(loads, float), (count,)).copy(),
        "home": np.array(homes, np.int64),
        "capacity": np.ones(nodes),
    }
    given = {name: changes.pop(name) for name in list(changes) if name in BALANCE}
    fields |= {name: np.array(value) if isinstance(value, list) else value for name, value in given.items()}
    source, target, rate = zip(*flows, strict=True) if flows else ((), (), ())
    operator = changes.pop("operator", list(range(count)))
    return CollocationProblem(
        balance=BalanceProblem.plain(**fields),
        operator=np.array(operator, np.int64),
        source=np.array(source, np.int64),
        target=np.array(target, np.int64),
        rate=np.array(rate, np.float64),
        **changes,
    )


@pytest.fixture(scope="session")
def cluster() -> Callable[..., CollocationProblem]:
    return build
