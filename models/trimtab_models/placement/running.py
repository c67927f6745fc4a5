"""Renames slots and instances of a plan so that as many running instances as possible stay where they are.

Slots of equal capacity are interchangeable, and so are instances of one operator.  Exchanging them changes neither
cohesion nor coupling, but it saves restarts.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from trimtab_models.placement.job import Job


def keep_running(job: Job, placement: Sequence[int]) -> tuple[list[int], list[int]]:
    """`placement` renamed towards `job.running`, and the new number of every instance.  O(operators * slots^2)."""
    assert job.running is not None
    slots = _rename_slots(job, placement, job.running)
    wanted = [slots[slot] for slot in placement]
    numbers: list[int] = []
    for first, end in zip(job.first, job.first[1:], strict=False):
        numbers += _rename_instances(wanted, job.running, first, end)
    renamed = [0] * len(wanted)
    for instance, number in enumerate(numbers):
        renamed[number] = wanted[instance]
    return renamed, numbers


def _rename_slots(job: Job, placement: Sequence[int], running: Sequence[int]) -> list[int]:
    """Slot -> slot of equal capacity; greedy, pairs with most instances in common first."""
    common: Counter[tuple[int, int]] = Counter()
    for first, end in zip(job.first, job.first[1:], strict=False):
        now = Counter(slot for slot in running[first:end] if slot >= 0)
        for slot, count in Counter(placement[first:end]).items():
            for other, there in now.items():
                if job.capacity[slot] == job.capacity[other]:
                    common[slot, other] += min(count, there)
    names: dict[int, int] = {}
    for (slot, other), _ in sorted(common.items(), key=lambda pair: (-pair[1], pair[0][0] != pair[0][1], pair[0])):
        if slot not in names and other not in names.values():
            names[slot] = other
    taken = set(names.values())
    free: defaultdict[tuple[float, ...], list[int]] = defaultdict(list)
    for slot, capacity in enumerate(job.capacity):
        if slot not in taken:
            free[capacity].append(slot)
    return [names[slot] if slot in names else free[job.capacity[slot]].pop(0) for slot in range(len(job.slots))]


def _rename_instances(wanted: Sequence[int], running: Sequence[int], first: int, end: int) -> list[int]:
    """New slots for the instances of one operator: an instance stays in its slot if the plan uses that slot."""
    here: defaultdict[int, list[int]] = defaultdict(list)
    for instance in range(first, end):
        here[running[instance]].append(instance)
    kept = {instance: here[wanted[instance]].pop(0) for instance in range(first, end) if here[wanted[instance]]}
    others = iter(sorted(set(range(first, end)) - set(kept.values())))
    return [kept[instance] if instance in kept else next(others) for instance in range(first, end)]
