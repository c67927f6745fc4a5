"""What a placement is worth: the paper's cohesion and coupling, and whom the network really costs.

Closeness is 1 / distance; the distance is 1 within a slot and 40 across slots (0.25 ms to memory, 10 ms over the
network). Instances of one operator in one slot are alike, so everything is counted per operator and slot.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_models.placement.job import UNPLACED, Job

FAR = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Cohesion is to be high, all others low. `moved` and `overloaded` are 0 where nothing runs, nothing is limited."""

    cohesion: float
    coupling: float
    remote_senders: int
    slots_used: int
    moved: int
    overloaded: int


def score(job: Job, placement: Sequence[int]) -> Score:
    """The score of `placement`."""
    spread = _spread(job, placement)
    return Score(
        cohesion=_cohesion(job, spread),
        coupling=_coupling(spread),
        remote_senders=_remote_senders(job, spread),
        slots_used=len(set(placement)),
        moved=sum(now not in (UNPLACED, then) for now, then in zip(job.running or (), placement, strict=False)),
        overloaded=len(overloaded_slots(job, placement)),
    )


def _spread(job: Job, placement: Sequence[int]) -> list[Counter[int]]:
    """Per operator: how many instances each slot has."""
    return [Counter(placement[job.first[at] : job.first[at + 1]]) for at in range(len(job.operators))]


def _cohesion(job: Job, spread: Sequence[Counter[int]]) -> float:
    """The sum over senders and their edges of the closeness to the closest receiver, times the edge's weight."""
    near = far = 0.0
    for stream in job.streams:
        beside = sum(count for slot, count in spread[stream.source].items() if slot in spread[stream.target])
        near += stream.weight * beside
        far += stream.weight * (job.instances[stream.source] - beside)
    return near + far / FAR


def _coupling(spread: Sequence[Counter[int]]) -> float:
    """The sum over instances of the closeness to the closest other one of their operator; a single one counts 1/40."""
    near = sum(count for counts in spread for count in counts.values() if count > 1)
    far = sum(count == 1 for counts in spread for count in counts.values())
    return near + far / FAR


def _remote_senders(job: Job, spread: Sequence[Counter[int]]) -> int:
    """Instances that receive tuples and have an unkeyed edge without a receiver in their own slot.

    A sender with receivers in its slot sends to those only, all others send to all: so whatever stands in the slot of
    an instance that receives does receive, and an operator with one remote sender receives in all its slots.
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
    """Slots whose instances demand more of some resource than there is."""
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
