"""The sizing document and the methods hetero and round-robin: what is refused and how, and the result document."""

import json
from functools import partial

import pytest

from tests.models.documents import BOLT, SPOUT
from tests.models.documents import SIZING as DOCUMENT


@pytest.fixture
def solve(solve):
    return partial(solve, method="hetero")


def test_round_robin_deals_instances_over_machines_and_returns_its_largest_rate(solve):
    code, out, err = solve(DOCUMENT, method="round-robin")
    plan = json.loads(out)
    rate = (100 - 1 - 2) / (0.2 + 0.5)  # m1 has the spout and half of the bolt's input
    assert (code, err) == (0, "")
    assert plan.pop("fluid_bound") > rate
    assert plan == {
        "method": "round-robin",
        "source_rate": pytest.approx(rate),
        "throughput": pytest.approx(2 * rate),
        "instances": {"spout": 1, "bolt": 2},
        "assignment": {"spout#0": "m1", "bolt#0": "m2", "bolt#1": "m1"},
        "utilisation": {"m1": pytest.approx(100), "m2": pytest.approx(1 + 0.25 * rate)},
    }


def test_hetero_goes_beyond_the_given_rate_to_the_largest(solve):
    code, out, err = solve(DOCUMENT | {"max_instances": 2})
    plan = json.loads(out)
    assert (code, err) == (0, "")
    assert plan["assignment"] == {"spout#0": "m1", "bolt#0": "m2"}
    assert plan["source_rate"] == pytest.approx((100 - 1) / 0.5)  # then the bolt fills m2
    assert plan["utilisation"] == {"m1": pytest.approx(1 + 0.2 * 198), "m2": pytest.approx(100)}
    assert plan["utilisation"]["m2"] <= 100
    assert plan["source_rate"] <= plan["fluid_bound"]


@pytest.mark.parametrize("method", ["hetero", "round-robin"])
@pytest.mark.parametrize("rate", [1e6, 1e300])
def test_a_source_rate_too_high_for_any_placement_is_exit_3(solve, method, rate):
    code, out, err = solve(DOCUMENT | {"source_rate": rate}, method=method)
    assert (code, out) == (3, "")
    too_high = f"trimtab solve: source rate {rate:g} is too high for any placement"
    assert err.startswith(f"{too_high}: even divisible operators sustain")


def test_a_source_rate_that_only_the_exact_model_proves_to_be_too_high_is_exit_3(solve):
    best = json.loads(solve(DOCUMENT)[1])
    between = (best["source_rate"] + best["fluid_bound"]) / 2
    code, _, err = solve(DOCUMENT | {"source_rate": between})
    assert code == 3
    assert err.endswith(f"is too high for any placement: the best one known sustains {best['source_rate']:g}\n")


def test_round_robin_below_the_source_rate_is_a_plan_with_a_warning(solve):
    code, out, err = solve(DOCUMENT | {"source_rate": 150}, method="round-robin")
    assert (code, json.loads(out)["source_rate"]) == (0, pytest.approx(97 / 0.7))
    assert err.startswith(
        "warning: the plan sustains only 138.571 tuples/s, not source rate 150; no placement sustains"
    )


def test_as_many_instances_as_are_allowed_are_not_too_many(solve):
    code, out, _ = solve(DOCUMENT | {"max_instances": 3}, method="round-robin")
    assert (code, sum(json.loads(out)["instances"].values())) == (0, 3)


def test_machines_that_hold_all_instances_only_without_tuples_are_too_small_for_any_rate(solve):
    packed = [SPOUT | {"fixed": {"slow": 60, "fast": 60}}, BOLT | {"fixed": {"slow": 60, "fast": 60}}]
    third = BOLT | {"id": "third", "fixed": {"slow": 60, "fast": 60}}
    code, _, err = solve(DOCUMENT | {"operators": [*packed, third]})  # 3 x 60 <= 200, but two machines hold two
    assert (code, err) == (
        3, "trimtab solve: source rate 8 is too high for any placement: the best one known sustains 0\n"
    )  # fmt: skip


def test_more_instances_than_any_number_can_hold_are_no_limit(solve):
    without = {key: value for key, value in DOCUMENT.items() if key != "max_instances"}
    code, out, _ = solve(DOCUMENT | {"max_instances": 10**400})
    assert (code, json.loads(out)) == (0, json.loads(solve(without)[1]))


def test_instance_counts_are_for_round_robin_alone_and_no_harm_to_hetero(solve, tmp_path):
    without = [{key: value for key, value in operator.items() if key != "instances"} for operator in (SPOUT, BOLT)]
    plan, bare = (json.loads(solve(document)[1]) for document in (DOCUMENT, DOCUMENT | {"operators": without}))
    assert plan["assignment"] == bare["assignment"]
    code, _, err = solve(DOCUMENT | {"operators": [SPOUT, without[1]]}, method="round-robin")
    message = "$.operators[1].instances: found nothing, expected this key"
    assert (code, err) == (2, f"trimtab solve: {tmp_path}/instance.json: {message}\n")


@pytest.mark.parametrize("least", [0, 5e-324])
def test_costs_that_fill_no_machine_are_refused_for_no_rate_would_be_the_largest(solve, tmp_path, least):
    free = {"slow": least, "fast": least}
    code, _, err = solve(DOCUMENT | {"operators": [SPOUT | {"cost": free}, BOLT | {"cost": free}]})
    found = "no cost that fills a machine at a finite source rate"
    message = f"$.operators: found {found}, expected an operator with a larger cost"
    assert (code, err) == (2, f"trimtab solve: {tmp_path}/instance.json: {message}\n")
    assert solve(DOCUMENT | {"operators": [SPOUT | {"cost": free}, BOLT]})[0] == 0


@pytest.mark.parametrize("method", ["hetero", "round-robin"])
def test_costs_and_fixed_costs_beyond_all_capacity_keep_an_operator_off_a_machine(solve, method):
    bolt = BOLT | {"cost": {"slow": 1e100, "fast": 0.5}, "fixed": {"slow": 1e300, "fast": 1}, "instances": 1}
    code, out, err = solve(DOCUMENT | {"operators": [SPOUT, bolt]}, method=method)
    plan = json.loads(out)
    assert (code, err, plan["assignment"]["bolt#0"]) == (0, "", "m2")
    assert 8.0 < plan["source_rate"] <= plan["fluid_bound"] < (100 - 1) / (0.5 * 0.5)  # the bolt alone on m2
