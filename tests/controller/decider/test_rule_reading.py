"""How rules are read from the configuration."""

from datetime import UTC, datetime
from typing import Any

import pytest

from trimtab_controller.decider.values.rules import read_rules
from trimtab_protocol.messages.decode import BadMessage, Fields
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.rules import BadRule, Rule, RuleKind


def read(*tables: dict[str, Any]) -> tuple[Rule, ...]:
    return read_rules(Fields({"rule": list(tables)}, ""))


def test_a_rule_is_read_with_all_that_it_can_say() -> None:
    [rule] = read(
        {
            "name": "ssd", "kind": "pool", "reason": "fast disks", "app": "orders*", "operator": "sums",
            "key_groups": "0-15, 40", "workers": ["ssd-*"], "hosts": ["h9"],
            "until": datetime(2026, 12, 1, tzinfo=UTC),
        }
    )  # fmt: skip
    assert rule == Rule(
        name="ssd", kind=RuleKind.POOL, reason="fast disks", app="orders*", operator="sums",
        key_groups=((0, 15), (40, 40)), workers=("ssd-*",), hosts=("h9",), until=1796083200.0,
    )  # fmt: skip
    assert read_rules(Fields({}, "")) == ()
    assert (rule.holds(AppId("orders-2"), 0.0), rule.holds(AppId("o"), 0.0)) == (True, False)
    assert not rule.holds(AppId("orders"), 1796083200.0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "pool"}, "kind: found 'pool', expected workers, hosts or zones beside the kind pool"),
        ({"kind": "freeze", "workers": ["w0"]}, "expected no workers, hosts or zones beside"),
        ({"kind": "near", "workers": ["w0"]}, "one of pool, exclude, freeze, pin, zone, spread, priority"),
        ({"kind": "pin", "workers": ["w*"]}, "expected the name of one worker beside the kind pin"),
        ({"kind": "pin", "workers": ["w0", "w1"]}, "expected the name of one worker beside the kind pin"),
        ({"kind": "pin", "hosts": ["h0"]}, "expected workers, and no hosts, beside the kind pin"),
        ({"kind": "zone"}, "expected zones beside the kind zone"),
        ({"kind": "zone", "zones": ["a"], "hosts": ["b"]}, "expected zones, and no hosts, beside"),
        ({"kind": "spread", "zones": ["a"]}, "expected no workers, hosts or zones beside"),
        (
            {"kind": "spread", "operator": "sums"},
            "expected no operator and no key_groups beside the kind spread: it is about whole apps",
        ),
        ({"kind": "priority"}, "expected priority beside the kind priority"),
        ({"kind": "priority", "priority": 0}, "from -100 to 100, but 0"),
        ({"kind": "priority", "priority": 101}, "from -100 to 100, but 0"),
        ({"kind": "priority", "priority": True}, "from -100 to 100, but 0"),
        (
            {"kind": "freeze", "key_groups": "3-1"},
            "key_groups: found '3-1', expected ranges whose first key group is not above their last",
        ),
        ({"kind": "freeze", "key_groups": "a"}, "such as 0-15,40"),
        ({"kind": "freeze", "key_groups": "١-٢"}, "such as 0-15,40"),
        ({"kind": "freeze", "key_groups": ",".join("0" for _ in range(101))}, "at most 100"),
        ({"kind": "freeze", "until": "tomorrow"}, "a time with its zone"),
        ({"kind": "freeze", "until": datetime(2026, 12, 1)}, "a time with its zone"),
        ({"kind": "freeze", "why": "x"}, "why"),
    ],
)
def test_a_wrong_rule_is_refused_with_what_was_found_and_expected(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(BadMessage, match=said):
        read({"name": "a", "reason": "b", **wrong})


def test_a_rule_says_by_itself_what_its_kind_expects() -> None:
    with pytest.raises(BadRule) as found:
        Rule(name="a", kind=RuleKind.PRIORITY, reason="b")
    assert str(found.value) == "kind: found 'priority', expected priority beside the kind priority"


def test_rules_have_names_of_their_own_and_reasons() -> None:
    frozen = {"name": "a", "kind": "freeze", "reason": "b"}
    with pytest.raises(BadMessage, match=r"rule\[1\].name: .*no other rule has"):
        read(frozen, frozen)
    with pytest.raises(BadMessage, match="reason"):
        read({"name": "a", "kind": "freeze"})
    with pytest.raises(BadMessage, match="a table"):
        read("a")  # type: ignore[arg-type]
