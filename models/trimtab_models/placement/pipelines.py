"""Pipelines: connected sets of instances with at most one of each operator (the paper's Algorithms 3 and 4).

The paper starts at the first operator with instances left, walks to its predecessors and successors, takes one instance
of each, and repeats.  Every walk takes one instance of each operator in a connected component, so the same operators
form the next pipeline until one of them has no more.  A new walk is needed only then.  The pipelines are, for t = 1, 2,
..., the connected components of the operators with at least t instances.
"""

from trimtab_models.placement.job import Job

Pipeline = tuple[int, ...]
"""Instances in the order of their operators."""


def extract_pipelines(job: Job) -> list[Pipeline]:
    """Every instance in exactly one pipeline, in the paper's order."""
    neighbours: list[set[int]] = [set() for _ in job.operators]
    for stream in job.streams:
        neighbours[stream.source].add(stream.target)
        neighbours[stream.target].add(stream.source)
    left = list(job.instances)
    pipelines = []
    for start in range(len(left)):
        while left[start]:
            operators = _component(start, left, neighbours)
            taken = min(left[operator] for operator in operators)
            nexts = [job.first[operator + 1] - left[operator] for operator in operators]
            pipelines += [tuple(instance + turn for instance in nexts) for turn in range(taken)]
            for operator in operators:
                left[operator] -= taken
    return pipelines


def _component(start: int, left: list[int], neighbours: list[set[int]]) -> list[int]:
    """The operators with instances left that are connected to `start` through such operators."""
    found = [start]
    seen = {start}
    for operator in found:  # grows during the loop
        new = [each for each in neighbours[operator] if left[each] and each not in seen]
        seen.update(new)
        found += new
    return sorted(found)
