"""Rules: read from the configuration, kept by every decision, carried out where broken, told where they conflict."""

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.controller.decider.hosted_job import APP, HostedJob, Machine, kg
from tests.narrow import of_type
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import instance_of, question_of
from trimtab_controller.decider.values.decision import Adopted, Planned, StandbysPlaced
from trimtab_controller.decider.values.reasons import ConcernKind
from trimtab_controller.decider.values.rules import RuleTables
from trimtab_controller.decider.window.view import PlannableView, SmoothedView
from trimtab_controller.loop.why import why_here
from trimtab_controller.plan import MoveReason, PlanReason
from trimtab_controller.solver.answer import Method
from trimtab_controller.solver.balance import answer
from trimtab_models.balance.problem import problem_of
from trimtab_protocol.messages.codec import CONFIGURATION, converted
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.intents import Drain, Intent
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.rules import Rule, RuleKind

WORKERS = tuple(WorkerId(f"w{number}") for number in range(4))
FAST = Rule(name="fast", kind=RuleKind.POOL, reason="SSDs", key_groups=((0, 3),), workers=("w0", "w1"))
NOT_W3 = Rule(name="not-w3", kind=RuleKind.EXCLUDE, reason="old kernel", hosts=("h3",))


def job(*rules: Rule, standbys: int | None = None, key_groups: int = 16, workers: int = 4) -> HostedJob:
    """Key groups of equal load, one after the other on workers with a host each."""
    names = WORKERS[:workers]
    return HostedJob(
        machines={HostId(f"h{number}"): Machine(cores=4.0, zone="ab"[number // 2]) for number in range(workers)},
        workers={worker: HostId(f"h{worker[1:]}") for worker in names},
        owners={kg(number): names[number % workers] for number in range(key_groups)},
        rates={kg(number): 20.0 for number in range(key_groups)},
        rules=rules,
        standbys=standbys,
        solve_s=0.02,
    )


def breaches(of: HostedJob) -> list[str]:
    """Key groups that are, or are followed, where a rule does not want them."""
    found = []
    for each, owner in of.owners.items():
        for worker in (owner, *of.followers.get(each, ())):
            for rule in of.rules:
                inside = not rule.key_groups or any(first <= each.partition <= last for first, last in rule.key_groups)
                says = worker == owner or rule.places_standbys
                if inside and says and not allows(of, rule, worker):
                    found.append(f"{each} on {worker} by {rule.name}")
    return found


def allows(of: HostedJob, rule: Rule, worker: WorkerId) -> bool:
    host = of.workers[worker]
    return rule.allows(worker, host, of.machines[host].zone)


def zone_of(of: HostedJob, worker: WorkerId) -> str | None:
    return of.machines[of.workers[worker]].zone


def plans(of: HostedJob, decider: Decider, rounds: int) -> list[Planned]:
    return [each for _ in range(rounds) for each in of.round(decider) if isinstance(each, Planned)]


# --- decisions --------------------------------------------------------------------------------------------------------

by_any_method = pytest.mark.parametrize("method", Method)


@by_any_method
def test_key_groups_that_break_a_rule_move_although_the_load_is_level(method: Method) -> None:
    of = job(FAST, NOT_W3)
    decider = of.decider(method=method)
    [first, *_] = found = plans(of, decider, 4)
    assert first.plan.reason is PlanReason.RULES
    assert "5 key groups may not be where they are, such as app/sums/2 on w2 by rule fast" in str(first.plan.detail)
    assert {MoveReason.RULE} <= set(first.plan.why.reasons if first.plan.why else ())
    assert breaches(of) == []
    assert len(found) == 1, "and then nothing is left to do"


@by_any_method
def test_what_is_frozen_stays_also_on_a_worker_that_is_drained(method: Method) -> None:
    of = job(Rule(name="release", kind=RuleKind.FREEZE, reason="they deploy", key_groups=((0, 0),)))
    decider = of.decider(method=method)
    decider.on_event(0.0, intents(Drain(worker=WORKERS[0], by="op", at=1.0, reason="kernel")))
    plans(of, decider, 4)
    assert [each.partition for each, owner in of.owners.items() if owner == WORKERS[0]] == [0]


def test_what_rules_keep_on_a_drained_worker_leads_to_no_further_plans_and_is_told() -> None:
    frozen = Rule(name="release", kind=RuleKind.FREEZE, reason="they deploy", key_groups=((0, 0),))
    alone = Rule(name="licence", kind=RuleKind.POOL, reason="one host has it", key_groups=((0, 0),), workers=("w0",))
    for rule in (frozen, alone):
        of, chance = job(rule), random.Random(1)
        decider = of.decider()
        decider.on_event(0.0, intents(Drain(worker=WORKERS[0], by="op", at=1.0, reason="kernel")))
        assert [each.plan.reason for each in plans(of, decider, 2)] == [PlanReason.DRAIN]
        for _ in range(12):  # the loads vary, but stay inside the band
            of.rates = {each: rate * chance.uniform(0.98, 1.02) for each, rate in of.rates.items()}
            assert plans(of, decider, 1) == []
        assert [each.partition for each, owner in of.owners.items() if owner == WORKERS[0]] == [0]
        [told] = [each for each in decider.known.concerns if each.kind is ConcernKind.RULES_CONFLICT]
        assert told.detail == (
            f"w0 is being drained, but keeps 1 key groups, such as app/sums/0, by rule {rule.name}: it is not stopped"
        )


def test_while_nothing_can_leave_a_drained_worker_others_move_for_balance_alone() -> None:
    of, chance = job(), random.Random(1)
    for host, machine in of.machines.items():
        machine.cores = 4.0 if host == "h0" else 0.12  # the others have no room
    decider = of.decider()
    decider.on_event(0.0, intents(Drain(worker=WORKERS[0], by="op", at=1.0, reason="kernel")))
    found = []
    for _ in range(20):
        of.rates = {each: rate * chance.uniform(0.97, 1.03) for each, rate in of.rates.items()}
        found += plans(of, decider, 1)
    first, *later = [each.plan for each in found]
    assert first.reason is PlanReason.DRAIN
    assert later, "the load is not level"
    for plan in later:
        assert (plan.reason, plan.before - plan.planned >= 0.5) == (PlanReason.LOAD_DISTANCE, True)
        assert "and nothing can move for: drain w0" in plan.detail
        assert {move.source for move in plan.moves}.isdisjoint({WORKERS[0]})


def intents(*given: Intent) -> Any:
    from trimtab_controller.decider.events import IntentsChanged

    return IntentsChanged(intents=given)


def test_first_placement_standbys_and_collocation_keep_the_rules() -> None:
    of = job(FAST, NOT_W3, standbys=1)
    decider = of.decider(method=Method.ALBIC, remote_tuple_cpu_s=1e-4)
    decisions = [each for _ in range(6) for each in of.round(decider)]
    assert any(isinstance(each, Planned | Adopted | StandbysPlaced) for each in decisions)
    assert breaches(of) == []
    assert all(len(row) == 1 for row in of.followers.values())


def test_rules_that_leave_no_worker_are_told_by_the_smallest_set_and_move_nothing() -> None:
    of = job(
        FAST,
        Rule(name="not-w0", kind=RuleKind.EXCLUDE, reason="broken", workers=("w0",)),
        Rule(name="not-w1", kind=RuleKind.EXCLUDE, reason="leased", workers=("w1",)),
        Rule(name="not-w2", kind=RuleKind.EXCLUDE, reason="small", workers=("w2",), key_groups=((2, 2),)),
        key_groups=8,
    )
    decider = of.decider()
    found = plans(of, decider, 4)
    [concern] = [each for each in decider.known.concerns if each.kind is ConcernKind.RULES_CONFLICT]
    told = concern.detail
    assert "4 key groups" not in told, "one of them has a further rule, which the conflict does not need"
    assert "app/sums/0, by fast (pool: SSDs) and not-w0 (exclude: broken) and not-w1 (exclude: leased)" in told
    assert "not-w2" not in told
    assert {move.key_group.partition for each in found for move in each.plan.moves}.isdisjoint(range(4))
    assert {of.owners[kg(number)] for number in range(4, 8)} <= set(WORKERS[2:])


def test_why_names_the_rule_that_keeps_a_key_group_off_a_worker() -> None:
    of = job(NOT_W3)
    decider = of.decider()
    plans(of, decider, 3)
    found = why_here(kg(0), decider.known, decider._situation.execution, ())
    forbidden = {each.worker: each.forbidden for each in found.targets if not each.owner}
    assert forbidden.pop(WORKERS[3]) == "rule not-w3: old kernel"
    assert set(forbidden.values()) == {None}


def observed(of: HostedJob, decider: Decider) -> PlannableView:
    snapshot = of.window()
    decider.record(snapshot.end_ms / 1000.0, snapshot)
    view = of_type(SmoothedView, decider.known.views[APP])
    return PlannableView.of(view)


def test_a_snapshot_file_has_the_rules_as_limits_and_pins() -> None:
    of = job(FAST, Rule(name="frozen", kind=RuleKind.FREEZE, reason="r", key_groups=((5, 5),)))
    decider = of.decider()
    plans(of, decider, 3)
    instance = instance_of(observed(of, decider), decider.settings)
    ruled = [{name: most for name, most in node.limits.items() if name[:5] == "rules"} for node in instance.nodes]
    assert ruled == [{}, {}, {"rules:fast": 0.0}, {"rules:fast": 0.0}]
    of_pool = {each.id for each in instance.key_groups if each.usage.get("rules:fast") == 1.0}
    assert of_pool == {f"app/sums/{number}" for number in range(4)}
    assert [each.id for each in instance.key_groups if each.pinned] == ["app/sums/5"]
    assert len(problem_of(instance).limit) == 1


def test_a_plan_of_a_solver_that_forgot_the_rules_is_refused() -> None:
    of = job(NOT_W3)
    of.owners = dict.fromkeys(of.owners, WORKERS[0])
    decider = of.decider()
    view = observed(of, decider)
    question = replace(question_of(view, decider.settings, 0.3), placing=None)
    from trimtab_controller.decider.policies.admission import SolveWanted
    from trimtab_controller.decider.policies.judgement import judge
    from trimtab_controller.decider.values.decision import Skip
    from trimtab_controller.solver.answer import Answer

    found = of_type(Answer, answer(question))
    wanted = SolveWanted(view=view, reason=PlanReason.LOAD_DISTANCE, detail="d", balancing=True)
    refused = of_type(Skip, judge(wanted, found, decider.settings))
    assert "app: the plan is refused: app/sums/" in refused.detail
    assert "may not go to w3 by rule not-w3" in refused.detail


# --- zones, pins, priorities ------------------------------------------------------------------------------------------


def test_standbys_are_in_another_zone_than_owners() -> None:
    of = job(standbys=1)
    decider = of.decider()
    plans(of, decider, 3)
    assert len(of.followers) == 16
    assert all(zone_of(of, of.owners[each]) != zone_of(of, row[0]) for each, row in of.followers.items())
    two = job(standbys=2)
    plans(two, two.decider(), 4)
    assert {len(row) for row in two.followers.values()} == {2}, "two hosts of the other zone"


def test_a_zone_rule_keeps_key_groups_in_a_zone_and_with_too_few_zones_copies_are_fewer() -> None:
    kept = Rule(name="near-the-lake", kind=RuleKind.ZONE, reason="data stays here", key_groups=((0, 7),), zones=("a",))
    of = job(kept, standbys=1)
    decider = of.decider()
    plans(of, decider, 6)
    assert breaches(of) == []
    inside = [each for each in of.owners if each.partition <= 7]
    assert {zone_of(of, of.owners[each]) for each in inside} == {"a"}
    assert {zone_of(of, of.followers[each][0]) for each in inside} == {"a"}, "rules leave no worker elsewhere"
    assert not decider.known.concerns
    spread = Rule(name="apart", kind=RuleKind.SPREAD, reason="a zone may fail")
    both = job(kept, spread, standbys=1)
    decider = both.decider()
    plans(both, decider, 6)
    assert not [each for each in inside if both.followers.get(each)]
    [told] = decider.known.concerns
    assert told.kind is ConcernKind.RULES_CONFLICT
    assert told.detail == (
        "fewer than 2 zones are left to 8 key groups, such as app/sums/0, by apart (spread: a zone may fail) and "
        "near-the-lake (zone: data stays here): they have fewer standbys"
    )


def test_a_spread_without_zones_is_told() -> None:
    of = job(Rule(name="apart", kind=RuleKind.SPREAD, reason="r"), standbys=1)
    for machine in of.machines.values():
        machine.zone = None
    decider = of.decider()
    plans(of, decider, 2)
    assert [each.detail for each in decider.known.concerns] == ["no agent names a zone: rule apart spreads nothing"]
    assert len(of.followers) == 16


def test_with_more_to_move_than_a_plan_may_the_highest_priority_leaves_first() -> None:
    first = Rule(name="gold", kind=RuleKind.PRIORITY, reason="pays", key_groups=((8, 11),), priority=10)
    last = Rule(name="batch", kind=RuleKind.PRIORITY, reason="can wait", key_groups=((12, 15),), priority=-10)
    of = job(first, last)
    of.owners = dict.fromkeys(of.owners, WORKERS[0])
    decider = of.decider(max_migrations=4, drain_load_distance=100.0)
    decider.on_event(0.0, intents(Drain(worker=WORKERS[0], by="op", at=1.0, reason="kernel")))
    moved = [[move.key_group.partition for move in each.plan.moves] for each in plans(of, decider, 6)]
    assert [sorted(each) for each in moved[:1]] == [[8, 9, 10, 11]]
    assert sorted(moved[-1]) == [12, 13, 14, 15]
    assert sorted(each for row in moved for each in row) == list(range(16))


def test_what_cannot_leave_does_not_hold_up_those_of_a_lower_priority() -> None:
    stuck = Rule(name="gold", kind=RuleKind.PRIORITY, reason="pays", key_groups=((0, 1),), priority=10)
    here = Rule(name="here", kind=RuleKind.PIN, reason="licence", key_groups=((0, 1),), workers=("w0",))
    of = job(stuck, here)
    of.owners = dict.fromkeys(of.owners, WORKERS[0])
    decider = of.decider(max_migrations=2, drain_load_distance=100.0)
    decider.on_event(0.0, intents(Drain(worker=WORKERS[0], by="op", at=1.0, reason="kernel")))
    plans(of, decider, 20)
    left = sorted(each.partition for each, owner in of.owners.items() if owner == WORKERS[0])
    assert left == [0, 1], "no other worker is allowed for them"


def test_the_moves_of_a_plan_know_their_priority() -> None:
    first = Rule(name="gold", kind=RuleKind.PRIORITY, reason="pays", key_groups=((2, 2),), priority=7)
    of = job(FAST, first)
    [found, *_] = plans(of, of.decider(), 3)
    priorities = {move.key_group.partition: move.priority for move in found.plan.moves}
    assert (priorities.pop(2), priorities.pop(3)) == (7, 0)
    assert set(priorities.values()) <= {0}, "what else moves for balance has none"


# --- places -----------------------------------------------------------------------------------------------------------


# ---- how rules are read from the configuration


@dataclass
class RulesFile:
    rules: RuleTables = ()


def read(*tables: dict[str, Any]) -> tuple[Rule, ...]:
    return converted({"rule": list(tables)}, RulesFile, defaults=CONFIGURATION).rules


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


def test_rules_have_names_of_their_own_and_reasons() -> None:
    frozen = {"name": "a", "kind": "freeze", "reason": "b"}
    with pytest.raises(BadMessage, match=r"rule\[1\].name: .*no other rule has"):
        read(frozen, frozen)
    with pytest.raises(BadMessage, match="reason"):
        read({"name": "a", "kind": "freeze"})
    with pytest.raises(BadMessage, match="a table"):
        read("a")  # type: ignore[arg-type]
