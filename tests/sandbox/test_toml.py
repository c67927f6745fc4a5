import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab_sandbox.toml import Table, to_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(TEXT, st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.lists(TEXT))
TABLES = st.recursive(
    st.dictionaries(TEXT, VALUES), lambda inner: st.dictionaries(TEXT, st.one_of(VALUES, inner)), max_leaves=10
)


@given(TABLES)
def test_what_is_written_is_read_back(table: Table) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_a_section_in_a_section_and_a_path() -> None:
    table: Table = {"agent": {"state_dir": Path("/a b"), "workers": {"w.0": {"capacity": 0.25}}}, "x": 1}
    assert to_toml(table) == '"x" = 1\n["agent"]\n"state_dir" = "/a b"\n["agent"."workers"]\n' + (
        '["agent"."workers"."w.0"]\n"capacity" = 0.25\n'
    )


@pytest.mark.parametrize(("value", "text"), [(1e16, "1e+16"), (float("inf"), "inf"), (True, "true"), ([0.5], "[0.5]")])
def test_numbers(value: float, text: str) -> None:
    assert to_toml({"k": value}) == f'"k" = {text}\n'
