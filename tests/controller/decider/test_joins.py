"""A worker that joins while key groups move: every round is small, and the next one plans with it."""

from tests.controller.decider.hosted_job import HostedJob, Machine, kg
from trimtab_controller.decider.events import IntentsChanged
from trimtab_controller.decider.values.decision import Planned
from trimtab_protocol.messages.intents import Drain
from trimtab_protocol.messages.names import HostId, WorkerId

H0, H1, H2 = map(HostId, ("h0", "h1", "h2"))
W0, W1, W2 = map(WorkerId, ("w0", "w1", "w2"))


def test_the_next_round_of_a_drain_gives_to_a_worker_that_has_joined() -> None:
    owners = {kg(number): W0 if number < 12 else W1 for number in range(16)}
    made = HostedJob(
        machines={H0: Machine(4.0), H1: Machine(4.0)},
        workers={W0: H0, W1: H1},
        owners=owners,
        rates=dict.fromkeys(owners, 40.0),
    )
    decider = made.decider(max_migrations=4)
    decider.on_event(0.0, IntentsChanged(intents=(Drain(worker=W0, by="ann", at=1.0, reason="test"),)))
    (first,) = [each for each in made.round(decider) if isinstance(each, Planned)]
    assert {move.target for move in first.plan.moves} == {W1}
    assert len(first.plan.moves) == 4, "the budget of a round, so that most of the drain is still to come"
    made.machines[H2], made.workers[W2] = Machine(4.0), H2
    for _ in range(4):
        made.round(decider)
    counts = list(made.owners.values())
    assert (counts.count(W0), counts.count(W1), counts.count(W2)) == (0, 8, 8)
