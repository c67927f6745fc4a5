"""Rules that come, end and contradict each other, while workers are lost and drained: none is broken."""

import pytest

from tests.sim.ruled import found
from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.ruled_defects import DEFECTS
from tests.sim.simulated.ruled_rounds import Counts, RuledCluster
from trimtab_controller.decider.values.decision import StandbysPlaced
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.rules import Rule, RuleKind

ROUNDS = 100
FIRST_SEEDS = {
    "key groups stay where a rule is broken": 27,
    "nothing is spread": 4,
    "zones are not looked at": 3,
    "a rule that will end has ended": 1,
    "exclusions are not kept": 1,
}
"""Where to begin for defects that not every cluster shows; `python -m tests.sim.ruled --defects` begins at 0."""


def test_no_decision_breaks_a_rule() -> None:
    counts, seed = Counts(), 1_000
    while counts.rounds < ROUNDS:
        counts.add(RuledCluster(seed).run())
        seed += 1
    print(counts)
    happened = (counts.judged, counts.fixed, counts.conflicts, counts.losses, counts.drains, counts.settled)
    assert min(happened) > 0, "too quiet"


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect: str) -> None:
    assert found(defect, FIRST_SEEDS.get(defect, 0)) is not None


def test_the_judge_finds_what_breaks_a_rule() -> None:
    """The rules of the judge and of the decider differ: what one of them does not know must be found."""
    cluster = RuledCluster(3)
    [first, *_] = cluster.job.owners
    elsewhere = Rule(name="planted", kind=RuleKind.POOL, reason="r", workers=("nobody",))
    row = (WorkerId("w0"), WorkerId("w1"))
    placed = StandbysPlaced(app=first.app, rows={first: row}, lacking={}, detail="")
    with pytest.raises(Violation, match=r"becomes a standby of .* against planted"):
        cluster._judge(placed, [elsewhere], {first: cluster.job.owners[first]}, {first: ()})
    with pytest.raises(Violation, match="nobody is told"):
        cluster._compare([elsewhere], told=False)
