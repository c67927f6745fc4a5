"""`--set`: settings over those of controller.toml, and what is said of wrong ones."""

import pytest

from trimtab_controller.replay.alternatives import MAX_ALTERNATIVES, alternatives
from trimtab_controller.solver.answer import Method
from trimtab_process.toml_files import BadConfiguration

DOCUMENT = {
    "controller": {"cluster": "c"},
    "kafka": {"bootstrap_servers": "127.0.0.1:1"},
    "stream": {"checkpoint_dir": "none"},
    "balance": {"max_migrations": 7},
}


def test_the_first_column_is_the_configuration_as_it_is() -> None:
    [only] = alternatives(DOCUMENT, [])
    assert (only.name, only.configuration.balance.max_migrations) == ("as configured", 7)


def test_each_set_is_a_column_and_leaves_the_other_keys_alone() -> None:
    _, first, second = alternatives(
        DOCUMENT, ["balance.load_distance=3,execution.handovers_in_flight = 2", "balance.method=albic"]
    )
    assert (first.configuration.balance.load_distance, first.configuration.balance.max_migrations) == (3.0, 7)
    assert first.configuration.execution.handovers_in_flight == 2
    assert second.configuration.balance.method is Method.ALBIC
    assert second.configuration.balance.load_distance != 3.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("load_distance=3", "'load_distance', expected a key of balance, execution, scaling"),
        ("kafka.bootstrap_servers=x", "'kafka', expected a key of balance, execution, scaling"),
        ("balance=3", "'balance', expected a key of balance, execution, scaling"),
        ("balance.load_distance", "no SECTION.KEY=VALUE"),
        ("balance.load_distance=", "no SECTION.KEY=VALUE"),
        ("balance.load_distance=much", "balance.load_distance"),
        ("balance.load_distance=-1", "balance.load_distance"),
        ("balance.nonsense=1", "nonsense"),
    ],
)
def test_what_cannot_be_set_is_named(text: str, said: str) -> None:
    with pytest.raises(BadConfiguration) as found:
        alternatives(DOCUMENT, [text])
    assert str(found.value).startswith(f"--set {text}: ")
    assert said in str(found.value)


def test_there_is_a_limit() -> None:
    with pytest.raises(BadConfiguration, match="found 9 times --set, expected at most 8"):
        alternatives(DOCUMENT, ["balance.load_distance=3"] * (MAX_ALTERNATIVES + 1))
