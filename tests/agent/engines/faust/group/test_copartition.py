"""What members of different versions of the app must have on one worker."""

import pytest

from trimtab_agent.engines.faust.group.copartition import CoPartitioned, co_partitioned, difference
from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_protocol.messages.names import OperatorId

COUNTS = {"in": 8, "new": 8, "mid": 8, "slow": 4, "a-changelog": 8, "b-changelog": 8, "new-changelog": 8}


def layout(sources: set[str], changelogs: set[str], **named: set[str]) -> Layout:
    return Layout(
        named={OperatorId(name): frozenset(topics) for name, topics in named.items()},
        sources=frozenset(sources),
        changelogs=frozenset(changelogs),
    )


def group(operators: list[str], topics: set[str], members: str, partitions: int = 8) -> CoPartitioned:
    return CoPartitioned(
        operators=tuple(map(OperatorId, operators)),
        topics=frozenset(topics),
        partitions=partitions,
        members=frozenset(members),
    )


OLD = layout({"in"}, {"a-changelog"})
NEW = layout({"in", "new"}, {"a-changelog", "new-changelog"})


@pytest.mark.parametrize("members", [{"x": OLD, "y": NEW}, {"y": NEW, "x": OLD}])
def test_what_only_the_new_version_reads_belongs_to_the_same_worker_as_the_old(members: dict[str, Layout]) -> None:
    whole = {"in", "new", "a-changelog", "new-changelog"}

    assert co_partitioned(members, COUNTS.get) == (group(["all"], whole, "xy"),)


def test_operators_that_one_version_has_merged_stay_together_for_all() -> None:
    apart = layout({"in", "mid"}, {"a-changelog", "b-changelog"}, a={"in", "a-changelog"}, b={"mid", "b-changelog"})
    merged = layout({"in", "mid"}, {"a-changelog", "b-changelog"})

    assert co_partitioned({"x": apart, "y": merged}, COUNTS.get) == (
        group(["a", "b", "all"], {"in", "mid", "a-changelog", "b-changelog"}, "xy"),
    )


def test_an_operator_that_only_some_have_is_only_theirs() -> None:
    more = layout({"in", "slow"}, {"a-changelog"}, all={"in", "a-changelog"}, more={"slow"})

    assert co_partitioned({"x": OLD, "y": more}, COUNTS.get) == (
        group(["all"], {"in", "a-changelog"}, "xy"),
        group(["more"], {"slow"}, "y", 4),
    )


def test_a_source_that_is_not_there_holds_nobody_up() -> None:
    counts = {topic: count for topic, count in COUNTS.items() if topic != "new"}

    (found,) = co_partitioned({"x": NEW}, counts.get)

    assert found == group(["all"], {"in", "a-changelog", "new-changelog"}, "x")


def test_the_difference_names_the_workers_on_each_side() -> None:
    names = {"x": "w1", "y": "w2", "z": "w3"}

    assert difference({"x": NEW, "y": NEW, "z": NEW}, names, {}) is None
    assert difference({"x": NEW, "y": OLD, "z": NEW}, names, {}) == (
        "workers differ in their topics, tables or operators: w1, w3 against w2"
    )
    many = {f"m{n}": OLD for n in range(6)} | {"z": NEW}
    assert difference(many, {f"m{n}": f"w{n}" for n in range(6)}, {}) == (
        "workers differ in their topics, tables or operators: w0, w1, w2 and 3 more against z"
    )
