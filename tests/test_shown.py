"""The table of what scenarios show."""

from tests.shown import PROPERTY, Show, rows_of, table


def test_rows_stand_below_the_name_of_their_test() -> None:
    properties = [("other", 3), (PROPERTY, ("load distance", "3.2 pp", "3.16 pp"))]
    assert rows_of(properties) == [("load distance", "3.2 pp", "3.16 pp")]
    assert rows_of([("other", 3)]) == []
    assert table([("a.py::test_a_with_a_very_long_name", rows_of(properties)), ("b.py::test_b", [])]) == (
        "                 planned or promised  measured\n"
        "a.py::test_a_with_a_very_long_name\n"
        "  load distance  3.2 pp               3.16 pp"
    )


def test_without_scenarios_there_is_no_table() -> None:
    assert table([("b.py::test_b", [])]) == ""


def test_a_test_can_show_something(show: Show, request: object) -> None:
    show("a", "b", "c")
    assert rows_of(request.node.user_properties) == [("a", "b", "c")]  # type: ignore[attr-defined]
    request.node.user_properties.clear()  # type: ignore[attr-defined]
