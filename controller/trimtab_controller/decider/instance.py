"""A view as the balance instance of the file contracts: what the solver is asked and `trimtab snapshot` prints."""

from trimtab_controller.decider.decide import Settings
from trimtab_controller.decider.view import AppView
from trimtab_controller.solver.answer import Question
from trimtab_models.instances import BalanceInstance, Budget, Flow, Node, Options
from trimtab_models.instances import KeyGroup as InstanceKeyGroup


def question_of(view: AppView, settings: Settings, time_limit_s: float) -> Question:
    """What the solver is asked about the app."""
    return Question(instance=instance_of(view, settings), time_limit_s=time_limit_s, method=settings.planned_with)


def instance_of(view: AppView, settings: Settings) -> BalanceInstance:
    """The app as the contract's snapshot, with the budget of one round.

    The load distance that a plan may go up to is the band, or what a drain may cost while a worker is emptied.
    A state that was not measured is taken to be as large as the largest of its operator: a cost is not guessed away.
    """
    largest: dict[str, int] = {}
    for row in view.key_groups:
        largest[row.key_group.operator] = max(largest.get(row.key_group.operator, 0), row.state_bytes or 0)
    known = view.owners
    end_cost = 100.0 * (settings.remote_tuple_cpu_s or 0.0) / 2.0  # percent of a core per tuple/s, at each of both ends
    return BalanceInstance(
        nodes=tuple(Node(id=worker.id, capacity=worker.capacity, removing=worker.draining) for worker in view.workers),
        key_groups=tuple(
            InstanceKeyGroup(
                id=str(row.key_group),
                operator=row.key_group.operator,
                node=row.owner,
                load=row.load,
                state_bytes=largest[row.key_group.operator] if row.state_bytes is None else row.state_bytes,
            )
            for row in view.key_groups
        ),
        flows=tuple(
            Flow(source=str(source), target=str(target), rate=rate)
            for (source, target), rate in sorted(view.flows.items())
            if source in known and target in known
        ),
        budget=Budget(max_migrations=settings.max_migrations),
        options=Options(
            max_load_distance=settings.drain_load_distance if view.draining else settings.load_distance,
            serialise_cost=end_cost,
            deserialise_cost=end_cost,
        ),
    )
