"""The table of actions and the policies: each action has one, and it takes what a request says."""

import inspect
from collections.abc import Callable

import pytest

from trimtab_controller.intents import actions
from trimtab_controller.intents.change import (
    ChangeRefused,
    RefusalKind,
    app_named,
    host_named,
    node_named,
    worker_named,
)
from trimtab_controller.intents.policies import BLIND, POLICIES
from trimtab_protocol.actions import ACTIONS

ANY = inspect.Parameter.VAR_KEYWORD


def test_each_action_has_a_policy() -> None:
    assert POLICIES.keys() == ACTIONS.keys()


@pytest.mark.parametrize("name", ACTIONS)
def test_a_policy_takes_the_fields_of_its_action(name: str) -> None:
    parameters = inspect.signature(POLICIES[name]).parameters.values()
    if any(each.kind is ANY for each in parameters):
        return
    assert [each.name for each in parameters] == [each.name for each in ACTIONS[name].fields]


@pytest.mark.parametrize("until", [{"for_s": None}, {"for_s": 60.0}])
def test_a_wrong_name_is_refused_before_anything_is_known(until: dict[str, object]) -> None:
    with pytest.raises(ChangeRefused, match="expected a host's name") as refused:
        POLICIES["maintenance"](host="h 1", **until)
    assert refused.value.fault is RefusalKind.INVALID


def test_a_rule_that_says_too_little_is_refused_before_anything_is_known() -> None:
    with pytest.raises(ChangeRefused, match="expected workers beside the kind pin"):
        POLICIES["add-rule"](name="r", kind="pin", workers=[], priority=None)


def test_what_is_decided_without_a_status() -> None:
    back = POLICIES["scale"](app="a", workers=None), POLICIES["rolling-restart"](app="a", cancel=True)
    assert {each.func for each in (POLICIES["pause"](), *back)} == BLIND
    assert POLICIES["scale"](app="a", workers=3).func is actions.scale


# --- names ------------------------------------------------------------------------------------------------------------


READERS = {
    "a worker's name": worker_named, "an app's id": app_named, "a host's name": host_named,
}  # fmt: skip


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 201])
@pytest.mark.parametrize(("expected", "read"), READERS.items())
def test_what_is_no_name_is_refused(expected: str, read: Callable[[str], str], name: str) -> None:
    with pytest.raises(ChangeRefused) as found:
        read(name)
    assert (found.value.fault, str(found.value)) == (RefusalKind.INVALID, f"found {name[:200]!r}, expected {expected}")
    assert read("orders-1") == "orders-1"


def test_a_zone_is_told_from_a_worker_and_a_host_by_what_stands_before_it() -> None:
    assert [node_named(text) for text in ("orders-1", "zone:rack-1")] == ["orders-1", "zone:rack-1"]
    for text, expected in (("a b", "a worker's name"), ("zone:", "the name of a zone"), ("zone:a:b", "the name of a")):
        with pytest.raises(ChangeRefused, match=f"expected {expected}"):
            node_named(text)
