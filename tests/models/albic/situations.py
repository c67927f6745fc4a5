"""Small clusters with flows in which anything that a snapshot can say may be said."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from trimtab_models.spared import Spared


@st.composite
def situations(
    draw: st.DrawFn, *, nodes: tuple[int, int] = (1, 4), key_groups: tuple[int, int] = (1, 8), scored: bool = False
) -> tuple[list[int], list[float], list[tuple[int, int, float]], dict[str, Any]]:
    """Arguments of `cluster`: homes, loads, flows and every rule now and then.

    `scored`: every pair with a flow is scored, and no key group is lost.
    """
    size, count = draw(st.integers(*nodes)), draw(st.integers(*key_groups))

    def each(strategy: st.SearchStrategy[Any], size: int) -> list[Any]:
        return draw(st.lists(strategy, min_size=size, max_size=size))

    removing = each(st.sampled_from([False, False, False, True]), size)
    removing[draw(st.integers(0, size - 1))] = False
    rules: dict[str, Any] = {"nodes": size, "removing": removing, "score_factor": 0.5}
    if not scored:
        rules |= {
            "operator": each(st.integers(0, 2), count),
            "score_factor": draw(st.sampled_from([0.0, 0.5, 1.5])),
            "max_partition_load": draw(st.sampled_from([25.0, 12.0, 0.0])),
            "max_load_distance": draw(st.sampled_from([0.0, 5.0, 10.0])),
        }
    if draw(st.booleans()):
        rules |= {"serialise_cost": draw(st.sampled_from([0.01, 0.03])), "deserialise_cost": 0.02}
    if draw(st.booleans()):
        rules["pinned"] = each(st.sampled_from([False, False, True]), count)
    if draw(st.booleans()):
        rules["max_migrations"] = draw(st.integers(0, 6))
    if draw(st.booleans()):
        rules |= {"cost_bytes": each(st.sampled_from([1.0, 2.0, 3.5]), count), "max_cost_bytes": draw(st.floats(0, 12))}
    if draw(st.booleans()):
        rules["usage"] = [each(st.integers(0, 4).map(float), count)]
        rules["limit"] = [each(st.sampled_from([0.0, 3.0, 6.0, 10.0]), size)]
        if draw(st.booleans()):
            rules["spared"] = spared(rules["usage"][0], each(st.integers(0, size - 1), count), size)
    if draw(st.booleans()):
        rules["capacity"] = each(st.sampled_from([0.5, 1.0, 2.0]), size)
    ends = [(i, j) for i in range(count) for j in range(count) if i != j or not scored]
    rates = st.integers(1, 99).map(float) if scored else st.floats(0, 100)
    pairs = draw(st.lists(st.sampled_from(ends), max_size=5 if scored else 8)) if ends else []
    homes = each(st.integers(-1 if not scored and draw(st.booleans()) else 0, size - 1), count)
    loads = each(st.floats(4, 15).map(lambda load: round(load, 2)), count)
    return homes, loads, [(i, j, draw(rates)) for i, j in pairs], rules


def spared(usage: list[float], nodes_of: list[int], nodes: int) -> Spared | None:
    """Every other key group uses nothing on one node, and every third one half as much."""
    amount = [[each / (1 + place % 2) if place % 3 else 0.0 for place, each in enumerate(usage)]]
    return Spared.of(np.arange(len(usage)), np.array(nodes_of), np.array(amount), (len(usage), nodes))
