"""Topics that belong together."""

import pytest

from trimtab_agent.engines.faust.group.operators import AppOperator, Layout, MixedPartitions
from trimtab_protocol.messages.names import OperatorId

COUNTS = {"in": 8, "mid": 8, "late": 4, "app-a-changelog": 8, "app-b-changelog": 8}


def layout(**named: set[str]) -> Layout:
    return Layout(
        named={OperatorId(name): frozenset(topics) for name, topics in named.items()},
        sources=frozenset({"in", "mid", "late"}),
        changelogs=frozenset({"app-a-changelog", "app-b-changelog"}),
    )


def operator(name: str, sources: set[str], changelogs: set[str], partitions: int) -> AppOperator:
    return AppOperator(
        id=OperatorId(name), sources=frozenset(sources), changelogs=frozenset(changelogs), partitions=partitions
    )


def test_named_topics_are_an_operator_and_the_rest_is_grouped_by_partition_count() -> None:
    assert layout(first={"in", "app-a-changelog"}).operators(COUNTS.get) == (
        operator("all-4", {"late"}, set(), 4),
        operator("all-8", {"mid"}, {"app-b-changelog"}, 8),
        operator("first", {"in"}, {"app-a-changelog"}, 8),
    )


def test_topics_that_the_broker_does_not_know_yet_are_left_out() -> None:
    found = layout(first={"in", "app-a-changelog"}).operators({"in": 8}.get)

    assert found == (operator("first", {"in"}, set(), 8),)


def test_topics_of_one_operator_must_have_one_partition_count() -> None:
    with pytest.raises(MixedPartitions, match=r"'first'.*'in': 8.*'late': 4"):
        layout(first={"in", "late"}).operators(COUNTS.get)


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        ({"a": {"in"}, "b": {"in"}}, "belong to another operator"),
        ({"a": {"else"}}, "not topics or tables of this app"),
    ],
)
def test_names_must_fit_the_app(named: dict[str, set[str]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        layout(**named)
