"""The placement methods of the file contract."""

from collections.abc import Mapping
from typing import Any

from trimtab_models.instances.topology import Topology, parse_topology
from trimtab_models.placement.job import Job, job_of
from trimtab_models.placement.solve import PlacementParams, PlacementResult, Scheduler, solve
from trimtab_models.solving.methods import PlanDocument, SolveMethod
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import StopRule

PLACEMENT_RESULT = {
    "method": "The method that made the plan.",
    "assignment": "Instance, as `operator#number`, to its slot: `node` and `port`.",
    "cohesion": "How close each instance is to its nearest receiver, summed up; high is good.",
    "coupling": "How close instances of one operator are to each other, summed up; low is good.",
    "remote_senders": "Instances that receive tuples and send, not by key, to no instance of their own slot.",
    "slots_used": "Slots with at least one instance.",
    "pipelines": "The groups of instances that were assigned as a whole.",
}
"""Key of a plan -> what it says."""
TEXTS = {
    Scheduler.EVEN: "First placement: deals the instances out to the slots in turn, as Storm's default scheduler does.",
    Scheduler.LF: "First placement: puts instances that exchange tuples into one slot, and fills slots evenly (L/F).",
}


def encode_placement(job: Job, result: PlacementResult, *, method: str) -> dict[str, Any]:
    """The result document of the file contract."""
    slots = [{"node": slot.node, "port": slot.port} for slot in job.slots]
    return {
        "method": method,
        "assignment": {job.name(instance): slots[slot] for instance, slot in enumerate(result.placement)},
        "cohesion": result.score.cohesion,
        "coupling": result.score.coupling,
        "remote_senders": result.score.remote_senders,
        "slots_used": result.score.slots_used,
        "pipelines": [[job.name(instance) for instance in pipeline] for pipeline in result.pipelines],
    }


def _method(scheduler: Scheduler) -> SolveMethod:
    def planned(topology: Topology, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
        if topology.slots and topology.slots_wanted == 0:
            free = len(topology.slots)
            return Infeasible(reason=f"$.slots_wanted is 0, expected at least 1: no slot may be used, {free} are free")
        job = job_of(topology)
        result = solve(job, stop=stop, seed=seed, params=PlacementParams(schedulers=(scheduler,)))
        if isinstance(result, Infeasible):
            return result
        return PlanDocument(document=encode_placement(job, result, method=scheduler.value))

    return SolveMethod(read=parse_topology, solve=planned, text=TEXTS[scheduler], result=PLACEMENT_RESULT, timed=False)


METHODS: Mapping[str, SolveMethod] = {scheduler.value: _method(scheduler) for scheduler in TEXTS}
