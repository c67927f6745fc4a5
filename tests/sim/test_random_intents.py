"""No event that the decider makes raises in the execution; `python -m tests.sim.random_intents` plays 100,000 steps."""

from tests.sim.random_intents import play
from trimtab_controller.decider.values.decision import Forgotten, IntentRefused, Planned, Scaled


def test_whatever_is_said_and_seen_no_machine_raises() -> None:
    decided = {kind for seed in range(12) for kind in play(seed, steps=250)}
    assert {Planned, Forgotten, IntentRefused, Scaled} <= decided, "otherwise it shows little"
