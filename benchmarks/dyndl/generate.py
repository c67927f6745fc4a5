"""The instances of the paper's experiments (section 6.1.1; settlement 9), and any instance as a document."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab_models.instances.scheduling import (
    AffineCost,
    RemoteCost,
    SchedulingInstance,
    SchedulingServer,
    TableCost,
    Task,
)

REPLICAS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The parameters of the paper's Table 3 with its defaults; `beta` >= 1."""

    tasks: int = 100
    servers: int = 50
    core_num: int = 40
    alpha: int = 0
    beta: int = 100
    theta: float = 1.0


def generate(experiment: Experiment, *, seed: int) -> SchedulingInstance:
    """Core m has an integer load from [0, alpha * (m // core_num) + beta); a task has 3 replicas (or all servers).

    Ids have leading zeros, so that their order is the order of their numbers.
    """
    random = np.random.default_rng(seed)
    servers, core_num = experiment.servers, experiment.core_num
    limits = experiment.alpha * np.repeat(np.arange(servers), core_num) + experiment.beta
    loads = random.integers(0, limits).astype(np.float64).reshape(servers, core_num).tolist()
    cost = AffineCost(a=1.0, b=experiment.theta, cap=core_num)
    server_ids, task_ids = _ids("s", servers), _ids("t", experiment.tasks)
    count = min(REPLICAS, servers)
    return SchedulingInstance(
        servers=tuple(
            SchedulingServer(id=id_, cores=tuple(row), g=cost) for id_, row in zip(server_ids, loads, strict=True)
        ),
        tasks=tuple(
            Task(id=id_, replicas=tuple(server_ids[at] for at in random.choice(servers, count, replace=False)))
            for id_ in task_ids
        ),
    )


def _ids(prefix: str, count: int) -> list[str]:
    width = len(str(max(0, count - 1)))
    return [f"{prefix}{number:0{width}}" for number in range(count)]


def encode_scheduling(instance: SchedulingInstance) -> dict[str, Any]:
    """The document of `instance`, with all its keys."""
    return {
        "version": 1,
        "servers": [
            {"id": server.id, "cores": _write_amounts(server.cores), "g": _write_cost(server.g)}
            for server in instance.servers
        ],
        "tasks": [{"id": task.id, "replicas": list(task.replicas)} for task in instance.tasks],
        "wait": instance.wait,
    }


def _write_cost(cost: RemoteCost) -> dict[str, Any]:
    match cost:
        case AffineCost():
            return {"kind": "affine", "a": cost.a, "b": cost.b, "cap": cost.cap}
        case TableCost():
            return {"kind": "table", "values": _write_amounts(cost.values)}


def _write_amounts(amounts: tuple[float, ...]) -> list[float | str]:
    return ["inf" if amount == math.inf else amount for amount in amounts]
