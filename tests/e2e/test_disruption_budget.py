"""A disruption budget that a rebalance has used up, as reports tell it: nothing moves, and a successor knows it."""

from dataclasses import replace

import pytest

from tests.e2e.played_cluster import World

pytestmark = pytest.mark.light


PAUSED = 'trimtab_controller_paused_key_group_cause_seconds{app="app",cause="rebalances"}'


def used_up(status: dict) -> bool:
    return any(row["reason"] == "disruption_budget" for row in status["decisions"][-1:])


def test_a_rebalance_that_plug_ins_measured_uses_the_budget_and_the_journal_has_it(world: World) -> None:
    world.config.write_text(f"{world.config.read_text()}\n[disruption]\nmax_paused_s_per_hour = 5.0\n")
    world.start()
    world.wait("the first window", lambda: "acting as generation" in world.log_text())
    rebalanced = [replace(row, paused_s=3.0, paused=4) for row in world.snapshot().nodes]
    world.publish_window(nodes=tuple(rebalanced))  # the placement is adopted
    world.publish_window()

    status = world.status_when("the budget is used up", used_up)

    (app,) = status["apps"]
    assert app["disruption"]["used_s"] == 9.0
    assert app["disruption"]["causes"] == [{"cause": "rebalances", "used_s": 9.0}]
    assert app["disruption"]["unmeasured"] == 3, "the windows after it say nothing of rebalances"
    assert world.commands == []
    told = world.trimtab("status")
    assert "paused: 9.0 of 5 key-group seconds in the last hour" in told
    assert "by rebalances 9.0" in told
    assert world.metric(PAUSED) == 9.0

    generation = status["epoch"][0]
    world.running[-1].kill()
    world.start()
    world.wait("a successor", lambda: world.log_text().count("acting as generation") == 2)
    world.publish_window()
    again = world.status_when(
        "another controller leads", lambda status: status["epoch"][0] > generation and used_up(status)
    )
    assert again["apps"][0]["disruption"]["used_s"] == 9.0, "the windows that it reads again are counted once"
