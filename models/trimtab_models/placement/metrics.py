"""Evaluates a placement: the paper's cohesion and coupling, and the senders that use the network.

Closeness is 1 / distance; the distance is 1 within a slot and 40 across slots (0.25 ms to memory, 10 ms over the
network).  Instances of one operator in one slot are equivalent, so everything is counted per operator and slot.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_models.placement.job import UNPLACED, Job

FAR = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementScore:
    """Cohesion should be high, all others low; `moved` is 0 if nothing runs yet, `overloaded` without limits."""

    cohesion: float
    coupling: float
    remote_senders: int
    slots_used: int
    moved: int
    overloaded: int


def score(job: Job, placement: Sequence[int]) -> PlacementScore:
    """The score of `placement`."""
    spread = _spread(job, placement)
    return PlacementScore(
        cohesion=_cohesion(job, spread),
        coupling=_coupling(spread),
        remote_senders=_remote_senders(job, spread),
        slots_used=len(set(placement)),
        moved=sum(now not in (UNPLACED, then) for now, then in zip(job.running or (), placement, strict=False)),
        overloaded=len(overloaded_slots(job, placement)),
    )


def _spread(job: Job, placement: Sequence[int]) -> list[Counter[int]]:
    """Per operator, the number of instances in each slot."""
    return [Counter(placement[job.first[at] : job.first[at + 1]]) for at in range(len(job.operators))]


def _cohesion(job: Job, spread: Sequence[Counter[int]]) -> float:
    """Sum over senders and their edges: closeness to the closest receiver, times the weight of the edge."""
    near = far = 0.0
    for stream in job.streams:
        beside = sum(count for slot, count in spread[stream.source].items() if slot in spread[stream.target])
        near += stream.weight * beside
        far += stream.weight * (job.instances[stream.source] - beside)
    return near + far / FAR


def _coupling(spread: Sequence[Counter[int]]) -> float:
    """Sum over instances: closeness to the closest other instance of the operator; 1/40 for a single instance."""
    near = sum(count for counts in spread for count in counts.values() if count > 1)
    far = sum(count == 1 for counts in spread for count in counts.values())
    return near + far / FAR


def _remote_senders(job: Job, spread: Sequence[Counter[int]]) -> int:
    """Number of instances that receive tuples and have an unkeyed edge without a receiver in their own slot.

    A sender with receivers in its slot sends only to those; all others send to all receivers.  Therefore all receivers
    in the slot of an active sender are active, and an operator with one remote sender is active in all its slots.
    """
    outgoing: list[list[tuple[int, bool]]] = [[] for _ in job.operators]
    fed = {stream.target for stream in job.streams}
    for stream in job.streams:
        outgoing[stream.source].append((stream.target, stream.keyed))
    receiving: list[set[int]] = [set() if at in fed else set(counts) for at, counts in enumerate(spread)]
    senders = 0
    for operator in job.order:
        remote: set[int] = set()
        for target, keyed in outgoing[operator]:
            lonely = receiving[operator] - spread[target].keys()
            if not keyed:
                remote |= lonely
            everywhere = lonely or (keyed and receiving[operator])
            receiving[target] |= spread[target].keys() if everywhere else receiving[operator]
        senders += sum(spread[operator][slot] for slot in remote)
    return senders


def overloaded_slots(job: Job, placement: Sequence[int]) -> list[int]:
    """Slots whose instances demand more of a resource than the slot has."""
    if not job.slots or not job.capacity[0]:
        return []
    used = [[0.0] * len(amounts) for amounts in job.capacity]
    for instance, slot in enumerate(placement):
        for resource, amount in enumerate(job.demand[job.operator_of[instance]]):
            used[slot][resource] += amount
    return [
        slot
        for slot, capacity in enumerate(job.capacity)
        if any(amount > limit * (1 + 1e-12) for amount, limit in zip(used[slot], capacity, strict=True))
    ]
