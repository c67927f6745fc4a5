"""Defects to plant into the decider, so that the simulation with rules shows that it finds them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from trimtab_controller.decider.memory import standby_choice as standbys
from trimtab_controller.decider.policies import instance, judgement
from trimtab_controller.decider.policies.admission import SolveWanted
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.rules import Rule, RuleKind


def _without_zones(rule: Rule, worker: WorkerId, host: HostId, _: str | None = None) -> bool:
    return _allows(rule, worker, host, None)


_allows = Rule.allows

DEFECTS: dict[str, tuple[tuple[object, str, Any], ...]] = {
    "the solver knows no rules, and its moves are not checked": (
        (instance, "_placing", lambda _view: None),
        (judgement, "broken_by", lambda _view, _moves: ""),
    ),
    "zones are not looked at": ((Rule, "allows", _without_zones),),
    "a rule that will end has ended": ((Rule, "ended", lambda rule, _now: rule.until is not None),),
    "rules are not about standbys": ((Rule, "places_standbys", property(lambda _rule: False)),),
    "nothing is spread": ((standbys, "spreads", lambda _rules: False),),
    "exclusions are not kept": (
        (Rule, "allows", lambda rule, *site: _allows(rule, *site) or rule.kind is RuleKind.EXCLUDE),
    ),
    "key groups stay where a rule is broken": ((SolveWanted, "must_move", property(lambda _wanted: False)),),
}


@contextmanager
def planted(defect: str) -> Iterator[None]:
    """With this defect."""
    with ExitStack() as stack:
        for place, name, instead in DEFECTS[defect]:
            stack.enter_context(patch.object(place, name, instead))
        yield
