"""The part of the status about what tuples between workers cost, and what it would save to keep them local."""

from dataclasses import dataclass

from trimtab_protocol.messages.decode import Fields
from trimtab_protocol.messages.names import OperatorId

MAX_COST_S = 1e6
"""CPU seconds of one tuple, either way."""
MAX_OPERATORS = 1_000
"""Operators of one app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCostStatus:
    """What a tuple costs more at one end because it goes to another worker, CPU seconds of a reference core.

    `value` with its standard `error`, which has `freedom` degrees of freedom; by chance it may be negative.
    `significant`: plans count with it.  `unknown` = why nothing is known.
    """

    value: float | None = None
    error: float | None = None
    freedom: float | None = None
    significant: bool = False
    unknown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCostStatus:
    """The costs of an operator, per tuple that it sends and per tuple that it receives."""

    operator: OperatorId
    sending: RemoteCostStatus
    receiving: RemoteCostStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CollocationStatus:
    """What collocation can bring; None = unknown.

    `obtainable` = share of the tuples between key groups that could stay within a worker at most; `worth_cores` = what
    this would save besides what is saved now, by the costs that are significant.
    """

    operators: tuple[OperatorCostStatus, ...] = ()
    obtainable: float | None = None
    worth_cores: float | None = None


def read_collocation(row: Fields) -> CollocationStatus:
    """The `remote_costs` of an app; raises BadMessage."""
    return CollocationStatus(
        operators=tuple(
            OperatorCostStatus(
                operator=OperatorId(each.name("operator")),
                sending=_read_cost(each.fields("sending")),
                receiving=_read_cost(each.fields("receiving")),
            )
            for each in row.objects("operators", limit=MAX_OPERATORS)
        ),
        obtainable=row.optional("obtainable", lambda name: row.number(name, high=1.0)),
        worth_cores=row.optional("worth_cores", row.number),
    )


def _read_cost(row: Fields) -> RemoteCostStatus:
    return RemoteCostStatus(
        value=row.optional("value", lambda name: row.number(name, low=-MAX_COST_S, high=MAX_COST_S)),
        error=row.optional("error", row.number),
        freedom=row.optional("freedom", row.number),
        significant=row.flag("significant"),
        unknown=row.optional("unknown", lambda name: row.text(name, limit=200)),
    )
